"""A traced host: a turn's trace is its own, its path has no gap, and nothing in it says what was said."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import pytest

from host_kit import WAIT_S, away, completed
from kit_system import lastword_threads, until
from lastword import Interrupt, Runtime, UsageError
from lastword.actors import journal as journal_actor
from lastword.actors import session as session_actor
from lastword.actors.core.events import CompletionReached
from lastword.actors.system import actor, mailbox
from lastword.runtime import _hub
from lastword.runtime._trace import Trace, read_trace
from lastword.runtime._trace_path import critical_path
from lastword.runtime._trace_perfetto import perfetto

SECRET = "a-word-that-no-trace-may-hold"
SLACK_MS = 25.0
"""Beside the tenth: between two clock readings a busy machine may run somebody else."""


def turns_of(session: Any, count: int) -> list[str]:
    return [session.run(f"{SECRET} {n}").turn_id for n in range(count)]


@pytest.mark.contract("C62")
def test_c62_a_turns_trace_is_its_own_beside_other_sessions_and_tells_no_text(make, tmp_path):
    """Sessions share the journal's groups; each hop of a turn is of its own session, and each answer of its own wish."""
    path = tmp_path / "trace.jsonl"
    rig = make(trace=path)
    sessions = [rig.session() for _ in range(4)]
    working = [away(turns_of, session, 6) for session in sessions]
    turns = {session.session_id: work.result(WAIT_S) for session, work in zip(sessions, working, strict=True)}
    rig.runtime.close()
    assert SECRET not in path.read_text()
    trace = read_trace(path)
    assert (trace.lost, trace.unread) == (0, 0)
    assert set(trace.turns()) == {turn for each in turns.values() for turn in each}
    for session_id, own in turns.items():
        others = {turn for turn in trace.turns() if turn not in own}
        for turn in own:
            found = critical_path(trace, turn)
            assert found is not None
            assert found.whole
            for step in trace.of(turn):
                assert step.receiver.startswith((session_id, "journal", "host")), step
                assert step.sender is None or step.sender.startswith((session_id, "journal")), step
                cause = trace.steps[step.cause] if step.cause is not None else None
                assert cause is None or cause.turn not in others, (step, cause)
    assert answers_of_wishes(trace) > 24
    groups = [step.started_ns for step in trace.steps.values() if step.kind == "commit"]
    assert len(groups) > len(set(groups)), "no group held two batches: nothing was proved about groups"


def answers_of_wishes(trace: Trace) -> int:
    """How many answers of the journal there are; each is caused by the commit of what its receiver had sent."""
    answers = [step for step in trace.steps.values() if step.message == "Committed"]
    for answer in answers:
        commit = trace.steps[answer.cause]
        wish = trace.steps[commit.cause]
        assert (commit.kind, wish.message, wish.sender) == ("commit", "Commit", answer.receiver)
        assert wish.started_ns <= commit.enqueued_ns <= commit.started_ns <= commit.ended_ns <= answer.enqueued_ns
    return len(answers)


def test_the_pieces_of_a_turns_path_add_up_and_agree_with_a_stop_watch(make, tmp_path):
    """To the nanosecond among themselves; within a tenth of what the host measures around it, in the median."""
    path = tmp_path / "trace.jsonl"
    rig = make(trace=path)
    session = rig.session()
    rig.ready(session)
    watched: dict[str, float] = {}
    stream = session.events()
    for n in range(9):
        began = time.perf_counter_ns()
        session.send(f"p{n}")
        done = next(event for event in stream if isinstance(event.body, CompletionReached))
        watched[done.turn_id] = (time.perf_counter_ns() - began) / 1e6
    rig.runtime.close()
    trace = read_trace(path)
    over: list[float] = []
    unlike: list[float] = []
    for turn, watched_ms in watched.items():
        found = critical_path(trace, turn)
        assert found is not None
        assert (found.whole, found.pieces[-1].step.message) == (True, "unified_completion")
        assert sum(piece.ns for piece in found.pieces) == found.total_ns
        assert all(piece.ns >= 0 for piece in found.pieces)
        assert [piece.begin_ns for piece in found.pieces[1:]] == [piece.end_ns for piece in found.pieces[:-1]]
        assert found.total_ns / 1e6 <= watched_ms
        over.append(watched_ms - found.total_ns / 1e6 - watched_ms / 10)
        unlike.append(abs(found.since_seen_ns / 1e6 - found.measured_seen_ms) - found.measured_seen_ms / 10)
        unlike.append(abs(found.total_ns / 1e6 - found.measured_ms) - found.measured_ms / 10)
        messages = [piece.step.message for piece in found.pieces if piece.kind == "wait"]
        assert messages[:3] == ["Submit", "Commit", "commit"]
        assert messages[-3:] == ["Commit", "commit", "unified_completion"]
    assert statistics.median(over) < SLACK_MS
    assert statistics.median(unlike) < SLACK_MS


