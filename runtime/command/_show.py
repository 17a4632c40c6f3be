"""What the command prints: safe for a terminal, one form for all commands.

A model's text, a provider's error and a file's name come from elsewhere: none of them reaches a terminal with control
characters in it. ``--json`` keeps them, escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import inf, nan
from pathlib import Path
from typing import Any

import click
import msgspec

from lastword.actors.core.errors import RejectedError

EXIT_COMPLETED = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LOST = 3
EXIT_DIALOG = 4
EXIT_CANCELLED = 130

EXIT_OF_STATUS = {
    "completed": EXIT_COMPLETED,
    "failed": EXIT_FAILED,
    "lost": EXIT_LOST,
    "cancelled": EXIT_CANCELLED,
}

STDIN_CHARS_MAX = 16 * 1024 * 1024
"""Of a text from stdin; a CLI takes far less."""

_PICTURES = 0x2400
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x2070), 0x200E, 0x200F, 0x061C, *range(0xFFF9, 0xFFFC))
_TAGS = range(0xE0000, 0xE0080)
"""Characters that no terminal shows and that carry ASCII all the same."""
_RAW = {code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in "\n\t"}
_RAW |= {0x7F: "\u2421"} | dict.fromkeys((*range(0x80, 0xA0), *_BIDI, *_TAGS), "\ufffd")
_RAW |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_JSON = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_BIDI, 0x2028, 0x2029)}


def safe(text: str) -> str:
    """The text for a terminal: newlines and tabs stay, every other control character becomes a visible sign."""
    return text.replace("\r\n", "\n").translate(_RAW)


def one_line(text: str, chars_max: int = 2000) -> str:
    """The text on one line, cut to a bound."""
    line = " ".join(safe(text).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def as_json(value: Any, *, indent: bool = False) -> str:
    """JSON in which no control character stands raw, C1 and direction marks included."""
    data = msgspec.json.encode(value)
    if indent:
        data = msgspec.json.format(data, indent=1)
    return data.decode().translate(_JSON)


def out(text: str) -> None:
    """A line on stdout."""
    click.echo(text)


def note(text: str) -> None:
    """A line on stderr."""
    click.echo(text, err=True)


def read_stdin() -> str:
    """The text on stdin.

    Raises:
        RejectedError: ``unsupported_text``: not UTF-8, or beyond :data:`STDIN_CHARS_MAX`.
    """
    try:
        text = sys.stdin.read(STDIN_CHARS_MAX + 1)
    except UnicodeDecodeError as error:
        raise RejectedError("unsupported_text", "the text on stdin is not UTF-8", remedy="Convert it") from error
    if len(text) > STDIN_CHARS_MAX:
        raise RejectedError("unsupported_text", f"the text on stdin has over {STDIN_CHARS_MAX} characters")
    return text


def table(rows: Sequence[tuple[str, ...]], heads: tuple[str, ...]) -> str:
    """Columns, left-aligned, two blanks apart; the last one is not padded. Cells are made safe here."""
    cells = [heads, *[tuple(one_line(cell) for cell in row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def default_state() -> Path:
    """``$LASTWORD_STATE``, else ``$XDG_STATE_HOME/lastword``, else ``~/.local/state/lastword``."""
    named = os.environ.get("LASTWORD_STATE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "lastword"


class _Folder(click.Path):
    """A path; an empty one, as an unset variable leaves it, is not the folder that one stands in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("", b""):
            self.fail("an empty path names no folder", param, ctx)
        return super().convert(value, param, ctx)


class _Seconds(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer ones only
    """Seconds: finite, not negative."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = nan
        if not 0 <= seconds < inf:
            self.fail(f"{one_line(str(value), 60)!r} is no number of seconds", param, ctx)
        return seconds


SECONDS = _Seconds()


def state_option(command: Any) -> Any:
    """``--state``, alike on every command; None where it was not given."""
    return click.option(
        "--state",
        type=_Folder(path_type=Path, file_okay=False),
        help="State folder (default: $LASTWORD_STATE, else $XDG_STATE_HOME/lastword).",
    )(command)
