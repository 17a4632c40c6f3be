"""Everybody that lives, looked over so that nobody slips through: of ``/proc``, newest first, until a look was whole.

A listing of ``/proc`` goes up the pids, and a child's pid is above its parent's. So of a chain of processes that each
start the next one and end, the listing always has one; but that one may be gone by the time it is read, and the next
one is not on the list. Hence what was listed and could not be read makes the listing be done again; only who is new is
read then, within microseconds. A look is *whole* where nobody that was listed escaped being read.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

PASSES_MAX = 200
"""Listings in one look."""
LOOK_S = 0.5
"""How long one look goes on with them, at most; the first one is always done."""
EMPTY_S = 0.05
"""Somebody in the middle of an exec has no environment for a moment; who has none for longer is taken for somebody who
was started without."""
EMPTY_POLL_S = 0.001
ENVIRONMENT_BYTES_MAX = 1024 * 1024
"""More than that of an environment is not looked at."""

_KERNEL_THREAD = 0x00200000

Mark = TypeVar("Mark")


class Stat(msgspec.Struct, frozen=True):
    """Of ``/proc/<pid>/stat``; ``start`` in clock ticks since boot."""

    state: str
    parent: int
    group: int
    session: int
    start: int
    kernel: bool = False
    """A thread of the kernel's own."""
    environment_end: int = 0
    """Where its environment ends in memory; 0: none yet (in an exec), none any more, or not for us to see."""

    @property
    def dead(self) -> bool:
        return self.state in {"Z", "X"}


def stat_of(pid: int) -> Stat | None:
    """None where there is no such process; a zombie is one still."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - hot, and /proc is no place for objects
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name in parentheses may hold anything
    if len(fields) < 20:
        return None
    return Stat(
        fields[0].decode(),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
        bool(int(fields[6]) & _KERNEL_THREAD),
        int(fields[48]) if len(fields) > 48 else 0,
    )


def environment_of(pid: int) -> bytes | None:
    """Its entries as they were at exec, each with a NUL before it; ``b""``: it may not be looked into; None where it
    has none, or is gone.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123
            text = file.read(ENVIRONMENT_BYTES_MAX)  # in one call: between two of them it may end, and be cut for us
    except OSError as error:
        return b"" if error.errno in {errno.EACCES, errno.EPERM} else None
    return b"\0" + text if text else None


class Seen(msgspec.Struct, Generic[Mark], frozen=True):
    """A process as it was read: its stat, and what its environment was found to say."""

    stat: Stat
    mark: Mark | None


class Census(Generic[Mark]):
    """Who lives, as :meth:`look` found them. Not for several threads.

    Remembers whom it has read: a pid names the same process until the numbers have gone all the way round, which is
    noticed (and all is read anew) unless they go round more than once between two looks; so keep one for seconds only.

    Args:
        mark: what of an environment (:func:`environment_of`) is wanted; None: environments are not read.
    """

    def __init__(self, mark: Callable[[bytes], Mark | None] | None) -> None:
        self._mark = mark
        self._read: dict[int, Seen[Mark]] = {}
        self._empty: set[int] = set()
        self._last = 0

    def look(self) -> bool:
        """Look everybody over; whether nobody can have slipped through. Blocks for :data:`LOOK_S` and one listing."""
        began = time.monotonic()
        self._last = self._last or _last_pid()
        for _ in range(PASSES_MAX):
            for pid in self._empty:
                self._read.pop(pid, None)
            self._empty.clear()
            if not self._pass():
                waited = time.monotonic() - began
                if not self._empty or waited > EMPTY_S:
                    return True
                time.sleep(EMPTY_POLL_S)
            if time.monotonic() - began > LOOK_S:
                break
        return False

    @property
    def read(self) -> Mapping[int, Seen[Mark]]:
        """By pid, whoever lived when it was read and was listed in the last look; without the caller's own process."""
        own = os.getpid()
        return {pid: seen for pid, seen in self._read.items() if not seen.stat.dead and pid != own}

    def _pass(self) -> bool:
        """List, and read who is new; whether somebody that was listed escaped."""
        listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        for gone in self._read.keys() - set(listed):
            del self._read[gone]
        escaped = False
        for pid in sorted(listed, reverse=True):
            if pid not in self._read:
                seen = self._read_one(pid)
                escaped |= seen is None or seen.stat.dead  # a dead one may have lived when it was listed
                if seen is not None:
                    self._read[pid] = seen
        last = _last_pid()
        if last < self._last:  # the numbers began again: a known one may be somebody else, a child's pid the lower one
            self._read.clear()
            escaped = True
        self._last = last
        return escaped

    def _read_one(self, pid: int) -> Seen[Mark] | None:
        stat = stat_of(pid)
        if stat is None or stat.dead or stat.kernel or self._mark is None:
            return Seen(stat, None) if stat is not None else None
        environment = environment_of(pid)
        if environment is None:
            now = stat_of(pid)
            if now is None or now.dead:
                return None
            if now.environment_end == 0:
                self._empty.add(pid)
        return Seen(stat, self._mark(environment) if environment else None)


def _last_pid() -> int:
    """The newest pid of all; 0 where the system does not tell."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[4])
    except (OSError, ValueError, IndexError):
        return 0
