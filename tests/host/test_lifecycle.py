"""The shared turn life cycle (IC-12), without a CLI: one completion for every accepted turn, whatever happens."""

from __future__ import annotations

import threading
import time

import pytest

from host_kit import WAIT_S, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import Interrupt, RejectedError, Runtime, events
from lastword.runtime._journal import SqliteJournal
from lastword.runtime.host import Schedule
from lastword.transports.providers.memory import Record

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(params=["pooled", "pinned"])
def dispatcher(request):
    return request.param


@pytest.mark.contract("C12")
@pytest.mark.contract("C03")
def test_c03_run_gives_the_completion_with_the_answer_itself(make, dispatcher):
    rig = make(dispatcher=dispatcher)
    session = rig.session()
    done = session.run("ping")
    assert (done.status, done.answer, done.error, done.source) == ("completed", "echo: ping", None, "transcript")
    assert done.session_id == session.session_id
    assert done.provider == done.transport == "memory"
    assert done.evidence is not None
    assert done.evidence.source == rig.cli(session).path
    times = done.times
    ours = [times.accepted_at, times.submitted_at, times.bound_at, times.terminal_seen_at, times.committed_at]
    assert None not in ours
    assert ours == sorted(ours) or times.submitted_at >= times.bound_at  # the record may be faster than our report
    assert times.native_started_at <= times.native_ended_at


@pytest.mark.contract("C03")
def test_c03_an_empty_answer_is_completed_and_marked_empty(make):
    done = make(respond=lambda _: "").session().run("say nothing")
    assert (done.status, done.answer, done.empty, done.error) == ("completed", "", True, None)


@pytest.mark.contract("C03")
@pytest.mark.parametrize("kind", ["provider_error", "rate_limited", "authentication", "context_overflow", "refused"])
def test_c03_a_failed_turn_is_a_value_with_a_kind_and_no_answer(make, kind):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.say("half an ans")
    cli.finish(status="failed", error=kind)
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer, done.error.kind) == ("failed", None, kind)


@pytest.mark.contract("C01")
def test_c01_one_turn_id_goes_unchanged_through_ack_events_journal_and_completion(make):
    rig = make()
    session = rig.session()
    ack = session.send("one")
    (done,) = completed(rig, session)
    assert ack.turn_id == done.turn_id
    told = {event.turn_id for event in rig.events(session) if event.turn_id is not None}
    assert told == {ack.turn_id}
    assert rig.runtime._journal.turn(ack.turn_id).state == "settled"
    assert rig.runtime.completion(ack.turn_id) == done
    later = session.run("two").turn_id
    assert later != ack.turn_id
    assert later > ack.turn_id, "turn ids are ordered by time"


@pytest.mark.contract("C02")
def test_c02_every_way_to_end_gives_exactly_one_completion(make, clock):
    """Success, provider error, cancellation, the CLI's death and the runtime's close, one after the other."""
    rig = make(manual=True, clock=clock)
    session = rig.session()

    def turn(end):
        ack = session.send("go")
        rig.settle()
        end(rig.running(session))
        rig.settle()
        return ack.turn_id

    ids = [
        turn(lambda cli: cli.finish("fine")),
        turn(lambda cli: cli.finish(status="failed", error="overloaded")),
        turn(lambda _: session.send(Interrupt())),
        turn(lambda cli: cli.exit(1)),
    ]
    last = session.send("never ends").turn_id
    rig.settle()
    rig.running(session)
    session.close()
    ends = [(done.turn_id, done.status) for done in completions(rig, session)]
    assert ends == list(zip([*ids, last], ["completed", "failed", "cancelled", "lost", "cancelled"], strict=True))
    assert kinds(rig, session)[-1] == "session_closed"


