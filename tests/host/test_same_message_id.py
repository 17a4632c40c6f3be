"""The same message id again: the first acknowledgement, one delivery, and what became of it (C20)."""

from __future__ import annotations

import threading

import msgspec
import pytest

from host_kit import WAIT_S, HeldCommits, Rig, away, bodies, completed, completions, kinds, prompts
from kit_system import until
from lastword import RejectedError, UsageError, events


@pytest.mark.contract("C20")
def test_c20_the_same_message_id_gets_the_first_acknowledgement_and_no_second_delivery(make):
    rig = make()
    session = rig.session()
    first = session.send("hello", message_id="mine-1")
    again = session.send("hello", message_id="mine-1")
    completed(rig, session)
    settled = session.send("another text even", message_id="mine-1")
    for ack in (again, settled):
        assert ack == msgspec.structs.replace(first, duplicate=True)
    assert session.run("hello", message_id="mine-1") == completions(rig, session)[0]
    rig.settle()
    assert prompts(rig, session) == ["hello"]
    assert kinds(rig, session).count("message_accepted") == 1


@pytest.mark.contract("C20")
@pytest.mark.parametrize("run", [False, True])
def test_c20_the_same_message_id_from_many_threads_at_once_is_delivered_once(make, run):
    rig = make()
    session = rig.session()
    for round_number in range(8):
        barrier = threading.Barrier(8)

        def submit(barrier=barrier, key=f"id-{round_number}"):
            barrier.wait(WAIT_S)
            if run:
                return session.run(f"text {key}", message_id=key, queue=True)
            return session.send(f"text {key}", message_id=key)

        answers = [future.result(WAIT_S) for future in [away(submit) for _ in range(8)]]
        if run:
            assert len({answer.turn_id for answer in answers}) == 1
        else:
            assert len({answer.turn_id for answer in answers}) == 1
            assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 7
            completed(rig, session, round_number + 1)
    assert prompts(rig, session) == [f"text id-{number}" for number in range(8)]
    assert len(completions(rig, session)) == 8


@pytest.mark.contract("C20")
def test_c20_run_with_the_id_of_a_running_message_waits_for_that_turn(make):
    """Also without queue=True: it is no second message, so the session is not busy for it."""
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "go", message_id="m")
    cli = rig.running(session)
    second = away(session.run, "go", message_id="m")
    rig.settle()
    cli.finish("once")
    assert first.result(WAIT_S) == second.result(WAIT_S)
    assert prompts(rig, session) == ["go"]


@pytest.mark.contract("C20")
def test_c20_run_with_the_id_of_an_undelivered_message_fails_the_same_way(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    session.send("first")
    cli = rig.running(session)
    session.send("lost", message_id="m")
    until(lambda: cli.queue)
    held = HeldCommits(monkeypatch, lambda batch: any(row.state == "undelivered" for row in batch.messages))
    cli.drop()
    held.wait()
    for _ in range(2):  # before and after its end is on record
        with pytest.raises(RejectedError) as caught:
            away(session.run, "lost", message_id="m").result(WAIT_S)
        assert caught.value.kind == "not_delivered"
        held.release()
        rig.settle()
    cli.finish("one")


def _pending(rig, session, _cli):
    """Nothing more: it waits in the CLI's queue."""
    return


def _joined(rig, session, cli):
    cli.join()
    until(lambda: bodies(rig, session, events.MessageJoined), within_s=WAIT_S)
    return cli


def _completed(rig, session, cli):
    cli.finish("first's answer")
    until(lambda: cli.turn, within_s=WAIT_S)
    cli.finish("mine's answer")
    completed(rig, session, 2)


def _joined_and_completed(rig, session, cli):
    _joined(rig, session, cli).finish("mine's answer")
    completed(rig, session, 1)


def _undelivered(rig, session, cli):
    cli.drop("removed by the CLI")
    until(lambda: bodies(rig, session, events.MessageUndelivered), within_s=WAIT_S)


@pytest.mark.contract("C20")
@pytest.mark.parametrize("restart", [False, True], ids=["same_host", "next_host"])
@pytest.mark.parametrize("run", [False, True], ids=["send", "run"])
@pytest.mark.parametrize(
    ("state", "told"),
    [
        (_pending, "waits"),
        (_joined, "waits"),
        (_completed, "answer"),
        (_joined_and_completed, "answer"),
        (_undelivered, "not_delivered"),
    ],
)
def test_c20_the_same_id_again_tells_what_became_of_the_first_in_every_state(tmp_path, state, told, run, restart):
    with Rig(tmp_path, manual=True) as first_life:
        session = first_life.session()
        session.send("first")
        cli = first_life.running(session)
        first = session.send("mine", message_id="m")
        assert first.taken == "pending"
        until(lambda: cli.queue, within_s=WAIT_S)
        state(first_life, session, cli)
        if not restart:
            _check_again(first_life, session, cli, first, told, run=run)
            return
        first_life.abandon()
    with Rig(tmp_path, manual=True, world=first_life.world) as next_life:
        found = next_life.runtime.session(session_id=session.session_id)
        _check_again(next_life, found, cli, first, told, run=run)


def _check_again(rig, session, cli, first, told, *, run):
    before = kinds(rig, session).count("message_accepted")
    if told == "not_delivered":
        for call in (session.run, session.send):
            with pytest.raises(RejectedError) as caught:
                away(call, "mine", message_id="m").result(WAIT_S)
            assert caught.value.kind == "not_delivered"
            (event,) = bodies(rig, session, events.MessageUndelivered)
            assert event.body.reason in caught.value.reason
            assert caught.value.remedy
    elif not run:
        assert session.send("mine", message_id="m") == msgspec.structs.replace(first, duplicate=True)
    else:
        again = away(session.run, "mine", message_id="m")
        if told == "waits":
            rig.settle()
            assert not again.done()
            while not again.done() and cli.turn:
                cli.finish("mine's answer")
                rig.settle()
        assert again.result(WAIT_S).answer == "mine's answer"
    rig.settle()
    assert kinds(rig, session).count("message_accepted") == before
    assert len(prompts(rig, session)) <= 2


@pytest.mark.contract("C20")
def test_c20_a_message_id_of_another_session_is_refused(make):
    rig = make()
    one, two = rig.session(), rig.session()
    one.run("x", message_id="m")
    with pytest.raises(UsageError) as caught:
        two.send("x", message_id="m")
    assert caught.value.kind == "usage"
    assert two.run("fine").answer == "echo: fine"


@pytest.mark.contract("C20")
def test_c20_the_same_id_in_two_sessions_at_once_is_accepted_by_one_and_hurts_neither(make):
    rig = make()
    sessions = [rig.session(), rig.session()]
    for number in range(10):
        barrier = threading.Barrier(2)

        def submit(session, barrier=barrier, key=f"m{number}"):
            barrier.wait(WAIT_S)
            return session.run("x", message_id=key)

        ends = [away(submit, session) for session in sessions]
        errors = [future.exception(WAIT_S) for future in ends]
        assert sorted(str(getattr(error, "kind", "")) for error in errors) == ["", "usage"]
    for session in sessions:
        until(lambda session=session: session.snapshot().state == "idle")
        assert session.run("still fine").status == "completed"
