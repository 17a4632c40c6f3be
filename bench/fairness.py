"""A quiet session's terminal record written -> its subscriber holds the completion, alone and beside a noisy session.

The rig is that of ``completion_latency.py``. The noisy session has an open turn, to whose record another process appends:
many short lines, big ones, or bursts. Blocks alone and beside each noise alternate in one run.

Then the same of whole turns on the in-process transport, where the noise is the host's own: threads that all call ``run``
of one session, one turn behind the other, as fast as they are answered.

Prints figures, asserts nothing.
Usage: python bench/fairness.py [--quick] [--folder DIR] [--durability power]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _disk_rig import DiskRig, Writer, ended
from _report import QUICK, percentile, show

from lastword import Runtime, events
from lastword.runtime._edge import Edge
from lastword.transports.memory import MemoryCli, MemoryWorld

NOISES = {
    "alone": (0, 0, 0),
    "3000 lines/s of 200 B": (3000, 200, 1),
    "20 lines/s of 256 KiB": (20, 256 * 1024, 1),
    "2 bursts/s of 4 MiB in lines of 1 KiB": (2, 1024, 4096),
}
"""Writes a second, bytes of a line, lines of a write."""
PER_S = 20
THINK_S = 0.03
DRAIN_S = 15.0
CALLERS = (0, 10, 50, 200)
TURNS = 30 if QUICK else 150
NOISE = """
import json, os, sys, time
path, turn, per_s, size, lines, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
line = json.dumps({"k": "said", "turn": turn, "text": "x" * int(size)}).encode() + b"\\n"
data = line * int(lines)
fd = os.open(path, os.O_WRONLY | os.O_APPEND)
start, done = time.monotonic(), 0
while (spent := time.monotonic() - start) < seconds:
    while done < spent * per_s:
        os.write(fd, data)
        done += 1
    time.sleep(0.005)
"""


class Run:
    """Two sessions: one that is measured, one that is noisy."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.folder = folder
        self.durability = durability
        self.held: dict[str, float] = {}
        self.kinds: dict[str, str] = {}
        self.kind = ""
        self.noisy_path = ""
        self.noisy_turn = ""
        self.written: dict[str, float] = {}

    def go(self, rounds: int, count: int) -> None:
        writer = Writer()

        def on_turn(cli: MemoryCli, turn: str) -> None:
            if cli.path == self.noisy_path:
                self.noisy_turn = turn
                return
            self.kinds[turn] = self.kind
            writer.write(time.perf_counter() + THINK_S, cli.path, turn)

        rig = DiskRig(self.folder, self.durability, on_turn)
        with rig.runtime:
            sessions = [rig.runtime.session("memory") for _ in range(2)]
            quiet, noisy = sessions
            cli, noisy_cli = rig.ready(sessions)
            self.noisy_path = noisy_cli.path
            follower = threading.Thread(
                target=self._follow, args=(quiet.events(after=quiet.snapshot().seq), cli), daemon=True
            )
            follower.start()
            noisy.send("noise")
            self._block(quiet, 10)
            for _ in range(rounds):
                for self.kind, (per_s, size, lines) in NOISES.items():
                    noise = self._noise(per_s, size, lines, count / PER_S + 0.3) if per_s else None
                    self._block(quiet, count)
                    if noise:
                        noise.wait(DRAIN_S)
            self.written = writer.finish()
        follower.join(5.0)

    def _noise(self, per_s: int, size: int, lines: int, seconds: float) -> subprocess.Popen[bytes]:
        values = [self.noisy_path, self.noisy_turn, str(per_s), str(size), str(lines), str(seconds)]
        return subprocess.Popen([sys.executable, "-c", NOISE, *values])

    def _block(self, quiet: Any, count: int) -> None:
        due, want = time.perf_counter(), len(self.held) + count
        for n in range(count):
            time.sleep(max(0.0, due + n / PER_S - time.perf_counter()))
            quiet.send(f"prompt {n}")
        end = time.monotonic() + DRAIN_S
        while len(self.held) < want and time.monotonic() < end:
            time.sleep(0.02)

    def _follow(self, stream: Any, cli: MemoryCli) -> None:
        for event in stream:
            if isinstance(event.body, events.CompletionReached):
                self.held[(event.body.completion.answer or "").split(" ")[0]] = time.perf_counter()
                ended(cli)

    def rows(self) -> list[list[object]]:
        rows: list[list[object]] = []
        alone = (0.0, 0.0)
        for kind in NOISES:
            keys = [key for key in self.written if self.kinds.get(key) == kind]
            spent = [(self.held[key] - self.written[key]) * 1e3 for key in keys if key in self.held]
            p50, p99 = percentile(spent, 0.5), percentile(spent, 0.99)
            alone = (p50, p99) if kind == "alone" else alone
            rows.append([kind, len(spent), p50, p99, p50 / alone[0], p99 / alone[1], len(keys) - len(spent)])
        return rows


def beside_callers(folder: str, durability: Any) -> list[list[object]]:
    """A row for each number of callers, with the quiet session's turns in milliseconds."""
    rows: list[list[object]] = []
    world = MemoryWorld()
    edge = Edge(transport=world, files=world, wakes=world, close=world.close)
    with Runtime.open(Path(folder) / "callers", edge=edge, durability=durability) as host:
        quiet, noisy = host.session("memory"), host.session("memory")
        quiet.run("the first")
        for callers in CALLERS:
            done = threading.Event()
            spent, noise = [], [0] * callers

            def call(number: int, noise: list[int] = noise, done: threading.Event = done) -> None:
                while not done.is_set():
                    noisy.run("noise", queue=True)
                    noise[number] += 1

            threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
            for thread in threads:
                thread.start()
            began = time.perf_counter()
            for _ in range(TURNS):
                time.sleep(1 / PER_S)
                asked = time.perf_counter()
                quiet.run("a prompt")
                spent.append((time.perf_counter() - asked) * 1e3)
            noisy_per_s = sum(noise) / (time.perf_counter() - began)
            done.set()
            for thread in threads:
                thread.join()
            rows.append([callers, len(spent), percentile(spent, 0.5), percentile(spent, 0.99), noisy_per_s])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--durability", default="power")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as folder:
        run = Run(Path(folder), args.durability)
        run.go(*((1, 40) if QUICK else (4, 100)))
        callers = beside_callers(folder, args.durability)
    show(
        "A quiet session beside a noisy one: terminal record -> completion held, ms",
        ["noise", "n", "p50", "p99", "p50 to alone", "p99 to alone", "lost"],
        run.rows(),
        f"Load average {os.getloadavg()[0]:.1f}.",
    )
    show(
        "A quiet session's turn on the in-process transport beside callers of another, ms",
        ["callers", "n", "p50", "p99", "turns/s of the noisy one"],
        callers,
    )


if __name__ == "__main__":
    main()
