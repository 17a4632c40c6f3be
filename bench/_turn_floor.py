"""The floor of turns per second: what any host that keeps its word must do for a turn, and nothing else.

A thread for each session hands a 1 kB message to one writer thread and waits until it is on the disk, twice a turn (the
message taken, the completion). The writer appends all that waits in one write and, with ``power``, one ``fdatasync``. No
SQLite, no actors, no record, no subscription, no answer.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path

DATA = b"x" * 1024
COMMITS_A_TURN = 2
GROUP_MAX = 1000


class Writer(threading.Thread):
    def __init__(self, file: Path, *, sync: bool) -> None:
        super().__init__(daemon=True)
        self.asked: queue.SimpleQueue[threading.Lock | None] = queue.SimpleQueue()
        self._sync = sync
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def run(self) -> None:
        while (first := self.asked.get()) is not None:
            group = [first]
            while len(group) < GROUP_MAX and not self.asked.empty():
                following = self.asked.get()
                if following is None:
                    self.asked.put(None)
                    break
                group.append(following)
            os.write(self._fd, DATA * len(group))
            if self._sync:
                os.fdatasync(self._fd)
            for waiting in group:
                waiting.release()
        os.close(self._fd)


def turns_per_second(folder: Path, *, sync: bool, sessions: int, turns: int) -> float:
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / "floor", sync=sync)
    writer.start()

    def work() -> None:
        done = threading.Lock()
        done.acquire()
        for _ in range(turns * COMMITS_A_TURN):
            writer.asked.put(done)
            done.acquire()

    threads = [threading.Thread(target=work) for _ in range(sessions)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - began
    writer.asked.put(None)
    writer.join()
    return sessions * turns / spent
