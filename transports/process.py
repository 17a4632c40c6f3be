"""Processes: who a pid is, when it ends, and who belongs to it. Linux: ``/proc`` and pidfd.

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
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from lastword.transports._guard import guarded

FALLBACK_POLL_S = 0.5
"""How often a process is looked at where no pidfd could be had (out of descriptors)."""
JOIN_S = 2.0
FREEZE_ROUNDS = 12
"""Before SIGKILL: how often a family that still grows is looked over and stopped, so that none is born meanwhile."""
KILL_ROUNDS = 3
KILL_ROUND_S = 0.3
"""After SIGKILL: how often, and how long each time, the dead are waited for."""
EXIT_POLL_MS_MAX = 200
"""Longest single wait on one pidfd before its process is looked at again."""


LISTENER_TIMEOUT_S = 1.0
_CREDENTIALS = struct.Struct("3i")


class _Stat(msgspec.Struct, frozen=True):
    state: str
    parent: int
    group: int
    session: int
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - hot, and /proc is no place for objects
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name in parentheses may hold anything
    if len(fields) < 20:
        return None
    return _Stat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def pid_start(pid: int) -> int | None:
    """Start time of a pid in clock ticks since boot (a zombie has one too); None where there is no such process."""
    stat = _stat(pid)
    return stat.start if stat is not None else None


def child_start(pid: int, parent: int) -> int:
    """Start time of a pid if it is a child of ``parent``; else 0: it is gone and the number may be someone else's."""
    stat = _stat(pid)
    return stat.start if stat is not None and stat.parent == parent else 0


def parent(pid: int) -> ProcessId | None:
    """Its parent a moment ago; None where one of the two is gone."""
    stat = _stat(pid)
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
        stat = _stat(self.pid)
        return stat is not None and stat.start == self.start and stat.state not in {"Z", "X"}

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
        stat = _stat(self.pid)
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


def family(leaders: Sequence[ProcessId], environment_marks: Sequence[bytes] = ()) -> list[ProcessId]:
    """Living processes that belong to one of ``leaders``: its session, its descendants, and who carries *all* marks.

    A mark is a prefix of one entry of a process's environment as it was at exec (with its closing NUL it matches the
    whole entry): so a grandchild that left the session and lost its parent is still found. The caller's own process
    is never listed; leaders come first.
    """
    everyone: dict[int, _Stat] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (stat := _stat(int(name))) is not None and stat.state not in {"Z", "X"}:
            everyone[int(name)] = stat
    heads: dict[int, int] = {}
    for leader in leaders:
        head = everyone.get(leader.pid)
        if head is None or head.start == leader.start:  # else the pid has another owner now: nobody is its family
            heads[leader.pid] = leader.start
    found = {
        pid
        for pid, stat in everyone.items()
        if pid in heads or (stat.session in heads and stat.start >= heads[stat.session])
    }
    grew = bool(found)
    while grew:
        more = {pid for pid, stat in everyone.items() if stat.parent in found and pid not in found}
        found |= more
        grew = bool(more)
    if environment_marks:
        found |= {pid for pid in everyone if pid not in found and _carries(pid, environment_marks)}
    found.discard(os.getpid())
    ordered = sorted(found, key=lambda pid: (pid not in heads, pid))
    return [ProcessId(pid, everyone[pid].start) for pid in ordered]


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


def _environment(pid: int) -> bytes:
    """Its entries, each with a NUL before it; nothing where it cannot be looked into."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return b"\0" + file.read()
    except OSError:
        return b""


def _carries(pid: int, marks: Sequence[bytes]) -> bool:
    environment = _environment(pid)
    return bool(environment) and all(b"\0" + mark in environment for mark in marks)


class Carrier(msgspec.Struct, frozen=True):
    """A living process whose environment holds a variable; ``leads``: it is the head of its own session."""

    process: ProcessId
    value: str
    leads: bool


def carriers(variable: str) -> list[Carrier]:
    """Every living process that we may look into and that has it in its environment, as it was at exec; never the
    caller's own.
    """
    found: list[Carrier] = []
    begins = b"\0" + variable.encode() + b"="
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit() or int(name) == os.getpid():
            continue
        stat = _stat(int(name))
        environment = _environment(int(name)) if stat is not None and stat.state not in {"Z", "X"} else b""
        at = environment.find(begins)
        if stat is not None and at >= 0:
            value = environment[at + len(begins) :].partition(b"\0")[0].decode("utf-8", "replace")
            found.append(Carrier(ProcessId(int(name), stat.start), value, stat.session == int(name)))
    return found


class Ended(msgspec.Struct, frozen=True):
    """What it took to end a family: pids ended by SIGKILL, and pids that live in spite of it."""

    killed: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()


def end_families(leaders: Sequence[ProcessId], environment_marks: Sequence[bytes], grace_s: float) -> Ended:
    """End process groups and all that belongs to them; blocks for ``grace_s`` plus about a second at most.

    SIGHUP to each leader's group, as a closing terminal does; at half the grace SIGTERM to whoever is left; at its
    end SIGKILL, looked over again for those born meanwhile. Every signal goes to a pid *and* start time.
    """
    began = time.monotonic()
    for leader in leaders:
        leader.send_group(signal.SIGHUP)
    if grace_s > 0:
        _await_all(leaders, began + grace_s / 2)
        rest = family(leaders, environment_marks)
        for one in rest:
            one.send(signal.SIGTERM)
        _await_all(rest, began + grace_s)
    killed: set[int] = set()
    rest = family(leaders, environment_marks)
    for _ in range(KILL_ROUNDS):
        if not rest:
            break
        for one in _frozen(rest, leaders, environment_marks):
            one.send(signal.SIGKILL)
            killed.add(one.pid)
        _await_all(rest, time.monotonic() + KILL_ROUND_S)
        rest = family(leaders, environment_marks)
    survivors = tuple(one.pid for one in rest)
    return Ended(tuple(sorted(killed.difference(survivors))), survivors)


def _frozen(rest: list[ProcessId], leaders: Sequence[ProcessId], environment_marks: Sequence[bytes]) -> list[ProcessId]:
    """The family, stopped first where it has more than one member: a parent that forks while its children are ended one
    by one would leave some behind.
    """
    stopped: set[ProcessId] = set()
    for _ in range(FREEZE_ROUNDS):
        fresh = [one for one in rest if one not in stopped]
        if not fresh or len(rest) == 1:
            break
        for one in fresh:
            one.send(signal.SIGSTOP)
        stopped.update(fresh)
        rest = family(leaders, environment_marks)
    return rest


def named(pid: int) -> str:
    """``pid (name)`` for a report: the program's name, never its arguments."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return f"{pid} ({file.read().strip()})"
    except OSError:
        return f"{pid} (ended)"


def _await_all(processes: Sequence[ProcessId], deadline: float) -> None:
    for one in processes:
        one.wait(max(0.0, deadline - time.monotonic()))


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
