"""Quiet turns: looked into, named, never judged; and what is left of one that its host gives up (C41, C42, C43)."""

from __future__ import annotations

import threading

import pytest

from host_kit import WAIT_S, HeldCommits, Rig, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import Interrupt, events
from lastword.actors import look_pace, reconciler
from lastword.actors.core import stall
from lastword.actors.core.adapter import DialogOpen
from lastword.actors.stall_watch import stamp
from lastword.actors.transcript import TranscriptWatcherActor
from lastword.runtime import _journal
from lastword.runtime.host import Schedule, Step
from lastword.transports.providers.memory import MemoryAdapter, Record


def stalls(rig: Rig, session) -> list[events.StallDiagnosed]:
    return [event.body for event in bodies(rig, session, events.StallDiagnosed)]


def told(rig: Rig, session, kind: str) -> list[events.StallDiagnosed]:
    return [body for body in stalls(rig, session) if body.kind == kind]


# --- silence is no failure ----------------------------------------------------------------------------------------------


@pytest.mark.contract("C41")
@pytest.mark.contract("C07")
def test_c41_a_turn_that_is_silent_for_ten_minutes_and_then_ends_completes_and_is_never_called_failed(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "think")
    cli = rig.running(session)
    clock.advance(600)
    assert not waiting.done()
    assert session.snapshot().state == "busy"
    assert stalls(rig, session) == []
    cli.finish("thought")
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer, done.error, done.source) == ("completed", "thought", None, "transcript")
    assert completions(rig, session) == [done]
    assert "invariant_violation" not in kinds(rig, session)


@pytest.mark.contract("C41")
def test_c41_after_thirty_quiet_minutes_it_is_told_once_and_nothing_is_settled(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "think")
    cli = rig.running(session)
    clock.advance(stall.WARN_S - 60)
    assert stalls(rig, session) == []
    clock.advance(120)
    (warning,) = stalls(rig, session)
    assert (warning.kind, warning.provider) == ("model", "memory")
    assert warning.quiet_s >= stall.WARN_S
    assert warning.elapsed_s >= warning.quiet_s
    clock.advance(7200)
    assert len(stalls(rig, session)) == 1
    assert not waiting.done()
    cli.finish("after all")
    assert waiting.result(WAIT_S).answer == "after all"


