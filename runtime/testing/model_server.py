"""A scripted model on loopback: real HTTP for a real CLI, no model behind it.

It plays a :class:`~lastword.runtime.testing.script.Script` through the wire format that the path of a request names
(Anthropic Messages, OpenAI Responses, OpenAI chat completions, Gemini) and keeps typed records of what was asked. It
listens on 127.0.0.1 only, on a port of the system's choice; its threads are bounded and ``stop()`` leaves none behind.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from lastword.runtime.testing import wire_anthropic, wire_gemini, wire_openai_chat, wire_openai_responses
from lastword.runtime.testing.script import Played, Script, Step, StepError
from lastword.runtime.testing.wire import JSON_TYPE, ModelRequest, Refusal, Wire, hidden_step

REQUESTS_KEPT_MAX = 2000
CONNECTIONS_MAX = 64
BODY_BYTES_MAX = 64 * 1024 * 1024
IDLE_CONNECTION_S = 120.0
PAUSE_S_MAX = 3600.0
STOP_S_MAX = 10.0

_ANTHROPIC: Wire = wire_anthropic
_WIRES: tuple[tuple[re.Pattern[str], Wire], ...] = (
    (re.compile(r"^/v1/messages$"), _ANTHROPIC),
    (re.compile(r"^(/v1)?/responses$"), wire_openai_responses),
    (re.compile(r"^(/v1)?/chat/completions$"), wire_openai_chat),
    (re.compile(r"^/v1(alpha|beta)?/models/[^/:]+:(stream)?[gG]enerateContent$"), wire_gemini),
)
_COUNTS = {re.compile(r"^/v1/messages/count_tokens$"): "input_tokens", re.compile(r":countTokens$"): "totalTokens"}

Respond = Callable[[ModelRequest], Step | None]


_NO_REQUEST = ModelRequest(prompt="", answered=0, model="", stream=False)


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asked and how it ended.

    Attributes:
        at_wall_s: arrival. status: HTTP status, or 0 while the answer is under way.
        outcome: ``open``, ``answered``, ``error``, ``cut`` (by the script), ``client_gone`` or ``stopped``.
        script, step: what was played; ``hidden:...`` for what the CLI asks on its own behalf.
        session: the client's session id header.
    """

    number: int
    at_wall_s: float
    method: str
    path: str
    session: str = ""
    prompt: str = ""
    model: str = ""
    stream: bool = False
    script: str = ""
    step: int = 0
    status: int = 0
    outcome: str = "open"
    ended_wall_s: float = 0.0


class ModelServer:
    """A scripted model server; a context manager.

    ``respond`` is asked first and may answer any request with a step of its own; None leaves it to the
    script.
    """

    def __init__(self, script: Script | None = None, *, respond: Respond | None = None) -> None:
        self.script = script or Script()
        self._respond = respond
        self._lock = threading.Lock()
        self._records: deque[RequestRecord] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._attempts: dict[tuple[str, str, str, int], int] = {}
        self._serial = 0
        self._stopping = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def from_file(cls, path: Path | str) -> Self:
        """A server that plays the JSON script at ``path``."""
        return cls(Script.from_file(path))

    def start(self) -> Self:
        """Listen; returns when requests are taken. Starting twice changes nothing."""
        if self._server is None:
            self._stopping.clear()
            self._server = _Server(self)
            self._thread = threading.Thread(
                target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="model-server"
            )
            self._thread.start()
        return self

    @property
    def stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Break every connection, end every thread, free the port. Idempotent."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._server = self._thread = None
        self._stopping.set()
        server.shutdown()
        thread.join(STOP_S_MAX)
        server.hang_up(STOP_S_MAX)
        server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """What goes into ``ANTHROPIC_BASE_URL``; OpenAI clients want ``/v1`` behind it.

        Raises: RuntimeError when not started.
        """
        if self._server is None:
            raise RuntimeError("the model server is not running")
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> list[RequestRecord]:
        """A copy of the records, oldest first, the last 2000."""
        with self._lock:
            return list(self._records)

    # -- called by handler threads -------------------------------------------------------------------------

    def opened(self, record: RequestRecord) -> RequestRecord:
        """File a record under the next number."""
        with self._lock:
            self._serial += 1
            numbered = msgspec.structs.replace(record, number=self._serial)
            self._records.append(numbered)
        return numbered

    def closed(self, record: RequestRecord, outcome: str, status: int) -> None:
        """Say how a filed request ended."""
        ended = msgspec.structs.replace(record, outcome=outcome, status=status, ended_wall_s=time.time())
        with self._lock:
            for at in range(len(self._records) - 1, -1, -1):
                if self._records[at].number == record.number:
                    self._records[at] = ended
                    return

    def play(self, request: ModelRequest) -> Played:
        """Choose the step for a request."""
        if self._respond is not None:
            step = self._respond(request)
            if step is not None:
                return Played(script="respond", index=request.answered, step=step)
        if request.hidden:
            return Played(script=f"hidden:{request.hidden}", index=0, step=hidden_step(request))
        return self.script.pick(request.prompt, request.answered)

    def attempt(self, request: ModelRequest, played: Played) -> int:
        """How often this very step was asked for by this session's prompt, from 1."""
        key = (request.session, request.prompt, played.script, played.index)
        with self._lock:
            self._attempts[key] = self._attempts.get(key, 0) + 1
            return self._attempts[key]

    def pause(self, seconds: float) -> None:
        """Wait as the script says, or raise ``_StoppedError`` as soon as the server stops."""
        if seconds > 0 and self._stopping.wait(min(seconds, PAUSE_S_MAX)):
            raise _StoppedError


class _StoppedError(Exception):
    """The server is stopping while an answer is under way."""


