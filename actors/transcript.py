"""TranscriptWatcherActor: wake-ups in, facts out.

Hints only set it reading; what it reads goes through the adapter's oracle and to the session, in the order of the
record. Polling is the truth (the slow sweep of the edge), wake-ups only hurry it: the backlog is bounded by the file,
never by a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar, TypeAlias, assert_never

import msgspec

from lastword.actors.core import turn as core_turn
from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import EndpointGoneHint, Fact, FileChangedHint, RecordExhausted, SweepHint, counted
from lastword.actors.core.ids import TurnId
from lastword.actors.core.ports import Cursor
from lastword.actors.core.transcript import HEAD_BYTES, OPENING_BYTES, TAIL_BYTES, LineMarks, Tail
from lastword.actors.core.world import Bytes, Files, Missing, Rewritten, Unreadable, Wakes
from lastword.actors.system.actor import Actor
from lastword.actors.system.flow import Flow, weight

PIECE_BYTES_MAX = 64 * 1024
"""Bytes read, decoded and told in one go; more of the file waits for the actor's next message."""
READ_BYTES_MAX = 1024 * 1024
"""Bytes read in one go where nothing is told of them but that they are there."""
SLICED_LINES = 4 * 1024
"""A piece of more lines is told to the oracle in slices."""
SLICE_BYTES = 32 * 1024
STATUS_BYTES_MAX = 64 * 1024
UNREADABLE_RETRY_S = 0.5
FIND_S = 0.02
FIND_FACTOR = 1.25
FIND_MAX_S = 2.0
"""A record whose name the CLI chooses is looked for after so long, each time a quarter longer, up to this; a hint
begins anew."""
FINAL_READS_MAX = 120
"""Looks at a record that cannot be read, half a second apart, before its end is reported as unread."""
BLIND_READS_MAX = 4
"""The same where somebody gave the turn up and waits; and before a look that was asked for is answered unread."""
BLIND_TOLD_READS = 2
"""After so many looks in a row that saw nothing it is told that the record cannot be read."""

READ = "read"
"""The reader's share of the session's flow: pieces that were told and not taken in."""

_RECORD_CHANGED = FileChangedHint(path="record")
_STATUS_CHANGED = FileChangedHint(path="status")


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """Read this transcript from here on. ``oracle`` makes a reader that starts at an offset.

    Following another one first reads the one before to its end and reports it superseded. Following the same one
    again (its CLI was started anew) goes on where reading was, with a new oracle: what was open there is over.

    Attributes:
        earlier: append-only sources that are read, and told to the same oracle, before each piece of ``source``:
            what stands in a piece was preceded by what they held when it was read.
        goes_on: another process of the same conversation, with a file of its own: nothing is superseded.
    """

    source: SourceSpec
    oracle: Callable[[int], Oracle]
    cursor: Cursor | None = None
    epoch: int = 1
    earlier: tuple[SourceSpec, ...] = ()
    goes_on: bool = False


class FollowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Read this registry file too, whole, whenever it changes. None: no more."""

    source: SourceSpec | None


class FactsRead(msgspec.Struct, frozen=True, kw_only=True):
    """To the session. ``cursor`` where reading could resume behind these facts without any state; ``read_to``: bytes of
    ``path`` that were read.
    """

    TRACED_BY: ClassVar[str] = "facts"

    epoch: int
    facts: tuple[Fact | core_turn.Superseded, ...]
    cursor: Cursor | None
    path: str = ""
    read_to: int = 0
    more: bool = False
    """More of the record is there already: it is read once these were taken (:class:`FactsTaken`)."""
    weight: int = 1
    """What it counts in the session's flow."""


