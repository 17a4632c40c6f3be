"""The one set of numbers: what is counted, that looking costs nobody anything, and Prometheus' text of it."""

from __future__ import annotations

import json
import re
import threading

import pytest
from click.testing import CliRunner

from dialog_kit import PERMISSION
from host_kit import WAIT_S, HeldCommits, Rig, away, completed
from kit_system import until
from lastword import events
from lastword.actors.core.errors import UsageError
from lastword.runtime import _door as door
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._sessions import Sessions
from lastword.runtime._top import Look
from lastword.runtime.command import cli as lastword_command
from lastword.runtime.metrics import (
    BOUNDS_S,
    Completions,
    Histogram,
    JournalNumbers,
    Mailboxes,
    Metrics,
    prometheus,
)
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import Record

# --- a reader of the text, strict and our own --------------------------------------------------------------------------

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"^({_NAME})(?:\{{(.*)\}})? ([^ ]+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
_UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def read(text: str) -> dict[str, dict]:
    """Families by name: kind, help, and samples as (name, labels) -> value. Fails on what the format does not allow."""
    assert text.endswith("\n")
    families: dict[str, dict] = {}
    current: dict | None = None
    helped = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, helped, words = line.split(" ", 3)
            assert helped not in families, "a family is told once, in one piece"
            assert words
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped
            assert kind in ("counter", "gauge", "histogram")
            current = families[name] = {"name": name, "kind": kind, "samples": {}}
        else:
            found = _SAMPLE.match(line)
            assert found, line
            assert current is not None
            name, labels, value = found.groups()
            suffixes = ("_bucket", "_sum", "_count") if current["kind"] == "histogram" else ("",)
            assert name in [current["name"] + suffix for suffix in suffixes], line
            pairs, at = [], 0
            while labels and at < len(labels):
                label = _LABEL.match(labels, at)
                assert label, line
                pairs.append((label[1], re.sub(r"\\.", lambda each: _UNESCAPED[each[0]], label[2])))
                at = label.end()
            key = (name, tuple(pairs))
            assert key not in current["samples"], line
            current["samples"][key] = float(value)
    return families


def sample() -> Metrics:
    return Metrics(
        at=20.0,
        since=10.5,
        sessions={"starting": 0, "idle": 2, "busy": 1, "awaiting_user": 0, "gone": 3},
        sessions_closed=4,
        open_turns=1,
        waiting_messages=2,
        completions=(Completions(provider='a "b"\\c\nd', status="failed", count=7),),
        latencies=(
            Histogram(boundary="commit", provider="p", counts=(5, 0, 2, *[0] * 9, 1), sum_s=30.25),
            Histogram(boundary="turn", provider="p", counts=(0,) * 15, sum_s=0.0),
        ),
        mailboxes=(Mailboxes(kind="SessionActor", actors=6, waiting=9, deepest=8),),
        dead_letters={"dead": 3, "half \ud800": 1},
        late_terminals=0,
        invariant_violations=1,
        journal=JournalNumbers(commits=2, batches=5, largest_commit=4),
    )


def test_the_text_is_prometheus_own_format_with_every_label_escaped():
    text = prometheus(sample())
    text.encode()  # UTF-8, whatever stood in a reason
    told = read(text)
    assert told["lastword_sessions"]["samples"]["lastword_sessions", (("state", "gone"),)] == 3
    odd = (("provider", 'a "b"\\c\nd'), ("status", "failed"))
    assert told["lastword_completions_total"]["samples"]["lastword_completions_total", odd] == 7
    assert ("lastword_dead_letters_total", (("reason", "half ?"),)) in told["lastword_dead_letters_total"]["samples"]
    assert {name: family["kind"] for name, family in told.items() if name.endswith("_total")} == dict.fromkeys(
        [name for name in told if name.endswith("_total")], "counter"
    )
    assert told["lastword_start_time_seconds"]["samples"] == {("lastword_start_time_seconds", ()): 10.5}


def test_a_histograms_buckets_are_cumulative_and_end_with_the_count():
    family = read(prometheus(sample()))["lastword_completion_commit_seconds"]
    assert family["kind"] == "histogram"
    samples = family["samples"]
    buckets = [(dict(labels)["le"], value) for (name, labels), value in samples.items() if name.endswith("_bucket")]
    assert [float(le) for le, _ in buckets] == [*BOUNDS_S["commit"], float("inf")]
    assert buckets[-1] == ("+Inf", 8)
    assert [value for _, value in buckets] == [5, 5, *[7] * 10, 8]
    assert samples["lastword_completion_commit_seconds_count", (("provider", "p"),)] == 8
    assert samples["lastword_completion_commit_seconds_sum", (("provider", "p"),)] == 30.25


