"""After the end nothing is left, and nothing of a prompt stands in a log or a trace (C61, C62)."""

from __future__ import annotations

import gc
import json
import logging
import threading
from pathlib import Path

import pytest

from host_kit import WAIT_S, HeldCommits, Rig, away, bodies, completions, kinds
from kit_system import lastword_threads, until
from lastword import JournalError, RejectedError, Runtime, events
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._trace import read_trace

SECRET = "hunter2-the-prompt-that-nobody-may-log"


def fds() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(path.readlink()))
        except OSError:
            continue
    return sorted(found)


@pytest.mark.contract("C61")
@pytest.mark.parametrize("dispatcher", ["pooled", "pinned"])
def test_c61_fifty_openings_and_closings_leave_no_thread_no_watch_and_no_descriptor(tmp_path, dispatcher):
    def cycle(number):
        with Rig(tmp_path / f"{number % 3}", dispatcher=dispatcher, trace=tmp_path / "trace.jsonl") as rig:
            session = rig.session()
            following = session.events()
            assert session.run(f"{number}").status == "completed"
            next(following)
            return rig.world

    cycle(0)
    gc.collect()
    before = fds()
    for number in range(50):
        world = cycle(number)
        assert world.watches == 0
        assert not any(cli.alive for cli in world.clis.values())
    assert lastword_threads("lastword") == []
    gc.collect()
    assert fds() == before


@pytest.mark.contract("C61")
def test_c61_closing_one_session_ends_its_cli_its_actors_and_its_watches_only(make):
    rig = make()
    keep, gone = rig.session(), rig.session()
    keep.run("x")
    gone.run("y")
    watches = rig.world.watches
    cli = rig.cli(gone)
    gone.close()
    assert not cli.alive
    assert rig.cli(keep).alive
    until(lambda: rig.world.watches == watches // 2)
    until(lambda: not [ref for ref in rig.runtime._system.refs() if ref.name.startswith(gone.session_id)])
    assert keep.run("z").status == "completed"


@pytest.mark.contract("C61")
@pytest.mark.contract("C02")
@pytest.mark.parametrize("forever", [True, False])
def test_c02_closing_in_the_middle_of_a_turn_settles_it_cancelled_and_tells_who_waits(make, forever):
    rig = make(manual=True)
    session = rig.session()
    running = away(session.run, "running")
    rig.running(session)
    waiting = away(session.run, "waiting", queue=True)
    until(lambda: kinds(rig, session).count("message_accepted") == 2)
    following = away(lambda: list(session.events()))
    if forever:
        session.close()
        session_id = session.session_id
        assert following.result(WAIT_S)[-1] == rig.events(session_id)[-1]
        assert kinds(rig, session)[-1] == "session_closed"
        assert kinds(rig, session).count("session_gone") == 1
        assert len(completions(rig, session)) == 1
        (undelivered,) = bodies(rig, session, events.MessageUndelivered)
        assert undelivered.body.reason in ("session_closed", "provider_exited")
    else:
        rig.runtime.close()
        assert following.result(WAIT_S)
    assert running.result(WAIT_S).status == "cancelled"
    with pytest.raises(RejectedError) as caught:
        waiting.result(WAIT_S)
    assert caught.value.kind in ("not_delivered", "session_closed")


@pytest.mark.contract("C61")
def test_c61_a_cli_that_comes_up_after_its_session_was_closed_is_ended(make):
    rig = make()
    rig.world.hold_opens = True
    session = rig.session()
    closing = away(session.close)
    rig.settle()
    (cli,) = rig.world.clis.values()
    rig.world.held_opens[0]()
    closing.result(WAIT_S)
    rig.settle()
    assert not cli.alive
    assert session.snapshot().state == "closed"


@pytest.mark.contract("C02")
@pytest.mark.parametrize("round_number", range(10))
def test_c02_a_close_that_races_with_sends_leaves_no_message_without_its_end(make, round_number):
    rig = make()
    session = rig.session()
    acks, refusals, barrier = [], set(), threading.Barrier(4)

    def send():
        barrier.wait(WAIT_S)
        for number in range(20):
            try:
                acks.append(session.send(f"{number}"))
            except RejectedError as error:
                refusals.add(error.kind)
                return

    sending = [away(send) for _ in range(3)]
    barrier.wait(WAIT_S)
    if round_number % 2:
        until(lambda: len(acks) > round_number)
    session.close()
    for future in sending:
        future.result(WAIT_S)
    ended = [message for done in completions(rig, session) for message in (done.message_id, *done.joined)]
    ended += [event.message_id for event in bodies(rig, session, events.MessageUndelivered)]
    assert refusals <= {"session_closed"}
    assert sorted(ended) == sorted(ack.message_id for ack in acks)
    assert kinds(rig, session)[-1] == "session_closed"
    assert rig.runtime._journal.turns(session.session_id, unsettled=True) == []


@pytest.mark.contract("C02")
def test_c02_a_message_whose_commit_is_under_way_when_the_session_closes_has_its_end(make, monkeypatch):
    rig = make()
    session = rig.session()
    rig.ready(session)
    held = HeldCommits(monkeypatch, lambda batch: batch.accept is not None)
    sending = away(session.send, "just in time")
    held.wait()
    closing = away(session.close)
    until(lambda: session.snapshot().state == "closed")
    held.release()
    ack = sending.result(WAIT_S)
    closing.result(WAIT_S)
    (done,) = completions(rig, session)
    assert (done.turn_id, done.status, done.source) == (ack.turn_id, "cancelled", "delivery")


@pytest.mark.contract("C61")
def test_c61_closing_twice_from_many_threads_and_after_the_end_is_closing_once(make):
    rig = make()
    session = rig.session()
    session.run("x")
    for future in [away(session.close) for _ in range(8)]:
        future.result(WAIT_S)
    assert kinds(rig, session).count("session_closed") == 1
    first, *others = [away(rig.runtime.close) for _ in range(4)]
    for future in (first, *others):
        future.result(WAIT_S)


@pytest.mark.contract("C61")
def test_a_runtime_that_cannot_open_its_journal_leaves_nothing(tmp_path):
    with Rig(tmp_path) as rig:
        before, threads = fds(), threading.active_count()
        with pytest.raises(JournalError) as caught:
            Runtime.open(rig.state)
        assert caught.value.kind == "journal_locked"
        gc.collect()
        assert (fds(), threading.active_count()) == (before, threads)


@pytest.mark.contract("C62")
@pytest.mark.contract("C63")
def test_c62_no_text_of_a_message_or_an_answer_stands_in_logs_or_traces(tmp_path, caplog, capfd):
    before = (logging.root.level, list(logging.root.handlers), list(logging.root.filters))
    trace = tmp_path / "trace.jsonl"
    with caplog.at_level(logging.DEBUG), Rig(tmp_path, trace=trace, manual=True) as rig:
        session = rig.session()
        waiting = away(session.run, SECRET)
        cli = rig.running(session)
        cli.tool("c1", "Bash", json.dumps({"command": SECRET}))
        cli.tool_end("c1", SECRET, "error")
        rig.world.append(cli.path, f"{{broken {SECRET}\n".encode())
        session.send(f"{SECRET} pending")
        cli.finish(f"answer with {SECRET}")
        done = waiting.result(WAIT_S)
        with pytest.raises(RejectedError) as caught:
            session.send(f"{SECRET}\0")
        assert SECRET not in str(caught.value)
        assert SECRET not in repr(rig.dead_letters().recent())
        session.close()
    text = trace.read_text()
    steps = read_trace(trace).steps.values()
    assert len(steps) > 20
    assert not any(step.raised for step in steps)
    assert SECRET not in text
    assert done.turn_id in text, "the trace tells which turn, and never what"
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capfd.readouterr())
    assert (logging.root.level, logging.root.handlers, logging.root.filters) == before
    assert oct(trace.stat().st_mode & 0o777) == "0o600"


