"""Who told whom what, when, how long it waited and how long it took. Never what it said.

A record carries type names, actor names, ids and clock readings only, so no tracer can leak a prompt (C62). All
readings are of one clock (``perf_counter_ns``), so waits and handlings add up without a gap.

``JsonlTracer`` appends JSON arrays, one a line, to a file: the kind of record, then its fields in order. What an actor
pays is the names and numbers of a hop, put behind one another into a buffer: no record is made of them, nothing is
encoded, written or woken on its thread. A thread of the tracer's own writes every ``FLUSH_S``, many hops a line.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

import msgspec

BUFFER_MAX = 50_000
"""Records waiting to be written; more are lost and counted."""

FLUSH_S = 0.2
"""How often what waits is written; a killed host loses no more than that of its trace."""

LINE_HOPS = 128
"""Hops in a line: some 23 kB."""

BATCH_MAX = 512
"""Records written by one system call; the interpreter is given up between two batches."""

FILE_BYTES_MAX = 2 * 1024**3
"""What one tracer writes at most; more is lost and counted."""

CLOSE_MAX_S = 5.0

PARTS_MAX = 3
"""Names of parts told with a message's."""

NAMES_MAX = 4_096
"""Names kept of the types of a message's parts; further ones are made anew."""

RETURNED = "run"
"""The event's name where it was no event: a call that waited for the completion returned."""

FORMAT = 3
"""Of the file; a reader refuses a newer one."""

BEGINNING = b'["trace",'
"""Of every trace file."""

_PROCESS = os.urandom(8).hex()
_plain: dict[type, str] = {}
"""What a type is called whose name says all."""
plain_kind = _plain.get
_names: dict[type, Callable[[Any], str]] = {}
"""How one of a type is called whose name does not say all."""


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Ns: TypeAlias = Number
"""A reading of ``perf_counter_ns``."""
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=1_000)]
"""Bounds are for who reads a file of somebody else: none of ours is near them."""
WallS: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]


class Hop(msgspec.Struct, gc=False, array_like=True, tag="hop"):
    """One message handled. Times are readings of ``perf_counter_ns``.

    Attributes:
        id: the number of its envelope, unique in the process.
        cause: the id of the hop or commit in whose handling it was told; 0: it begins a chain.
        trace: the turn that it is about; of a message without a turn yet, the message (:class:`Bound`); or the host's
            own word. A number: of the message that began the chain; it is about no single turn, and so is None.
        sender: name of the actor that told it; None from outside of all actors.
        message: type name, with the type names of its parts where those say what it is about; no content.
        origin: what told it where that was no handler: ``host``, ``timer``, ``file_watch``, ``process``, ``tmux``, …
        raised: its handler raised.
    """

    id: Number
    cause: Number
    trace: Name | Number | None
    sender: Name | None
    receiver: Name
    message: Name
    enqueued_ns: Ns
    started_ns: Ns
    ended_ns: Ns
    origin: Name | None = None
    raised: bool = False


class Hops(msgspec.Struct, gc=False, array_like=True, tag="hops"):
    """Many hops in one line, the fields of each behind those of the one before (since format 3)."""

    fields: list[Any]

    def each(self) -> Iterator[Hop]:
        """One by one. Raises ``msgspec.ValidationError`` where one is none."""
        for at in range(0, len(self.fields), HOP_FIELDS):
            yield msgspec.convert(["hop", *self.fields[at : at + HOP_FIELDS]], Hop)


HOP_FIELDS = len(Hop.__struct_fields__)


class CommitSpan(msgspec.Struct, gc=False, array_like=True, tag="commit"):
    """One batch made durable, perhaps with others in one transaction (the same ``started_ns``).

    Attributes:
        cause: the hop by which the journal got it.
        enqueued_ns: when it was collected; the group's sync began at ``started_ns`` and was over at ``ended_ns``.
        seq_from, seq_to: the events that it holds, of that session; 0: none.
    """

    id: Number
    cause: Number
    trace: Name | Number | None
    enqueued_ns: Ns
    started_ns: Ns
    ended_ns: Ns
    session: Name
    seq_from: Number = 0
    seq_to: Number = 0


