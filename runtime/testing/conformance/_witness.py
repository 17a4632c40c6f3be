"""Another process that sees record files grow, and when: what a completion is measured against. Stdlib only.

Run by its path it is that process: folders come on its stdin, a line each; each time that a file in one of them has
grown, one line of JSON goes to stdout: path, bytes, Unix seconds; and one with -1 bytes once a folder is watched. It
ends with its stdin. inotify(7) tells it, or, where there is none, a look every 2 ms. :class:`Witness` starts it and
reads it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

LOOK_S = 0.002
STOP_S = 5.0
WATCHING_S = 10.0
"""How long the process may take until it watches a folder: it may have to start first."""
_MASK = 0x2 | 0x80 | 0x100  # modified, moved to, created
_HEADER = struct.Struct("iIII")


class Witness:
    """A context manager. Thread-safe."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, float]]] = {}
        self._folders: set[str] = set()
        self._watched: set[str] = set()
        self._ended = False
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # what was to be told to one that is gone
            process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def watch(self, folder: Path) -> None:
        """See what grows in it from the return of this call on; it may not exist yet. Blocks for
        :data:`WATCHING_S` at most.
        """
        if str(folder) in self._folders or self._process is None:
            return
        self._folders.add(str(folder))
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(str(folder)).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return  # it is gone: nothing is seen, and what was to be measured says so
        with self._changed:
            self._changed.wait_for(lambda: self._ended or str(folder) in self._watched, WATCHING_S)

    def watches(self, folder: Path) -> bool:
        """Whether it was told of that folder."""
        return str(folder) in self._folders

    def held(self, path: str, offset: int, *, within_s: float) -> float | None:
        """When it saw that file hold more than so many bytes, Unix seconds; None: it did not."""
        with self._changed:
            self._changed.wait_for(lambda: self._first(path, offset) is not None, within_s)
            return self._first(path, offset)

    def _first(self, path: str, offset: int) -> float | None:
        return next((at for size, at in self._seen.get(path, ()) if size > offset), None)

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                path, size, at = json.loads(line)
                with self._changed:
                    if size < 0:
                        self._watched.add(path)
                    else:
                        self._seen.setdefault(path, []).append((size, at))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class _Eyes:
    """The process itself."""

    def __init__(self) -> None:
        self._wanted: list[str] = []
        self._sizes: dict[str, int] = {}
        self._folders: dict[int, str] = {}
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._inotify = (
            self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(self._libc, "inotify_init1") else -1
        )

    def run(self) -> None:
        """Until stdin ends."""
        asked = b""
        while True:
            eyes = [self._inotify] if self._inotify >= 0 else []
            ready, _, _ = select.select([0, *eyes], [], [], None if eyes else LOOK_S)
            if self._inotify in ready:
                self._events(time.time())
            if not eyes:
                for folder in self._wanted:
                    self._look(folder, time.time())
            if 0 in ready:
                chunk = os.read(0, 65536)
                if not chunk:
                    return
                *lines, asked = (asked + chunk).split(b"\n")
                for line in lines:
                    folder = json.loads(line)
                    self._wanted.append(folder)
                    if self._add(folder):
                        for name in os.listdir(folder):  # noqa: PTH208 - what stands there was written before
                            self._sizes[f"{folder}/{name}"] = self._size(f"{folder}/{name}")
                    os.write(1, json.dumps([folder, -1, time.time()]).encode() + b"\n")

    def _add(self, folder: str) -> bool:
        """Watch it, or the nearest folder above it that is there."""
        if self._inotify < 0:
            return os.path.isdir(folder)  # noqa: PTH112
        handle = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), _MASK)
        if handle >= 0:
            self._folders[handle] = folder
            return True
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder or not self._add(above):
            return False
        handle = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), _MASK)
        if handle < 0:
            return False
        self._folders[handle] = folder  # it was made while the one above was not watched yet
        return True

    def _events(self, now: float) -> None:
        data = os.read(self._inotify, 1 << 16)
        touched: dict[str, None] = {}
        at = 0
        while at < len(data):
            handle, _, _, length = _HEADER.unpack_from(data, at)
            name = os.fsdecode(data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0"))
            at += _HEADER.size + length
            touched[f"{self._folders.get(handle, '')}/{name}"] = None
        for path in touched:
            self._grown(path, now)
            for folder in self._wanted:
                if (folder == path or folder.startswith(f"{path}/")) and self._add(folder):
                    self._look(folder, now)

    def _look(self, folder: str, now: float) -> None:
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            return
        for name in names:
            self._grown(f"{folder}/{name}", now)

    def _grown(self, path: str, now: float) -> None:
        size = self._size(path)
        if size > self._sizes.get(path, 0) and os.path.isfile(path):  # noqa: PTH113
            self._sizes[path] = size
            os.write(1, json.dumps([path, size, now]).encode() + b"\n")

    def _size(self, path: str) -> int:
        try:
            return os.stat(path).st_size  # noqa: PTH116
        except OSError:
            return 0


if __name__ == "__main__":
    _Eyes().run()
