"""lastword's actors beside plain pykka's, in the same run: compare the ratios, the absolutes are the machine's.

Usage: PYTHONPATH=src python bench/actors.py [rounds]. Each figure is the median over rounds; each measurement is a process
of its own, the variants take turns. ``no check`` is the pooled dispatcher with the tracer test cut out of the guard.
The floor is ``bare``: a thread with a SimpleQueue for each "actor", nothing around the handler. asyncio, thespian and xoscar do the same in ``rivals/actors.py``, each installed into a venv of its own.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import QUICK, show, skipped
from rivals._venv import MissingError, python_with

OURS = ("bare", "pykka", "pooled", "pinned", *(() if QUICK else ("pooled no check", "pooled traced")))
RIVALS = {"asyncio": (), "thespian": ("thespian==4.0.1",), "xoscar": ("xoscar==0.12.2",)}
VARIANTS = (*OURS, *RIVALS)
SENDERS = 4
SCENARIO_S = 60 if QUICK else 120
RIVAL_SCRIPT = Path(__file__).parent / "rivals" / "actors.py"
TELLS = 20_000 if QUICK else 100_000
FAN = 1_000
FAN_ROUNDS = 10 if QUICK else 30
ASKS = 1_000 if QUICK else 4_000
MANY = 1_000 if QUICK else 10_000


def proc_status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


class Bare(threading.Thread):
    """What an actor cannot do without: a thread, a queue, a loop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._queue: queue.SimpleQueue[tuple[Any, queue.SimpleQueue[int] | None]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        count = 0
        while True:
            _, reply = self._queue.get()
            count += 1
            if reply is not None:
                reply.put(count)

    def tell(self, message: Any) -> None:
        self._queue.put((message, None))

    def ask(self, message: Any) -> int:
        reply: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._queue.put((message, reply))
        return reply.get(timeout=60)


def make(variant: str) -> tuple[Callable[[int], list[Any]], Callable[[Any, Any], Any]]:
    """How to start n counting actors, and how to ask one."""
    if variant == "bare":
        return (lambda n: [Bare() for _ in range(n)]), (lambda ref, m: ref.ask(m))
    if variant == "pykka":
        import pykka

        logging.getLogger("pykka").setLevel(logging.CRITICAL)

        class Plain(pykka.ThreadingActor):
            use_daemon_thread = True

            def __init__(self) -> None:
                super().__init__()
                self.count = 0

            def on_receive(self, message: Any) -> int:
                self.count += 1
                return self.count

        return (lambda n: [Plain.start() for _ in range(n)]), (lambda ref, m: ref.ask(m, timeout=60))

    from lastword.actors.system.actor import Actor
    from lastword.actors.system.system import ActorSystem
    from lastword.actors.system.tracing import JsonlTracer

    class Counting(Actor):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def receive(self, message: Any) -> int:
            self.count += 1
            return self.count

    if variant == "pooled no check":
        from lastword.actors.system.mailbox import STOP
        from lastword.actors.system.supervision import ChildFailed

        def without_check(self: Any, message: Any) -> Any:
            cell = self._cell
            if message is STOP:
                return cell.request_stop()
            if message.__class__ is cell.timer_class:
                raise AssertionError
            try:
                if message.__class__ is ChildFailed:
                    return self.child_failed(message)
                return self.receive(message)
            except BaseException as error:
                return cell.handler_raised(error, message)

        Actor._handle_receive = without_check  # type: ignore[method-assign]
    tracer = JsonlTracer(Path(tempfile.mkdtemp()) / "trace.jsonl") if variant == "pooled traced" else None
    system = ActorSystem("bench", dispatcher="pinned" if variant == "pinned" else "pooled", tracer=tracer)

    def start(n: int) -> list[Any]:
        return [system.spawn(Counting, name=f"a{i}") for i in range(n)]

    return start, (lambda ref, m: ref.ask(m, timeout_s=60))


def measure(variant: str, scenario: str) -> dict[str, float]:
    start, ask = make(variant)
    if scenario == "tell":
        (ref,) = start(1)
        ask(ref, 0)
        best = 0.0
        for _ in range(5):
            began = time.perf_counter()
            for n in range(TELLS // 2):
                ref.tell(n)
            ask(ref, 0)
            best = max(best, TELLS / 2 / (time.perf_counter() - began))
        return {"tell 1-1, per s": best}
    if scenario == "fan":
        refs = start(FAN)
        for ref in refs:
            ask(ref, 0)
        began = time.perf_counter()
        for n in range(FAN_ROUNDS):
            for ref in refs:
                ref.tell(n)
        for ref in refs:
            ask(ref, 0)
        return {"fan-out to 1,000, per s": FAN * FAN_ROUNDS / (time.perf_counter() - began)}
    if scenario == "fan-in":
        (ref,) = start(1)
        ask(ref, 0)

        def send() -> None:
            for n in range(TELLS // SENDERS):
                ref.tell(n)

        senders = [threading.Thread(target=send) for _ in range(SENDERS)]
        began = time.perf_counter()
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        ask(ref, 0)
        return {f"fan-in from {SENDERS}, per s": TELLS / (time.perf_counter() - began)}
    if scenario == "ask":
        (ref,) = start(1)
        ask(ref, 0)
        took = []
        for n in range(ASKS):
            began = time.perf_counter()
            ask(ref, n)
            took.append((time.perf_counter() - began) * 1e6)
        took.sort()
        return {"ask p50, us": took[ASKS // 2], "ask p99, us": took[ASKS * 99 // 100]}
    rss, threads, began = proc_status("VmRSS"), proc_status("Threads"), time.perf_counter()
    refs = start(MANY)
    for ref in refs:
        ask(ref, 0)
    spent, cpu = time.perf_counter() - began, time.process_time()
    out = {
        f"{MANY:,} actors: KiB each": (proc_status("VmRSS") - rss) / MANY,
        f"{MANY:,} actors: threads": float(proc_status("Threads") - threads),
        f"{MANY:,} actors: start + first ask, us each": spent / MANY * 1e6,
    }
    time.sleep(1)
    out[f"{MANY:,} actors: idle CPU, %"] = (time.process_time() - cpu) * 100
    return out


def command_of(variant: str) -> list[str]:
    """How to measure it: an interpreter and a script.

    Raises: MissingError: it cannot be installed here.
    """
    if variant in OURS:
        return [sys.executable, __file__]
    needed = RIVALS[variant]
    return [python_with(*needed) if needed else sys.executable, str(RIVAL_SCRIPT), variant]


def main(rounds: int) -> None:
    commands = {}
    for variant in VARIANTS:
        try:
            commands[variant] = command_of(variant)
        except MissingError as reason:
            skipped(variant, reason)
    figures: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for scenario in ("tell", "fan-in", "fan", "ask", "many"):
            for variant, command in commands.items():
                if scenario == "many" and (number > 0 or variant in ("pooled no check", "pooled traced")):
                    continue
                try:
                    done = subprocess.run(
                        [*command, *([variant] if variant in OURS else []), scenario],
                        capture_output=True,
                        text=True,
                        timeout=SCENARIO_S,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    skipped(f"{variant}, {scenario}", f"took more than {SCENARIO_S} s")
                    continue
                if done.returncode:
                    skipped(f"{variant}, {scenario}", done.stderr.strip().splitlines()[-1:])
                    continue
                for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                    figures.setdefault(name, {}).setdefault(variant, []).append(value)
    medians = {
        name: {variant: statistics.median(values) for variant, values in by_variant.items()}
        for name, by_variant in figures.items()
    }
    rows: list[list[object]] = []
    for name, row in medians.items():
        pooled = row.get("pooled")
        ratios = [pooled / row[other] if pooled and row.get(other) else float("nan") for other in ("bare", "pykka")]
        rows.append([name, *(row.get(variant, float("nan")) for variant in VARIANTS), *ratios])
    show(
        "Actors",
        ["", *VARIANTS, "pooled to bare", "pooled to pykka"],
        rows,
        "bare: a thread and a SimpleQueue each, the floor.",
    )
    tells = medians.get("tell 1-1, per s", {})
    if "pooled no check" in tells and "pooled traced" in tells:
        costs = [
            ["with the tracer off, to without the check", tells["pooled"] / tells["pooled no check"]],
            ["with tracing on, to off", tells["pooled traced"] / tells["pooled"]],
        ]
        show("Tells of the pooled dispatcher", ["what", "ratio"], costs)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])), flush=True)
        os._exit(0)  # ten thousand threads are not worth joining
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1 if QUICK else 3)
