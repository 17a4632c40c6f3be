"""What an idle session costs: memory, threads, descriptors, CPU. Real files and wake-ups; the pane is in-process.

The in-process CLI of each session lives in this process as well; what it takes is measured apart (the same CLIs
without any runtime) and told beside. Prints figures, asserts nothing.
Usage: python bench/idle_sessions.py [--sessions 1000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from _disk_rig import DiskRig, DiskWorld
from _report import show

IDLE_S = 10.0
WARM_UP = 20


def resident_kib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def clis_alone(count: int, folder: Path) -> None:
    """Prints the KiB that the in-process CLIs take by themselves."""
    folder.mkdir()
    world = DiskWorld(manual=True, root=str(folder))
    before = 0.0
    for n in range(WARM_UP + count):
        if n == WARM_UP:
            before = resident_kib()
        world.open("", (f"{n:036d}",), cwd="", env={}, width=0, height=0, on_opened=lambda _: None)
    print((resident_kib() - before) / count)


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
        start_ms = (time.perf_counter() - began) / count * 1e3
        if turn:
            for session in sessions:
                session.run("x", deadline_s=30)
        runtime._system.settle(10.0)
        each = (resident_kib() - memory) / count
        more_threads, more_files = threading.active_count() - threads, descriptors() - files
        cpu = time.process_time()
        time.sleep(IDLE_S)
        idle = (time.process_time() - cpu) / IDLE_S * 100
        began = time.perf_counter()
    closed = time.perf_counter() - began
    what = "one turn done" if turn else "new"
    return [what, count, each, more_threads, more_files, idle, start_ms, closed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--alone", action="store_true", help="inner use")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as name:
        if args.alone:
            clis_alone(args.sessions, Path(name) / "records")
            return
        command = [sys.executable, __file__, "--alone", "--sessions", str(args.sessions), "--folder", args.folder]
        alone = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        rows = [measure(args.sessions, Path(name) / "a", turn=False)]
        rows.append(measure(args.sessions, Path(name) / "b", turn=True))
    show(
        "Idle sessions",
        ["sessions", "count", "KiB each", "threads more", "descriptors more", "CPU % of a core", "start ms each",
         "all closed s"],
        rows,
        f"Of the KiB, {alone:.1f} are the in-process CLI's own. The second row begins where the first one's memory was "
        "given back to the allocator, so the first is the one to read for memory.",
    )  # fmt: skip


if __name__ == "__main__":
    main()
