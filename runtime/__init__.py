"""The public door of lastword (C10). Hosts need nothing else.

``events`` is the module of event bodies (``events.CompletionReached``, ``events.ToolStarted``, …).
"""

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
from lastword.actors.core.outcome import Completion, TurnError
from lastword.actors.core.snapshot import Snapshot
from lastword.runtime._runtime import AsyncRuntime, Runtime
from lastword.runtime._session import AsyncSession, Session

__all__ = [
    "ActorError",
    "Answer",
    "AsyncRuntime",
    "AsyncSession",
    "Command",
    "Completion",
    "Delivery",
    "Event",
    "Interrupt",
    "JournalError",
    "LastwordError",
    "ProviderError",
    "RejectedError",
    "Runtime",
    "Session",
    "Snapshot",
    "TransportError",
    "TurnError",
    "UsageError",
    "events",
]
