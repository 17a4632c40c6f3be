"""The ports: what the actors ask of the world, as protocols over plain values. Implemented at the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import Accepted, Draft, Event
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, Origin

# --- the journal ---------------------------------------------------------------------------------------------


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a transcript where its oracle was quiescent: reading may resume there without any state.

    ``inode`` and ``device`` tell a replaced file from a grown one; ``tail``, a digest of the last bytes before it and
    their number, one that was written anew in place.
    """

    path: str
    offset: int
    inode: int = 0
    device: int = 0
    tail: str = ""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session. ``config`` and ``handle`` are opaque JSON texts: how it was asked for, and its live endpoint.

    Attributes:
        epoch: of its newest process.
        config_epoch: how often its provider or model was chosen: 1, and one more with each switch.
        config_floor: the last process of the configuration before this one: what it or an earlier one still says or
            left behind is none of this one's.
        command: one of the CLI's own that may stand in its input box, typed by us.
    """

    session_id: SessionId
    provider: str
    transport: TransportName
    cwd: str
    native_session: str
    state: Literal["open", "closed"] = "open"
    config: str = "{}"
    handle: str = "{}"
    epoch: int = 1
    config_epoch: int = 1
    config_floor: int = 0
    cursor: Cursor | None = None
    command: str = ""
    opened_at: float = 0.0
    closed_at: float | None = None


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted message and how far it has come. ``clock_s``: wall minus monotonic clock at acceptance, by which a
    later life sees that the wall clock was set back; 0 where it is not known. ``reason``: why it is ``undelivered``.
    ``records``: those that told that the CLI has it in its queue, took it into a turn, or lost it, as far as any did.
    ``transport``: by which it was taken; "" in rows of before that was kept.
    """

    message_id: MessageId
    session_id: SessionId
    text: str
    taken: Accepted
    state: Literal["accepted", "submitted", "queued", "bound", "joined", "undelivered"] = "accepted"
    turn_id: TurnId | None = None
    accepted_at: float = 0.0
    accepted_seq: int = 0
    deadline_at: float | None = None
    clock_s: float = 0.0
    reason: str = ""
    records: tuple[str, ...] = ()
    transport: TransportName | Literal[""] = ""


RowState = Literal["accepted", "submitted", "running", "cancelling", "settled"]


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that is not settled yet, or was: ``settled`` goes with the completion, in one transaction."""

    turn_id: TurnId
    session_id: SessionId
    message_id: MessageId | None
    origin: Origin = "host"
    state: RowState = "accepted"
    native_turn: str = ""
    parent_turn_id: TurnId | None = None
    accepted_at: float = 0.0
    submitted_at: float | None = None
    bound_at: float | None = None
    deadline_at: float | None = None
    epoch: int = 1


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for the record of a conversation that has no file of its own, each without its newline."""

    conversation: str
    lines: tuple[bytes, ...]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed together or not at all, for one session.

    Attributes:
        accept: a new message, inserted or nothing: where its id is known already, *nothing* of this batch is
            applied and :attr:`Recorded.existing` is the first one's row (of whatever session). ``accepted_seq`` is
            filled in by the journal with the session's last seq after this batch, ``accepted_at`` where it is 0.
        session: the whole row, replacing the stored one; a ``cursor`` of None leaves the stored cursor as it is.
        messages: whole rows, replacing the stored ones; an ``accepted_seq`` or ``accepted_at`` of 0 leaves the
            stored figure as it is.
        turns: whole rows, replacing the stored ones; a row that is settled already is left as it is.
        completion: inserted or nothing on ``turn_id``; its ``unified_completion`` event gets the session's next
            seq in the same transaction and ``committed_at`` is set; where it lost, no event is written for it.
            The turn's row becomes ``settled`` (and is made where there was none). The rest of the batch is
            applied whether it won or not.
        drafts: events, in order, before the completion's; each with a ``once`` key that is known is left out.
        lines: put at the end of that conversation's record.
    """

    session_id: SessionId
    session: SessionRow | None = None
    accept: MessageRow | None = None
    messages: tuple[MessageRow, ...] = ()
    turns: tuple[TurnRow, ...] = ()
    drafts: tuple[Draft, ...] = ()
    completion: Completion | None = None
    cursor: Cursor | None = None
    lines: Lines | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch.

    Attributes:
        events: the events really written, with their seq, in order.
        won: whether the completion was the first for its turn (True where the batch had none).
        completion: the completion that stands for the turn (the batch's own, stamped, or the earlier one).
        existing: the message that had the id of ``accept`` already; then nothing was applied.
        last_seq: the session's last seq after this batch.
    """

    events: tuple[Event, ...] = ()
    won: bool = True
    completion: Completion | None = None
    existing: MessageRow | None = None
    last_seq: int = 0


