"""What tracing costs: CPU of the whole process a turn, with a trace and without: of a turn in a real pane (the scripted
CLI in tmux, its record, its registry), and of one on the in-process transport, which does nothing but pass messages.

One process, one runtime, one set of host threads; stretches of a few turns with the tracer off, on, on, off: what the
machine does to one of them it does to its neighbours. The trace is opened once, as a host does it; each stretch ends
with a pause in which what was traced is written, and that is in its cost. (The writing thread wakes up five times a
second in those without a trace too.) Blocks are many and short: the median of their ratios tells what a busy machine hides from the means.
Prints figures, asserts nothing. Usage: python bench/tracing_cost.py [--blocks 150] [--sessions 8] [--turns 12]
[--pane-blocks 40]; of panes: four sessions, three turns of each in a stretch.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import panes
from _report import QUICK, percentile, show

from lastword import Runtime, Session
from lastword.actors.system.tracing import FLUSH_S, JsonlTracer
from lastword.runtime._edge import Edge
from lastword.runtime.testing import Rehearsal
from lastword.transports.memory import MemoryWorld

WARM_UP = 30
PANES = 4
PANE_TURNS = 3


def edge() -> Edge:
    world = MemoryWorld()
    return Edge(transport=world, files=world, wakes=world, close=world.close)


class Stretches:
    """A thread for each session; all begin a stretch together."""

    def __init__(self, host: Runtime, sessions: Sequence[Session]) -> None:
        self._host: Any = host
        self._sessions = sessions
        self._marks = count(1)

    def run(self, turns: int, tracer: JsonlTracer | None = None) -> None:
        self._traced_by(tracer)
        threads = [threading.Thread(target=self._work, args=(session, turns)) for session in self._sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._traced_by(None)

    def cpu_ms(self, turns: int, tracer: JsonlTracer | None) -> float:
        """Of a turn."""
        gc.collect()
        before = time.process_time()
        self.run(turns, tracer)
        time.sleep(2 * FLUSH_S)
        assert tracer is None or not tracer.waiting
        return (time.process_time() - before) / (turns * len(self._sessions)) * 1e3

    def _traced_by(self, tracer: JsonlTracer | None) -> None:
        self._host._system.set_tracer(tracer)
        self._host._hub.tracer = tracer

    def _work(self, session: Session, turns: int) -> None:
        for _ in range(turns):
            session.run(f"<<{next(self._marks)}>> a prompt of the usual length, on one line", queue=True)


def measured(stretches: Stretches, blocks: int, turns: int, sessions: int, file: Path) -> list[object]:
    """A row of figures."""
    off: list[float] = []
    on: list[float] = []
    tracer = JsonlTracer(file)
    for _ in range(blocks):
        four = [stretches.cpu_ms(turns, tracer if traced else None) for traced in (0, 1, 1, 0)]
        off.append((four[0] + four[3]) / 2)
        on.append((four[1] + four[2]) / 2)
    tracer.close()
    assert tracer.lost == 0
    traced = blocks * 2 * turns * sessions
    more = [(b / a - 1) * 100 for a, b in zip(off, on, strict=True)]
    spread = 1.25 * statistics.stdev(more) / len(more) ** 0.5
    data = file.read_bytes()
    row: list[object] = [blocks, statistics.median(off), statistics.median(on), statistics.median(more), spread]
    return [*row, percentile(more, 0.25), percentile(more, 0.75), len(data) / traced, data.count(b"\n") / traced]


def in_process(blocks: int, sessions: int, turns: int, durability: Any, folder: str) -> list[object]:
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".bench-") as name,
        Runtime.open(Path(name) / "state", edge=edge(), durability=durability) as host,
    ):
        stretches = Stretches(host, [host.session("memory") for _ in range(sessions)])
        stretches.run(WARM_UP)
        return measured(stretches, blocks, turns, sessions, Path(name) / "trace.jsonl")


def in_panes(blocks: int, durability: Any) -> list[object]:
    with Rehearsal() as kit:
        place = panes.Place(kit)
        with Runtime.open(
            kit.root / "state", env=place.env, executables={"claude-code": panes.CLI}, durability=durability
        ) as host:
            opened = [host.session("claude-code", cwd=kit.cwd) for _ in range(PANES)]
            for session in opened:
                panes.ready(session)
            stretches = Stretches(host, opened)
            stretches.run(PANE_TURNS)
            return measured(stretches, blocks, PANE_TURNS, PANES, kit.root / "trace.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=15 if QUICK else 150, help="of four stretches: off, on, on, off")
    parser.add_argument("--pane-blocks", type=int, default=6 if QUICK else 40, help="the same; 0: no panes")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=12, help="of each session in a stretch")
    parser.add_argument("--durability", choices=["process", "power"], default="process")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    options = parser.parse_args()
    rows: list[list[object]] = []
    if options.pane_blocks:
        rows.append([f"a real pane, {PANES} sessions", *in_panes(options.pane_blocks, options.durability)])
    if options.blocks:
        row = in_process(options.blocks, options.sessions, options.turns, options.durability, options.folder)
        rows.append([f"in-process transport, {options.sessions} sessions", *row])
    show(
        f"CPU a turn with a trace and without, `durability={options.durability}`",
        ["of a turn in", "blocks", "off ms", "on ms", "more %", "± %", "p25 %", "p75 %", "bytes/turn", "lines/turn"],
        rows,
        "CPU of the whole process, user and system; `more` is the median of the blocks' ratios, `±` its standard error.",
    )


if __name__ == "__main__":
    main()
