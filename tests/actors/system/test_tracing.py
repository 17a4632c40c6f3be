"""Envelopes and traces: who told whom what when, and never what it said."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import ClassVar, get_args

import msgspec
import pytest

from kit_system import Boom, Do, Gate, Probe, boom, until
from lastword.actors.system import tracing
from lastword.actors.system.system import ActorSystem
from lastword.actors.system.tracing import HOP_FIELDS, Hop, Hops, JsonlTracer


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    turn_id: str


class Parts(msgspec.Struct, frozen=True):
    TRACED_BY: ClassVar[str] = "parts"
    parts: tuple[object, ...] | object


class Relay(Probe):
    """Tells every message on, then keeps it."""

    def __init__(self, log, target=None):
        super().__init__(log)
        self.target = target

    def receive(self, message):
        if isinstance(message, Do):
            return super().receive(message)
        self.log.append((self.trace_id, message))
        if self.target is not None:
            self.target.tell(message)
        return None


class Kept:
    """A tracer that keeps what it is given."""

    def __init__(self):
        self.records, self.hops, self.hops_max = [], [], 100_000
        self.handled = self.records.append

    def close(self):
        pass

    def all(self, message=None):
        return [hop for hop in Hops(self.hops).each() if message is None or hop.message == message]

    def hop(self, message):
        (found,) = self.all(message)
        return found


@pytest.fixture
def kept(system):
    tracer = Kept()
    system.set_tracer(tracer)
    return tracer


def lines(path, kind="hop"):
    """The lines of a kind, by field; a field that is None or False left out."""
    (struct,) = [each for each in get_args(tracing.Line) if each.__struct_config__.tag == kind]
    whole, _, _ = path.read_text().rpartition("\n")  # the last line may be half written
    every = [json.loads(line) for line in whole.splitlines()]
    flat = [line[1] for line in every if line[0] == "hops"]
    every += [["hop", *fields[at : at + HOP_FIELDS]] for fields in flat for at in range(0, len(fields), HOP_FIELDS)]
    found = [line for line in every if line[0] == kind]
    assert all(len(line) == len(struct.__struct_fields__) + 1 for line in found)
    return [
        {name: value for name, value in zip(struct.__struct_fields__, line[1:], strict=True) if value is not False}
        for line in found
    ]


def test_c62_a_line_per_message_without_content(dispatcher, tmp_path):
    path = tmp_path / "trace.jsonl"
    system = ActorSystem("tr", dispatcher=dispatcher, tracer=JsonlTracer(path))
    log: list[object] = []
    second = system.spawn(Relay, log, name="second")
    first = system.spawn(Relay, log, second, name="first")
    with system.trace("trace-of-the-host"):
        first.tell(Prompt(text="a secret", turn_id="t1"))
    until(lambda: len(log) == 2)
    first.tell("plain secret")
    until(lambda: len(log) == 4)
    system.shutdown()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    (head,) = lines(path, "trace")
    assert (head["format"], head["pid"]) == (tracing.FORMAT, os.getpid())
    one, two = sorted((hop for hop in lines(path) if hop["message"] == "Prompt"), key=lambda hop: hop["id"])
    assert (one["sender"], one["origin"], one["receiver"], one["cause"]) == (None, "host", "first", 0)
    assert (two["sender"], two.get("origin"), two["receiver"], two["cause"]) == ("first", None, "second", one["id"])
    assert one["trace"] == two["trace"] == "trace-of-the-host"
    assert head["at_ns"] < one["enqueued_ns"] <= one["started_ns"] <= two["enqueued_ns"] <= one["ended_ns"]
    assert two["enqueued_ns"] <= two["started_ns"] < two["ended_ns"]
    assert "raised" not in one
    chain = sorted((hop for hop in lines(path) if hop["message"] == "str"), key=lambda hop: hop["id"])
    assert [hop["trace"] for hop in chain] == [chain[0]["id"]] * 2, "of no turn: of the message that began it"


def test_a_tell_from_outside_begins_a_new_trace_and_handlers_inherit_it(system):
    log: list[tuple[str, object]] = []
    second = system.spawn(Relay, log, name="second")
    first = system.spawn(Relay, log, second, name="first")
    first.tell(1)
    first.tell(2)
    until(lambda: len(log) == 4)
    traces = {n: {trace for trace, m in log if m == n} for n in (1, 2)}
    assert len(traces[1]) == len(traces[2]) == 1
    assert traces[1] != traces[2]


def test_a_timer_and_a_childs_start_belong_to_the_trace_that_caused_them(system, clock, kept):
    log: list[object] = []
    seen: list[str] = []

    class Child(Probe):
        def started(self):
            seen.append(self.trace_id)

    ref = system.spawn(Relay, log, name="a")
    with system.trace("t"):
        ref.tell(Do(lambda a: (a.after(1, "later"), a.spawn(Child, name="c"))))
    assert system.settle(5)
    clock.advance(1)
    assert log == [("t", "later")]
    assert seen == ["t"]
    setter, fired = kept.hop("Do"), kept.hop("str")
    assert (fired.cause, fired.trace, fired.origin) == (setter.id, "t", "timer")
    assert fired.enqueued_ns > setter.ended_ns


def test_an_outside_thread_names_what_it_is_and_its_answer_is_caused_by_the_wish(system, kept):
    """A chain begun by the edge has an origin; what the edge answers has the asking handler as its cause as well."""
    log: list[object] = []
    ref = system.spawn(Relay, log, name="a")

    def from_thread(name, call):
        thread = threading.Thread(target=call, name=name)
        thread.start()
        thread.join(5)

    with system.trace("t"):
        ref.tell(Do(lambda a: from_thread("lastword-tmux", lambda answers=a.answers: answers.tell(1.5))))
    from_thread("lastword-inotify", lambda: ref.tell(1))
    from_thread("lastword-tool-17", lambda: ref.tell(b""))
    assert system.settle(5)
    wish, answer, began, tool = kept.hop("Do"), kept.hop("float"), kept.hop("int"), kept.hop("bytes")
    assert (answer.cause, answer.trace, answer.origin, answer.sender) == (wish.id, "t", "tmux", None)
    assert (began.cause, began.trace, began.origin, began.sender) == (0, began.id, "file_watch", None)
    assert (tool.cause, tool.origin) == (0, "tool")


def test_an_answer_that_comes_in_another_handling_is_caused_by_the_wish(system, kept):
    """As in a group commit: it is told while somebody else's message is handled."""
    log: list[object] = []
    held: list[object] = []
    asker, other = system.spawn(Relay, log, name="asker"), system.spawn(Probe, log, name="other")
    with system.trace("t1"):
        asker.tell(Do(lambda a: held.append(a.answers)))
    assert system.settle(5)
    with system.trace("t2"):
        other.tell(Do(lambda _: held[0].tell(7)))
    assert system.settle(5)
    wish = next(hop for hop in kept.all("Do") if hop.trace == "t1")
    answer = kept.hop("int")
    assert (answer.cause, answer.trace, answer.sender) == (wish.id, "t1", "other")


