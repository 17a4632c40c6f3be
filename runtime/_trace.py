"""A trace file, read: every hop with its cause, whichever host wrote it. Reads only; judges nothing.

What stands in the file is what an actor could write without looking anything up. Put together here: an event that a
subscriber took was caused by the commit that holds it; what was traced under a message's id belongs to the turn that
the message was bound to. Ids are unique in a process: a file may hold the parts of several hosts, one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from lastword.actors.core.errors import UsageError
from lastword.actors.system.tracing import FORMAT, RETURNED, Bound, CommitSpan, Delivered, Head, Hop, Lost

COMPLETION = "unified_completion"
JOURNAL = "journal"
DISK = "journal's file"
SUBSCRIBER = "subscriber"
HOST = "host"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A completion's own stamps, by the wall clock: read by others than the tracer."""

    delivered_at: float
    accepted_at: float | None
    terminal_seen_at: float | None
    committed_at: float | None


class Step(msgspec.Struct, kw_only=True):
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
        unread: lines that are none of ours.
    """

    steps: dict[tuple[str, int], Step]
    heads: dict[str, Head]
    lost: int = 0
    unread: int = 0

    def of(self, turn: str) -> list[Step]:
        """All that belongs to a turn, in order."""
        return [step for step in self.steps.values() if step.turn == turn]

    def turns(self) -> list[str]:
        """Turns by name, oldest first: whatever has a completion or an actor of its own."""
        named = {step.turn: None for step in self.steps.values() if step.turn and _is_a_turns(step)}
        return list(named)

    def wall_s(self, step: Step) -> float:
        """When it started, in Unix seconds."""
        head = self.heads[step.key[0]]
        return head.wall_s + (step.started_ns - head.at_ns) / 1e9


_Line = Head | Hop | CommitSpan | Delivered | Bound | Lost


def read_trace(path: Path) -> Trace:
    """All of a trace file. A last line that is being written is left out.

    Raises:
        UsageError: ``file_unreadable``: it cannot be read, is no trace, or one of a newer lastword.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise UsageError("file_unreadable", f"{path} cannot be read: {error.strerror}") from error
    decoder = msgspec.json.Decoder(_Line)
    trace = Trace(steps={}, heads={})
    found: list[Step] = []
    deliveries: list[tuple[Step, Delivered]] = []
    bound: dict[tuple[str, str | int], str] = {}
    holds: dict[tuple[str, str, int], Step] = {}
    process = ""
    for line in lines:
        try:
            record = decoder.decode(line)
        except msgspec.DecodeError:
            trace.unread += 1
            continue
        match record:
            case Head():
                if record.format > FORMAT:
                    remedy = "Read it with the lastword that wrote it"
                    raise UsageError("file_unreadable", f"{path} is of a newer lastword", remedy=remedy)
                process = record.process
                trace.heads.setdefault(process, record)
            case Hop():
                found.append(_hop(process, record))
            case CommitSpan():
                step = _commit(process, record)
                found.append(step)
                if record.seq_from:
                    for seq in range(record.seq_from, record.seq_to + 1):
                        holds[process, record.session, seq] = step
            case Delivered():
                step = _delivered(process, record)
                found.append(step)
                deliveries.append((step, record))
            case Bound():
                bound[process, record.message_id or record.hop] = record.trace
            case Lost():
                trace.lost += record.count
    if not trace.heads:
        raise UsageError("file_unreadable", f"{path} is no trace", remedy="`lastword trace record` writes one")
    _tie(found, deliveries, holds, bound)
    found.sort(key=lambda step: (step.key[0], step.started_ns, step.key[1]))
    trace.steps = {step.key: step for step in found}
    for step in found:
        if step.cause not in trace.steps:
            step.cause = None  # it was lost, or began before the tracing did
    return trace


def _hop(process: str, hop: Hop) -> Step:
    return Step(
        key=(process, hop.id),
        cause=(process, hop.cause) if hop.cause else None,
        turn=hop.trace,
        sender=hop.sender,
        receiver=hop.receiver,
        message=hop.message,
        enqueued_ns=hop.enqueued_ns,
        started_ns=hop.started_ns,
        ended_ns=hop.ended_ns,
        origin=hop.origin,
        raised=hop.raised,
    )


def _commit(process: str, span: CommitSpan) -> Step:
    return Step(
        key=(process, span.id),
        cause=(process, span.cause) if span.cause else None,
        turn=span.trace,
        sender=JOURNAL,
        receiver=DISK,
        message="commit",
        enqueued_ns=span.enqueued_ns,
        started_ns=span.started_ns,
        ended_ns=span.ended_ns,
        kind="commit",
    )


def _delivered(process: str, record: Delivered) -> Step:
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
        turn=record.trace,
        sender=JOURNAL,
        receiver=HOST if record.event == RETURNED else SUBSCRIBER,
        message=record.event,
        enqueued_ns=record.at_ns,
        started_ns=record.at_ns,
        ended_ns=record.at_ns,
        kind="delivered",
        measured=measured,
    )


def _tie(
    found: list[Step],
    deliveries: list[tuple[Step, Delivered]],
    holds: dict[tuple[str, str, int], Step],
    bound: dict[tuple[str, str | int], str],
) -> None:
    for step in found:
        named = bound.get(step.key, step.turn)  # a hop by its number; what it is named may be a message, bound in turn
        step.turn = bound.get((step.key[0], named), named) if named is not None else None
    finished = {(step.key[0], step.turn): step for step in found if step.message == "TurnFinished"}
    for step, record in deliveries:
        if record.event == RETURNED:
            told = finished.get((step.key[0], step.turn))
            if told is not None:
                step.cause, step.sender, step.enqueued_ns = told.key, told.receiver, told.started_ns
        else:
            commit = holds.get((step.key[0], record.session, record.seq))
            if commit is not None:
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
