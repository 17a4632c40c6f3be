"""The critical path of one turn as a picture: a lane per actor, a bar for each wait and handling, an arrow per cause.

A turn waits seconds for the CLI and microseconds for an actor: no linear axis shows both. So stretches grow slower than
their times, none is narrower than can be seen, and the axis tells the times at their borders; the table below tells
every hop in figures. Names come from a file that may be somebody else's: all text is escaped, and cut at a length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec

from lastword.runtime._trace import Step, Trace, role
from lastword.runtime._trace_path import CriticalPath, Piece
from lastword.runtime._trace_perfetto import lane_name

WIDTH = 1000
LEFT, RIGHT, TOP = 150, 20, 92
LANE, BAR, ROW = 38, 16, 17
NARROWEST = 9.0
"""Of a stretch; a path of so many that they do not fit makes the picture wider."""
FLATTEN = 0.35
"""The exponent by which widths follow times."""
TICK_ROOM = 64
TEXT_MAX = 60
STEPS_MAX = 500
"""Hops drawn of a path: the last ones. A path has some twenty."""

WAIT, HANDLING, OUTSIDE, INK, FAINT = "#f2b35c", "#3b6fb5", "#c3c8cf", "#1c2330", "#6b7480"
OUTSIDE_LANE = "outside"

_NEVER_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Hop(msgspec.Struct, kw_only=True):
    """A step with its two stretches, or a stretch outside of all actors."""

    number: int
    step: Step | None
    lane: str
    told_ns: int
    begin_ns: int
    end_ns: int
    what: str = ""


def svg(found: CriticalPath, trace: Trace) -> str:
    """The picture, as the text of an SVG file."""
    return "\n".join(_Picture(found, trace).whole())


def _hops(pieces: tuple[Piece, ...]) -> list[_Hop]:
    hops: list[_Hop] = []
    for piece in pieces:
        last = hops[-1] if hops else None
        if last is not None and piece.step is not None and last.step is piece.step:
            last.end_ns = piece.end_ns  # its handling, behind its wait
            continue
        hops.append(
            _Hop(
                number=len(hops) + 1,
                step=piece.step,
                lane=piece.step.receiver if piece.step is not None else OUTSIDE_LANE,
                told_ns=piece.begin_ns,
                begin_ns=piece.end_ns if piece.kind == "wait" else piece.begin_ns,
                end_ns=piece.end_ns,
                what=piece.what or "outside" if piece.step is None else piece.step.message,
            )
        )
    return hops


class _Picture:
    def __init__(self, found: CriticalPath, trace: Trace) -> None:
        self._found = found
        self._others = len(trace.of(found.turn))
        self._lost = trace.lost
        hops = _hops(found.pieces)
        self._left_out = max(0, len(hops) - STEPS_MAX)
        self._hops = hops[self._left_out :]
        self._begin_ns = found.pieces[0].begin_ns
        lanes = dict.fromkeys(hop.lane for hop in self._hops if hop.step is not None)
        if any(hop.step is None for hop in self._hops):
            lanes[OUTSIDE_LANE] = None
        self._lanes = {lane: TOP + number * LANE for number, lane in enumerate(lanes)}
        self._foot = TOP + len(self._lanes) * LANE
        self._scale()

    def _scale(self) -> None:
        """Where each moment stands: borders of stretches, and straight lines between them."""
        moments = sorted({ns for hop in self._hops for ns in (hop.told_ns, hop.begin_ns, hop.end_ns)})
        spans = [after - before for before, after in pairwise(moments)]
        self._width = max(WIDTH, round(LEFT + RIGHT + len(spans) * NARROWEST * 1.5))
        free = self._width - LEFT - RIGHT - len(spans) * NARROWEST
        flat = [span**FLATTEN for span in spans]
        sum_of_all = sum(flat) or 1.0
        at = float(LEFT)
        self._x = {moments[0]: at}
        for moment, share in zip(moments[1:], flat, strict=True):
            at += NARROWEST + free * share / sum_of_all
            self._x[moment] = at

    def whole(self) -> Iterator[str]:
        height = self._foot + 56 + (len(self._hops) + 1) * ROW + 24
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._width}" height="{height}" '
            f'viewBox="0 0 {self._width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="11" '
            f'fill="{INK}">'
        )
        yield '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">'
        yield f'<path d="M0,0 L6,3 L0,6 z" fill="{FAINT}"/></marker></defs>'
        yield f'<rect width="{self._width}" height="{height}" fill="white"/>'
        yield from self._heading()
        yield from self._axis()
        yield from self._arrows()
        for hop in self._hops:
            yield from self._bars(hop)
        yield from self._table()
        yield "</svg>"

    def _heading(self) -> Iterator[str]:
        found = self._found
        rest = "" if found.whole else ", as far as the trace tells"
        yield _text(16, 24, f"turn {found.turn}{rest}", size=15, weight="bold", most=TEXT_MAX + 30)
        measured = found.measured_ms if found.whole else None
        beside = (
            "not measured otherwise" if measured is None else f"measured by the completion's stamps: {_ms(measured)} ms"
        )
        sums = ", ".join(f"{kind} {_ms(found.sum_ns(kind) / 1e6)}" for kind in ("wait", "handling", "outside"))
        yield _text(16, 43, f"{_ms(found.total_ns / 1e6)} ms by the hops ({sums}); {beside}", most=200)
        x = 16.0
        for fill, word, wide in (
            (WAIT, "waits in a queue", 112),
            (HANDLING, "is handled", 82),
            (OUTSIDE, "outside", 66),
        ):
            yield f'<rect x="{x:.1f}" y="54" width="12" height="10" fill="{fill}"/>'
            yield _text(x + 17, 63, word, fill=FAINT)
            x += wide + 17
        note = "Widths grow slower than times; the axis and the table are exact."
        if self._left_out:
            note += f" {self._left_out} earlier hops are left out."
        yield _text(
            x, 63, f"{note} Hops of the turn in all: {self._others}; records lost: {self._lost}", fill=FAINT, most=200
        )

    def _axis(self) -> Iterator[str]:
        for lane, y in self._lanes.items():
            name = OUTSIDE_LANE if lane == OUTSIDE_LANE else lane_name(lane)
            yield f'<line x1="{LEFT}" y1="{y + 30}" x2="{self._width - RIGHT}" y2="{y + 30}" stroke="#e6e9ed"/>'
            yield _text(LEFT - 10, y + 25, name, anchor="end", most=22)
        y = self._foot + 6
        yield f'<line x1="{LEFT}" y1="{y}" x2="{self._width - RIGHT}" y2="{y}" stroke="{FAINT}"/>'
        moments = list(self._x)
        last, end = float("-inf"), self._x[moments[-1]]
        for ns in moments:
            x = self._x[ns]
            labelled = ns == moments[-1] or (x - last >= TICK_ROOM and end - x >= TICK_ROOM)
            yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + (7 if labelled else 3)}" stroke="{FAINT}"/>'
            if labelled:
                last = x
                yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y}" stroke="#eef0f3"/>'
                anchor = "end" if ns == moments[-1] else "start" if ns == moments[0] else "middle"
                yield _text(x, y + 19, _ms((ns - self._begin_ns) / 1e6), anchor=anchor, fill=FAINT)
        yield _text(LEFT - 10, y + 19, "ms since the first", anchor="end", fill=FAINT)

    def _middle(self, hop: _Hop) -> float:
        return self._lanes[hop.lane] + 14 + BAR / 2

    def _arrows(self) -> Iterator[str]:
        for before, hop in pairwise(self._hops):
            begin, end = self._middle(before), self._middle(hop)
            if begin == end:
                continue
            x, down = self._x[hop.told_ns], 1 if end > begin else -1
            yield (
                f'<line class="cause" x1="{x:.1f}" y1="{begin:.1f}" x2="{x:.1f}" y2="{end - down * BAR / 2:.1f}" '
                f'stroke="{FAINT}" marker-end="url(#tip)"/>'
            )

    def _bars(self, hop: _Hop) -> Iterator[str]:
        y = self._lanes[hop.lane] + 14
        told, begin, end = (self._x[ns] for ns in (hop.told_ns, hop.begin_ns, hop.end_ns))
        tip = quoteattr(_clean(f"{hop.number} {hop.what}", TEXT_MAX))
        yield f'<g class="hop" aria-label={tip}>'
        if hop.step is None:
            yield _bar("outside", told, end, y, OUTSIDE)
            room = int((end - told) / 6)
            if room > 8:
                yield _text((told + end) / 2, y + 12, hop.what, anchor="middle", most=room)
        else:
            if begin > told:
                yield _bar("wait", told, begin, y, WAIT)
            yield _bar("handling", begin, max(end, begin + 2.0), y, HANDLING)  # a moment is seen too
        yield _text((told + end) / 2, y - 3, str(hop.number), anchor="middle", size=9, fill=FAINT)
        yield "</g>"

    def _table(self) -> Iterator[str]:
        y = self._foot + 54
        columns = (*((x, "end") for x in (46, 116, 176, 246, 326)), *((x, "start") for x in (346, 456, 810)))
        heads = ("HOP", "AT MS", "WAIT", "HANDLING", "OUTSIDE", "ACTOR", "MESSAGE", "FROM")

        def row(y: float, cells: tuple[str, ...], **look: Any) -> Iterator[str]:
            for (x, anchor), cell, most in zip(columns, cells, (8, 14, 12, 14, 14, 18, 54, 30), strict=True):
                yield _text(x, y, cell, anchor=anchor, most=most, **look)

        yield from row(y, heads, fill=FAINT, weight="bold")
        for hop in self._hops:
            y += ROW
            step = hop.step
            number, at = str(hop.number), _ms((hop.told_ns - self._begin_ns) / 1e6)
            wait, handling = (_ms(ns / 1e6) for ns in (hop.begin_ns - hop.told_ns, hop.end_ns - hop.begin_ns))
            if step is None:
                told = (number, at, "", "", handling, OUTSIDE_LANE, hop.what, "")
            else:
                sender = role(step.sender) or step.origin or ""
                told = (number, at, wait, handling, "", role(step.receiver), step.message, sender)
            yield from row(y, told)


def _bar(kind: str, begin: float, end: float, y: int, fill: str) -> str:
    return f'<rect class="{kind}" x="{begin:.1f}" y="{y}" width="{end - begin:.1f}" height="{BAR}" fill="{fill}"/>'


def _clean(text: str, most: int) -> str:
    """What XML may hold, on one line."""
    text = _NEVER_IN_XML.sub("�", text).replace("\n", " ").replace("\t", " ")
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 11,
    weight: str = "normal",
    fill: str = INK,
    most: int = TEXT_MAX,
) -> str:
    look = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{fill}"'
    escaped = _clean(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escaped}</text>'


def _ms(value: float) -> str:
    return f"{value:.3f}"
