"""A trace file, read: every hop with its cause, whichever host wrote it. Reads only; judges nothing.

What stands in the file is what an actor could write without looking anything up. Put together here: an event that a
subscriber took was caused by the commit that holds it; what was traced under a message's id belongs to the turn that
the message was bound to. Ids are unique in a process: a file may hold the parts of several hosts, one after the other.

A file may come from somebody else: what is read of it is bounded, and whatever numbers stand in it, no cause leads in a
circle.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from lastword.actors.core.errors import UsageError
from lastword.actors.system.tracing import FORMAT, RETURNED, Bound, CommitSpan, Delivered, Head, Hop, Hops, Lost

RECORDS_MAX = 500_000
"""Records held of one file: the newest. Of a file of ours a process with so many takes some 300 MiB."""
HOSTS_MAX = 10_000
"""Hosts whose parts one file may hold."""
FOREIGN_MAX = 1_000
"""Lines that are none of ours before the first that is; then it is no trace."""
LINE_BYTES_MAX = 1 << 16
"""Of one line; what is longer is none of ours."""
NAMES_MAX = 4_096
"""Names remembered while a file is read, so that one that recurs is held once."""

COMPLETION = "unified_completion"
JOURNAL = "journal"
DISK = "journal's file"
SUBSCRIBER = "subscriber"
HOST = "host"


class Measured(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A completion's own stamps, by the wall clock: read by others than the tracer."""

    delivered_at: float
    accepted_at: float | None
    terminal_seen_at: float | None
    committed_at: float | None


class Step(msgspec.Struct, kw_only=True, gc=False):
    """A hop, a commit or a delivery, alike. Times are nanoseconds of one clock per process.

    Attributes:
        key: process and id.
        cause: key of what it was told in; None: it begins a chain, or its cause was lost.
        turn: the turn, or else the message or the host's word that it belongs to.
    """

    key: tuple[str, int]
    cause: tuple[str, int] | None
    turn: str | None
    sender: str | None
    receiver: str
    message: str
    enqueued_ns: int
    started_ns: int
    ended_ns: int
    kind: Literal["hop", "commit", "delivered"] = "hop"
    origin: str | None = None
    raised: bool = False
    measured: Measured | None = None

    @property
    def wait_ns(self) -> int:
        """How long it waited to be handled."""
        return self.started_ns - self.enqueued_ns

    @property
    def handling_ns(self) -> int:
        """How long its handling took."""
        return self.ended_ns - self.started_ns


class Trace(msgspec.Struct, kw_only=True):
    """What a file tells.

    Attributes:
        steps: by key, in the order of their starts within a process.
        heads: the hosts' first lines, by process.
        lost: records that the tracers could not write.
        older: records that came before the newest ``RECORDS_MAX`` and were not kept.
        unread: lines that are none of ours.
    """

    steps: dict[tuple[str, int], Step]
    heads: dict[str, Head]
    lost: int = 0
    older: int = 0
    unread: int = 0
    _by_turn: dict[str, list[Step]] | None = None

    def of(self, turn: str) -> list[Step]:
        """All that belongs to a turn, in order."""
        if self._by_turn is None:
            self._by_turn = {}
            for step in self.steps.values():
                if step.turn is not None:
                    self._by_turn.setdefault(step.turn, []).append(step)
        return list(self._by_turn.get(turn, ()))

    def turns(self) -> list[str]:
        """Turns by name, oldest first: whatever has a completion or an actor of its own."""
        named = {step.turn: None for step in self.steps.values() if step.turn and _is_a_turns(step)}
        return list(named)

    def wall_s(self, step: Step) -> float:
        """When it started, in Unix seconds."""
        head = self.heads[step.key[0]]
        return head.wall_s + (step.started_ns - head.at_ns) / 1e9


_Line = Head | Hops | Hop | CommitSpan | Delivered | Bound | Lost
_Tied = tuple[Step, str, int, int]
"""A commit or a delivery, and the session and the numbers of the first and the last event that it is of."""
_Name = Callable[[str], str]


