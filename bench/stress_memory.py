"""N sessions times M turns on the in-process transport, held against the journal by a checker that shares nothing with
the runtime; a report and a chart of latency and CPU over the number of sessions. Each number of sessions runs twice:
*closed*, turn after turn as fast as it goes (this gives turns/s; latency is mostly the queue), and *paced*, all sessions
together begin ``--rate`` turns a second (this gives latency, counted from when the turn was due). GC is the part of
the CPU that Python's cycle collector took: it grows with the objects alive, and so the open sessions are taken out of its sight
first (``gc.freeze()``, as docs/performance.md advises a host of many sessions; ``--collect-all``: not). Ends with 1 where the checker finds
anything. Usage: python bench/stress_memory.py [--sessions 1,10,100,1000] [--turns 10] [--rate 200] [--collect-all] [--out stress-report]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from _chart import report
from _report import percentile

from lastword import AsyncRuntime, Limits
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld

TURN_S = 120.0
EACH_S = 0.02
"""So much more for each session: all of them have a turn in line before the cores."""
NOT_THE_END = "not the end"
COLUMNS = ["load", "sessions", "turns", "early", "missing", "double", "wrong", "p50 ms", "p90 ms", "p99 ms", "max ms"]
COLUMNS += [
    "turns/s",
    "CPU ms/turn",
    "GC ms/turn",
    "peak RSS MiB",
    "threads before",
    "threads after",
    "fds before",
    "fds after",
]

LINES = ("p50 ms", "p99 ms", "CPU ms/turn", "GC ms/turn")


def answer_to(prompt: str) -> str:
    return f"the answer to {prompt}"


def check(journal: Path, wanted: Counter[str]) -> tuple[int, int, int, int]:
    """Early, missing, double, wrong: every text that was sent has one completion, with the answer of its own text."""
    db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        texts = dict(db.execute("SELECT turn_id, json_extract(body, '$.text') FROM message WHERE turn_id IS NOT NULL"))
        events = db.execute("SELECT turn_id, body FROM event WHERE type = 'unified_completion'").fetchall()
    finally:
        db.close()
    ended: Counter[str] = Counter()
    early = wrong = 0
    for turn_id, body in events:
        text = texts.get(turn_id, "")
        ended[text] += 1
        done = json.loads(body)
        done = done.get("completion", done)
        early += done.get("answer") == NOT_THE_END
        wrong += done.get("status") != "completed" or done.get("answer") != answer_to(text)
    missing = sum((wanted - ended).values())
    return early, missing, sum((ended - wanted).values()), wrong


class Collector:
    """Seconds of CPU that Python's cycle collector takes while it is entered."""

    def __init__(self) -> None:
        self.spent_s = self._began = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.spent_s += time.thread_time() - self._began

    def __enter__(self) -> Self:
        gc.callbacks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def load(
    folder: Path, sessions: int, turns: int, rate: float | None = None, *, freeze: bool = True
) -> list[object]:
    """One row; ``rate``: turns a second of all sessions together, None for as fast as it goes. ``freeze``: the open
    sessions are none of the collector's.
    """
    world = MemoryWorld(respond=answer_to)
    world.on_turn = lambda cli, _: cli.say(NOT_THE_END)
    spent: list[float] = []
    wanted: Counter[str] = Counter()
    threads, fds = threading.active_count(), descriptors()
    limits = Limits(sessions_max=sessions + 1, journal_behind_max=1_000_000)
    async with AsyncRuntime.open(folder, edge=memory_edge(world), durability="process", limits=limits) as runtime:
        opened = [await runtime.session("memory") for _ in range(sessions)]
        gc.collect()
        if freeze:
            gc.freeze()

        async def work(number: int, session: Any) -> None:
            for turn in range(turns):
                text = f"{number}.{turn}"
                wanted[text] += 1
                due = time.perf_counter()
                if rate is not None:
                    due = began + (turn * sessions + number) / rate
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                try:
                    await asyncio.wait_for(session.run(text), TURN_S + EACH_S * sessions)
                except Exception as error:
                    print(f"{text}: {type(error).__name__}: {error}", flush=True)
                spent.append((time.perf_counter() - due) * 1e3)

        began, cpu = time.perf_counter(), time.process_time()
        with Collector() as collector:
            jobs = asyncio.gather(*(work(number, session) for number, session in enumerate(opened)))
            while not jobs.done():
                await asyncio.wait({jobs}, timeout=5)
                print(f"  {sessions} sessions: {len(spent)} of {sessions * turns} turns", file=sys.stderr, flush=True)
            await jobs
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    gc.unfreeze()
    after = [threading.active_count(), descriptors()]
    tail = [percentile(spent, share) for share in (0.5, 0.9, 0.99)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = [*tail, max(spent), round(len(spent) / wall_s), cpu_s / len(spent) * 1e3]
    figures += [collector.spent_s / len(spent) * 1e3, round(peak)]
    found = check(folder / "journal.db", wanted)
    kind = "closed" if rate is None else f"{rate:g}/s"
    return [kind, sessions, len(spent), *found, *figures, threads, after[0], fds, after[1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", default="1,10,100,1000")
    parser.add_argument("--turns", type=int, default=10, help="of each session")
    parser.add_argument("--rate", type=float, default=200.0, help="turns a second of the paced load; 0: none")
    parser.add_argument("--collect-all", action="store_true", help="leave the open sessions to the collector")
    parser.add_argument("--out", default="stress-report", help="folder of memory.json, memory.md and memory.svg")
    args = parser.parse_args()
    rows = []
    for sessions in map(int, args.sessions.split(",")):
        for rate in (None, args.rate) if args.rate else (None,):
            with tempfile.TemporaryDirectory(prefix="lastword-stress-") as name:
                rows.append(asyncio.run(load(Path(name), sessions, args.turns, rate, freeze=not args.collect_all)))
    drawn = [row for row in rows if row[0] != "closed"]
    report(
        Path(args.out), "memory", "In-process sessions, all at the same time", COLUMNS, rows, LINES, "sessions", drawn
    )
    return int(any(any(row[3:7]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
