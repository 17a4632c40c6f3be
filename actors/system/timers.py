"""One heap of timers for one system; a thread only if the clock does not fire them itself.

``fire`` callables run on the timer thread (or inside ``ManualClock.advance``) and must only put something
into a mailbox. A cancelled timer never fires, and lets go at once of what it would have told.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from lastword.actors.core.errors import ActorError
from lastword.actors.system.clock import Clock, DrivingClock

TIMERS_MAX = 100_000
"""Live timers in one system."""

SWEEP_MIN = 256
"""Cancelled entries tolerated in the heap before it is rebuilt without them."""


class TimerEntry:
    """One timer in the heap; dead once ``fire`` is None."""

    __slots__ = ("due_s", "fire", "seq")

    def __init__(self, due_s: float, seq: int, fire: Callable[[], None]) -> None:
        self.due_s = due_s
        self.seq = seq
        self.fire: Callable[[], None] | None = fire

    def __lt__(self, other: TimerEntry) -> bool:
        return (self.due_s, self.seq) < (other.due_s, other.seq)


class Timers:
    """Sets, cancels and fires; safe from any thread."""

    def __init__(self, clock: Clock, name: str, settle: Callable[[float], bool]) -> None:
        self._clock = clock
        self._name = name
        self._settle = settle
        self._changed = threading.Condition()
        self._heap: list[TimerEntry] = []
        self._live = 0
        self._seq = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._driven = isinstance(clock, DrivingClock)  # once: asking a protocol is slow
        if isinstance(clock, DrivingClock):
            clock.attach(self)

    def at(self, due_s: float, fire: Callable[[], None]) -> TimerEntry:
        """Fire once at the instant ``due_s``. Raises ``ActorError("timers_full")`` above ``TIMERS_MAX``."""
        with self._changed:
            entry = TimerEntry(due_s, next(self._seq), fire)
            if self._closed:
                entry.fire = None
                return entry
            if self._live >= TIMERS_MAX:
                raise ActorError("timers_full", f"{self._live} timers are set already")
            self._live += 1
            heapq.heappush(self._heap, entry)
            if not self._driven:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                elif self._heap[0] is entry:
                    self._changed.notify()
        return entry

    def cancel(self, entry: TimerEntry) -> bool:
        """Whether it was still to fire."""
        with self._changed:
            if entry.fire is None:
                return False
            entry.fire = None
            self._live -= 1
            if len(self._heap) > SWEEP_MIN and self._live < len(self._heap) // 2:
                self._heap = [kept for kept in self._heap if kept.fire is not None]
                heapq.heapify(self._heap)
            return True

    def live(self) -> int:
        """How many are still to fire."""
        return self._live

    def next_due(self) -> float | None:
        with self._changed:
            self._drop_dead()
            return self._heap[0].due_s if self._heap else None

    def fire_due(self, now_s: float) -> int:
        fired = 0
        while (fire := self._take_due(now_s)) is not None:
            fire()
            fired += 1
        return fired

    def settle(self, timeout_s: float) -> bool:
        return self._settle(timeout_s)

    def close(self, timeout_s: float) -> int:
        """Cancel all, end the thread; returns how many were still to fire."""
        with self._changed:
            cancelled, self._live, self._closed = self._live, 0, True
            for entry in self._heap:
                entry.fire = None
            self._heap.clear()
            self._changed.notify()
            thread = self._thread
        if isinstance(self._clock, DrivingClock):
            self._clock.detach(self)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
        return cancelled

    def _drop_dead(self) -> None:
        while self._heap and self._heap[0].fire is None:
            heapq.heappop(self._heap)

    def _take_due(self, now_s: float) -> Callable[[], None] | None:
        with self._changed:
            self._drop_dead()
            if not self._heap or self._heap[0].due_s > now_s:
                return None
            entry = heapq.heappop(self._heap)
            fire, entry.fire = entry.fire, None
            self._live -= 1
            return fire

    def _run(self) -> None:
        while True:
            with self._changed:
                self._drop_dead()
                if self._closed:
                    return
                wait_s = self._heap[0].due_s - self._clock.monotonic() if self._heap else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(None if wait_s is None else min(wait_s, threading.TIMEOUT_MAX))
                    continue
            self.fire_due(self._clock.monotonic())
