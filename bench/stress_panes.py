"""N real panes times M turns on the scripted CLI, with faults mixed in; every completion is held against what its prompt
asked for, and against the journal. Latency is from the end read in the record to its commit; CPU is this process's,
not the CLIs'. Ends with 1 where anything is wrong. Usage: python bench/stress_panes.py [--sessions 1,10,100] [--turns 10]
[--out stress-report]
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from pathlib import Path

from _chart import report
from _report import percentile
from stress_memory import descriptors

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fault_rig import load

COLUMNS = ["panes", "turns", "early", "missing", "double", "wrong", "p50 ms", "p90 ms", "p99 ms", "turns/s"]
COLUMNS += ["CPU ms/turn", "peak RSS MiB", "threads before", "threads after", "fds before", "fds after"]
LINES = ("p50 ms", "p99 ms", "CPU ms/turn")


def row(panes: int, turns: int, seed: int) -> list[object]:
    before = [threading.active_count(), descriptors()]
    began, cpu = time.perf_counter(), time.process_time()
    tally = load(panes, turns, seed, slow=True, say=True)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    for line in tally.wrong[:20]:
        print("  ", line, flush=True)
    found = [tally.early, tally.missing, tally.double, len(tally.wrong)]
    tail = [percentile(tally.latencies_ms, share) for share in (0.5, 0.9, 0.99)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = [*tail, tally.turns / wall_s, cpu_s / tally.turns * 1e3, round(peak)]
    return [panes, tally.turns, *found, *figures, before[0], threading.active_count(), before[1], descriptors()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", default="1,10,100", help="panes at the same time")
    parser.add_argument("--turns", type=int, default=10, help="of each pane")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="stress-report", help="folder of panes.json, panes.md and panes.svg")
    args = parser.parse_args()
    rows = [row(panes, args.turns, args.seed) for panes in map(int, args.sessions.split(","))]
    report(Path(args.out), "panes", "Real panes with faults, all at the same time", COLUMNS, rows, LINES, "panes")
    return int(any(any(each[2:6]) for each in rows))


if __name__ == "__main__":
    sys.exit(main())
