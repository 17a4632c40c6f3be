"""The watchdog source: one recursive watch per root, demultiplexed by path. For systems without inotify.

``event_filter`` names :class:`FileModifiedEvent` for the kernel mask and ``FileSystemEvent``, the base class, for the
queue: creations come through (a recursive watch has them in its mask anyway) without moves in the mask, which would
hold up the emitter for 500 ms each time a file is renamed out of the tree. Atomic replacement is then silent and left
to the sweep, and so is a root that does not exist yet.

watchdog calls its handlers with the observer's lock held, and scheduling takes the same lock: calling back from there
would deadlock with a caller that schedules under its own lock (seen). So the handler only queues, and a thread of
this source calls.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

from watchdog.events import FileModifiedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

from lastword.transports._guard import guarded

JOIN_S = 2.0


class WatchdogSource(FileSystemEventHandler):
    """See the module. ``wake`` is called with a watched path, on a thread of the source's own."""

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake_path = wake
        self._lock = threading.Lock()
        self._paths: dict[str, dict[str, str]] = {}
        """Root -> real path -> path as it was asked for."""
        self._watches: dict[str, ObservedWatch] = {}
        self._events: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._observer = Observer()
        self._observer.daemon = True
        self._observer.start()
        self._thread = threading.Thread(target=self._run, name="lastword-watchdog", daemon=True)
        self._thread.start()

    @property
    def unwatched(self) -> int:
        return sum(len(paths) for root, paths in self._paths.items() if root not in self._watches)

    def add(self, path: str, root: str) -> None:
        with self._lock:
            self._paths.setdefault(root, {})[_real(path)] = path
            self._schedule(root)

    def remove(self, path: str, root: str) -> None:
        with self._lock:
            paths = self._paths.get(root, {})
            paths.pop(_real(path), None)
            if not paths:
                self._paths.pop(root, None)
                watch = self._watches.pop(root, None)
                if watch is not None:
                    self._observer.unschedule(watch)

    def refresh(self) -> None:
        with self._lock:
            for root, watch in list(self._watches.items()):
                if not os.path.isdir(root):  # noqa: PTH112
                    del self._watches[root]
                    self._observer.unschedule(watch)
            for root in self._paths:
                self._schedule(root)

    def close(self) -> None:
        self._observer.stop()
        self._observer.join(JOIN_S)
        self._events.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._events.put(os.fsdecode(event.src_path))

    def _run(self) -> None:
        while (place := self._events.get()) is not None:
            with self._lock:
                paths = {path for some in self._paths.values() if (path := some.get(place)) is not None}
            for path in paths:
                guarded(self._wake_path, path)

    def _schedule(self, root: str) -> None:
        if root in self._watches or not os.path.isdir(root):  # noqa: PTH112
            return
        try:
            self._watches[root] = self._observer.schedule(
                self, os.path.realpath(root), recursive=True, event_filter=[FileModifiedEvent, FileSystemEvent]
            )
        except OSError:
            pass  # the limit of watches: the sweep looks after it, and the next one tries again


def _real(path: str) -> str:
    parent, name = os.path.split(path)
    return os.path.join(os.path.realpath(parent), name)  # noqa: PTH118
