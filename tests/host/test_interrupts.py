"""Interrupts and deadlines: cancelled once, reported as cancelled, at whatever point they come (C02, C07)."""

from __future__ import annotations

import _thread
import os
import signal
import threading

import pytest

from host_kit import WAIT_S, HeldCommits, Rig, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import Command, Interrupt, RejectedError, events
from lastword.actors.core.turn_bounds import INTERRUPT_AGAIN_S, INTERRUPT_GRACE_S, INTERRUPTS_MAX, REREAD_S
from lastword.actors.session import SessionActor
from lastword.actors.turn import TurnFinished
from lastword.transports.providers.memory import Record


def one(rig: Rig, session):
    (done,) = completed(rig, session)
    rig.settle()
    assert completions(rig, session) == [done]
    return done


@pytest.mark.contract("C07")
def test_c07_before_typing_nothing_is_typed_and_the_turn_is_cancelled(make):
    rig = make(manual=True)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    ack = session.send("never typed")
    assert session.send(Interrupt()).taken == "applied"
    done = one(rig, session)
    assert (done.turn_id, done.status, done.error.kind, done.source) == (
        ack.turn_id,
        "cancelled",
        "interrupted",
        "delivery",
    )
    cli = rig.cli(session)
    cli.starting = False
    again = away(session.run, "typed")
    rig.running(session).finish("ok")
    assert again.result(WAIT_S).answer == "ok"
    assert cli.keys == ["<paste>", "Enter"]