@pytest.mark.contract("C62")
def test_c62_a_dying_actor_prints_no_prompt_and_touches_no_logger_of_the_host(tmp_path, caplog, capfd, monkeypatch):
    from loguru import logger

    from lastword.actors import turn as turn_shell

    told: list[str] = []
    sink = logger.add(told.append, level="TRACE")
    real, failed = turn_shell.core.step, []

    def step(turn, event, now):
        if not failed and type(event).__name__ == "Bound":
            failed.append(event)
            raise RuntimeError(f"failed on {SECRET}")
        return real(turn, event, now)

    monkeypatch.setattr(turn_shell.core, "step", step)
    try:
        with caplog.at_level(logging.DEBUG), Rig(tmp_path, trace=tmp_path / "trace.jsonl") as rig:
            assert rig.session().run(SECRET).status == "completed"
    finally:
        logger.remove(sink)
    assert failed
    assert SECRET not in "".join([*told, caplog.text, *capfd.readouterr(), (tmp_path / "trace.jsonl").read_text()])


@pytest.mark.contract("C62")
def test_c62_the_journal_is_readable_by_its_owner_only(tmp_path):
    with Rig(tmp_path) as rig:
        rig.session().run("x")
        assert oct(rig.state.stat().st_mode & 0o777) == "0o700"
        for path in Path(rig.state).iterdir():
            assert not path.stat().st_mode & 0o077, path


@pytest.mark.contract("C20")
def test_c20_a_message_that_waits_when_the_runtime_ends_is_undelivered_for_that_reason(make):
    rig = make(manual=True)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    session.send("first")
    session.send("second", message_id="waits")
    rig.runtime.close()
    journal = SqliteJournal.open(rig.state, readonly=True)
    try:
        told = [event for event in journal.events(session.session_id, 0, 1000) if event.message_id == "waits"]
    finally:
        journal.close()
    assert [event.body.reason for event in told if isinstance(event.body, events.MessageUndelivered)] == [
        "runtime_closed"
    ]
