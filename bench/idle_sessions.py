"""What an idle session costs: memory, threads, descriptors, CPU, wake-ups. Real files and wake-ups; the pane is in-process.

The in-process CLI of each session lives in this process as well; what it takes is measured apart (the same CLIs
without any runtime) and told beside. The floor: the same runtime with its 20 sessions of warming up and no others. Prints figures, asserts nothing.
Usage: python bench/idle_sessions.py [--sessions 1000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from _disk_rig import DiskRig, DiskWorld
from _report import QUICK, show

IDLE_S = 3.0 if QUICK else 10.0
WARM_UP = 20
SETTLE_S = 2.0 if QUICK else 20.0
"""What follows a turn is over then: two timers of its session fire once, the later some 12 s after it."""


def resident_kib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def wake_ups() -> int:
    """How often a thread of this process has gone to sleep, and so has been woken."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        count += int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))
    return count


def clis_alone(count: int, folder: Path) -> float:
    """The KiB that the in-process CLIs take by themselves."""
    folder.mkdir()
    world = DiskWorld(manual=True, root=str(folder))
    before = 0.0
    for n in range(WARM_UP + count):
        if n == WARM_UP:
            before = resident_kib()
        world.open("", (f"{n:036d}",), cwd="", env={}, width=0, height=0, on_opened=lambda _: None)
    return (resident_kib() - before) / count


def measure(count: int, folder: Path, *, turn: bool) -> list[object]:
    rig = DiskRig(folder, "process", lambda cli, _: cli.finish("done"))
    with rig.runtime as runtime:
        warm = [runtime.session("memory") for _ in range(WARM_UP)]
        rig.ready(warm)
        for session in warm:
            session.run("x")
        memory, threads, files = resident_kib(), threading.active_count(), descriptors()
        began = time.perf_counter()
        sessions = [runtime.session("memory") for _ in range(count)]
        rig.ready(sessions)
        start_ms = (time.perf_counter() - began) / max(1, count) * 1e3
        if turn:
            for session in sessions:
                session.run("x", deadline_s=30)
        runtime._system.settle(10.0)
        each = (resident_kib() - memory) / count if count else float("nan")
        more_threads, more_files = threading.active_count() - threads, descriptors() - files
        time.sleep(SETTLE_S)
        cpu, woken = time.process_time(), wake_ups()
        time.sleep(IDLE_S)
        idle = (time.process_time() - cpu) / IDLE_S * 100
        woken_per_s = (wake_ups() - woken) / IDLE_S
        began = time.perf_counter()
    closed = time.perf_counter() - began
    what = "one turn done" if turn else "new" if count else "floor: none but 20"
    return [what, count, each, more_threads, more_files, idle, woken_per_s, start_ms, closed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=200 if QUICK else 1000)
    parser.add_argument("--folder", default=".")
    parser.add_argument(
        "--part", choices=["alone", "none", "new", "turn"], help="inner use: each is a process of its own"
    )
    args = parser.parse_args()
    if args.part:
        with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as name:
            if args.part == "alone":
                figures: object = clis_alone(args.sessions, Path(name) / "records")
            else:
                count = 0 if args.part == "none" else args.sessions
                figures = measure(count, Path(name), turn=args.part == "turn")
        print(json.dumps(figures))
        return
    command = [sys.executable, __file__, "--sessions", str(args.sessions), "--folder", args.folder, "--part"]
    alone, *rows = [
        json.loads(subprocess.run([*command, part], stdout=subprocess.PIPE, check=True, text=True).stdout)
        for part in ("alone", "none", "new", "turn")
    ]
    show(
        "Idle sessions",
        ["sessions", "count", "KiB each", "threads more", "descriptors more", "CPU % of a core", "wake-ups/s of all", "start ms each",
         "all closed s"],
        rows,
        f"Of the KiB, {alone:.1f} are the in-process CLI's own.",
    )  # fmt: skip


if __name__ == "__main__":
    main()
