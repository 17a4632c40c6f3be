"""The journal's record of conversations, read like a file: for those with a model's API, which have none."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lastword.actors.core.errors import JournalError
from lastword.actors.core.ports import Journal
from lastword.actors.core.world import Bytes, FileRead, Missing, Unreadable
from lastword.transports._guard import guarded

SCHEME = "journal:"
"""Before a conversation's name, it makes the path of its record."""


class RecordFiles:
    """As :class:`lastword.actors.core.world.Files`. A record only grows, and is never another one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def read_from(self, path: str, offset: int, max_bytes: int, inode: int, device: int) -> FileRead:  # noqa: ARG002
        """Bytes at ``offset``."""
        try:
            data, size = self._journal.lines(path.removeprefix(SCHEME), offset, max_bytes)
        except JournalError as error:
            return Unreadable(error.reason)
        return Bytes(data=data, offset=offset, size=size, inode=1, device=1) if size else Missing()

    def read_small(self, path: str, max_bytes: int) -> bytes | None:  # noqa: ARG002
        """There is none."""
        return None

    def find(self, root: str, suffix: str) -> str:  # noqa: ARG002
        """There is none."""
        return ""

    def open_files(self, pid: int, pid_start: int) -> tuple[str, ...]:  # noqa: ARG002
        """There is no process."""
        return ()


class RecordWakes:
    """As :class:`lastword.actors.core.world.Wakes`: woken by the one that wrote. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, dict[object, Callable[[], None]]] = {}

    def watch(self, path: str, root: str, on_change: Callable[[], None]) -> object:  # noqa: ARG002
        """Be called when that record has grown."""
        token = (path, object())
        with self._lock:
            self._watched.setdefault(path, {})[token] = on_change
        return token

    def unwatch(self, token: object) -> None:
        """No more."""
        assert isinstance(token, tuple)
        path = str(token[0])
        with self._lock:
            watchers = self._watched.get(path, {})
            watchers.pop(token, None)
            if not watchers:
                self._watched.pop(path, None)

    def wrote(self, path: str) -> None:
        """It has grown."""
        with self._lock:
            watchers = list(self._watched.get(path, {}).values())
        for on_change in watchers:
            guarded(on_change)
