"""A trace in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process per host, one thread (a *lane*) per actor and per part of the outside. Each handling is a complete event
(``X``); an arrow (``s`` to ``f``) leads from where a message was told to where its handling began, so its length is the
wait; the waits themselves are asynchronous events (``b`` to ``e``) beside the lanes. Batches of one transaction are one
slice. ``ts`` and ``dur`` are microseconds, to the nanosecond.

What a reader of the format does, seen in Perfetto's own importer: events are taken in the order of ``ts``; a flow event
belongs to the slice that is open on its thread then, an ``f`` only with ``bp: "e"``; flows are told apart by id (a
number), category and name together; a thread's name goes by its ``tid`` alone, so no two threads of a file share one.

A step makes some five events, each larger than itself: an event is made when it is written. What is sorted are steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec

from lastword.runtime._trace import Step, Trace, role

MOMENT_NS = 1000
"""How wide something without a duration is drawn, where the next thing on its lane leaves room."""
TAIL_CHARS = 6
"""Of an id, to tell lanes apart."""
PIECE_EVENTS = 1000
"""Events in a piece: some 150 kB."""

_Lane = tuple[str, str]
_Timed = tuple[int, dict[str, Any]]
"""An event and its nanosecond."""


class _Slice(NamedTuple):
    lane: _Lane
    begin_ns: int
    end_ns: int
    step: Step
    outside: bool = False


def perfetto(trace: Trace, steps: Iterable[Step] | None = None) -> Iterator[bytes]:
    """The JSON object, in pieces. ``steps``: only these; default: all."""
    return _Drawing(trace, trace.steps if steps is None else {step.key: step for step in steps}).pieces()


def lane_name(actor: str) -> str:
    """What an actor's lane is called: its part, and enough of its ids."""
    head, _, tail = actor.partition("/")
    part = role(actor)
    if part == "session":
        return f"session {head[-TAIL_CHARS:]}"
    if not tail:
        return actor
    if part == "turn":
        turn, _, epoch = tail.partition("#")
        return f"turn {turn[-TAIL_CHARS:]}" + (f" #{epoch}" if epoch not in ("", "1") else "")
    return f"{part} {head[-TAIL_CHARS:]}"