@pytest.mark.contract("C05")
def test_c05_the_completion_follows_its_record_at_once(make):
    rig = make(manual=True)
    session = rig.session()
    delays = []
    for number in range(20):
        waiting = away(session.run, f"{number}")
        cli = rig.running(session)
        began = time.monotonic()
        cli.finish("done")
        waiting.result(WAIT_S)
        delays.append(time.monotonic() - began)
    assert sorted(delays)[len(delays) // 2] < 0.2, delays
    assert max(delays) < 1.0, delays


@pytest.mark.contract("C06")
def test_c06_duplicate_and_late_terminal_records_change_nothing_and_are_counted(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "first")
    cli = rig.running(session)
    native = cli.turn
    cli.finish("the answer")
    first = waiting.result(WAIT_S)
    before = rig.events(session)
    cli.write(Record(k="end", turn=native, text="another answer", status="completed"))
    cli.write(Record(k="end", turn=native, status="failed", error="provider_error"))
    cli.write(Record(k="said", turn=native, text="a late word"))
    cli.write(Record(k="end", turn="nobody's", status="completed", text="?"))
    rig.settle()
    assert rig.events(session) == before
    assert rig.runtime.completion(first.turn_id) == first
    counts = rig.dead_letters().counts()
    assert counts["late_terminal"] == 2
    assert counts["late_fact"] == 1
    assert counts["terminal_of_unknown_turn"] == 1


@pytest.mark.contract("C06")
def test_c06_two_terminal_records_in_one_read_settle_once_by_the_first(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "first")
    cli = rig.running(session)
    cli.hold_records = True
    native = cli.turn
    cli.write(Record(k="end", turn=native, status="completed", text="yes"))
    cli.write(Record(k="end", turn=native, status="failed", error="provider_error"))
    cli.release()
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer) == ("completed", "yes")
    rig.settle()
    assert len(completions(rig, session)) == 1


@pytest.mark.contract("C04")
def test_c04_what_is_said_before_the_end_is_no_completion(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "work")
    cli = rig.running(session)
    for number in range(5):
        cli.say(f"step {number}")
        cli.tool(f"c{number}", "Bash")
        cli.tool_end(f"c{number}", "ok")
    until(lambda: kinds(rig, session).count("tool_finished") == 5)
    rig.settle()
    assert not waiting.done()
    assert not completions(rig, session)
    assert session.snapshot().state == "busy"
    cli.finish("all done")
    assert waiting.result(WAIT_S).answer == "all done"


@pytest.mark.contract("C08")
@pytest.mark.contract("C15")
def test_c08_c15_after_its_completion_the_session_is_idle_and_a_warm_follow_up_rebuilds_nothing(make):
    rig = make()
    session = rig.session()
    session.run("one")
    until(lambda: session.snapshot().state == "idle")
    before = session.snapshot().handle
    threads = threading.active_count()
    began = time.monotonic()
    ack = session.send("two")
    acked_s = time.monotonic() - began
    completed(rig, session, 2)
    assert ack.taken == "started_turn"
    assert acked_s < 0.5
    assert session.snapshot().handle == before
    assert len(rig.world.opened) == 1
    assert kinds(rig, session).count("provider_started") == 1
    assert threading.active_count() <= threads


@pytest.mark.contract("C12")
def test_c12_a_host_that_saw_the_completion_can_run_again_at_once(make, dispatcher):
    """Between the commit of a completion and the session's own notice of it nobody is refused as busy."""
    rig = make(dispatcher=dispatcher)
    session = rig.session()
    follow = session.events()
    session.send("0")
    answers = []
    for event in follow:
        if isinstance(event.body, events.CompletionReached):
            answers.append(event.body.completion.answer)
            if len(answers) == 50:
                break
            ack = session.send(str(len(answers)))
            assert ack.taken == "started_turn"
    assert answers == [f"echo: {number}" for number in range(50)]


@pytest.mark.contract("C09")
def test_c09_a_completion_that_was_told_is_in_the_file_already(make):
    """At the moment when a subscriber has it, another connection that opens the journal read-only finds it."""
    rig = make()
    session = rig.session()
    for number in range(10):
        ack = session.send(f"{number}")
        for event in session.events(after=ack.seq):
            if isinstance(event.body, events.CompletionReached):
                other = SqliteJournal.open(rig.state, readonly=True)
                try:
                    assert other.completion(event.turn_id) == event.body.completion
                    assert other.events(session.session_id, event.seq - 1)[0] == event
                finally:
                    other.close()
                break


@pytest.mark.contract("C09")
def test_c09_a_completion_that_run_returned_is_in_the_file_already(make):
    rig = make()
    session = rig.session()
    done = session.run("x")
    other = SqliteJournal.open(rig.state, readonly=True)
    try:
        assert other.completion(done.turn_id) == done
    finally:
        other.close()


@pytest.mark.contract("C14")
def test_c14_run_while_a_turn_is_active_is_busy_and_changes_nothing(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "first")
    cli = rig.running(session)
    before = rig.events(session)
    with pytest.raises(RejectedError) as caught:
        session.run("second")
    assert caught.value.kind == "busy"
    assert rig.events(session) == before
    cli.finish("one")
    assert waiting.result(WAIT_S).answer == "one"
    assert "second" not in cli.queue