class Delivered(msgspec.Struct, gc=False, array_like=True, tag="delivered"):
    """A subscriber has an event. Its cause is the commit that holds ``session`` and ``seq``.

    The stamps of the wall clock (Unix seconds) come from others than the tracer; for a completion only.
    """

    id: Number
    trace: Name | None
    event: Name
    session: Name
    seq: Number
    at_ns: Ns
    delivered_at: WallS | None = None
    accepted_at: WallS | None = None
    terminal_seen_at: WallS | None = None
    committed_at: WallS | None = None


class Bound(msgspec.Struct, gc=False, array_like=True, tag="bound"):
    """What was traced under the message's id, or was brought by that hop, belongs to that trace."""

    trace: Name
    message_id: Name | None = None
    hop: Number = 0


class Lost(msgspec.Struct, gc=False, array_like=True, tag="lost"):
    """So many records were lost since the last such line: more came than could be written."""

    count: Number


class Head(msgspec.Struct, gc=False, array_like=True, tag="trace"):
    """The first line of each host's part of a file.

    Attributes:
        process: a word of its own for each process: ids are unique in it.
        wall_s, at_ns: the same moment, in Unix seconds and by the clock of the records.
    """

    format: Number
    process: Name
    pid: Number
    wall_s: WallS
    at_ns: Ns


Record: TypeAlias = Hop | CommitSpan | Delivered | Bound
Line: TypeAlias = Head | Hops | Record | Lost


class Tracer(Protocol):
    """Takes records from any thread without blocking; closed at shutdown by the system it is set on.

    Attributes:
        hops: where the fields of a :class:`Hop` are put, all at once, while it is shorter than ``hops_max``; else the
            hop is lost.
    """

    hops: list[Any]
    hops_max: int

    def handled(self, record: Record) -> None:
        """Any other record."""

    def lose(self, records: int = 1) -> None:
        """Count what found no room."""

    def close(self) -> None:
        """Nothing more comes."""


def kind_of(message: Any) -> str:
    """What a message is, by type names alone.

    One whose type says little names a field in ``TRACED_BY``: the types of what stands in that field are told with it.
    One that only carries another names it in ``TRACED_AS``: it is called as that one is.
    """
    kind = message.__class__
    name_of = _names.get(kind)
    if name_of is None:
        if inside := getattr(kind, "TRACED_AS", ""):
            name_of = _as_inside(attrgetter(inside))
        elif field := getattr(kind, "TRACED_BY", ""):
            name_of = _with_parts(kind, attrgetter(field))
        else:
            return _plain.setdefault(kind, kind.__name__)
        _names[kind] = name_of
    return name_of(message)


def _as_inside(inside: Callable[[Any], Any]) -> Callable[[Any], str]:
    return lambda message: kind_of(inside(message))


def _with_parts(kind: type, field: Callable[[Any], Any]) -> Callable[[Any], str]:
    known: dict[Any, str] = {}

    def name_of(message: Any) -> str:
        parts = field(message)
        types = tuple(map(type, parts[: PARTS_MAX + 1])) if parts.__class__ is tuple else (parts.__class__,)
        return known.get(types) or called(types)

    def called(types: tuple[type, ...]) -> str:
        names = [part.__name__ for part in types[:PARTS_MAX]] + ["…"] * (len(types) > PARTS_MAX)
        name = f"{kind.__name__}({', '.join(names)})"
        if len(known) < NAMES_MAX:
            known[types] = name
        return name

    return name_of


