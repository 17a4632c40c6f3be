"""Terminal record written -> a subscriber holds the committed completion, against the floor of the same run.

Real: the files, their wake-ups, the actors, the SQLite journal, the subscription. Only the pane is in-process. The
record is written by another process. The floor is what any such program must pay at least: a raw inotify wake-up of
a thread that reads the bytes, appends 4 kB and calls fdatasync, paced alike, in blocks between those of the measurement.

Prints figures, asserts nothing.
Usage: python bench/completion_latency.py [--sessions 1,10,100,1000] [--folder DIR] [--durability power,process]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import select
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from _disk_rig import DiskRig, Writer, ended
from _report import QUICK, percentile, show

from lastword import events
from lastword.transports.memory import MemoryCli

THINK_S = 0.03
"""From the prompt's record to the terminal one."""
SAMPLES = {1: 50, 10: 100, 100: 200, 1000: 300} if QUICK else {1: 240, 10: 400, 100: 800, 1000: 1600}
PER_S = {1: 25, 10: 50, 100: 100, 1000: 100}
"""Turns that end per second, all sessions together."""
BLOCKS = 4
FLOOR_SAMPLES = 20 if QUICK else 40
"""Before, between and after the blocks."""
WARM_UP = 20
DRAIN_S = 15.0
IN_MODIFY = 0x2


class Floor:
    """inotify + read + 4 kB + fdatasync."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        folder.mkdir(parents=True)
        self._record = folder / "record"
        self._record.write_bytes(b"")
        self._journal = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._sync = sync
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(os.O_CLOEXEC)
        if self._inotify < 0 or libc.inotify_add_watch(self._inotify, bytes(self._record), IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def measure(self, count: int, per_s: float) -> list[float]:
        """Milliseconds."""
        writer, held = Writer(), list[float]()
        reader = os.open(self._record, os.O_RDONLY)
        os.lseek(reader, 0, os.SEEK_END)
        start = time.perf_counter() + 0.3
        for n in range(count):
            writer.write(start + n / per_s, str(self._record), f"{n:06d}")
        end = start + count / per_s + 2.0
        while len(held) < count and time.perf_counter() < end:
            if not select.select([self._inotify], [], [], 0.5)[0]:
                continue
            os.read(self._inotify, 65536)
            ends = os.read(reader, 1 << 20).count(b'"k":"end"')  # a slow sync may leave several to one wake-up
            if ends:
                os.write(self._journal, b"x" * 4096)
                if self._sync:
                    os.fdatasync(self._journal)
                held += [time.perf_counter()] * ends
        os.close(reader)
        written = sorted(writer.finish().values())
        return [(b - a) * 1e3 for a, b in zip(written, held, strict=True)]

    def close(self) -> None:
        os.close(self._inotify)
        os.close(self._journal)


class Run:
    """One figure: so many sessions at such a pace."""

    def __init__(self, folder: Path, sessions: int, durability: str) -> None:
        self.sessions = sessions
        self.per_s = PER_S.get(sessions, 100)
        self.count = SAMPLES.get(sessions, 1000)
        self.durability = durability
        self.folder = folder
        self.held: dict[str, float] = {}
        self.twice = 0
        self.acks: list[float] = []
        self.refused = 0
        self.written: dict[str, float] = {}
        self.floor: list[float] = []
        self.cpu_ms = 0.0

    def go(self) -> None:
        floor = Floor(self.folder / "floor", sync=self.durability == "power")
        writer = Writer()

        def on_turn(cli: MemoryCli, turn: str) -> None:
            writer.write(time.perf_counter() + THINK_S, cli.path, turn)

        rig = DiskRig(self.folder, self.durability, on_turn)
        with rig.runtime:
            sessions = [rig.runtime.session("memory") for _ in range(self.sessions)]
            clis = rig.ready(sessions)
            followers = [
                threading.Thread(target=self._follow, args=(session.events(after=session.snapshot().seq), cli))
                for session, cli in zip(sessions, clis, strict=True)
            ]
            for follower in followers:
                follower.start()
            self._drive(sessions, 0, WARM_UP)
            self._drain(WARM_UP)
            warm = set(self.held)
            self.acks.clear()
            self.floor += floor.measure(FLOOR_SAMPLES, self.per_s)
            sent, share = WARM_UP, self.count // BLOCKS
            for _ in range(BLOCKS):
                cpu = time.process_time()
                self._drive(sessions, sent, share)
                sent += share
                self._drain(sent - self.refused)
                self.cpu_ms += (time.process_time() - cpu) / self.count * 1e3
                self.floor += floor.measure(FLOOR_SAMPLES, self.per_s)
            self.written = {key: at for key, at in writer.finish().items() if key not in warm}
        for follower in followers:
            follower.join(5.0)
        floor.close()

    def _drive(self, sessions: list[Any], first: int, count: int) -> None:
        start = time.perf_counter()
        for n in range(count):
            pause = start + n / self.per_s - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            session = sessions[(first + n) % len(sessions)]
            began = time.perf_counter()
            try:
                session.send(f"prompt {first + n}")
            except Exception:
                self.refused += 1
                continue
            self.acks.append((time.perf_counter() - began) * 1e3)

    def _drain(self, count: int) -> None:
        end = time.monotonic() + DRAIN_S
        while len(self.held) < count and time.monotonic() < end:
            time.sleep(0.02)

    def _follow(self, stream: Any, cli: MemoryCli) -> None:
        for event in stream:
            if not isinstance(event.body, events.CompletionReached):
                continue
            now = time.perf_counter()
            turn = (event.body.completion.answer or "").split(" ")[0]
            self.twice += turn in self.held
            self.held[turn] = now
            ended(cli)

    @property
    def latencies(self) -> list[float]:
        return [(self.held[key] - at) * 1e3 for key, at in self.written.items() if key in self.held]

    @property
    def lost(self) -> int:
        return len([key for key in self.written if key not in self.held])

    def row(self) -> list[object]:
        spent = self.latencies
        p50, floor50 = percentile(spent, 0.5), percentile(self.floor, 0.5)
        return [
            self.durability, self.sessions, self.per_s, len(spent), p50, percentile(spent, 0.99), floor50,
            percentile(self.floor, 0.99), p50 / floor50, self.lost, self.twice, self.cpu_ms,
        ]  # fmt: skip

    def ack_row(self) -> list[object]:
        acks = [self.durability, self.sessions, len(self.acks), percentile(self.acks, 0.5)]
        return [*acks, percentile(self.acks, 0.99), self.refused]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", default="1,10,100,1000")
    parser.add_argument("--durability", default="power" if QUICK else "power,process")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    rows, acks = [], []
    for durability in args.durability.split(","):
        for sessions in map(int, args.sessions.split(",")):
            with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as folder:
                run = Run(Path(folder), sessions, durability)
                run.go()
            rows.append(run.row())
            acks.append(run.ack_row())
    show(
        "Terminal record written -> subscriber holds the committed completion, ms",
        ["durability", "sessions", "ends/s", "n", "p50", "p99", "floor p50", "floor p99", "ratio p50", "lost", "twice",
         "CPU ms/turn"],
        rows,
        "CPU: all of this process for a whole turn (delivery, pane, journal, subscriber).",
    )  # fmt: skip
    columns = ["durability", "sessions", "n", "p50", "p99", "refused"]
    show("`send` acknowledged (the message is committed), ms", columns, acks)


if __name__ == "__main__":
    main()
