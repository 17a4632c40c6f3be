"""The critical path of one turn: which hops its completion waited for, one behind the other, without a gap.

Two chains of causes, read backwards: from the moment that a subscriber has the completion to what woke us for it, and
from the moment that the CLI had the text to the host's call. Between them the CLI works. Every piece is the difference
of two readings of one clock, and each begins where the one before ends: so the pieces add up to the whole exactly.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from lastword.actors.system.tracing import RETURNED
from lastword.runtime._trace import COMPLETION, Step, Trace

SUBMITTED = "Said(Submitted)"
"""What the actor at the CLI reports once the text is with it."""
DELIVER = "Deliver"
"""What hands the text to that actor."""
TELL = "Tell("
"""What tells a turn of facts."""
TURN_BEFORE = "the turn before it ends"
CLI_WORKS = "the CLI works"
CLI_GETS_READY = "the CLI gets ready"

PieceKind = Literal["wait", "handling", "outside"]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the path.

    Attributes:
        kind: ``wait`` in the queue, ``handling`` until it told the next one, ``outside`` of all actors.
        step: the hop; None for what is outside.
        what: what is outside: who answers next, or that the CLI works.
    """

    kind: PieceKind
    begin_ns: int
    end_ns: int
    step: Step | None = None
    what: str = ""

    @property
    def ns(self) -> int:
        """How long."""
        return self.end_ns - self.begin_ns


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    """From the host's call to the completion in a subscriber's hands, or as much of it as the file tells.

    Attributes:
        whole: it begins with the host's call.
        pieces: without a gap: each begins where the one before ends.
        woken_ns: when what led to the completion began: a hint of the record's change, as a rule.
        seen_ns: when the turn was told of its end; None where that is not on the path.
        measured_ms, measured_seen_ms: the same by the wall clock, from acceptance and from the sight of the terminal
            record, as the completion tells them; None where it does not.
    """

    turn: str
    whole: bool
    pieces: tuple[Piece, ...]
    woken_ns: int
    seen_ns: int | None
    measured_ms: float | None
    measured_seen_ms: float | None

    @property
    def total_ns(self) -> int:
        """From the first to the last."""
        return self.pieces[-1].end_ns - self.pieces[0].begin_ns

    def sum_ns(self, kind: PieceKind) -> int:
        """All pieces of a kind."""
        return sum(piece.ns for piece in self.pieces if piece.kind == kind)

    @property
    def since_woken_ns(self) -> int:
        """From the hint to the end."""
        return self.pieces[-1].end_ns - self.woken_ns

    @property
    def since_seen_ns(self) -> int | None:
        """From the moment that the turn is told of its end to the end."""
        return None if self.seen_ns is None else self.pieces[-1].end_ns - self.seen_ns


def critical_path(trace: Trace, turn: str) -> CriticalPath | None:
    """The path of a turn; None where the file does not hold its end."""
    steps = trace.of(turn)
    end = _end(steps)
    if end is None:
        return None
    settling = _own_chain(trace, end, steps)
    pieces, submitted = _delivery(trace, steps, settling)
    settling = [step for step in settling if step.enqueued_ns >= submitted]
    woken = settling[0].enqueued_ns
    if pieces:
        pieces.append(Piece(kind="outside", begin_ns=submitted, end_ns=woken, what=CLI_WORKS))
    pieces += _pieces(settling, end.ended_ns)
    first = pieces[0].step
    seen = [step for step in settling if step.turn == turn and step.message.startswith(TELL)]
    return CriticalPath(
        turn=turn,
        whole=first is not None and first.message == "Submit",
        pieces=tuple(piece for piece in pieces if piece.ns or piece.step is not None),
        woken_ns=woken,
        seen_ns=seen[-1].started_ns if seen else None,
        measured_ms=_measured(end, "accepted_at"),
        measured_seen_ms=_measured(end, "terminal_seen_at"),
    )


def _end(steps: list[Step]) -> Step | None:
    """A subscriber has the completion; or ``run`` returned; or nobody was told: it is on record."""
    for message in (COMPLETION, RETURNED):
        told = [step for step in steps if step.kind == "delivered" and step.message == message]
        if told:
            return min(told, key=lambda step: step.ended_ns)
    finished = [step for step in steps if step.message == "TurnFinished"]
    return finished[-1] if finished else None


def _chain(trace: Trace, last: Step) -> list[Step]:
    """It and its causes, first cause first."""
    chain = [last]
    while (cause := chain[-1].cause) is not None:
        chain.append(trace.steps[cause])
    return chain[::-1]


