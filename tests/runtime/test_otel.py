"""OpenTelemetry: a trace for each turn, once, without a word of what was said; the numbers as instruments."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from host_kit import WAIT_S, away, completed
from kit_system import until
from lastword.actors.core.errors import UsageError
from lastword.runtime.metrics import BOUNDS_S
from lastword.runtime.otel import OtelExporter
from lastword.transports.memory import MemoryWorld
from structured_kit import StdioHost, scripted

STATES = ("lastword.accepted", "lastword.submitted", "lastword.running", "lastword.settling", "lastword.committed")
SECRETS = ("the prompt", "the answer", "the argument", "the result")


class Telemetry:
    """A host's providers, in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = TracerProvider(shutdown_on_exit=False)
        self.tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.metering = MeterProvider([self.reader], shutdown_on_exit=False)

    def follow(self, runtime) -> OtelExporter:
        return OtelExporter(runtime, tracer_provider=self.tracing, meter_provider=self.metering)

    def spans(self, name: str = "") -> list:
        return [span for span in self.exporter.get_finished_spans() if name in ("", span.name)]

    def turns(self) -> list[str]:
        return [span.attributes["lastword.turn_id"] for span in self.spans("lastword.turn")]

    def points(self) -> dict[str, list]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def told():
    telemetry = Telemetry()
    yield telemetry
    telemetry.tracing.shutdown()
    telemetry.metering.shutdown()


def whole(span_list) -> None:
    """One trace: a root, every other span below it and within it."""
    (root,) = [span for span in span_list if span.parent is None]
    by_id = {span.context.span_id: span for span in span_list}
    for span in span_list:
        assert span.context.trace_id == root.context.trace_id
        assert span.start_time <= span.end_time
        if span is not root:
            assert by_id[span.parent.span_id]


@pytest.mark.contract("C63")
@pytest.mark.contract("C62")
def test_c63_a_turn_is_one_trace_with_a_span_for_each_state_and_each_tool_and_no_text(make, told):
    rig = make(manual=True)
    with told.follow(rig.runtime) as exporter:
        session = rig.session()
        waiting = away(session.run, "the prompt")
        cli = rig.running(session)
        cli.tool("c1", "Bash", json.dumps({"command": "the argument"}))
        cli.tool_end("c1", "the result", status="error")
        cli.tool("c2", "Read")
        cli.finish("the answer")
        done = waiting.result(WAIT_S)
        assert exporter.close(WAIT_S)
    spans = told.spans()
    whole(spans)
    (root,) = told.spans("lastword.turn")
    assert [span.name for span in spans if span.name in STATES] == list(STATES)
    assert root.attributes["lastword.turn_id"] == done.turn_id
    assert root.attributes["lastword.session_id"] == session.session_id
    assert root.attributes["lastword.message_id"] == done.message_id
    assert (root.attributes["lastword.provider"], root.attributes["lastword.status"]) == ("memory", "completed")
    assert root.attributes["lastword.delivered"]
    assert root.status.status_code is StatusCode.OK
    times = done.times
    edges = [times.accepted_at, times.submitted_at, times.bound_at, times.terminal_seen_at, times.committed_at]
    for name, begin, end in zip(STATES, edges, edges[1:], strict=False):
        (span,) = told.spans(name)
        assert (span.start_time, span.end_time) == (int(begin * 1e9), int(end * 1e9)), name
    tools = {span.attributes["lastword.tool.call_id"]: span for span in told.spans("lastword.tool")}
    (running,) = told.spans("lastword.running")
    assert {span.parent.span_id for span in tools.values()} == {running.context.span_id}
    assert tools["c1"].attributes["lastword.tool.name"] == "Bash"
    assert tools["c1"].status.status_code is StatusCode.ERROR
    assert tools["c2"].attributes["lastword.tool.status"] == "no_result"
    (native,) = root.events
    assert native.attributes["lastword.evidence.offset"] == done.evidence.offset
    everything = "".join(span.to_json() for span in spans)
    assert done.turn_id in everything
    assert [secret for secret in SECRETS if secret in everything] == []


