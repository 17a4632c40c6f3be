"""What tracing costs: CPU of the whole process a turn, with a trace and without, on the in-process transport.

One process, one runtime, one set of host threads; stretches of a few turns with the tracer off, on, on, off: what the
machine does to one of them it does to its neighbours. A stretch that is traced pays for opening, writing and closing
its file as well. Blocks are many and short: the median of their ratios tells what a busy machine hides from the means.
Prints figures, asserts nothing. Usage: python bench/tracing_cost.py [--blocks 150] [--sessions 8] [--turns 12]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _report import QUICK, percentile, show

from lastword import Runtime
from lastword.actors.system.tracing import JsonlTracer
from lastword.runtime._edge import Edge
from lastword.transports.memory import MemoryWorld

WARM_UP = 30


def edge() -> Edge:
    world = MemoryWorld()
    return Edge(transport=world, files=world, wakes=world, close=world.close)


class Stretches:
    """A thread for each session; all begin a stretch together."""

    def __init__(self, host: Runtime, sessions: int) -> None:
        self._host: Any = host
        self._sessions = [host.session("memory") for _ in range(sessions)]

    def run(self, turns: int, tracer: JsonlTracer | None = None) -> None:
        self._traced_by(tracer)
        threads = [threading.Thread(target=self._work, args=(session, turns)) for session in self._sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._traced_by(None)

    def cpu_ms(self, turns: int, file: Path | None) -> float:
        """Of a turn."""
        gc.collect()
        before = time.process_time()
        tracer = JsonlTracer(file) if file is not None else None
        self.run(turns, tracer)
        if tracer is not None:
            tracer.close()
            assert tracer.lost == 0
        return (time.process_time() - before) / (turns * len(self._sessions)) * 1e3

    def _traced_by(self, tracer: JsonlTracer | None) -> None:
        self._host._system.set_tracer(tracer)
        self._host._hub.tracer = tracer

    @staticmethod
    def _work(session: Any, turns: int) -> None:
        for n in range(turns):
            session.run(f"p{n}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=15 if QUICK else 150, help="of four stretches: off, on, on, off")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=12, help="of each session in a stretch")
    parser.add_argument("--durability", choices=["process", "power"], default="process")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    options = parser.parse_args()
    off: list[float] = []
    on: list[float] = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix=".bench-") as name:
        file = Path(name) / "trace.jsonl"
        with Runtime.open(Path(name) / "state", edge=edge(), durability=options.durability) as host:
            stretches = Stretches(host, options.sessions)
            stretches.run(WARM_UP)
            for _ in range(options.blocks):
                four = [stretches.cpu_ms(options.turns, file if traced else None) for traced in (0, 1, 1, 0)]
                off.append((four[0] + four[3]) / 2)
                on.append((four[1] + four[2]) / 2)
        data = file.read_bytes()
    traced = options.blocks * 2 * options.turns * options.sessions
    more = [(b / a - 1) * 100 for a, b in zip(off, on, strict=True)]
    spread = 1.25 * statistics.stdev(more) / len(more) ** 0.5
    row = [
        options.durability,
        len(more),
        statistics.median(off),
        statistics.median(on),
        statistics.median(more),
        spread,
    ]
    row += [percentile(more, 0.25), percentile(more, 0.75), len(data) / traced, data.count(b"\n") / traced]
    show(
        f"CPU a turn with a trace and without, in-process transport, {options.sessions} sessions",
        ["durability", "blocks", "off ms", "on ms", "more %", "± %", "p25 %", "p75 %", "bytes/turn", "lines/turn"],
        [row],
        "CPU of the whole process, user and system; `more` is the median of the blocks' ratios, `±` its standard error.",
    )


if __name__ == "__main__":
    main()