def test_a_message_that_waited_for_its_turn_is_on_that_turns_path(make, tmp_path):
    """It is traced under its own id until the CLI says which turn it is."""
    path = tmp_path / "trace.jsonl"
    rig = make(trace=path, manual=True)
    session = rig.session()
    waiting = away(session.run, "first")
    cli = rig.running(session)
    pending = session.send("second")
    assert pending.turn_id is None
    cli.finish("one")
    first = waiting.result(WAIT_S)
    rig.running(session)
    rig.cli(session).finish("two")
    second = completed(rig, session, 2)[1]
    assert second.message_id == pending.message_id
    for event in session.events():
        if isinstance(event.body, CompletionReached) and event.turn_id == second.turn_id:
            break
    rig.runtime.close()
    trace = read_trace(path)
    assert pending.message_id not in trace.turns()
    assert not trace.of(pending.message_id)
    submits = {step.turn for step in trace.steps.values() if step.message == "Submit"}
    assert submits == {first.turn_id, second.turn_id}
    found = critical_path(trace, second.turn_id)
    assert found is not None
    assert found.whole
    assert sum(piece.ns for piece in found.pieces) == found.total_ns


def test_a_host_that_is_not_traced_makes_no_record(make, monkeypatch):
    def made(*_: object, **__: object) -> None:
        raise AssertionError("made while nothing is traced")

    for module, names in (
        (actor, ("Link",)),
        (mailbox, ("kind_of", "plain_kind")),
        (journal_actor, ("Envelope", "CommitSpan", "perf_counter_ns")),
        (session_actor, ("Bound",)),
        (_hub, ("Delivered", "next_number")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, made)
    rig = make()
    session = rig.session()
    assert session.run("hello").status == "completed"
    assert any(event.type == "unified_completion" for event in _until_completion(session))
    assert rig.runtime._system.failures() == []


def _until_completion(session: Any) -> list[Any]:
    events = []
    for event in session.events():
        events.append(event)
        if isinstance(event.body, CompletionReached):
            break
    return events


def test_a_trace_that_cannot_be_written_is_refused_with_its_reason(make, tmp_path):
    with pytest.raises(UsageError) as caught:
        make(trace=tmp_path / "no" / "folder")
    assert (caught.value.kind, "cannot be written" in str(caught.value)) == ("usage", True)
    for no_path in ("a\0b", 5, True, object()):
        with pytest.raises(UsageError, match="no path"):
            make(trace=no_path)


def test_a_running_host_is_traced_from_one_call_to_the_next_and_each_file_is_whole(make, tmp_path):
    rig = make()
    session = rig.session()

    def turn() -> str:
        done = session.run("x")
        rig.settle()
        return done.turn_id

    turn()
    rig.runtime.trace_to(tmp_path / "one")
    first = turn()
    with pytest.raises(UsageError, match="cannot be written"):
        rig.runtime.trace_to(tmp_path)
    second = turn()
    rig.runtime.trace_to(tmp_path / "two")
    assert read_trace(tmp_path / "one").turns() == [first, second]
    assert all(critical_path(read_trace(tmp_path / "one"), each).whole for each in (first, second))
    third = turn()
    rig.runtime.trace_to(None)
    turn()
    assert read_trace(tmp_path / "two").turns() == [third]
    assert [thread for thread in lastword_threads("lastword") if "tracer" in thread] == []
    rig.runtime.trace_to("/dev/full")
    turn()
    rig.runtime.trace_to(tmp_path / "three")
    assert rig.runtime.close().trace_lost > 20, "of all its traces"
    with pytest.raises(UsageError, match="closed"):
        rig.runtime.trace_to(tmp_path / "four")


def test_the_end_of_a_host_tells_how_much_of_its_trace_is_in_no_file(make, tmp_path):
    rig = make(trace="/dev/full")
    assert rig.session().run("x").status == "completed"
    report = rig.runtime.close()
    assert report.trace_lost > 20
    assert report.clean, "it is no part of what a clean end is"


def test_the_perfetto_file_has_lanes_arrows_and_waits_that_a_viewer_can_bind(make, tmp_path):
    """What Perfetto's importer needs: ordered times, one thread id per lane, an open slice at both ends of an arrow."""
    path = tmp_path / "trace.jsonl"
    rig = make(trace=path)
    sessions = [rig.session() for _ in range(3)]
    for work in [away(turns_of, session, 3) for session in sessions]:
        work.result(WAIT_S)
    rig.runtime.close()
    trace = read_trace(path)
    drawn = json.loads(b"".join(perfetto(trace)))
    events = drawn["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len({tid for _, tid in names}) == len(names)
    assert {"host", "journal", "journal's file"} < set(names.values())
    for part in ("session", "pane", "transcript"):
        assert len([name for name in names.values() if name.startswith(f"{part} ")]) == 3
    timed = [event for event in events if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert min(event["ts"] for event in timed) == 0
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    flows: dict[int, list[dict[str, Any]]] = {}
    waits: dict[int, list[dict[str, Any]]] = {}
    for event in timed:
        place = (event["pid"], event["tid"])
        assert place in names
        at = round(event["ts"] * 1000)
        if event["ph"] == "X":
            slices = lanes.setdefault(place, [])
            assert not slices or slices[-1][1] <= at, "slices of a lane overlap"
            slices.append((at, at + round(event["dur"] * 1000)))
        elif event["ph"] in "sf":
            begin, end = lanes[place][-1]
            assert begin <= at <= end, "an arrow's end hangs in the air"
            assert event["ph"] == "s" or event["bp"] == "e"
            flows.setdefault(event["id"], []).append(event)
        else:
            waits.setdefault(event["id"], []).append(event)
    assert all([event["ph"] for event in flow] == ["s", "f"] for flow in flows.values())
    assert all([event["ph"] for event in wait] == ["b", "e"] for wait in waits.values())
    assert all(len({(e["cat"], e["name"]) for e in pair}) == 1 for pair in (*flows.values(), *waits.values()))
    told = [step for step in trace.steps.values() if step.cause is not None or step.origin is not None]
    assert len(flows) == len(told)
    assert len(waits) == len([step for step in trace.steps.values() if step.wait_ns > 0])
    handled = [event for event in timed if event["ph"] == "X" and event["cat"] == "actor"]
    batches = sum(event["args"].get("batches", 1) for event in handled)
    assert batches == len(trace.steps)


def test_hosts_one_after_the_other_add_to_one_file_and_two_at_once_do_not(make, tmp_path):
    path = tmp_path / "trace.jsonl"
    first = make(trace=path)
    session = first.session()
    before = session.run("one").turn_id
    with pytest.raises(UsageError, match="another trace is being written to it"):
        Runtime.open(tmp_path / "elsewhere", trace=path)
    first.runtime.close()
    second = make(trace=path, world=first.world)
    after = second.runtime.session(session_id=session.session_id).run("two").turn_id
    second.runtime.close()
    trace = read_trace(path)
    assert trace.turns() == [before, after]
    for turn in (before, after):
        found = critical_path(trace, turn)
        assert found.whole
        assert all(piece.ns >= 0 for piece in found.pieces)


def test_a_turns_actor_labels_all_that_it_handles_and_every_turn_is_listed(make, tmp_path):
    """An interrupted one too: what the turn is told comes of hints and of the host, which name no turn."""
    path = tmp_path / "trace.jsonl"
    rig = make(trace=path, manual=True)
    session = rig.session()
    waiting = away(session.run, "first")
    rig.running(session)
    session.send(Interrupt())
    turn = waiting.result(WAIT_S).turn_id
    rig.runtime.close()
    trace = read_trace(path)
    told = [step for step in trace.steps.values() if f"/{turn}#" in step.receiver]
    assert len(told) > 2
    assert {step.turn for step in told} == {turn}
    found = critical_path(trace, turn)
    assert found.whole
    assert sum(piece.ns for piece in found.pieces) == found.total_ns


def test_a_message_that_joins_a_running_turn_is_traced_as_that_turns(make, tmp_path):
    path = tmp_path / "trace.jsonl"
    rig = make(trace=path, manual=True)
    session = rig.session()
    waiting = away(session.run, "first")
    cli = rig.running(session)
    pending = session.send("second")
    until(lambda: cli.queue, within_s=WAIT_S)
    cli.join()
    cli.finish("both")
    turn = waiting.result(WAIT_S).turn_id
    rig.runtime.close()
    trace = read_trace(path)
    assert trace.turns() == [turn]
    assert not trace.of(pending.message_id)
    assert [step.turn for step in trace.steps.values() if step.message == "Submit"] == [turn, turn]