def test_each_turn_has_a_trace_of_its_own_and_its_error_is_a_kind(make, told):
    rig = make(manual=True)
    exporter = told.follow(rig.runtime)
    session = rig.session()
    for status, error in (("completed", ""), ("failed", "provider_error")):
        waiting = away(session.run, status)
        rig.running(session).finish("", status=status, error=error)
        waiting.result(WAIT_S)
    assert exporter.close(WAIT_S)
    first, second = told.spans("lastword.turn")
    assert first.context.trace_id != second.context.trace_id
    assert (second.status.status_code, second.status.description) == (StatusCode.ERROR, "provider_error")


def test_a_turn_that_nobody_hears_of_is_exported_all_the_same(make, told, monkeypatch):
    monkeypatch.setattr("lastword.runtime.otel.DELIVERY_WAIT_S", 0.05)
    rig = make(manual=True)
    with told.follow(rig.runtime):
        session = rig.session()
        session.send("go")
        rig.running(session).finish("done")
        until(told.turns, within_s=WAIT_S)
    (root,) = told.spans("lastword.turn")
    assert not root.attributes["lastword.delivered"]
    assert told.spans("lastword.committed") == []
    assert told.spans("lastword.settling")


@pytest.mark.contract("C17")
@pytest.mark.contract("C02")
def test_c17_over_a_restart_each_turn_is_exported_once_by_the_host_that_committed_it(make, told):
    world = MemoryWorld(manual=True)
    rig = make(world=world)
    exporter = told.follow(rig.runtime)
    session = rig.session()
    waiting = away(session.run, "before")
    rig.running(session).finish("done")
    before = waiting.result(WAIT_S)
    session.send("over")
    cli = rig.running(session)
    until(lambda: told.turns() == [before.turn_id], within_s=WAIT_S)
    rig.abandon()
    world.host_died()
    exporter.close(WAIT_S)
    later = make(world=world)
    following = told.follow(later.runtime)
    again = later.runtime.session(session_id=session.session_id)
    cli.finish("done")
    over = completed(later, again, 2)[1]
    assert following.close(WAIT_S)
    assert told.turns() == [before.turn_id, over.turn_id]
    accepted, running = told.spans("lastword.accepted")[-1], told.spans("lastword.running")[-1]
    assert accepted.start_time == int(over.times.accepted_at * 1e9), "also what was before the restart"
    assert running.context.trace_id == accepted.context.trace_id
    with told.tracing.get_tracer("host").start_as_current_span("the host's own"):
        assert following.export_turn(before.turn_id), "by hand, as often as wanted"
    assert told.turns() == [before.turn_id, over.turn_id, before.turn_id]
    assert [span.parent for span in told.spans("lastword.turn")] == [None] * 3, (
        "a trace of its own, wherever it is made"
    )
    assert not following.export_turn("t_nobody")


def test_a_delivery_that_is_told_before_its_commit_belongs_to_the_trace(make, told):
    """Subscribers are told first, so theirs may be the quicker thread."""
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    rig.running(session).finish("done")
    done = waiting.result(WAIT_S)
    with told.follow(rig.runtime) as exporter:
        exporter.delivered(done, done.times.committed_at + 0.25)
        exporter.committed(rig.events(session))
        assert exporter.close(WAIT_S)
    (span,) = told.spans("lastword.committed")
    assert span.end_time == int((done.times.committed_at + 0.25) * 1e9)


def test_what_ends_with_the_runtime_is_exported_before_its_journal_closes(make, told):
    rig = make(manual=True)
    exporter = told.follow(rig.runtime)
    session = rig.session()
    session.send("go")
    cli = rig.running(session)
    cli.tool("c1", "Bash")
    until(lambda: "tool_started" in [event.type for event in rig.events(session)], within_s=WAIT_S)
    rig.__exit__()
    (root,) = told.spans("lastword.turn")
    assert root.attributes["lastword.status"] == "cancelled"
    assert len(told.spans("lastword.tool")) == 1
    assert exporter.close(WAIT_S)


