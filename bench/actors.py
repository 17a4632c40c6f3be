"""lastword's actors beside plain pykka's, in the same run: compare the ratios, the absolutes are the machine's.

Usage: PYTHONPATH=src python bench/actors.py [rounds]. Each figure is the median over rounds; each measurement is a process
of its own, the variants take turns. ``no check`` is the pooled dispatcher with the tracer test cut out of the guard.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _report import QUICK

VARIANTS = ("pykka", "pooled", "pinned", "pooled no check", "pooled traced")
TELLS = 100_000
FAN = 1_000
FAN_ROUNDS = 30
ASKS = 4_000
MANY = 10_000


def proc_status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


def make(variant: str) -> tuple[Callable[[int], list[Any]], Callable[[Any, Any], Any]]:
    """How to start n counting actors, and how to ask one."""
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
        "10,000 actors: KiB each": (proc_status("VmRSS") - rss) / MANY,
        "10,000 actors: threads": float(proc_status("Threads") - threads),
        "10,000 actors: start + first ask, us each": spent / MANY * 1e6,
    }
    time.sleep(1)
    out["10,000 actors: idle CPU, %"] = (time.process_time() - cpu) * 100
    return out


def main(rounds: int) -> None:
    figures: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for scenario in ("tell", "fan", "ask", "many"):
            for variant in VARIANTS:
                many = scenario == "many"
                if many and (number > 0 or variant not in ("pykka", "pooled", "pinned")):
                    continue
                done = subprocess.run(
                    [sys.executable, __file__, variant, scenario],
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                if done.returncode:
                    print(f"{variant}, {scenario}: failed: {done.stderr.strip().splitlines()[-1:]}")
                    continue
                for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                    figures.setdefault(name, {}).setdefault(variant, []).append(value)
    print(f"{'':43}" + "".join(f"{variant:>18}" for variant in VARIANTS) + "   pooled : pykka")
    for name, by_variant in figures.items():
        row = {variant: statistics.median(values) for variant, values in by_variant.items()}
        cells = "".join(f"{row[v]:>18,.1f}" if v in row else f"{'':>18}" for v in VARIANTS)
        ratio = f"{row['pooled'] / row['pykka']:>10.2f}" if row.get("pykka") and "pooled" in row else ""
        print(f"{name:43}{cells}{ratio}")
    tells = {variant: statistics.median(values) for variant, values in figures["tell 1-1, per s"].items()}
    print(f"tells with the tracer off : without the check = {tells['pooled'] / tells['pooled no check']:.2f}")
    print(f"tells with tracing on : off                   = {tells['pooled traced'] / tells['pooled']:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])), flush=True)
        os._exit(0)  # ten thousand threads are not worth joining
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1 if QUICK else 3)