def test_a_message_gets_its_trace_while_it_is_handled_and_one_that_has_one_keeps_it(system, kept):
    log: list[object] = []
    first, second = system.spawn(Relay, log, name="first"), system.spawn(Relay, log, name="second")

    def named(trace):
        return Do(lambda a: (a.belongs_to(trace), second.tell(len(trace))))

    first.tell(named("turn"))
    with system.trace("earlier"):
        first.tell(named("the turn"))
    assert system.settle(5)
    assert sorted(hop.trace for hop in kept.all("Do")) == ["earlier", "turn"]
    assert sorted(hop.trace for hop in kept.all("int")) == ["the turn", "turn"]


def test_all_that_an_actor_handles_belongs_to_the_trace_that_it_lives_in(system, kept):
    log: list[object] = []
    second = system.spawn(Relay, log, name="second")
    first = system.spawn(Relay, log, second, name="first")
    first.ask(Do(lambda a: a.lives_in("turn")), timeout_s=5)
    with system.trace("of others"):
        first.tell(1)
    assert system.settle(5)
    assert [hop.trace for hop in kept.all("int")] == ["turn", "turn"]


def test_a_message_is_told_with_the_types_of_its_parts(system, kept):
    ref = system.spawn(Relay, [], name="a")
    for parts in ((1, "a secret"), 1.5, (), (1, 2, 3, 4)):
        ref.tell(Parts(parts))
    assert system.settle(5)
    assert [hop.message for hop in kept.all()] == [
        "Parts(int, str)",
        "Parts(float)",
        "Parts()",
        "Parts(int, int, int, …)",
    ]


