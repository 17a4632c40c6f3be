"""N real panes times M turns on the scripted CLI, with faults mixed in; every turn is held against what its prompt asked for:
what its caller got, what a subscriber was told (of up to 39 panes all have one) and what the journal holds (bench/_account.py). Latency is from the end read in the record to its commit; CPU is this process's,
not the CLIs'. Ends with 1 where anything is early, missing, double or wrong, or a call raises or does not return; a signal
ends it, and its panes, with a report of what was done. Usage: python bench/stress_panes.py [--sessions 1,10,100] [--turns 10]
[--out stress-report]
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from pathlib import Path

from _account import KINDS, NOTE, red
from _arguments import check_product, count, counts, folder
from _chart import report
from _ending import Ending
from _report import percentile
from stress_memory import descriptors

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fault_rig import load

PANES_MAX, TURNS_MAX, ALL_MAX = 1_000, 10_000, 100_000
COLUMNS = ["panes", "followed", "turns", *KINDS, "p50 ms", "p90 ms", "p99 ms", "turns/s"]
COLUMNS += ["CPU ms/turn", "peak RSS MiB", "threads before", "threads after", "fds before", "fds after"]
LINES = ("p50 ms", "p99 ms", "CPU ms/turn")


def row(panes: int, turns: int, seed: int, ending: Ending) -> list[object]:
    before = [threading.active_count(), descriptors()]
    began, cpu = time.perf_counter(), time.process_time()
    tally = load(panes, turns, seed, slow=True, say=True, ending=ending)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    tally.account.tell()
    tail = [percentile(tally.latencies_ms, share) for share in (0.5, 0.9, 0.99)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = [*tail, tally.turns / wall_s, cpu_s / max(1, tally.turns) * 1e3, round(peak)]
    found = [tally.account.followed, tally.turns, *tally.account.counts()]
    return [panes, *found, *figures, before[0], threading.active_count(), before[1], descriptors()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=counts(PANES_MAX), default="1,10,100", help="panes at the same time")
    parser.add_argument("--turns", type=count(TURNS_MAX), default=10, help="of each pane")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=folder, default="stress-report", help="folder of panes.json, .md and .svg")
    args = parser.parse_args(argv)
    check_product(parser, args.sessions, args.turns, ALL_MAX)
    rows: list[list[object]] = []
    with Ending() as ending:
        for panes in args.sessions:
            rows += [] if ending else [row(panes, args.turns, args.seed, ending)]
        title = ending.mark("Real panes with faults, all at the same time")
        report(args.out, "panes", title, COLUMNS, rows, LINES, "panes", note=NOTE)
    return ending.code(red(COLUMNS, rows))


if __name__ == "__main__":
    sys.exit(main())
