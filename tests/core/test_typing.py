"""The typing machine against a pane with bad manners: nothing twice, nothing mixed, nothing into a dialog."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from lastword.actors.core import typing as core
from lastword.actors.core import typing_bounds as bounds
from lastword.actors.core import typing_effects
from lastword.actors.core.adapter import DialogOpen, Ready, Signal
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.typing_dialogs import dialog_id
from pane_model import Manners, PaneModel

TEXTS = ("first", "second", "third", "fourth")
EXAMPLES = int(os.environ.get("LASTWORD_EXAMPLES", "400"))
END_S = 400.0
"""By then, whatever happens, every text has an end."""

moments = st.sampled_from([0.0, 0.001, 0.004, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 3.5, 8.0])
lengths = st.sampled_from([0.01, 0.1, 0.5, 2.0, 5.0, 14.0])
spans = st.lists(st.tuples(moments, lengths), max_size=2).map(tuple)


@st.composite
def manners(draw: st.DrawFn) -> Manners:
    return Manners(
        starts_after=draw(st.sampled_from([0.0, 0.3, 2.0])),
        swallowed_enters=draw(st.integers(0, 3)),
        lost_pastes=draw(st.integers(0, 4)),
        look_ages=tuple(draw(st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.4]), min_size=1, max_size=4))),
        latencies=tuple(draw(st.lists(st.sampled_from([0.001, 0.01, 0.1, 0.4]), min_size=1, max_size=4))),
        landing=tuple(draw(st.lists(st.sampled_from([0.0, 0.05, 0.5, 1.5]), min_size=1, max_size=3))),
        proof_after=draw(st.sampled_from([0.0, 0.01, 0.5, 4.0])),
        busy_for=draw(st.sampled_from([0.05, 1.0, 6.0])),
        puts_back=draw(st.booleans()),
        answers_dialogs=draw(st.booleans()),
        dialogs=draw(spans),
        drafts=draw(st.lists(st.tuples(moments, lengths, st.booleans()), max_size=2).map(tuple)),
        copy_modes=draw(spans),
    )


CALLS = ("withdraw", "interrupt", "nudge", "dialog", "draft")
calls = st.lists(
    st.tuples(st.integers(1, 60), st.sampled_from(CALLS), st.integers(0, len(TEXTS) - 1), lengths), max_size=5
)


def call(pane: PaneModel, what: str, number: int, length: float) -> None:
    match what:
        case "withdraw":
            pane.withdraw(TEXTS[number])
        case "interrupt":
            pane.interrupt(f"t{number}")
        case "nudge":
            pane.do(pane.core.nudge())
        case "dialog":
            pane.open_dialog(f"sudden {number}", length)
        case "draft":
            pane.begin_draft(length, takes_all=bool(number % 2))


@pytest.mark.contract("C24")
@pytest.mark.contract("C25")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    behaviour=manners(),
    deliveries=st.lists(moments, min_size=1, max_size=4),
    called=calls,
    uncertain=st.booleans(),
)
def test_c24_whatever_the_pane_does_each_text_is_submitted_once_or_proved_not_to_be(
    behaviour: Manners,
    deliveries: list[float],
    called: list[tuple[int, str, int, float]],
    uncertain: bool,
) -> None:
    pane = PaneModel(behaviour)
    pane.at(0.0, pane.open)
    for text, when in zip(TEXTS, sorted(deliveries), strict=False):
        pane.at(when, lambda text=text: pane.deliver(text, uncertain=uncertain))  # type: ignore[misc]
    for step, what, number, length in called:
        pane.before_step.setdefault(step, []).append(
            lambda what=what, number=number, length=length: call(pane, what, number, length)  # type: ignore[misc]
        )
    pane.run(END_S)
    pane.check()


# --- one promise each -------------------------------------------------------------------------------------------


def opened(behaviour: Manners | None = None, *texts: str, until: float = END_S) -> PaneModel:
    pane = PaneModel(behaviour or Manners())
    pane.at(0.0, pane.open)
    for text in texts:
        pane.at(0.0, lambda text=text: pane.deliver(text))  # type: ignore[misc]
    pane.run(until)
    return pane


def in_phase(behaviour: Manners, phase: core.Phase, *texts: str) -> PaneModel:
    """A pane that was stopped as soon as the machine got there."""
    pane = opened(behaviour, *texts, until=-1.0)
    pane.run(END_S, stop=lambda: pane.core.phase is phase)
    assert pane.core.phase is phase
    return pane


def enters(pane: PaneModel) -> int:
    return sum(what == "enter" for what, _ in pane.keys)


def kinds(pane: PaneModel) -> list[str]:
    return [type(report).__name__ for report in pane.reports]


@pytest.mark.contract("C24")
def test_c24_an_enter_is_pressed_once_and_again_only_while_the_box_still_holds_the_text() -> None:
    assert enters(opened(Manners(proof_after=20.0), "first")) == 1
    swallowed = opened(Manners(swallowed_enters=2), "first")
    assert enters(swallowed) == 3
    assert swallowed.pastes == swallowed.submitted == ["first"]
    assert len(swallowed.of(typing_effects.Submitted)) == 1


@pytest.mark.contract("C24")
def test_c24_enters_that_never_submit_end_in_not_delivered_after_a_bounded_number() -> None:
    pane = opened(Manners(swallowed_enters=99), "first")
    assert pane.ended == {"first": "not_delivered"}
    assert enters(pane) == bounds.ENTERS_MAX


@pytest.mark.contract("C24")
def test_c24_a_lost_paste_is_pasted_again_while_the_box_is_empty_and_at_most_three_times() -> None:
    pane = opened(Manners(lost_pastes=2), "first")
    assert pane.pastes == ["first"] * 3
    assert pane.submitted == ["first"]
    pane = opened(Manners(lost_pastes=3), "first", "second")
    assert pane.pastes == ["first"] * bounds.PASTES_MAX + ["second"]
    assert pane.ended == {"first": "not_delivered", "second": "proved"}


def test_the_proof_of_record_moves_on_to_the_next_text_and_only_the_proof_of_the_current_one() -> None:
    pane = in_phase(Manners(proof_after=20.0), core.Phase.PROVING, "first", "second")
    assert pane.core.proved(MessageId("m:second"), pane.now) == []
    assert pane.core.phase is core.Phase.PROVING
    pane.prove("first")
    assert pane.core.phase is core.Phase.READYING
    pane.run(pane.now + 1.0)
    assert pane.submitted == ["first", "second"]


@pytest.mark.contract("C17")
@pytest.mark.contract("C24")
def test_c24_one_wait_proves_all_texts_of_an_earlier_life_absent_and_each_is_typed_once_in_order() -> None:
    pane = PaneModel(Manners(busy_for=0.3))
    pane.at(0.0, pane.open)
    for text in TEXTS:
        pane.at(0.0, lambda text=text: pane.deliver(text, uncertain=True))  # type: ignore[misc]
    pane.run(bounds.RESOLVE_S)
    assert pane.pastes == []
    pane.run(bounds.RESOLVE_S + 3.0)
    assert pane.submitted == pane.pastes == list(TEXTS)
    pane.run()
    pane.check()


@pytest.mark.contract("C24")
def test_c24_a_text_of_an_earlier_life_that_the_record_shows_is_not_typed_again_wherever_it_waits() -> None:
    pane = PaneModel(Manners())
    pane.at(0.0, pane.open)
    for text in TEXTS[:3]:
        pane.at(0.0, lambda text=text: pane.deliver(text, uncertain=True))  # type: ignore[misc]
    pane.run(1.0)
    assert pane.core.proved(MessageId("m:second"), pane.now) == []
    pane.run()
    assert pane.submitted == pane.pastes == ["first", "third"]


def test_a_record_that_is_faster_than_the_report_of_the_key_still_gives_one_submitted() -> None:
    pane = opened(Manners(proof_after=0.0, latencies=(0.001, 0.4)), "first")
    assert kinds(pane) == ["BecameReady", "Submitted"]
    pressing = in_phase(Manners(), core.Phase.PRESSING, "first")
    effects = pressing.core.proved(MessageId("m:first"), pressing.now)
    assert [type(effect) for effect in effects] == [typing_effects.Submitted]
    assert pressing.core.phase is core.Phase.IDLE


def test_an_interrupt_that_waits_for_an_enter_is_pressed_even_where_the_record_is_faster_than_that_key() -> None:
    pane = in_phase(Manners(busy_for=30.0), core.Phase.PRESSING, "first")
    pane.interrupt("t1")
    pane.do(pane.core.nudge())
    number = pane.core._looking
    pane.do(pane.core.looked(number, Ready(draft="first"), copy_mode=False, now_s=pane.now))
    assert pane.of(typing_effects.Interrupted) == []
    pane.do(pane.core.proved(MessageId("m:first"), pane.now))
    pane.run(5.0)
    assert len(pane.of(typing_effects.Interrupted)) == 1


def test_a_text_is_withdrawn_before_it_is_typed() -> None:
    pane = opened(Manners(starts_after=1.0), "first", "second", until=0.5)
    assert pane.core.phase is core.Phase.STARTING
    pane.withdraw("first")
    assert pane.ended == {"first": "withdrawn"}
    pane.run(END_S)
    assert pane.submitted == pane.pastes == ["second"]


@pytest.mark.parametrize("phase", [core.Phase.READYING, core.Phase.PASTING, core.Phase.LANDING])
def test_a_text_is_withdrawn_until_enter_and_is_taken_out_of_the_box(phase: core.Phase) -> None:
    pane = in_phase(Manners(landing=(0.05,)), phase, "first", "second")
    pane.withdraw("first")
    pane.run(END_S)
    assert pane.ended == {"first": "withdrawn", "second": "proved"}
    assert pane.submitted == ["second"]
    assert pane.state.box == ()


def test_a_withdrawal_after_enter_is_not_answered_where_the_text_was_submitted() -> None:
    pane = in_phase(Manners(proof_after=2.0), core.Phase.PROVING, "first")
    pane.withdraw("first")
    pane.run(END_S)
    assert pane.ended == {"first": "proved"}


def test_a_withdrawal_after_an_enter_that_was_swallowed_takes_the_text_back() -> None:
    pane = in_phase(Manners(swallowed_enters=1), core.Phase.PROVING, "first")
    pane.withdraw("first")
    pane.run(END_S)
    assert pane.ended == {"first": "withdrawn"}
    assert pane.submitted == []
    assert enters(pane) == 1


def test_a_withdrawn_text_is_not_pasted_again_behind_a_dialog_or_a_draft() -> None:
    pane = in_phase(Manners(), core.Phase.LANDING, "first")
    pane.withdraw("first")
    pane.run(END_S, stop=lambda: pane.core.phase is core.Phase.CLEARING)
    pane.open_dialog("sudden", 2.0)
    pane.run(END_S)
    assert pane.pastes == ["first"]
    assert pane.ended == {"first": "withdrawn"}


@pytest.mark.contract("C24")
def test_c24_an_old_screen_does_not_make_a_submitted_text_withdrawn() -> None:
    pane = in_phase(Manners(look_ages=(0.4,), proof_after=3.0), core.Phase.PROVING, "first")
    pane.withdraw("first")
    pane.do(pane.core.nudge())
    pane.run(END_S)
    assert pane.ended == {"first": "proved"}


def test_a_withdrawn_text_whose_paste_could_not_go_out_is_not_pasted_again() -> None:
    pane = in_phase(Manners(), core.Phase.PASTING, "first")
    pane.withdraw("first")
    assert pane.core.pasted(ok=False, now_s=pane.now) == [typing_effects.LookIn(bounds.HOLD_LOOK_S)]
    pane.do(pane.core.nudge())
    later = pane.now + bounds.LANDED_S + 1
    effects = pane.core.looked(pane.core._looking, Ready(draft="by hand"), copy_mode=False, now_s=later)
    assert effects == [typing_effects.WithdrawnReport(message_id=MessageId("m:first"))]


@pytest.mark.parametrize("landing", [0.03, 0.108, 0.19])
def test_a_paste_that_is_drawn_late_is_entered_a_look_after_it_was_drawn(landing: float) -> None:
    pane = in_phase(Manners(landing=(landing,)), core.Phase.LANDING, "first")
    pasted = pane.now
    pane.run(END_S, stop=lambda: bool(pane.submitted))
    assert pane.now - pasted - landing < 0.015


def looks_while_landing(pane: PaneModel) -> int:
    """How often it looks until it is in another phase."""
    looks = 0
    number = 0
    while pane.core.phase is core.Phase.LANDING:
        looks += pane.core._looking not in (0, number)
        number = pane.core._looking or number
        step = pane.steps
        pane.run(END_S, stop=lambda step=step: pane.steps > step)  # type: ignore[misc]
    return looks


def test_a_paste_that_is_never_drawn_is_looked_for_some_dozens_of_times_and_not_more() -> None:
    pane = in_phase(Manners(lost_pastes=1), core.Phase.LANDING, "first")
    assert 10 < looks_while_landing(pane) < 60
    pane.run(END_S)
    assert pane.submitted == ["first"]


def test_a_text_of_an_earlier_life_that_a_person_takes_away_is_looked_for_no_more_often() -> None:
    pane = PaneModel(Manners())
    pane.at(0.0, pane.open)
    pane.at(0.5, lambda: pane.become(box=("first",)))
    pane.at(1.0, lambda: pane.deliver("first", uncertain=True))
    pane.run(END_S, stop=lambda: pane.core.phase is core.Phase.LANDING)
    pane.become(box=())
    assert looks_while_landing(pane) < 60


def test_an_interrupt_presses_escape_once_and_is_moot_once_the_box_is_idle() -> None:
    pane = in_phase(Manners(proof_after=0.01, busy_for=30.0), core.Phase.PROVING, "first")
    pane.run(1.0)
    pane.interrupt("t1")
    pane.run(2.0)
    assert [what for what, _ in pane.keys].count("interrupt") == 1
    pane.interrupt("t1")
    pane.run(3.0)
    assert pane.of(typing_effects.NothingToInterrupt) == [typing_effects.NothingToInterrupt(turn_id=TurnId("t1"))]
    assert [what for what, _ in pane.keys].count("interrupt") == 1
    assert len(pane.of(typing_effects.Interrupted)) == 1


def test_an_interrupt_that_was_not_enough_is_pressed_again_while_the_cli_is_busy() -> None:
    pane = opened(None, "first", until=5.0)
    for _ in range(2):
        pane.become(busy=True)
        pane.interrupt("t1")
        pane.run(pane.now + 1.0)
    assert len(pane.of(typing_effects.Interrupted)) == 2


def test_an_interrupt_of_a_text_whose_enter_was_swallowed_takes_it_back_without_escape() -> None:
    pane = in_phase(Manners(swallowed_enters=1), core.Phase.PROVING, "first")
    pane.interrupt("t1")
    pane.run(END_S)
    assert pane.ended == {"first": "withdrawn"}
    assert ("interrupt", ("Escape",)) not in pane.keys


@pytest.mark.contract("C24")
def test_c24_a_text_that_an_interrupt_put_back_into_the_box_is_not_entered_again() -> None:
    pane = in_phase(Manners(puts_back=True, proof_after=5.0, busy_for=20.0), core.Phase.PROVING, "first")
    pane.interrupt("t1")
    pane.run(END_S)
    assert enters(pane) == 1
    assert pane.ended == {"first": "withdrawn"}
    assert pane.state.box == ()


@pytest.mark.contract("C13")
def test_c13_a_text_that_the_interrupt_of_another_turn_put_back_into_the_box_is_entered_again() -> None:
    """Its own turn was not cancelled; found by chance among the random panes above."""
    pane = in_phase(Manners(puts_back=True, proof_after=5.0, busy_for=20.0), core.Phase.PROVING, "first")
    pane.interrupt("t0")
    pane.run(END_S)
    assert enters(pane) == 2
    assert pane.ended == {"first": "proved"}


def test_an_interrupt_waits_for_copy_mode() -> None:
    pane = opened(Manners(copy_modes=((1.0, 2.0),)), until=1.5)
    pane.become(busy=True)
    pane.interrupt("t1")
    pane.run(2.9)
    assert pane.of(typing_effects.Interrupted) == []
    pane.run(4.0)
    assert len(pane.of(typing_effects.Interrupted)) == 1


# --- dialogs ------------------------------------------------------------------------------------------------------


def with_dialog(dialog: DialogOpen) -> tuple[PaneModel, str]:
    pane = opened(None, until=1.0)
    pane.become(dialog=dialog)
    pane.do(pane.core.nudge())
    pane.run(1.1)
    seen = pane.of(typing_effects.DialogSeen)
    assert len(seen) == 1
    return pane, dialog_id(dialog, 1)


@pytest.mark.contract("C25")
def test_c25_an_answer_by_digit_is_applied_when_the_dialog_is_gone() -> None:
    pane, dialog_id = with_dialog(DialogOpen(key="k", question="?", options=("yes", "no")))
    pane.deliver("first")
    pane.deaf_to_answers = 1
    pane.answer(dialog_id, 2)
    pane.run(1.1 + bounds.ANSWER_AGAIN_S / 2)
    assert pane.keys == [("answer", ("2",))]
    assert pane.of(typing_effects.AnswerResult) == []
    pane.run(END_S)
    assert pane.keys[:2] == [("answer", ("2",))] * 2
    assert pane.keys[2:] == [("enter", ("Enter",))]
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=True)]
    assert pane.of(typing_effects.DialogGone) == [
        typing_effects.DialogGone(dialog_id=dialog_id, answered=True, token="token")
    ]
    assert pane.submitted == ["first"]


class Stepping(PaneModel):
    """Its dialog has a cursor."""

    def _press(self, press: typing_effects.Press, guard: Callable[[Signal], bool]) -> None:
        dialog = self.state.dialog
        if press.what == "answer" and press.keys != ("Enter",) and guard(self.state.signal):
            assert dialog is not None
            assert dialog.cursor
            self.keys.append((press.what, press.keys))
            step = 1 if press.keys == ("Down",) else -1
            self.become(dialog=structs.replace(dialog, cursor=dialog.cursor + step))
            self.do(self.core.pressed(press, ok=True, now_s=self.now))
        else:
            super()._press(press, guard)


@pytest.mark.contract("C25")
def test_c25_an_answer_by_cursor_goes_one_seen_step_at_a_time() -> None:
    pane = Stepping(Manners(latencies=(0.02,), look_ages=(0.1, 0.0)))
    pane.at(0.0, pane.open)
    pane.run(1.0)
    dialog = DialogOpen(key="k", question="?", options=("a", "b", "c"), cursor=1)
    pane.become(dialog=dialog)
    pane.answer(dialog_id(dialog, 1), 3)
    pane.run(1.0 + bounds.ANSWER_AGAIN_S)
    assert [keys for _, keys in pane.keys] == [("Down",), ("Down",), ("Enter",)]
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=True)]


@pytest.mark.contract("C07")
def test_c07_an_interrupt_drops_an_answer_whose_key_is_not_out() -> None:
    dialog = DialogOpen(key="k", question="?", options=("yes", "no", "never"), cursor=1)
    pane, dialog_id = with_dialog(dialog)
    pane.answer(dialog_id, 3)
    pane.interrupt("t1")
    pane.run(3.0)
    assert pane.keys == [("interrupt", ("Escape",))]
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=False)]


@pytest.mark.contract("C07")
def test_c07_an_interrupt_follows_an_answer_whose_key_is_out_once_its_dialog_is_gone() -> None:
    pane, dialog_id = with_dialog(DialogOpen(key="k", question="?", options=("yes", "no")))
    pane.deaf_to_answers = 1  # drawn late: the dialog is to be seen for a while yet
    pane.answer(dialog_id, 1)
    pane.run(1.1 + bounds.ANSWER_AGAIN_S / 4)
    assert pane.keys == [("answer", ("1",))]
    pane.interrupt("t1")
    pane.run(1.1 + bounds.ANSWER_AGAIN_S / 2)
    assert pane.keys == [("answer", ("1",))], "right behind the answer a CLI may read both keys as one"
    pane.become(dialog=None)
    pane.run(3.0)
    assert pane.keys == [("answer", ("1",)), ("interrupt", ("Escape",))]
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=True)]


@pytest.mark.contract("C07")
def test_c07_an_answer_that_the_cli_did_not_take_is_not_pressed_again_before_an_interrupt() -> None:
    pane, dialog_id = with_dialog(DialogOpen(key="k", question="?", options=("yes", "no")))
    pane.deaf_to_answers = 1
    pane.answer(dialog_id, 1)
    pane.run(1.1 + bounds.ANSWER_AGAIN_S / 4)
    pane.interrupt("t1")
    pane.run(5.0)
    assert pane.keys == [("answer", ("1",)), ("interrupt", ("Escape",))]
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=False)]


@pytest.mark.contract("C25")
def test_c25_a_dialog_that_took_the_place_of_the_answered_one_is_not_answered() -> None:
    pane, dialog_id = with_dialog(DialogOpen(key="k", question="?", options=("yes", "no")))
    pane.become(dialog=DialogOpen(key="other", question="delete?", options=("yes", "no")))
    pane.answer(dialog_id, 1)
    pane.run(2.0)
    assert pane.keys == []
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=False)]
    assert pane.state.dialog is not None


@pytest.mark.contract("C25")
def test_c25_the_guard_refuses_an_answer_where_the_dialog_or_its_cursor_changed_since_the_look() -> None:
    pane, dialog_id = with_dialog(DialogOpen(key="k", question="?", options=("yes", "no"), cursor=1))
    press = typing_effects.Press(keys=("Enter",), what="answer", guard="dialog", dialog_id=dialog_id, cursor=1)
    holds = pane.core.guard(press)
    assert holds(DialogOpen(key="k", question="?", options=("yes", "no"), cursor=1))
    assert not holds(DialogOpen(key="k", question="?", options=("yes", "no"), cursor=2))
    assert not holds(DialogOpen(key="other", question="?", options=("yes", "no"), cursor=1))
    assert not holds(Ready())


@pytest.mark.contract("C25")
def test_c25_an_option_that_is_not_there_is_not_chosen() -> None:
    pane, dialog_id = with_dialog(DialogOpen(key="k", question="?", options=("yes", "no")))
    pane.answer(dialog_id, 3)
    pane.run(2.0)
    assert pane.keys == []
    assert pane.of(typing_effects.AnswerResult) == [typing_effects.AnswerResult(token="token", applied=False)]


@pytest.mark.contract("C25")
def test_c25_a_dialog_holds_delivery_is_told_once_and_takes_nothing() -> None:
    pane = opened(Manners(dialogs=((0.5, 30.0),)), until=0.6)
    pane.deliver("first")
    pane.run(30.0)
    assert pane.pastes == []
    assert [report.reason for report in pane.of(typing_effects.Held) if isinstance(report, typing_effects.Held)] == [
        "dialog"
    ]
    pane.run(END_S)
    assert pane.submitted == ["first"]


# --- ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C24")
def test_c24_idle_with_an_empty_box_and_no_record_is_proved_absence() -> None:
    pane = opened(Manners(proof_after=10_000.0, busy_for=5.0), "first", until=100.0)
    assert pane.ended == {"first": "not_delivered"}
    assert 5.0 + bounds.ABSENT_S < pane.now < 60.0


@pytest.mark.contract("C24")
def test_c24_a_busy_cli_is_no_proof_of_absence() -> None:
    pane = opened(Manners(proof_after=10_000.0, busy_for=10_000.0), "first", until=300.0)
    assert pane.ended == {}


def test_a_cli_that_never_shows_its_box_fails_the_launch_and_a_dialog_stops_that_clock() -> None:
    pane = opened(Manners(starts_after=10_000.0), "first", "second", until=bounds.START_S + 5.0)
    assert pane.ended == {"first": "launch_failed", "second": "launch_failed"}
    trust = opened(Manners(starts_after=0.0, dialogs=((0.0, bounds.START_S * 3),)), "first", until=bounds.START_S * 2)
    assert trust.ended == {}
    trust.run(END_S)
    assert trust.ended == {"first": "proved"}


def test_a_command_that_leaves_no_prompt_is_delivered_when_it_has_left_the_box() -> None:
    pane = opened(Manners(swallowed_enters=1), until=1.0)
    pane.deliver("/clear", proved_by_record=False)
    pane.deliver("first")
    pane.run(END_S)
    assert pane.ended == {"/clear": "delivered", "first": "proved"}
    assert pane.submitted == ["/clear", "first"]


def test_a_command_waits_until_the_screen_has_left_the_turn_whose_end_is_on_record() -> None:
    pane = opened(Manners(proof_after=0.0, busy_for=6.0), "first", until=3.0)
    pane.deliver("/clear", proved_by_record=False)
    pane.run(5.0)
    assert pane.pastes == ["first"]
    pane.run(END_S)
    assert pane.ended == {"first": "proved", "/clear": "delivered"}


def test_a_command_to_a_cli_that_works_on_and_on_is_not_delivered_after_a_bound() -> None:
    pane = opened(Manners(proof_after=0.0, busy_for=300.0), "first", until=3.0)
    pane.deliver("/clear", proved_by_record=False)
    pane.run(END_S)
    assert pane.ended == {"first": "proved", "/clear": "not_delivered"}
    assert pane.pastes == ["first"]


def test_a_draft_of_a_person_holds_delivery_and_a_text_of_ours_that_was_left_is_cleared() -> None:
    pane = opened(Manners(drafts=((0.5, 20.0, False),)), until=0.6)
    pane.deliver("first")
    pane.run(20.0)
    assert pane.pastes == []
    pane.run(30.0)
    assert pane.submitted == ["first"]
    pane.become(box=("first",))
    pane.deliver("second")
    pane.run(END_S)
    assert ("clear", ("C-u",)) in pane.keys
    assert pane.submitted == ["first", "second"]


def test_the_end_of_the_cli_tells_what_was_in_progress_and_whether_enter_went_out() -> None:
    before = in_phase(Manners(landing=(1.0,)), core.Phase.LANDING, "first")
    assert before.core.gone() == ("m:first", False)
    after = in_phase(Manners(proof_after=9.0), core.Phase.PROVING, "first")
    assert after.core.gone() == ("m:first", True)
    assert after.core.nudge() == []


@pytest.mark.parametrize("made", ["say it pl\u00a3ase", "[Image #1]"])
@pytest.mark.contract("C24")
def test_c24_what_the_box_made_of_a_paste_beyond_recognition_is_taken_out_and_not_delivered(made: str) -> None:
    pane = PaneModel(Manners(box_makes=(("say it please", made),)))
    pane.open()
    pane.deliver("say it please")
    pane.deliver("next")
    pane.run(until=60)
    assert pane.ended == {"say it please": "not_delivered", "next": "proved"}
    assert pane.submitted == ["next"]
    assert pane.pastes == ["say it please", "next"], "it is not pasted again"


@pytest.mark.contract("C24")
def test_c24_a_draft_that_is_nothing_like_the_lost_paste_is_a_persons() -> None:
    pane = PaneModel(Manners(lost_pastes=1, drafts=((0.02, 30.0, False),)))
    pane.open()
    pane.deliver("say it please")
    pane.run(until=25)
    assert not pane.ended
    assert not any(what == "clear" for what, _ in pane.keys)
    pane.run(until=60)
    assert pane.ended == {"say it please": "proved"}
