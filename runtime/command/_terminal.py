"""A terminal for a program that fills its screen: keys one by one, frames, and everything as it was afterwards.

Frames go through a descriptor of our own that never blocks: a terminal that takes nothing (a stopped pane, a lost line)
holds up neither keys nor signals, and a frame begins only once the one before is out. Signals are only noted, and wake
the wait; so the end by SIGTERM, SIGHUP or an error always passes through :meth:`Terminal.__exit__`. Lines do not wrap
while it is open: a character that the terminal takes for wider than we do shifts nothing below it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import time
from collections import deque
from types import FrameType
from typing import Any, Final, Self

from lastword.actors.core.errors import UsageError

LEAVE_S: Final = 1.0
"""How long a terminal is waited for that does not take what restores it."""
READ_BYTES: Final = 1024
KEYS_MAX: Final = 256
"""Keys of one reading; what a person pastes beyond it is dropped."""
FALLBACK_SIZE: Final = (80, 24)

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J\x1b[H"
"""The other screen, no cursor, no wrapping, empty."""
LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

ENDS: Final = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""Signals that end the program that has the terminal."""
SIGNALS: Final = (*sorted(ENDS), signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)

_KEYS: Final = {
    "[A": "up", "[B": "down", "OA": "up", "OB": "down",
    "[5~": "page_up", "[6~": "page_down",
    "[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end",
}  # fmt: skip
_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


class Terminal:
    """The terminal of this process, from the main thread, inside ``with``.

    Raises:
        UsageError: ``usage``: stdin or stdout is none, or it can do nothing.
    """

    def __init__(self) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
            raise UsageError(
                "usage", "there is no terminal to draw on", remedy="--once prints one table, --json one object"
            )
        self._in = sys.stdin.fileno()
        try:
            flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            self._out = os.open(os.ttyname(sys.stdout.fileno()), flags)
        except OSError as error:
            raise UsageError(
                "usage", f"the terminal cannot be opened: {error.strerror}", remedy="Use --once"
            ) from error
        self._owed = bytearray()
        self._typed = bytearray()
        self._noted: deque[int] = deque(maxlen=64)
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wake_before = -1
        self.hung_up = False

    def __enter__(self) -> Self:
        self._wake_before = signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as whoever started us wants it
                self._handlers[number] = signal.signal(number, self._note)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        signal.set_wakeup_fd(self._wake_before)
        for fd in (self._out, self._wake_r, self._wake_w):
            os.close(fd)

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            columns, rows = os.get_terminal_size(self._out)
        except OSError:
            return FALLBACK_SIZE
        return columns or FALLBACK_SIZE[0], rows or FALLBACK_SIZE[1]

    @property
    def ready(self) -> bool:
        """Whether the last frame is out; while it is not, no other one is to be sent."""
        return not self._owed

    def send(self, text: str) -> None:
        """A frame."""
        self._owed += text.encode(errors="replace")
        self._push()

    def wait(self, fd: int, timeout_s: float) -> None:
        """Until a key, a signal, ``fd``, or the time; what the terminal is owed goes on meanwhile."""
        readable = [self._wake_r, fd] if self.hung_up else [self._in, self._wake_r, fd]
        owing = [self._out] if self._owed else []
        readable, writable, _ = select.select(readable, owing, [], max(0.0, timeout_s))
        if writable:
            self._push()
        if self._wake_r in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_r, READ_BYTES)
        if self._in in readable:
            self._read()

    def signals(self) -> list[int]:
        """Those that came since the last call."""
        noted = []
        while self._noted:
            noted.append(self._noted.popleft())
        return noted

    def pressed(self) -> list[str]:
        """Those that were pressed since the last call: characters, or names as ``page_up``."""
        keys: list[str] = []
        data = bytes(self._typed)
        at = 0
        while at < len(data):
            if data[at] != 0x1B:
                keys.append(chr(data[at]))
                at += 1
                continue
            found = _SEQUENCE.match(data, at)
            if found is None:
                if _BEGUN.match(data, at):
                    break  # the rest of it is on its way
                at += 1  # Escape, or Alt with a key: the key alone
                continue
            name = _KEYS.get(found[0][1:].decode("latin-1"))
            if name is not None:
                keys.append(name)
            at = found.end()
        self._typed = bytearray(data[at:][-16:])
        return keys[:KEYS_MAX]

    def suspend(self) -> None:
        """Stop, as Ctrl-Z asks for, with the terminal as it was before; goes on once the process does."""
        self._give_back()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.kill(os.getpid(), signal.SIGTSTP)
        finally:
            signal.signal(signal.SIGTSTP, handler)
        self._take()

    def resume(self) -> None:
        """Somebody had stopped this process: whatever became of the terminal, it is ours again."""
        self._apply()

    def _take(self) -> None:
        self._before = termios.tcgetattr(self._in)
        self._apply()

    def _apply(self) -> None:
        mode = termios.tcgetattr(self._in)
        mode[0] &= ~termios.IXON  # Ctrl-S would stop the screen for good
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._in, termios.TCSANOW, mode)
        self.send(ENTER)

    def _give_back(self) -> None:
        """As it was. Bounded; a terminal that is gone is left."""
        if self._before is None:
            return
        before, self._before = self._before, None
        if self._owed:
            self._flush(LEAVE_S / 2)  # half a frame, or half a sequence, is not cut
        self._owed.clear()
        self.send(LEAVE)
        self._flush(LEAVE_S / 2)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSANOW, before)

    def _flush(self, within_s: float) -> None:
        until_s = time.monotonic() + within_s
        while self._owed and not self.hung_up and (left_s := until_s - time.monotonic()) > 0:
            _, writable, _ = select.select([], [self._out], [], left_s)
            if writable:
                self._push()

    def _push(self) -> None:
        try:
            sent = os.write(self._out, self._owed) if self._owed else 0
            del self._owed[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.hung_up = True
            self._owed.clear()

    def _read(self) -> None:
        try:
            data = os.read(self._in, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.hung_up = True
        self._typed += data

    def _note(self, number: int, _: FrameType | None) -> None:
        self._noted.append(number)
