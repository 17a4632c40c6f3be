"""The wall clock is set, forward or back, while turns run and between two lives: each still ends once, with its own answer."""

from __future__ import annotations

import pytest

from host_kit import WAIT_S, Rig, away, bodies, completed, completions
from kit_system import until
from lastword import events

HOUR_S, DAY_S = 3600.0, 86_400.0
STEPS = pytest.mark.parametrize("step_s", [-DAY_S, -HOUR_S, -1.5, 1.5, HOUR_S, DAY_S])


@STEPS
@pytest.mark.contract("C02")
def test_c02_a_turn_binds_to_its_record_however_the_clock_is_set_between_the_two(make, clock, step_s):
    """The CLI stamps its record an hour before we accepted the message: it is the record of it all the same."""
    rig = make(manual=True, clock=clock)
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    waiting = away(session.run, "go")
    until(lambda: "Enter" in cli.keys, within_s=WAIT_S)
    clock.set_wall(step_s)
    cli.hold_records = False
    cli._kept.clear()
    cli.start_turn("go")
    cli.finish("the answer")
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer, done.origin) == ("completed", "the answer", "host")
    assert len(completions(rig, session)) == 1
    session.send("next")
    rig.running(session).finish("the next answer")
    assert completed(rig, session, 2)[1].answer == "the next answer"


@STEPS
@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_a_turn_binds_across_a_restart_however_the_clock_was_set_meanwhile(tmp_path, clock, step_s):
    first = Rig(tmp_path, manual=True, clock=clock)
    session = first.session()
    cli = first.ready(session)
    cli.hold_records = True
    sent = session.send("go")
    until(lambda: "Enter" in cli.keys, within_s=WAIT_S)
    first.abandon()
    clock.set_wall(step_s)
    clock.advance(1.0)
    cli.hold_records = False
    cli._kept.clear()
    cli.start_turn("go")
    cli.finish("the answer")
    clock.advance(HOUR_S * 2)  # the step is smaller than the time that nobody looked: the wall alone does not show it
    with Rig(tmp_path, world=first.world, manual=True, clock=clock) as again:
        (done,) = completed(again, session.session_id)
        assert (done.turn_id, done.status, done.answer) == (sent.turn_id, "completed", "the answer")
        assert done.origin == "host"


@pytest.mark.contract("C02")
def test_c02_an_old_prompt_with_the_same_text_is_still_no_record_of_a_new_message(make, clock):
    """What the rule is for: only a clock that was set back widens it."""
    rig = make(manual=True, clock=clock)
    session = rig.session()
    cli = rig.ready(session)
    clock.advance(10.0)
    cli.hold_records = True
    cli.start_turn("go")  # typed by a person a while ago; its record comes late
    clock.advance(10.0)
    session.send("go")
    rig.settle()
    cli.release()
    rig.settle()
    foreign = [event for event in bodies(rig, session, events.TurnStarted) if event.body.origin == "human_terminal"]
    assert len(foreign) == 1
    cli.finish("for the person")
    assert completed(rig, session)[0].answer == "for the person"


@STEPS
@pytest.mark.contract("C19")
def test_c19_what_a_person_types_after_the_clock_was_set_is_no_history(make, clock, step_s):
    """Set back, it is stamped from before the session was ours."""
    rig = make(manual=True, clock=clock)
    session = rig.session()
    sent = away(session.run, "ours")
    cli = rig.running(session)
    cli.finish("for us")
    assert sent.result(WAIT_S).answer == "for us"
    clock.set_wall(step_s)
    cli.start_turn("typed by hand")
    cli.finish("for the person")
    done = completed(rig, session, 2)[1]
    assert (done.origin, done.status, done.answer) == ("human_terminal", "completed", "for the person")


def ends_at_its_deadline(rig, session, waiting, quiet_s):
    """For so long nothing happens to its turn, and a second later it is over."""
    rig.clock.advance(quiet_s)
    rig.settle()
    assert not completions(rig, session)
    assert "Escape" not in rig.cli(session).keys
    rig.clock.advance(2.0)
    done = until(lambda: rig.clock.advance(1.0) or (waiting.done() and waiting.result()), within_s=WAIT_S)
    assert (done.status, done.error.kind) == ("cancelled", "deadline")