def _own_chain(trace: Trace, last: Step, steps: list[Step]) -> list[Step]:
    """The chain without what belongs to other turns: those had to end first, or happened to wake somebody. Where one
    made the host's call wait, the chain goes on from that call.
    """
    chain = _chain(trace, last)
    foreign = [number for number, step in enumerate(chain) if step.turn not in (None, last.turn)]
    chain = chain[foreign[-1] + 1 :] if foreign else chain
    if foreign and chain[0].message == "Commit":
        called = [step for step in steps if step.message == "Submit" and step.ended_ns <= chain[0].enqueued_ns]
        chain = [*called[-1:], *chain]
    return chain


def _delivery(trace: Trace, steps: list[Step], settling: list[Step]) -> tuple[list[Piece], int]:
    """From the host's call to the text with the CLI, and when that was; nothing where the path to the end begins with
    that call anyway, or where the file does not tell it.
    """
    woken = settling[0]
    before = [step for step in steps if step.kind == "hop" and step.key[0] == woken.key[0]]
    if woken.message == "Submit" or not before:
        return [], 0
    seen = next((step for step in reversed(settling) if step.message.startswith(TELL)), settling[-1]).enqueued_ns
    told = [step for step in before if step.message == SUBMITTED and step.enqueued_ns <= seen]
    typed = _own_chain(trace, told[-1], steps) if told else []
    if typed and typed[0].message == "Submit":
        return _pieces(typed, typed[-1].enqueued_ns), typed[-1].enqueued_ns
    begun = typed[-1].enqueued_ns if typed else seen
    sent = _handed(trace, [step for step in before if step.started_ns <= begun], steps)
    if not sent:
        return [], 0
    cut = min(sent[-1].ended_ns, begun)
    pieces = _pieces(sent, cut)
    typed = [step for step in typed if step.enqueued_ns >= cut]
    if typed:  # the text waited at the CLI, and something else than the call had it typed: the CLI got ready
        pieces.append(Piece(kind="outside", begin_ns=cut, end_ns=typed[0].enqueued_ns, what=CLI_GETS_READY))
        pieces += _pieces(typed, typed[-1].enqueued_ns)
        cut = typed[-1].enqueued_ns
    return pieces, cut


def _handed(trace: Trace, before: list[Step], steps: list[Step]) -> list[Step]:
    """The chain from the host's call to what handed its text over, or else to the last that came of the call."""
    called_ns = min((step.ended_ns for step in steps if step.message == "Submit"), default=math.inf)
    begins: dict[tuple[str, int], bool] = {}  # whether what has that key came of the call: each is looked at once

    def came_of_the_call(last: Step) -> bool:
        passed, step = [], last
        while (known := begins.get(step.key)) is None:
            passed.append(step.key)
            cause = trace.steps[step.cause] if step.cause is not None else None
            if cause is None or cause.turn not in (None, last.turn):
                waited = cause is not None and step.message == "Commit" and called_ns <= step.enqueued_ns
                known = waited or step.message == "Submit"
                break
            step = cause
        begins.update(dict.fromkeys(passed, known))
        return known

    came = [step for step in before if came_of_the_call(step)]
    last = max(came, key=lambda step: (step.message == DELIVER, step.started_ns), default=None)
    return _own_chain(trace, last, steps) if last is not None else []


def _pieces(chain: list[Step], until_ns: int) -> list[Piece]:
    """The chain as stretches, from the first one's enqueuing to ``until_ns``."""
    pieces: list[Piece] = []
    for step, after in zip(chain, [*chain[1:], None], strict=True):
        if step.enqueued_ns >= until_ns and after is None and pieces:
            break  # that it was told is all that counts
        next_ns = after.enqueued_ns if after is not None else until_ns
        pieces.append(Piece(kind="wait", begin_ns=step.enqueued_ns, end_ns=min(step.started_ns, next_ns), step=step))
        handled_ns = min(max(step.ended_ns, step.started_ns), next_ns)
        pieces.append(Piece(kind="handling", begin_ns=pieces[-1].end_ns, end_ns=handled_ns, step=step))
        if next_ns > handled_ns:
            what = (after.origin or after.sender if after is not None else "") or ""
            if step.message == "Submit":
                what = TURN_BEFORE  # all else is told while a call is handled
            pieces.append(Piece(kind="outside", begin_ns=handled_ns, end_ns=next_ns, what=what))
    return pieces


def _measured(end: Step, since: Literal["accepted_at", "terminal_seen_at"]) -> float | None:
    began = getattr(end.measured, since) if end.measured is not None else None
    return None if began is None or end.measured is None else (end.measured.delivered_at - began) * 1e3


def story(trace: Trace, turn: str) -> list[Step]:
    """All that belongs to a turn, and all that led to it."""
    found: dict[tuple[str, int], Step] = {}
    for step in trace.of(turn):
        for each in reversed(_chain(trace, step)):
            if each.key in found:
                break
            found[each.key] = each
    return sorted(found.values(), key=lambda step: (step.key[0], step.started_ns))
