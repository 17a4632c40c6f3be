"""Bytes to complete lines: offsets, partial tail, bounded memory.

Any chunking of the same bytes gives the same lines. A torn last line stays inside and is no error. A line longer
than the bound is dropped as it streams by and reported once as oversized, so a hostile file costs bounded memory.
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections.abc import Callable

import msgspec

TAIL_BYTES = 1024
"""Bytes before an offset by which a file is known again: enough for a whole record with its id and its time."""
HEAD_BYTES = 256
"""Bytes at the start of a file by which another conversation, or a new file, is told from a shortened one."""
OPENING_BYTES = 4096
"""Bytes of what opened the turn that is being read, by which it is found again in another file."""
OVERLAP_BYTES_MIN = 32
"""So many bytes must agree before a shortened file is believed to go on where it was cut."""
LINES_MARKED_MAX = 16 * 1024
"""Of the lines read last: a cut that lies before them is not found."""
BEHIND_CUT_BYTES = 256 * 1024
"""Of what stands behind a cut: looked at to tell a cut from a record that was written anew."""
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

    def matches(self, found: bytes) -> bool:
        """Whether these are the bytes."""
        if self._bytes is None:
            same = _digest(found) == self._digest
            if same:
                self._bytes = found
            return same
        return found == self._bytes


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file was cut: its bytes up to ``offset`` stand, in ``lines`` whole lines of those that are marked and a
    piece of one more, whose checksum is ``sum`` where it is known.
    """

    offset: int
    lines: int
    sum: int | None


