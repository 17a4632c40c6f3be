"""Append -> wake-up, by source. Prints p50, p99, threads, and the CPU of an idle watcher; raw inotify is the floor.

Run: python bench/wake_ups.py [files ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from _report import QUICK, percentile, show

from lastword.transports.watch import FileWatcher

APPENDS = 400
PACE_S = 0.002
IDLE_S = 1.0 if QUICK else 4.0


def measure(source: str, files: int) -> list[object]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = [root / f"d{n}" / "s.jsonl" for n in range(files)]
        for path in paths:
            path.parent.mkdir()
            path.write_text("")
        before = len(threading.enumerate())
        watcher = FileWatcher(source=source)  # type: ignore[arg-type]
        woken, at = threading.Event(), [0.0]

        def on_change() -> None:
            at[0] = time.perf_counter()
            woken.set()

        began = time.perf_counter()
        for path in paths:
            watcher.watch(path, root, on_change)
        set_up = time.perf_counter() - began
        threads = len(threading.enumerate()) - before
        cpu = time.process_time()
        time.sleep(IDLE_S)
        idle = (time.process_time() - cpu) / IDLE_S * 100
        times, lost = [], 0
        for n in range(APPENDS):
            fd = os.open(paths[n * 7919 % files], os.O_WRONLY | os.O_APPEND)
            woken.clear()
            began = time.perf_counter()
            os.write(fd, b"x" * 400)
            if woken.wait(1):
                times.append((at[0] - began) * 1e3)
            else:
                lost += 1
            os.close(fd)
            time.sleep(PACE_S)
        watcher.close()
        figures = [percentile(times, 0.5), percentile(times, 0.99), lost, threads, set_up * 1e3, idle]
        return [source, files, *figures]


def main() -> None:
    rows: list[list[object]] = []
    for files in [int(word) for word in sys.argv[1:]] or ([1, 100] if QUICK else [1, 100, 1000]):
        rows += [measure(source, files) for source in ("inotify", "watchdog")]
    columns = ["source", "files", "p50 ms", "p99", "later than 1 s", "threads", "set up ms", "idle CPU % of a core"]
    show("Append -> wake-up of a watcher", columns, rows)


if __name__ == "__main__":
    main()
