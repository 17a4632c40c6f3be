"""Bytes to complete lines: offsets, partial tail, bounded memory.

Any chunking of the same bytes gives the same lines. A torn last line stays inside and is no error. A line longer
than the bound is dropped as it streams by and reported once as oversized, so a hostile file costs bounded memory.
"""

from __future__ import annotations

import hashlib

import msgspec

TAIL_BYTES = 1024
"""Bytes before an offset by which a file is known again: enough for a whole record with its id and its time."""
HEAD_BYTES = 256
"""Bytes at the start of a file by which another conversation, or a new file, is told from a shortened one."""
OPENING_BYTES = 4096
"""Bytes of what opened the turn that is being read, by which it is found again in another file."""
OVERLAP_BYTES_MIN = 32
"""So many bytes must agree before a shortened file is believed to go on where it was cut."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""A prompt of the largest paste fits, its escapes included; what is longer is dropped as it streams by."""


class Tail:
    """The last bytes before an offset: whether a file still holds them there. Kept as a digest.

    Args:
        mark: as :attr:`mark` gave it in an earlier life; what is no mark matches everything.
    """

    def __init__(self, mark: str = "") -> None:
        length, _, digest = mark.partition(":")
        self.length = int(length) if length.isdigit() and int(length) <= TAIL_BYTES and digest else 0
        self._digest = digest if self.length else ""
        self._bytes: bytes | None = None if self.length else b""

    @property
    def mark(self) -> str:
        """For the journal: no byte of it can be read out of this."""
        if self._bytes is not None:
            self._digest = _digest(self._bytes)
        return f"{self.length}:{self._digest}" if self.length else ""

    def grew(self, data: bytes) -> None:
        """These bytes were read behind it."""
        known = self._bytes if self._bytes is not None else b""
        self._bytes = (known + data)[-TAIL_BYTES:] if len(data) < TAIL_BYTES else data[-TAIL_BYTES:]
        self.length = len(self._bytes)

    def cut_at(self, found: bytes) -> int | None:
        """Where a file that holds ``found`` from there on was cut within these bytes: how many stand; else None."""
        if self._bytes is None:
            return None
        common = next(
            (at for at, (one, other) in enumerate(zip(self._bytes, found, strict=False)) if one != other),
            min(len(self._bytes), len(found)),
        )
        return common if common >= OVERLAP_BYTES_MIN else None

    def cut(self, length: int) -> None:
        """Only so many of them are left."""
        assert self._bytes is not None
        self._bytes = self._bytes[:length]
        self.length = len(self._bytes)

    def matches(self, found: bytes) -> bool:
        """Whether these are the bytes."""
        if self._bytes is None:
            same = _digest(found) == self._digest
            if same:
                self._bytes = found
            return same
        return found == self._bytes


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


class Line(msgspec.Struct, frozen=True):
    """One complete line without its newline; ``offset`` is the byte position of its start in the file."""

    offset: int
    data: bytes
    oversized: bool = False


class LineFramer:
    """Cuts a growing byte stream into lines. Not thread-safe; owned by one oracle.

    Args:
        offset: byte position in the file of the first byte that will be fed.
        line_bytes_max: a longer line is not kept; it comes out once as ``oversized`` with empty data.
    """

    def __init__(self, offset: int = 0, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._start = offset
        self._parts: list[bytes] = []
        self._held = 0
        self._dropping = False
        self._max = line_bytes_max

    @property
    def tail_bytes(self) -> int:
        """How many bytes of an unfinished line are held or being dropped."""
        return self._held

    @property
    def offset(self) -> int:
        """Byte position of the start of the unfinished line: all before it has come out."""
        return self._start

    def feed(self, chunk: bytes) -> list[Line]:
        """Take the bytes that follow the previous chunk; give the lines that they complete, in order."""
        lines: list[Line] = []
        position = 0
        while (end := chunk.find(b"\n", position)) >= 0:
            piece = chunk[position:end]
            length = self._held + len(piece)
            if self._dropping or length > self._max:
                lines.append(Line(self._start, b"", oversized=True))
            else:
                self._parts.append(piece)
                lines.append(Line(self._start, b"".join(self._parts)))
            self._parts.clear()
            self._held = 0
            self._dropping = False
            self._start += length + 1
            position = end + 1
        rest = chunk[position:] if position else chunk
        if rest:
            self._held += len(rest)
            if self._dropping or self._held > self._max:
                self._dropping = True
                self._parts.clear()
            else:
                self._parts.append(rest)
        return lines

    def flush(self) -> Line | None:
        """The unfinished line, where nothing will follow it any more; None where there is none."""
        if not self._held or self._dropping:
            return None
        line = Line(self._start, b"".join(self._parts))
        self._parts.clear()
        self._start += self._held
        self._held = 0
        return line