def read_trace(path: Path) -> Trace:
    """All of a trace file. A last line that is being written is left out.

    Raises:
        UsageError: ``file_unreadable``: it cannot be read, is no trace, or one of a newer lastword.
    """
    decoder = msgspec.json.Decoder(_Line)
    trace = Trace(steps={}, heads={})
    found: deque[Step | _Tied] = deque(maxlen=RECORDS_MAX)
    bound: dict[tuple[str, str | int], str] = {}
    name = lru_cache(NAMES_MAX)(str)
    process = ""

    def keep(step: Step | _Tied) -> None:
        trace.older += len(found) == RECORDS_MAX
        found.append(step)

    for line in _lines(path):
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            trace.unread += 1
            if trace.unread >= FOREIGN_MAX and not trace.heads:
                break
            continue
        match record:
            case Head():
                if record.format > FORMAT:
                    remedy = "Read it with the lastword that wrote it"
                    raise UsageError("file_unreadable", f"{path} is of a newer lastword", remedy=remedy)
                process = record.process
                trace.heads.setdefault(process, record)
                if len(trace.heads) > HOSTS_MAX:
                    raise UsageError("file_unreadable", f"{path} is of more than {HOSTS_MAX:,} hosts")
            case Hops():
                try:
                    for hop in record.each():
                        keep(_hop(process, hop, name))
                except msgspec.ValidationError:
                    trace.unread += 1
            case Hop():
                keep(_hop(process, record, name))
            case CommitSpan():
                keep((_commit(process, record, name), name(record.session), record.seq_from, record.seq_to))
            case Delivered():
                keep((_delivered(process, record, name), name(record.session), record.seq, record.seq))
            case Bound():
                bound[process, record.message_id or record.hop] = name(record.trace)
                if len(bound) > RECORDS_MAX:
                    del bound[next(iter(bound))]  # the oldest, whose hops are no longer held
            case Lost():
                trace.lost += record.count
    if not trace.heads:
        raise UsageError("file_unreadable", f"{path} is no trace", remedy="`lastword trace record` writes one")
    steps = _steps(found, bound)
    steps.sort(key=lambda step: (step.key[0], step.started_ns, step.key[1]))
    trace.steps = {step.key: step for step in steps}
    for step in trace.steps.values():
        cause = trace.steps.get(step.cause) if step.cause is not None else None
        if cause is None or not _began_before(cause, step):
            step.cause = None  # it was lost, or began before the tracing did
        else:
            step.cause = cause.key  # of two equal ones, one is held
    return trace


