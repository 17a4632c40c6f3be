"""Families of processes: who belongs to one, and how it is ended whole, though it forks meanwhile.

A process that is told to stop or to end forks no more: the kernel does not let a fork through while a signal is
pending. So a family is first stopped, member by member, until a whole look (:mod:`lastword.transports.census`) finds
none that was not stopped; only then it is ended. Groups that are all of the family are stopped in one call, which no
fork can slip through either. A subreaper or a control group would hold a family together too; but the first makes a
process that embeds us the parent of strangers, dies with it, and does not see what tmux starts, and the second needs a
right that few hosts have.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from lastword.transports.census import Census, Seen, stat_of
from lastword.transports.process import ProcessId, named

FREEZE_ROUNDS = 100
"""How often a family that still grows is looked over and stopped before what was found of it is ended."""
CHASE_ROUNDS = 100
"""How often whoever came after members that ended while they were looked at is looked for."""
KILL_S = 2.0
"""From the first SIGKILL: how long one that goes on living or growing is fought, at most (and one round more)."""
KILL_ROUND_S = 0.3
"""After SIGKILL: how long each time the dead are waited for."""
UNSEEN = "? (what comes and goes too fast to be seen)"


def family(leaders: Sequence[ProcessId], environment_marks: Sequence[bytes] = ()) -> list[ProcessId]:
    """Living processes that belong to one of ``leaders``: its session, its descendants, and who carries *all* marks.

    A mark is a prefix of one entry of a process's environment as it was at exec (with its closing NUL it matches the
    whole entry): so a grandchild that left the session and lost its parent is still found. The caller's own process
    is never listed; leaders come first, then the oldest.
    """
    return _Family(leaders, environment_marks).look()


class Carrier(msgspec.Struct, frozen=True):
    """A living process whose environment holds a variable; ``leads``: it is the head of its own session."""

    process: ProcessId
    value: str
    leads: bool


def carriers(variable: str) -> list[Carrier]:
    """Every living process that we may look into and that has it in its environment, as it was at exec; never the
    caller's own.
    """
    begins = b"\0" + variable.encode() + b"="

    def value(environment: bytes) -> str | None:
        at = environment.find(begins)
        return environment[at + len(begins) :].partition(b"\0")[0].decode("utf-8", "replace") if at >= 0 else None

    census = Census(value)
    census.look()
    return [
        Carrier(ProcessId(pid, seen.stat.start), seen.mark, seen.stat.session == pid)
        for pid, seen in sorted(census.read.items())
        if seen.mark is not None
    ]


class Ended(msgspec.Struct, frozen=True):
    """What it took to end a family: pids ended by SIGKILL, and pids that live in spite of it.

    ``unsure``: it came and went faster than it could be looked at, to the end: some of it may live, unseen.
    """

    killed: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    unsure: bool = False

    @property
    def whole(self) -> bool:
        """All of it has ended."""
        return not self.survivors and not self.unsure


def end_families(leaders: Sequence[ProcessId], environment_marks: Sequence[bytes], grace_s: float) -> Ended:
    """End process groups and all that belongs to them; blocks for ``grace_s`` and :data:`KILL_S` plus a second at most.

    SIGHUP to each leader's group, as a closing terminal does; at half the grace SIGTERM to whoever is left; at its
    end SIGKILL, once all of it stands still. Every signal goes to a pid *and* start time, or to a group of the
    family's alone. It is over where a look that nobody can have slipped through finds nobody.
    """
    began = time.monotonic()
    doomed = _Family(leaders, environment_marks)
    doomed.look()  # before anybody ends: who has neither the session nor the mark is known by a living parent only
    for leader in leaders:
        leader.send_group(signal.SIGHUP)
    if grace_s > 0:
        _await_all(leaders, began + grace_s / 2)
        rest = doomed.look(anew=True)
        for one in rest:
            one.send(signal.SIGTERM)
        _await_all(rest, began + grace_s)
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_S
    rest = doomed.look(anew=True)
    while rest or not doomed.whole:
        doomed.freeze(deadline)
        rest = doomed.living()
        doomed.signal(signal.SIGKILL)
        killed.update(one.pid for one in rest)
        _await_all(rest, time.monotonic() + KILL_ROUND_S)
        rest = doomed.look(anew=True)
        if time.monotonic() > deadline:
            break
    survivors = tuple(one.pid for one in rest)
    return Ended(tuple(sorted(killed.difference(survivors))), survivors, not doomed.whole)


def left_alive(survivors: Sequence[int], *, unsure: bool) -> list[str]:
    """For a report: each as ``pid (name)``, and a word for those that may live unseen."""
    return [*map(named, survivors), *([UNSEEN] if unsure else [])]


class _Family:
    """One, looked for again and again: who was once found to belong to it does, whatever becomes of its parents."""

    def __init__(self, leaders: Sequence[ProcessId], environment_marks: Sequence[bytes]) -> None:
        self._heads: dict[int, int] = {}
        for leader in leaders:
            head = stat_of(leader.pid)
            if head is None or head.start == leader.start:  # else the pid has another owner: nobody is its family
                self._heads[leader.pid] = leader.start
        wanted = [b"\0" + mark for mark in environment_marks]

        def carries(environment: bytes) -> bool:
            return all(mark in environment for mark in wanted)

        self._mark = carries if wanted else None
        self._census = Census(self._mark)
        self._members: dict[int, int] = {}
        self.whole = False

    def look(self, *, anew: bool = False) -> list[ProcessId]:
        """Its living members; :attr:`whole` says whether that is all of them. ``anew``: strangers are read again too,
        as one may have been on the way to an exec that made it a member.
        """
        if anew:
            self._census = Census(self._mark)
        for _ in range(CHASE_ROUNDS):
            self.whole = self._census.look()
            fresh = self._find()
            living = self.living()
            if living or not fresh:
                return living
        self.whole = False
        return []

    def _find(self) -> bool:
        """Enter who belongs to it; whether somebody was found that was not known: ended since, it may have forked."""
        everyone = self._census.read
        found = {pid for pid, seen in everyone.items() if self._belongs(pid, seen)}
        grew = bool(found)
        while grew:
            more = {pid for pid, seen in everyone.items() if seen.stat.parent in found and pid not in found}
            found |= more
            grew = bool(more)
        before = len(self._members)
        self._members.update((pid, everyone[pid].stat.start) for pid in found)
        return len(self._members) > before

    def living(self) -> list[ProcessId]:
        """Who lives of those that were found."""
        ordered = sorted(self._members, key=lambda pid: (pid not in self._heads, pid))
        return [one for pid in ordered if (one := ProcessId(pid, self._members[pid])).is_alive()]

    def freeze(self, deadline: float) -> None:
        """Stop every member, looking again until there is none that was not stopped."""
        stopped: set[ProcessId] = set()
        for _ in range(FREEZE_ROUNDS):
            fresh = set(self.living()) - stopped
            if not fresh or time.monotonic() > deadline:
                break
            self.signal(signal.SIGSTOP, fresh)
            stopped |= fresh
            self.look()

    def signal(self, number: signal.Signals, only: set[ProcessId] | None = None) -> None:
        """To whole groups of its own first, then to each that lives; the newest first, as they are who forks next."""
        living = self.living()
        for group in self._groups({one.pid for one in living}):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        for one in reversed(living):
            if only is None or one in only:
                one.send(number)

    def _belongs(self, pid: int, seen: Seen[bool]) -> bool:
        stat = seen.stat
        if self._members.get(pid) == stat.start or pid in self._heads or seen.mark:
            return True
        return stat.session in self._heads and stat.start >= self._heads[stat.session]

    def _groups(self, members: set[int]) -> list[int]:
        """The process groups in which nobody else lives."""
        groups: dict[int, list[ProcessId]] = defaultdict(list)
        for pid, seen in self._census.read.items():
            groups[seen.stat.group].append(ProcessId(pid, seen.stat.start))
        return [
            group
            for group, them in groups.items()
            if group > 1
            and group != os.getpgrp()
            and any(one.pid in members for one in them)
            and all(one.pid in members or not one.is_alive() for one in them)
        ]


def _await_all(processes: Sequence[ProcessId], deadline: float) -> None:
    for one in processes:
        one.wait(max(0.0, deadline - time.monotonic()))
