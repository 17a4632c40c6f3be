"""How many quiet turns of one runtime are looked into a second, however many there are, within a bound on the wait."""

from __future__ import annotations

import threading
from typing import Final

LOOKS_PER_S: Final = 200.0
"""A look costs about 0.5 ms of CPU. A thousand quiet turns are looked into every 5 s each; ten thousand, every 50 s."""
LINE_S: Final = 60.0
"""No look is put off for longer. Who has a place in the line may hear of its turn before, and leaves the place empty:
without a bound an hour of too many turns would put off the look at one that is stalled for as long."""


class LookPace:
    """Gives each look its time: at once while there are few, else behind those that were asked for before it, so that
    none is put off twice. For any thread.

    What is quiet need not be stalled: where a host has more turns than its cores can carry, all of them are quiet, and
    looks without a bound would take what is left of the cores.
    """

    __slots__ = ("_lock", "_next_s")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_s = 0.0

    def slot(self, now_s: float) -> float:
        """When to look, on the clock that ``now_s`` is of: now or later."""
        with self._lock:
            at_s = min(max(now_s, self._next_s), now_s + LINE_S)
            self._next_s = at_s + 1.0 / LOOKS_PER_S
            return at_s