class LineMarks:
    """What was read, line by line, in a few bytes each: by which the place is found where a file was cut short.

    Args:
        offset: byte position of the first byte that it will be told of.
    """

    def __init__(self, offset: int = 0) -> None:
        self.length = offset
        self._base = offset
        self._ends = array("Q")
        self._sums = array("I")
        self._sum = 0
        """Of the unfinished line."""
        self._fallen: tuple[int, int] | None = None
        """Of the first line that a cut took: sum and length."""

    @property
    def held_bytes(self) -> int:
        """What it holds in memory."""
        return len(self._ends) * self._ends.itemsize + len(self._sums) * self._sums.itemsize

    @property
    def torn(self) -> bool:
        """Whether the last line is unfinished."""
        return self.length > self._end(len(self._ends))

    def grew(self, data: bytes) -> None:
        """These bytes were read behind the others."""
        lines = data.split(b"\n")
        at = self.length
        self.length += len(data)
        rest = lines.pop()
        if not lines:
            self._sum = zlib.crc32(rest, self._sum)
            return
        if len(lines) > LINES_MARKED_MAX:
            lines = lines[-LINES_MARKED_MAX:]
            at = self.length - len(rest) - sum(map(len, lines)) - len(lines)
            self._restart(at)
        first = len(self._sums)
        self._sums.extend(map(zlib.crc32, lines))
        if self._sum:
            self._sums[first] = zlib.crc32(lines[0], self._sum)
        ends: list[int] = []
        for line in lines:
            at += len(line) + 1
            ends.append(at)
        self._ends.extend(ends)
        self._sum = zlib.crc32(rest)
        if len(self._ends) > 2 * LINES_MARKED_MAX:
            spare = len(self._ends) - LINES_MARKED_MAX
            self._base = self._ends[spare - 1]
            del self._ends[:spare], self._sums[:spare]

    def cut(self, read: Callable[[int, int], bytes], *, same_start: bool = False) -> int | None:
        """:meth:`find_cut`; it counts as read up to there then. None, and nothing is changed, where there is none."""
        found = self.find_cut(read, same_start=same_start)
        if found is None:
            return None
        self.cut_to(found)
        return found.offset

    def find_cut(self, read: Callable[[int, int], bytes], *, same_start: bool = False) -> Cut | None:
        """The place up to which the file still holds what was read, and behind which all is new. At the start of a line
        where the place within that line cannot be told any more.

        None where that cannot be said: nothing of it stands, it is too far back, or earlier lines stand behind it (the
        file was written anew).

        Args:
            read: up to so many bytes of the file from an offset on.
            same_start: the file still begins as it did: so it was cut within its first line, or written anew.
        """
        stand, fall = 0, len(self._ends)
        while stand < fall:
            middle = (stand + fall) // 2
            if self._stands(middle, read):
                stand = middle + 1
            else:
                fall = middle
        if not stand and (self._base or not same_start):
            return None
        border = self._end(stand)
        behind = read(border, BEHIND_CUT_BYTES)
        first, newline, others = behind.partition(b"\n")
        if newline:
            first = b""
            known = set(zip(self._sums, self._lengths(), strict=True))
            if any((zlib.crc32(line), len(line)) in known for line in others.split(b"\n")[:-1]):
                return None
        elif len(behind) == BEHIND_CUT_BYTES:
            return None
        return Cut(offset=border + len(first), lines=stand, sum=zlib.crc32(first))

    def find_cut_at(self, offset: int, read: Callable[[int, int], bytes]) -> Cut:
        """It was cut there."""
        stand = next((at for at in range(len(self._ends), 0, -1) if self._ends[at - 1] <= offset), 0)
        border = self._end(stand)
        far = offset < border or offset - border > BEHIND_CUT_BYTES
        return Cut(offset=offset, lines=stand, sum=None if far else zlib.crc32(read(border, offset - border)))

    def cut_to(self, cut: Cut) -> None:
        """Only that much counts as read."""
        self._fall(cut.lines)
        if cut.sum is None:
            self._restart(cut.offset)
        else:
            self._sum = cut.sum
        self.length = cut.offset

    def written_anew(self, data: bytes) -> bool:
        """Whether these bytes, the next ones behind a cut, put back the line that stood there. To be asked before
        :meth:`grew`: then it was no cut, but is a file that is being written from its start.
        """
        end = data.find(b"\n")
        if self._fallen is None or end < 0:
            return False
        fallen, self._fallen = self._fallen, None
        return fallen == (zlib.crc32(data[:end], self._sum), self.length - self._end(len(self._ends)) + end)

    def _fall(self, stand: int) -> None:
        """Only so many lines are left."""
        gone = stand < len(self._ends)
        self._fallen = (self._sums[stand], self._ends[stand] - self._end(stand) - 1) if gone else None
        del self._ends[stand:], self._sums[stand:]

    def _restart(self, offset: int) -> None:
        del self._ends[:], self._sums[:]
        self._base, self._sum = offset, 0

    def _end(self, lines: int) -> int:
        return self._ends[lines - 1] if lines else self._base

    def _lengths(self) -> list[int]:
        return [end - self._end(number) - 1 for number, end in enumerate(self._ends)]

    def _stands(self, number: int, read: Callable[[int, int], bytes]) -> bool:
        start, end = self._end(number), self._ends[number]
        found = read(start, end - start)
        return len(found) == end - start and found[-1:] == b"\n" and zlib.crc32(found[:-1]) == self._sums[number]


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
        empty: whether empty lines come out too: a megabyte may hold a million of them.
    """

    def __init__(self, offset: int = 0, line_bytes_max: int = LINE_BYTES_MAX, *, empty: bool = True) -> None:
        self._start = offset
        self._parts: list[bytes] = []
        self._held = 0
        self._dropping = False
        self._max = line_bytes_max
        self._shortest = 0 if empty else 1

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
        *pieces, rest = chunk.split(b"\n")
        lines: list[Line] = []
        if pieces and self._held:
            first = pieces.pop(0)
            length = self._held + len(first)
            if self._dropping or length > self._max:
                lines.append(Line(self._start, b"", oversized=True))
            else:
                self._parts.append(first)
                lines.append(Line(self._start, b"".join(self._parts)))
            self._parts.clear()
            self._held = 0
            self._dropping = False
            self._start += length + 1
        start, longest, shortest = self._start, self._max, self._shortest
        for piece in pieces:
            length = len(piece)
            if length > longest:
                lines.append(Line(start, b"", oversized=True))
            elif length >= shortest:
                lines.append(Line(start, piece))
            start += length + 1
        self._start = start
        if rest:
            self._held += len(rest)
            if self._dropping or self._held > longest:
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