def raises(_message):
    raise RuntimeError("a defect")


@pytest.mark.parametrize("step_s", [-DAY_S, HOUR_S])
@pytest.mark.contract("C07")
def test_c07_a_deadline_counts_what_passed_and_not_what_the_clock_was_set_by(make, clock, step_s):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go", deadline_s=60.0)
    rig.running(session)
    clock.set_wall(step_s)
    ends_at_its_deadline(rig, session, waiting, 59.0)


@pytest.mark.parametrize("step_s", [0.0, -DAY_S, HOUR_S])
@pytest.mark.contract("C07")
def test_c07_a_turn_whose_actor_failed_keeps_the_deadline_that_it_had(make, clock, monkeypatch, step_s):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go", deadline_s=60.0)
    rig.running(session)
    clock.advance(20.0)
    clock.set_wall(step_s)
    (first,) = [each.ref for each in session._counterpart.ref._cell.actor.turns._open.values()]
    with monkeypatch.context() as patch:
        patch.setattr(first._cell.actor, "receive", raises)
        first.tell("anything")
        until(lambda: not first.is_alive(), within_s=WAIT_S)
    rig.settle()
    ends_at_its_deadline(rig, session, waiting, 39.0)
    assert rig.dead_letters().counts()["turn_actor_failed"] == 1


@pytest.mark.parametrize("step_s", [-DAY_S, HOUR_S])
@pytest.mark.contract("C07")
def test_c07_a_queued_messages_deadline_is_not_moved_by_the_clock_either(make, clock, step_s):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    first = away(session.run, "first")
    cli = rig.running(session)
    session.send("second", deadline_s=60.0)
    until(lambda: cli.queue == ["second"], within_s=WAIT_S)
    rig.settle()
    clock.set_wall(step_s)
    clock.advance(20.0)
    cli.finish("one")
    assert first.result(WAIT_S).answer == "one"
    rig.running(session)
    rig.settle()
    clock.advance(30.0)
    rig.settle()
    assert "Escape" not in cli.keys
    clock.advance(11.0)
    until(lambda: "Escape" in cli.keys, within_s=WAIT_S)
    until(lambda: clock.advance(1.0) or len(completions(rig, session)) == 2, within_s=WAIT_S)
    assert completions(rig, session)[1].error.kind == "deadline"


@pytest.mark.parametrize(("step_s", "left_s"), [(HOUR_S, 0.0), (-DAY_S, 60.0), (-30.0, 60.0)])
@pytest.mark.contract("C07")
@pytest.mark.contract("C17")
def test_c07_across_lives_a_deadline_is_the_walls_and_never_longer_than_it_was_given(tmp_path, clock, step_s, left_s):
    first = Rig(tmp_path, manual=True, clock=clock)
    session = first.session()
    session.send("go", deadline_s=60.0)
    first.running(session)
    first.abandon()
    clock.set_wall(step_s)
    with Rig(tmp_path, world=first.world, manual=True, clock=clock) as again:
        if left_s:
            clock.advance(left_s - 2.0)
            again.settle()
            assert not completions(again, session.session_id)
        until(lambda: clock.advance(1.0) or completions(again, session.session_id), within_s=WAIT_S)
        (done,) = completions(again, session.session_id)
        assert (done.status, done.error.kind) == ("cancelled", "deadline")


@pytest.mark.contract("C40")
def test_c40_a_jump_of_every_timer_at_once_settles_nothing_that_is_not_on_record(make, clock):
    """As after a suspend on a machine whose monotonic clock counts it."""
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    clock.advance(DAY_S)
    rig.settle()
    assert not completions(rig, session)
    cli.finish("after the night")
    assert waiting.result(WAIT_S).answer == "after the night"
    assert not bodies(rig, session, events.InvariantViolated)
