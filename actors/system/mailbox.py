"""The mailbox: two lanes, a bound, and the one bit that says whether its actor is waiting to run.

It is a pykka inbox (``put``, ``get``, ``empty``), and it is where the pooled dispatcher's trick lives:
pykka's loop calls ``get`` outside its ``try`` (see ``pykka_contract``), so a private BaseException out of
``get`` leaves the loop with the actor intact. Only the thread that runs the actor calls ``get``; everything
else may come from any thread.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop

from lastword.actors.core.errors import ActorError, UsageError
from lastword.actors.system.deadletters import DEAD
from lastword.actors.system.envelope import Envelope, PykkaReply, next_number
from lastword.actors.system.tracing import kind_of, plain_kind

if TYPE_CHECKING:
    from lastword.actors.system.cell import Cell
    from lastword.actors.system.tracing import Tracer


class SliceOverError(BaseException):
    """Leaves pykka's loop: nothing queued, or the batch is spent. Always raised fresh: no chained frames."""


class Offer(enum.Enum):
    """What became of an envelope."""

    TAKEN = enum.auto()
    FULL = enum.auto()
    CLOSED = enum.auto()


class Stop:
    """Ask the actor to end; made here only."""

    __slots__ = ()


STOP = Stop()


class Mailbox:
    """Control messages pass user messages; within a lane the order of putting is kept.

    Attributes:
        current: the envelope being handled, for its context; None between slices.
        closed: nothing more is taken, ever.
        wakeups: how often an idle actor was woken; lets ``settle`` see activity between two looks.
    """

    __slots__ = (
        "_budget",
        "_cell",
        "_control",
        "_control_stop",
        "_lock",
        "_raised",
        "_scheduled",
        "_started_ns",
        "_traced_by",
        "_user",
        "_user_stop",
        "closed",
        "current",
        "messages_max",
        "wakeups",
    )

    def __init__(self, cell: Cell, messages_max: int) -> None:
        self._cell = cell
        self._lock = threading.Lock()
        self._user: deque[Envelope] | None = None  # each lane only while something is queued: an empty deque
        self._control: deque[Envelope] | None = None  # weighs 0.75 KiB, and most actors are idle
        self._budget = 0
        self._scheduled = True  # a new actor is about to run its start
        self._control_stop = False
        self._user_stop = False
        self._traced_by: Tracer | None = None  # while a message is handled that is traced
        self._started_ns = 0
        self._raised = False
        self.messages_max = messages_max
        self.current: Envelope | None = None
        self.closed = False
        self.wakeups = 0

    # from any thread

    def offer(self, envelope: Envelope, waiting_max: int | None = None) -> Offer:
        """Queue a user message, unless closed or full (or so many wait already); wakes an idle actor."""
        with self._lock:
            if self.closed:
                return Offer.CLOSED
            lane = self._user
            if lane is None:
                lane = self._user = deque()
            if len(lane) >= (self.messages_max if waiting_max is None else waiting_max):
                return Offer.FULL
            lane.append(envelope)
            if self._scheduled:
                return Offer.TAKEN
            self._scheduled = True
            self.wakeups += 1
        self._cell.schedule()
        return Offer.TAKEN

    def offer_system(self, envelope: Envelope, *, control: bool = False, bounded: bool = False) -> Offer:
        """Queue in either lane; unbounded only for what is bounded elsewhere (deaths, failures, timers)."""
        with self._lock:
            if self.closed:
                return Offer.CLOSED
            lane = self._lane(control=control)
            if bounded and len(lane) >= self.messages_max:
                return Offer.FULL
            lane.append(envelope)
            wake = self._wake()
        if wake:
            self._cell.schedule()
        return Offer.TAKEN

    def offer_stop(self, envelope: Envelope, *, control: bool) -> None:
        """Queue the stop, at most one per lane; nothing when closed."""
        with self._lock:
            if self.closed or (self._control_stop if control else self._user_stop):
                return
            if control:
                self._control_stop = True
            else:
                self._user_stop = True
            self._lane(control=control).append(envelope)
            wake = self._wake()
        if wake:
            self._cell.schedule()

    def _lane(self, *, control: bool) -> deque[Envelope]:
        """That lane, made where there is none. Needs the lock."""
        lane = self._control if control else self._user
        if lane is None:
            lane = deque()
            if control:
                self._control = lane
            else:
                self._user = lane
        return lane

    def _wake(self) -> bool:
        """Mark the actor as waiting to run; whether the caller must schedule it. Needs the lock."""
        if self._scheduled:
            return False
        self._scheduled = True
        self.wakeups += 1
        return True

    def put(self, envelope: Any, /) -> None:
        """The door for a pykka ``ActorRef``: stops are translated, proxy calls refused, the dead answer."""
        message = envelope.message
        reply_to = PykkaReply(envelope.reply_to) if envelope.reply_to is not None else None
        number = next_number()
        ours = Envelope(message, reply_to, None, number, 0, number, perf_counter_ns())
        if isinstance(message, _ActorStop):
            ours.message = STOP
            offer = self.offer_system(ours)
        elif isinstance(message, ProxyCall | ProxyGetAttr | ProxySetAttr):
            _fail(ours, UsageError("usage", "lastword's actors take messages, not proxy calls"))
            return
        else:
            offer = self.offer(ours)
        if offer is Offer.FULL:
            _fail(ours, ActorError("mailbox_full", f"{self.messages_max} messages are queued"))
        elif offer is Offer.CLOSED and not refuse(ours):
            self._cell.system.dead_letters.record(DEAD, self._cell.ref, message)

    def close(self) -> list[Envelope]:
        """Take nothing more; returns what was queued, control first. Idempotent."""
        with self._lock:
            self.closed = True
            left = [*(self._control or ()), *(self._user or ())]
            if self._user is not None:
                self._user.clear()  # whoever runs the actor may have it in hand
            self._user = self._control = None
            return left

    def at_rest(self) -> bool:
        """Nothing queued and nothing running."""
        return not self._scheduled

    def waiting(self) -> int:
        """Messages queued now, both lanes."""
        return len(self._user or ()) + len(self._control or ())

    # from the thread that runs the actor

    def begin_slice(self, batch: int) -> None:
        self._budget = batch

    def get(self) -> Envelope:
        """The next envelope. Raises ``SliceOverError`` when there is none or the batch is spent.

        That the next one is asked for ends the handling of the one before, and has its tracer told of it: a trace costs
        one reading of the clock a message, and no call.
        """
        tracer = self._traced_by
        if tracer is None:
            now_ns = 0
        else:
            handled: Any = self.current
            message, sender = handled.message, handled.sender
            self._traced_by = None
            now_ns = perf_counter_ns()
            hops = tracer.hops
            if len(hops) < tracer.hops_max:
                hops.extend(
                    (
                        handled.number,
                        handled.causation,
                        handled.about or handled.trace,
                        sender.name if sender is not None else None,
                        self._cell.ref.name,
                        plain_kind(message.__class__) or kind_of(message),
                        handled.enqueued_ns,
                        self._started_ns,
                        now_ns,
                        handled.origin,
                        self._raised,
                    )
                )
            else:
                tracer.lose()
        if self._budget <= 0:
            raise SliceOverError
        self._budget -= 1
        lane = self._control or self._user
        if lane is None:
            raise SliceOverError
        try:
            envelope = lane.popleft()
        except IndexError:
            raise SliceOverError from None
        self.current = envelope
        cell = self._cell
        tracer = cell.system.tracer
        if tracer is not None:
            self._traced_by, self._raised = tracer, False
            self._started_ns = now_ns or perf_counter_ns()
            if cell.trace is not None:
                envelope.trace = cell.trace
        return envelope

    def end_slice(self) -> None:
        """No further one is asked for, though there may be some."""
        if self._traced_by is not None:
            self._budget = 0
            with contextlib.suppress(SliceOverError):
                self.get()

    def hop_raised(self) -> None:
        """The handler of the message in hand raised."""
        self._raised = True

    def forget_hop(self) -> None:
        """What is in hand is nothing that is handled."""
        self._traced_by = None

    def empty(self) -> bool:
        return not self._user and not self._control

    def rest(self) -> bool:
        """Go idle if nothing is queued; False means there is more and the actor must be scheduled again."""
        with self._lock:
            if self._user or self._control:
                return False
            self._user = self._control = None
            self._scheduled = False
            return True


def refuse(envelope: Envelope) -> bool:
    """Answer an ask that will never be handled; whether it was one."""
    reply_to = envelope.reply_to
    if reply_to is None:
        return False
    if envelope.message is STOP:
        reply_to.set(None)
    else:
        error = ActorError("actor_dead", "the actor ended before it handled the message")
        reply_to.set_exception((ActorError, error, None))
    return True


def _fail(envelope: Envelope, error: Exception) -> None:
    """To the asker if there is one, else to the caller."""
    if envelope.reply_to is None:
        raise error
    envelope.reply_to.set_exception((type(error), error, None))
