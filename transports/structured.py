"""Children behind pipes: stdin is a pipe of ours, stdout and stderr are append-only files of the child's own.

So nothing that a child says has to be drained, nothing of it is lost when its host dies, and no grandchild that holds
a pipe open can hang anybody (docs/adr/0009). A child that wants a pipe for its stdout gets one, and a relay that copies
it into that file (:mod:`lastword.transports.relay`): it is closed once that has come to the pipe's end. A child is its
own session and process group. One thread starts children and writes what a full pipe did not take at once; it sleeps
when there is nothing to do. Parses nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

import msgspec

from lastword.actors.core.adapter import StdoutKind
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, ProviderError, RejectedError, TransportError
from lastword.actors.core.world import NotWritten, PerhapsWritten, StdioEndpoint, WriteResult, Written
from lastword.transports._closing import Closing
from lastword.transports._guard import guarded
from lastword.transports.family import Ended, carriers, end_families, left_alive
from lastword.transports.process import ExitWatcher, ProcessId, named, pid_start
from lastword.transports.relay import DRAIN_S, Relay, left_relays
from lastword.transports.stream_files import StreamFiles, append_to

MARK = "LASTWORD_CHILD"
"""In the environment of a child and of all that it starts: which process of which session it belongs to."""
FOLDER_MARK = "LASTWORD_CHILD_OF"
"""Beside it: the same by name, and its folder by device and inode: a moved folder is the same one, a copy another."""
STDIN_BYTES_MAX = 16 * 1024 * 1024
"""What may wait for one child to read its stdin; more is refused."""
END_S = 1.0
"""Once a child has not ended by itself in its grace: between the gentle signals and the hard one, at most."""
JOIN_S = 2.0
REAP_S = 0.5
"""For the exit status of one that is gone; one that lives in spite of everything has none."""
DEAF_GRACE_S = 1.0
"""A living child whose stdout has come to its end can tell nothing any more: how long it may take to end by itself."""
DEAF_WORDS = b"lastword: it closed its stdout, or what copies it was ended; nothing it does could be heard any more\n"
LAST_WORDS_BYTES = 4096
LAST_WORDS_CHARS = 400


class Child:
    """One child that this process started; or one that an earlier host did (*orphaned*). Thread-safe."""

    pane_id = ""

    def __init__(
        self,
        owner: Children,
        name: str,
        process: ProcessId,
        popen: subprocess.Popen[bytes] | None,
        relay: Relay | None = None,
        *,
        exit_noted: bool = False,
    ) -> None:
        self.name = name
        self.process = process
        self._relay = relay
        self._exit_noted = exit_noted
        self._ending = False
        self._deaf = False
        """Its stdout came to its end while it lived."""
        self._owner = owner
        self._popen = popen
        self._stdin = -1
        if popen is not None and popen.stdin is not None:
            self._stdin = popen.stdin.fileno()
            os.set_blocking(self._stdin, False)
        self._lock = threading.Lock()
        self._queue: deque[_Piece] = deque()
        self._queued_bytes = 0
        self._closing = Closing(self._end, lambda: owner.forget(self))

    def __repr__(self) -> str:
        return f"<child {self.name!r} pid {self.pid}>"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def pid_start(self) -> int:
        return self.process.start

    @property
    def orphaned(self) -> bool:
        """Nobody can speak to it any more."""
        return self._stdin < 0

    # --- stdin ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes, on_done: Callable[[WriteResult], None]) -> None:
        """As :class:`~lastword.actors.core.world.StdioEndpoint`."""
        with self._lock:
            refused = self._refusal(len(data))
            if refused is None:
                self._queue.append(_Piece(data, on_done))
                self._queued_bytes += len(data)
        if refused is not None:
            guarded(on_done, NotWritten(refused))
            return
        self.flush()

    def _refusal(self, more: int) -> LastwordError | None:
        if self._stdin < 0:
            return TransportError("transport_failed", "its stdin is closed", endpoint=str(self.pid))
        if self._queued_bytes + more > STDIN_BYTES_MAX:
            reason = f"more than {STDIN_BYTES_MAX} bytes wait for it to read its stdin"
            return RejectedError("overloaded", reason)
        return None

    def flush(self) -> None:
        """Write what the pipe takes now; called again once it takes more."""
        done: list[tuple[_Piece, WriteResult]] = []
        with self._lock:
            try:
                while self._queue and self._stdin >= 0:
                    piece = self._queue[0]
                    piece.at += os.write(self._stdin, piece.data[piece.at :])
                    if piece.at == len(piece.data):
                        self._queue.popleft()
                        self._queued_bytes -= len(piece.data)
                        done.append((piece, Written()))
            except BlockingIOError:
                self._owner.await_room(self._stdin, self)
            except OSError as error:  # nobody reads any more
                done += self._shut(f"{error.strerror}")
        for piece, result in done:
            guarded(piece.on_done, result)

    def shut(self) -> None:
        """Close its stdin: it ends once it has done what it was told. What waits unwritten is answered."""
        with self._lock:
            done = self._shut("its stdin was closed")
        for piece, result in done:
            guarded(piece.on_done, result)

    def _shut(self, reason: str) -> list[tuple[_Piece, WriteResult]]:
        fd, self._stdin = self._stdin, -1
        if fd >= 0 and self._popen is not None and self._popen.stdin is not None:
            self._owner.forget_room(fd)
            with contextlib.suppress(OSError):
                self._popen.stdin.close()
        error = TransportError("transport_failed", reason, endpoint=str(self.pid))
        done: list[tuple[_Piece, WriteResult]] = [
            (piece, PerhapsWritten(error) if piece.at else NotWritten(error)) for piece in self._queue
        ]
        self._queue.clear()
        self._queued_bytes = 0
        return done

    def reap(self) -> int | None:
        """Its exit status where it was a child of ours: minus the signal that ended it."""
        self.shut()
        if self._popen is None:
            return None
        try:
            return self._popen.wait(REAP_S)  # two threads may reap at once: poll() would tell one of them nothing
        except subprocess.TimeoutExpired:
            return None

    def exited(self) -> int | None:
        """It is gone; as :meth:`reap`. What it has left may see so by the end of its stdin: that is noted before."""
        if self._exit_noted and not self.orphaned:
            with contextlib.suppress(LastwordError):
                self._owner.note_exit(self.name)
        return self.reap()

    def hushed(self) -> None:
        """Its stdout has come to its end: all that it said is in its file, and nothing will follow. Where it lives, it
        is ended: no turn of it could ever have another end.
        """
        if self._relay is not None:
            self._relay.reap()
        if self.process.is_alive() and not self._ending:
            self._deaf = True
            self.close(DEAF_GRACE_S)

    # --- close ------------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> Ended | None:
        """What closing took, once closed."""
        return self._closing.ended

    def close(self, grace_s: float, on_done: Callable[[], None] | None = None) -> None:
        """Close its stdin and let it end by itself within the grace; then end its family, gently and hard.

        Idempotent: a later call joins the first, and one with a shorter grace does not hurry it. Runs on a thread of
        its own, bounded by the grace and about two seconds, and where a stranger holds the pipe that its stdout is, by
        five more.
        """
        self._ending = True
        self._closing.begin(grace_s, on_done)

    def _end(self, grace_s: float) -> Ended:
        self.shut()
        by_itself = self.process.wait(grace_s)
        if self._deaf and not by_itself:
            self._owner.add_last_words(self.name, DEAF_WORDS)
        ended = end_families([self.process], self._owner.marks(self.name), 0.0 if by_itself else min(grace_s, END_S))
        if self._relay is not None and not self._relay.end():
            ended = msgspec.structs.replace(ended, survivors=(*ended.survivors, self._relay.process.pid))
        return ended


class _Piece:
    __slots__ = ("at", "data", "on_done")

    def __init__(self, data: bytes, on_done: Callable[[WriteResult], None]) -> None:
        self.data = data
        self.on_done = on_done
        self.at = 0


class Children(StreamFiles):
    """The transport ``structured``. Thread-safe; nothing blocks but :meth:`close`.

    Args:
        folder: where stream files stand; made (0700) with the first child.
        env: what every child sees; a recipe adds to it.
    """

    name: TransportName = "structured"

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._env = dict(env)
        self._identity = ""
        self._exits = ExitWatcher()
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self._starts: deque[Callable[[], None]] = deque()
        self._rooms: dict[int, Child] = {}
        self._epoll: select.epoll | None = None
        self._wake = -1
        self._thread: threading.Thread | None = None
        self._closed = False

    def attach_command(self, endpoint: Child) -> tuple[str, ...]:  # noqa: ARG002
        """As :class:`~lastword.actors.core.world.StdioTransport`: nothing is drawn."""
        return ()

    def last_words(self, name: str) -> str:
        """As :class:`~lastword.actors.core.world.StdioTransport`."""
        try:
            with Path(f"{self.stream(name)}.err").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LAST_WORDS_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return " / ".join(line.strip() for line in text.splitlines() if line.strip())[-LAST_WORDS_CHARS:]

    def add_last_words(self, name: str, words: bytes) -> None:
        """Behind what it said on its stderr."""
        with contextlib.suppress(OSError):
            fd = append_to(f"{self.stream(name)}.err")
            try:
                os.write(fd, words)
            finally:
                os.close(fd)

    # --- children ---------------------------------------------------------------------------------------------------

    def marks(self, name: str) -> tuple[bytes, ...]:
        """What the environment of a child's family shows, as :func:`~lastword.transports.family.family` takes it."""
        return (f"{FOLDER_MARK}={self._home()}/{name}\0".encode(),)

    def _home(self) -> str:
        """Which folder it is, whatever its path; "" while it was never made."""
        if not self._identity:
            with contextlib.suppress(FileNotFoundError):
                facts = self._folder.stat()
                self._identity = f"{facts.st_dev}-{facts.st_ino}"
        return self._identity

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        on_opened: Callable[[StdioEndpoint | LastwordError], None],
        stdout: StdoutKind = "file",
        exit_noted: bool = False,
    ) -> None:
        """As :class:`~lastword.actors.core.world.StdioTransport`; a stream of that name is written on, never cut."""

        def start() -> None:
            try:
                result: StdioEndpoint | LastwordError = self._start(name, argv, cwd, env, stdout, exit_noted)
            except (OSError, ValueError) as error:
                reason = f"{argv[0]} could not be started: {getattr(error, 'strerror', None) or error}"
                result = ProviderError("launch_failed", reason)
            guarded(on_opened, result)

        with self._lock:
            if not self._closed:
                self._starts.append(start)
                self._awake()
                return
        on_opened(TransportError("transport_failed", "the transport is closed"))

    def adopt(self, name: str, process: ProcessId, relay: ProcessId | None = None) -> Child:
        """One that an earlier host started: it can be awaited and ended, not spoken to."""
        return self._added(Child(self, name, process, None, Relay(relay) if relay is not None else None), relay)

    def _added(self, child: Child, relay: ProcessId | None) -> Child:
        with self._lock:
            self._children.add(child)
        if relay is not None:
            with contextlib.suppress(RuntimeError):  # the transport is being closed, and ends it
                self._exits.watch(relay.pid, lambda _: child.hushed(), start=relay.start)
        return child

    def left_behind(self) -> dict[str, Child | None]:
        """By name, what of an earlier host there still is: the child itself, or None where only what it started lives
        (which is ended here; blocks for a second, where a stranger holds what was the child's stdout for six).
        """
        found: dict[str, Child | None] = {}
        relays = left_relays(self._folder)
        for carrier in carriers(FOLDER_MARK):
            home, _, name = carrier.value.partition("/")
            if not home or home != self._home() or not Path(f"{self.stream(name)}.jsonl").exists():
                continue
            if carrier.leads and found.get(name) is None and self.child(name) is None:
                found[name] = self.adopt(name, carrier.process, relays.get(name))
            else:
                found.setdefault(name, None)
        for name, child in found.items():
            if child is None and self.child(name) is None:
                end_families((), self.marks(name), 0.0)
        for name, relay in relays.items():
            if found.get(name) is None and self.child(name) is None:
                Relay(relay).end()  # what its child said last is on its way into the file
        return found

    def living_elsewhere(self, session_ids: Container[str]) -> set[str]:
        """Sessions with a child that lives and writes into another folder than this one: into that of which this is a
        copy, or the other way round.
        """
        found: set[str] = set()
        for carrier in carriers(FOLDER_MARK):
            home, _, name = carrier.value.partition("/")
            session_id = name.rpartition("-")[0]
            if carrier.leads and home != self._home() and session_id in session_ids:
                found.add(session_id)
        return found

    def child(self, name: str) -> Child | None:
        """The living one of that name."""
        with self._lock:
            return next((each for each in self._children if each.name == name), None)

    def watch_exit(self, endpoint: Child, on_exit: Callable[[int | None], None]) -> None:
        """As :class:`~lastword.actors.core.world.Transport`."""
        self._exits.watch(endpoint.pid, lambda _: on_exit(endpoint.exited()), start=endpoint.pid_start)

    def forget(self, child: Child) -> None:
        """It is closed."""
        child.reap()
        with self._lock:
            self._children.discard(child)

    def _start(
        self,
        name: str,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        kind: StdoutKind,
        exit_noted: bool,
    ) -> Child:
        stem = self.stream(name)
        self.make_folder()
        relay: Relay | None = None
        with contextlib.ExitStack() as ours:
            stdout = append_to(f"{stem}.jsonl")
            ours.callback(os.close, stdout)
            err = append_to(f"{stem}.err")
            ours.callback(os.close, err)
            if kind == "pipe":
                relay, stdout = Relay.start(stem, stdout, err)
                ours.callback(os.close, stdout)
            try:
                popen = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=err,
                    cwd=cwd,
                    env={**self._env, **env, MARK: stem, FOLDER_MARK: f"{self._home()}/{name}"},
                    start_new_session=True,
                    bufsize=0,
                )
            except BaseException:
                ours.close()
                if relay is not None:
                    relay.end()  # at once: nobody holds the pipe
                raise
        process = ProcessId(popen.pid, pid_start(popen.pid) or 0)
        child = Child(self, name, process, popen, relay, exit_noted=exit_noted)
        return self._added(child, relay.process if relay is not None else None)

    # --- the thread -------------------------------------------------------------------------------------------------

    def await_room(self, fd: int, child: Child) -> None:
        """Call ``child.flush`` once that pipe takes more. Called under the child's lock."""
        with self._lock:
            if self._closed:
                return
            self._rooms[fd] = child
            self._awake()
            assert self._epoll is not None
            with contextlib.suppress(FileExistsError):
                self._epoll.register(fd, select.EPOLLOUT | select.EPOLLONESHOT)
                return
            self._epoll.modify(fd, select.EPOLLOUT | select.EPOLLONESHOT)

    def forget_room(self, fd: int) -> None:
        """That pipe is being closed."""
        with self._lock:
            if self._rooms.pop(fd, None) is not None and self._epoll is not None and not self._epoll.closed:
                with contextlib.suppress(OSError):
                    self._epoll.unregister(fd)

    def _awake(self) -> None:
        if self._thread is None:
            self._epoll = select.epoll()
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._epoll.register(self._wake, select.EPOLLIN)
            self._thread = threading.Thread(target=self._run, name="lastword-stdio", daemon=True)
            self._thread.start()
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        assert self._epoll is not None
        while True:
            ready = self._epoll.poll()
            with self._lock:
                closed = self._closed
                starts = list(self._starts)
                self._starts.clear()
                roomy = [self._rooms[fd] for fd, _ in ready if fd in self._rooms]
                if any(fd == self._wake for fd, _ in ready):
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
            for start in starts:
                start()
            for child in roomy:
                child.flush()
            if closed and not starts:
                break
        self._epoll.close()
        os.close(self._wake)

    def close(self, grace_s: float) -> list[str]:
        """End every child, at the same time; blocks for about the grace and two seconds. What lives in spite of it, as
        ``pid (name)``.
        """
        with self._lock:
            if self._closed:
                return []
            self._closed = True
            thread = self._thread
            if thread is not None:
                self._awake()
        if thread is not None:
            thread.join(JOIN_S)
        with self._lock:
            children = list(self._children)
        left: list[str] = []
        waits: list[tuple[Child, threading.Event]] = []
        for child in children:
            done = threading.Event()
            child.close(grace_s, done.set)
            waits.append((child, done))
        for child, done in waits:
            done.wait(grace_s + END_S + JOIN_S + DRAIN_S)
            if child.ended is None:
                left.append(named(child.pid))
            else:
                left += left_alive(child.ended.survivors, unsure=child.ended.unsure)
        self._exits.close()
        return left


__all__ = ["MARK", "Child", "Children"]
