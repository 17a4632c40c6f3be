"""OpenTelemetry: a trace for each turn, and the numbers of :mod:`lastword.runtime.metrics` as instruments.

Needs the extra ``lastword[otel]``; nothing of it is imported before an :class:`OtelExporter` is made. The host brings
its providers, with the processors, samplers and readers that it likes; here nothing is sent anywhere.

A turn is one trace of its own: ``lastword.turn`` from acceptance until its completion is delivered, and below it the
states it was in, each until the next boundary of its completion trace (C63): ``lastword.accepted`` until it is
submitted, ``lastword.submitted`` until the provider's record shows it, ``lastword.running`` until the native terminal
record is seen, ``lastword.settling`` until the completion is committed, ``lastword.committed`` until somebody has it.
What was not crossed has no span. Tools are spans below ``lastword.running``. Attributes are ids, names and status: no
text of a message, an answer, an argument, a result or an error (C62).

Once: a turn is exported when its completion is committed, which happens once, in whichever life of the host (C02). One
that was open when the host died is so exported by the next host, whole, from the journal; one whose completion an
earlier host committed is not exported again. Only what a host commits in the moment in which it is killed may be
missing: :meth:`OtelExporter.export_turn` brings a single one from the journal.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from lastword.actors.core import events
from lastword.actors.core.errors import JournalError, LastwordError, UsageError
from lastword.actors.core.events import Event
from lastword.actors.core.ids import TurnId
from lastword.actors.core.outcome import Completion
from lastword.runtime._numbers import waits
from lastword.runtime.metrics import BOUNDS_S, Boundary, Metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from lastword.runtime._async_runtime import AsyncRuntime
    from lastword.runtime._runtime import Runtime

SCOPE: Final = "lastword"
PENDING_MAX: Final = 10_000
"""Completions that wait to be exported; further ones are dropped and counted."""
DELIVERY_WAIT_S: Final = 1.0
"""So long a committed turn waits for its delivery; without one its trace ends with the commit."""
CLOSE_S: Final = 5.0
LOOK_S: Final = 0.2
"""The instruments of one collection share one look at the runtime."""

_HISTOGRAM_OF: Final[dict[Boundary, tuple[str, str]]] = {
    "commit": ("lastword.completion.commit", "Terminal record seen until the completion is committed"),
    "delivery": ("lastword.completion.delivery", "Completion committed until a subscriber or caller has it"),
    "turn": ("lastword.turn.duration", "Message accepted until its completion is committed"),
}


class OtelExporter:
    """Follows a runtime until it or the runtime is closed. Every method is safe from any thread.

    Nothing of it runs where turns do: the journal's writer only puts completions into a bounded queue, and a thread of
    its own makes the spans.

    Args:
        runtime: whose turns and numbers; what was committed before is not exported.
        tracer_provider, meter_provider: the host's; default: OpenTelemetry's global ones.

    Attributes:
        dropped: turns without a trace, because more than :data:`PENDING_MAX` waited or the tracer raised.

    Raises:
        UsageError: ``unsupported_capability``: OpenTelemetry is not installed; ``forked``.
    """

    def __init__(
        self,
        runtime: Runtime | AsyncRuntime,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        trace, metrics = _api()
        inner: Any = getattr(runtime, "_runtime", runtime)
        self._runtime: Runtime = inner
        self._runtime._check_here()  # noqa: SLF001 - one facade in two modules
        self.dropped = 0
        self._tracer: Tracer = trace.get_tracer(SCOPE, _version(), tracer_provider)
        self._changed = threading.Condition()
        self._pending: dict[TurnId, tuple[Completion, float]] = {}
        """Committed, delivery awaited: until that moment of the monotonic clock. In order of it."""
        self._ready: deque[tuple[Completion, float | None]] = deque()
        self._delays: deque[tuple[str, float]] = deque()
        self._delivered: dict[TurnId, float] = {}
        """Told as delivered before they were told as committed."""
        self._busy = False
        self._closed = False
        self._looked: tuple[float, Metrics] | None = None
        meter: Meter = metrics.get_meter(SCOPE, _version(), meter_provider)
        self._histograms = {
            boundary: meter.create_histogram(
                name, unit="s", description=text, explicit_bucket_boundaries_advisory=BOUNDS_S[boundary]
            )
            for boundary, (name, text) in _HISTOGRAM_OF.items()
        }
        self._observe(meter)
        self._thread = threading.Thread(target=self._work, name="lastword-otel", daemon=True)
        self._thread.start()
        self._untap = self._runtime._numbers.tap(self)  # noqa: SLF001

    def export_turn(self, turn_id: str) -> bool:
        """Make the trace of one settled turn on record, now, whether it was made before or not; False where it is not
        settled.

        Raises:
            UsageError: ``runtime_closed``.
        """
        completion = self._runtime.completion(turn_id)
        if completion is None:
            return False
        self._trace(completion, None)
        return True

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Export what waits, and follow no more. Idempotent; whether all was exported within ``timeout_s``. The host's
        providers stay open: flushing them is the host's.
        """
        self._untap()
        return self._drain(timeout_s, for_good=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- told by the runtime ------------------------------------------------------------------------------------------

    def committed(self, told: Sequence[Event]) -> None:
        """On the journal's writer: queued, and no more."""
        ended = [event.body.completion for event in told if isinstance(event.body, events.CompletionReached)]
        if not ended:
            return
        with self._changed:
            for completion in ended:
                if len(self._pending) + len(self._ready) >= PENDING_MAX:
                    self.dropped += 1
                    continue
                at = self._delivered.pop(completion.turn_id, None)
                if at is not None:
                    self._ready.append((completion, at))
                else:
                    self._pending[completion.turn_id] = (completion, time.monotonic() + DELIVERY_WAIT_S)
            self._changed.notify_all()

    def delivered(self, completion: Completion, at: float) -> None:
        """On the subscriber's thread: noted, and no more."""
        with self._changed:
            committed_at = completion.times.committed_at
            if committed_at is not None and len(self._delays) < PENDING_MAX:
                self._delays.append((completion.provider, max(0.0, at - committed_at)))
            waiting = self._pending.pop(completion.turn_id, None)
            if waiting is not None:
                self._ready.append((completion, at))
            else:
                self._delivered[completion.turn_id] = at
                if len(self._delivered) > PENDING_MAX:
                    del self._delivered[next(iter(self._delivered))]
            self._changed.notify_all()

    def closing(self) -> None:
        """The runtime ends, and its journal can still be read."""
        self._drain(CLOSE_S, for_good=True)

    # --- the exporter's thread ----------------------------------------------------------------------------------------

    def _drain(self, timeout_s: float, *, for_good: bool) -> bool:
        with self._changed:
            for completion, _ in self._pending.values():
                self._ready.append((completion, None))
            self._pending.clear()
            self._closed = self._closed or for_good
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._ready or self._delays or self._busy), timeout_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                if not self._due():
                    self._changed.wait(self._patience())
                self._give_up_waiting()
                if self._closed and not self._ready and not self._delays:
                    return
                ready, self._ready = self._ready, deque()
                delays, self._delays = self._delays, deque()
                self._busy = bool(ready or delays)
            for provider, seconds in delays:
                self._guarded(self._histograms["delivery"].record, seconds, {"provider": provider})
            for completion, at in ready:
                for boundary, seconds in waits(completion):
                    attributes = {"provider": completion.provider}
                    self._guarded(self._histograms[boundary].record, seconds, attributes)
                if not self._guarded(self._trace, completion, at):
                    self.dropped += 1

    def _due(self) -> bool:
        return bool(self._ready or self._delays or self._closed or self._patience() == 0.0)

    def _patience(self) -> float | None:
        """How long until the oldest has waited long enough for its delivery; None where none waits."""
        oldest = next(iter(self._pending.values()), None)
        return None if oldest is None else max(0.0, oldest[1] - time.monotonic())

    def _give_up_waiting(self) -> None:
        now = time.monotonic()
        for turn_id, (completion, until) in list(self._pending.items()):
            if until > now:
                return
            del self._pending[turn_id]
            self._ready.append((completion, None))

    @staticmethod
    def _guarded(call: Callable[..., object], *args: object) -> bool:
        """The host's provider may raise: that ends nothing here."""
        try:
            call(*args)
        except Exception:
            return False
        return True

    # --- spans --------------------------------------------------------------------------------------------------------

    def _trace(self, completion: Completion, delivered_at: float | None) -> None:
        try:
            story = self._runtime._journal.turn_events(completion.turn_id)  # noqa: SLF001
        except JournalError:
            story = []  # closed: the boundaries stand in the completion itself
        _Turn(self._tracer, completion, story, delivered_at).export()

    # --- instruments --------------------------------------------------------------------------------------------------

    def _observe(self, meter: Meter) -> None:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - an extra

        def of(read: Callable[[Metrics], Iterable[tuple[float, dict[str, str]]]]) -> Any:
            def observe(_: CallbackOptions) -> list[Observation]:
                seen = self._look()
                return [] if seen is None else [Observation(value, labels) for value, labels in read(seen)]

            return [observe]

        def by(label: str, values: Iterable[tuple[str, float]]) -> list[tuple[float, dict[str, str]]]:
            return [(value, {label: name}) for name, value in values]

        gauge, counter = meter.create_observable_gauge, meter.create_observable_counter
        gauge("lastword.sessions", of(lambda m: by("state", m.sessions.items())), "{session}", "Open sessions")
        gauge("lastword.turns.open", of(lambda m: [(m.open_turns, {})]), "{turn}", "Turns that are not settled")
        gauge("lastword.messages.waiting", of(lambda m: [(m.waiting_messages, {})]), "{message}", "In no turn yet")
        gauge(
            "lastword.mailbox.messages",
            of(lambda m: by("kind", ((box.kind, box.waiting) for box in m.mailboxes))),
            "{message}",
            "Messages that wait, by kind of actor",
        )
        gauge(
            "lastword.mailbox.deepest",
            of(lambda m: by("kind", ((box.kind, box.deepest) for box in m.mailboxes))),
            "{message}",
            "Messages in the fullest mailbox, by kind of actor",
        )
        counter(
            "lastword.dead_letters",
            of(lambda m: by("reason", m.dead_letters.items())),
            "{message}",
            "Messages and facts that nobody handled, by reason",
        )
        gauge("lastword.journal.behind", of(lambda m: [(m.journal.behind, {})]), "{batch}", "Not durable yet")
        counter(
            "lastword.completions",
            of(lambda m: [(each.count, {"provider": each.provider, "status": each.status}) for each in m.completions]),
            "{turn}",
            "Completions committed",
        )
        counter("lastword.late_terminals", of(lambda m: [(m.late_terminals, {})]), "{record}", "Dropped")
        counter("lastword.invariant_violations", of(lambda m: [(m.invariant_violations, {})]), "{state}", "Repaired")
        counter("lastword.journal.commits", of(lambda m: [(m.journal.commits, {})]), "{transaction}", "Transactions")
        counter("lastword.journal.batches", of(lambda m: [(m.journal.batches, {})]), "{batch}", "Batches in them")

    def _look(self) -> Metrics | None:
        """The numbers, at most :data:`LOOK_S` old; None once nobody is to be told any more."""
        if self._closed:
            return None
        now, seen = time.monotonic(), self._looked
        if seen is None or now - seen[0] > LOOK_S:
            try:
                seen = self._looked = (now, self._runtime.metrics())
            except LastwordError:
                return None  # a forked process
        return seen[1]


