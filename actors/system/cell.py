"""The cell: what stays the same of an actor while its incarnations come and go.

It owns the mailbox, the family, the watchers, the timers and the end. House rules: one slice of a cell runs
at a time (the mailbox's scheduled bit); the phase, family and watchers change under the system's lock; no
user code runs under any lock; the step to DEAD happens once, and only who made it announces it.

An end goes: close the mailbox (a restart keeps it open), cancel the timers, stop the children and wait for
them, at most ``CHILDREN_STOP_MAX_S``, ``stopped()``, then either the next incarnation or DEAD: free the
name, tell the parent ``ChildFailed``, tell the watchers ``Terminated``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lastword.actors.core.errors import ActorError
from lastword.actors.system import deadletters
from lastword.actors.system.envelope import Envelope, context, next_number
from lastword.actors.system.mailbox import STOP, Mailbox, Offer, SliceOverError, refuse
from lastword.actors.system.ref import Ref
from lastword.actors.system.supervision import (
    ChildFailed,
    EndReason,
    RestartLedger,
    Supervision,
    Terminated,
)

if TYPE_CHECKING:
    from lastword.actors.system.actor import Actor
    from lastword.actors.system.dispatcher import Dispatcher
    from lastword.actors.system.system import ActorSystem
    from lastword.actors.system.timers import TimerEntry
    from lastword.actors.system.tracing import Record

CHILDREN_STOP_MAX_S: Final = 5.0
"""How long an ending actor waits for its children before it gives them up as killed."""


class Phase(enum.Enum):
    """Where in its life an actor is."""

    STARTING = enum.auto()
    RUNNING = enum.auto()
    ENDING = enum.auto()
    DEAD = enum.auto()


class Failure:
    """Why an incarnation failed; lives only until its parent is told."""

    __slots__ = ("error", "message_type")

    def __init__(self, error: BaseException, message_type: str) -> None:
        self.error = error
        self.message_type = message_type


class ActorTimer:
    """One set timer; also the message that its firing puts into the owner's mailbox."""

    TRACED_AS: ClassVar[str] = "message"
    __slots__ = ("_cell", "entry", "key", "live", "message")

    def __init__(self, cell: Cell, message: object, key: Hashable) -> None:
        self._cell = cell
        self.key = key
        self.message = message
        self.live = True
        self.entry: TimerEntry | None = None

    def take(self) -> bool:
        """On the owner's thread, as it is about to be handled: whether it still counts."""
        return self.live and self._cell.forget_timer(self)


