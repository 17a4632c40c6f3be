"""The scenarios of ``bench/actors.py`` on other ways to have actors. Run by it, with the rival's own interpreter:
``python bench/rivals/actors.py asyncio|thespian|xoscar tell|fan|fan-in|ask|many``; prints one JSON object.

Counts are smaller where a rival is slow, so that a run stays short: the figures are rates. asyncio is the floor of one
thread: a queue and a task for each "actor", no isolation, no failure handling, no other thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SLOW = {"asyncio": 1, "thespian": 10, "xoscar": 20}
"""How many times fewer messages than ours."""
QUICK = bool(os.environ.get("LASTWORD_BENCH_QUICK"))
TELLS, FAN, FAN_ROUNDS, ASKS, MANY = (20_000, 1_000, 10, 1_000, 1_000) if QUICK else (50_000, 1_000, 30, 4_000, 10_000)
SENDERS = 4


def proc_status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


class Rival:
    """Start an actor, tell it a number, ask how many it had."""

    async def start(self) -> Any:
        raise NotImplementedError

    async def tell(self, ref: Any, message: int) -> None:
        raise NotImplementedError

    async def ask(self, ref: Any, message: int) -> int:
        raise NotImplementedError


class Asyncio(Rival):
    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Any:
        queue: asyncio.Queue[tuple[int, asyncio.Future[int] | None]] = asyncio.Queue()

        async def loop() -> None:
            count = 0
            while True:
                _, reply = await queue.get()
                count += 1
                if reply is not None:
                    reply.set_result(count)

        self.tasks.add(asyncio.create_task(loop()))
        return queue

    async def tell(self, ref: Any, message: int) -> None:
        ref.put_nowait((message, None))

    async def ask(self, ref: Any, message: int) -> int:
        reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ref.put_nowait((message, reply))
        return await reply


class Thespian(Rival):
    """Its ``simpleSystemBase``, the quickest: all in one thread, a tell runs the handler before it returns."""

    def __init__(self) -> None:
        from thespian.actors import ActorSystem, ActorTypeDispatcher

        class Counting(ActorTypeDispatcher):  # type: ignore[misc]
            count = 0

            def receiveMsg_int(self, _message: int, sender: Any) -> None:  # noqa: N802 - thespian's name
                self.count += 1
                self.send(sender, self.count)

            def receiveMsg_str(self, _message: str, _sender: Any) -> None:  # noqa: N802
                self.count += 1

        self.system, self.kind = ActorSystem("simpleSystemBase"), Counting

    async def start(self) -> Any:
        return self.system.createActor(self.kind)

    async def tell(self, ref: Any, message: int) -> None:
        self.system.tell(ref, str(message))

    async def ask(self, ref: Any, message: int) -> int:
        answer: int = self.system.ask(ref, message, 60)
        return answer


class Xoscar(Rival):
    def __init__(self, address: str) -> None:
        import xoscar

        class Counting(xoscar.Actor):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.count = 0

            async def hit(self, _message: int) -> int:
                self.count += 1
                return self.count

        self.module, self.kind, self.address = xoscar, Counting, address

    async def start(self) -> Any:
        return await self.module.create_actor(self.kind, address=self.address)

    async def tell(self, ref: Any, message: int) -> None:
        await ref.hit.tell(message)

    async def ask(self, ref: Any, message: int) -> int:
        answer: int = await ref.hit(message)
        return answer


async def measure(rival: Rival, scenario: str, fewer: int) -> dict[str, float]:
    if scenario in ("tell", "fan-in"):
        ref = await rival.start()
        await rival.ask(ref, 0)
        senders, count = (SENDERS if scenario == "fan-in" else 1), TELLS // fewer

        async def send() -> None:
            for n in range(count // senders):
                await rival.tell(ref, n)

        began = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(senders)))
        had = await rival.ask(ref, 0)
        spent = time.perf_counter() - began
        if had < count // senders * senders:
            raise AssertionError(f"told {count}, handled {had}")
        return {"tell 1-1, per s" if scenario == "tell" else f"fan-in from {SENDERS}, per s": count / spent}
    if scenario == "fan":
        refs = [await rival.start() for _ in range(FAN)]
        for ref in refs:
            await rival.ask(ref, 0)
        rounds = max(1, FAN_ROUNDS // fewer)
        began = time.perf_counter()
        for n in range(rounds):
            for ref in refs:
                await rival.tell(ref, n)
        for ref in refs:
            await rival.ask(ref, 0)
        return {"fan-out to 1,000, per s": FAN * rounds / (time.perf_counter() - began)}
    if scenario == "ask":
        ref = await rival.start()
        await rival.ask(ref, 0)
        took = []
        for n in range(ASKS // min(fewer, 2)):
            began = time.perf_counter()
            await rival.ask(ref, n)
            took.append((time.perf_counter() - began) * 1e6)
        took.sort()
        return {"ask p50, us": took[len(took) // 2], "ask p99, us": took[len(took) * 99 // 100]}
    rss, threads, began = proc_status("VmRSS"), proc_status("Threads"), time.perf_counter()
    refs = [await rival.start() for _ in range(MANY)]
    for ref in refs:
        await rival.ask(ref, 0)
    spent, cpu = time.perf_counter() - began, time.process_time()
    out = {
        f"{MANY:,} actors: KiB each": (proc_status("VmRSS") - rss) / MANY,
        f"{MANY:,} actors: threads": float(proc_status("Threads") - threads),
        f"{MANY:,} actors: start + first ask, us each": spent / MANY * 1e6,
    }
    await asyncio.sleep(1)
    out[f"{MANY:,} actors: idle CPU, %"] = (time.process_time() - cpu) * 100
    return out


async def with_xoscar(measuring: Callable[[Rival], Awaitable[dict[str, float]]]) -> dict[str, float]:
    import xoscar

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    async with await xoscar.create_actor_pool(address=address, n_process=0):
        return await measuring(Xoscar(address))


async def main(name: str, scenario: str) -> dict[str, float]:
    def measuring(rival: Rival) -> Awaitable[dict[str, float]]:
        return measure(rival, scenario, SLOW[name])

    if name == "xoscar":
        return await with_xoscar(measuring)
    return await measuring(Asyncio() if name == "asyncio" else Thespian())


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2]))), flush=True)
    os._exit(0)
