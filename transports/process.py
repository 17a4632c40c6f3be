"""Processes: who a pid is, and when it ends. Linux: ``/proc`` and pidfd.

A pid alone names nobody (pids are reused): a process is its pid *and* its start time, in clock ticks since boot,
field 22 of ``/proc/<pid>/stat`` (proc(5)). Nothing here is a parent of what it watches, so nobody is reaped and no
exit status is known.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from lastword.transports._guard import guarded
from lastword.transports.census import stat_of

FALLBACK_POLL_S = 0.5
"""How often a process is looked at where no pidfd could be had (out of descriptors)."""
JOIN_S = 2.0
EXIT_POLL_MS_MAX = 200
"""Longest single wait on one pidfd before its process is looked at again."""


LISTENER_TIMEOUT_S = 1.0
_CREDENTIALS = struct.Struct("3i")


def pid_start(pid: int) -> int | None:
    """Start time of a pid in clock ticks since boot (a zombie has one too); None where there is no such process."""
    stat = stat_of(pid)
    return stat.start if stat is not None else None


def child_start(pid: int, parent: int) -> int:
    """Start time of a pid if it is a child of ``parent``; else 0: it is gone and the number may be someone else's."""
    stat = stat_of(pid)
    return stat.start if stat is not None and stat.parent == parent else 0


def parent(pid: int) -> ProcessId | None:
    """Its parent a moment ago; None where one of the two is gone."""
    stat = stat_of(pid)
    start = pid_start(stat.parent) if stat is not None else None
    return ProcessId(stat.parent, start) if stat is not None and start is not None else None


def children(pid: int) -> list[int]:
    """Pids that were its children a moment ago; empty where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123 - hot
            return [int(child) for child in file.read().split()]
    except (OSError, ValueError):
        return []


class ProcessId(msgspec.Struct, frozen=True):
    """One process, for ever: a reused pid is another one."""

    pid: int
    start: int

    def is_alive(self) -> bool:
        """True while it runs; a zombie is dead, and so is a pid that now names another process."""
        stat = stat_of(self.pid)
        return stat is not None and stat.start == self.start and not stat.dead

    def send(self, number: signal.Signals) -> bool:
        """Signal this very process; False where it is gone. A pidfd keeps the pid from changing hands meanwhile."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE} and self.is_alive():
                os.kill(self.pid, number)  # no descriptor left: a tiny window is better than an orphan
                return True
            return False
        try:
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(fd, number)
        except (ProcessLookupError, PermissionError):
            return False
        finally:
            os.close(fd)
        return True

    def send_group(self, number: signal.Signals) -> bool:
        """Signal the process group that this process leads; False where it is gone or leads none."""
        stat = stat_of(self.pid)
        if stat is None or stat.start != self.start or stat.group != self.pid:
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def wait(self, timeout_s: float) -> bool:
        """Block until it is gone; False where it still runs after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            fd = -1
        try:
            poll = select.poll()
            if fd >= 0:
                poll.register(fd, select.POLLIN)
            while self.is_alive():
                left_ms = (deadline - time.monotonic()) * 1000
                if left_ms <= 0:
                    return False
                poll.poll(min(left_ms, EXIT_POLL_MS_MAX if fd >= 0 else 20))
            return True
        finally:
            if fd >= 0:
                os.close(fd)


def listener(socket_path: Path) -> ProcessId | None:
    """Who listens on a Unix socket; None where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(LISTENER_TIMEOUT_S)
        try:
            probe.connect(str(socket_path))
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    start = pid_start(pid)
    return ProcessId(pid, start) if start is not None else None


def command_line(pid: int) -> bytes:
    """Its arguments, each with a NUL behind it; nothing where it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def named(pid: int) -> str:
    """``pid (name)`` for a report: the program's name, never its arguments."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return f"{pid} ({file.read().strip()})"
    except OSError:
        return f"{pid} (ended)"


class ExitWatch:
    """Handle of one watched process."""

    __slots__ = ("_callback", "_fd", "process")

    def __init__(self, process: ProcessId, callback: Callable[[int], None]) -> None:
        self.process = process
        self._callback: Callable[[int], None] | None = callback
        self._fd = -1


class ExitWatcher:
    """Tells when processes end: one thread, one epoll, one pidfd per process (0.3 ms from death to callback).

    Callbacks run on that thread and must be short; each is called at most once, and exactly once unless unwatched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._by_fd: dict[int, ExitWatch] = {}
        self._polled: set[ExitWatch] = set()
        self._due: deque[ExitWatch] = deque()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def polled(self) -> int:
        """Processes watched by a slow look only, for want of descriptors."""
        return len(self._polled)

    def watch(self, pid: int, on_exit: Callable[[int], None], *, start: int | None = None) -> ExitWatch:
        """Call ``on_exit(pid)`` when the process ends; at once (on the watcher's thread) if it already has.

        ``start`` is its start time, so that a reused pid counts as ended; None trusts the pid as it is now.
        """
        known = start if start is not None else pid_start(pid)
        watch = ExitWatch(ProcessId(pid, known if known is not None else 0), on_exit)
        with self._lock:
            if self._closed:
                msg = "the exit watcher is closed"
                raise RuntimeError(msg)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lastword-exits", daemon=True)
                self._thread.start()
            try:
                fd = os.pidfd_open(pid)
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}:
                    self._polled.add(watch)
                else:
                    self._due.append(watch)
                self._poke()
                return watch
            if not watch.process.is_alive():
                os.close(fd)
                self._due.append(watch)
                self._poke()
                return watch
            watch._fd = fd  # noqa: SLF001
            self._by_fd[fd] = watch
            self._epoll.register(fd, select.EPOLLIN)
        return watch

    def unwatch(self, watch: ExitWatch) -> None:
        """Forget it. A callback that is running at this moment is not waited for. Idempotent."""
        with self._lock:
            watch._callback = None  # noqa: SLF001
            self._drop(watch)

    def close(self) -> None:
        """Stop watching; no callback starts after this returns (unless called from one). Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
            for watch in list(self._by_fd.values()):
                self._drop(watch)
            self._polled.clear()
            self._due.clear()
            self._poke()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)
        if thread is None:
            self._release()

    def _poke(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _drop(self, watch: ExitWatch) -> None:
        self._polled.discard(watch)
        fd = watch._fd  # noqa: SLF001
        if fd >= 0:
            watch._fd = -1  # noqa: SLF001
            del self._by_fd[fd]
            self._epoll.unregister(fd)
            os.close(fd)

    def _release(self) -> None:
        self._epoll.close()
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            ready = self._epoll.poll(FALLBACK_POLL_S if self._polled else None)
            ended: list[ExitWatch] = []
            with self._lock:
                if self._closed:
                    self._release()
                    return
                for fd, _ in ready:
                    if fd == self._wake:
                        os.eventfd_read(self._wake)
                    elif (watch := self._by_fd.get(fd)) is not None:
                        # The descriptor may have been given to another watch since epoll answered: look again.
                        if watch.process.is_alive():
                            continue
                        self._drop(watch)
                        ended.append(watch)
                ended.extend(self._due)
                self._due.clear()
                for watch in [w for w in self._polled if not w.process.is_alive()]:
                    self._drop(watch)
                    ended.append(watch)
            for watch in ended:
                callback, watch._callback = watch._callback, None  # noqa: SLF001
                if callback is not None:
                    guarded(callback, watch.process.pid)
