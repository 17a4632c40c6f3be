"""N sessions times M turns on the in-process transport; each turn is held against what its caller got, what a subscriber was
told (each 50th session has one, and at least 20) and what the journal holds (bench/_account.py); a report and a chart of latency and CPU over the number of sessions. Each number of sessions runs twice:
*closed*, turn after turn as fast as it goes (this gives turns/s; latency is mostly the queue), and *paced*, all sessions
together begin ``--rate`` turns a second (this gives latency, counted from when the turn was due). GC is the part of
the CPU that Python's cycle collector took: it grows with the objects alive, and so the open sessions are taken out of its sight
first (``gc.freeze()``, as docs/performance.md advises a host of many sessions; ``--collect-all``: not). Ends with 1 where
anything is early, missing, double or wrong, or a call raises or does not return; a signal ends it with a report of what was done. Usage: python bench/stress_memory.py [--sessions 1,10,100,1000] [--turns 10] [--rate 200] [--collect-all] [--out stress-report]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

from _account import KINDS, NOTE, Account, follows, red
from _arguments import check_product, count, counts, folder, rate_or_none
from _chart import report
from _ending import Ending, run_out
from _listeners import AsyncListeners
from _report import percentile

from lastword import AsyncRuntime, Limits
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld

TURN_S = 120.0
EACH_S = 0.02
"""So much more for each session: all of them have a turn in line before the cores."""
SESSIONS_MAX, TURNS_MAX, ALL_MAX = 100_000, 100_000, 1_000_000
NOT_THE_END = "not the end"
COLUMNS = ["load", "sessions", "followed", "turns", *KINDS, "p50 ms", "p90 ms", "p99 ms", "max ms"]
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


def judge(text: str, status: str, answer: str | None) -> str:
    """What is wrong with this end of the turn of that text; "" for nothing."""
    if answer == NOT_THE_END:
        return "early"
    return "" if status == "completed" and answer == answer_to(text) else "wrong"


async def opened(account: Account, runtime: Any) -> Any:
    """A new session; None, and counted, where it cannot be opened."""
    try:
        return await runtime.session("memory")
    except Exception as error:
        account.fault("caller", "raised", f"a session: {type(error).__name__}: {error}")
        return None


async def ask(account: Account, session: Any, text: str, bound_s: float) -> bool:
    """One turn, into the account; whether its call returned in its bound. What does not is left, not waited for."""
    account.asked(text, session.session_id)
    call = asyncio.create_task(session.run(text))
    try:
        await asyncio.wait({call}, timeout=bound_s)
    except asyncio.CancelledError:
        call.cancel()
        raise
    if not call.done():
        account.hung(text)
        call.cancel()
        return False
    try:
        account.returned(text, call.result())
    except (Exception, asyncio.CancelledError) as error:
        account.raised(text, error)
    return True


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
    folder: Path,
    sessions: int,
    turns: int,
    rate: float | None = None,
    *,
    freeze: bool = True,
    ending: Ending | None = None,
) -> list[object]:
    """One row; ``rate``: turns a second of all sessions together, None for as fast as it goes. ``freeze``: the open
    sessions are none of the collector's.
    """
    ending = Ending() if ending is None else ending
    world = MemoryWorld(respond=answer_to)
    world.on_turn = lambda cli, _: cli.say(NOT_THE_END)
    spent: list[float] = []
    threads, fds = threading.active_count(), descriptors()
    limits = Limits(sessions_max=sessions + 1, journal_behind_max=1_000_000)
    async with AsyncRuntime.open(folder, edge=memory_edge(world), durability="process", limits=limits) as runtime:
        account = Account(folder / "journal.db", judge)
        listeners = AsyncListeners(account)
        places = []
        for number in range(sessions):
            if ending or (session := await opened(account, runtime)) is None:
                break
            places.append(session)
            if follows(number, sessions):
                listeners.follow(session)
        gc.collect()
        if freeze:
            gc.freeze()

        async def work(number: int, session: Any) -> None:
            for turn in range(turns):
                due = time.perf_counter()
                if rate is not None:
                    due = began + (turn * sessions + number) / rate
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                if not await ask(account, session, f"{number}.{turn}", TURN_S + EACH_S * sessions):
                    return  # it has an open turn: what is asked after it says nothing more
                spent.append((time.perf_counter() - due) * 1e3)

        def progress() -> None:
            print(f"  {sessions} sessions: {len(spent)} of {sessions * turns} turns", file=sys.stderr, flush=True)

        began, cpu = time.perf_counter(), time.process_time()
        with Collector() as collector:
            jobs = asyncio.gather(*(work(number, session) for number, session in enumerate(places)))
            await run_out(jobs, ending, 5.0, progress)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        await listeners.caught_up()
    await listeners.ended()
    gc.unfreeze()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    account.settle(interrupted=bool(ending))
    account.close()
    account.tell()
    after = [threading.active_count(), descriptors()]
    tail = [percentile(spent, share) for share in (0.5, 0.9, 0.99)]
    each = max(1, len(spent))
    figures = [*tail, max(spent, default=float("nan")), round(len(spent) / wall_s), cpu_s / each * 1e3]
    figures += [collector.spent_s / each * 1e3, round(peak)]
    kind = ("closed" if rate is None else f"{rate:g}/s") + (", interrupted" if ending else "")
    found = [account.followed, account.turns, *account.counts()]
    return [kind, sessions, *found, *figures, threads, after[0], fds, after[1]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=counts(SESSIONS_MAX), default="1,10,100,1000")
    parser.add_argument("--turns", type=count(TURNS_MAX), default=10, help="of each session")
    parser.add_argument("--rate", type=rate_or_none, default=200.0, help="turns a second of the paced load; 0: none")
    parser.add_argument("--collect-all", action="store_true", help="leave the open sessions to the collector")
    parser.add_argument("--out", type=folder, default="stress-report", help="folder of memory.json, .md and .svg")
    args = parser.parse_args(argv)
    check_product(parser, args.sessions, args.turns, ALL_MAX)
    rows: list[list[Any]] = []
    with Ending() as ending:
        for sessions in args.sessions:
            for rate in (None, args.rate) if args.rate else (None,):
                if ending:
                    break
                with tempfile.TemporaryDirectory(prefix="lastword-stress-") as name:
                    job = load(Path(name), sessions, args.turns, rate, freeze=not args.collect_all, ending=ending)
                    rows.append(asyncio.run(job))
        drawn = [row for row in rows if not row[0].startswith("closed")]
        title = ending.mark("In-process sessions, all at the same time")
        report(args.out, "memory", title, COLUMNS, rows, LINES, "sessions", drawn, NOTE)
    return ending.code(red(COLUMNS, rows))


if __name__ == "__main__":
    sys.exit(main())
