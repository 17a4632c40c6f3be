"""The connections that read the journal: a bounded pool for readers of any thread."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lastword.actors.core.errors import JournalError
from lastword.runtime._journal_file import JournalFile

READERS_MAX: Final = 4
"""Connections that read at the same time; a further reader waits for one."""

READER_WAIT_S: Final = 30.0
"""How long it waits at most."""


class Readers:
    """A bounded pool of connections that read; made when first wanted."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._free: list[sqlite3.Connection] = []
        self._permits = threading.BoundedSemaphore(READERS_MAX)
        self._lock = threading.Lock()
        self._closed = False
        self._life = 0

    def renew(self) -> None:
        """The file is another one: none of the connections so far is used again."""
        with self._lock:
            self._life += 1
            free, self._free = self._free, []
        for db in free:
            db.close()

    @contextlib.contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """One of them, for as long as the block lasts.

        Raises:
            JournalError: ``journal_closed``; none came free within :data:`READER_WAIT_S`.
        """
        if not self._permits.acquire(timeout=READER_WAIT_S):
            raise JournalError("journal_failed", f"no reader of {self._file.path} came free", retryable=True)
        try:
            with self._lock:
                if self._closed:
                    raise closed_error(self._file.path)
                db = self._free.pop() if self._free else None
                life = self._life
            if db is None:
                db = self._file.connect_reader()
            try:
                yield db
            finally:
                with self._lock:
                    keep = not self._closed and life == self._life
                    if keep:
                        self._free.append(db)
                if not keep:
                    db.close()
        finally:
            self._permits.release()

    def close(self) -> None:
        """Close those that are free; those lent out close when they come back."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for db in free:
            db.close()


def closed_error(path: Path) -> JournalError:
    """What a closed journal answers."""
    return JournalError("journal_closed", f"the journal {path} is closed")