class _Drawing:
    def __init__(self, trace: Trace, steps: dict[tuple[str, int], Step]) -> None:
        self._trace = trace
        self._steps = steps
        self._pids = {process: number for number, process in enumerate(trace.heads, 1)}
        first = next(iter(trace.heads.values()))
        self._shift = {
            process: round((head.wall_s - first.wall_s) * 1e9) - head.at_ns for process, head in trace.heads.items()
        }
        zero = min(map(self._told_ns, steps.values()), default=0)
        self._shift = {process: shift - zero for process, shift in self._shift.items()}
        self._in_order = sorted(steps.values(), key=self._begun_ns)
        self._numbers: dict[tuple[str, int], int] = {}
        """Of what has an arrow or a wait."""
        self._groups: dict[tuple[str, int], list[Step]] = {}
        """The batches of each transaction, which are one slice."""
        for step in self._in_order:
            if self._has_arrow(step) or step.wait_ns > 0:
                self._numbers[step.key] = len(self._numbers) + 1
            if step.kind == "commit":
                self._groups.setdefault((step.key[0], step.started_ns), []).append(step)
        told = [step for step in self._in_order if step.origin is not None and step.cause not in steps]
        lanes = chain(map(self._lane, self._in_order), (self._moment(step).lane for step in told))
        self._tids = {lane: number for number, lane in enumerate(dict.fromkeys(lanes), 1)}
        self._told_outside = sorted(told, key=self._told_ns)

    def pieces(self) -> Iterator[bytes]:
        """The whole file, piece by piece."""
        encoder, events, before = msgspec.json.Encoder(), self._events(), b'{"traceEvents":['
        while some := list(islice(events, PIECE_EVENTS)):
            yield before + encoder.encode(some)[1:-1]
            before = b","
        other = {"source": "lastword", "lost": self._trace.lost, "older": self._trace.older}
        yield b'],"displayTimeUnit":"ms","otherData":' + encoder.encode(other) + b"}"

    def _events(self) -> Iterator[dict[str, Any]]:
        """In order; of the same time, in that of the kinds: a flow needs its slice."""
        yield from self._names()
        kinds = (self._wait_ends(), self._complete(), self._wait_begins(), self._arrow_begins(), self._arrow_ends())
        for _, event in merge(*kinds, key=itemgetter(0)):
            yield event

    def _told_ns(self, step: Step) -> int:
        return step.enqueued_ns + self._shift[step.key[0]]

    def _begun_ns(self, step: Step) -> int:
        return step.started_ns + self._shift[step.key[0]]

    def _lane(self, step: Step) -> _Lane:
        return step.key[0], step.receiver

    def _place(self, lane: _Lane) -> dict[str, int]:
        return {"pid": self._pids[lane[0]], "tid": self._tids[lane]}

    def _has_arrow(self, step: Step) -> bool:
        return step.origin is not None or step.cause in self._steps

    def _batches(self, step: Step) -> list[Step]:
        """What is one slice with it, itself included."""
        return self._groups[step.key[0], step.started_ns] if step.kind == "commit" else [step]

    def _handling(self, step: Step) -> _Slice:
        first = self._batches(step)[0]
        begin_ns = self._begun_ns(first)
        return _Slice(self._lane(first), begin_ns, begin_ns + first.handling_ns, first)

    def _moment(self, step: Step) -> _Slice:
        """What the outside told has a moment on a lane of its own."""
        at_ns = self._told_ns(step)
        return _Slice((step.key[0], step.origin or ""), at_ns, at_ns, step, outside=True)

    def _slices(self) -> Iterator[_Slice]:
        """In the order of their beginnings."""
        handlings = (self._handling(step) for step in self._in_order if self._batches(step)[0] is step)
        return merge(handlings, map(self._moment, self._told_outside), key=attrgetter("begin_ns"))

    def _narrow(self) -> dict[int, int]:
        """Moments, by their place among the slices, that reach into what follows on their lane unless made so wide."""
        widths: dict[int, int] = {}
        last: dict[_Lane, tuple[int, int]] = {}
        for number, each in enumerate(self._slices()):
            moment = last.pop(each.lane, None)
            if moment is not None and each.begin_ns - moment[1] < MOMENT_NS:
                widths[moment[0]] = each.begin_ns - moment[1]
            if each.begin_ns == each.end_ns:
                last[each.lane] = number, each.begin_ns
        return widths

    def _complete(self) -> Iterator[_Timed]:
        narrow = self._narrow()
        for number, each in enumerate(self._slices()):
            batches = len(self._batches(each.step))
            event = {
                "ph": "X",
                "cat": "outside" if each.outside else "actor",
                "name": each.step.message if each.outside or batches == 1 else f"commit ×{batches}",
                "ts": each.begin_ns / 1000,
                "dur": (each.end_ns - each.begin_ns or narrow.get(number, MOMENT_NS)) / 1000,
                **self._place(each.lane),
                "args": {} if each.outside else self._args(each.step, batches),
            }
            yield each.begin_ns, event

    def _args(self, step: Step, batches: int) -> dict[str, Any]:
        args: dict[str, Any] = {"id": step.key[1], "actor": step.receiver}
        if step.kind == "commit":
            args["batches"] = batches
        args |= {
            "cause": step.cause[1] if step.cause is not None else 0,
            "trace": step.turn,
            "sender": step.sender,
            "origin": step.origin,
            "wait_us": step.wait_ns / 1000,
            "handling_us": step.handling_ns / 1000,
        }
        if step.raised:
            args["raised"] = True
        return args

    def _arrow_from(self, step: Step) -> tuple[int, _Lane]:
        """Within the slice that it was told in."""
        cause = self._steps.get(step.cause) if step.cause is not None else None
        told_in = self._moment(step) if cause is None else self._handling(cause)
        return max(told_in.begin_ns, min(self._told_ns(step), told_in.end_ns - 1)), told_in.lane

    def _arrow_begins(self) -> Iterator[_Timed]:
        arrows = filter(self._has_arrow, self._in_order)
        for step in sorted(arrows, key=lambda step: self._arrow_from(step)[0]):
            at_ns, lane = self._arrow_from(step)
            yield at_ns, {"ph": "s", "ts": at_ns / 1000, **self._place(lane), **self._arrow(step)}

    def _arrow_ends(self) -> Iterator[_Timed]:
        for step in filter(self._has_arrow, self._in_order):
            at_ns = self._begun_ns(step)
            place = self._place(self._lane(step))
            yield at_ns, {"ph": "f", "bp": "e", "ts": at_ns / 1000, **place, **self._arrow(step)}

    def _arrow(self, step: Step) -> dict[str, Any]:
        return {"cat": "tell", "name": "tell", "id": self._numbers[step.key]}

    def _wait_begins(self) -> Iterator[_Timed]:
        waits = (step for step in self._in_order if step.wait_ns > 0)
        for step in sorted(waits, key=self._told_ns):
            at_ns = self._told_ns(step)
            args = {"message": step.message, "id": step.key[1]}
            yield at_ns, {"ph": "b", "ts": at_ns / 1000, **self._wait(step), "args": args}

    def _wait_ends(self) -> Iterator[_Timed]:
        for step in self._in_order:
            if step.wait_ns > 0:
                at_ns = self._begun_ns(step)
                yield at_ns, {"ph": "e", "ts": at_ns / 1000, **self._wait(step)}

    def _wait(self, step: Step) -> dict[str, Any]:
        lane = self._lane(step)
        name = f"queue of {lane_name(step.receiver)}"
        return {"cat": "queue", "name": name, "id": self._numbers[step.key], **self._place(lane)}

    def _names(self) -> Iterator[dict[str, Any]]:
        for process, pid in self._pids.items():
            name = f"lastword, process {self._trace.heads[process].pid}"
            yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for lane, tid in self._tids.items():
            place = self._place(lane)
            yield {"ph": "M", "name": "thread_name", **place, "args": {"name": lane_name(lane[1])}}
            yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": tid}}
