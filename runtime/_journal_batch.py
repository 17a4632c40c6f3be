"""One batch of rows, written into the journal within a transaction that somebody else began.

Two primary keys decide what exists only once, ``completion(turn_id)`` and ``message(message_id)``; a unique key on
``event(session_id, once)`` makes a replayed transcript harmless. Says who was first.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lastword.actors.core.events import CompletionReached, Draft, Event
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import Batch, Lines, MessageRow, Recorded, SessionRow, TurnRow

_encode = msgspec.json.Encoder().encode
message_of: Final = msgspec.json.Decoder(MessageRow)
turn_of: Final = msgspec.json.Decoder(TurnRow)
completion_of: Final = msgspec.json.Decoder(Completion)

_PUT_SESSION = """INSERT INTO session (session_id, state, cursor, body) VALUES (?, ?, ?, ?)
    ON CONFLICT (session_id) DO UPDATE SET
        state = excluded.state, cursor = coalesce(excluded.cursor, session.cursor), body = excluded.body"""
_PUT_CURSOR = "UPDATE session SET cursor = ? WHERE session_id = ?"
_ACCEPT = """INSERT INTO message (message_id, session_id, state, turn_id, accepted_seq, body) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (message_id) DO NOTHING"""
_FINISH_ACCEPT = "UPDATE message SET accepted_seq = ?, body = ? WHERE message_id = ?"
_PUT_MESSAGE = """INSERT INTO message (message_id, session_id, state, turn_id, accepted_seq, body)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (message_id) DO UPDATE SET state = excluded.state, turn_id = excluded.turn_id,
        accepted_seq = excluded.accepted_seq, body = excluded.body"""
_PUT_TURN = """INSERT INTO turn (turn_id, session_id, state, body) VALUES (?, ?, ?, ?)
    ON CONFLICT (turn_id) DO UPDATE SET state = excluded.state, body = excluded.body WHERE turn.state <> 'settled'"""
_COMPLETE = """INSERT INTO completion (turn_id, session_id, seq, status, committed_at, body) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (turn_id) DO NOTHING"""
_ADD_EVENT = """INSERT INTO event (session_id, seq, at, type, turn_id, message_id, native_at, once, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session_id, once) WHERE once IS NOT NULL DO NOTHING"""
COMPLETION = "SELECT body FROM completion WHERE turn_id = ?"
TURN = "SELECT body FROM turn WHERE turn_id = ?"
MESSAGE = "SELECT body FROM message WHERE message_id = ?"
LAST_LINE = "SELECT at, body FROM line WHERE conversation = ? ORDER BY at DESC LIMIT 1"
_ADD_LINE = "INSERT INTO line (conversation, at, body) VALUES (?, ?, ?)"


def write_batch(db: sqlite3.Connection, batch: Batch, now_wall_s: float, seq: int) -> Recorded:
    """Write one batch; ``seq`` is the session's last one before it."""
    _check_one_session(batch)
    accept = batch.accept
    if accept is not None:
        if accept.accepted_at == 0.0:
            accept = replace(accept, accepted_at=now_wall_s)
        accept = replace(accept, accepted_seq=seq + len(batch.drafts) + (batch.completion is not None))
        if not db.execute(_ACCEPT, _message_values(accept)).rowcount:
            existing = message_of.decode(db.execute(MESSAGE, (accept.message_id,)).fetchone()[0])
            stands = None if batch.completion is None else standing(db, batch.completion.turn_id)
            return Recorded(existing=existing, won=batch.completion is None, completion=stands, last_seq=seq)
    if batch.session is not None:
        _put_session(db, batch.session)
    for message in batch.messages:
        _put_message(db, message)
    for turn in batch.turns:
        db.execute(_PUT_TURN, (turn.turn_id, turn.session_id, turn.state, _text(turn)))
    if batch.cursor is not None and not db.execute(_PUT_CURSOR, (_text(batch.cursor), batch.session_id)).rowcount:
        raise ValueError("a cursor of a session that has no row")
    if batch.lines is not None:
        _add_lines(db, batch.lines)
    events: list[Event] = []
    for draft in batch.drafts:
        event = _numbered(draft, batch.session_id, seq + 1, now_wall_s)
        if _add_event(db, event, draft.once or None):
            seq += 1
            events.append(event)
    won, completion = True, batch.completion
    if completion is not None:
        won, completion, event = _complete(db, completion, seq + 1, now_wall_s)
        if won:
            seq += 1
            events.append(event)
    if accept is not None and accept.accepted_seq != seq:
        accept = replace(accept, accepted_seq=seq)
        db.execute(_FINISH_ACCEPT, (seq, _text(accept), accept.message_id))
    return Recorded(events=tuple(events), won=won, completion=completion, last_seq=seq)


