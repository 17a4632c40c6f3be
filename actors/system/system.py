"""One actor system: who lives in it, what runs them, and how all of it ends.

Several systems share a process and know nothing of each other, nor of the host's own pykka actors: nothing
here is in pykka's process-wide registry, and nothing here touches it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from lastword.actors.core.errors import ActorError, UsageError
from lastword.actors.system.cell import Cell, Phase
from lastword.actors.system.clock import Clock, SystemClock
from lastword.actors.system.deadletters import DeadLetters
from lastword.actors.system.dispatcher import (
    Dispatcher,
    DispatcherName,
    PinnedDispatcher,
    PooledDispatcher,
    join_all,
)
from lastword.actors.system.envelope import context
from lastword.actors.system.pykka_contract import verify_pykka
from lastword.actors.system.ref import Ref
from lastword.actors.system.simulation import SimulatedDispatcher, Simulation
from lastword.actors.system.supervision import STOP_ON_FAILURE, ChildFailed, Supervision
from lastword.actors.system.timers import Timers

if TYPE_CHECKING:
    from lastword.actors.system.actor import Actor
    from lastword.actors.system.tracing import Tracer

FAILURES_MAX = 256
"""Failures remembered one by one."""

SETTLE_PAUSE_S = 0.0005
"""Pause between two looks in ``settle``, which is for tests and hand-moved clocks."""


class FailureNote(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, content-free: the error's type only, since its text may quote a message."""

    name: str
    epoch: int
    error_type: str
    message_type: str
    restarted: bool
    quarantined: bool
    at_wall_s: float


class ShutdownReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a shutdown went.

    Attributes:
        stopped: names in the order in which they had ended.
        abandoned: names given up on at their share of the deadline; their handlers may still run on daemon
        threads. dropped: messages queued and never handled, by actor. timers_cancelled: timers that were
        still to fire. threads_left: names of our threads still alive.
    """

    stopped: tuple[str, ...]
    abandoned: tuple[str, ...]
    dropped: dict[str, int]
    timers_cancelled: int
    threads_left: tuple[str, ...]


class Depth(NamedTuple):
    """How many messages wait for one actor, in both lanes; ``kind`` is its class."""

    name: str
    kind: str
    waiting: int


class ActorSystem:
    """Makes actors and ends them. Every method is safe from any thread.

    Args:
        name: goes into thread names and urns.
        clock: ``SystemClock`` unless given; a ``ManualClock`` fires the timers itself.
        workers: runnable threads of the pool.
        batch: messages an actor handles before it goes to the back of the run queue.
        dispatcher: the default of ``spawn``.
        mailbox_max: messages per lane and actor before ``tell`` is refused.
        tracer: takes a span per message handled; closed at shutdown.
        simulation: its clock and its one thread run everything, pinned actors too; ``clock``, ``workers`` and
            ``dispatcher`` mean nothing then.

    Attributes:
        dead_letters: what nobody handled.
        closing: a shutdown has begun.
    """

    def __init__(
        self,
        name: str = "lastword",
        *,
        clock: Clock | None = None,
        workers: int = 2,
        batch: int = 32,
        dispatcher: DispatcherName = "pooled",
        mailbox_max: int = 100_000,
        tracer: Tracer | None = None,
        simulation: Simulation | None = None,
    ) -> None:
        verify_pykka()
        if workers < 1 or batch < 1 or mailbox_max < 1:
            raise UsageError("usage", "workers, batch and mailbox_max must be at least 1")
        self.name = name
        self.simulation = simulation
        self.clock: Clock = simulation or (clock if clock is not None else SystemClock())
        self.batch = batch
        self.dead_letters = DeadLetters(self.clock.wall)
        self.tracer: Tracer | None = tracer
        self.closing = False
        self.lock = threading.Lock()
        self.timers = Timers(self.clock, f"{name}-timers", self.settle)
        self._ended = threading.Condition(self.lock)
        self._default: DispatcherName = dispatcher
        self._mailbox_max = mailbox_max
        self._pool: PooledDispatcher | SimulatedDispatcher = (
            PooledDispatcher(name, workers) if simulation is None else simulation.dispatcher()
        )
        self._pinned: set[threading.Thread] = set()
        self._cells: dict[str, Cell] = {}
        self._spawned = 0
        self._failures: deque[FailureNote] = deque(maxlen=FAILURES_MAX)
        self._dropped: Counter[str] = Counter()
        self._shutdown_lock = threading.Lock()
        self._report: ShutdownReport | None = None

    def spawn(
        self,
        actor_class: type[Actor],
        *args: Any,
        name: str,
        parent: Ref | None = None,
        dispatcher: DispatcherName | None = None,
        mailbox_max: int | None = None,
        supervision: Supervision | None = None,
        **kwargs: Any,
    ) -> Ref:
        """Make an actor from its class and arguments; the ref takes messages at once.

        ``__init__`` runs here and its exception comes out here. ``started`` runs on the dispatcher, before
        the first message; its failure is told to the parent.

        Raises: ``UsageError`` for a name in use, a foreign parent or a closed system;
        ``ActorError("actor_dead")`` where the parent has ended.
        """
        family = parent._cell if parent is not None else None  # noqa: SLF001
        if family is not None and family.system is not self:
            raise UsageError("usage", f"parent {family.ref.name} lives in another system")
        pinned = (dispatcher or self._default) == "pinned" and self.simulation is None
        runner: Dispatcher = PinnedDispatcher(f"{self.name}-{name}", self._pinned.discard) if pinned else self._pool
        cell = Cell(
            self,
            (actor_class, args, kwargs),
            name=name,
            parent=family,
            dispatcher=runner,
            mailbox_max=mailbox_max if mailbox_max is not None else self._mailbox_max,
            supervision=supervision if supervision is not None else STOP_ON_FAILURE,
        )
        self._enrol(cell)
        try:
            cell.build()
            if isinstance(runner, PinnedDispatcher):
                self._start_pinned(runner)
            else:
                self._pool.start()
        except BaseException:
            cell.kill()
            raise
        cell.schedule()
        return cell.ref

    def refs(self) -> list[Ref]:
        """All that have not ended, oldest first."""
        with self.lock:
            return [cell.ref for cell in self._cells.values()]

    def depths(self, *, waiting: bool = False) -> list[Depth]:
        """The mailboxes of all that have not ended; with ``waiting`` only those in which something waits. No mailbox is
        locked for it: each figure is of its own moment.
        """
        with self.lock:
            cells = list(self._cells.values())
        if waiting:
            return [Depth(cell.ref.name, cell.kind, queued) for cell in cells if (queued := cell.mailbox.waiting())]
        return [Depth(cell.ref.name, cell.kind, cell.mailbox.waiting()) for cell in cells]

    def find(self, name: str) -> Ref | None:
        """The one of that name that has not ended."""
        with self.lock:
            cell = self._cells.get(name)
        return cell.ref if cell is not None else None

    def failures(self) -> list[FailureNote]:
        """The latest failures, oldest first: also of actors without a parent to be told."""
        with self.lock:
            return list(self._failures)

    def set_tracer(self, tracer: Tracer | None) -> Tracer | None:
        """Switch tracing at run time; returns the tracer that was set, which the caller now owns."""
        before, self.tracer = self.tracer, tracer
        return before

    @contextlib.contextmanager
    def trace(self, trace_id: str) -> Iterator[None]:
        """What this thread tells inside the block belongs to the given trace."""
        here = context.cell
        handled = here.mailbox.current if here is not None else None
        if handled is None:
            outer, context.trace = context.trace, trace_id
            try:
                yield
            finally:
                context.trace = outer
        else:
            own, handled.trace = handled.trace, trace_id
            try:
                yield
            finally:
                handled.trace = own

    def settle(self, timeout_s: float) -> bool:
        """Wait until no actor has anything queued or running, timers apart. For tests; looks every 0.5 ms.

        Returns: False when the bound (real time) ran out, or at once when called from inside an actor.
        """
        if context.cell is not None:
            return False
        if self.simulation is not None:
            self.simulation.settle()
            return True
        deadline_s = time.monotonic() + timeout_s
        while True:
            before = self._activity()
            # Idle at both looks and no wake-up between: so all were idle at once, between the looks.
            if before is not None and before == self._activity():
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(SETTLE_PAUSE_S)

    def wait_s(self, done: Callable[[], bool], timeout_s: float) -> float:
        """How long a caller is to block for what ``done`` tells: as long as it likes where actors run by themselves; a
        simulation goes on first, in the caller's own thread, and leaves nothing to block for.
        """
        if self.simulation is None:
            return timeout_s
        self.simulation.run_until(done, timeout_s)
        return 0.0

    def pause(self, seconds: float) -> None:
        """Block a pinned actor."""
        if self.simulation is None:
            time.sleep(seconds)
        else:
            self.simulation.pause(seconds)

    def drop(self) -> None:
        """For tests, in a simulation: forget everything at once, as the death of the process would. Nothing is told,
        nothing ends in order, no handler runs any more.
        """
        if self.simulation is None or isinstance(self._pool, PooledDispatcher):
            raise UsageError("usage", "only a simulated system can be dropped")
        self._pool.dropped = True
        self.timers.close(0.0)

    def shutdown(self, timeout_s: float = 5.0) -> ShutdownReport:
        """End everything, last spawned first, so children before parents. Later calls get the same report.

        Stops pass the queued user messages, which are dropped and reported. An actor that does not end gets
        half of what is left of the deadline, so that one stuck handler cannot use up the time of all
        others.

        Raises: ``UsageError`` from inside an actor of this system.
        """
        if context.cell is not None and context.cell.system is self:
            raise UsageError("usage", "an actor cannot shut its own system down")
        with self._shutdown_lock:
            if self._report is None:
                self._report = self._shut_down(time.monotonic() + timeout_s)
            return self._report

    def _shut_down(self, deadline_s: float) -> ShutdownReport:
        with self.lock:
            self.closing = True
            cells = list(self._cells.values())
        timers_live = self.timers.live()
        stopped: list[str] = []
        abandoned: list[str] = []
        for cell in reversed(cells):
            cell.ref.stop()
            share_s = self.wait_s(cell.is_dead, max(0.0, deadline_s - time.monotonic()) / 2)
            with self._ended:
                self._ended.wait_for(cell.is_dead, share_s)
            cell.kill()
            (abandoned if cell.ending_reason == "killed" else stopped).append(cell.ref.name)
        self.timers.close(max(0.0, deadline_s - time.monotonic()))
        left = self._pool.stop(deadline_s)
        with self.lock:
            pinned = list(self._pinned)
            dropped = dict(self._dropped)
        left += join_all(pinned, deadline_s)
        if self.tracer is not None:
            self.tracer.close()
        return ShutdownReport(
            stopped=tuple(stopped),
            abandoned=tuple(abandoned),
            dropped=dropped,
            timers_cancelled=timers_live,
            threads_left=tuple(left),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    # for the cells

    def forget(self, cell: Cell) -> None:
        """It is dead: its name is free."""
        with self._ended:
            if self._cells.get(cell.ref.name) is cell:
                del self._cells[cell.ref.name]
            self._ended.notify_all()

    def note_failure(self, failed: ChildFailed) -> None:
        """Remember a failure without its content."""
        note = FailureNote(
            name=failed.ref.name,
            epoch=failed.epoch,
            error_type=type(failed.error).__name__,
            message_type=failed.message_type,
            restarted=failed.restarted,
            quarantined=failed.quarantined,
            at_wall_s=self.clock.wall(),
        )
        with self.lock:
            self._failures.append(note)

    def count_dropped(self, ref: Ref) -> None:
        """A queued message will not be handled; counted for the report while shutting down."""
        if self.closing:
            with self.lock:
                self._dropped[ref.name] += 1

    # inside

    def _enrol(self, cell: Cell) -> None:
        name, parent = cell.ref.name, cell.parent
        with self.lock:
            if self.closing:
                raise UsageError("runtime_closed", f"actor system {self.name} is shut down")
            if name in self._cells:
                raise UsageError("usage", f"actor name {name} is in use")
            if parent is not None:
                if parent.phase is Phase.DEAD or parent.phase is Phase.ENDING:
                    raise ActorError("actor_dead", f"parent {parent.ref.name} has ended")
                if parent.children is None:
                    parent.children = {}
                parent.children[cell] = None
            self._cells[name] = cell
            self._spawned += 1

    def _start_pinned(self, runner: PinnedDispatcher) -> None:
        self._pinned.add(runner.thread)
        try:
            runner.thread.start()
        except RuntimeError:  # the machine has no thread left to give
            self._pinned.discard(runner.thread)
            raise

    def _activity(self) -> tuple[int, int] | None:
        """None while anything is busy; else what changes whenever anything was busy in between."""
        with self.lock:
            cells, spawned = list(self._cells.values()), self._spawned
        wakeups = 0
        for cell in cells:
            wakeups += cell.mailbox.wakeups
            if not cell.mailbox.at_rest():
                return None
        return spawned, wakeups
