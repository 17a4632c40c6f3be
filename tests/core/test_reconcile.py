"""The reconciler's rules, as a pure diff (C40)."""

from __future__ import annotations

import pytest

from lastword.actors.core.facts import AssistantSaid, TurnClosed, UnknownRecord
from lastword.actors.core.ids import TurnId
from lastword.actors.core.outcome import Evidence
from lastword.actors.core.reconcile import (
    FinishFromJournal,
    ForgetTurn,
    ReplaceActor,
    TurnView,
    reconcile,
    unobserved,
)

T = TurnId("t_1")


def view(**known) -> TurnView:
    return TurnView(turn_id=T, **known)


@pytest.mark.contract("C40")
@pytest.mark.parametrize(
    ("turn", "journal_waits", "repair"),
    [
        (view(), False, None),
        (view(native_turn="n"), False, None),
        (view(on_record=True), False, FinishFromJournal),
        (view(on_record=True, told_end=True), True, FinishFromJournal),
        (view(told_end=True), False, ReplaceActor),
        (view(told_end=True), True, None),
        (view(told_end=True, has_actor=False), False, ForgetTurn),
        (view(told_end=True, has_actor=False, on_record=True), False, ForgetTurn),
        (view(has_actor=False), False, None),
    ],
)
def test_c40_each_contradiction_has_its_one_repair(turn, journal_waits, repair):
    found = reconcile([turn], journal_waits=journal_waits)
    assert [type(each) for each in found] == ([repair] if repair else [])
    assert all(each.turn_id == T for each in found)


def at(offset: int) -> Evidence:
    return Evidence(source="f", offset=offset)


END = TurnClosed(native_turn="n", status="completed", answer="x", evidence=at(90))
SAID = AssistantSaid(native_turn="n", native_message="m", text="x", evidence=at(70))


@pytest.mark.contract("C42")
def test_c42_only_what_stands_behind_the_heard_place_is_unobserved():
    assert unobserved((), 0, frozenset({"n"})) is None
    assert unobserved((SAID, END), 100, frozenset({"n"})) is None
    found = unobserved((SAID, END), 80, frozenset({"n"}))
    assert found is not None
    assert (found.offset, found.ends) == (90, (END,))
    found = unobserved((SAID, END), 60, frozenset({"another"}))
    assert found is not None
    assert found.ends == ()  # an end of somebody else's is no evidence about ours
    found = unobserved((END,), 60, frozenset({""}))
    assert found is not None
    assert found.ends == (END,)  # ours is not bound: its whole life may be unobserved
    assert unobserved((UnknownRecord(what="x", evidence=at(5)),), 6, frozenset()) is None
