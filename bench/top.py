"""What a refresh of ``lastword top`` costs the host and the viewer at so many sessions. In-process sessions, paced turns.

``look`` is the host's own work for one answer, on one thread (CPU time); ``asked`` is from the request until the answer
is decoded in the viewer's process; ``drawn`` is a frame's layout in the viewer, with every row changed (CPU time). The
viewer runs in a process of its own. ``journal`` is a look where no host lives, the first one and the next. ``fold`` is
what counting an event costs the journal's writer, looked at or not.

Prints figures, asserts nothing.
Usage: python bench/top.py [--quick] [--sessions 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from _report import QUICK, percentile, show

from lastword import Runtime
from lastword.actors.core.events import Event
from lastword.runtime._numbers import Numbers
from lastword.runtime._top import Look
from lastword.runtime._top_record import RecordTop
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld

ROWS = 50
LOOKS = 40 if QUICK else 200
TURNS_PER_S = 50
VIEWER = """
import json, sys, time
from pathlib import Path
from lastword.runtime._top import Look
from lastword.runtime.command._top_feed import Looker
from lastword.runtime.command._top_lines import View, frame
from lastword.runtime.command._top_screen import Painter
asked, drawn, looker = [], [], Looker(Path(sys.argv[1]))
painter = Painter(180, int(sys.argv[2]) + 6)
for number in range(int(sys.argv[3])):
    began = time.perf_counter()
    sight = looker.look(Look(lines=int(sys.argv[2])))
    asked.append((time.perf_counter() - began) * 1e3)
    began = time.thread_time()
    painter.forget()
    painter.paint(frame(sight, View(), 180, int(sys.argv[2]) + 6, began))
    drawn.append((time.thread_time() - began) * 1e3)
    time.sleep(0.02)
print(json.dumps([asked, drawn]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=200 if QUICK else 1000)
    args = parser.parse_args()
    world = MemoryWorld(respond=lambda text: text)
    told: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        with Runtime.open(folder, edge=memory_edge(world), durability="process", serve_socket=True) as runtime:
            runtime._numbers.tap(_Kept(told))
            sessions = [runtime.session("memory") for _ in range(args.sessions)]
            for session in sessions:
                session.run("x", deadline_s=60)
            runtime._system.settle(10.0)
            looks = {sort: _looks(runtime, Look(lines=ROWS, sort=sort)) for sort in ("state", "age", "latency", "name")}
            far = _looks(runtime, Look(lines=ROWS, offset=args.sessions))
            done = threading.Event()
            load = threading.Thread(target=_load, args=(sessions, done), daemon=True)
            load.start()
            busy = _looks(runtime, Look(lines=ROWS))
            words = [sys.executable, "-c", VIEWER, folder, str(ROWS), str(LOOKS)]
            asked, drawn = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout)
            done.set()
            load.join(10.0)
        read, again = _readings(Path(folder))
    rows: list[list[object]] = [[f"look, by {sort}", *_figures(spent)] for sort, spent in looks.items()]
    rows += [["look, the last rows", *_figures(far)], [f"look, beside {TURNS_PER_S} turns/s", *_figures(busy)]]
    rows += [["asked, beside them", *_figures(asked)], ["drawn", *_figures(drawn)]]
    rows += [["journal, read", *_figures(read)], ["journal, unchanged", *_figures(again)]]
    rows.append(["fold, an event", *_figures(_folds(told))])
    show(
        f"lastword top, {args.sessions} sessions, {ROWS} rows: ms",
        ["what", "n", "p50", "p99"],
        [[name, n, f"{p50:.4f}", f"{p99:.4f}"] for name, n, p50, p99 in rows],
        f"Load average {os.getloadavg()[0]:.1f}.",
    )


def _looks(runtime: Runtime, look: Look) -> list[float]:
    spent = []
    for _ in range(LOOKS):
        began = time.thread_time()
        runtime._top(look)
        spent.append((time.thread_time() - began) * 1e3)
    return spent


def _readings(folder: Path) -> tuple[list[float], list[float]]:
    """Without a host: the first look, and the next one, in ms of processor time."""
    read, again = [], []
    for _ in range(5 if QUICK else 20):
        record = RecordTop(folder)
        for spent in (read, again):
            began = time.thread_time()
            record.look(Look(lines=ROWS))
            spent.append((time.thread_time() - began) * 1e3)
    return read, again


def _load(sessions: list, done: threading.Event) -> None:
    at = 0
    while not done.wait(1 / TURNS_PER_S):
        sessions[at % len(sessions)].send("again")
        at += 1


def _folds(told: list[Event]) -> list[float]:
    spent = []
    numbers = Numbers(time.time)
    for event in told:
        began = time.thread_time()
        numbers.committed([event])
        spent.append((time.thread_time() - began) * 1e3)
    return spent


def _figures(spent: list[float]) -> tuple[int, float, float]:
    return len(spent), percentile(spent, 0.5), percentile(spent, 0.99)


class _Kept:
    def __init__(self, told: list[Event]) -> None:
        self._told = told

    def committed(self, told: list[Event]) -> None:
        self._told += told

    def delivered(self, *_: object) -> None: ...

    def closing(self) -> None: ...


if __name__ == "__main__":
    main()
