"""Wake-ups for files: hints that a look is worth while, never facts. Reads nothing but ``stat``.

Two mechanisms side by side. A *source* (inotify on Linux, watchdog elsewhere) calls within a fraction of a
millisecond; a slow sweep stats every watched path, so that a lost event, an overflown queue or an exhausted inotify
limit only makes it slower. A caller may be woken for nothing; it is never left asleep for longer than the sweep.
Figures and the choice of source: docs/adr/0005-wake-ups.md.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import msgspec

from lastword.transports._guard import guarded

POLL_S = 2.0
"""The sweep: how late a change may be seen when the source fails."""
JOIN_S = 2.0

SourceName: TypeAlias = Literal["inotify", "watchdog", "poll"]
_Signature: TypeAlias = tuple[int, int, int, int] | None


class WakeSource(Protocol):
    """Something that notices changes quickly. It calls ``wake(path)`` and ``lost()`` on a thread of its own."""

    @property
    def unwatched(self) -> int:
        """Paths for which it could set no watch; they are left to the sweep."""
        ...

    def add(self, path: str, root: str) -> None: ...

    def remove(self, path: str, root: str) -> None: ...

    def refresh(self) -> None:
        """Try again what could not be watched. Called by each sweep."""
        ...

    def close(self) -> None: ...


class WatchStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the start.

    Attributes:
        source: the source in use; ``poll`` means the sweep alone.
        woken: calls made for the source's events; ``swept``: for differences that the sweep found.
        lost: times that the source lost events (an overflow), each answered by a sweep at once.
        unwatched: paths without a kernel watch at this moment.
    """

    source: SourceName
    watched: int
    woken: int
    swept: int
    lost: int
    unwatched: int


class _Entry:
    __slots__ = ("path", "signature", "tokens")

    def __init__(self, path: str) -> None:
        self.path = path
        self.tokens: dict[WatchToken, str] = {}
        self.signature: _Signature = _signature(path)


class WatchToken:
    """Handle of one watch."""

    __slots__ = ("_on_change", "path")

    def __init__(self, path: str, on_change: Callable[[], None]) -> None:
        self.path = path
        self._on_change: Callable[[], None] | None = on_change

    def fire(self) -> None:
        on_change = self._on_change
        if on_change is not None:
            guarded(on_change)

    def cancel(self) -> None:
        self._on_change = None