def _put_session(db: sqlite3.Connection, row: SessionRow) -> None:
    cursor = None
    if row.cursor is not None:
        cursor, row = _text(row.cursor), replace(row, cursor=None)
    db.execute(_PUT_SESSION, (row.session_id, row.state, cursor, _text(row)))


def _add_lines(db: sqlite3.Connection, lines: Lines) -> None:
    last = db.execute(LAST_LINE, (lines.conversation,)).fetchone()
    at = 0 if last is None else behind(*last)
    for line in lines.lines:
        body = line.decode()
        if "\n" in body:
            raise ValueError("a line of a record that is two")
        db.execute(_ADD_LINE, (lines.conversation, at, body))
        at = behind(at, body)


def _put_message(db: sqlite3.Connection, row: MessageRow) -> None:
    if row.accepted_seq == 0 or row.accepted_at == 0.0:
        found = db.execute(MESSAGE, (row.message_id,)).fetchone()
        if found is not None:
            before = message_of.decode(found[0])
            row = replace(
                row,
                accepted_seq=row.accepted_seq or before.accepted_seq,
                accepted_at=row.accepted_at or before.accepted_at,
            )
    db.execute(_PUT_MESSAGE, _message_values(row))


def _complete(
    db: sqlite3.Connection, completion: Completion, seq: int, now_wall_s: float
) -> tuple[bool, Completion | None, Event]:
    stamped = replace(completion, times=replace(completion.times, committed_at=now_wall_s))
    event = Event(
        session_id=stamped.session_id,
        seq=seq,
        at=now_wall_s,
        body=CompletionReached(completion=stamped),
        turn_id=stamped.turn_id,
        message_id=stamped.message_id,
        native_at=stamped.times.native_ended_at,
    )
    values = (stamped.turn_id, stamped.session_id, seq, stamped.status, now_wall_s, _text(stamped))
    if not db.execute(_COMPLETE, values).rowcount:
        return False, standing(db, completion.turn_id), event
    found = db.execute(TURN, (stamped.turn_id,)).fetchone()
    row = _settled_row(stamped)
    if found is not None:
        before = turn_of.decode(found[0])
        native = before.native_turn or stamped.native_turn_id or ""
        row = replace(before, state="settled", native_turn=native)
    db.execute(_PUT_TURN, (row.turn_id, row.session_id, row.state, _text(row)))
    _add_event(db, event, None)
    return True, stamped, event


def standing(db: sqlite3.Connection, turn_id: TurnId) -> Completion | None:
    """The last word that this turn has, if any."""
    found = db.execute(COMPLETION, (turn_id,)).fetchone()
    return None if found is None else completion_of.decode(found[0])


def _add_event(db: sqlite3.Connection, event: Event, once: str | None) -> bool:
    values = (
        event.session_id,
        event.seq,
        event.at,
        event.type,
        event.turn_id,
        event.message_id,
        event.native_at,
        once,
        _text(event.body),
    )
    return db.execute(_ADD_EVENT, values).rowcount == 1


def behind(at: int, body: str) -> int:
    """The place behind that line."""
    return at + len(body.encode()) + 1


def _text(value: Any) -> str:
    return _encode(value).decode()


def _message_values(row: MessageRow) -> tuple[Any, ...]:
    return (row.message_id, row.session_id, row.state, row.turn_id, row.accepted_seq, _text(row))


def _numbered(draft: Draft, session_id: SessionId, seq: int, at: float) -> Event:
    return Event(
        session_id=session_id,
        seq=seq,
        at=at,
        body=draft.body,
        turn_id=draft.turn_id,
        message_id=draft.message_id,
        native_at=draft.native_at,
    )


def _settled_row(completion: Completion) -> TurnRow:
    """The row of a turn that had none when it was settled."""
    return TurnRow(
        turn_id=completion.turn_id,
        session_id=completion.session_id,
        message_id=completion.message_id,
        origin=completion.origin,
        state="settled",
        native_turn=completion.native_turn_id,
        parent_turn_id=completion.parent_turn_id,
        accepted_at=completion.times.accepted_at or 0.0,
        submitted_at=completion.times.submitted_at,
        bound_at=completion.times.bound_at,
    )


def _check_one_session(batch: Batch) -> None:
    """No row may cross a session (C30)."""
    session_id = batch.session_id
    for row in (batch.session, batch.accept, batch.completion, *batch.messages, *batch.turns):
        if row is not None and row.session_id != session_id:
            raise ValueError("a batch that names two sessions")