class Journal(Protocol):
    """The durable record. ``record`` is called by one writer thread; the readers from any thread."""

    @property
    def failing(self) -> bool:
        """Whether the last transaction failed for the file's sake, or the one under way hangs: who waits for a commit
        waits for that.
        """
        ...

    @property
    def writing(self) -> bool:
        """Whether a transaction is under way: nothing is missing yet. A healthy file is written all the time."""
        ...

    def refused(self) -> None:
        """What failed last was refused to its senders: nobody waits for it, whatever the file does."""
        ...

    def record(self, batches: Sequence[Batch], now_wall_s: float) -> list[Recorded | JournalError]:
        """Commit all batches in one transaction; durable when it returns.

        One result per batch, in order. A batch that is bad by itself (it cannot be encoded, or names two sessions)
        is answered by a :class:`JournalError` in its place; nothing of it is applied, and it never takes another
        batch of the group with it.

        Raises:
            JournalError: nothing of the group was committed; ``retryable`` says whether trying again may help.
        """
        ...

    def events(self, session_id: SessionId, after: int = 0, limit: int = 500) -> list[Event]: ...

    def last_seq(self, session_id: SessionId) -> int: ...

    def sessions(self) -> list[SessionRow]: ...

    def session(self, session_id: SessionId) -> SessionRow | None: ...

    def sessions_with_work(self) -> set[SessionId]:
        """Sessions with a turn that is not settled, or a message whose end is not on record."""
        ...

    def turn(self, turn_id: TurnId) -> TurnRow | None: ...

    def turns(self, session_id: SessionId, *, unsettled: bool = False) -> list[TurnRow]: ...

    def message(self, message_id: MessageId) -> MessageRow | None: ...

    def settled_turn(self, session_id: SessionId, native_turn: str) -> TurnId | None:
        """The settled turn of that session that was this native turn; costs the same however many there are."""
        ...

    def turn_count(self, session_id: SessionId) -> int: ...

    def messages(self, session_id: SessionId) -> list[MessageRow]: ...

    def open_messages(self, session_id: SessionId) -> list[MessageRow]:
        """Those without an end, and those of unsettled turns, in the order accepted. Costs what is open."""
        ...

    def queue_records(self, session_id: SessionId, messages: int) -> list[str]:
        """Of the newest so many messages: :attr:`MessageRow.records`, oldest first."""
        ...

    def completion(self, turn_id: TurnId) -> Completion | None: ...

    def completions(self, session_id: SessionId) -> list[Completion]: ...

    def last_completion(self, session_id: SessionId) -> Completion | None: ...

    def last_at(self, session_id: SessionId, event_type: str) -> float | None:
        """When the session's last event of that type was recorded. Reads events from the end until there is one."""
        ...

    def turn_events(self, turn_id: TurnId) -> list[Event]: ...

    def lines(self, conversation: str, offset: int, bytes_max: int) -> tuple[bytes, int]:
        """Bytes of that conversation's record from ``offset`` on, each line with its newline, and how long the whole
        is.
        """
        ...

    def close(self) -> None: ...


Environment = Mapping[str, str]
