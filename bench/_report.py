"""What every bench prints: markdown tables, and the same as JSON lines where ``LASTWORD_BENCH_TABLES`` names a file."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

TABLES_ENV = "LASTWORD_BENCH_TABLES"
SKIPPED = ": skipped"
"""How the title ends of a table that says only why there are no figures."""
QUICK_ENV = "LASTWORD_BENCH_QUICK"


def quick() -> bool:
    """Whether a short run is wanted: ``--quick`` on the command line (taken off it), or by the environment."""
    if "--quick" in sys.argv:
        sys.argv.remove("--quick")
        os.environ[QUICK_ENV] = "1"
    return bool(os.environ.get(QUICK_ENV))


QUICK = quick()
"""Each bench takes smaller counts then: a look, not a figure to quote."""

if TABLES_ENV in os.environ or Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parent:
    # a bench that is ended closes what it opened (tmux servers, folders), and all.py the bench that runs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of them do not exceed; nan where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print one table; floats with two decimals, and a dash where there is no figure."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(_text(column) for column in columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_cell(value) for value in row) + " |")
    if note:
        print(f"\n{note}")
    print(flush=True)
    target = os.environ.get(TABLES_ENV)
    if target:
        with Path(target).open("a") as file:
            plain = [[_plain(value) for value in row] for row in rows]
            table = {"title": title, "columns": list(columns), "rows": plain, "note": note}
            file.write(json.dumps(table, allow_nan=False) + "\n")


def skipped(what: str, why: object) -> None:
    """Say that something was not measured, and why: it is in the JSON too."""
    show(f"{what}{SKIPPED}", ["what", "why"], [[what, str(why).replace("\n", " ")]])


def _cell(value: object) -> str:
    value = _plain(value)
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else _text(str(value))


def _text(value: str) -> str:
    return value.replace("|", "\\|")


def _plain(value: object) -> object:
    """As JSON has it: no nan, no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
