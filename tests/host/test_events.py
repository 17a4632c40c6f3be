"""Events: gapless, resumable, never lost by a slow subscriber; and all that a host shows follows from them (C30–C33)."""

from __future__ import annotations

import random
import threading
import time

import pytest

from host_kit import WAIT_S, HeldCommits, away, bodies, completions, kinds
from kit_system import until
from lastword import Answer, Interrupt, RejectedError, events
from lastword.actors.core.adapter import DialogOpen
from lastword.runtime.host import SessionView
from lastword.transports.providers.memory import Record


@pytest.mark.contract("C30")
def test_c30_events_are_gapless_and_resumable_at_every_seq(make):
    rig = make()
    session = rig.session()
    for number in range(5):
        session.run(f"{number}")
    session.close()
    whole = list(session.events())
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    assert whole == rig.events(session)
    assert isinstance(whole[-1].body, events.SessionClosed)
    for after in range(len(whole) + 1):
        assert list(session.events(after=after)) == whole[after:]


@pytest.mark.contract("C30")
def test_c30_a_follower_sees_live_what_the_journal_holds(make):
    rig = make()
    session = rig.session()
    following = away(lambda: list(session.events()))
    for number in range(20):
        session.run(f"{number}")
    session.close()
    assert following.result(WAIT_S) == rig.events(session)


@pytest.mark.contract("C30")
def test_c30_no_event_crosses_a_turn_or_a_session(make):
    rig = make()
    sessions = [rig.session() for _ in range(5)]
    running = [
        away(lambda session=session, number=number: [session.run(f"{number}.{turn}") for turn in range(10)])
        for number, session in enumerate(sessions)
    ]
    for future in running:
        future.result(WAIT_S)
    for number, session in enumerate(sessions):
        said = bodies(rig, session, events.AssistantMessage)
        answers = {done.turn_id: done.answer for done in completions(rig, session)}
        assert sorted(answers.values()) == [f"echo: {number}.{turn}" for turn in range(10)]
        assert [(event.turn_id, event.body.text) for event in said] == list(answers.items())


@pytest.mark.contract("C30")
def test_c30_within_a_session_a_turn_is_told_whole_before_the_next_begins(make):
    rig = make()
    session = rig.session()
    for number in range(30):
        session.send(f"{number}")
    until(lambda: len(completions(rig, session)) == 30, within_s=WAIT_S)
    open_turn = None
    for event in rig.events(session):
        if isinstance(event.body, events.TurnStarted):
            assert open_turn is None
            open_turn = event.turn_id
        elif isinstance(event.body, events.CompletionReached):
            assert event.turn_id == open_turn
            open_turn = None
        elif isinstance(event.body, events.AssistantMessage):
            assert event.turn_id == open_turn


