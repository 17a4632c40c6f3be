"""The control-mode client: one persistent ``tmux -C attach`` that carries every command and its reply.

It knows lines, not panes. Protocol (tmux(1), "CONTROL MODE", tried on 3.3a): a command is one line; its reply is
``%begin <time> <number> <flags>``, lines, then ``%end`` or ``%error`` with the same three words; flag 1 marks replies
to commands of this client. One command gives one reply, in order; ``if-shell`` gives two, its own and that of the
command that it chose. A line inside a reply may look like anything, so only the very words of the ``%begin`` close it.
An empty line would detach the client and is never sent. The client asks for no pane output (``no-output``), so that a
flooded pane costs nothing here, and never counts for window sizes (``ignore-size``).
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from lastword.actors.core.errors import RejectedError, TransportError, TransportTimeoutError, UsageError
from lastword.transports._guard import guarded

PENDING_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of commands that tmux did not take yet; above it new commands are refused."""
PENDING_COMMANDS_MAX = 100_000
"""Commands without a reply; above it new ones are refused."""
REPLY_TIMEOUT_S = 30.0
"""After this a command is answered with a failure. What it did in tmux, if anything, is not known."""
TICK_S = 5.0
"""How often overdue commands are looked for: the reader's only wake-up when nothing happens."""
ATTACH_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 1.0
READ_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024

SERVER_GONE = b"server gone"
BACKLOG_FULL = b"control client backlog full"
NO_REPLY = b"no reply in time"


class Reply(msgspec.Struct, frozen=True):
    """What tmux answered; the error text stands in ``lines`` when not ``ok``."""

    ok: bool
    lines: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        """The lines as one text, for a person."""
        return b"\n".join(self.lines).decode("utf-8", "replace")


OnReply = Callable[[Reply], None]

_QUOTED = re.compile(rb"[^A-Za-z0-9 _./,:=+@%^*()\[\]<>|&!?'`-]")
_OCTAL = [b"\\%03o" % byte for byte in range(256)]


def quote(arg: str | bytes) -> bytes:
    r"""One argument of a tmux command line: exact for any bytes but NUL.

    Double quotes with octal escapes for everything that tmux's parser could take for its own (``"``, ``$``, ``~``,
    ``\\``, ``#``, ``;``, braces), for line ends and for all bytes beyond ASCII. It quotes for the *parser* only: a
    command that expands formats in an argument needs ``#`` doubled before.

    Raises:
        RejectedError: ``unsupported_text``: the argument holds a NUL, which tmux cannot carry.
    """
    data = arg.encode("utf-8", "surrogateescape") if isinstance(arg, str) else arg
    if b"\0" in data:
        raise RejectedError("unsupported_text", "tmux cannot carry a NUL byte")
    return b'"' + _QUOTED.sub(lambda match: _OCTAL[match[0][0]], data) + b'"'


class _Pending:
    __slots__ = ("deadline", "height", "lines", "on_reply", "replies")

    def __init__(
        self, on_reply: OnReply, replies: int, deadline: float, height: Callable[[], int] | None = None
    ) -> None:
        self.height = height
        self.on_reply: OnReply | None = on_reply
        self.replies = replies
        self.deadline = deadline
        self.lines: tuple[bytes, ...] = ()

    def answer(self, reply: Reply) -> None:
        on_reply, self.on_reply = self.on_reply, None
        if on_reply is not None:
            guarded(on_reply, reply)


class Command(msgspec.Struct, frozen=True):
    """One command line.

    ``replies``: how many replies it gives when nothing fails; the last one is the answer. ``height``: how many lines
    the reply surely has, asked when it begins, 0 where that is not known: a program that paints our protocol's own
    words on its screen ends no reply with them.
    """

    line: bytes
    on_reply: OnReply
    replies: int = 1
    height: Callable[[], int] | None = None


def _refused(line: bytes, lines: Sequence[bytes]) -> bool:
    """Whether that ends the reply of a command whose target was gone: it has one line, however high its screen was."""
    return line.startswith(b"%error ") and len(lines) == 1 and lines[0].startswith(b"can't find ")