def test_a_tracer_that_raises_ends_nothing_and_is_counted(make, told, monkeypatch):
    rig = make()
    exporter = told.follow(rig.runtime)
    session = rig.session()
    real = type(exporter._tracer).start_span
    monkeypatch.setattr(type(exporter._tracer), "start_span", lambda *_, **__: 1 / 0)
    assert session.run("x").answer == "echo: x"
    until(lambda: exporter.dropped == 1, within_s=WAIT_S)
    monkeypatch.setattr(type(exporter._tracer), "start_span", real)
    session.run("y")
    assert exporter.close(WAIT_S)
    assert len(told.turns()) == 1


def test_the_instruments_tell_the_numbers_of_the_runtime(make, told):
    rig = make(manual=True)
    exporter = told.follow(rig.runtime)
    session, other = rig.session(), rig.session()
    rig.ready(other)
    for _ in range(3):
        waiting = away(session.run, "the prompt")
        rig.running(session).finish("the answer")
        waiting.result(WAIT_S)
    session.send("one more")
    rig.running(session)

    def three() -> bool:
        points = told.points()
        return all(name in points and points[name][0].count == 3 for name in histograms)

    histograms = {"lastword.completion.commit": "commit", "lastword.completion.delivery": "delivery",
                  "lastword.turn.duration": "turn"}  # fmt: skip
    until(three, within_s=WAIT_S)
    points, numbers = told.points(), rig.runtime.metrics()
    assert {point.attributes["state"]: point.value for point in points["lastword.sessions"]} == numbers.sessions
    assert points["lastword.turns.open"][0].value == 1
    ended = [(dict(point.attributes), point.value) for point in points["lastword.completions"]]
    assert ended == [({"provider": "memory", "status": "completed"}, 3)]
    kinds = {point.attributes["kind"] for point in points["lastword.mailbox.messages"]}
    assert kinds == {box.kind for box in numbers.mailboxes}
    for name, boundary in histograms.items():
        (point,) = points[name]
        (same,) = [each for each in numbers.latencies if each.boundary == boundary]
        assert tuple(point.explicit_bounds) == BOUNDS_S[boundary]
        assert tuple(point.bucket_counts) == same.counts
        assert point.sum == pytest.approx(same.sum_s)
    assert exporter.close(WAIT_S)
    assert "lastword.sessions" not in told.points(), "nothing is told of a runtime that is not followed any more"


def test_a_turn_of_a_scripted_cli_behind_a_pipe_is_a_trace_too(told):
    with StdioHost(scripted()) as host, told.follow(host.runtime) as exporter:
        done = host.session().run("[[tool:Bash:date]] hello")
        assert done.status == "completed"
        assert exporter.close(WAIT_S)
    spans = told.spans()
    whole(spans)
    assert {*STATES, "lastword.turn", "lastword.tool"} == {span.name for span in spans}
    (root,) = told.spans("lastword.turn")
    assert (root.attributes["lastword.provider"], root.attributes["lastword.transport"]) == (
        "claude-code",
        "structured",
    )
    assert root.attributes["lastword.native_session_id"] == done.native_session_id
    assert "hello" not in "".join(span.to_json() for span in spans)


def test_without_opentelemetry_the_error_is_typed_and_says_what_to_install(make, monkeypatch):
    rig = make()
    real = builtins.__import__

    def without(name, *args, **named):
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError) as refused:
        OtelExporter(rig.runtime)
    assert refused.value.kind == "unsupported_capability"
    assert "lastword[otel]" in refused.value.remedy


def test_nothing_of_opentelemetry_is_loaded_by_the_library():
    code = "import sys, lastword.runtime.otel, lastword; lastword.Runtime\nassert 'opentelemetry' not in sys.modules"
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, env={"PYTHONPATH": str(root / "src")}, cwd=root
    )
