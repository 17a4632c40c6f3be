"""What travels: the message with who, why and when; the slot for its answer; the context of the sender.

A message told inside a handler inherits the handler's trace and names it as its cause. So does a timer's, and so does
what the outside answers to a handler's wish (``Link``). Any other message from outside begins a chain; where it is
traced, it names its *origin*: which part of the outside told it. Envelope numbers are unique in the process, so several
systems can tell each other.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from lastword.actors.core.errors import ActorError

if TYPE_CHECKING:
    from lastword.actors.system.cell import Cell
    from lastword.actors.system.dispatcher import PooledDispatcher
    from lastword.actors.system.ref import Ref

next_number = itertools.count(1).__next__
"""The next envelope number; atomic under the interpreter lock."""

_TRACE_SALT = os.urandom(4).hex()


class Reply:
    """Where the answer to one ask lands. The first settlement wins, later ones are ignored.

    It has the part of pykka's future that pykka's loop uses (``set``, ``set_exception``).
    """

    __slots__ = ("_claim", "_error", "_latch", "_value")

    def __init__(self) -> None:
        self._claim = threading.Lock()
        self._latch = threading.Lock()
        self._latch.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def set(self, value: Any = None) -> None:
        if self._claim.acquire(blocking=False):
            self._value = value
            self._latch.release()

    def fail(self, error: BaseException) -> None:
        if self._claim.acquire(blocking=False):
            self._error = error
            self._latch.release()

    def set_exception(self, exc_info: Any = None) -> None:
        """The way of pykka to fail a future. Our guard settles first; this is the belt to its braces."""
        error = exc_info[1] if exc_info is not None else None
        self.fail(error or ActorError("actor_dead", "the handler failed before it could answer"))

    def done(self) -> bool:
        """Whether there is an answer."""
        return not self._latch.locked()

    def wait(self, timeout_s: float) -> Any:
        """The answer, or the error raised; ``ActorError("actor_timeout")`` when the bound runs out."""
        if not self._latch.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
            raise ActorError("actor_timeout", f"no answer within {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        return self._value


class PykkaReply:
    """A pykka future, made to take the first settlement and ignore the rest."""

    __slots__ = ("_claim", "_future")

    def __init__(self, future: Any) -> None:
        self._claim = threading.Lock()
        self._future = future

    def set(self, value: Any = None) -> None:
        if self._claim.acquire(blocking=False):
            self._future.set(value)

    def set_exception(self, exc_info: Any = None) -> None:
        if self._claim.acquire(blocking=False):
            self._future.set_exception(exc_info)


class Envelope(msgspec.Struct):
    """One message on its way. The field names ``message`` and ``reply_to`` are what pykka's loop reads.

    Attributes:
        trace: the number of the envelope that began the trace; or its name: a turn's id, a message's, the host's own.
        causation: number of the envelope whose handler told this one; 0 from outside.
        enqueued_ns: ``perf_counter_ns`` when it was told.
        origin: what told it, where that was no handler; only where it is traced.
        about: the trace that its handler found it to belong to, whatever trace brought it.
    """

    message: Any
    reply_to: Any
    sender: Ref | None
    trace: int | str
    causation: int
    number: int
    enqueued_ns: int
    origin: str | None = None
    about: str | None = None


def trace_text(trace: int | str) -> str:
    """The trace id as others see it, unique over processes."""
    return trace if isinstance(trace, str) else f"{_TRACE_SALT}-{trace:x}"


_ORIGINS = {
    "lastword-inotify": "file_watch",
    "lastword-watchdog": "file_watch",
    "lastword-sweep": "file_sweep",
    "lastword-exits": "process",
    "lastword-close": "process",
    "lastword-stdio": "pipe",
    "lastword-door": "socket",
}
"""Threads of the edge by what they bring; any other one of ours brings what its name says."""


def origin() -> str:
    """What the calling thread is to the actors: a part of the edge, or the ``host``."""
    known = context.origin
    if known is None:
        name = re.sub(r"-\d+$", "", threading.current_thread().name)
        known = _ORIGINS.get(name) or (name.removeprefix("lastword-") if name.startswith("lastword-") else "host")
        context.origin = known
    return known


class _Context(threading.local):
    """What this thread does: whose handler runs, the host's trace, its pool, the actor being made, what it is."""

    cell: Cell | None = None
    trace: str | None = None
    pool: PooledDispatcher | None = None
    newborn: Cell | None = None
    origin: str | None = None


context = _Context()
