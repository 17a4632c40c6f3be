"""What a runtime says of itself: the fold, the mailboxes, the dead letters and the journal's writer, read at once.

Nothing is asked of an actor or of a file; each figure is of its own moment, microseconds apart.
"""

from __future__ import annotations

import os
from collections import defaultdict

from lastword.actors.group_commit import CommitStats
from lastword.actors.system import deadletters
from lastword.actors.system.system import ActorSystem, Depth
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._numbers import Numbers
from lastword.runtime._top import Look, Top
from lastword.runtime.metrics import JournalNumbers, Mailboxes, Metrics

LATE_TERMINAL = "late_terminal"
"""The reason under which the dead letters count further terminal records (C06)."""


def metrics_of(numbers: Numbers, system: ActorSystem, commits: CommitStats, behind: int) -> Metrics:
    """All of it, for a host."""
    counts, dead = numbers.counts(), system.dead_letters.counts()
    return Metrics(
        at=system.clock.wall(),
        since=numbers.since,
        sessions=counts.sessions,
        sessions_closed=counts.sessions_closed,
        open_turns=counts.open_turns,
        waiting_messages=counts.waiting,
        completions=counts.completions,
        latencies=counts.latencies,
        mailboxes=_by_kind(system.depths()),
        dead_letters=dict.fromkeys((*deadletters.OWN, LATE_TERMINAL), 0) | dead,
        late_terminals=dead.get(LATE_TERMINAL, 0),
        invariant_violations=counts.invariant_violations,
        journal=JournalNumbers(
            commits=commits.groups,
            batches=commits.batches,
            largest_commit=commits.largest_group,
            retries=commits.retries + commits.hold_tries,
            failed=commits.failed,
            held_max=commits.held,
            behind=behind,
        ),
    )


def top_of(numbers: Numbers, system: ActorSystem, journal: SqliteJournal, behind: int, look: Look) -> Top:
    """The sessions that are asked for, and figures of all."""
    now = system.clock.wall()
    queued: dict[str, int] = defaultdict(int)
    for depth in system.depths(waiting=True):
        queued[depth.name.partition("/")[0]] += depth.waiting  # a session's children are named under it
    counts = numbers.counts()
    offset, lines = numbers.lines(now, queued, look)
    return Top(
        at=now,
        since=numbers.since,
        live=True,
        pid=os.getpid(),
        sessions=counts.sessions,
        open_turns=counts.open_turns,
        waiting=counts.waiting,
        completions=sum(each.count for each in counts.completions),
        turns_per_s=numbers.turns_per_s(now),
        dead_letters=sum(system.dead_letters.counts().values()),
        invariant_violations=counts.invariant_violations,
        journal_behind=behind,
        journal_wait_s=journal.under_way_s,
        journal_failing=journal.failing,
        offset=offset,
        lines=lines,
    )


def _by_kind(depths: list[Depth]) -> tuple[Mailboxes, ...]:
    waiting: dict[str, list[int]] = defaultdict(list)
    for depth in depths:
        waiting[depth.kind].append(depth.waiting)
    return tuple(
        Mailboxes(kind=kind, actors=len(each), waiting=sum(each), deepest=max(each))
        for kind, each in sorted(waiting.items())
        if kind
    )
