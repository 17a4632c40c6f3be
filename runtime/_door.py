"""The host's socket: what other processes may ask of the one host of a state folder (``host.sock``, mode 0600).

One JSON object a line each way: ``{"op": "send", "session": "s_…", "text": "…"}``, ``interrupt``, ``answer``,
``snapshot``, and of the whole host ``metrics`` and ``top``; the answer is ``{"ok": true, …}`` or
``{"ok": false, "error": {…}}`` with the error's kind. Everything is bounded: line, wait, connections. It decides
nothing: each request is one call of a session's public method, or a look at the host's numbers. Events are read from
the journal, not from here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar, assert_never

import msgspec

from lastword.actors.core.delivery import Answer, Delivery, Interrupt
from lastword.actors.core.errors import (
    ActorError,
    JournalError,
    LastwordError,
    ProviderError,
    RejectedError,
    TransportError,
    UsageError,
)
from lastword.actors.core.ids import TurnId
from lastword.actors.core.snapshot import Snapshot
from lastword.runtime._top import Look, Top
from lastword.runtime.metrics import Metrics

if TYPE_CHECKING:
    from lastword.runtime._session import Session

_P = ParamSpec("_P")
_T = TypeVar("_T")

SOCKET_NAME: Final = "host.sock"
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A request or an answer; a message of 100 kB in JSON escapes fits."""
CONNECTIONS_MAX: Final = 16
"""Served at the same time; a further one waits in the listen queue."""
REQUEST_WAIT_S: Final = 10.0
"""A connection that asks nothing for so long, or takes its answer more slowly, is closed."""
ACCEPT_POLL_S: Final = 0.5
ANSWER_WAIT_S: Final = 45.0
"""How long a client waits: a session's own bound on an acknowledgement is 30 s."""
CLOSE_WAIT_S: Final = 5.0
_CREDENTIALS: Final = struct.Struct("3i")


class Send(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="send"):
    """A message for a session."""

    session: str
    text: str
    message_id: str | None = None
    deadline_s: float | None = None


class InterruptTurn(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="interrupt"):
    """Cancel what runs; ``turn_id`` narrows it."""

    session: str
    turn_id: str | None = None


class AnswerDialog(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="answer"):
    """Answer an open dialog; ``option`` counts from 1."""

    session: str
    dialog_id: str
    option: int


class GetSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="snapshot"):
    """What is the session now?"""

    session: str


class GetMetrics(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="metrics"):
    """The host in numbers."""