@pytest.mark.contract("C30")
@pytest.mark.contract("C13")
def test_c30_turns_that_are_read_in_one_go_are_told_one_after_the_other(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    for number in range(3):
        cli.start_turn(f"foreign {number}")
        cli.finish(f"answer {number}")
    held = HeldCommits(monkeypatch, lambda batch: batch.completion is not None)
    cli.release()
    held.wait()
    time.sleep(0.05)  # the writer is held; what the others want to tell meanwhile would come before the completion
    held.release()
    until(lambda: len(completions(rig, session)) == 3)
    life = [kind for kind in kinds(rig, session) if kind in ("turn_started", "unified_completion")]
    assert life == ["turn_started", "unified_completion"] * 3
    until(lambda: session.snapshot().last_completion.answer == "answer 2")


@pytest.mark.contract("C31")
def test_c31_a_slow_and_a_dead_subscriber_hold_nothing_and_lose_nothing(make):
    rig = make()
    session = rig.session()
    gate = threading.Event()

    def slowly():
        seen = []
        for event in session.events():
            if not seen:
                assert gate.wait(WAIT_S)
            seen.append(event)
        return seen

    slow = away(slowly)
    dead = session.events()
    next(dead)
    for number in range(50):
        session.run(f"{number}")
    assert not slow.done()
    gate.set()
    session.close()
    assert slow.result(WAIT_S) == rig.events(session)
    assert [event.seq for event in dead] == [event.seq for event in rig.events(session)][1:]


@pytest.mark.contract("C32")
def test_c32_each_tool_execution_appears_once_as_a_start_and_an_end(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("go")
    rig.settle()
    cli = rig.running(session)
    cli.tool("c1", "Bash", '{"command": "make"}')
    cli.tool("c2", "Read", '{"path": "a"}')
    cli.tool("c1", "Bash", '{"command": "make"}')  # the same record again
    clock.advance(2.5)
    cli.tool_end("c1", "boom", "error")
    cli.tool_end("c1", "boom", "error")
    cli.tool_end("c3", "of nobody")
    cli.finish("done")
    until(lambda: completions(rig, session))
    starts, ends = bodies(rig, session, events.ToolStarted), bodies(rig, session, events.ToolFinished)
    assert [event.body.call_id for event in starts] == ["c1", "c2"]
    assert starts[0].body.arguments == '{"command": "make"}'
    assert [(event.body.call_id, event.body.name, event.body.status) for event in ends] == [
        ("c1", "Bash", "error"),
        ("c2", "Read", "no_result"),
    ]
    assert ends[0].body.duration_s == pytest.approx(2.5)
    assert {event.seq < bodies(rig, session, events.CompletionReached)[0].seq for event in ends} == {True}


# --- C33: the view ------------------------------------------------------------------------------------------------------


def agree(rig, session):
    """The snapshot and the fold of the events say the same."""
    rig.settle()
    snapshot = session.snapshot()
    view = SessionView(rig.events(session))
    assert view.state == snapshot.state
    assert view.seq >= snapshot.seq, "a host that follows from the snapshot's seq on misses nothing"
    assert view.turn_id == snapshot.turn_id
    assert view.waiting == snapshot.waiting
    assert view.dialog == snapshot.dialog
    assert view.last_completion == snapshot.last_completion
    assert view.busy == bool(snapshot.turn_id or snapshot.waiting)
    return view


@pytest.mark.contract("C33")
def test_c33_the_view_equals_the_snapshot_at_every_stage_of_a_session(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    assert agree(rig, session).state == "idle"
    session.send("first")
    rig.running(session)
    assert agree(rig, session).state == "busy"
    session.send("second")
    until(lambda: cli.queue)
    assert len(agree(rig, session).waiting) == 1
    cli.tool("c1", "Bash")
    cli.open_dialog(DialogOpen(key="k", question="Really?", options=("Yes", "No")))
    until(lambda: session.snapshot().dialog)
    assert agree(rig, session).state == "awaiting_user"
    session.send(Answer(session.snapshot().dialog.dialog_id, 1))
    until(lambda: session.snapshot().dialog is None)
    cli.tool_end("c1", "ok")
    cli.finish("one")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    agree(rig, session)
    session.send(Interrupt())
    until(lambda: len(completions(rig, session)) == 2)
    assert agree(rig, session).state == "idle"
    session.send("third")
    rig.running(session)
    session.send("fourth")
    until(lambda: cli.queue)
    cli.exit(1)
    until(lambda: session.snapshot().state == "gone")
    assert agree(rig, session).state == "gone"
    session.send("fifth")
    rig.running(session).finish("back")
    until(lambda: len(completions(rig, session)) == 4)
    assert agree(rig, session).state == "idle"
    session.close()
    view = SessionView(rig.events(session))
    assert view.state == session.snapshot().state == "closed"
    assert view.last_completion == session.snapshot().last_completion
    assert not view.busy


def a_long_session(make):
    rig = make(manual=True)
    session = rig.session()
    for number in range(6):
        waiting = away(session.run, f"prompt {number}", queue=True)
        cli = rig.running(session)
        cli.say(f"thinking {number}")
        cli.tool(f"c{number}", "Bash", "{}")
        cli.tool_end(f"c{number}", "out")
        if number == 3:
            cli.finish(status="failed", error="overloaded")
        else:
            cli.finish(f"answer {number}")
        waiting.result(WAIT_S)
    session.send("last")
    rig.running(session)
    rig.settle()
    return rig.events(session)


@pytest.mark.contract("C33")
def test_c33_the_view_is_the_same_in_any_order_of_events_and_with_duplicates(make):
    told = a_long_session(make)
    shuffled = random.Random(7)
    wanted = SessionView(told)
    for _ in range(50):
        order = told * 2
        shuffled.shuffle(order)
        view = SessionView(order)
        assert view.conversation() == wanted.conversation()
        assert sorted(view.tools, key=lambda tool: tool.call_id) == sorted(wanted.tools, key=lambda tool: tool.call_id)
        assert (view.state, view.busy, view.turn_id, view.seq) == (wanted.state, True, wanted.turn_id, told[-1].seq)
        assert view.last_completion == wanted.last_completion


@pytest.mark.contract("C33")
def test_c33_the_conversation_shows_each_answer_once_and_each_tool_once(make):
    view = SessionView(a_long_session(make))
    rows = [(row.kind, row.text) for row in view.conversation()]
    assert rows[:4] == [("prompt", ""), ("assistant", "thinking 0"), ("tool", "Bash"), ("final", "answer 0")]
    assert ("notice", "failed: overloaded") in rows
    assert [text for kind, text in rows if kind == "final"] == [f"answer {n}" for n in (0, 1, 2, 4, 5)]
    assert [tool.status for tool in view.tools] == ["ok"] * 6
    assert ("assistant", "answer 0") not in rows


@pytest.mark.contract("C33")
def test_c33_a_view_that_missed_events_knows_where_to_resume(make):
    told = a_long_session(make)
    view = SessionView(told[:5] + told[8:])
    assert view.seq == told[4].seq
    view.feed_all(told[view.seq :])
    assert view.conversation() == SessionView(told).conversation()
    assert view.feed(told[0]) is False


@pytest.mark.contract("C33")
def test_c33_the_snapshots_seq_is_never_behind_a_completion_that_it_shows(make):
    rig = make()
    session = rig.session()
    for number in range(20):
        session.run(f"{number}")
        snapshot = session.snapshot()
        (reached,) = [
            event
            for event in bodies(rig, session, events.CompletionReached)
            if snapshot.last_completion and event.turn_id == snapshot.last_completion.turn_id
        ]
        assert snapshot.seq >= reached.seq


@pytest.mark.contract("C30")
def test_c30_a_cleared_conversation_is_told_and_the_session_goes_on(make):
    from lastword import Command

    rig = make()
    session = rig.session()
    session.run("before")
    native = session.snapshot().handle.native_session_id
    assert session.send(Command("/clear")).taken == "applied"
    until(lambda: "session_rebound" in kinds(rig, session))
    done = session.run("after")
    assert done.answer == "echo: after"
    assert done.native_session_id != native
    (rebound,) = bodies(rig, session, events.SessionRebound)
    assert rebound.body.previous == native
    assert len(completions(rig, session)) == 2


@pytest.mark.contract("C30")
def test_c30_a_retry_of_the_provider_is_told_and_ends_nothing(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    for number in range(3):
        cli.write(Record(k="retry", turn=cli.turn, text=f"attempt {number}"))
    until(lambda: kinds(rig, session).count("provider_retrying") == 3)
    assert not waiting.done()
    cli.finish("at last")
    assert waiting.result(WAIT_S).answer == "at last"


def test_events_of_an_unknown_session_are_refused_at_the_door(make):
    rig = make()
    session = rig.session()
    session.close()
    with pytest.raises(RejectedError):
        session.send("x")
    assert [event.seq for event in session.events(after=10_000)] == []
