"""The reconciler's rules: a pure diff of what the journal holds and what the world shows (C40).

It is no second judge. What it finds wrong is put right by ordinary means: the completion that stands is told, an actor
is replaced under a new epoch, the record is read again. It never makes a completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from lastword.actors.core.facts import Fact, TurnClosed
from lastword.actors.core.ids import TurnId

SETTLE_GRACE_S = 5.0
"""How long what must happen at once may take, before it is looked after."""


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that the session holds open.

    Attributes:
        native_turn: "" while it is not bound.
        told_end: it was told its end.
        has_actor: an actor answers for it.
        on_record: the journal holds its completion.
    """

    turn_id: TurnId
    native_turn: str = ""
    told_end: bool = False
    has_actor: bool = True
    on_record: bool = False


class FinishFromJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The completion stands; only the session was not told."""

    turn_id: TurnId


class ForgetTurn(msgspec.Struct, frozen=True, kw_only=True):
    """It was told its end, and no actor answers for it any more."""

    turn_id: TurnId


class ReplaceActor(msgspec.Struct, frozen=True, kw_only=True):
    """It was told its end and does not settle: its actor is stuck or dead."""

    turn_id: TurnId
    what: str


Repair: TypeAlias = FinishFromJournal | ForgetTurn | ReplaceActor


def reconcile(turns: Iterable[TurnView], *, journal_waits: bool) -> list[Repair]:
    """What must be put right, for turns whose grace is over. While the journal waits nothing else is stuck."""
    repairs: list[Repair] = []
    for turn in turns:
        if turn.on_record and turn.has_actor:
            repairs.append(FinishFromJournal(turn_id=turn.turn_id))
        elif turn.told_end and not turn.has_actor:
            repairs.append(ForgetTurn(turn_id=turn.turn_id))
        elif turn.told_end and not journal_waits:
            what = f"a turn was told its end {SETTLE_GRACE_S:g} s ago and is not settled"
            repairs.append(ReplaceActor(turn_id=turn.turn_id, what=what))
    return repairs


class Unobserved(msgspec.Struct, frozen=True, kw_only=True):
    """The record holds facts that did not come to the session. ``ends``: of native turns that it holds open.

    ``offset``: of the last one.
    """

    offset: int
    ends: tuple[TurnClosed, ...] = ()


def unobserved(facts: Sequence[Fact], observed_to: int, natives: frozenset[str]) -> Unobserved | None:
    """What another reader of the same record found behind the place that the session has heard of.

    Args:
        facts: in the order of the record.
        observed_to: bytes of the record that were read and told.
        natives: native turns that the session holds open; "" for one that is not bound.
    """
    offsets = [evidence.offset for fact in facts if (evidence := getattr(fact, "evidence", None)) is not None]
    if not offsets or offsets[-1] < observed_to:
        return None
    ends = tuple(fact for fact in facts if isinstance(fact, TurnClosed) and fact.evidence.offset >= observed_to)
    if "" not in natives:
        ends = tuple(end for end in ends if end.native_turn in natives)
    return Unobserved(offset=offsets[-1], ends=ends)