class _Turn:
    """The trace of one turn. Times are Unix seconds until a span is made."""

    def __init__(self, tracer: Tracer, done: Completion, story: Sequence[Event], delivered_at: float | None) -> None:
        self._tracer = tracer
        self._done = done
        self._story = story
        times = done.times
        crossed = (
            ("accepted", times.accepted_at),
            ("submitted", times.submitted_at),
            ("running", times.bound_at),
            ("settling", times.terminal_seen_at),
            ("committed", times.committed_at),
            ("delivered", delivered_at),
        )
        self._crossed: list[tuple[str, float]] = []
        at = 0.0
        for name, moment in crossed:
            if moment is not None:
                at = max(at, moment)  # a clock that was set back makes no span of negative length
                self._crossed.append((name, at))
        if not self._crossed:
            self._crossed.append(("committed", story[-1].at if story else time.time()))

    def export(self) -> None:
        from opentelemetry.context import Context  # noqa: PLC0415 - an extra
        from opentelemetry.trace import Status, StatusCode, set_span_in_context  # noqa: PLC0415

        done = self._done
        root = self._tracer.start_span(
            "lastword.turn",
            Context(),  # whatever is current in this thread: a turn is a trace of its own
            start_time=_ns(self._crossed[0][1]),
            attributes=self._attributes(),
        )
        if done.times.native_ended_at is not None:
            root.add_event("native terminal record", self._evidence(), _ns(done.times.native_ended_at))
        below = set_span_in_context(root, Context())
        running = below
        for (name, begin), (_, end) in zip(self._crossed, self._crossed[1:], strict=False):
            span = self._tracer.start_span(f"lastword.{name}", below, start_time=_ns(begin))
            if name == "running":
                running = set_span_in_context(span, Context())
            span.end(_ns(end))
        self._tools(running)
        if done.status == "completed":
            root.set_status(Status(StatusCode.OK))
        elif done.status in ("failed", "lost"):
            root.set_status(Status(StatusCode.ERROR, done.error.kind if done.error is not None else done.status))
        root.end(_ns(self._crossed[-1][1]))

    def _attributes(self) -> dict[str, str | int | bool]:
        done = self._done
        told: dict[str, str | int | bool | None] = {
            "session_id": done.session_id,
            "turn_id": done.turn_id,
            "message_id": done.message_id,
            "parent_turn_id": done.parent_turn_id,
            "native_turn_id": done.native_turn_id or None,
            "native_session_id": done.native_session_id or None,
            "provider": done.provider,
            "transport": done.transport,
            "cli_version": done.cli_version or None,
            "origin": done.origin,
            "status": done.status,
            "source": done.source,
            "error.kind": done.error.kind if done.error is not None else None,
            "joined": len(done.joined),
            "delivered": self._crossed[-1][0] == "delivered",
        }
        return {f"lastword.{name}": value for name, value in told.items() if value is not None}

    def _evidence(self) -> dict[str, str | int]:
        evidence = self._done.evidence
        if evidence is None:
            return {}
        told: dict[str, str | int] = {
            "lastword.evidence.source": evidence.source,
            "lastword.evidence.offset": evidence.offset,
        }
        return {**told, "lastword.evidence.native_id": evidence.native_id} if evidence.native_id else told

    def _tools(self, below: Any) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

        open_spans: dict[str, tuple[Span, float]] = {}
        last = self._crossed[-1][1]
        for event in self._story:
            body, at = event.body, event.native_at or event.at
            if isinstance(body, events.ToolStarted):
                attributes = {"lastword.tool.name": body.name, "lastword.tool.call_id": body.call_id}
                span = self._tracer.start_span("lastword.tool", below, start_time=_ns(at), attributes=attributes)
                open_spans[body.call_id] = span, at
            elif isinstance(body, events.ToolFinished) and body.call_id in open_spans:
                span, began = open_spans.pop(body.call_id)
                span.set_attribute("lastword.tool.status", body.status)
                if body.status == "error":
                    span.set_status(Status(StatusCode.ERROR))
                span.end(_ns(max(at, began)))
        for span, began in open_spans.values():
            span.set_attribute("lastword.tool.status", "no_result")
            span.end(_ns(max(last, began)))


def _ns(unix_s: float) -> int:
    return int(unix_s * 1e9)


def _version() -> str:
    from lastword import __version__  # noqa: PLC0415 - late

    return __version__


def _api() -> tuple[Any, Any]:
    try:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "unsupported_capability",
            "OpenTelemetry is not installed: it comes with the extra lastword[otel]",
            remedy="pip install 'lastword[otel]'",
        ) from error
    return trace, metrics


__all__ = ["OtelExporter"]
