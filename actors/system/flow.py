"""Flow: how much of one stream of work is on its way between actors, so that its source can wait for the slowest.

Actors of one family share one: the source asks for room before it takes more in, whoever hands work on takes, whoever
is done with it gives. A large piece weighs more (:func:`weight`): what one family has on its way is bounded in bytes
too, for all families stand in one line before the journal's writer. Shares have a name, so that what an actor that
ended still had is forgotten with it. Safe from any thread; no call blocks, and nothing of a user's runs under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

UNIT_BYTES = 1024
"""A piece weighs one, and one more for each so many bytes of it."""


def weight(size: int) -> int:
    """What a piece of ``size`` bytes or characters counts."""
    return 1 + size // UNIT_BYTES


class Flow:
    """Counts what is on its way, by weight.

    Args:
        most: no more is taken in beyond it; the source is woken when half of it is done.
    """

    __slots__ = ("_lock", "_shares", "_under_way", "_wake", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._shares: dict[Hashable, int] = {}
        self._under_way = 0
        self._wake: Callable[[], None] | None = None

    @property
    def under_way(self) -> int:
        """Weight of what was handed on and not done."""
        return self._under_way

    def room(self, wake: Callable[[], None]) -> bool:
        """Whether more may be taken in; else ``wake`` is called once, from any thread, when it may."""
        with self._lock:
            if self._under_way < self.most:
                self._wake = None
                return True
            self._wake = wake
            return False

    def take(self, share: Hashable, count: int = 1) -> None:
        """One piece more is on its way, which weighs so much."""
        with self._lock:
            self._shares[share] = self._shares.get(share, 0) + count
            self._under_way += count

    def give(self, share: Hashable, count: int = 1) -> None:
        """So much is done; what the share does not have is not counted."""
        with self._lock:
            had = self._shares.pop(share, 0)
            count = min(count, had)
            if had > count:
                self._shares[share] = had - count
            wake = self._less(count)
        if wake is not None:
            wake()

    def forget(self, share: Hashable) -> None:
        """Whoever had it is gone."""
        with self._lock:
            wake = self._less(self._shares.pop(share, 0))
        if wake is not None:
            wake()

    def _less(self, count: int) -> Callable[[], None] | None:
        self._under_way -= count
        if self._wake is None or self._under_way > self.most // 2:
            return None
        wake, self._wake = self._wake, None
        return wake


__all__ = ["Flow", "weight"]