@pytest.mark.contract("C41")
def test_c41_a_word_of_the_cli_begins_the_silence_anew(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    for number in range(3):
        clock.advance(stall.WARN_S - 60)
        cli.say(f"still at it {number}")
        rig.settle()
    assert stalls(rig, session) == []
    cli.finish("done")
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C41")
def test_c41_a_session_without_an_open_turn_and_a_busy_one_are_not_looked_into(make, clock, monkeypatch):
    looked = []
    monkeypatch.setattr(reconciler.ReconcilerActor, "receive", lambda actor, message: looked.append(message))
    rig = make(manual=True, clock=clock)
    session = rig.session()
    rig.ready(session)
    clock.advance(3600)
    waiting = away(session.run, "go")
    cli = rig.running(session)
    for _ in range(4):
        clock.advance(stall.QUIET_S - 2)
        cli.say("busy")
        rig.settle()
    assert looked == []
    clock.advance(stall.QUIET_S + 2 * stall.CONSULT_EVERY_S)
    rig.settle()
    assert len(looked) == 3
    cli.finish("x")
    waiting.result(WAIT_S)
    clock.advance(600)
    assert len(looked) == 3


@pytest.mark.contract("C41")
def test_c41_however_many_turns_are_quiet_no_more_than_so_many_are_looked_into_and_each_in_its_turn(
    make, clock, monkeypatch
):
    looked = []
    monkeypatch.setattr(reconciler.ReconcilerActor, "receive", lambda actor, message: looked.append(actor.parent))
    monkeypatch.setattr(look_pace, "LOOKS_PER_S", 0.5)
    rig = make(manual=True, clock=clock)
    sessions = [rig.session() for _ in range(10)]
    waiting = [away(session.run, "go") for session in sessions]
    clis = [rig.running(session) for session in sessions]
    for _ in range(60):
        clock.advance(1)
        rig.settle()
    assert 20 <= len(looked) <= (60 - stall.QUIET_S) * 0.5 + 1
    assert {looked.count(one) for one in looked} == {2, 3}
    assert len(set(looked)) == len(sessions)
    for cli in clis:
        cli.finish("x")
    assert all(each.result(WAIT_S).answer == "x" for each in waiting)


@pytest.mark.contract("C41")
def test_c41_places_in_the_line_that_nobody_took_put_off_no_later_look_beyond_a_bound() -> None:
    pace = look_pace.LookPace()
    slots = [pace.slot(1000.0 + second) - (1000.0 + second) for second in range(600) for _ in range(667)]
    assert max(slots) <= look_pace.LINE_S
    assert pace.slot(1600.0) - 1600.0 <= look_pace.LINE_S
    assert pace.slot(2000.0) == 2000.0


@pytest.mark.contract("C41")
def test_c41_only_a_reader_that_asserts_completion_is_consulted(make, clock, monkeypatch):
    capabilities = MemoryAdapter.capabilities - {"asserts_completion"}
    monkeypatch.setattr(MemoryAdapter, "capabilities", capabilities)
    rig = make(manual=True, clock=clock, wake=False)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.cli(session)
    until(lambda: cli.turn)
    rig.world.sweep()
    rig.running(session)
    cli.finish("unseen")
    clock.advance(600)
    assert not waiting.done()
    rig.world.sweep()
    assert waiting.result(WAIT_S).answer == "unseen"


# --- an observer that was cut off ---------------------------------------------------------------------------------------


@pytest.mark.contract("C42")
@pytest.mark.contract("C40")
@pytest.mark.contract("C02")
def test_c42_a_completed_turn_whose_observer_was_cut_off_is_diagnosed_with_its_text_and_time_and_settled_once(
    make, clock
):
    """Every wake-up and every sweep is lost: the watcher never looks again. Another reader finds the end."""
    rig = make(manual=True, clock=clock, wake=False)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.cli(session)
    until(lambda: cli.turn)
    rig.world.sweep()
    rig.running(session)
    clock.advance(3)
    cli.finish("the answer nobody saw")
    ended_at = clock.wall()
    clock.advance(8)
    assert not waiting.done()
    clock.advance(stall.QUIET_S + 2 * stall.CONSULT_EVERY_S)
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer, done.source) == ("completed", "the answer nobody saw", "transcript")
    assert done.times.native_ended_at == pytest.approx(ended_at)
    assert completions(rig, session) == [done]
    (found,) = told(rig, session, "unobserved")
    assert "completed" in found.waits_for
    assert "'the answer nobody saw'" in found.waits_for
    assert stamp(ended_at) in found.waits_for
    assert cli.path in found.evidence
    assert kinds(rig, session).count("invariant_violation") == 1
    order = [kind for kind in kinds(rig, session) if kind in ("stall_diagnosed", "unified_completion")]
    assert order == ["stall_diagnosed", "unified_completion"]
    rig.world.wake = True
    rig.world.manual = False
    assert session.run("and on").answer == "echo: and on"


