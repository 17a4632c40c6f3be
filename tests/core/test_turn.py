"""The turn machine: its edges, and each promise about how a turn ends."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from lastword.actors.core import events
from lastword.actors.core import turn as core
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    RecordExhausted,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.turn import TURN_EDGES, TurnState, step
from lastword.actors.core.turn_bounds import (
    ANSWER_GRACE_S,
    INTERRUPTS_MAX,
    RECORD_GONE_S,
    RECORD_RETRY_S,
    REQUESTS_MAX,
    REREAD_S,
)
from turn_samples import BOUND, DONE, EVENTS, T0, a_turn, at, now, offered, play, running, settle

# --- the machine as a whole -------------------------------------------------------------------------------------------


def test_every_reachable_state_answers_every_message_and_reaches_exactly_the_declared_edges() -> None:
    seen: dict[TurnState, set[TurnState]] = {state: {state} for state in TurnState}
    frontier = [a_turn()]
    known = {msgspec.json.encode(frontier[0])}
    for _depth in range(5):
        following = []
        for turn in frontier:
            options = list(EVENTS)
            if turn.completion is not None:
                options.append(core.CompletionRecorded(completion=turn.completion, won=True))
            for event in options:
                after, _ = step(turn, event, now(1))
                seen[turn.state].add(after.state)
                key = msgspec.json.encode(after)
                if key not in known and len(known) < 40_000:
                    known.add(key)
                    following.append(after)
        frontier = following[:4000]
    assert seen == {state: set(edges) | {state} for state, edges in TURN_EDGES.items()}


@pytest.mark.contract("C06")
def test_c06_whatever_comes_after_the_end_changes_nothing_and_a_second_end_is_counted() -> None:
    settling, _ = play(running(), DONE)
    for turn in (settling, settle(settling)):
        for event in EVENTS:
            if isinstance(event, core.TimerFired | core.Begin | core.RecordingFailed):
                continue
            after, effects = step(turn, event, now(5))
            assert after == turn
            assert all(isinstance(effect, core.RecordLate) for effect in effects)
            if isinstance(event, TurnClosed):
                assert effects == (core.RecordLate(what="late_terminal"),)


# --- how a turn ends -----------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
def test_c03_the_completion_carries_answer_source_ids_and_times() -> None:
    turn, effects = play(running(), core.Joined(message_id=MessageId("j"), evidence=at()), DONE, at_s=4)
    (done,) = offered(effects)
    assert (done.status, done.answer, done.source, done.error, done.empty) == (
        "completed",
        "the answer",
        "transcript",
        None,
        False,
    )
    assert (done.message_id, done.joined, done.native_turn_id, done.native_session_id, done.cli_version) == (
        "m",
        ("j",),
        "n",
        "ns",
        "1",
    )
    assert done.evidence == DONE.evidence
    assert done.times.accepted_at == T0
    assert done.times.native_ended_at == T0 + 3
    assert done.times.terminal_seen_at == T0 + 4
    assert turn.state is TurnState.SETTLING


@pytest.mark.contract("C03")
def test_c03_an_empty_answer_is_completed_and_marked_empty() -> None:
    _, effects = play(running(), TurnClosed(native_turn="n", status="completed", answer="", evidence=at()))
    (done,) = offered(effects)
    assert (done.status, done.answer, done.empty) == ("completed", "", True)


@pytest.mark.contract("C04")
@pytest.mark.parametrize("status", ["failed", "cancelled", "lost"])
def test_c04_what_was_said_before_an_unfinished_end_is_no_answer(status: str) -> None:
    said = AssistantSaid(native_turn="n", native_message="a", text="half", evidence=at(), ends_by_itself=True)
    _, effects = play(running(), said, TurnClosed(native_turn="n", status=status, evidence=at()))
    (done,) = offered(effects)
    assert (done.status, done.answer) == (status, None)
    assert done.error is not None


@pytest.mark.contract("C04")
def test_c04_nothing_but_a_terminal_fact_ends_a_running_turn() -> None:
    harmless = [
        event
        for event in EVENTS
        if not isinstance(event, TurnClosed | RecordExhausted | core.Superseded | core.Cancel)
        and not (isinstance(event, core.TimerFired) and event.name in ("deadline", "answer_grace"))
    ]
    for several in itertools.permutations(harmless, 2):
        turn, effects = play(running(), *several)
        assert turn.state is TurnState.RUNNING, several
        assert not offered(effects)


@pytest.mark.contract("C32")
def test_c32_a_tool_whose_end_never_came_is_closed_with_the_turn() -> None:
    started = ToolStarted(native_turn="n", call_id="c", name="Bash", arguments="{}", evidence=at())
    _, effects = play(running(), started, RecordExhausted())
    bodies = [effect.draft.body for effect in effects if isinstance(effect, core.Emit)]
    ends = [body for body in bodies if isinstance(body, events.ToolFinished)]
    assert [(end.call_id, end.name, end.status) for end in ends] == [("c", "Bash", "no_result")]
    assert sum(isinstance(body, events.ToolStarted) for body in bodies) == 1


def test_a_tools_duration_comes_from_the_records_own_stamps() -> None:
    started = ToolStarted(native_turn="n", call_id="c", name="Bash", arguments="{}", evidence=at(1, T0))
    ended = ToolFinished(native_turn="n", call_id="c", status="ok", result="r", evidence=at(2, T0 + 2.5))
    _, effects = play(running(), started, ended, ended)
    ends = [e.draft.body for e in effects if isinstance(e, core.Emit) and isinstance(e.draft.body, events.ToolFinished)]
    assert [end.duration_s for end in ends] == [2.5]


@pytest.mark.contract("C02")
@pytest.mark.parametrize("state", ["submitted", "running"])
def test_c02_a_dead_cli_whose_record_was_read_to_the_end_loses_the_turn(state: str) -> None:
    turn = running() if state == "running" else play(a_turn(), core.Submitted())[0]
    _, effects = play(turn, RecordExhausted(exit_status=-9))
    (done,) = offered(effects)
    assert (done.status, done.error and done.error.kind, done.source) == ("lost", "provider_exited", "process_exit")


def test_a_dead_cli_ends_no_turn_that_was_never_typed() -> None:
    turn, effects = play(a_turn(), RecordExhausted())
    assert turn.state is TurnState.ACCEPTED
    assert not effects


def test_the_journals_refusal_is_answered_by_offering_the_same_completion_again() -> None:
    turn, first = play(running(), DONE)
    turn, effects = play(turn, core.RecordingFailed())
    assert effects == [core.SetTimer(name="record_retry", delay_s=RECORD_RETRY_S)]
    turn, again = play(turn, core.TimerFired(name="record_retry"))
    assert offered(again) == offered(first)


def test_the_completion_that_stands_is_the_one_that_is_told() -> None:
    turn, _ = play(running(), DONE)
    earlier = msgspec.structs.replace(turn.completion, answer="the first one")
    turn, effects = play(turn, core.CompletionRecorded(completion=earlier, won=False))
    assert effects == [core.Finish(completion=earlier)]
    assert turn.state is TurnState.SETTLED


# --- cancelling ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
def test_c07_a_deadline_interrupts_and_is_told_as_a_deadline() -> None:
    turn, effects = play(a_turn(deadline_at=T0 + 10), core.Begin())
    assert effects == [core.SetTimer(name="deadline", delay_s=10.0)]
    turn, effects = play(turn, core.Submitted(), BOUND, core.TimerFired(name="deadline"), at_s=10)
    assert any(isinstance(effect, core.PressInterrupt) for effect in effects)
    _, effects = play(turn, TurnClosed(native_turn="n", status="cancelled", evidence=at()))
    (done,) = offered(effects)
    assert (done.status, done.error and done.error.kind) == ("cancelled", "deadline")


@pytest.mark.contract("C07")
def test_c07_a_turn_that_completed_before_the_key_arrived_is_completed() -> None:
    _, effects = play(running(), core.Cancel(), core.InterruptPressed(at=T0), DONE)
    (done,) = offered(effects)
    assert (done.status, done.answer, done.error) == ("completed", "the answer", None)


@pytest.mark.contract("C07")
def test_c07_an_interrupt_that_writes_nothing_settles_by_the_registry_and_a_reread() -> None:
    turn, _ = play(running(), core.Cancel(), core.InterruptPressed(at=T0 + 5))
    before = CliStatusSeen(status="idle", waiting_for="", updated_at=T0 + 4, native_session="ns")
    after = msgspec.structs.replace(before, updated_at=T0 + 5.1)
    turn, effects = play(turn, before)
    assert not effects, "idle since before our key says nothing"
    turn, effects = play(turn, after)
    assert effects == [core.SetTimer(name="reread", delay_s=REREAD_S)]
    turn, effects = play(turn, core.TimerFired(name="reread"))
    assert effects == [core.LookAgain()], "the record is asked once more, whatever hints were lost"
    _, effects = play(turn, core.LookedAgain())
    (done,) = offered(effects)
    assert (done.status, done.source, done.error and done.error.kind) == ("cancelled", "interrupt", "interrupted")
    _, effects = play(turn, DONE)  # a terminal record within that second wins
    assert offered(effects)[0].status == "completed"


@pytest.mark.contract("C07")
def test_c07_a_cli_that_ignores_the_interrupt_is_ended_after_a_bounded_wait() -> None:
    turn, effects = play(running(), core.Cancel())
    presses = 0
    for _ in range(10):
        presses += sum(isinstance(effect, core.PressInterrupt) for effect in effects)
        if any(isinstance(effect, core.EndEndpoint) for effect in effects):
            break
        turn, effects = play(turn, core.InterruptPressed(at=T0), core.TimerFired(name="interrupt_grace"))
    else:
        raise AssertionError("never ended")
    assert presses == INTERRUPTS_MAX
    _, effects = play(turn, RecordExhausted(exit_status=-9))
    assert offered(effects)[0].status == "cancelled"


def test_a_cancel_before_anything_was_typed_withdraws_and_presses_no_key() -> None:
    turn, effects = play(a_turn(), core.Cancel())
    assert effects[0] == core.Withdraw(message_id=MessageId("m"))
    assert not any(isinstance(effect, core.PressInterrupt) for effect in effects)
    _, effects = play(turn, core.Withdrawn())
    assert offered(effects)[0].source == "delivery"


def test_a_withdrawal_that_came_too_late_becomes_an_interrupt() -> None:
    turn, _ = play(a_turn(), core.Cancel())
    turn, effects = play(turn, core.Submitted())
    assert any(isinstance(effect, core.PressInterrupt) for effect in effects)
    turn, effects = play(turn, core.Withdrawn(), BOUND)
    assert offered(effects) == [] or turn.completion is not None


@pytest.mark.contract("C24")
@pytest.mark.parametrize("kind", ["not_delivered", "launch_failed"])
def test_c24_proved_absence_is_a_failed_turn(kind: str) -> None:
    _, effects = play(a_turn(), core.Undeliverable(kind=kind, reason="why"))
    (done,) = offered(effects)
    assert (done.status, done.error and done.error.kind, done.source) == ("failed", kind, "delivery")


def test_the_record_outweighs_a_claim_of_non_delivery() -> None:
    turn, effects = play(running(), core.Undeliverable(kind="not_delivered", reason="why"))
    assert turn.state is TurnState.RUNNING
    assert not effects


# --- the net ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C40")
def test_c40_a_final_answer_without_its_terminal_record_is_settled_by_it_once_and_told_as_a_violation() -> None:
    said = AssistantSaid(native_turn="n", native_message="a", text="final", evidence=at(4, T0 + 1), ends_by_itself=True)
    idle = CliStatusSeen(status="idle", waiting_for="", updated_at=T0 + 1.2, native_session="ns")
    turn, effects = play(running(), said, idle)
    assert core.SetTimer(name="answer_grace", delay_s=ANSWER_GRACE_S) in effects
    busy = msgspec.structs.replace(idle, status="busy", updated_at=T0 + 2)
    assert core.CancelTimer(name="answer_grace") in play(turn, busy)[1]
    _, effects = play(turn, core.TimerFired(name="answer_grace"))
    (done,) = offered(effects)
    assert (done.status, done.answer, done.source) == ("completed", "final", "reconciler")
    assert any(isinstance(e, core.Emit) and isinstance(e.draft.body, events.InvariantViolated) for e in effects)


@pytest.mark.contract("C03")
def test_c03_an_idle_cli_loses_a_turn_only_behind_a_look_that_saw_its_record() -> None:
    idle = CliStatusSeen(status="idle", waiting_for="", updated_at=T0 + 5, native_session="ns")
    again = core.SetTimer(name="record_gone", delay_s=RECORD_GONE_S)
    turn, effects = play(running(), idle)
    assert again in effects
    assert not offered(play(turn, core.LookedAgain())[1]), "nobody asked for that look"
    for _ in range(3):
        turn, effects = play(turn, core.TimerFired(name="record_gone"))
        assert effects == [core.LookAgain(), again]
        turn, effects = play(turn, core.LookedAgain(read=False))
        assert not effects, "could not look: that proves nothing"
    looking, _ = play(turn, core.TimerFired(name="record_gone"))
    busy = msgspec.structs.replace(idle, status="busy", updated_at=T0 + 6)
    assert not offered(play(looking, busy, core.LookedAgain())[1]), "it went on meanwhile"
    assert offered(play(looking, DONE, core.LookedAgain())[1])[0].status == "completed"
    (done,) = offered(play(looking, core.LookedAgain())[1])
    assert (done.status, done.error and done.error.kind, done.source) == ("lost", "record_missing", "reconciler")


@pytest.mark.parametrize(
    "undone",
    [
        TurnContinued(native_turn="n", reason="stop_hook", evidence=at(5)),
        ToolStarted(native_turn="n", call_id="c", name="Bash", arguments="", evidence=at(5)),
        AssistantSaid(native_turn="n", native_message="b", text="more", evidence=at(5)),
    ],
)
def test_an_answer_that_the_turn_went_on_from_no_longer_stands(undone: core.TurnEvent) -> None:
    said = AssistantSaid(native_turn="n", native_message="a", text="final", evidence=at(4), ends_by_itself=True)
    turn, effects = play(running(), said, undone, core.TimerFired(name="answer_grace"))
    assert turn.state is TurnState.RUNNING
    assert not offered(effects)


@pytest.mark.contract("C19")
def test_c19_a_message_moved_into_another_turn_ends_with_that_one_and_says_so() -> None:
    moved = core.Adopted(native_turn="other", from_turn_id=TurnId("x"), evidence=at())
    turn, effects = play(a_turn(), core.Submitted(), moved)
    bodies = [effect.draft.body for effect in effects if isinstance(effect, core.Emit)]
    assert any(isinstance(body, events.MessageMoved) for body in bodies)
    assert turn.native_turn == "other"
    assert offered(play(turn, DONE)[1])[0].answer == "the answer"


@pytest.mark.contract("C07")
def test_c07_over_a_protocol_one_repeat_of_the_interrupt_is_enough() -> None:
    turn, effects = play(msgspec.structs.replace(running(), transport="structured"), core.Cancel())
    asked = 0
    while not any(isinstance(effect, core.EndEndpoint) for effect in effects):
        asked += sum(isinstance(effect, core.PressInterrupt) for effect in effects)
        turn, effects = play(turn, core.InterruptPressed(at=T0), core.TimerFired(name="interrupt_grace"))
    assert asked == REQUESTS_MAX < INTERRUPTS_MAX


@pytest.mark.contract("C07")
@pytest.mark.parametrize(
    ("cancel", "kind", "words"),
    [
        (core.Cancel(reason="deadline"), "deadline", "as the host's deadline passed"),
        (core.Cancel(), "interrupted", "interrupted by the host"),
        (None, "interrupted", "though not by the host"),
    ],
)
def test_c07_a_cancelled_turn_says_who_cancelled_it(cancel: core.Cancel | None, kind: str, words: str) -> None:
    turn, _ = play(running(), *((cancel,) if cancel is not None else ()))
    _, effects = play(turn, msgspec.structs.replace(DONE, status="cancelled", answer=None))
    error = offered(effects)[0].error
    assert error is not None
    assert error.kind == kind
    assert words in error.message