def _lines(path: Path) -> Iterator[bytes]:
    """All whole lines, one at a time; of one that is too long, its beginning."""
    try:
        with path.open("rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):  # it may have no end
                raise UsageError("file_unreadable", f"{path} is no trace: it is a device")
            cut = False
            while line := file.readline(LINE_BYTES_MAX):
                whole = line.endswith(b"\n")
                if not cut and line != b"\n" and (whole or len(line) == LINE_BYTES_MAX):
                    yield line
                cut = not whole
    except OSError as error:
        raise UsageError("file_unreadable", f"{path} cannot be read: {error.strerror}") from error


def _began_before(cause: Step, step: Step) -> bool:
    """Numbers are given in the order of telling; what a subscriber has causes nothing."""
    return cause.kind != "delivered" and (step.kind == "delivered" or cause.key[1] < step.key[1])


def _steps(found: deque[Step | _Tied], bound: dict[tuple[str, str | int], str]) -> list[Step]:
    """All of ``found``, which is emptied: nothing is held twice."""
    steps: list[Step] = []
    deliveries: list[_Tied] = []
    holds: dict[tuple[str, str], list[tuple[int, int, Step]]] = {}
    while found:
        each = found.popleft()
        if isinstance(each, Step):
            steps.append(each)
            continue
        step, session, seq_from, seq_to = each
        steps.append(step)
        if step.kind == "delivered":
            deliveries.append(each)
        elif seq_from:
            holds.setdefault((step.key[0], session), []).append((seq_from, seq_to, step))
    for spans in holds.values():
        spans.sort(key=lambda span: span[:2])
    _tie(steps, deliveries, holds, bound)
    return steps


def _hop(process: str, hop: Hop, name: _Name) -> Step:
    return Step(
        key=(process, hop.id),
        cause=(process, hop.cause) if hop.cause else None,
        turn=name(hop.trace) if isinstance(hop.trace, str) else None,
        sender=hop.sender and name(hop.sender),
        receiver=name(hop.receiver),
        message=name(hop.message),
        enqueued_ns=hop.enqueued_ns,
        started_ns=max(hop.enqueued_ns, hop.started_ns),
        ended_ns=max(hop.enqueued_ns, hop.started_ns, hop.ended_ns),
        origin=hop.origin and name(hop.origin),
        raised=hop.raised,
    )


def _commit(process: str, span: CommitSpan, name: _Name) -> Step:
    return Step(
        key=(process, span.id),
        cause=(process, span.cause) if span.cause else None,
        turn=name(span.trace) if isinstance(span.trace, str) else None,
        sender=JOURNAL,
        receiver=DISK,
        message="commit",
        enqueued_ns=span.enqueued_ns,
        started_ns=max(span.enqueued_ns, span.started_ns),
        ended_ns=max(span.enqueued_ns, span.started_ns, span.ended_ns),
        kind="commit",
    )


def _delivered(process: str, record: Delivered, name: _Name) -> Step:
    measured = None
    if record.delivered_at is not None:
        measured = Measured(
            delivered_at=record.delivered_at,
            accepted_at=record.accepted_at,
            terminal_seen_at=record.terminal_seen_at,
            committed_at=record.committed_at,
        )
    return Step(
        key=(process, record.id),
        cause=None,
        turn=record.trace and name(record.trace),
        sender=JOURNAL,
        receiver=HOST if record.event == RETURNED else SUBSCRIBER,
        message=name(record.event),
        enqueued_ns=record.at_ns,
        started_ns=record.at_ns,
        ended_ns=record.at_ns,
        kind="delivered",
        measured=measured,
    )


def _tie(
    found: list[Step],
    deliveries: list[_Tied],
    holds: dict[tuple[str, str], list[tuple[int, int, Step]]],
    bound: dict[tuple[str, str | int], str],
) -> None:
    for step in found:
        named = bound.get(step.key, step.turn)  # a hop by its number; what it is named may be a message, bound in turn
        step.turn = bound.get((step.key[0], named), named) if named is not None else None
    finished = {(step.key[0], step.turn): step for step in found if step.message == "TurnFinished"}
    for step, session, seq, _ in deliveries:
        if step.message == RETURNED:
            told = finished.get((step.key[0], step.turn))
            if told is not None:
                step.cause, step.sender, step.enqueued_ns = told.key, told.receiver, told.started_ns
        else:
            spans = holds.get((step.key[0], session), [])
            place = bisect_right(spans, seq, key=lambda span: span[0]) - 1
            if place >= 0 and seq <= spans[place][1]:
                commit = spans[place][2]
                step.cause, step.enqueued_ns = commit.key, commit.ended_ns


def _is_a_turns(step: Step) -> bool:
    """Whether what it belongs to is a turn: it was told to the turn's actor, or is its completion."""
    return step.message in (COMPLETION, RETURNED) or f"/{step.turn}#" in step.receiver


def role(name: str | None) -> str:
    """An actor's part in a turn: its name without the ids."""
    if name is None:
        return ""
    head, _, tail = name.partition("/")
    if not tail:
        return "session" if head.startswith("s_") else head
    return "turn" if tail.startswith("t_") else tail