class JsonlTracer:
    """Appends records to a file that only its owner may read. One tracer has a file at a time.

    Raises: ``OSError`` where the file cannot be opened, is a link, another's, in use, or holds something else than
    traces.
    """

    def __init__(self, path: Path | str) -> None:
        self._fd, self._torn = _opened(path)
        self.hops: list[Any] = []
        self.hops_max = BUFFER_MAX * HOP_FIELDS
        self._buffer: list[Record] = []
        self._room = BUFFER_MAX
        self._lost = 0
        self._counting = threading.Lock()
        self._lost_told = 0
        self._written = 0
        self._closed = False
        self._wake = threading.Event()
        self._encoder = msgspec.json.Encoder()
        self._thread = threading.Thread(target=self._run, name="lastword-tracer", daemon=True)
        self._size = os.fstat(self._fd).st_size
        self._append([_head()])
        self._thread.start()

    @property
    def lost(self) -> int:
        """Records that are in no file: more than ``BUFFER_MAX`` waited, or the file could not be written."""
        return self._lost

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        return len(self.hops) // HOP_FIELDS + len(self._buffer)

    def handled(self, record: Record) -> None:
        """Take a record. Any thread; never blocks."""
        buffer = self._buffer
        if len(buffer) < self._room:
            buffer.append(record)
        else:
            self.lose()

    def lose(self, records: int = 1) -> None:
        """Count what found no room. Any thread."""
        with self._counting:  # for as long as an addition takes
            self._lost += records

    def close(self) -> None:
        """Write what waits, end the thread, close the file. Idempotent; waits at most ``CLOSE_MAX_S``."""
        self._room = self.hops_max = 0
        self._closed = True
        self._wake.set()
        self._thread.join(CLOSE_MAX_S)

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(FLUSH_S)
            self._flush()
        self._flush()  # what came between the last look and the end
        os.close(self._fd)

    def _flush(self) -> None:
        status = os.fstat(self._fd)
        if status.st_size < self._size and stat.S_ISREG(status.st_mode):  # it was emptied: what comes needs its head
            self._size, self._torn = status.st_size, False
            self._append([_head()])
        buffer, hops, line = self._buffer, self.hops, LINE_HOPS * HOP_FIELDS
        while hops:
            fields = hops[: BATCH_MAX * HOP_FIELDS]
            del hops[: len(fields)]  # others may have added to its end
            self._append([Hops(fields[at : at + line]) for at in range(0, len(fields), line)])
        while buffer:
            lines = buffer[:BATCH_MAX]
            del buffer[: len(lines)]
            self._append(lines)
        lost = self._lost
        if lost > self._lost_told and self._append([Lost(lost - self._lost_told)]):
            self._lost_told = lost

    def _append(self, lines: list[Any]) -> bool:
        """Whether it is written, whole. Records that are not are counted."""
        data = self._encoder.encode_lines(lines)
        told = lines[0].__class__ not in (Head, Lost)
        if self._written + len(data) > FILE_BYTES_MAX and told:
            self.lose(_records(lines))
            return False
        if self._torn:  # what was cut off must not swallow the line behind it
            data = b"\n" + data
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError:
            whole = data.count(b"\n", 0, done) - (self._torn and done > 0)
            if told:
                self.lose(_records(lines[whole:]))
        if done:
            self._torn = data[done - 1 : done] != b"\n"
        self._written += done
        self._size += done
        return done == len(data)


def _head() -> Head:
    return Head(FORMAT, _PROCESS, os.getpid(), time.time(), time.perf_counter_ns())


def _records(lines: Sequence[Any]) -> int:
    return sum(len(line.fields) // HOP_FIELDS if isinstance(line, Hops) else 1 for line in lines)


def _opened(path: Path | str) -> tuple[int, bool]:
    """The file, ready to be added to, and whether its last line is torn. A device is taken as it is."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            return fd, False
        torn = _ours(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd, torn


def _ours(fd: int) -> bool:
    """Make sure that it may be added to; whether its last line is torn."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no file")
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is another's file")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, "another trace is being written to it") from None
    except OSError:
        pass  # a file system without locks
    size = os.fstat(fd).st_size
    begun = os.pread(fd, len(BEGINNING), 0)
    if begun != BEGINNING[: len(begun)]:
        raise FileExistsError(errno.EEXIST, "it holds something else than a trace")
    os.fchmod(fd, 0o600)
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
