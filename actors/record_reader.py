"""RecordReader: reads one record a piece at a time, through the adapter's oracle, whatever becomes of its file.

It decides where reading goes on, and tells facts in the order of the record. Who owns it says when to look, and what it
means that nothing could be seen. Not thread-safe; reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, assert_never

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import Fact, counted
from lastword.actors.core.ports import Cursor
from lastword.actors.core.world import Bytes, Files, Missing, Rewritten, Unreadable
from lastword.actors.record_place import Behind, Changed, CouldNotLookError, FromStart, Place

PIECE_BYTES_MAX = 64 * 1024
"""Bytes read, decoded and told in one go; more of the file waits for the next look."""
SLICED_LINES = 4 * 1024
"""A piece of more lines is told to the oracle in slices."""
SLICE_BYTES = 32 * 1024

MakeOracle: TypeAlias = Callable[[int], Oracle]
"""A reader of bytes that starts at that offset."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one look gave.

    Attributes:
        facts: what the bytes tell.
        cursor: where reading could resume behind them without any state, or None.
        read: bytes.
        more: more of the record is there already.
        again: look once more; where not, all that is there was read.
    """

    facts: tuple[Fact, ...] = ()
    cursor: Cursor | None = None
    read: int = 0
    more: bool = False
    again: bool = False

    @property
    def tells(self) -> bool:
        """Whether it says anything."""
        return bool(self.facts) or self.cursor is not None


class Witness(Protocol):
    """Who is told what happened while a piece was read."""

    def sees(self, path: str) -> None:
        """The record at that path could be looked at, or is seen not to be there."""

    def noted(self, what: str, about: object) -> None:
        """Something to be counted."""

    def blind_too_long(self, since_s: float | None) -> tuple[float, bool]:
        """Of the rest of a record that was moved, which cannot be read since then (None: just now): since when that is,
        and whether that is long enough to give it up.
        """
        ...


class RecordReader:
    """Of one record.

    Args:
        files: reads files.
        make: makes the oracle.
        cursor: where to begin; None: at the start.
        earlier: append-only sources that are read before each piece.

    Attributes:
        oracle: what reads the bytes now.
        partly_unread: of the turn that is open in the record a part could not be read, and was passed over.
    """

    __slots__ = (
        "_earlier_to",
        "_files",
        "_make",
        "_other",
        "_place",
        "_rest_blind_since",
        "_rest_given_up",
        "oracle",
        "partly_unread",
    )

    def __init__(
        self, files: Files, make: MakeOracle, cursor: Cursor | None = None, earlier: Sequence[SourceSpec] = ()
    ) -> None:
        self._files = files
        self._place = Place(cursor)
        self._other: Changed | None = None
        """Another file that is being looked into."""
        self._rest_blind_since: float | None = None
        """Since when (monotonic) the rest of a record that was moved cannot be read."""
        self._rest_given_up = False
        self._earlier_to = dict.fromkeys((source.path for source in earlier), 0)
        """How far each earlier source was read."""
        self.partly_unread = False
        self.anew(make)

    @property
    def offset(self) -> int:
        """Bytes of the record that were read."""
        return self._place.offset

    def anew(self, make: MakeOracle) -> None:
        """Its CLI was started anew: go on where reading was, with a new oracle; what was open there is over."""
        self._make = make
        self.oracle = make(self._place.offset)

    def piece(self, path: str, witness: Witness) -> Piece:
        """Read one piece of the record at that path.

        Raises:
            CouldNotLookError: nothing is changed.
        """
        place = self._place
        # read again each time: a file written anew in place has its inode, and may have grown
        known = place.tail.length
        read = self._files.read_from(path, place.offset - known, PIECE_BYTES_MAX + known, place.inode, place.device)
        match read:
            case Bytes() if not place.tail.matches(read.data[:known]):
                changed = Rewritten(inode=read.inode, device=read.device, reason="changed")
                return self._start_over(path, changed, witness) or Piece()
            case Bytes():
                witness.sees(path)
                place.inode, place.device = read.inode, read.device
                data = read.data[known:]
                if (before := self._earlier()) is not None:  # after the piece was read: what it speaks of is there
                    return before
                if place.marks.written_anew(data):
                    place.from_start()
                    self.oracle = self._make(0)
                    return Piece(again=True)
                again = place.offset + len(data) < read.size
                return self._feed(path, data, more=again, again=again) if data else Piece(again=again)
            case Rewritten():
                if read.moved_to and (rest := self._rest(path, read.moved_to, witness)) is not None:
                    return rest
                if (over := self._start_over(path, read, witness)) is not None:
                    return over
                witness.sees(path)
                return Piece()
            case Missing():
                witness.sees(path)
                return Piece()
            case Unreadable():
                raise CouldNotLookError(path, read.reason)
            case _:
                assert_never(read)

    def _earlier(self) -> Piece | None:
        """A piece of what precedes the record, if there is any.

        Raises:
            CouldNotLookError: what it holds is not known.
        """
        for path, offset in self._earlier_to.items():
            read = self._files.read_from(path, offset, PIECE_BYTES_MAX, 0, 0)
            if isinstance(read, Unreadable):
                raise CouldNotLookError(path, read.reason)
            if isinstance(read, Bytes) and read.data:
                self._earlier_to[path] = read.offset + len(read.data)
                return Piece(facts=tuple(self.oracle.feed(path, read.data)), read=len(read.data), again=True)
        return None

    def _feed(self, path: str, data: bytes, *, more: bool, again: bool) -> Piece:
        oracle, place = self.oracle, self._place
        place.grew(data)
        facts = _facts_of(oracle, path, data)
        place.opened(data, quiescent=oracle.quiescent)
        cursor = None
        if oracle.quiescent:
            self.partly_unread = False
            if not self._earlier_to:
                cursor = place.cursor(path)
        return Piece(facts=facts, cursor=cursor, read=len(data), more=more, again=again)

    def _rest(self, path: str, moved_to: str, witness: Witness) -> Piece | None:
        """The record was moved aside and another one begun: what the old one got before that comes first. A piece at a
        time; None: there is no more.

        Raises:
            CouldNotLookError: nothing is known of its rest yet.
        """
        place = self._place
        if self._rest_given_up:
            return None
        match self._files.read_from(moved_to, place.offset, PIECE_BYTES_MAX, place.inode, place.device):
            case Bytes(data=data):
                self._rest_blind_since = None
                return self._feed(path, data, more=True, again=True) if data else None
            case Rewritten() as found if place.holds(found.inode, found.device):
                return None  # cut short: nothing stands behind
            case Missing() | Rewritten():
                reason = "it was moved again"
            case Unreadable(reason=reason):
                pass
        self._rest_blind_since, too_long = witness.blind_too_long(self._rest_blind_since)
        if not too_long:
            raise CouldNotLookError(moved_to, reason)
        self._rest_given_up = True  # what follows is not held up for ever; but no look proves anything about that turn
        self.partly_unread = True
        witness.noted("record_rest_unread", Unreadable(reason=reason))
        return None

    def _start_over(self, path: str, found: Rewritten, witness: Witness) -> Piece | None:
        """Another file, or other contents: go on in it; None while it is being written and does not tell yet.

        Raises:
            CouldNotLookError: nothing is changed.
        """
        if self._other is None or not self._other.still(path, found):
            self._other = Changed(self._files, path, found)
        go_on = self._place.go_on(self._other)
        facts: tuple[Fact, ...] = ()
        match go_on:
            case "being written":
                self._other = None
                return None
            case "not known yet":
                return Piece(again=True)
            case Behind():
                if go_on.torn:
                    facts = tuple(self.oracle.feed(path, b"\n"))  # the rest of that line will never come
            case FromStart():
                if not go_on.keep_oracle:
                    self.oracle = self._make(0)
            case _:
                assert_never(go_on)
        self._other = None
        self._rest_blind_since, self._rest_given_up = None, False
        witness.noted("transcript_rewritten", found)
        return Piece(facts=facts, again=True)


def _facts_of(oracle: Oracle, path: str, data: bytes) -> tuple[Fact, ...]:
    """What the next piece tells. One of very many lines goes through in slices: of a million records that are unknown
    only their number is held at once.
    """
    if data.count(b"\n") <= SLICED_LINES:
        return counted(oracle.feed(path, data))
    facts: list[Fact] = []
    for at in range(0, len(data), SLICE_BYTES):
        facts += counted(oracle.feed(path, data[at : at + SLICE_BYTES]))
    return counted(facts)