@pytest.mark.contract("C42")
@pytest.mark.contract("C51")
def test_c42_what_another_turn_or_an_earlier_one_said_is_no_evidence_for_this_one(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    first = away(session.run, "same words")
    cli = rig.running(session)
    cli.finish("first answer")
    first.result(WAIT_S)
    second = away(session.run, "same words")
    until(lambda: cli.turn)
    rig.settle()
    clock.advance(stall.WARN_S + 60)
    assert told(rig, session, "unobserved") == []
    assert not second.done()
    cli.finish("second answer")
    assert second.result(WAIT_S).answer == "second answer"


@pytest.mark.contract("C42")
def test_c42_a_watcher_that_never_sees_anything_is_replaced_a_bounded_number_of_times(make, clock, monkeypatch):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    real = TranscriptWatcherActor._read_once
    monkeypatch.setattr(TranscriptWatcherActor, "_read_once", lambda watcher: False)
    cli.finish("behind a wall")
    clock.advance(600)
    assert 1 <= kinds(rig, session).count("invariant_violation") <= 3
    assert not waiting.done()
    monkeypatch.setattr(TranscriptWatcherActor, "_read_once", real)
    rig.world.sweep()
    assert waiting.result(WAIT_S).answer == "behind a wall"


# --- what is waited for -----------------------------------------------------------------------------------------------


def wait_of(session):
    return session.snapshot().waits_for


@pytest.mark.contract("C42")
def test_c42_each_wait_is_named_tool_model_retry_dialog_queue(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    assert session.snapshot().waits_for is None
    waiting = away(session.run, "go")
    cli = rig.running(session)
    rig.settle()
    assert wait_of(session).kind == "model"
    cli.tool("c1", "Bash")
    rig.settle()
    assert (wait_of(session).kind, wait_of(session).what) == ("tool", "tool Bash")
    assert wait_of(session).since == clock.wall()
    clock.advance(212)
    cli.tool_end("c1")
    rig.settle()
    assert wait_of(session).kind == "model"
    cli.write(Record(k="retry", turn=cli.turn, text="overloaded"))
    rig.settle()
    assert wait_of(session).kind == "retry"
    cli.open_dialog(DialogOpen(key="d", question="May I?", options=("yes", "no"), kind="permission"))
    until(lambda: (clock.advance(0.5), session.snapshot().state == "awaiting_user")[1])
    assert wait_of(session).kind == "person"
    assert "permission" in wait_of(session).what
    assert "May I?" in wait_of(session).what
    cli.close_dialog()
    clock.advance(2)
    cli.finish("x")
    waiting.result(WAIT_S)
    assert session.snapshot().waits_for is None


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.contract("C42")
def test_c42_a_commit_of_another_session_that_is_under_way_is_no_wait_until_it_hangs(make, monkeypatch, hangs):
    rig = make(manual=True)
    session, other = rig.session(), rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.tool("c1", "Bash")
    until(lambda: "tool_started" in kinds(rig, session), within_s=WAIT_S)
    rig.settle()
    under_way, go_on = threading.Event(), threading.Event()
    write_batch = _journal.write_batch

    def slow(db, batch, now, seq):
        if batch.session_id == other.session_id:
            under_way.set()
            assert go_on.wait(WAIT_S)
        return write_batch(db, batch, now, seq)

    monkeypatch.setattr(_journal, "write_batch", slow)
    if hangs:
        monkeypatch.setattr(_journal, "HANGS_S", 0.0)
    sent = away(other.send, "meanwhile")
    assert under_way.wait(WAIT_S)
    named = wait_of(session)
    go_on.set()
    assert named.kind == ("journal" if hangs else "tool")
    sent.result(WAIT_S)
    cli.finish("x")
    assert waiting.result(WAIT_S).answer == "x"


@pytest.mark.contract("C42")
def test_c42_a_busy_session_names_its_wait_also_where_only_a_message_is_open_or_a_commit(make, clock, monkeypatch):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    session.send("first")
    cli = rig.running(session)
    session.send("second")
    until(lambda: "message_queued" in kinds(rig, session), within_s=WAIT_S)
    cli.queue.clear()  # the record says that it has it, and nothing starts
    held = HeldCommits(monkeypatch, lambda batch: batch.completion is not None)
    cli.finish("one")
    held.wait()
    seen = session.snapshot()
    assert (seen.state, seen.turn_id, seen.waits_for.kind) == ("busy", None, "journal")
    held.release()
    completed(rig, session)
    rig.settle()
    seen = session.snapshot()
    assert (seen.state, seen.turn_id, seen.waits_for.kind) == ("busy", None, "queue")
    assert seen.waits_for.since is not None


@pytest.mark.contract("C42")
def test_c42_the_tool_that_runs_is_named_in_the_warning_with_its_time(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.tool("c1", "Bash")
    rig.settle()
    clock.advance(stall.WARN_S + 30)
    (warning,) = stalls(rig, session)
    assert warning.kind == "tool"
    assert warning.waits_for.startswith("tool Bash for 18")
    assert cli.path in warning.evidence
    cli.tool_end("c1")
    cli.finish("x")
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C42")
def test_c42_a_message_that_waits_for_a_person_is_named_so(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    cli = rig.ready(session)
    cli.draft = "a person was typing"
    waiting = away(session.run, "go")
    until(lambda: "stall_diagnosed" in kinds(rig, session))
    assert wait_of(session).kind == "person"
    assert "draft" in wait_of(session).what
    cli.draft = ""
    until(lambda: (clock.advance(1), cli.turn)[1])
    cli.finish("x")
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C42")
def test_c42_a_cli_that_does_not_come_up_is_named_so(make, clock):
    rig = make(manual=True, clock=clock)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.cli(session)
    until(lambda: wait_of(session) is not None and wait_of(session).kind == "cli_start")
    cli.starting = False
    until(lambda: (clock.advance(1), cli.turn)[1])
    cli.finish("x")
    assert waiting.result(WAIT_S).status == "completed"


# --- giving up -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C42")
@pytest.mark.contract("C07")
@pytest.mark.contract("C61")
@pytest.mark.parametrize("how", ["deadline", "interrupt", "both and again"])
def test_c42_giving_up_a_stalled_turn_cleans_up_whole_and_only_once(make, clock, how):
    """The CLI hangs in a tool and ignores Escape. After the host gave up: the turn is settled once, busy is cleared, the
    tool's row is closed, the process is gone, and the session takes the next message.
    """
    rig = make(manual=True, clock=clock)
    session = rig.session()
    waiting = away(session.run, "go", deadline_s=None if how == "interrupt" else 100.0)
    cli = rig.running(session)
    cli.ignore_escape = True
    cli.tool("c1", "Bash")
    rig.settle()
    if how != "deadline":
        assert session.send(Interrupt()).taken == "applied"
    if how == "both and again":
        for _ in range(3):
            session.send(Interrupt())
    clock.advance(130)
    until(lambda: (clock.advance(5), waiting.done())[1])
    done = waiting.result(WAIT_S)
    assert done.status == "cancelled"
    assert completions(rig, session) == [done]
    assert not cli.alive
    until(lambda: session.snapshot().state == "gone")
    shot = session.snapshot()
    assert (shot.turn_id, shot.waiting, shot.waits_for, shot.dialog) == (None, (), None, None)
    told_kinds = kinds(rig, session)
    assert (told_kinds.count("tool_started"), told_kinds.count("tool_finished")) == (1, 1)
    assert session.send(Interrupt()).taken == "nothing_to_do"
    assert rig.world.watches == 1  # the record, for the next life; no registry
    rig.world.manual = False
    again = away(session.run, "again")
    until(lambda: (clock.advance(0.5), again.done())[1])
    assert again.result(WAIT_S).answer == "echo: again"
    assert session.snapshot().handle.pid != cli.pid


@pytest.mark.contract("C43")
@pytest.mark.contract("C42")
def test_c43_the_step_after_a_stall_never_runs_on_a_half_closed_session(make, clock):
    """The first step hangs; its deadline gives it up and its CLI is ended. The next step's text is typed into the CLI
    that comes after it, never into the one that is being ended.
    """
    rig = make(manual=True, clock=clock)
    session = rig.session()
    first = rig.ready(session)
    first.ignore_escape = True
    steps = [Step(text="hangs", deadline_s=60.0, on_failure="continue"), Step(text="goes on")]
    result = away(Schedule(steps).run, session)
    until(lambda: first.turn)
    rig.world.on_start = lambda cli: setattr(rig.world, "manual", False)
    until(lambda: (clock.advance(1), result.done())[1])
    one, two = result.result(WAIT_S).steps
    assert (one.completion.status, one.completion.error.kind) == ("cancelled", "deadline")
    assert (two.completion.status, two.completion.answer) == ("completed", "echo: goes on")
    assert not first.alive
    assert "goes on" not in first.draft
    assert first.keys.count("<paste>") == 1
    assert len(rig.world.opened) == 2


@pytest.mark.contract("C43")
@pytest.mark.contract("C42")
def test_c43_where_giving_up_closes_the_session_no_step_follows(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    first = rig.ready(session)
    first.ignore_escape = True
    steps = [Step(text="hangs", deadline_s=60.0, on_failure="close"), Step(text="never")]
    result = away(Schedule(steps).run, session)
    until(lambda: first.turn)
    until(lambda: (clock.advance(1), result.done())[1])
    done = result.result(WAIT_S)
    assert done.session_closed
    assert done.steps[1].completion is None
    assert kinds(rig, session)[-1] == "session_closed"
    assert rig.world.watches == 0