class ControlClient:
    """One control client on one server.

    ``submit`` never blocks; replies arrive on the client's own reader thread, each exactly once, in order. Once the
    server is gone (or the client closed) every waiting and every later command is answered with ``server gone``; the
    later ones on the caller's thread.

    Args:
        argv: the tmux program and its ``-S``/``-L`` arguments.
        session: the session to attach to.
        env: environment of the client process.
        on_gone: called once, on the reader thread, after all waiting commands were answered; not after ``close``.

    Raises:
        TransportError: it could not attach.
    """

    def __init__(
        self, argv: Sequence[str], session: str, *, env: Mapping[str, str], on_gone: Callable[[], None] | None = None
    ) -> None:
        self.on_gone = on_gone
        self.unmatched = 0
        """Replies that no command waited for. Not 0 means that this file misunderstands tmux."""
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._out = bytearray()
        self._gone = False
        self._closing = False
        self._attached = threading.Event()
        self._refusal: tuple[bytes, ...] = ()
        command = [*argv, "-u", "-C", "attach-session", "-f", "no-output,ignore-size", "-t", session]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=dict(env),
                start_new_session=True,  # Ctrl-C in the host's terminal is not for this client
            )
        except OSError as error:
            raise TransportError("transport_failed", f"tmux did not start: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in_fd = self._process.stdin.fileno()
        self._out_fd = self._process.stdout.fileno()
        os.set_blocking(self._in_fd, False)
        os.set_blocking(self._out_fd, False)
        try:
            fcntl.fcntl(self._in_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)  # a 100 kB prompt goes out in one write
        except OSError:
            pass
        self._epoll = select.epoll()
        self._epoll.register(self._out_fd, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="lastword-tmux", daemon=True)
        self._thread.start()
        if not self._attached.wait(ATTACH_TIMEOUT_S):
            self.close()
            raise TransportTimeoutError("tmux attach", ATTACH_TIMEOUT_S)
        if self._gone:
            text = b" ".join(self._refusal).decode("utf-8", "replace") or "the server went away"
            raise TransportError("transport_failed", f"tmux did not attach: {text}")

    @property
    def gone(self) -> bool:
        """The connection is over, by the server's end or by :meth:`close`."""
        return self._gone

    # --- commands -------------------------------------------------------------------------------------------------

    def submit(self, command: bytes, on_reply: OnReply, *, replies: int = 1) -> None:
        """Send one command line (see :func:`quote`) and return at once. Order is kept."""
        self.submit_all((Command(command, on_reply, replies),))

    def submit_all(self, commands: Sequence[Command]) -> None:
        """Send several command lines in one write, with nobody else's in between.

        Raises:
            UsageError: a line is empty or holds a line end; nothing was sent.
        """
        for command in commands:
            if not command.line.strip() or b"\n" in command.line:
                raise UsageError("usage", "a tmux command is one line that is not empty")
        data = b"".join([command.line + b"\n" for command in commands])
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        with self._lock:
            refusal = self._refuse(len(data))
            if not refusal:
                self._pending.extend([_Pending(c.on_reply, c.replies, deadline, c.height) for c in commands])
                self._write(data)
        if refusal:
            for command in commands:
                guarded(command.on_reply, Reply(False, (refusal,)))

    def call(self, command: bytes, timeout_s: float, *, replies: int = 1) -> Reply:
        """Send one command line and block for its reply. Not from a callback of this client.

        Raises:
            TransportTimeoutError: no reply within ``timeout_s``; whether tmux did it is not known.
            TransportError: the server is gone.
        """
        assert threading.current_thread() is not self._thread, "call() on the reader thread would wait for itself"
        done = threading.Event()
        got: list[Reply] = []

        def on_reply(reply: Reply) -> None:
            got.append(reply)
            done.set()

        self.submit(command, on_reply, replies=replies)
        if not done.wait(timeout_s):
            raise TransportTimeoutError("tmux command", timeout_s)
        if got[0].lines[:1] == (SERVER_GONE,) and not got[0].ok:
            raise TransportError("transport_failed", "the tmux server is gone")
        return got[0]

    def close(self) -> None:
        """Detach and end the client process; bounded, idempotent. Waiting commands are answered."""
        with self._lock:
            self._closing = True
            if not self._gone:
                try:
                    self._epoll.unregister(self._in_fd)
                except OSError:
                    pass
                assert self._process.stdin is not None
                self._process.stdin.close()  # end of file detaches the client
                self._in_fd = -1
        if self._thread is threading.current_thread():
            return
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():  # a stopped server does not let its client go
            self._process.kill()
            self._thread.join(CLOSE_TIMEOUT_S)

    # --- with the lock held ---------------------------------------------------------------------------------------

    def _refuse(self, size: int) -> bytes:
        if self._gone or self._closing:
            return SERVER_GONE
        if len(self._out) + size > PENDING_BYTES_MAX or len(self._pending) >= PENDING_COMMANDS_MAX:
            return BACKLOG_FULL
        return b""

    def _write(self, data: bytes) -> None:
        if self._out:
            self._out += data
            return
        written = self._write_some(data)
        if written < len(data):
            self._out += memoryview(data)[written:]
            self._epoll.register(self._in_fd, select.EPOLLOUT)

    def _write_some(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._in_fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # the client is gone: the reader sees end of file and answers everyone

    # --- the reader thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read_all()
        finally:
            self._end()

    def _read_all(self) -> None:
        rest = b""
        words: bytes | None = None
        lines: list[bytes] = []
        height = 0
        next_sweep = time.monotonic() + TICK_S
        while True:
            events = self._epoll.poll(TICK_S)
            for fd, _ in events:
                if fd != self._out_fd:
                    self._flush()
                    continue
                try:
                    data = os.read(fd, READ_BYTES)
                except BlockingIOError:
                    continue
                if not data:
                    return
                *complete, rest = (rest + data).split(b"\n")
                for line in complete:
                    if words is None:
                        if line.startswith(b"%begin "):
                            words = line[7:]
                            height = self._height(words)
                    elif (
                        line.startswith((b"%end ", b"%error "))
                        and line.split(b" ", 1)[1] == words
                        and (len(lines) >= height or _refused(line, lines))
                    ):
                        self._replied(words, Reply(line.startswith(b"%end "), tuple(lines)))
                        words = None
                        lines.clear()
                    else:
                        lines.append(line)
            now = time.monotonic()
            if now >= next_sweep:
                next_sweep = now + TICK_S
                if self._sweep(now) and height and words is not None:
                    return  # a screen that had fewer lines than it was high: begin anew with another client

    def _flush(self) -> None:
        with self._lock:
            if self._closing or not self._out:
                return
            with memoryview(self._out) as view:
                written = self._write_some(view)
            del self._out[:written]
            if not self._out:
                self._epoll.unregister(self._in_fd)

    def _replied(self, words: bytes, reply: Reply) -> None:
        if words.rsplit(b" ", 1)[-1] == b"0":  # the reply to attach itself
            if reply.ok:
                self._attached.set()
            else:
                self._refusal = reply.lines
            return
        with self._lock:
            if not self._pending:
                self.unmatched += 1
                return
            head = self._pending[0]
            head.replies -= 1
            if head.replies > 0 and reply.ok:
                return
            self._pending.popleft()
        head.answer(reply)

    def _height(self, words: bytes) -> int:
        """How many lines the reply that begins has at least."""
        if words.rsplit(b" ", 1)[-1] == b"0":
            return 0
        with self._lock:
            head = self._pending[0] if self._pending else None
        return head.height() if head is not None and head.height is not None else 0

    def _sweep(self, now: float) -> bool:
        """Answer overdue commands; they stay in line, so that a late reply finds its own. Whether there was one."""
        with self._lock:
            overdue = [one for one in self._pending if one.on_reply is not None and one.deadline <= now]
        for one in overdue:
            one.answer(Reply(False, (NO_REPLY,)))
        return bool(overdue)

    def _end(self) -> None:
        with self._lock:
            self._gone = True
            waiting, self._pending = list(self._pending), deque()
            self._out.clear()
            self._epoll.close()
        for one in waiting:
            one.answer(Reply(False, (SERVER_GONE,)))
        self._attached.set()
        if self.on_gone is not None and not self._closing:
            guarded(self.on_gone)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
