"""Who told whom what, when, how long it waited and how long it took. Never what it said.

A span carries type names and ids only (``turn_id``, ``session_id``, ``message_id`` where the message has
them), so no tracer can leak a prompt. ``JsonlTracer`` writes one JSON object a line, on a thread of its
own.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, Protocol

import msgspec

BUFFER_MAX = 50_000
"""Spans waiting to be written; more are dropped and counted."""

BATCH_MAX = 512
"""Lines written by one system call."""

CLOSE_MAX_S = 5.0

_IDS = ("turn_id", "session_id", "message_id")
_ids_of_class: dict[type, tuple[str, ...]] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message handled.

    Attributes:
        at_wall_s: when its handler began, seconds since 1970.
        sender: name of the telling actor, or None from outside.
        message_type: type name, no content.
        causation_id: envelope whose handler told this one; 0 from outside.
    """

    at_wall_s: float
    sender: str | None
    recipient: str
    message_type: str
    trace_id: str
    envelope_id: int
    causation_id: int
    queue_wait_us: float
    handling_us: float
    outcome: Literal["ok", "raised"]
    turn_id: str | None = None
    session_id: str | None = None
    message_id: str | None = None


class Tracer(Protocol):
    """Takes spans from any thread without blocking; closed at shutdown by the system it is set on."""

    def handled(self, span: Span) -> None: ...

    def close(self) -> None: ...


def ids_of(message: object) -> dict[str, str]:
    """The ids that a message carries, as text."""
    kind = type(message)
    names = _ids_of_class.get(kind)
    if names is None:
        names = _ids_of_class[kind] = tuple(name for name in _IDS if hasattr(message, name))
    return {name: str(value) for name in names if (value := getattr(message, name, None)) is not None}


class JsonlTracer:
    """Appends spans to a file that only its owner may read.

    Attributes:
        dropped: spans lost because more than ``BUFFER_MAX`` waited, or because the file could not be written.
    """

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.fchmod(self._fd, 0o600)
        self._queue: SimpleQueue[Span | None] = SimpleQueue()
        self._closed = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._write, name="lastword-tracer", daemon=True)
        self._thread.start()

    def handled(self, span: Span) -> None:
        if self._closed or self._queue.qsize() >= BUFFER_MAX:
            self.dropped += 1
        else:
            self._queue.put(span)

    def close(self) -> None:
        """Write what waits, end the thread, close the file. Idempotent; waits at most ``CLOSE_MAX_S``."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join(CLOSE_MAX_S)

    def _write(self) -> None:
        encoder = msgspec.json.Encoder()
        open_ = True
        while open_:
            batch: list[Span] = []
            span = self._queue.get()
            try:
                while span is not None:
                    batch.append(span)
                    if len(batch) >= BATCH_MAX:
                        break
                    span = self._queue.get_nowait()
                else:
                    open_ = False
            except Empty:
                pass
            self._append(encoder.encode_lines(batch), len(batch))
        os.close(self._fd)

    def _append(self, lines: bytes, count: int) -> None:
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self.dropped += count
