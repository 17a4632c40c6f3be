"""Time as a thing that is passed in: the real clock, and one that a test moves by hand.

Nothing in the actor system but this module reads a clock for a decision; ``perf_counter_ns`` is used elsewhere
only to measure. The manual clock needs no thread: timers fire inside ``advance``.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol, runtime_checkable

SETTLE_MAX_S = 1.0
"""How long ``ManualClock.advance`` waits (real seconds) for the actors to rest after each instant."""


class Clock(Protocol):
    """Two readings in seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back; the origin means nothing."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for records that a person reads."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class Driven(Protocol):
    """What a hand-moved clock drives: the timers of one actor system."""

    def next_due(self) -> float | None:
        """The monotonic instant of the earliest live timer."""
        ...

    def fire_due(self, now_s: float) -> int:
        """Fire what is due at ``now_s``, in order of due time, then of setting; returns how many."""
        ...

    def settle(self, timeout_s: float) -> bool:
        """Wait until no actor has anything to do; False if the bound ran out first."""
        ...


@runtime_checkable
class DrivingClock(Protocol):
    """A clock that fires timers itself, so that the system starts no timer thread."""

    def attach(self, driven: Driven) -> None:
        """Begin to drive these timers."""
        ...

    def detach(self, driven: Driven) -> None:
        """Stop driving them; unknown ones are ignored."""
        ...


class ManualClock:
    """Stands still until told to move; timers fire inside the call, earliest first.

    Before the first instant and after each, the call waits (real time, at most ``settle_s``) until the
    attached systems are at rest, so a timer that a handler sets in answer to an earlier one is seen in the
    same ``advance``.
    """

    def __init__(self, monotonic_s: float = 1000.0, wall_s: float = 1_700_000_000.0) -> None:
        self._lock = threading.RLock()
        self._now_s = monotonic_s
        self._wall_offset_s = wall_s - monotonic_s
        self._driven: list[Driven] = []

    def monotonic(self) -> float:
        return self._now_s

    def wall(self) -> float:
        return self._now_s + self._wall_offset_s

    def set_wall(self, by_s: float) -> None:
        """Set the wall clock forward, or back where negative, as a person or NTP does; no timer notices."""
        with self._lock:
            self._wall_offset_s += by_s

    def attach(self, driven: Driven) -> None:
        with self._lock:
            self._driven.append(driven)

    def detach(self, driven: Driven) -> None:
        with self._lock:
            if driven in self._driven:
                self._driven.remove(driven)

    def advance(self, seconds: float, *, settle_s: float = SETTLE_MAX_S) -> None:
        """Move on by ``seconds`` (not negative) and fire what falls due on the way."""
        self.advance_to(self._now_s + seconds, settle_s=settle_s)

    def advance_to(self, monotonic_s: float, *, settle_s: float = SETTLE_MAX_S) -> None:
        """Move on to an instant that is not in the past and fire what falls due on the way."""
        with self._lock:
            if monotonic_s < self._now_s:
                raise ValueError(f"the clock cannot go back from {self._now_s} to {monotonic_s}")
            self._settle(settle_s)
            while (due_s := self._earliest()) is not None and due_s <= monotonic_s:
                self._now_s = max(self._now_s, due_s)
                for driven in list(self._driven):
                    driven.fire_due(self._now_s)
                self._settle(settle_s)
            self._now_s = monotonic_s

    def _earliest(self) -> float | None:
        return min((due for driven in self._driven if (due := driven.next_due()) is not None), default=None)

    def _settle(self, settle_s: float) -> None:
        for driven in list(self._driven):
            driven.settle(settle_s)
