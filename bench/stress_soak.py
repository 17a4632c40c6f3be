"""Real time under load on the in-process transport: is the process still as small at the end? Sessions open, take some
turns at a fixed rate, are checked and closed, and others take their place; memory, threads and descriptors are
sampled, and a line is laid through them by least squares, the first fifth left out as warming up. A bound is an
allowance (the allocator, SQLite's caches) and so much a turn, so it grows with the run. Blocks are the interpreter's own
count of what is allocated: no allocator's slack is in it. Ends with 1 where a line rises beyond its bound or a turn has
a wrong answer. Usage: python bench/stress_soak.py 20m [--sessions 100] [--rate 100]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

from _flat import COLUMNS, Sample, sample, verdict
from _report import percentile, show
from stress_memory import NOT_THE_END, answer_to

from lastword import AsyncRuntime
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld

TURNS_EACH = 20
SAMPLE_S = 2.0
TURN_S = 60.0
LATEST = 20_000
"""Latencies that are kept, in room taken at the start: the soak must not grow by itself."""


def seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    return float(text[:-1]) * units[text[-1]] if text[-1] in units else float(text)


async def soak(folder: Path, wanted_s: float, sessions: int, rate: float) -> tuple[list[Sample], list[float], int, int]:
    world = MemoryWorld(respond=answer_to)
    world.on_turn = lambda cli, _: cli.say(NOT_THE_END)
    spent = array("d", bytes(8 * LATEST))
    turns = 0
    samples: list[Sample] = []
    wrong = 0
    began = time.monotonic()
    async with AsyncRuntime.open(folder, edge=memory_edge(world), durability="process") as runtime:

        async def work(number: int) -> None:
            nonlocal wrong, turns
            turn = number  # the first session of each place is shorter, so that they do not all end together
            due = time.monotonic() + number / rate
            while time.monotonic() - began < wanted_s:
                session: Any = await runtime.session("memory")
                for _ in range(TURNS_EACH - turn % TURNS_EACH):
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    if time.monotonic() - began >= wanted_s:
                        break
                    text = f"{number}.{turn}"
                    done = await asyncio.wait_for(session.run(text), TURN_S)
                    spent[turns % LATEST] = (time.monotonic() - due) * 1e3
                    turns += 1
                    wrong += done.status != "completed" or done.answer != answer_to(text)
                    turn += 1
                    due += sessions / rate
                await session.close()
                world.forget_ended()  # it keeps what was, for tests

        jobs = asyncio.gather(*(work(number) for number in range(sessions)))
        while not jobs.done():
            await asyncio.wait({jobs}, timeout=SAMPLE_S)
            now = time.monotonic() - began
            samples.append(sample(now, turns))
            _, _, rss, blocks, _, _ = samples[-1]
            print(f"  {now:5.0f} s, {turns} turns, RSS {rss:.1f} MiB, {blocks} blocks", file=sys.stderr, flush=True)
        await jobs
    return samples, list(spent[:turns]), turns, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("length", type=seconds, help="20m, 90s, 1h")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--rate", type=float, default=100.0, help="turns a second of all sessions together")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lastword-soak-") as name:
        samples, spent, turns, wrong = asyncio.run(soak(Path(name), args.length, args.sessions, args.rate))
    rows, flat = verdict(samples, args.length)
    tail = ", ".join(f"p{share * 100:g} {percentile(spent, share):.1f} ms" for share in (0.5, 0.99))
    note = f"{args.length:g} s, {args.sessions} sessions, {turns} turns, {wrong} wrong, {tail}."
    show("Soak", COLUMNS, rows, note)
    return int(wrong > 0 or not flat)


if __name__ == "__main__":
    sys.exit(main())
