"""Lines of Claude Code's transcript: bytes to records, also where one is glued to the rest of another. Pure.

Source: Claude Code 2.1.332, tests/fixtures/claude_code/2.1.332.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastword.actors.core.facts import UnknownRecord
from lastword.actors.core.outcome import Evidence
from lastword.actors.core.transcript import Line as Framed
from lastword.actors.core.transcript import LineFramer
from lastword.transports.providers import decoding
from lastword.transports.providers.claude_code_records import Line, when
from lastword.transports.providers.line_oracle import UNREADABLE

GLUED_BYTES_MAX = 1024 * 1024
GLUED_TRIES = 16
"""Of one unreadable line: how long it may be, and at how many places a record is looked for that was glued to it."""

_OBJECT = ord("{")
_LINE = decoding.Decoder(Line)
_STARTS = (b'{"parentUuid":', b'{"type":')
"""How a record begins."""


class ClaudeLines:
    """Frames and decodes; raises nothing for any input. What is no record is told as such.

    Args:
        offset: where reading starts, bytes.
        native_session: the conversation; a record that is glued to another counts only where it is of this one.
    """

    def __init__(self, offset: int, native_session: str) -> None:
        self.native_session = native_session
        self._framer = LineFramer(offset, empty=False)

    @property
    def half_held(self) -> bool:
        """Whether a line is held that has no end yet."""
        return bool(self._framer.tail_bytes)

    def feed(self, source: str, chunk: bytes) -> Iterator[tuple[Line, Evidence] | UnknownRecord]:
        """The records that end in the chunk, in file order, each with its offset."""
        for framed in self._framer.feed(chunk):
            yield from self._read(framed, source)

    def flush(self, source: str) -> Iterator[tuple[Line, Evidence] | UnknownRecord]:
        """The writer is gone: a whole last record without its newline counts."""
        tail = self._framer.flush()
        if tail is not None:
            yield from self._read(tail, source)

    def _read(self, framed: Framed, source: str) -> Iterator[tuple[Line, Evidence] | UnknownRecord]:
        if framed.oversized:
            yield UnknownRecord(what="oversized_line", evidence=Evidence(source=source, offset=framed.offset))
            return
        text = framed.data.strip()
        if not text:
            return
        line = _decoded(framed.data) if text[0] == _OBJECT else None
        if line is not None:
            yield line, evidence_of(source, framed.offset, line)
            return
        yield UnknownRecord(what="unreadable", evidence=Evidence(source=source, offset=framed.offset))
        yield from self._glued(framed, source)

    def _glued(self, framed: Framed, source: str) -> Iterator[tuple[Line, Evidence]]:
        """A record may stand behind the rest of another: the CLI ended, or its file was cut, within a line, and what it
        wrote next is glued to that. A string holds no bare quote, so no text can pass for one.
        """
        data, tries = framed.data, 0
        if len(data) > GLUED_BYTES_MAX:
            return
        for start in _STARTS:
            at = data.find(start, 1)
            while at >= 0 and tries < GLUED_TRIES:
                tries += 1
                line = _decoded(data[at:])
                if line is None:
                    at = data.find(start, at + 1)
                    continue
                if line.session_id is not None and line.session_id == self.native_session:
                    yield line, evidence_of(source, framed.offset + at, line)
                return


def evidence_of(source: str, offset: int, line: Line) -> Evidence:
    """Where that record stands, and what it says of itself."""
    at = when(line.timestamp) if line.timestamp else None
    return Evidence(source=source, offset=offset, native_id=line.uuid or "", native_at=at)


def _decoded(data: bytes) -> Line | None:
    try:
        return _LINE.decode(data)
    except UNREADABLE:
        return None
