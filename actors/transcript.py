"""TranscriptWatcherActor: wake-ups in, facts out.

Hints only set it reading; what it reads (:mod:`lastword.actors.record_reader`) goes through the adapter's oracle and to
the session, in the order of the record. Polling is the truth (the slow sweep of the edge), wake-ups only hurry it: the
backlog is bounded by the file, never by a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias, assert_never

import msgspec

from lastword.actors.core import turn as core_turn
from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import EndpointGoneHint, Fact, FileChangedHint, RecordExhausted, SweepHint
from lastword.actors.core.ids import TurnId
from lastword.actors.core.ports import Cursor
from lastword.actors.core.world import Files, Wakes
from lastword.actors.record_place import CouldNotLookError
from lastword.actors.record_reader import RecordReader
from lastword.actors.system.actor import Actor
from lastword.actors.system.flow import Flow, weight

STATUS_BYTES_MAX = 64 * 1024
UNREADABLE_RETRY_S = 0.5
FIND_S = 0.02
FIND_FACTOR = 1.25
FIND_MAX_S = 2.0
"""A record whose name the CLI chooses is looked for after so long, each time a quarter longer, up to this; a hint
begins anew."""
FINAL_READS_MAX = 120
"""Looks at a record that cannot be read, half a second apart, before its end is reported as unread; for so long the
rest of one that was moved aside is waited for."""
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
    """To the session: all that was on record when it asked has been told. ``read``: and it could be looked at."""

    turn_id: TurnId
    read: bool


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


class TranscriptWatcherActor(Actor):
    """Reads one session's record.

    Args:
        files: reads files.
        wakes: hints about files.
        flow: reads no further while what was read is on its way; None: as far as there is.
    """

    __slots__ = (  # more than 30 attributes would not share their names with those of the other instances
        "_blind",
        "_blind_reads",
        "_caught_up",
        "_files",
        "_final_reads",
        "_final_reads_max",
        "_find_s",
        "_flow",
        "_following",
        "_gone",
        "_later",
        "_looks",
        "_reader",
        "_record_hinted",
        "_status",
        "_status_hinted",
        "_status_last",
        "_status_new",
        "_status_token",
        "_token",
        "_waiting",
        "_wakes",
    )

    def __init__(self, files: Files, wakes: Wakes, flow: Flow | None = None) -> None:
        super().__init__()
        self._flow = flow
        self._files = files
        self._wakes = wakes
        self._following: Follow | None = None
        self._reader: RecordReader | None = None
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
        self._later: list[Follow | EndpointGoneHint] = []
        """What begins when the record followed now has been read to its end."""
        self._looks: list[TurnId] = []
        self._blind = False
        self._find_s = FIND_S
        self._caught_up: bool | None = None
        """What was told since the last ``Follow``."""

    def receive(self, message: WatcherCommand) -> None:
        match message:
            case Follow():
                if self._reader is None:
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
                if message.turn_id not in self._looks:
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
        before, reader = self._following, self._reader
        self._following = message
        if reader is None or before is None or _name(before.source) != _name(message.source):
            if before is not None and _name(before.source) and not message.goes_on:
                self._tell((core_turn.Superseded(),), None)
            cursor = message.cursor
            if message.earlier or (cursor is not None and cursor.path != message.source.path):
                cursor = None  # of the conversation before: the CLI was moved out of it; or of one of several sources
            self._reader = RecordReader(self._files, message.oracle, cursor, message.earlier)
        else:
            reader.anew(message.oracle)
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
        if self._status is None or self._reader is None:
            return
        data = self._files.read_small(self._status.path, STATUS_BYTES_MAX)
        if data is None or data == self._status_last:
            return
        self._status_last = self._status_new = data
        self._read()  # what the transcript says up to now comes before what the registry says now

    def _read(self) -> None:
        if self._reader is None or self._waiting:
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
        if data is not None and self._status is not None and self._reader is not None:
            facts = self._reader.oracle.feed_snapshot(self._status.path, data)
            if facts:
                self._tell(tuple(facts), None)
        if self._looks and (not self._blind or self._blind_reads >= BLIND_READS_MAX):
            parent, looks, self._looks = self.parent, self._looks, []
            assert parent is not None
            partly = self._reader is not None and self._reader.partly_unread
            for turn_id in looks:
                parent.tell(Looked(turn_id=turn_id, read=not self._blind and not partly))
        if self._later:
            match self._later.pop(0):
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
        following, reader = self._following, self._reader
        assert following is not None
        assert reader is not None
        if not following.source.path and not self._find(following):
            self.sees("")
            self._exhausted()
            return False
        assert self._following is not None
        try:
            piece = reader.piece(self._following.source.path, self)
        except CouldNotLookError as error:
            self._unreadable(error.path, error.reason)
            return False
        if piece.tells:
            self._waiting = piece.more
            self._tell(piece.facts, piece.cursor, more=piece.more, read=piece.read)
        if not piece.again:
            self._exhausted()
        return piece.again

    def noted(self, what: str, about: object) -> None:
        """As its reader's witness."""
        self.system.dead_letters.record(what, self.ref.name, about)

    def blind_too_long(self, since_s: float | None) -> tuple[float, bool]:
        """As its reader's witness."""
        now_s = self.clock.monotonic()
        since_s = now_s if since_s is None else since_s
        return since_s, now_s - since_s >= self._final_reads_max * UNREADABLE_RETRY_S

    def _exhausted(self, *, unread: str = "") -> None:
        """All that is there was read; with the process gone, that is all that there will ever be. ``unread``: why it
        could not be, for as long as it was tried.
        """
        gone, following, reader = self._gone, self._following, self._reader
        if gone is None or following is None or reader is None:
            return
        self._gone = None
        facts = reader.oracle.eof(following.source.path)
        self._tell((*facts, RecordExhausted(exit_status=gone.exit_status, unread=unread)), None)

    def sees(self, path: str) -> None:
        """As its reader's witness."""
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
                self._exhausted(unread=reason)
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
                read_to=self._reader.offset if self._reader is not None else 0,
                more=more,
                weight=weight(read),
            )
        )