@pytest.mark.contract("C07")
def test_c07_while_the_paste_is_landing_it_is_taken_back(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    rig.settle()
    cli = rig.ready(session)
    cli.lose_pastes = 1
    session.send("pasted, never landed")
    rig.settle()
    assert cli.keys == ["<paste>"]
    session.send(Interrupt())
    clock.advance(5)
    assert one(rig, session).status == "cancelled"
    assert "Enter" not in cli.keys


@pytest.mark.contract("C07")
def test_c07_a_text_that_landed_in_the_box_and_was_not_submitted_is_cleared_away(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    rig.settle()
    cli = rig.ready(session)
    cli.copy_mode = False
    cli.swallow_enters = 1000
    session.send("landed, never submitted")
    rig.settle()
    assert cli.draft == "landed, never submitted"
    session.send(Interrupt())
    clock.advance(10)
    assert one(rig, session).status == "cancelled"
    assert cli.draft == ""
    cli.swallow_enters = 0
    session.send("next")
    rig.settle()
    cli.finish("ok")
    assert completed(rig, session, 2)[1].answer == "ok"


@pytest.mark.contract("C07")
def test_c07_after_enter_and_before_the_record_the_key_is_pressed_and_the_record_decides(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    session.send("submitted")
    until(lambda: "message_submitted" in kinds(rig, session))
    assert "turn_started" not in kinds(rig, session)
    session.send(Interrupt())
    until(lambda: "Escape" in cli.keys)
    assert not completions(rig, session)
    cli.release()
    done = one(rig, session)
    assert (done.status, done.error.kind, done.source) == ("cancelled", "interrupted", "transcript")


def _pressed_before_the_record(rig, *, heard):
    """Enter is out, the record is not; the key is pressed, and the CLI has taken it as ``heard`` says."""
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    session.send("submitted")
    rig.settle()
    cli.ignore_escape = not heard
    session.send(Interrupt())
    rig.settle()
    assert cli.keys.count("Escape") == 1
    cli.ignore_escape = False
    return session, cli


@pytest.mark.contract("C07")
def test_c07_a_key_that_the_cli_had_before_the_enter_is_pressed_again_once_the_record_shows_the_turn(make, clock):
    rig = make(manual=True, clock=clock)
    session, cli = _pressed_before_the_record(rig, heard=False)
    clock.advance(INTERRUPT_AGAIN_S * 2)
    rig.settle()
    assert cli.keys.count("Escape") == 1  # the record shows nothing to interrupt
    cli.release()
    rig.settle()
    assert cli.keys.count("Escape") == 1  # it may show the interruption in a moment
    clock.advance(INTERRUPT_AGAIN_S + 0.01)
    done = one(rig, session)
    assert (done.status, done.error.kind, done.source) == ("cancelled", "interrupted", "transcript")
    assert cli.keys.count("Escape") == 2


@pytest.mark.contract("C07")
@pytest.mark.parametrize("silent", [False, True], ids=["recorded", "told by the registry"])
def test_c07_a_key_that_was_heard_is_never_pressed_into_an_idle_box(make, clock, silent):
    rig = make(manual=True, clock=clock)
    rig.world.on_turn = lambda cli, _: setattr(cli, "silent_interrupt", silent)
    session, cli = _pressed_before_the_record(rig, heard=True)
    cli.release()
    rig.settle()
    for _ in range(20):
        clock.advance(INTERRUPT_AGAIN_S)
        rig.settle()
    assert one(rig, session).status == "cancelled"
    assert cli.keys.count("Escape") == 1


@pytest.mark.contract("C07")
def test_c07_while_running_the_turn_is_cancelled_and_the_session_reusable(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "long work")
    cli = rig.running(session)
    cli.tool("c1", "Bash")
    until(lambda: "tool_started" in kinds(rig, session))
    ack = session.send(Interrupt())
    done = waiting.result(WAIT_S)
    assert (ack.taken, ack.turn_id) == ("applied", done.turn_id)
    assert (done.status, done.answer, done.error.kind) == ("cancelled", None, "interrupted")
    (tool,) = bodies(rig, session, events.ToolFinished)
    assert tool.body.status == "no_result"
    again = away(session.run, "again")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    cli.finish("ok")
    assert again.result(WAIT_S).answer == "ok"


@pytest.mark.contract("C07")
def test_c07_after_the_end_there_is_nothing_to_do(make):
    rig = make()
    session = rig.session()
    assert session.send(Interrupt()).taken == "nothing_to_do"
    done = session.run("quick")
    keys = list(rig.cli(session).keys)
    assert session.send(Interrupt()).taken == "nothing_to_do"
    assert session.send(Interrupt(turn_id=done.turn_id)).taken == "nothing_to_do"
    rig.settle()
    assert rig.cli(session).keys == keys
    assert completions(rig, session) == [done]


@pytest.mark.contract("C07")
@pytest.mark.parametrize("silent", [True, False])
def test_c07_whoever_has_heard_of_the_end_finds_nothing_to_interrupt_and_may_clear(make, monkeypatch, silent):
    """Though the session has not heard of it yet: its turn tells the journal first."""
    rig = make(manual=True)
    session = rig.session()
    session.send("go")
    cli = rig.running(session)
    cli.silent_interrupt = silent
    held: list[tuple[SessionActor, TurnFinished]] = []
    real = SessionActor.receive

    def receive(actor: SessionActor, message):
        if isinstance(message, TurnFinished):
            held.append((actor, message))
            return None
        return real(actor, message)

    with monkeypatch.context() as patched:
        patched.setattr(SessionActor, "receive", receive)
        session.send(Interrupt())
        (done,) = completed(rig, session)
        until(lambda: held)
        assert session.send(Interrupt()).taken == "nothing_to_do"
        assert session.send(Interrupt(turn_id=done.turn_id)).taken == "nothing_to_do"
        cleared = away(session.send, Command("/clear"))
        assert session.snapshot().session_id == session.session_id, "all before it was handled"
    for actor, message in held:
        actor.ref.tell(message)
    assert cleared.result(WAIT_S).taken == "applied"


@pytest.mark.contract("C07")
def test_c07_while_the_completion_is_being_committed_there_is_nothing_to_do(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    held = HeldCommits(monkeypatch, lambda batch: batch.completion is not None)
    cli.finish("over")
    held.wait()
    assert session.send(Interrupt(turn_id=session.snapshot().turn_id)).taken == "nothing_to_do"
    assert session.send(Interrupt(turn_id=rig.events(session)[-1].turn_id)).taken == "nothing_to_do"
    assert not waiting.done(), "nobody is told before the commit"
    held.release()
    assert waiting.result(WAIT_S).answer == "over"
    assert "Escape" not in cli.keys


@pytest.mark.contract("C07")
def test_c07_interrupting_twice_and_ten_times_is_interrupting_once(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.hold_records = True
    for _ in range(10):
        session.send(Interrupt())
    until(lambda: "Escape" in cli.keys)
    rig.settle()
    assert cli.keys.count("Escape") == 1
    cli.release()
    assert waiting.result(WAIT_S).status == "cancelled"


@pytest.mark.contract("C07")
def test_c07_a_turn_that_completed_just_before_the_key_is_completed(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.hold_records = True
    cli.finish("made it")
    session.send(Interrupt())
    rig.settle()
    cli.release()
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer) == ("completed", "made it")


@pytest.mark.contract("C07")
def test_c07_an_interrupt_that_leaves_no_record_is_settled_by_the_registry_and_a_reread(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("go")
    rig.settle()
    cli = rig.running(session)
    cli.silent_interrupt = True
    session.send(Interrupt())
    rig.settle()
    clock.advance(REREAD_S * 0.9)
    assert not completions(rig, session)
    clock.advance(REREAD_S * 0.2)
    done = one(rig, session)
    assert (done.status, done.source, done.error.kind) == ("cancelled", "interrupt", "interrupted")


@pytest.mark.contract("C07")
def test_c07_a_terminal_record_within_the_reread_wins(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("go")
    rig.settle()
    cli = rig.running(session)
    native = cli.turn
    cli.silent_interrupt = True
    session.send(Interrupt())
    rig.settle()
    clock.advance(REREAD_S / 2)
    cli.write(Record(k="end", turn=native, status="completed", text="late but there"))
    done = one(rig, session)
    assert (done.status, done.answer) == ("completed", "late but there")
    clock.advance(30)
    assert completions(rig, session) == [done]


@pytest.mark.contract("C07")
@pytest.mark.parametrize("why", ["interrupted", "deadline"])
def test_c07_a_cli_that_ignores_escape_is_ended_and_the_next_message_resumes(make, clock, why):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("go", deadline_s=10 if why == "deadline" else None)
    rig.settle()
    cli = rig.running(session)
    cli.ignore_escape = True
    if why == "deadline":
        clock.advance(10)
    else:
        session.send(Interrupt())
        rig.settle()
    clock.advance(INTERRUPT_GRACE_S * (INTERRUPTS_MAX + 1) * 0.7)
    assert cli.alive
    assert not completions(rig, session)
    clock.advance(INTERRUPT_GRACE_S * 2)
    done = one(rig, session)
    assert (done.status, done.error.kind, done.source) == ("cancelled", why, "process_exit")
    assert not cli.alive
    assert kinds(rig, session).count("session_gone") == 1
    session.send("after it")
    rig.settle()
    rig.running(session).finish("resumed")
    assert completed(rig, session, 2)[1].answer == "resumed"
    assert rig.world.opened[1][-2] == "--resume"


# --- deadlines ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
def test_c07_a_deadline_cancels_with_its_own_kind_and_no_turn_has_another_clock(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("patient")
    rig.settle()
    clock.advance(7200)
    assert not completions(rig, session)
    rig.running(session).finish("after two hours")
    assert one(rig, session).answer == "after two hours"
    session.send("hurried", deadline_s=30)
    rig.settle()
    clock.advance(29)
    assert len(completions(rig, session)) == 1
    clock.advance(2)
    done = completed(rig, session, 2)[1]
    assert (done.status, done.error.kind) == ("cancelled", "deadline")


@pytest.mark.contract("C07")
def test_c07_a_deadline_before_typing_types_nothing(make, clock):
    rig = make(manual=True, clock=clock)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    session.send("go", deadline_s=3)
    rig.settle()
    clock.advance(3.5)
    done = one(rig, session)
    assert (done.status, done.error.kind, done.source) == ("cancelled", "deadline", "delivery")
    assert rig.cli(session).keys == []


@pytest.mark.contract("C07")
def test_c07_a_deadline_holds_for_a_message_that_starts_its_turn_later(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("first")
    rig.settle()
    cli = rig.running(session)
    session.send("second", deadline_s=20)
    rig.settle()
    clock.advance(5)
    cli.finish("one")
    rig.settle()
    clock.advance(10)
    assert len(completions(rig, session)) == 1
    clock.advance(6)
    second = completed(rig, session, 2)[1]
    assert (second.status, second.error.kind) == ("cancelled", "deadline")


@pytest.mark.contract("C07")
def test_c07_a_deadline_after_the_end_disturbs_nobody(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("quick", deadline_s=5)
    rig.settle()
    rig.running(session).finish("done")
    one(rig, session)
    session.send("next")
    rig.settle()
    clock.advance(60)
    assert len(completions(rig, session)) == 1
    rig.running(session).finish("undisturbed")
    assert completed(rig, session, 2)[1].answer == "undisturbed"


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["interrupt_main", "signal"])
def test_ctrl_c_in_run_interrupts_the_turn_and_still_gives_its_completion(make, how):
    rig = make(manual=True)
    session = rig.session()

    def press():
        rig.running(session)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            _thread.interrupt_main()

    threading.Thread(target=press, daemon=True).start()
    done = session.run("long work")
    assert (done.status, done.error.kind) == ("cancelled", "interrupted")
    assert one(rig, session) == done


def test_a_second_ctrl_c_is_raised(make):
    rig = make(manual=True)
    session = rig.session()

    def press():
        cli = rig.running(session)
        cli.ignore_escape = True
        _thread.interrupt_main()
        until(lambda: "Escape" in cli.keys)
        _thread.interrupt_main()

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        session.run("long work")
    rig.cli(session).exit(0)


def test_ctrl_c_of_a_queued_run_leaves_the_running_turn_alone(make):
    """Only the message that was waited for is taken back or interrupted, never somebody else's turn."""
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "somebody else's")
    cli = rig.running(session)
    cli.copy_mode = True  # the second stays untyped

    def press():
        until(lambda: kinds(rig, session).count("message_accepted") == 2)
        rig.settle()
        _thread.interrupt_main()

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(RejectedError) as caught:
        session.run("mine", queue=True)
    assert caught.value.kind == "not_delivered"
    assert "Escape" not in cli.keys
    assert not first.done()
    cli.copy_mode = False
    cli.finish("undisturbed")
    assert first.result(WAIT_S).answer == "undisturbed"
    rig.settle()
    assert len(completions(rig, session)) == 1


def test_ctrl_c_of_a_run_that_the_cli_queued_interrupts_it_once_it_starts(make):
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "somebody else's")
    cli = rig.running(session)

    def press():
        until(lambda: "message_queued" in kinds(rig, session))
        _thread.interrupt_main()
        rig.settle()
        assert "Escape" not in cli.keys
        cli.finish("undisturbed")

    threading.Thread(target=press, daemon=True).start()
    done = session.run("mine", queue=True)
    assert (done.status, done.error.kind) == ("cancelled", "interrupted")
    assert first.result(WAIT_S).answer == "undisturbed"


@pytest.mark.contract("C07")
def test_c07_the_deadline_of_a_message_in_the_clis_queue_is_told_and_interrupts_nobody_else(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    first = session.send("first")
    until(lambda: cli.turn)
    with pytest.raises(RejectedError) as caught:
        session.run("second", queue=True, deadline_s=0.3)
    assert caught.value.kind == "timeout"
    assert cli.alive
    assert "Escape" not in cli.keys
    cli.finish("one")
    until(lambda: any(each.turn_id == first.turn_id for each in completions(rig, session)))
