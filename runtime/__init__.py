"""The public door of lastword (C10). Hosts need nothing else.

``events`` is the module of event bodies (``events.CompletionReached``, ``events.ToolStarted``, …). The names load on
first use: the command and a host that only reads records pay for no actors, no asyncio and no database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastword.actors.core import events
    from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt
    from lastword.actors.core.errors import (
        ActorError,
        JournalError,
        LastwordError,
        ProviderError,
        RejectedError,
        TransportError,
        UsageError,
    )
    from lastword.actors.core.events import Event
    from lastword.actors.core.limits import Limits
    from lastword.actors.core.outcome import Completion, TurnError
    from lastword.actors.core.policy import DialogPolicy, answer_trust
    from lastword.actors.core.snapshot import Dialog, Snapshot
    from lastword.actors.core.tools import Tool, ToolCall
    from lastword.runtime._async_runtime import AsyncRuntime
    from lastword.runtime._async_session import AsyncSession
    from lastword.runtime._runtime import Runtime
    from lastword.runtime._session import Session

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

_HOMES = {
    "lastword.actors.core.delivery": ("Answer", "Command", "Delivery", "Interrupt"),
    "lastword.actors.core.errors": (
        "ActorError",
        "JournalError",
        "LastwordError",
        "ProviderError",
        "RejectedError",
        "TransportError",
        "UsageError",
    ),
    "lastword.actors.core.events": ("Event",),
    "lastword.actors.core.limits": ("Limits",),
    "lastword.actors.core.outcome": ("Completion", "TurnError"),
    "lastword.actors.core.policy": ("DialogPolicy", "answer_trust"),
    "lastword.actors.core.snapshot": ("Dialog", "Snapshot"),
    "lastword.actors.core.tools": ("Tool", "ToolCall"),
    "lastword.runtime._async_runtime": ("AsyncRuntime",),
    "lastword.runtime._async_session": ("AsyncSession",),
    "lastword.runtime._runtime": ("Runtime",),
    "lastword.runtime._session": ("Session",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "events":
        value: Any = import_module("lastword.actors.core.events")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