def test_the_wait_in_the_queue_and_the_raise_are_in_the_line(dispatcher, tmp_path):
    path = tmp_path / "trace.jsonl"
    with ActorSystem("tr", dispatcher=dispatcher, tracer=JsonlTracer(path)) as system:
        gate = Gate()
        ref = system.spawn(Probe, name="a")
        ref.tell(gate.hold())
        gate.entered.wait(5)
        ref.tell(Do(boom))
        told_s = time.monotonic()
        until(lambda: time.monotonic() - told_s > 0.02)
        gate.open()
        until(lambda: not ref.is_alive())
    held, raised = lines(path)
    assert ("raised" in held, raised["raised"]) == (False, True)
    assert raised["started_ns"] - raised["enqueued_ns"] > 20e6
    assert held["ended_ns"] - held["started_ns"] > 20e6
    assert held["ended_ns"] <= raised["started_ns"]
    assert Boom.__name__ not in path.read_text()


def test_tracing_is_switched_while_running(dispatcher, tmp_path):
    with ActorSystem("tr", dispatcher=dispatcher) as system:
        ref = system.spawn(Probe, name="a")
        ref.ask("off", timeout_s=5)
        tracer = JsonlTracer(tmp_path / "t.jsonl")
        assert system.set_tracer(tracer) is None
        ref.ask(1, timeout_s=5)
        assert system.set_tracer(None) is tracer
        ref.ask("off again", timeout_s=5)
        tracer.close()
        tracer.close()
        tracer.handled(None)
        assert tracer.lost == 1
    assert [line["message"] for line in lines(tmp_path / "t.jsonl")] == ["int"]


def test_what_is_not_traced_makes_nothing_of_the_tracers(system, clock, monkeypatch):
    """Off is off: no record, no link, no origin is made; every maker of one raises here."""
    from lastword.actors.system import actor, mailbox, ref

    for module, names in ((actor, ("Link",)), (mailbox, ("kind_of", "plain_kind")), (ref, ("origin",))):
        for name in names:
            monkeypatch.setattr(module, name, boom)
    real, clock_reads = mailbox.perf_counter_ns, []
    monkeypatch.setattr(mailbox, "perf_counter_ns", lambda: clock_reads.append(1) or real())
    log: list[object] = []
    told = system.spawn(Relay, log, system.spawn(Relay, [], name="b"), name="a")
    told.ask(Do(lambda a: (a.after(1, 2), a.belongs_to("x"), a.answers.tell(3), a.note(boom))), timeout_s=5)
    clock.advance(1)
    assert system.settle(5)
    assert [message for _, message in log] == [3, 2]
    assert clock_reads == []
    assert system.dead_letters.counts() == {}
    assert told.is_alive()


def test_a_tracer_that_raises_is_taken_off_and_harms_no_actor(system):
    broken, ref = Kept(), system.spawn(Probe, name="a")
    broken.handled = boom
    system.set_tracer(broken)
    ref.ask(Do(lambda a: a.note(a_hop(1))), timeout_s=5)
    assert system.settle(5)
    assert system.tracer is None
    assert system.dead_letters.counts() == {"tracer_Boom": 1}
    assert ref.ask("x", timeout_s=5) == "x"


def test_a_full_trace_buffer_loses_counts_and_tells(system, tmp_path, monkeypatch):
    """Nobody waits for the file: what finds no room is counted, and the file says how many lines are missing."""
    path = tmp_path / "t.jsonl"
    monkeypatch.setattr(tracing, "BUFFER_MAX", 3)
    monkeypatch.setattr(tracing, "FLUSH_S", 60.0)
    tracer = JsonlTracer(path)
    system.set_tracer(tracer)
    ref = system.spawn(Probe, name="a")
    for n in range(10):
        ref.ask(n, timeout_s=5)
    assert system.settle(5)
    assert (tracer.lost, tracer.waiting) == (7, 3)
    system.shutdown()
    assert (len(lines(path)), tracer.waiting) == (3, 0)
    assert [line["count"] for line in lines(path, "lost")] == [7]