class FactsTaken(msgspec.Struct, frozen=True):
    """From the session: what was read is dealt with. A long record costs one piece of memory, not its length."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """From the session, for that turn: read to the end now, and say so (:class:`Looked`)."""

    turn_id: TurnId


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """To the session: all that was on record when it asked has been told."""

    turn_id: TurnId


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """To the session, once after each ``Follow``: all that was there has been told. ``read``: and it could be read."""

    epoch: int
    read: bool


class RecordUnread(msgspec.Struct, frozen=True, kw_only=True):
    """To the session: that record cannot be read, and why; "" once it can be again."""

    path: str
    reason: str


class GivenUp(msgspec.Struct, frozen=True):
    """From the session: a turn was given up. With the CLI gone, a record that cannot be read is not waited for long."""


class _BlindDue(msgspec.Struct, frozen=True):
    """Look again at the record that could not be read."""


class _FindDue(msgspec.Struct, frozen=True):
    """Look again for the record whose name is not known."""


WatcherCommand: TypeAlias = (
    Follow
    | FollowStatus
    | FactsTaken
    | Look
    | GivenUp
    | FileChangedHint
    | EndpointGoneHint
    | SweepHint
    | _FindDue
    | _BlindDue
)


def _name(source: SourceSpec) -> str:
    return source.suffix or source.path


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


class TranscriptWatcherActor(Actor):
    """Reads one session's record.

    Args:
        files: reads files.
        wakes: hints about files.
        flow: reads no further while what was read is on its way; None: as far as there is.
    """

    def __init__(self, files: Files, wakes: Wakes, flow: Flow | None = None) -> None:
        super().__init__()
        self._flow = flow
        self._files = files
        self._wakes = wakes
        self._following: Follow | None = None
        self._oracle: Oracle | None = None
        self._offset = 0
        self._tail = Tail()
        self._marks = LineMarks()
        self._torn = False
        """Whether the oracle held an unfinished line when the file was cut."""
        self._head = b""
        self._opening = b""
        """What was read first of a turn that is still open in the record; empty between turns."""
        self._inode = 0
        self._device = 0
        self._earlier_to: dict[str, int] = {}
        """How far each earlier source was read."""
        self._token: object | None = None
        self._status: SourceSpec | None = None
        self._status_token: object | None = None
        self._status_last: bytes | None = None
        self._record_hinted = False
        """A hint about the record waits in the mailbox: a second one would say nothing more."""
        self._status_hinted = False
        self._gone: EndpointGoneHint | None = None
        self._final_reads = 0
        self._final_reads_max = FINAL_READS_MAX
        self._blind_reads = 0
        """Looks in a row that saw nothing."""
        self._waiting = False
        """The session has a piece, and more is there: it says when it wants the next one."""
        self._status_new: bytes | None = None
        """What the registry says, until the record has been read up to then."""
        self._later: deque[Follow | EndpointGoneHint] = deque()
        """What begins when the record followed now has been read to its end."""
        self._looks: list[TurnId] = []
        self._blind = False
        self._find_s = FIND_S
        self._caught_up: bool | None = None
        """What was told since the last ``Follow``."""

    def receive(self, message: WatcherCommand) -> None:
        match message:
            case Follow():
                if self._oracle is None:
                    self._follow(message)
                else:
                    self._later.append(message)
                    self._read()
            case FactsTaken():
                self._waiting = False
                self._read()
            case FollowStatus():
                self._follow_status(message.source)
            case Look():
                self._looks.append(message.turn_id)
                self._read_status()
                self._read()
            case GivenUp():
                self._final_reads_max = BLIND_READS_MAX
            case FileChangedHint():
                self._changed(message)
            case SweepHint() | _BlindDue():
                self._read_status()
                self._read()
            case _FindDue():
                self._find_s = min(self._find_s * FIND_FACTOR, FIND_MAX_S)
                self._read()
            case EndpointGoneHint():
                self._read_status()
                if self._later:
                    self._later.append(message)  # it is about the CLI that writes the one that is followed next
                else:
                    self._gone = message
                    self._final_reads = 0
                self._read()
            case _:
                assert_never(message)

    def stopped(self) -> None:
        for token in (self._token, self._status_token):
            if token is not None:
                self._wakes.unwatch(token)

    def _wake(self) -> None:
        """Called by the edge on its own thread: only tells. A full mailbox is as good as a hint that waits."""
        if not self._record_hinted:
            self._record_hinted = True
            if not self.ref.try_tell(_RECORD_CHANGED):
                self._record_hinted = False

    def _wake_status(self) -> None:
        if not self._status_hinted:
            self._status_hinted = True
            if not self.ref.try_tell(_STATUS_CHANGED):
                self._status_hinted = False

    def _changed(self, hint: FileChangedHint) -> None:
        """Look at what the hint names: a turn's end must not wait for a look at the registry."""
        if hint is _STATUS_CHANGED:
            self._status_hinted = False  # before reading: what comes after it is worth another hint
            self._read_status()
        else:
            self._record_hinted = False
            self._find_s = FIND_S
            self._read()

    def _follow(self, message: Follow) -> None:
        before = self._following
        self._following = message
        if before is None or _name(before.source) != _name(message.source):
            if before is not None and _name(before.source) and not message.goes_on:
                self._tell((core_turn.Superseded(),), None)
            cursor = message.cursor
            if message.earlier or (cursor is not None and cursor.path != message.source.path):
                cursor = None  # of the conversation before: the CLI was moved out of it; or of one of several sources
            self._offset = cursor.offset if cursor is not None else 0
            self._tail = Tail(cursor.tail if cursor is not None else "")
            self._marks = LineMarks(self._offset)
            self._head = self._opening = b""
            self._inode = cursor.inode if cursor is not None else 0
            self._device = cursor.device if cursor is not None else 0
            self._earlier_to = dict.fromkeys((source.path for source in message.earlier), 0)
        self._oracle = message.oracle(self._offset)
        self._gone = None
        self._final_reads_max = FINAL_READS_MAX
        self._caught_up = None
        self._watch(message.source)
        self._read()

    def _watch(self, source: SourceSpec) -> None:
        """Be woken for it; one that is not found yet is looked for in between."""
        if self._token is not None:
            self._wakes.unwatch(self._token)
        self._token = self._wakes.watch(source.path, source.root, self._wake) if source.path else None
        self._find_s = FIND_S
        self.cancel_timer("find")

    def _find(self, following: Follow) -> bool:
        """Whether the record is there, whose name the CLI chose; kept from then on."""
        source = following.source
        if not source.suffix:
            return False
        path = self._files.find(source.root, source.suffix)
        if not path:
            if self._gone is None:
                self.after(self._find_s, _FindDue(), key="find")
            return False
        found = source.found(path)
        self._following = msgspec.structs.replace(following, source=found)
        self._watch(found)
        return True

    def _follow_status(self, source: SourceSpec | None) -> None:
        if self._status_token is not None:
            self._wakes.unwatch(self._status_token)
            self._status_token = None
        self._status = source
        self._status_last = None
        if source is not None:
            self._status_token = self._wakes.watch(source.path, source.root, self._wake_status)
            self._read_status()

    def _read_status(self) -> None:
        if self._status is None or self._oracle is None:
            return
        data = self._files.read_small(self._status.path, STATUS_BYTES_MAX)
        if data is None or data == self._status_last:
            return
        self._status_last = self._status_new = data
        self._read()  # what the transcript says up to now comes before what the registry says now

    def _read(self) -> None:
        if self._oracle is None or self._waiting:
            return
        if self._flow is not None and not self._flow.room(self._wake):
            return  # woken when there is; the record waits in its file
        if not self._read_once():
            self._at_end()
        elif not self._waiting:
            self.ref.try_tell(SweepHint())  # more waits: take turns with the other sessions

    def _at_end(self) -> None:
        """All that was there has been told, or it cannot be read now."""
        data, self._status_new = self._status_new, None
        if data is not None and self._status is not None and self._oracle is not None:
            facts = self._oracle.feed_snapshot(self._status.path, data)
            if facts:
                self._tell(tuple(facts), None)
        if self._looks and (not self._blind or self._blind_reads >= BLIND_READS_MAX):
            parent, looks, self._looks = self.parent, self._looks, []
            assert parent is not None
            for turn_id in looks:
                parent.tell(Looked(turn_id=turn_id))
        if self._later:
            match self._later.popleft():
                case Follow() as follow:
                    self._follow(follow)
                case EndpointGoneHint() as gone:
                    self._gone = gone
                    self._final_reads = 0
                    self._read()
        elif self._caught_up is None or (not self._blind and not self._caught_up):
            parent, following = self.parent, self._following
            assert parent is not None
            assert following is not None
            self._caught_up = not self._blind
            parent.tell(CaughtUp(epoch=following.epoch, read=not self._blind))

    def _read_once(self) -> bool:
        """Read one piece; whether there is more."""
        following, oracle = self._following, self._oracle
        assert following is not None
        assert oracle is not None
        if not following.source.path and not self._find(following):
            self._sees("")
            self._exhausted()
            return False
        assert self._following is not None
        path = self._following.source.path
        known = (
            self._tail.length
        )  # read again each time: a file written anew in place has its inode, and may have grown
        read = self._files.read_from(path, self._offset - known, PIECE_BYTES_MAX + known, self._inode, self._device)
        match read:
            case Bytes() if not self._tail.matches(read.data[:known]):
                if self._start_over(Rewritten(inode=read.inode, device=read.device, reason="changed")):
                    return True
                self._exhausted()
            case Bytes():
                self._sees(path)
                self._inode, self._device = read.inode, read.device
                data = read.data[known:]
                if self._marks.written_anew(data):
                    self._from_the_start(self._following)
                    return True
                self._feed_earlier()  # after the piece was read: what it speaks of stands there by now
                if data:
                    self._feed(path, data, more=self._offset + len(data) < read.size)
                if self._offset < read.size:
                    return True
                self._exhausted()
            case Rewritten():
                if read.moved_to:
                    self._read_rest(read.moved_to)
                if self._start_over(read):
                    return True
                self._sees(path)
                self._exhausted()
            case Missing():
                self._sees(path)
                self._exhausted()
            case Unreadable():
                self._unreadable(path, read.reason)
            case _:
                assert_never(read)
        return False

    def _feed_earlier(self) -> None:
        oracle = self._oracle
        assert oracle is not None
        facts: list[Fact] = []
        for path, offset in self._earlier_to.items():
            read = self._files.read_from(path, offset, READ_BYTES_MAX, 0, 0)
            while isinstance(read, Bytes) and read.data:
                self._earlier_to[path] = read.offset + len(read.data)
                facts += oracle.feed(path, read.data)
                read = self._files.read_from(path, self._earlier_to[path], READ_BYTES_MAX, 0, 0)
        if facts:
            self._tell(tuple(facts), None)

    def _feed(self, path: str, data: bytes, *, more: bool = False) -> None:
        oracle = self._oracle
        assert oracle is not None
        if len(self._head) < HEAD_BYTES and self._offset == len(self._head):
            self._head = (self._head + data)[:HEAD_BYTES]
        self._offset += len(data)
        self._tail.grew(data)
        self._marks.grew(data)
        facts = _facts_of(oracle, path, data)
        cursor = None
        if not oracle.quiescent:
            self._opening = self._opening or data[:OPENING_BYTES]
        else:
            self._opening = b""
            if not self._earlier_to:
                cursor = Cursor(
                    path=path, offset=self._offset, inode=self._inode, device=self._device, tail=self._tail.mark
                )
        if facts or cursor is not None:
            self._waiting = more
            self._tell(facts, cursor, more=more, read=len(data))

    def _read_rest(self, moved_to: str) -> None:
        """The record was moved aside and another one begun: what the old one got before that comes first."""
        following = self._following
        assert following is not None
        while True:
            read = self._files.read_from(moved_to, self._offset, PIECE_BYTES_MAX, self._inode, self._device)
            if not isinstance(read, Bytes) or not read.data:
                return
            self._feed(following.source.path, read.data)

    def _start_over(self, found: Rewritten) -> bool:
        """Another file, or other contents. All of it is read, and what was read before is known and says nothing twice;
        but a turn that is open, and whose beginning is not in it any more, goes on with what was read of it. Of a file
        that was cut short only what stands behind the cut is read: it is of the turn that is open, or of later ones.

        False, and nothing is changed, while its first bytes do not tell which of the two it is: it is being written.
        """
        following = self._following
        assert following is not None
        path = following.source.path
        same_file = (found.inode, found.device) == (self._inode, self._device)
        keep_oracle = False
        cut_at = self._cut(path) if same_file else None
        if self._opening and cut_at is None:
            known = self._head
            first = self._peek(path, 0)[: len(known) or 1]
            if len(first) < (len(known) or 1) and known.startswith(first):
                return False
            if not self._holds_opening(path):  # is it the earlier part of the same, or a new file?
                keep_oracle = first != known if known else not same_file
        self._inode, self._device = found.inode, found.device
        self.system.dead_letters.record("transcript_rewritten", self.ref.name, found)
        if cut_at is not None:
            self._go_on_behind(cut_at, path)
            return True
        self._from_the_start(following, keep_oracle=keep_oracle)
        return True

    def _from_the_start(self, following: Follow, *, keep_oracle: bool = False) -> None:
        self._offset, self._tail, self._marks, self._head = 0, Tail(), LineMarks(), b""
        if not keep_oracle:
            self._oracle, self._opening = following.oracle(0), b""

    def _cut(self, path: str) -> int | None:
        """Where the file was cut short, if it was no more than that: all before stands, and all behind is new."""
        self._torn = self._marks.torn
        if self._opening:
            known = self._offset - self._tail.length
            common = self._tail.cut_at(self._peek(path, known))
            if common is not None:
                self._marks.cut_to(known + common, lambda at, length: self._piece(path, at, length))
                return known + common
        same_start = len(self._head) >= HEAD_BYTES and self._peek(path, 0)[:HEAD_BYTES] == self._head
        return self._marks.cut(lambda at, length: self._piece(path, at, length), same_start=same_start)

    def _go_on_behind(self, cut_at: int, path: str) -> None:
        assert self._oracle is not None
        if self._torn:
            facts = self._oracle.feed(path, b"\n")  # the rest of that line will never come
            if facts:
                self._tell(tuple(facts), None)
        start = max(0, cut_at - TAIL_BYTES)
        self._offset, self._tail, self._head = cut_at, Tail(), self._head[:cut_at]
        self._tail.grew(self._piece(path, start, cut_at - start))

    def _piece(self, path: str, offset: int, length: int) -> bytes:
        read = self._files.read_from(path, offset, min(length, READ_BYTES_MAX), 0, 0)
        return read.data if isinstance(read, Bytes) else b""

    def _peek(self, path: str, offset: int) -> bytes:
        read = self._files.read_from(path, max(0, offset), TAIL_BYTES, 0, 0)
        return read.data if isinstance(read, Bytes) else b""

    def _holds_opening(self, path: str) -> bool:
        offset, before = 0, b""
        while True:
            read = self._files.read_from(path, offset, READ_BYTES_MAX, 0, 0)
            if not isinstance(read, Bytes) or not read.data:
                return False
            if self._opening in before + read.data:
                return True
            offset, before = offset + len(read.data), read.data[-OPENING_BYTES:]

    def _exhausted(self) -> None:
        """All that is there was read; with the process gone, that is all that there will ever be."""
        gone, following, oracle = self._gone, self._following, self._oracle
        if gone is None or following is None or oracle is None:
            return
        self._gone = None
        facts = oracle.eof(following.source.path)
        self._tell((*facts, RecordExhausted(exit_status=gone.exit_status)), None)

    def _sees(self, path: str) -> None:
        if self._blind_reads >= BLIND_TOLD_READS:
            self._tell_unread(path, "")
        self._blind, self._blind_reads = False, 0
        self._final_reads_max = FINAL_READS_MAX

    def _unreadable(self, path: str, reason: str) -> None:
        """It cannot be looked at: that proves nothing, so it is tried again, by the clock: no hint may tell of it."""
        self._blind = True
        self._blind_reads += 1
        if self._blind_reads == BLIND_TOLD_READS:
            self._tell_unread(path, reason)
        if self._gone is not None:
            self._final_reads += 1
            if self._final_reads > self._final_reads_max:
                self._exhausted()
                return
        slow = self._blind_reads > FINAL_READS_MAX and self._gone is None
        self.after(FIND_MAX_S if slow else UNREADABLE_RETRY_S, _BlindDue(), key="unreadable")

    def _tell_unread(self, path: str, reason: str) -> None:
        assert self.parent is not None
        self.parent.tell(RecordUnread(path=path, reason=reason))

    def _tell(
        self,
        facts: tuple[Fact | core_turn.Superseded, ...],
        cursor: Cursor | None,
        *,
        more: bool = False,
        read: int = 0,
    ) -> None:
        parent, following = self.parent, self._following
        assert parent is not None
        assert following is not None
        if self._flow is not None:
            self._flow.take(READ, weight(read))
        parent.tell(
            FactsRead(
                epoch=following.epoch,
                facts=facts,
                cursor=cursor,
                path=following.source.path,
                read_to=self._offset,
                more=more,
                weight=weight(read),
            )
        )