class _CutError(Exception):
    """The script breaks the connection here."""


class _Server(HTTPServer):
    """One thread per connection, at most ``CONNECTIONS_MAX``; the rest wait in the listen queue."""

    request_queue_size = 128

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._guard = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection on a thread of its own."""
        while not self._slots.acquire(timeout=0.1):
            if self.owner.stopping:
                self.shutdown_request(request)
                return
        thread = threading.Thread(target=self._serve, args=(request, client_address), name="model-server-connection")
        with self._guard:
            self._open[thread] = request
        thread.start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away; the record says so
        finally:
            self.shutdown_request(request)
            with self._guard:
                self._open.pop(threading.current_thread(), None)
            self._slots.release()

    def hang_up(self, bound_s: float) -> None:
        """Break the open connections and wait for their threads, together at most ``bound_s``."""
        with self._guard:
            open_now = list(self._open.items())
        for _, connection in open_now:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        deadline = time.monotonic() + bound_s
        for thread, _ in open_now:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    """HTTP around the wire format."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_CONNECTION_S
    disable_nagle_algorithm = True  # else each small frame behind another waits 40 ms for the client's kernel
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Quiet: the records tell it."""

    def do_HEAD(self) -> None:
        """A reachability probe."""
        record = self._open()
        self._send(200, b"")
        self.server.owner.closed(record, "answered", 200)

    def do_GET(self) -> None:
        """A model list; anything else is not found."""
        record = self._open()
        if self.path.split("?")[0] == "/v1/models":
            self._reply(record, 200, json.dumps({"data": [], "has_more": False}).encode())
        else:
            self._not_found(record)

    def do_POST(self) -> None:
        """A request for an answer or a token count."""
        size = int(self.headers.get("content-length") or 0)
        if size > BODY_BYTES_MAX:
            self._refuse(413, "request too large")
            return
        raw = self.rfile.read(size)
        path = self.path.split("?")[0]
        counted = next((name for pattern, name in _COUNTS.items() if pattern.search(path)), "")
        wire = next((wire for pattern, wire in _WIRES if pattern.match(path)), None)
        if counted:
            self._reply(self._open(), 200, json.dumps({counted: max(1, len(raw) // 4)}).encode())
        elif wire is not None:
            self._answer(wire, raw)
        else:
            self._not_found(self._open())

    def _answer(self, wire: Wire, raw: bytes) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._refuse(400, "the body is not a JSON object")
            return
        owner = self.server.owner
        request = wire.parse({name.lower(): value for name, value in self.headers.items()}, body, self.path)
        played = owner.play(request)
        record = self._open(request, played)
        attempt = owner.attempt(request, played)
        step = played.step
        try:
            owner.pause(step.delay_s)
            error = step.error
            if error is not None and (error.times == 0 or attempt <= error.times):
                refusal = wire.refuse(request, error, record.number)
                owner.closed(record, "error", refusal.status)
                self._send_refusal(msgspec.structs.replace(refusal, headers={**refusal.headers, **error.headers}))
            elif request.stream:
                cut = step.cut and (step.cut_times == 0 or attempt <= step.cut_times)
                self._stream(wire, request, step, record, cut=cut)
            else:
                owner.pause(step.hang_s)
                self._reply(record, 200, wire.whole(request, step, record.number))
        except _CutError:
            self.close_connection = True
            owner.closed(record, "cut", 200)
        except _StoppedError:
            self.close_connection = True
            owner.closed(record, "stopped", 0)
        except OSError:
            self.close_connection = True
            owner.closed(record, "stopped" if owner.stopping else "client_gone", 0)

    def _stream(self, wire: Wire, request: ModelRequest, step: Step, record: RequestRecord, *, cut: bool) -> None:
        serial = record.number
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("request-id", f"req_scripted_{serial:06d}")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for frame in wire.stream(request, step, serial):
            self.server.owner.pause(frame.pause_s)
            if cut and frame.block_end:
                raise _CutError  # within a block: a client that has seen a whole one may keep it and fail
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame.data), frame.data))
        if cut:
            raise _CutError
        self.server.owner.closed(record, "answered", 200)  # before the end that the client sees
        self.wfile.write(b"0\r\n\r\n")

    def _open(self, request: ModelRequest | None = None, played: Played | None = None) -> RequestRecord:
        return self.server.owner.opened(
            RequestRecord(
                number=0,
                at_wall_s=time.time(),
                method=self.command,
                path=self.path,
                session=request.session if request else self.headers.get("x-claude-code-session-id", ""),
                prompt=request.prompt if request else "",
                model=request.model if request else "",
                stream=request.stream if request else False,
                script=played.script if played else "",
                step=played.index if played else 0,
            )
        )

    def _refuse(self, status: int, message: str) -> None:
        record = self._open()
        self.close_connection = True
        self._send_refusal(_ANTHROPIC.refuse(_NO_REQUEST, StepError(status=status, message=message), 0))
        self.server.owner.closed(record, "error", status)

    def _not_found(self, record: RequestRecord) -> None:
        self._send_refusal(_ANTHROPIC.refuse(_NO_REQUEST, StepError(status=404, message=self.path), 0))
        self.server.owner.closed(record, "error", 404)

    def _reply(self, record: RequestRecord, status: int, body: bytes) -> None:
        self.server.owner.closed(record, "answered", status)
        self._send(status, body)

    def _send_refusal(self, refusal: Refusal) -> None:
        self._send(refusal.status, refusal.body, refusal.headers, refusal.content_type)

    def _send(
        self, status: int, body: bytes, extra: dict[str, str] | None = None, content_type: str = JSON_TYPE
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("request-id", f"req_scripted_{time.time_ns():x}")
        self.send_header("content-length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
