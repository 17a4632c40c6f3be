"""Envelopes and traces: who told whom what when, and never what it said."""

from __future__ import annotations

import json
import stat
import time

import msgspec

from kit_system import Boom, Do, Gate, Probe, boom, until
from lastword.actors.system import tracing
from lastword.actors.system.clock import ManualClock
from lastword.actors.system.system import ActorSystem
from lastword.actors.system.tracing import JsonlTracer


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    turn_id: str
    session_id: str = "s1"


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


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_per_message_without_content(dispatcher, tmp_path):
    path = tmp_path / "trace.jsonl"
    system = ActorSystem("tr", dispatcher=dispatcher, tracer=JsonlTracer(path), clock=ManualClock(wall_s=1e9))
    log: list[object] = []
    second = system.spawn(Relay, log, name="second")
    first = system.spawn(Relay, log, second, name="first")
    with system.trace("trace-of-the-host"):
        first.tell(Prompt(text="a secret", turn_id="t1"))
    until(lambda: len(log) == 2)
    first.tell("plain")
    until(lambda: len(log) == 4)
    system.shutdown()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    spans = lines(path)
    one, two = sorted((s for s in spans if s["message_type"] == "Prompt"), key=lambda s: s["envelope_id"])
    assert (one.get("sender"), one["recipient"], one["causation_id"]) == (None, "first", 0)
    assert (two["sender"], two["recipient"]) == ("first", "second")
    assert two["causation_id"] == one["envelope_id"]
    assert one["trace_id"] == two["trace_id"] == "trace-of-the-host"
    assert (one["turn_id"], one["session_id"]) == ("t1", "s1")
    assert "message_id" not in one
    assert one["at_wall_s"] == 1e9
    assert one["outcome"] == "ok"
    assert one["queue_wait_us"] >= 0
    assert one["handling_us"] > 0
    three, four = (s for s in spans if s["message_type"] == "str")
    assert three["trace_id"] == four["trace_id"] != one["trace_id"]


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


def test_a_timer_and_a_childs_start_belong_to_the_trace_that_caused_them(system, clock):
    log: list[object] = []
    seen: list[str] = []

    class Child(Probe):
        def started(self):
            seen.append(self.trace_id)

    ref = system.spawn(Relay, log, name="a")
    with system.trace("t"):
        ref.tell(Do(lambda a: (a.after(1, "later"), a.spawn(Child, name="c"))))
    clock.advance(1)
    assert log == [("t", "later")]
    assert seen == ["t"]


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
    assert (held["outcome"], raised["outcome"]) == ("ok", "raised")
    assert 20_000 < raised["queue_wait_us"] < 5e6
    assert 20_000 < held["handling_us"] < 5e6
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
        assert tracer.dropped == 1
    assert [line["message_type"] for line in lines(tmp_path / "t.jsonl")] == ["int"]


def test_a_tracer_that_raises_is_taken_off_and_harms_no_actor(system):
    class Broken:
        def handled(self, span):
            raise Boom

        def close(self):
            pass

    ref = system.spawn(Probe, name="a")
    system.set_tracer(Broken())
    assert ref.ask("x", timeout_s=5) == "x"
    assert system.tracer is None
    assert system.dead_letters.counts() == {"tracer_Boom": 1}


def test_a_full_trace_buffer_drops_and_counts(system, tmp_path, monkeypatch):
    monkeypatch.setattr(tracing, "BUFFER_MAX", 0)
    tracer = JsonlTracer(tmp_path / "t.jsonl")
    system.set_tracer(tracer)
    system.spawn(Probe, name="a").ask("x", timeout_s=5)
    assert tracer.dropped == 1


def test_ids_are_kept_with_every_line_of_a_long_run(system, tmp_path):
    path = tmp_path / "t.jsonl"
    system.set_tracer(JsonlTracer(path))
    ref = system.spawn(Probe, name="a")
    for n in range(2000):
        ref.tell(Prompt(text="x", turn_id=f"t{n}"))
    assert system.settle(10)
    system.shutdown()
    assert [line["turn_id"] for line in lines(path)] == [f"t{n}" for n in range(2000)]
