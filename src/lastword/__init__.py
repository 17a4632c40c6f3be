"""lastword: drive coding-agent CLIs and get exactly one last word for every turn.

The public names live in ``lastword.runtime``; they load on first use, so that importing a pure core module
(``lastword.actors.core.turn``) does not import the runtime, tmux or a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastword.runtime import (
        ActorError,
        Answer,
        AsyncRuntime,
        AsyncSession,
        Command,
        Completion,
        Delivery,
        Dialog,
        DialogPolicy,
        Event,
        Interrupt,
        JournalError,
        LastwordError,
        Limits,
        ProviderError,
        RejectedError,
        Runtime,
        Session,
        Snapshot,
        Tool,
        ToolCall,
        TransportError,
        TurnError,
        UsageError,
        answer_trust,
        events,
    )

__version__ = "0.1.0"

__all__ = [
    "ActorError",
    "Answer",
    "AsyncRuntime",
    "AsyncSession",
    "Command",
    "Completion",
    "Delivery",
    "Dialog",
    "DialogPolicy",
    "Event",
    "Interrupt",
    "JournalError",
    "LastwordError",
    "Limits",
    "ProviderError",
    "RejectedError",
    "Runtime",
    "Session",
    "Snapshot",
    "Tool",
    "ToolCall",
    "TransportError",
    "TurnError",
    "UsageError",
    "answer_trust",
    "events",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module 'lastword' has no attribute {name!r}"
        raise AttributeError(msg)
    from lastword import runtime  # noqa: PLC0415

    return getattr(runtime, name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
