"""Real time under load on the in-process transport: is the process still as small at the end? Sessions open, take some
turns at a fixed rate, are checked and closed, and others take their place; memory, threads and descriptors are
sampled, and a line is laid through them by least squares, the first fifth left out as warming up. A bound is an
allowance (the allocator, SQLite's caches) and so much a turn, so it grows with the run. Blocks are the interpreter's own
count of what is allocated: no allocator's slack is in it. Each turn is held against what its caller got, what a subscriber
was told (a fifth of 100 sessions has one) and what the journal holds, once its session is closed (bench/_account.py). Ends with 1
where a line rises beyond its bound, or a turn is early, missing, double or wrong, or its call raises or does not return; a signal ends it
with a report of what was done. Usage: python bench/stress_soak.py 20m [--sessions 100] [--rate 100]
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

from _account import KINDS, NOTE, Account, follows
from _arguments import count, length, rate
from _ending import Ending, run_out
from _flat import COLUMNS, Sample, least_s, sample, told
from _listeners import AsyncListeners
from _report import percentile, show
from stress_memory import NOT_THE_END, answer_to, ask, judge, opened

from lastword import AsyncRuntime
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld

TURNS_EACH = 20
SAMPLE_S = 2.0
TURN_S = 60.0
LONGEST_S = 7 * 24 * 3600.0
LATEST = 20_000
"""Latencies that are kept, in room taken at the start: the soak must not grow by itself."""


async def soak(
    folder: Path, wanted_s: float, sessions: int, rate: float, ending: Ending
) -> tuple[list[Sample], list[float], Account]:
    """Samples, latencies in ms, and the account, settled."""
    world = MemoryWorld(respond=answer_to)
    world.on_turn = lambda cli, _: cli.say(NOT_THE_END)
    spent = array("d", bytes(8 * LATEST))
    turns = 0
    samples: list[Sample] = []
    began = time.monotonic()
    async with AsyncRuntime.open(folder, edge=memory_edge(world), durability="process") as runtime:
        account = Account(folder / "journal.db", judge)
        listeners = AsyncListeners(account, anew=True)

        async def work(number: int) -> None:
            nonlocal turns
            turn = number  # the first session of each place is shorter, so that they do not all end together
            due = time.monotonic() + number / rate
            while time.monotonic() - began < wanted_s:
                session = await opened(account, runtime)
                if session is None:
                    return
                if follows(number, sessions):
                    listeners.follow(session)
                for _ in range(TURNS_EACH - turn % TURNS_EACH):
                    await asyncio.sleep(max(0.0, min(due, began + wanted_s) - time.monotonic()))
                    if time.monotonic() - began >= wanted_s:
                        break
                    turn += 1
                    if not await ask(account, session, f"{number}.{turn}", TURN_S):
                        break  # it has an open turn, which its end settles
                    spent[turns % LATEST] = (time.monotonic() - due) * 1e3
                    turns += 1
                    due += sessions / rate
                await close(session)

        async def close(session: Any) -> None:
            try:
                await session.close()
            except Exception as error:
                account.fault("caller", "raised", f"close of {session.session_id}: {type(error).__name__}: {error}")
            await listeners.ended(session.session_id)
            account.settle(session.session_id)
            world.forget_ended()  # it keeps what was, for tests

        def take() -> None:
            now = time.monotonic() - began
            samples.append(sample(now, turns))
            _, _, rss, blocks, _, _ = samples[-1]
            print(f"  {now:5.0f} s, {turns} turns, RSS {rss:.1f} MiB, {blocks} blocks", file=sys.stderr, flush=True)

        jobs = asyncio.gather(*(work(number) for number in range(sessions)))
        if not await run_out(jobs, ending, SAMPLE_S, take):
            await listeners.caught_up()
    await listeners.ended()
    account.settle_rest(interrupted=bool(ending))
    account.close()
    return samples, list(spent[: min(turns, LATEST)]), account


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("length", type=length(least_s(SAMPLE_S), LONGEST_S), help="20m, 90s, 1h")
    parser.add_argument("--sessions", type=count(10_000), default=100)
    parser.add_argument("--rate", type=rate, default=100.0, help="turns a second of all sessions together")
    args = parser.parse_args(argv)
    with Ending() as ending:
        with tempfile.TemporaryDirectory(prefix="lastword-soak-") as name:
            samples, spent, account = asyncio.run(soak(Path(name), args.length, args.sessions, args.rate, ending))
        length_s = samples[-1][0] if ending and samples else args.length
        rows, flat, why = told(samples, length_s)
        account.tell()
        tail = ", ".join(f"p{share * 100:g} {percentile(spent, share):.1f} ms" for share in (0.5, 0.99))
        found = ", ".join(f"{number} {kind}" for number, kind in zip(account.counts(), KINDS, strict=True))
        note = f"{length_s:.4g} s, {args.sessions} sessions at a time, {account.turns} turns, {found}, {tail}. "
        note += f"{account.followed} sessions had a subscriber. {NOTE}{why}"
        show(ending.mark("Soak"), COLUMNS, rows, note)
    return ending.code(not account.clean or not flat)


if __name__ == "__main__":
    sys.exit(main())
