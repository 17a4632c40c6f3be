"""Schedule: steps advance on completions only, and never on a session that is closed (C43)."""

from __future__ import annotations

import threading

import pytest

from host_kit import WAIT_S, away, completions, kinds
from kit_system import until
from lastword import RejectedError
from lastword.runtime.host import Schedule, Step, StepResult


@pytest.mark.contract("C43")
def test_c43_a_step_begins_only_when_the_completion_before_it_is_there(make):
    rig = make(manual=True)
    session = rig.session()
    results = away(Schedule(["one", lambda done: f"two after {done.answer}"]).run, session)
    cli = rig.running(session)
    cli.say("an answer that is not the end")
    rig.settle()
    assert kinds(rig, session).count("message_accepted") == 1
    cli.finish("first")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    cli.finish("second")
    result = results.result(WAIT_S)
    assert result.ok
    assert [step.completion.answer for step in result.steps] == ["first", "second"]
    assert result.last.answer == "second"
    assert b"two after first" in rig.world.contents(cli.path)


@pytest.mark.contract("C43")
def test_c43_after_a_failed_step_it_stops_and_the_rest_never_begins(make):
    rig = make(manual=True)
    session = rig.session()
    results = away(Schedule(["one", "two", "three"]).run, session)
    rig.running(session).finish(status="failed", error="overloaded")
    result = results.result(WAIT_S)
    assert not result.ok
    assert [step.completion and step.completion.status for step in result.steps] == ["failed", None, None]
    assert result.steps[1:] == (StepResult(), StepResult())
    assert not result.session_closed
    assert kinds(rig, session).count("message_accepted") == 1


@pytest.mark.contract("C43")
def test_c43_a_step_that_closes_its_session_on_failure_is_the_last_on_it(make):
    rig = make(manual=True)
    session = rig.session()
    steps = [Step(text="one", on_failure="close"), Step(text="two", on_failure="continue")]
    results = away(Schedule(steps).run, session)
    rig.running(session).finish(status="failed", error="refused")
    result = results.result(WAIT_S)
    assert result.session_closed
    assert result.steps[1] == StepResult()
    assert session.snapshot().state == "closed"
    assert len(completions(rig, session)) == 1


@pytest.mark.contract("C43")
def test_c43_a_session_closed_by_somebody_else_ends_the_sequence_even_where_it_may_continue(make):
    rig = make(manual=True)
    session = rig.session()
    steps = [Step(text=f"{number}", on_failure="continue") for number in range(4)]
    results = away(Schedule(steps).run, session)
    rig.running(session)
    session.close()
    result = results.result(WAIT_S)
    assert result.session_closed
    assert result.steps[0].completion.status == "cancelled"
    assert isinstance(result.steps[1].error, RejectedError)
    assert result.steps[1].error.kind == "session_closed"
    assert result.steps[2:] == (StepResult(), StepResult())


@pytest.mark.contract("C43")
def test_c43_continue_goes_on_after_a_failure_and_a_step_may_have_a_deadline(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    steps = [Step(text="slow", deadline_s=5, on_failure="continue"), "next"]
    results = away(Schedule(steps).run, session)
    rig.running(session)
    rig.settle()
    clock.advance(6)
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    rig.running(session).finish("ok")
    result = results.result(WAIT_S)
    assert result.steps[0].completion.error.kind == "deadline"
    assert result.steps[1].completion.answer == "ok"
    assert not result.ok


@pytest.mark.contract("C43")
def test_c43_a_step_whose_text_cannot_be_made_or_sent_is_a_result(make):
    rig = make()
    session = rig.session()
    told = []
    broken = Schedule([lambda _: 1 / 0, "never"])
    result = broken.run(session, on_step=told.append)
    assert isinstance(result.steps[0].error, ZeroDivisionError)
    assert told == [result.steps[0]]
    empty = Schedule([Step(text="", on_failure="continue"), "sent"]).run(session)
    assert empty.steps[0].error.kind == "empty_message"
    assert empty.steps[1].ok


def test_one_schedule_runs_on_many_sessions_at_once(make):
    rig = make()
    schedule = Schedule([f"{number}" for number in range(5)])
    barrier = threading.Barrier(8)

    def run(session):
        barrier.wait(WAIT_S)
        return schedule.run(session)

    running = [away(run, rig.session()) for _ in range(8)]
    assert all(future.result(WAIT_S).ok for future in running)
