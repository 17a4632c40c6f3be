"""The rig of the end-to-end benches: everything real (files, wake-ups, journal, actors) but the pane.

The pane is the in-process one, whose CLIs here write real files. A turn's terminal record is written by a process of
its own (:func:`writer_main`), which stamps the clock just before ``write``; ``time.perf_counter`` is the machine's
monotonic clock on Linux, the same in every process. Stamps are handed over only at the end, so nothing of the
measuring runs in the measured process while a turn ends.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from lastword import Runtime
from lastword.runtime._edge import Edge
from lastword.transports.files import LocalFiles
from lastword.transports.memory import MemoryCli, MemoryWorld
from lastword.transports.providers.memory import MemoryAdapter, Record
from lastword.transports.watch import FileWatcher

ANSWER_FILL = "x" * 400
END_S = 20.0


class DiskWorld(MemoryWorld):
    """A memory world whose files stand on the disk under ``root``; readers are woken by the kernel, not by it."""

    def append(self, path: str, data: bytes) -> None:
        _write(path, data, os.O_APPEND)

    def replace(self, path: str, data: bytes) -> None:
        _write(path, data, os.O_TRUNC)

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        raise AssertionError("files are read through LocalFiles")


def ended(cli: MemoryCli) -> None:
    """What a CLI does after its terminal record, which the other process wrote: its registry, its own queue.

    In one step: an Enter that came between the end and the queue would open a second turn beside the first.
    """
    cli.write_status("idle")
    with cli._lock:
        following = cli.queue.pop(0) if cli.queue else None
        if following is None:
            cli.turn = ""
    if following is not None:
        cli.start_turn(following, queued=True)


def _write(path: str, data: bytes, flag: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


class DiskRig:
    """A runtime on real files. ``on_turn`` is called when the prompt of a turn is on record."""

    def __init__(
        self, folder: Path, durability: str, on_turn: Callable[[MemoryCli, str], None], **options: Any
    ) -> None:
        records = folder / "records"
        records.mkdir(parents=True)
        self.world = DiskWorld(manual=True, root=str(records))
        self.world.on_turn = on_turn
        self.watcher = FileWatcher()
        edge = Edge(transport=self.world, files=LocalFiles(), wakes=self.watcher, close=self._close_edge)
        adapter = MemoryAdapter(root=str(records))
        options = {"durability": durability, **options}
        self.runtime = Runtime.open(folder / "state", edge=edge, adapters=(adapter,), **options)

    def _close_edge(self, grace_s: float) -> None:
        self.world.close(grace_s)
        self.watcher.close()

    def ready(self, sessions: list[Any]) -> list[MemoryCli]:
        """The sessions' CLIs, once all take text."""
        end = time.monotonic() + END_S + 0.05 * len(sessions)
        clis = []
        for session in sessions:
            while (snapshot := session.snapshot()).state != "idle":
                if time.monotonic() > end:
                    raise TimeoutError(f"a session is still {snapshot.state}")
                time.sleep(0.002)
            clis.append(self.world.clis[snapshot.handle.native_session_id])
        return clis


def ending(turn: str) -> bytes:
    """What the CLI writes at the end of a turn, in one write."""
    answer = f"{turn} {ANSWER_FILL}"
    said = msgspec.json.encode(Record(k="said", turn=turn, text=answer))
    end = msgspec.json.encode(Record(k="end", turn=turn, text=answer, status="completed"))
    return said + b"\n" + end + b"\n"


class Writer:
    """The other process. Jobs must be given in the order in which they are due."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def write(self, due: float, path: str, key: str) -> None:
        """Append the ending of ``key`` to ``path`` at ``due`` (perf_counter, seconds)."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{due!r}\t{path}\t{key}\n".encode())  # < PIPE_BUF: whole, from any thread

    def finish(self) -> dict[str, float]:
        """key -> when it was written, once all is written."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        stamps: dict[str, float] = json.loads(self._process.stdout.read())
        self._process.wait(END_S)
        return stamps


def writer_main() -> None:
    jobs: deque[tuple[float, str, str]] = deque()
    stamps: dict[str, float] = {}
    rest, more = b"", True
    while more or jobs:
        wait_s = max(0.0, jobs[0][0] - time.perf_counter()) if jobs else None
        if more and select.select([0], [], [], wait_s)[0]:
            chunk = os.read(0, 65536)
            more = bool(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                due, path, key = line.decode().split("\t")
                jobs.append((float(due), path, key))
            continue
        if not more and wait_s:
            time.sleep(wait_s)
        _, path, key = jobs.popleft()
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        data = ending(key)
        stamps[key] = time.perf_counter()
        os.write(fd, data)
        os.close(fd)
    print(json.dumps(stamps))


if __name__ == "__main__":
    writer_main()
