"""How far a record was read, by what it is known again, and where reading goes on once it was changed.

A look that cannot be made decides nothing: :class:`CouldNotLookError` goes through all of it, and nothing is changed.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.ports import Cursor
from lastword.actors.core.transcript import HEAD_BYTES, OPENING_BYTES, TAIL_BYTES, LineMarks, Tail
from lastword.actors.core.world import Bytes, Files, Missing, Rewritten, Unreadable

READ_BYTES_MAX = 1024 * 1024
"""Bytes read and decoded in one go; more of the file waits for the actor's next message."""


class CouldNotLookError(Exception):
    """Nobody can say what stands there now. Look again."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


class Changed:
    """The file that stands at a record's path now, instead of the one that was read, or changed in place.

    Args:
        files: reads files.
        path: of the record.
        found: what the reader was told of it; looks at any other file are refused.
    """

    def __init__(self, files: Files, path: str, found: Rewritten) -> None:
        self._files = files
        self.path = path
        self.found = found
        self._sought_to = 0
        self._before = b""

    def still(self, path: str, found: Rewritten) -> bool:
        """Whether this is about the same file as that."""
        return (self.path, self.found.inode, self.found.device) == (path, found.inode, found.device)

    def piece(self, offset: int, length: int) -> bytes:
        """Up to so many bytes from there on; none behind its end.

        Raises:
            CouldNotLookError: it cannot be read, is gone, or is yet another file.
        """
        return self._read(max(0, offset), min(length, READ_BYTES_MAX)) or b""

    def holds(self, opening: bytes) -> bool | None:
        """Whether these bytes stand anywhere in it. Each call looks at one piece; None: ask again.

        Raises:
            CouldNotLookError: as :meth:`piece`.
        """
        data = self._read(self._sought_to, READ_BYTES_MAX)
        if data is None:  # it became shorter meanwhile
            self._sought_to, self._before = 0, b""
            return None
        if not data:
            return False
        seen = self._before + data
        if opening in seen:
            return True
        self._sought_to += len(data)
        self._before = seen[-OPENING_BYTES:]
        return None

    def _read(self, offset: int, length: int) -> bytes | None:
        found = self.found
        match self._files.read_from(self.path, offset, length, found.inode, found.device):
            case Bytes(data=data):
                return data
            case Rewritten() as again if (again.inode, again.device) == (found.inode, found.device):
                return None  # it is shorter than that
            case Rewritten():
                raise CouldNotLookError(self.path, "it was replaced meanwhile")
            case Missing():
                raise CouldNotLookError(self.path, "it is not there")
            case Unreadable(reason=reason):
                raise CouldNotLookError(self.path, reason)


class Behind(msgspec.Struct, frozen=True):
    """Only what stands behind the cut is new: go on there. ``torn``: the line read last was cut off unfinished."""

    torn: bool


class FromStart(msgspec.Struct, frozen=True):
    """Read all of it. ``keep_oracle``: the turn that is open goes on, with what was read of it."""

    keep_oracle: bool


GoOn: TypeAlias = Behind | FromStart | Literal["being written", "not known yet"]


class Place:
    """What was read of one record. Not thread-safe; owned by one reader.

    Attributes:
        offset: bytes that were read.
        inode: of the file that they came from, as ``device``; 0 where it was not seen before.
        tail: the last bytes of what was read.
        marks: its lines.
    """

    def __init__(self, cursor: Cursor | None = None) -> None:
        self.offset = cursor.offset if cursor is not None else 0
        self.inode = cursor.inode if cursor is not None else 0
        self.device = cursor.device if cursor is not None else 0
        self.tail = Tail(cursor.tail if cursor is not None else "")
        self.marks = LineMarks(self.offset)
        self._head = b""
        self._opening = b""
        """What was read first of a turn that is still open in the record; empty between turns."""
        self._opening_grows = False

    def cursor(self, path: str) -> Cursor:
        """Where reading may be resumed."""
        return Cursor(path=path, offset=self.offset, inode=self.inode, device=self.device, tail=self.tail.mark)

    def holds(self, inode: int, device: int) -> bool:
        """Whether it is that file that was read."""
        return (self.inode, self.device) == (inode, device)

    def grew(self, data: bytes) -> None:
        """These bytes were read behind the others."""
        if len(self._head) < HEAD_BYTES and self.offset == len(self._head):
            self._head = (self._head + data)[:HEAD_BYTES]
        self.offset += len(data)
        self.tail.grew(data)
        self.marks.grew(data)

    def opened(self, data: bytes, *, quiescent: bool) -> None:
        """Behind those bytes a turn is open (its beginning is kept, a whole line or more), or none is."""
        if quiescent:
            self._opening, self._opening_grows = b"", False
            return
        if not self._opening or self._opening_grows:
            self._opening = (self._opening + data)[:OPENING_BYTES]
            self._opening_grows = b"\n" not in self._opening and len(self._opening) < OPENING_BYTES

    def from_start(self, *, keep_opening: bool = False) -> None:
        """All of the file is read (again)."""
        self.offset, self.tail, self.marks, self._head = 0, Tail(), LineMarks(), b""
        self._opening_grows = False
        if not keep_opening:
            self._opening = b""

    def go_on(self, changed: Changed) -> GoOn:
        """How reading goes on in another file, or other contents; the place is there then.

        All of it is read, and what was read before is known and says nothing twice; but a turn that is open, and whose
        beginning is not in it any more, goes on with what was read of it. Of a file that was cut short only what stands
        behind the cut is read: it is of the turn that is open, or of later ones.

        "being written", and nothing is changed, while its first bytes do not tell which of the two it is. "not known
        yet", and nothing is changed, while it is being searched: ask again.

        Raises:
            CouldNotLookError: nothing is changed.
        """
        found = changed.found
        same_file = self.holds(found.inode, found.device)
        behind = self._behind_cut(changed) if same_file else None
        keep_oracle = False
        if behind is None and self._opening:
            known = self._head
            first = changed.piece(0, TAIL_BYTES)[: len(known) or 1]
            if len(first) < (len(known) or 1) and known.startswith(first):
                return "being written"
            holds = changed.holds(self._opening)  # is it the earlier part of the same, or a new file?
            if holds is None:
                return "not known yet"
            if not holds:
                keep_oracle = first != known if known else not same_file
        self.inode, self.device = found.inode, found.device
        if behind is not None:
            return behind
        self.from_start(keep_opening=keep_oracle)
        return FromStart(keep_oracle)

    def _behind_cut(self, changed: Changed) -> Behind | None:
        """Go to where the file was cut short, if it was no more than that: all before stands, and all behind is new."""
        torn = self.marks.torn
        cut = None
        if self._opening:
            known = self.offset - self.tail.length
            common = self.tail.cut_at(changed.piece(known, TAIL_BYTES))
            if common is not None:
                cut = self.marks.find_cut_at(known + common, changed.piece)
        if cut is None:
            same_start = len(self._head) >= HEAD_BYTES and changed.piece(0, TAIL_BYTES)[:HEAD_BYTES] == self._head
            cut = self.marks.find_cut(changed.piece, same_start=same_start)
        if cut is None:
            return None
        start = max(0, cut.offset - TAIL_BYTES)
        before = changed.piece(start, cut.offset - start)
        self.marks.cut_to(cut)
        self.offset, self.tail, self._head = cut.offset, Tail(), self._head[: cut.offset]
        self.tail.grew(before)
        return Behind(torn)