class GetTop(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", tag="top"):
    """Some of its sessions, and figures of all."""

    look: Look


SessionRequest: TypeAlias = Send | InterruptTurn | AnswerDialog | GetSnapshot
Request: TypeAlias = SessionRequest | GetMetrics | GetTop


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A typed error on its way to another process."""

    type: str
    kind: str
    reason: str
    remedy: str = ""
    provider: str = ""


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a request: exactly one of them."""

    ok: bool
    delivery: Delivery | None = None
    snapshot: Snapshot | None = None
    metrics: Metrics | None = None
    top: Top | None = None
    error: Failure | None = None


_ERRORS: Final[dict[str, type[LastwordError]]] = {
    error.__name__: error
    for error in (ActorError, JournalError, ProviderError, RejectedError, TransportError, UsageError)
}
_request_of: Final = msgspec.json.Decoder(Request)
_response_of: Final = msgspec.json.Decoder(Response)


class Door:
    """Serves ``host.sock`` in the state folder, whose journal lock the caller holds. Threads start in :meth:`open`.

    Args:
        find: a session by its id; raises a :class:`LastwordError` where there is none.
        metrics, top: the host's numbers; refused as ``unsupported_capability`` where there are none.
    """

    def __init__(
        self,
        folder: Path,
        find: Callable[[str], Session],
        *,
        metrics: Callable[[], Metrics] | None = None,
        top: Callable[[Look], Top] | None = None,
        request_wait_s: float = REQUEST_WAIT_S,
    ) -> None:
        self.path = folder / SOCKET_NAME
        self._metrics = metrics
        self._top = top
        self._folder = folder
        self._find = find
        self._request_wait_s = request_wait_s
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._lock = threading.Lock()
        self._live: dict[socket.socket, threading.Thread] = {}
        self._closing = threading.Event()

    def open(self) -> None:
        """Bind and serve. A socket that a dead host left is replaced: the lock says that it is dead.

        Raises:
            JournalError: ``journal_unwritable``: the folder takes no socket.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            os.fchmod(listener.fileno(), 0o600)  # before bind: the file is never there with a wider mode
            with _short(self.path) as address:
                listener.bind(address)
            listener.listen(CONNECTIONS_MAX)
            listener.settimeout(ACCEPT_POLL_S)
        except OSError as error:
            listener.close()
            raise JournalError(
                "journal_unwritable",
                f"{self.path} cannot be made ({error.strerror or error})",
                remedy="Choose a state folder on a file system that takes sockets",
            ) from error
        self._listener = listener
        self._acceptor = threading.Thread(target=self._accept, name="lastword-door", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Stop serving, end connections, remove the socket. Idempotent; at most :data:`CLOSE_WAIT_S` and a poll."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept on Linux
            self._listener.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
        with self._lock:
            live = list(self._live.items())
        for connection, _ in live:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # an answer under way still goes out
        until = time.monotonic() + CLOSE_WAIT_S
        for thread in ([self._acceptor] if self._acceptor is not None else []) + [thread for _, thread in live]:
            thread.join(max(0.0, until - time.monotonic()))

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._closing.is_set():
            if not self._slots.acquire(timeout=ACCEPT_POLL_S):
                continue
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._slots.release()
                continue
            except OSError:
                self._slots.release()
                if self._closing.is_set():
                    return
                self._closing.wait(ACCEPT_POLL_S)  # out of descriptors: later
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="lastword-door", daemon=True)
            with self._lock:
                self._live[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(self._request_wait_s)
            if _peer_uid(connection) not in (0, os.getuid()):
                return
            for line in _lines(connection, self._request_wait_s):
                connection.sendall(msgspec.json.encode(self._answer(line)) + b"\n")
        except (OSError, _TooLongError) as error:
            if isinstance(error, _TooLongError):
                with contextlib.suppress(OSError):
                    connection.sendall(
                        msgspec.json.encode(_failure(UsageError("usage", f"a request of over {LINE_BYTES_MAX} bytes")))
                        + b"\n"
                    )
        finally:
            with self._lock:
                self._live.pop(connection, None)
            connection.close()
            self._slots.release()

    def _answer(self, line: bytes) -> Response:
        try:
            request = _request_of.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return _failure(UsageError("usage", f"not a request: {type(error).__name__}"))
        try:
            return self._carry_out(request)
        except LastwordError as error:
            return _failure(error)
        except Exception as error:
            return _failure(ActorError("actor_dead", f"the host failed: {type(error).__name__}"))

    def _carry_out(self, request: Request) -> Response:
        match request:
            case GetMetrics():
                return Response(ok=True, metrics=_there(self._metrics)())
            case GetTop():
                return Response(ok=True, top=_there(self._top)(request.look))
            case _:
                return self._ask_session(request)

    def _ask_session(self, request: SessionRequest) -> Response:
        session = self._find(request.session)
        match request:
            case Send():
                ack = session.send(request.text, message_id=request.message_id, deadline_s=request.deadline_s)
                return Response(ok=True, delivery=ack)
            case InterruptTurn():
                turn_id = TurnId(request.turn_id) if request.turn_id else None
                return Response(ok=True, delivery=session.send(Interrupt(turn_id=turn_id)))
            case AnswerDialog():
                return Response(ok=True, delivery=session.send(Answer(request.dialog_id, request.option)))
            case GetSnapshot():
                return Response(ok=True, snapshot=session.snapshot())
            case _:
                assert_never(request)


def ask(folder: Path, request: Request, *, wait_s: float = ANSWER_WAIT_S) -> Response:
    """Ask the host of that state folder. The answer is never an error: those are raised as they were raised there.

    Raises:
        UsageError: ``host_unreachable``: nobody serves this folder.
        RejectedError: ``unsupported_text``: no Unicode, or too long.
        TransportError: ``transport_timeout``, ``transport_failed``: it did not answer in time, or broke off.
        LastwordError: what the host itself answered.
    """
    try:
        data = msgspec.json.encode(request) + b"\n"
    except UnicodeEncodeError:
        raise RejectedError("unsupported_text", "the text is no Unicode", remedy="Replace what is none") from None
    if len(data) > LINE_BYTES_MAX:
        reason = f"a message of {len(data)} bytes is too long"
        raise RejectedError("unsupported_text", reason, remedy=f"At most {LINE_BYTES_MAX} bytes: put it into a file")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(wait_s)
        try:
            with _short(folder / SOCKET_NAME) as address:
                connection.connect(address)
        except OSError as error:
            raise UsageError(
                "host_unreachable",
                f"no live host serves {folder}",
                remedy="Name the --state folder of a host that runs; without one: lastword run --session SESSION TEXT",
            ) from error
        try:
            connection.sendall(data)
            line = next(_lines(connection, wait_s), None)
        except TimeoutError as error:
            raise TransportError("transport_timeout", f"the host did not answer within {wait_s:g} s") from error
        except (OSError, _TooLongError) as error:
            raise TransportError("transport_failed", f"the host broke off: {type(error).__name__}") from error
    if line is None:
        raise TransportError("transport_failed", "the host closed the connection without an answer")
    try:
        response = _response_of.decode(line)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise TransportError("transport_failed", f"the host's answer is unreadable: {type(error).__name__}") from error
    if response.error is not None:
        raise _raised(response.error)
    return response


def _there(numbers: Callable[_P, _T] | None) -> Callable[_P, _T]:
    if numbers is None:
        raise UsageError("unsupported_capability", "this host tells no numbers")
    return numbers


def _failure(error: LastwordError) -> Response:
    name = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _ERRORS), "ActorError")
    failure = Failure(type=name, kind=error.kind, reason=error.reason, remedy=error.remedy, provider=error.provider)
    return Response(ok=False, error=failure)


def _raised(failure: Failure) -> LastwordError:
    cls: Any = _ERRORS.get(failure.type, ActorError)
    error: LastwordError = cls(failure.kind, failure.reason, remedy=failure.remedy, provider=failure.provider)
    return error


class _TooLongError(Exception):
    """A line beyond the bound."""


def _lines(connection: socket.socket, line_wait_s: float) -> Iterator[bytes]:
    """Lines, each of them bounded in length and, from its first wait to its end, in time."""
    held = bytearray()
    until = time.monotonic() + line_wait_s
    while True:
        end = held.find(b"\n")
        if end >= 0:
            line = bytes(held[:end])
            del held[: end + 1]
            yield line
            until = time.monotonic() + line_wait_s
            continue
        if len(held) > LINE_BYTES_MAX:
            raise _TooLongError
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        chunk = connection.recv(65536)
        connection.settimeout(line_wait_s)
        if not chunk:
            return
        held += chunk


def _peer_uid(connection: socket.socket) -> int:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return os.getuid()  # the file's mode is the fence there
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(uid)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """The address of a socket: a path over the system's 107 bytes is reached through its folder's descriptor."""
    if len(os.fsencode(path)) < 100 or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