def test_what_exceeds_the_file_or_cannot_be_written_is_counted_and_told(tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    monkeypatch.setattr(tracing, "FLUSH_S", 0.001)
    tracer = JsonlTracer(path)
    monkeypatch.setattr(tracing, "FILE_BYTES_MAX", path.stat().st_size)
    tracer.handled(Hop(1, 0, None, None, "a", "int", 1, 2, 3))
    until(lambda: tracer.lost == 1)
    tracer.close()
    assert [line["count"] for line in lines(path, "lost")] == [1]
    full = JsonlTracer("/dev/full")
    full.handled(Hop(1, 0, None, None, "a", "int", 1, 2, 3))
    full.close()
    assert full.lost == 1


def test_lines_are_written_in_order_in_a_long_run_and_while_it_runs(system, tmp_path, monkeypatch):
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    path = tmp_path / "t.jsonl"
    system.set_tracer(JsonlTracer(path))
    ref = system.spawn(Probe, name="a")
    for n in range(2000):
        with system.trace(f"t{n}"):
            ref.tell(n)
    assert system.settle(10)
    until(lambda: len(lines(path)) == 2000)
    assert [line["trace"] for line in lines(path)] == [f"t{n}" for n in range(2000)]


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def a_hop(number):
    return Hop(number, 0, None, None, "a", "int", 1, 2, 3)


def test_a_file_that_is_no_trace_of_ours_is_neither_written_nor_made_private(tmp_path):
    """A link may lead to anything; a pipe would hold the host up; a second writer would mix the ids."""
    notes, link, pipe, trace, away = (tmp_path / name for name in ("notes", "link", "pipe", "trace", "away"))
    notes.write_text("mine\n")
    notes.chmod(0o644)
    link.symlink_to(notes)
    away.symlink_to(tmp_path / "nowhere")
    os.mkfifo(pipe)
    first = JsonlTracer(trace)
    open_now = open_files()
    for path in (notes, link, away, pipe, tmp_path, trace):
        with pytest.raises(OSError):
            JsonlTracer(path)
    assert open_files() == open_now
    first.close()
    JsonlTracer(trace).close()
    assert (notes.read_text(), stat.S_IMODE(notes.stat().st_mode)) == ("mine\n", 0o644)
    assert len(lines(trace, "trace")) == 2


def test_a_device_keeps_its_mode():
    """It is everybody's."""
    before = Path("/dev/null").stat().st_mode
    changed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fchmod", lambda *asked: changed.append(asked))
        tracer = JsonlTracer("/dev/null")
        tracer.handled(a_hop(1))
        tracer.close()
    assert (changed, tracer.lost, Path("/dev/null").stat().st_mode) == ([], 0, before)


def test_what_a_killed_host_tore_off_swallows_no_line_of_the_next_one(tmp_path):
    path = tmp_path / "t.jsonl"
    JsonlTracer(path).close()
    with path.open("ab") as file:
        file.write(b'["hop",1,0,nu')
    later = JsonlTracer(path)
    later.handled(a_hop(2))
    later.close()
    first, torn, second, hop = path.read_text().splitlines()
    assert first.startswith('["trace"')
    assert second.startswith('["trace"')
    assert torn == '["hop",1,0,nu'
    assert json.loads(hop)[1] == 2


def test_a_disk_that_fills_up_in_a_line_costs_that_line_and_is_told(tmp_path, monkeypatch):
    """Whole lines that are written count as written; what comes when there is room again stands on lines of its own."""
    path = tmp_path / "t.jsonl"
    monkeypatch.setattr(tracing, "FLUSH_S", 60.0)
    tracer = JsonlTracer(path)
    room = [100]  # two lines and a bit of a third

    def write(fd, data, real=os.write):
        if fd != tracer._fd or room == [None]:
            return real(fd, data)
        if not room[0]:
            room[0] = None
            raise OSError(28, "full")
        done = real(fd, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)
    for number in range(1, 6):
        tracer.handled(a_hop(number))
    tracer.close()
    whole = path.read_bytes().split(b"\n")
    told = [json.loads(line) for line in whole if line.endswith(b"]")]
    hops = [line[1] for line in told if line[0] == "hop"]
    assert hops == [1, 2]
    assert tracer.lost == 3
    assert [line[1] for line in told if line[0] == "lost"] == [3]
    assert len([line for line in whole if line and not line.endswith(b"]")]) == 1


def test_a_file_that_is_emptied_while_it_is_written_begins_again_with_its_head(tmp_path, monkeypatch):
    """As whoever rotates files by copying them does."""
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    path = tmp_path / "t.jsonl"
    tracer = JsonlTracer(path)
    for number in range(1, 30):
        tracer.handled(a_hop(number))
    until(lambda: len(lines(path)) == 29)
    os.truncate(path, 0)
    until(lambda: path.stat().st_size > 0)
    tracer.handled(a_hop(30))
    tracer.close()
    assert len(lines(path, "trace")) == 1
    assert [line["id"] for line in lines(path)] == [30]
    JsonlTracer(path).close()
    assert len(lines(path, "trace")) == 2