@pytest.mark.contract("C14")
def test_c14_run_while_a_turn_is_being_delivered_is_busy(make):
    rig = make(manual=True)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    waiting = away(session.run, "first")
    until(lambda: "message_accepted" in kinds(rig, session))
    with pytest.raises(RejectedError, match="busy"):
        session.run("second")
    cli = rig.cli(session)
    cli.starting = False
    rig.running(session).finish("one")
    waiting.result(WAIT_S)


@pytest.mark.contract("C14")
def test_c14_run_with_queue_waits_its_turn(make):
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "first")
    cli = rig.running(session)
    second = away(session.run, "second", queue=True)
    until(lambda: cli.queue == ["second"])
    cli.finish("one")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    cli.finish("two")
    assert (first.result(WAIT_S).answer, second.result(WAIT_S).answer) == ("one", "two")


@pytest.mark.contract("C16")
def test_c16_the_current_prompt_is_the_one_delivered(make):
    rig = make()
    session = rig.session()
    for number in range(30):
        assert session.run(f"prompt {number}").answer == f"echo: prompt {number}"
    prompts = [line for line in rig.world.contents(rig.cli(session).path).splitlines() if b'"k":"prompt"' in line]
    assert len(prompts) == 30


@pytest.mark.contract("C11")
def test_c11_a_session_is_found_by_its_id_alone_and_closing_an_old_one_leaves_the_newer(make):
    rig = make()
    old = rig.session()
    new = rig.session()
    assert rig.runtime.session(session_id=new.session_id) is new
    old.close()
    old.close()
    assert new.run("still here").answer == "echo: still here"
    assert rig.runtime.session(session_id=new.session_id) is new
    assert [row.session_id for row in rig.runtime.sessions()] == [old.session_id, new.session_id]
    assert rig.runtime.session(session_id=old.session_id).snapshot().state == "closed"


def test_ic12_a_workflow_and_a_chat_complete_at_the_same_time(make, dispatcher):
    """A schedule on one session, an interactive chat on another, on one runtime, side by side."""
    rig = make(dispatcher=dispatcher)
    workflow, chat = rig.session(), rig.session()
    steps = [f"step {number}" for number in range(20)]
    last = Schedule([*steps, lambda done: f"after <{done.answer}>"])
    both = threading.Barrier(2)

    def work():
        both.wait(WAIT_S)
        return last.run(workflow)

    def talk():
        both.wait(WAIT_S)
        said = []
        after = 0
        for number in range(20):
            after = chat.send(f"line {number}").seq
            for event in chat.events(after=after):
                if isinstance(event.body, events.CompletionReached):
                    said.append(event.body.completion.answer)
                    break
        return said

    working, talking = away(work), away(talk)
    result, said = working.result(WAIT_S), talking.result(WAIT_S)
    assert result.ok
    assert [step.completion.answer for step in result.steps[:-1]] == [f"echo: {text}" for text in steps]
    assert result.last.answer == "echo: after <echo: step 19>"
    assert said == [f"echo: line {number}" for number in range(20)]
    for session, count in ((workflow, 21), (chat, 20)):
        assert len(completions(rig, session)) == count
        assert {event.session_id for event in rig.events(session)} == {session.session_id}


def test_ic12_the_order_of_events_of_a_turn_is_the_order_of_its_life(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    until(lambda: "message_submitted" in kinds(rig, session))
    cli.tool("c1", "Bash", '{"command": "ls"}')
    cli.tool_end("c1", "files")
    cli.finish("ok")
    waiting.result(WAIT_S)
    order = [kind for kind in kinds(rig, session) if kind != "message_submitted"]
    opening, life = order[:3], order[3:]
    assert opening[0] == "session_opened"
    assert sorted(opening[1:]) == ["message_accepted", "provider_started"]
    assert life == ["turn_started", "tool_started", "tool_finished", "assistant_message", "unified_completion"]
    assert kinds(rig, session).count("message_submitted") == 1


def test_runtime_run_is_one_turn_in_a_session_of_its_own(make):
    rig = make()
    done = rig.runtime.run("memory", "once")
    assert done.answer == "echo: once"
    (row,) = rig.runtime.sessions()
    assert row.state == "closed"
    assert kinds(rig, row.session_id)[-1] == "session_closed"
    assert not any(cli.alive for cli in rig.world.clis.values())


def test_two_runtimes_with_two_worlds_know_nothing_of_each_other(tmp_path):
    from host_kit import Rig

    with Rig(tmp_path / "a") as one, Rig(tmp_path / "b") as two:
        first, second = one.session(), two.session()
        assert first.run("a").answer == "echo: a"
        assert second.run("b").answer == "echo: b"
        assert isinstance(one.runtime, Runtime)
        assert not bodies(two, first.session_id, events.SessionOpened)
