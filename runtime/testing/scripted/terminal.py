"""The terminal as a device: its modes, and bytes to it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SAVED: list[Any] = []


def write_all(raw: bytes) -> None:
    """All of it to the terminal."""
    while raw:
        try:
            raw = raw[os.write(1, raw) :]
        except OSError:
            return


def raw_terminal() -> None:
    """Raw mode and bracketed paste."""
    import termios  # noqa: PLC0415 - not everywhere
    import tty  # noqa: PLC0415

    try:
        _SAVED.append(termios.tcgetattr(0))
        tty.setraw(0)
    except termios.error:
        pass
    write_all(b"\x1b[?2004h\x1b[2J")


def restore_terminal() -> None:
    """As it was before."""
    import termios  # noqa: PLC0415

    write_all(b"\x1b[?2004l\x1b[?25h\r\n")
    if _SAVED:
        try:
            termios.tcsetattr(0, termios.TCSANOW, _SAVED[-1])
        except termios.error:
            pass
