"""What tracing costs: CPU of the whole process a turn, with a trace and without, on the in-process transport.

Pairs run alternately, each run in a process of its own, so that neither inherits the other's memory; the order within a
pair changes from pair to pair. The figure is the median over pairs of on / off. Prints figures, asserts nothing.
Usage: python bench/tracing_cost.py [--pairs 9] [--sessions 8] [--turns 60] [--durability process] [--folder DIR]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _report import percentile, show

from lastword import Runtime
from lastword.runtime._edge import Edge
from lastword.transports.memory import MemoryWorld

WARM_UP = 5
RUN_MAX_S = 120.0


def edge() -> Edge:
    world = MemoryWorld()
    return Edge(transport=world, files=world, wakes=world, close=world.close)


def one_run(folder: str, traced: bool, sessions: int, turns: int, durability: Any) -> None:
    """Prints milliseconds of CPU a turn, and bytes and lines of trace a turn; a host thread for each session."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bench-") as name:
        file = Path(name) / "trace.jsonl"
        with Runtime.open(Path(name) / "s", edge=edge(), durability=durability, trace=file if traced else None) as host:
            opened = [host.session("memory") for _ in range(sessions)]

            def work(session: Any, count: int) -> None:
                for n in range(count):
                    session.run(f"p{n}")

            def all_work(count: int) -> None:
                threads = [threading.Thread(target=work, args=(session, count)) for session in opened]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            all_work(WARM_UP)
            before = time.process_time()
            all_work(turns)
        spent = time.process_time() - before  # the end too: what waits is written there
        data = file.read_bytes() if traced else b""
        of_all = sessions * (turns + WARM_UP)
        print(spent / (sessions * turns) * 1e3, len(data) / of_all, data.count(b"\n") / of_all)


def measured(options: argparse.Namespace, traced: bool) -> list[float]:
    words = [f"--run={'on' if traced else 'off'}", f"--sessions={options.sessions}", f"--turns={options.turns}"]
    words += [f"--durability={options.durability}", f"--folder={options.folder}"]
    done = subprocess.run(
        [sys.executable, __file__, *words], check=True, capture_output=True, text=True, timeout=RUN_MAX_S
    )
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=60, help="of each session")
    parser.add_argument("--durability", choices=["process", "power"], default="process")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    parser.add_argument("--run", choices=["on", "off"], help="one run only, raw figures")
    options = parser.parse_args()
    if options.run:
        one_run(options.folder, options.run == "on", options.sessions, options.turns, options.durability)
        return
    off: list[float] = []
    on: list[float] = []
    size: list[float] = []
    for pair in range(options.pairs):
        for traced in (True, False) if pair % 2 else (False, True):
            figures = measured(options, traced)
            (on if traced else off).append(figures[0])
            size = figures[1:] if traced else size
    ratios = [(b / a - 1) * 100 for a, b in zip(off, on, strict=True)]
    row = [options.durability, len(ratios), statistics.median(off), statistics.median(on), statistics.median(ratios)]
    row += [percentile(ratios, 0.25), percentile(ratios, 0.75), min(on) / min(off) * 100 - 100, *size]
    show(
        f"CPU a turn with a trace and without, in-process transport, {options.sessions} sessions",
        ["durability", "pairs", "off ms", "on ms", "more %", "p25 %", "p75 %", "min/min %", "bytes/turn", "lines/turn"],
        [row],
        "CPU of the whole process, user and system; `more` is the median over pairs.",
    )


if __name__ == "__main__":
    main()
