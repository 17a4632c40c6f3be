"""The report of a stress run: its table as markdown, the same as JSON, and a chart (SVG, both axes logarithmic)."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from _report import show

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
LEAST = 1e-3
"""What is less is drawn there: a logarithm has no zero."""


def report(
    out: Path,
    stem: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    lines: Sequence[str],
    over: str,
    drawn: Sequence[Sequence[Any]] = (),
    note: str = "",
) -> None:
    """Print the table, and write ``stem``.md, .json and (where there is a row) .svg into a folder.

    Args:
        lines: the columns that are drawn, milliseconds.
        over: the column on the other axis, a count.
        drawn: the rows that are drawn; none: all.
    """
    text = io.StringIO()
    with redirect_stdout(text):
        show(title, columns, rows, note)
    print(text.getvalue(), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    (out / f"{stem}.md").write_text(text.getvalue().lstrip())
    (out / f"{stem}.json").write_text(json.dumps(named, indent=1))
    points = [dict(zip(columns, row, strict=True)) for row in drawn] or named
    if points:
        (out / f"{stem}.svg").write_text(chart(points, lines, over))


def chart(points: Sequence[dict[str, Any]], lines: Sequence[str], over: str) -> str:
    """An SVG: milliseconds over a count."""
    values = [max(point[name], LEAST) for point in points for name in lines if not math.isnan(point[name])]
    values = values or [LEAST]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    most = max(1.0, math.log10(max(point[over] for point in points)))

    def at(count: float, value: float) -> tuple[float, float]:
        share = (math.log10(max(value, LEAST)) - low) / max(1, high - low)
        return 70 + 480 * math.log10(count) / most, 330 - 290 * share

    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="720" height="390" font-family="sans-serif" font-size="12">']
    out.append('<rect width="720" height="390" fill="white"/>')
    for power in range(low, high + 1):
        _, y = at(1, 10**power)
        label = f'<text x="62" y="{y + 4:.0f}" text-anchor="end">{10**power:g}</text>'
        out.append(f'<path d="M70 {y:.0f}H550" stroke="#ddd"/>{label}')
    for point in points:
        x, _ = at(point[over], 1)
        out.append(f'<text x="{x:.0f}" y="348" text-anchor="middle">{point[over]}</text>')
    for place, (name, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        dots = [at(point[over], point[name]) for point in points if not math.isnan(point[name])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in dots]
        out.append(f'<text x="570" y="{60 + 20 * place}" fill="{colour}">{name}</text>')
    out.append(f'<text x="310" y="375" text-anchor="middle">{over} at the same time</text>')
    out.append('<text x="18" y="185" transform="rotate(-90 18 185)" text-anchor="middle">milliseconds</text></svg>')
    return "\n".join(out)