# --- what is counted -----------------------------------------------------------------------------------------------------


def of(metrics: Metrics, boundary: str) -> Histogram | None:
    return next((each for each in metrics.latencies if each.boundary == boundary), None)


def states(rig: Rig) -> dict[str, int]:
    return {state: count for state, count in rig.runtime.metrics().sessions.items() if count}


def test_the_counted_states_are_those_of_the_snapshots(make):
    rig = make(manual=True)
    idle, busy, asked, gone, closed = (rig.session() for _ in range(5))
    for session in (idle, busy, asked, gone, closed):
        rig.ready(session)
    for session in (busy, asked):
        session.send("go")
        rig.running(session)
    rig.cli(asked).open_dialog(PERMISSION)
    rig.cli(gone).exit(1)
    closed.close()

    def agreed() -> bool:
        told = sorted(session.snapshot().state for session in (idle, busy, asked, gone))
        return told == ["awaiting_user", "busy", "gone", "idle"] and states(rig) == dict.fromkeys(told, 1)

    until(agreed, within_s=WAIT_S)
    told = rig.runtime.metrics()
    assert (told.open_turns, told.sessions_closed) == (2, 1)
    assert {line.session_id: line.state for line in rig.runtime._top(Look(lines=10)).lines} == {
        session.session_id: session.snapshot().state for session in (idle, busy, asked, gone)
    }


def test_each_completion_is_counted_once_and_its_boundaries_are_measured(make):
    rig = make(manual=True)
    session = rig.session()
    for number, status in enumerate(("completed", "completed", "failed")):
        waiting = away(session.run, f"{number}")
        rig.running(session).finish("done", status=status, error="" if status == "completed" else "provider_error")
        done = waiting.result(WAIT_S)
    told = rig.runtime.metrics()
    assert [(each.status, each.count) for each in told.completions] == [("completed", 2), ("failed", 1)]
    assert {each.provider for each in told.completions} == {"memory"}
    for boundary in ("commit", "delivery", "turn"):
        assert of(told, boundary).count == 3, boundary
    times = done.times
    assert of(told, "turn").sum_s >= times.committed_at - times.accepted_at
    assert told.open_turns == told.waiting_messages == 0
    assert told.journal.batches >= told.journal.commits > 0


def test_c63_a_delivery_is_measured_once_however_many_read_it_and_not_when_it_is_read_again_later(make, tmp_path):
    rig = make()
    session = rig.session()
    first, second = session.events(), session.events()
    session.run("x")
    for stream in (first, second, session.events()):
        assert next(filter(ended, stream))
        stream.close()
    assert of(rig.runtime.metrics(), "delivery").count == 1
    session_id = session.session_id
    rig.__exit__()
    later = make(world=rig.world)
    assert next(filter(ended, later.runtime.session(session_id=session_id).events()))
    assert of(later.runtime.metrics(), "delivery") is None
    assert later.runtime.metrics().completions == ()


def ended(event) -> bool:
    return isinstance(event.body, events.CompletionReached)


@pytest.mark.contract("C06")
def test_c06_late_terminals_and_dead_letters_are_told(make):
    rig = make(manual=True)
    before = rig.runtime.metrics().dead_letters
    assert before == dict.fromkeys(before, 0)
    assert {"dead", "failed", "mailbox_full", "late_terminal"} <= set(before)
    session = rig.session()
    waiting = away(session.run, "first")
    cli = rig.running(session)
    native = cli.turn
    cli.finish("the answer")
    waiting.result(WAIT_S)
    cli.write(Record(k="end", turn=native, text="another answer", status="completed"))
    rig.settle()
    told = rig.runtime.metrics()
    assert told.late_terminals == 1
    assert told.dead_letters == before | rig.dead_letters().counts()
    assert told.completions == (Completions(provider="memory", status="completed", count=1),)


def test_a_message_that_waits_is_told_until_its_turn_is(make):
    rig = make(manual=True)
    session = rig.session()
    session.send("first")
    cli = rig.running(session)
    session.send("second")
    until(lambda: rig.runtime.metrics().waiting_messages == 1, within_s=WAIT_S)
    cli.finish("one")
    completed(rig, session)
    rig.running(session)
    until(lambda: rig.runtime.metrics().waiting_messages == 0, within_s=WAIT_S)
    assert rig.runtime.metrics().open_turns == 1


