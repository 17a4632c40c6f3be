"""One thread, one seed: actors, timers and the world in an order that the seed decides, on a clock that jumps.

A :class:`Simulation` is the clock and the dispatcher of the systems that are opened in it. Each step runs one slice of
one actor, drawn among those that have mail; a mailbox keeps its order, actors overtake each other. Where nobody has
anything to do, time jumps to the next instant for which something was set: a timer, an actor that was held up, an
action of the world. The same seed gives the same steps, times and ids.

Nothing runs by itself: the thread that owns the simulation drives it, by :meth:`Simulation.run_until` and its kin, or
by a call of the host that waits (``Session.run``, ``Runtime.close``). Not thread-safe.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from lastword.actors.core.errors import UsageError
from lastword.actors.system.clock import Driven
from lastword.actors.system.dispatcher import Runnable
from lastword.actors.system.envelope import context

STEPS_MAX = 5_000_000
"""Steps within one call that waits; more mean that something spins without time going on."""


class SimulatedDispatcher:
    """The dispatcher of one system within a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.dropped = False

    def schedule(self, runnable: Runnable, /) -> None:
        """It has mail: run a slice of it some time, never while this call lasts."""
        if not self.dropped:
            self._simulation.offer(self, runnable)

    def start(self) -> None:
        """Nothing to do: there are no workers."""

    def release(self) -> None:
        """Nothing to do: the thread is the driver's own."""

    def stop(self, deadline_mono_s: float) -> list[str]:  # noqa: ARG002
        """There is no thread to end."""
        self.dropped = True
        return []


class Simulation:
    """Dispatcher, clock, source of entropy and world of actions, all from one seed.

    Args:
        seed: whatever ``random.Random`` takes.
        hold_up_s: how long (virtual seconds) an actor that got mail is kept waiting; drawn anew each time, 0 for none.
        wall_s: Unix time at the start.

    Attributes:
        random: the source of all chance; a world that draws from it too stays reproducible.
        steps: slices run so far.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        hold_up_s: Callable[[Random], float] | None = None,
        wall_s: float = 1_700_000_000.0,
    ) -> None:
        self.random = Random(seed)  # noqa: S311 - reproducible on purpose
        self.steps = 0
        self._hold_up_s = hold_up_s
        self._now_s = 1000.0
        self._wall_offset_s = wall_s - self._now_s
        self._ready: list[tuple[SimulatedDispatcher, Runnable]] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._set = 0
        self._driven: list[Driven] = []

    # --- clock ------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        """Virtual seconds; the origin means nothing."""
        return self._now_s

    def wall(self) -> float:
        """Virtual Unix seconds."""
        return self._now_s + self._wall_offset_s

    def attach(self, driven: Driven) -> None:
        """Drive these timers too."""
        self._driven.append(driven)

    def detach(self, driven: Driven) -> None:
        """Drive them no more."""
        if driven in self._driven:
            self._driven.remove(driven)

    def pause(self, seconds: float) -> None:
        """What blocks inside an actor stops everybody: time goes on and nobody else runs."""
        self._now_s += seconds

    def entropy(self, size: int) -> bytes:
        """In place of ``os.urandom``."""
        return self.random.randbytes(size)

    # --- what is to be run --------------------------------------------------------------------------------------

    def dispatcher(self) -> SimulatedDispatcher:
        """For one system."""
        return SimulatedDispatcher(self)

    def offer(self, dispatcher: SimulatedDispatcher, runnable: Runnable) -> None:
        """Run a slice of it some time."""
        delay_s = self._hold_up_s(self.random) if self._hold_up_s is not None else 0.0
        if delay_s > 0.0:
            self.after(delay_s, lambda: self._ready.append((dispatcher, runnable)))
        else:
            self._ready.append((dispatcher, runnable))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Something in the world happens then. It may tell actors; it must not wait for them."""
        self._set += 1
        heapq.heappush(self._later, (self._now_s + max(0.0, delay_s), self._set, action))

    # --- driving ------------------------------------------------------------------------------------------------

    def step(self, until_s: float = float("inf")) -> bool:
        """Run one slice, or else let time jump to what is next, at most to ``until_s``; False: there is nothing."""
        ready = self._ready
        if ready:
            self._run_one()
            return True
        due_s = self._next_due()
        if due_s is None or due_s > until_s:
            return False
        self._now_s = max(self._now_s, due_s)
        while self._later and self._later[0][0] <= self._now_s:
            heapq.heappop(self._later)[2]()
        for driven in tuple(self._driven):
            driven.fire_due(self._now_s)
        return True

    def run_until(self, done: Callable[[], bool], within_s: float) -> bool:
        """Go on until ``done``, at most so many virtual seconds; whether it is done.

        Raises:
            UsageError: from inside an actor, which must never wait.
            RuntimeError: it spins: more than :data:`STEPS_MAX` steps.
        """
        if context.cell is not None:
            raise UsageError("usage", "an actor of a simulation cannot wait")
        until_s = self._now_s + within_s
        for _ in range(STEPS_MAX):
            if done():
                return True
            if not self.step(until_s):
                self._now_s = max(self._now_s, until_s)
                return done()
        raise RuntimeError(f"no end after {STEPS_MAX} steps, {self._now_s - until_s + within_s:g} virtual seconds")

    def run_for(self, seconds: float) -> None:
        """Go on for so many virtual seconds."""
        self.run_until(lambda: False, seconds)

    def settle(self) -> None:
        """Go on until nobody has anything to do now; time stands still."""
        for _ in range(STEPS_MAX):
            if not self._ready:
                return
            self._run_one()
        raise RuntimeError(f"no rest after {STEPS_MAX} steps")

    def _run_one(self) -> None:
        ready = self._ready
        chosen = int(self.random.random() * len(ready))
        ready[chosen], ready[-1] = ready[-1], ready[chosen]
        dispatcher, runnable = ready.pop()
        if not dispatcher.dropped:
            self.steps += 1
            runnable.run_slice()

    def _next_due(self) -> float | None:
        due_s = self._later[0][0] if self._later else None
        for driven in self._driven:
            timer_s = driven.next_due()
            if timer_s is not None and (due_s is None or timer_s < due_s):
                due_s = timer_s
        return due_s
