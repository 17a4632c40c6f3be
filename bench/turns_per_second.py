"""Turns per second on the in-process transport: everything but files and a CLI. Each session runs turn after turn.

Prints figures, asserts nothing. Usage: python bench/turns_per_second.py [--sessions 50] [--turns 60] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _report import QUICK, percentile, show
from _turn_floor import turns_per_second

from lastword import AsyncRuntime, Runtime
from lastword.runtime._edge import Edge
from lastword.transports.memory import MemoryWorld

WARM_UP = 3


def edge() -> Edge:
    world = MemoryWorld()
    return Edge(transport=world, files=world, wakes=world, close=world.close)


def threaded(folder: Path, durability: str, sessions: int, turns: int) -> list[object]:
    """A host thread for each session."""
    spent: list[float] = []
    with Runtime.open(folder, edge=edge(), durability=durability) as runtime:  # type: ignore[arg-type]
        opened = [runtime.session("memory") for _ in range(sessions)]
        gate = threading.Barrier(sessions + 1)

        def work(session: Any) -> None:
            for n in range(WARM_UP):
                session.run(f"warm {n}")
            gate.wait(60)
            for n in range(turns):
                began = time.perf_counter()
                assert session.run(f"p{n}").answer == f"echo: p{n}"
                spent.append((time.perf_counter() - began) * 1e3)

        threads = [threading.Thread(target=work, args=(session,)) for session in opened]
        for thread in threads:
            thread.start()
        gate.wait(60)
        began, cpu = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.join()
        return _row("threads", durability, sessions, spent, time.perf_counter() - began, time.process_time() - cpu)


async def on_a_loop(folder: Path, durability: str, sessions: int, turns: int) -> list[object]:
    """All sessions on one event loop."""
    spent: list[float] = []
    async with AsyncRuntime.open(folder, edge=edge(), durability=durability) as runtime:
        opened = [await runtime.session("memory") for _ in range(sessions)]

        async def work(session: Any, count: int, into: list[float]) -> None:
            for n in range(count):
                began = time.perf_counter()
                assert (await session.run(f"p{n}")).answer == f"echo: p{n}"
                into.append((time.perf_counter() - began) * 1e3)

        await asyncio.gather(*(work(session, WARM_UP, []) for session in opened))
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work(session, turns, spent) for session in opened))
        return _row("asyncio", durability, sessions, spent, time.perf_counter() - began, time.process_time() - cpu)


def _row(host: str, durability: str, sessions: int, spent: list[float], wall_s: float, cpu_s: float) -> list[object]:
    figures = [percentile(spent, 0.5), percentile(spent, 0.99), cpu_s / len(spent) * 1e3]
    return [host, durability, sessions, len(spent), round(len(spent) / wall_s), *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--turns", type=int, default=15 if QUICK else 60, help="of each session")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    args = parser.parse_args()
    rows: list[list[object]] = []
    for durability in ("power", "process"):
        with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as name:
            power = durability == "power"
            floor = turns_per_second(Path(name) / "f", sync=power, sessions=args.sessions, turns=args.turns)
            ours = [
                threaded(Path(name) / "a", durability, args.sessions, args.turns),
                asyncio.run(on_a_loop(Path(name) / "b", durability, args.sessions, args.turns)),
            ]
            rows += [[*row, round(floor), floor / speed] for row in ours if isinstance(speed := row[4], int)]
    show(
        "Turns per second, in-process transport, one turn at a time in each session",
        [
            "host",
            "durability",
            "sessions",
            "turns",
            "turns/s",
            "turn p50 ms",
            "turn p99 ms",
            "CPU ms/turn",
            "floor, turns/s",
            "floor to ours",
        ],
        rows,
        "Floor: a thread a session, two appends a turn through one writer, in the same run; no actors, no SQLite, no answer.",
    )


if __name__ == "__main__":
    main()