@pytest.mark.contract("C17")
def test_c17_what_an_earlier_host_left_is_counted_and_settled_once(make):
    world = MemoryWorld(manual=True)
    rig = make(world=world)
    busy, idle = rig.session(), rig.session()
    rig.ready(idle)
    busy.send("go")
    cli = rig.running(busy)
    rig.abandon()
    world.host_died()
    later = make(world=world)
    told = later.runtime.metrics()
    assert (sum(told.sessions.values()), told.open_turns) == (2, 1)
    assert told.completions == ()
    again = later.runtime.session(session_id=busy.session_id)
    until(lambda: again.snapshot().state == "busy", within_s=WAIT_S)
    cli.finish("done")
    completed(later, again)
    until(lambda: states(later) == {"idle": 2}, within_s=WAIT_S)
    told = later.runtime.metrics()
    assert told.completions == (Completions(provider="memory", status="completed", count=1),)
    assert told.open_turns == 0


@pytest.mark.contract("C17")
def test_c17_an_open_session_that_nobody_needs_yet_is_counted_too(make, monkeypatch):
    rig = make()
    session = rig.session()
    rig.ready(session)
    rig.__exit__()
    monkeypatch.setattr(Sessions, "_take_over", lambda *_: None)  # its CLI is gone, and it has no work
    later = make()
    assert later.runtime.metrics().sessions == {"starting": 0, "idle": 0, "busy": 0, "awaiting_user": 0, "gone": 1}
    assert [line.provider for line in later.runtime._top(Look(lines=5)).lines] == ["memory"]


@pytest.mark.contract("C13")
def test_c13_looking_asks_no_actor_and_no_file_and_waits_for_none_that_is_stuck(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    rig.ready(session)
    held = HeldCommits(monkeypatch, lambda batch: batch.accept is not None)
    waiting = away(session.send, "x")
    held.wait()
    monkeypatch.setattr(SqliteJournal, "_rows", lambda *_: pytest.fail("the journal was read"))
    looked = away(lambda: [(rig.runtime.metrics(), rig.runtime._top(Look(lines=10))) for _ in range(50)])
    assert len(looked.result(WAIT_S)) == 50
    monkeypatch.undo()
    assert not waiting.done()
    held.release()
    waiting.result(WAIT_S)


def test_depths_are_those_of_the_mailboxes(make):
    rig = make(manual=True)
    session = rig.session()
    rig.ready(session)
    entered, go_on = threading.Event(), threading.Event()

    class Hold:
        def __call__(self):
            entered.set()
            assert go_on.wait(WAIT_S)

    actor = session._counterpart.ref._cell.actor
    receive = actor.receive
    actor.receive = lambda message: message() if isinstance(message, Hold) else receive(message)
    session._counterpart.ref.tell(Hold())
    assert entered.wait(WAIT_S)
    for _ in range(3):
        session._counterpart.ref.tell(Hold())
    box = next(each for each in rig.runtime.metrics().mailboxes if each.kind == "SessionActor")
    line = rig.runtime._top(Look(lines=1)).lines[0]
    go_on.set()
    assert (box.actors, box.waiting, box.deepest) == (1, 3, 3)
    assert line.mailbox == 3
    rig.settle()


# --- from another process -----------------------------------------------------------------------------------------------


def test_the_command_prints_the_numbers_of_the_running_host(make):
    rig = make(serve_socket=True)
    session = rig.session()
    session.run("a secret prompt")
    runner = CliRunner()
    text = runner.invoke(lastword_command, ["metrics", "--state", str(rig.state)])
    assert text.exit_code == 0, text.output
    told = read(text.output)
    ended_well = ("lastword_completions_total", (("provider", "memory"), ("status", "completed")))
    assert told["lastword_completions_total"]["samples"][ended_well] == 1
    assert "secret" not in text.output
    assert session.session_id not in text.output
    as_json = runner.invoke(lastword_command, ["metrics", "--json", "--state", str(rig.state)])
    assert json.loads(as_json.output)["sessions"]["idle"] == 1


def test_without_a_host_the_command_says_so(tmp_path):
    done = CliRunner().invoke(lastword_command, ["metrics", "--state", str(tmp_path)])
    assert done.exit_code == 2
    assert "host_unreachable" in done.output


def test_a_door_without_numbers_refuses(tmp_path):
    served = door.Door(tmp_path, lambda _: pytest.fail("no session was asked for"))
    served.open()
    try:
        for request in (door.GetMetrics(), door.GetTop(look=Look(lines=3))):
            with pytest.raises(UsageError) as refused:
                door.ask(tmp_path, request)
            assert refused.value.kind == "unsupported_capability"
    finally:
        served.close()