class Cell:
    """One actor's fixed part. ``system`` and ``ref`` are for everybody, the rest for this package.

    Attributes:
        trace: all that it handles belongs to this trace; None: to whatever trace brought it.
    """

    __slots__ = (
        "_failure",
        "_giving_up",
        "_ledger",
        "_make",
        "_origin",
        "_timers",
        "_waiting_for_children",
        "_waits",
        "_watchers",
        "actor",
        "children",
        "dispatcher",
        "ending_reason",
        "incarnation",
        "mailbox",
        "parent",
        "phase",
        "ref",
        "system",
        "trace",
    )

    timer_class: Final = ActorTimer

    def __init__(
        self,
        system: ActorSystem,
        make: tuple[type[Actor], tuple[Any, ...], dict[str, Any]],
        *,
        name: str,
        parent: Cell | None,
        dispatcher: Dispatcher,
        mailbox_max: int,
        supervision: Supervision,
    ) -> None:
        number = next_number()
        self.system = system
        self.parent = parent
        self.dispatcher = dispatcher
        self.ref = Ref(self, name, f"urn:lastword:{system.name}:{number}:{name}")
        self.mailbox = Mailbox(self, mailbox_max)
        self.children: dict[Cell, None] | None = None
        self.phase = Phase.STARTING
        self.incarnation = 1
        self.ending_reason: EndReason = "stopped"
        self.trace: str | None = None
        self._make: tuple[type[Actor], tuple[Any, ...], dict[str, Any]] | None = make
        self._ledger = RestartLedger(supervision)
        self._failure: Failure | None = None
        self._timers: dict[Hashable, ActorTimer] | None = None
        self._watchers: dict[str, Ref] | None = None
        self._waits: set[Callable[[], object]] | None = None
        self._waiting_for_children = False
        self._giving_up: TimerEntry | None = None
        here = context.cell
        cause = here.mailbox.current if here is not None else None
        trace = cause.trace if cause is not None else context.trace or number
        self._origin = Envelope(
            None,
            None,
            parent.ref if parent is not None else None,
            trace,
            cause.number if cause is not None else 0,
            number,
            perf_counter_ns(),
        )
        self.actor: Actor | None = None

    def build(self) -> None:
        """Make an incarnation; whatever its ``__init__`` raises goes to the caller."""
        assert self._make is not None
        actor_class, args, kwargs = self._make
        outer, context.newborn = context.newborn, self
        try:
            self.actor = actor_class(*args, **kwargs)
        finally:
            context.newborn = outer

    @property
    def failure(self) -> BaseException | None:
        """What the incarnation ends of."""
        return self._failure.error if self._failure is not None else None

    @property
    def kind(self) -> str:
        """The name of its actor's class; "" once it is dead."""
        return self._make[0].__name__ if self._make is not None else ""

    def is_dead(self) -> bool:
        """Whether its end has been made and its name is being freed."""
        return self.phase is Phase.DEAD

    # running

    def schedule(self) -> None:
        """Have the dispatcher run a slice; only the holder of the mailbox's scheduled bit may."""
        self.dispatcher.schedule(self)

    def run_slice(self) -> None:
        """Run one batch, or one step of an end. Never raises: the dispatcher's thread must live."""
        context.cell = self
        try:
            self._slice()
        except BaseException as error:  # a defect of this package, not of the actor: never keep it quiet
            self.system.dead_letters.record(f"defect_{type(error).__name__}", self.ref, self.mailbox.current)
            self._die("failed", Failure(error, "slice"))
        finally:
            context.cell = None

    def _slice(self) -> None:
        actor = self.actor
        if self.phase is Phase.STARTING:
            with self.system.lock:
                if self.phase is Phase.STARTING:
                    self.phase = Phase.RUNNING
            self.mailbox.current = self._origin
            if actor is not None:
                actor._actor_loop_setup()  # noqa: SLF001  # pykka's: calls on_start
        if self.phase is Phase.RUNNING and actor is not None:
            self.mailbox.begin_slice(self.system.batch)
            try:
                actor._actor_loop_running()  # noqa: SLF001  # pykka's: get, on_receive, reply
            except SliceOverError:
                pass
            else:
                self.mailbox.end_slice()  # it stops: no next one was asked for
            self.mailbox.current = None  # before another thread may run the next slice
            if self.is_dead():
                self._release_late(actor)
            elif actor.actor_stopped.is_set():
                self._begin_end(actor)
            elif not self.mailbox.rest():
                self.schedule()
        elif self.phase is Phase.ENDING:
            self._conclude()

    # called from the actor's guard, on its thread

    def request_stop(self) -> None:
        """End after the message in hand."""
        if self.actor is not None:
            self.actor.actor_stopped.set()

    def handler_raised(self, error: BaseException, message: object) -> None:
        """A handler raised: to the asker if there is one, else it is the actor's failure."""
        envelope = self.mailbox.current
        self.mailbox.hop_raised()
        if envelope is not None and envelope.reply_to is not None:
            if isinstance(error, Exception):
                envelope.reply_to.set_exception((type(error), error, error.__traceback__))
                return
            dead = ActorError("actor_dead", f"the handler of {self.ref.name} raised {type(error).__name__}")
            envelope.reply_to.set_exception((ActorError, dead, None))
        self.system.dead_letters.record(deadletters.FAILED, self.ref.name, message)
        self.hook_raised(error, type(message).__name__)

    def hook_raised(self, error: BaseException, message_type: str) -> None:
        """The incarnation failed and ends."""
        if self._failure is None:
            self._failure = Failure(error, message_type)
        self.request_stop()

    def tracer_raised(self, error: Exception, record: Record) -> None:
        """A tracer that raises is taken off."""
        self.system.dead_letters.record(f"tracer_{type(error).__name__}", self.ref, record)
        self.system.set_tracer(None)

    # timers, on the actor's thread

    def set_timer(self, delay_s: float, message: object, key: Hashable | None, *, control: bool) -> None:
        """See ``Actor.after``."""
        timer = ActorTimer(self, message, key if key is not None else object())
        self.cancel_timer(timer.key)
        if self._timers is None:
            self._timers = {}
        cause = self.mailbox.current
        trace, causation = (cause.trace, cause.number) if cause is not None else (next_number(), 0)

        def fire() -> None:
            envelope = Envelope(timer, None, self.ref, trace, causation, next_number(), perf_counter_ns(), "timer")
            self.mailbox.offer_system(envelope, control=control)

        self._timers[timer.key] = timer
        timer.entry = self.system.timers.at(self.system.clock.monotonic() + max(0.0, delay_s), fire)

    def cancel_timer(self, key: Hashable) -> bool:
        """See ``Actor.cancel_timer``."""
        timer = self._timers.get(key) if self._timers is not None else None
        if timer is None:
            return False
        self.forget_timer(timer)
        if timer.entry is not None:
            self.system.timers.cancel(timer.entry)
        return True

    def forget_timer(self, timer: ActorTimer) -> bool:
        """It will not be handled after this; True."""
        timer.live = False
        if self._timers is not None and self._timers.get(timer.key) is timer:
            del self._timers[timer.key]
        return True

    def _cancel_timers(self) -> None:
        for key in list(self._timers or ()):
            self.cancel_timer(key)

    # death watch, from any thread

    def add_watcher(self, watcher: Ref) -> None:
        """See ``Actor.watch``."""
        with self.system.lock:
            if self.phase is not Phase.DEAD:
                if self._watchers is None:
                    self._watchers = {}
                self._watchers[watcher.urn] = watcher
                return
        self._notify(watcher, Terminated(ref=self.ref, reason=self.ending_reason))

    def remove_watcher(self, watcher: Ref) -> None:
        """See ``Actor.unwatch``."""
        with self.system.lock:
            if self._watchers is not None:
                self._watchers.pop(watcher.urn, None)

    def when_ended(self, wake: Callable[[], object]) -> None:
        """See ``Ref.when_ended``."""
        with self.system.lock:
            if self.phase is not Phase.DEAD:
                if self._waits is None:
                    self._waits = set()
                self._waits.add(wake)
                return
        wake()

    def forget_end(self, wake: Callable[[], object]) -> None:
        """See ``Ref.forget_end``."""
        with self.system.lock:
            if self._waits is not None:
                self._waits.discard(wake)
                self._waits = self._waits or None

    # the end

    def _begin_end(self, actor: Actor) -> None:
        failure = self._failure
        restart = failure is not None and not self.system.closing and self._ledger.grant(self.system.clock.monotonic())
        if not restart:
            self._drain(deadletters.STOPPED if failure is None else deadletters.BEHIND_FAILURE)
            self._make = None
        self._cancel_timers()
        with self.system.lock:
            killed = self.phase is Phase.DEAD
            children = list(self.children or ())
            if not killed:
                self.phase = Phase.ENDING
                self._waiting_for_children = bool(children)
        if killed:
            self._release_late(actor)
            return
        if not children:
            self._conclude()
            return
        for child in reversed(children):
            child.ref.stop()
        due_s = self.system.clock.monotonic() + CHILDREN_STOP_MAX_S
        self._giving_up = self.system.timers.at(due_s, self._give_up_children)

    def _give_up_children(self) -> None:
        with self.system.lock:
            children = list(self.children or ()) if self._waiting_for_children else []
        for child in reversed(children):
            child.kill()

    def child_gone(self, child: Cell) -> None:
        """A child is dead; the last one wakes an ending parent."""
        with self.system.lock:
            if self.children is not None:
                self.children.pop(child, None)
            wake = self._waiting_for_children and not self.children
            if wake:
                self._waiting_for_children = False
        if wake:
            self.schedule()

    def _conclude(self) -> None:
        """The children are gone: release the incarnation, then begin the next or die."""
        actor, failure = self.actor, self._failure
        giving_up, self._giving_up = self._giving_up, None
        if giving_up is not None:
            self.system.timers.cancel(giving_up)  # else it would keep all that is dead here for its whole time
        self.mailbox.current = self._origin
        if actor is None:
            return
        try:
            actor.stopped()
        except BaseException as error:
            failure = failure or Failure(error, "stopped")
        del actor
        if self._make is None or self.system.closing:
            self._die("stopped" if failure is None else "failed", failure)
            return
        assert failure is not None
        self.actor = self._failure = None
        if not self._rebuild(failure):
            return
        self.mailbox.current = None
        with self.system.lock:
            if self.phase is not Phase.DEAD:
                self.phase = Phase.STARTING
        self.schedule()

    def _rebuild(self, failure: Failure) -> bool:
        """Make the next incarnation; an ``__init__`` that raises is one more failure. False: it died."""
        while True:
            self._tell_parent(failure, restarted=True)
            self.incarnation += 1
            try:
                self.build()
            except BaseException as error:
                failure = Failure(error, "__init__")
            else:
                return True
            if self.system.closing or not self._ledger.grant(self.system.clock.monotonic()):
                self._die("failed", failure)
                return False

    def _release_late(self, actor: Actor) -> None:
        """It was given up on and its handler came back after all: let it release what it holds."""
        try:
            actor.stopped()
        except BaseException as error:
            self.system.dead_letters.record(f"late_{type(error).__name__}", self.ref, STOP)

    def kill(self) -> None:
        """Give up on it from outside, while its handler may still run: mail drained, watchers told."""
        if self.phase is Phase.DEAD:
            return
        self._drain(deadletters.SHUTDOWN)
        current = self.mailbox.current  # read once nothing can follow it
        if current is not None:
            refuse(current)
        self.request_stop()
        self._die("killed", None)

    def _drain(self, reason: str) -> None:
        for envelope in self.mailbox.close():
            message = envelope.message
            if message is STOP:
                refuse(envelope)
            elif not isinstance(message, ActorTimer | Terminated):  # both mean nothing to the ended
                self.system.count_dropped(self.ref)
                if not refuse(envelope):
                    self.system.dead_letters.record(reason, self.ref, message)

    def _die(self, reason: EndReason, failure: Failure | None) -> None:
        """Make the one step to DEAD and announce it; the second caller does nothing."""
        self._drain(deadletters.STOPPED if failure is None else deadletters.BEHIND_FAILURE)
        with self.system.lock:
            if self.phase is Phase.DEAD:
                return
            self.phase = Phase.DEAD
            self.ending_reason = reason
            watchers, self._watchers = self._watchers, None
            waits, self._waits = self._waits, None
            orphans, self.children = list(self.children or ()), None
            self._waiting_for_children = False
        self._cancel_timers()
        self.actor = self._make = self._failure = None
        for orphan in reversed(orphans):
            orphan.ref.stop()
        self.system.forget(self)
        if failure is not None:
            self._tell_parent(failure, quarantined=self._ledger.refused)
        for watcher in (watchers or {}).values():
            self._notify(watcher, Terminated(ref=self.ref, reason=reason))
        for wake in waits or ():
            wake()
        if self.parent is not None:
            self.parent.child_gone(self)
        self.dispatcher.release()

    def _tell_parent(self, failure: Failure, *, restarted: bool = False, quarantined: bool = False) -> None:
        failed = ChildFailed(
            ref=self.ref,
            epoch=self.incarnation,
            error=failure.error,
            message_type=failure.message_type,
            restarted=restarted,
            quarantined=quarantined,
        )
        self.system.note_failure(failed)
        if self.parent is not None:
            self._notify(self.parent.ref, failed)

    def _notify(self, to: Ref, notice: ChildFailed | Terminated) -> None:
        """Tell of a death: never refused for lack of room, and behind what the dead one had told before."""
        cause = self.mailbox.current or self._origin
        envelope = Envelope(notice, None, self.ref, cause.trace, cause.number, next_number(), perf_counter_ns())
        target = to._cell  # noqa: SLF001
        closed = target.mailbox.offer_system(envelope) is Offer.CLOSED
        if closed and isinstance(notice, ChildFailed):
            target.system.dead_letters.record(deadletters.DEAD, to, notice)
