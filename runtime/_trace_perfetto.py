"""A trace in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process per host, one thread (a *lane*) per actor and per part of the outside. Each handling is a complete event
(``X``); an arrow (``s`` to ``f``) leads from where a message was told to where its handling began, so its length is the
wait; the waits themselves are asynchronous events (``b`` to ``e``) beside the lanes. Batches of one transaction are one
slice. ``ts`` and ``dur`` are microseconds, to the nanosecond.

What a reader of the format does, seen in Perfetto's own importer: events are taken in the order of ``ts``; a flow event
belongs to the slice that is open on its thread then, an ``f`` only with ``bp: "e"``; flows are told apart by id (a
number), category and name together; a thread's name goes by its ``tid`` alone, so no two threads of a file share one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lastword.runtime._trace import DISK, Step, Trace, role

MOMENT_NS = 1000
"""How wide something without a duration is drawn, where the next thing on its lane leaves room."""
TAIL_CHARS = 6
"""Of an id, to tell lanes apart."""

_RANKS = {"M": 0, "e": 1, "X": 2, "b": 3, "s": 4, "f": 5}
"""What comes first of what has the same time: a flow needs its slice."""


class _Slice(msgspec.Struct, kw_only=True):
    lane: tuple[str, str]
    name: str
    begin_ns: int
    end_ns: int
    args: dict[str, Any]


def perfetto(trace: Trace, steps: Iterable[Step] | None = None) -> dict[str, Any]:
    """The object to be written as JSON. ``steps``: only these; default: all."""
    return _Drawing(trace, list(trace.steps.values() if steps is None else steps)).whole()


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
    def __init__(self, trace: Trace, steps: list[Step]) -> None:
        self._trace = trace
        self._steps = {step.key: step for step in steps}
        self._pids = {process: number for number, process in enumerate(trace.heads, 1)}
        self._tids: dict[tuple[str, str], int] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._slices: dict[tuple[Any, ...], _Slice] = {}
        """By what they are one slice for."""
        first = next(iter(trace.heads.values()))
        self._shift = {
            process: round((head.wall_s - first.wall_s) * 1e9) - head.at_ns for process, head in trace.heads.items()
        }
        self._zero = min((self._at(step, step.enqueued_ns) for step in steps), default=0)

    def whole(self) -> dict[str, Any]:
        """All events, in order."""
        steps = sorted(self._steps.values(), key=lambda step: self._at(step, step.started_ns))
        for step in steps:
            self._slice(step)
        flows = [event for step in steps for event in (*self._flow(step), *self._wait(step))]
        self._make_room()
        events = [*map(self._complete, self._slices.values()), *flows]
        events.sort(key=lambda event: (event["ts"], _RANKS[event["ph"]]))
        for event in events:
            event["ts"] = event["ts"] / 1000
        other = {"source": "lastword", "lost": self._trace.lost, "older": self._trace.older}
        return {"traceEvents": [*self._names(), *events], "displayTimeUnit": "ms", "otherData": other}

    def _at(self, step: Step, ns: int) -> int:
        return ns + self._shift[step.key[0]]

    def _lane(self, process: str, actor: str) -> tuple[str, str]:
        lane = (process, actor)
        self._tids.setdefault(lane, len(self._tids) + 1)
        return lane

    def _slice_of(self, step: Step) -> tuple[Any, ...]:
        """Batches of one transaction are one."""
        return (step.key[0], DISK, step.started_ns) if step.kind == "commit" else step.key

    def _slice(self, step: Step) -> None:
        key = self._slice_of(step)
        known = self._slices.get(key)
        if known is not None:
            known.args["batches"] += 1
            known.name = f"commit ×{known.args['batches']}"
            return
        args: dict[str, Any] = {"id": step.key[1], "actor": step.receiver}
        if step.kind == "commit":
            args["batches"] = 1
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
        self._slices[key] = _Slice(
            lane=self._lane(step.key[0], step.receiver),
            name=step.message,
            begin_ns=self._at(step, step.started_ns),
            end_ns=self._at(step, step.ended_ns),
            args=args,
        )

    def _told_in(self, step: Step) -> _Slice | None:
        """The slice that its arrow starts from; what the outside told has a moment on a lane of its own."""
        cause = self._steps.get(step.cause) if step.cause is not None else None
        if cause is not None:
            return self._slices[self._slice_of(cause)]
        if step.origin is None:
            return None
        at = self._at(step, step.enqueued_ns)
        moment = _Slice(lane=self._lane(step.key[0], step.origin), name=step.message, begin_ns=at, end_ns=at, args={})
        self._slices["outside", *step.key] = moment
        return moment

    def _flow(self, step: Step) -> list[dict[str, Any]]:
        told_in = self._told_in(step)
        if told_in is None:
            return []
        told = max(told_in.begin_ns, min(self._at(step, step.enqueued_ns), told_in.end_ns - 1))
        flow = {"cat": "tell", "name": "tell", "id": self._number(step)}
        own = self._slices[self._slice_of(step)]
        return [
            {"ph": "s", "ts": told - self._zero, **self._place(told_in.lane), **flow},
            {"ph": "f", "bp": "e", "ts": own.begin_ns - self._zero, **self._place(own.lane), **flow},
        ]

    def _wait(self, step: Step) -> list[dict[str, Any]]:
        if step.wait_ns <= 0:
            return []
        lane = self._slices[self._slice_of(step)].lane
        wait = {"cat": "queue", "name": f"queue of {self._label(lane)}", "id": self._number(step), **self._place(lane)}
        begin, end = self._at(step, step.enqueued_ns), self._at(step, step.started_ns)
        return [
            {"ph": "b", "ts": begin - self._zero, **wait, "args": {"message": step.message, "id": step.key[1]}},
            {"ph": "e", "ts": end - self._zero, **wait},
        ]

    def _number(self, step: Step) -> int:
        return self._numbers.setdefault(step.key, len(self._numbers) + 1)

    def _make_room(self) -> None:
        """Give moments a width to be seen by, none that reaches into what follows on the lane."""
        lanes: dict[tuple[str, str], list[_Slice]] = {}
        for each in self._slices.values():
            lanes.setdefault(each.lane, []).append(each)
        for slices in lanes.values():
            slices.sort(key=lambda each: each.begin_ns)
            for each, after in zip(slices, [*slices[1:], None], strict=True):
                if each.end_ns == each.begin_ns:
                    room = after.begin_ns - each.begin_ns if after is not None else MOMENT_NS
                    each.end_ns += min(MOMENT_NS, room)

    def _complete(self, each: _Slice) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": "outside" if not each.args else "actor",
            "name": each.name,
            "ts": each.begin_ns - self._zero,
            "dur": (each.end_ns - each.begin_ns) / 1000,
            **self._place(each.lane),
            "args": each.args,
        }

    def _place(self, lane: tuple[str, str]) -> dict[str, int]:
        return {"pid": self._pids[lane[0]], "tid": self._tids[lane]}

    def _label(self, lane: tuple[str, str]) -> str:
        return lane_name(lane[1])

    def _names(self) -> list[dict[str, Any]]:
        names: list[dict[str, Any]] = []
        for process, pid in self._pids.items():
            name = f"lastword, process {self._trace.heads[process].pid}"
            names.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        for lane, tid in self._tids.items():
            place = self._place(lane)
            names.append({"ph": "M", "name": "thread_name", **place, "args": {"name": self._label(lane)}})
            names.append({"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": tid}})
        return names
