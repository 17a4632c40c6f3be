"""What the oracles of line files share: framing, evidence, never raising, and telling kinds of file apart by content.

An oracle of one kind of file derives from :class:`LineOracle` and turns one line into facts. Where a provider writes
several kinds (a session file, a stream), its door is a :class:`SniffingOracle`: the first line that one kind claims
chooses it. Pure: no clock, no path, no process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from lastword.actors.core.adapter import Oracle
from lastword.actors.core.facts import Fact, TurnClosed, UnknownRecord
from lastword.actors.core.outcome import ErrorKind, Evidence, TurnError
from lastword.actors.core.transcript import Line, LineFramer

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError, OverflowError)
"""What decoding a hostile line may raise."""
TOOL_RESULT_CHARS_MAX = 64 * 1024
CUT_MARK = "\n…[cut by lastword]"
ERROR_CHARS_MAX = 2000
CLOSED_MAX = 64
"""Native turns that are remembered as closed, to tell a late or doubled terminal record from a new one."""


class LineOracle:
    """Reads one file, line by line. Raises nothing for any input.

    Args:
        native_session: the conversation; "" takes that which the file names first.
        offset: where reading starts; a place where an oracle was quiescent.
    """

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        self._native_session = native_session
        self._framer = LineFramer(offset, empty=False)
        self._facts: list[Fact] = []
        self._closed: deque[str] = deque(maxlen=CLOSED_MAX)

    # --- what a kind of file says itself ------------------------------------------------------------------------------

    def _line(self, data: bytes, source: str, offset: int) -> None:
        """Facts of one complete line; may raise any of :data:`UNREADABLE`."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The writer is gone and all was fed: what only that proves."""

    @property
    def _busy(self) -> bool:
        """Whether a native turn is open or anything else is held that a later reader would miss."""
        raise NotImplementedError

    # --- the protocol of an oracle ----------------------------------------------------------------------------------

    @property
    def quiescent(self) -> bool:
        """No turn is open and no half line is held."""
        return not self._busy and not self._framer.tail_bytes

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Facts of the bytes that follow the previous chunk; each ``offset`` is that of its line."""
        for line in self._framer.feed(chunk):
            self._framed(line, source)
        return self._taken()

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:  # noqa: ARG002 - no such source
        """Nothing: these providers keep no snapshot file that is read."""
        return []

    def eof(self, source: str) -> list[Fact]:
        """The writer is gone and all was fed: a whole last record without its newline counts."""
        tail = self._framer.flush()
        if tail is not None:
            self._framed(tail, source)
        self._ended()
        return self._taken()

    def take(self, line: Line, source: str) -> list[Fact]:
        """Facts of one line that somebody else has framed."""
        self._framed(line, source)
        return self._taken()

    def ended(self, source: str) -> list[Fact]:  # noqa: ARG002 - for those that ask which
        """What the proved end of the writer gives, where somebody else frames its lines."""
        self._ended()
        return self._taken()

    def _framed(self, line: Line, source: str) -> None:
        if line.oversized:
            self._unknown("oversized_line", Evidence(source=source, offset=line.offset))
        elif line.data.strip():
            try:
                self._line(line.data, source, line.offset)
            except UNREADABLE:
                self._unknown("unreadable", Evidence(source=source, offset=line.offset))

    def _taken(self) -> list[Fact]:
        facts, self._facts = self._facts, []
        return facts

    def _unknown(self, what: str, evidence: Evidence) -> None:
        self._facts.append(UnknownRecord(what=what, evidence=evidence))

    def _foreign(self, session: str) -> bool:
        """Whether a record is of another conversation; the first one named is ours, where none was given."""
        if not session:
            return False
        if not self._native_session:
            self._native_session = session
        return session != self._native_session

    def _close(self, closed: TurnClosed) -> None:
        self._facts.append(closed)
        self._closed.append(closed.native_turn)


Choose: TypeAlias = Callable[[bytes, int], "Oracle | Literal['later'] | None"]
"""The oracle of the kind of file that a line shows, to start at the offset given; ``later`` where several kinds begin
so and a further line decides; None where the line shows none.
"""
UNDECIDED_BYTES_MAX = 1024 * 1024
"""More is not held until the kind of a file is known."""


class SniffingOracle:
    """One file of a provider that writes several kinds. Which it is, its first telling line decides.

    Lines before that one are of no kind: each is counted as unknown. A line that several kinds may begin with is held,
    with what follows, for the oracle that is chosen.
    """

    def __init__(self, choose: Choose, offset: int = 0) -> None:
        self._choose = choose
        self._framer = LineFramer(offset)
        self._fed = offset
        self._chosen: Oracle | None = None
        self._held: list[Line] = []
        self._held_bytes = 0

    @property
    def quiescent(self) -> bool:
        """That of the oracle that was chosen; before, whether nothing is held."""
        if self._chosen is not None:
            return self._chosen.quiescent
        return not self._framer.tail_bytes and not self._held

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """As :meth:`LineOracle.feed`."""
        if self._chosen is not None:
            return self._chosen.feed(source, chunk)
        start, self._fed = self._fed, self._fed + len(chunk)
        facts: list[Fact] = []
        for line in self._framer.feed(chunk):
            facts += self._undecided(line, source)
            chosen = self._decided()
            if chosen is not None:
                rest = chunk[line.offset + len(line.data) + 1 - start :]
                return [*facts, *chosen.feed(source, rest)]
        return facts

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:
        """As the chosen oracle says; nothing before there is one."""
        return self._chosen.feed_snapshot(source, data) if self._chosen is not None else []

    def eof(self, source: str) -> list[Fact]:
        """As :meth:`LineOracle.eof`."""
        if self._chosen is not None:
            return self._chosen.eof(source)
        tail = self._framer.flush()
        facts = self._undecided(tail, source, end=b"") if tail is not None else []
        chosen = self._decided()
        return [*facts, *(chosen.eof(source) if chosen is not None else self._given_up(source))]

    def _decided(self) -> Oracle | None:
        return self._chosen

    def _undecided(self, line: Line, source: str, end: bytes = b"\n") -> list[Fact]:
        """Facts of a line, the kind of the file not being known before it."""
        verdict: Oracle | Literal["later"] | None = None
        first = self._held[0].offset if self._held else line.offset
        if not line.oversized and line.data.strip():
            try:
                verdict = self._choose(line.data, first)
            except UNREADABLE:
                verdict = None
        if verdict is None or verdict == "later":
            self._held.append(line)
            self._held_bytes += len(line.data) + 1
            keep = len(self._held) > 1 or verdict == "later"
            whole = not line.oversized and self._held_bytes <= UNDECIDED_BYTES_MAX
            return [] if keep and whole else self._given_up(source)
        self._chosen = verdict
        held, self._held = self._held, []
        return verdict.feed(source, b"".join(each.data + b"\n" for each in held) + line.data + end)

    def _given_up(self, source: str) -> list[Fact]:
        held, self._held, self._held_bytes = self._held, [], 0
        return [fact for line in held for fact in _of_no_kind(line, source)]


def _of_no_kind(line: Line, source: str) -> list[Fact]:
    if not line.oversized and not line.data.strip():
        return []
    what = "oversized_line" if line.oversized else "of_no_kind"
    return [UnknownRecord(what=what, evidence=Evidence(source=source, offset=line.offset))]


def when(stamp: Any) -> float | None:
    """A native stamp (ISO text, or a number of milliseconds) as Unix seconds; None where there is none."""
    try:
        if isinstance(stamp, str) and stamp:
            return datetime.fromisoformat(stamp).timestamp()
        if isinstance(stamp, (int, float)) and not isinstance(stamp, bool) and 0 < stamp < 1e14:
            return stamp / 1000
    except (ValueError, OverflowError):
        pass
    return None


def cut(text: str) -> str:
    """A tool's result, bounded."""
    return text if len(text) <= TOOL_RESULT_CHARS_MAX else text[:TOOL_RESULT_CHARS_MAX] + CUT_MARK


def as_json(value: Any) -> str:
    """Any decoded value as JSON text; a string as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")


def error_kind(status: int | None, text: str) -> ErrorKind:
    """The kind of an API error from its HTTP status first, its text last."""
    lowered = text.lower()
    if any(word in lowered for word in ("context_length", "context window", "context length", "prompt is too long")):
        return "context_overflow"
    match status:
        case 429:
            return "rate_limited"
        case 401 | 403:
            return "authentication"
        case 529 | 503:
            return "overloaded"
        case int() if 400 <= status < 500:
            return "invalid_request"
        case _:
            return "overloaded" if "overloaded" in lowered else "provider_error"


def turn_error(message: str, *, kind: ErrorKind | None = None, word: str = "", status: int | None = None) -> TurnError:
    """Why a turn failed; ``kind`` from status and text where the record names none."""
    return TurnError(
        kind=kind or error_kind(status, message),
        message=message[:ERROR_CHARS_MAX],
        native_kind=word[:200],
        status_code=status,
    )


SUPERSEDED = TurnError(kind="superseded", message="a later turn began without this one's end")