class FileWatcher:
    """Wakes for many files with one source and one sweeping thread, started by the first watch.

    Thread-safe. ``on_change`` runs on a thread of the watcher's and must be short.

    Args:
        source: ``auto`` takes inotify on Linux, else watchdog; where neither can be had, ``poll``, until it can.
        told: called with a word when the wakes get slower or quick again: ``watch_source_missing`` (no source can be
            had), ``watch_limit`` (some folder cannot be watched), ``watch_overflow``, ``watch_recovered``.
    """

    def __init__(
        self,
        *,
        poll_s: float = POLL_S,
        source: SourceName | Literal["auto"] = "auto",
        told: Callable[[str], None] | None = None,
    ) -> None:
        self._told = told
        self._slow = False
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._wanted = source
        self._source: WakeSource | None = None
        self._source_name: SourceName = "poll"
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._closed = False
        self._woken = 0
        self._swept = 0
        self._lost = 0

    @property
    def stats(self) -> WatchStats:
        source = self._source
        return WatchStats(
            source=self._source_name,
            watched=len(self._entries),
            woken=self._woken,
            swept=self._swept,
            lost=self._lost,
            unwatched=source.unwatched if source is not None else len(self._entries),
        )

    def watch(
        self, path: str | os.PathLike[str], root: str | os.PathLike[str], on_change: Callable[[], None]
    ) -> WatchToken:
        """Call ``on_change`` whenever the file at ``path`` may have changed, appeared, gone or been replaced.

        ``root`` is the folder that the provider keeps its records under; neither it nor the file need exist yet.
        What changes from this call on is told: read *after* it, not before.
        """
        key, base = os.path.abspath(path), os.path.abspath(root)  # noqa: PTH100 - str on purpose: keys of a hot table
        token = WatchToken(key, on_change)
        with self._lock:
            if self._closed:
                msg = "the file watcher is closed"
                raise RuntimeError(msg)
            if self._thread is None:
                self._start()
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(key)
            entry.tokens[token] = base
            if self._source is not None:
                self._source.add(key, base)
        return token

    def unwatch(self, token: object) -> None:
        """Forget it; no call starts after this. Idempotent; a token of another watcher is ignored."""
        if not isinstance(token, WatchToken):
            return
        token.cancel()
        with self._lock:
            entry = self._entries.get(token.path)
            if entry is None or token not in entry.tokens:
                return
            root = entry.tokens.pop(token)
            if not entry.tokens:
                del self._entries[token.path]
            if self._source is not None and root not in entry.tokens.values():
                self._source.remove(token.path, root)

    def close(self) -> None:
        """Stop everything; bounded, idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            source, self._source = self._source, None
            for entry in self._entries.values():
                for token in entry.tokens:
                    token.cancel()
            self._entries.clear()
        self._hurry.set()
        if source is not None:
            source.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._source_name, self._source = _make_source(self._wanted, self._wake, self._on_lost)
        self._thread = threading.Thread(target=self._sweep_for_ever, name="lastword-sweep", daemon=True)
        self._thread.start()

    def _wake(self, path: str) -> None:
        with self._lock:
            entry = self._entries.get(path)
            tokens = list(entry.tokens) if entry is not None else []
            self._woken += len(tokens)
        for token in tokens:
            token.fire()

    def _on_lost(self) -> None:
        self._lost += 1
        self._tell("watch_overflow")
        self._hurry.set()

    def _tell(self, word: str) -> None:
        if self._told is not None:
            guarded(self._told, word)

    def _check_source(self) -> None:
        """Whether wakes are quick; a source that could not be had is tried for again, and each change is told once."""
        with self._lock:
            if self._source is None and self._wanted != "poll" and not self._closed:
                self._source_name, self._source = _make_source(self._wanted, self._wake, self._on_lost)
                if self._source is not None:
                    for entry in self._entries.values():
                        for root in set(entry.tokens.values()):
                            self._source.add(entry.path, root)
            source, wanted = self._source, self._wanted
        slow = wanted != "poll" and (source is None or source.unwatched > 0)
        if slow != self._slow:
            self._slow = slow
            self._tell(("watch_source_missing" if source is None else "watch_limit") if slow else "watch_recovered")

    def _sweep_for_ever(self) -> None:
        while True:
            self._hurry.wait(self._poll_s)
            self._hurry.clear()
            if self._closed:
                return
            self._sweep()

    def _sweep(self) -> None:
        with self._lock:
            source = self._source
            entries = list(self._entries.values())
        if source is not None:
            guarded(source.refresh)
        self._check_source()
        for entry in entries:
            signature = _signature(entry.path)
            if signature == entry.signature:
                continue
            entry.signature = signature
            with self._lock:
                tokens = list(entry.tokens)
                self._swept += len(tokens)
            for token in tokens:
                token.fire()


def _signature(path: str) -> _Signature:
    try:
        facts = os.stat(path)  # noqa: PTH116 - one of a thousand in a row
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_dev


def _make_source(
    wanted: SourceName | Literal["auto"], wake: Callable[[str], None], lost: Callable[[], None]
) -> tuple[SourceName, WakeSource | None]:
    if wanted in {"auto", "inotify"} and sys.platform == "linux":
        from lastword.transports.watch_inotify import InotifySource  # noqa: PLC0415 - ctypes, only where it is used

        try:
            return "inotify", InotifySource(wake, lost)
        except OSError:  # no descriptor, or too many inotify instances: watchdog would meet the same
            return "poll", None
    if wanted in {"auto", "watchdog"}:
        from lastword.transports.watch_watchdog import WatchdogSource  # noqa: PLC0415

        try:
            return "watchdog", WatchdogSource(wake)
        except OSError:
            return "poll", None
    return "poll", None
