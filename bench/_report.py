"""What every bench prints: markdown tables, and the same as JSON lines where ``LASTWORD_BENCH_TABLES`` names a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

TABLES_ENV = "LASTWORD_BENCH_TABLES"
QUICK_ENV = "LASTWORD_BENCH_QUICK"


def quick() -> bool:
    """Whether a short run is wanted: ``--quick`` on the command line (taken off it), or by the environment."""
    if "--quick" in sys.argv:
        sys.argv.remove("--quick")
        os.environ[QUICK_ENV] = "1"
    return bool(os.environ.get(QUICK_ENV))


QUICK = quick()
"""Each bench takes smaller counts then: a look, not a figure to quote."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of them do not exceed; nan where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print one table; floats with two decimals."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in row) + " |")
    if note:
        print(f"\n{note}")
    print(flush=True)
    target = os.environ.get(TABLES_ENV)
    if target:
        with Path(target).open("a") as file:
            table = {"title": title, "columns": list(columns), "rows": [list(row) for row in rows], "note": note}
            file.write(json.dumps(table) + "\n")


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
