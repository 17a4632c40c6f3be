"""The SQLite journal: :class:`lastword.actors.core.ports.Journal` on one file.

Theory of operation. One connection writes, one group at a time: BEGIN, a savepoint per batch, COMMIT; WAL and
``synchronous=FULL`` make it durable when :meth:`SqliteJournal.record` returns. Two primary keys decide what exists
only once: ``completion(turn_id)`` and ``message(message_id)``; a unique key on ``event(session_id, once)`` makes a
replayed transcript harmless. A session's next ``seq`` is given inside the transaction, so that it has no gaps: what is
rolled back takes its numbers with it. A bounded pool of read-only connections serves readers of any thread.

Decides nothing about turns; it says who was first. Error texts carry ids and SQLite's own names, never row content.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import DialogOpened, Event, EventBody
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import Batch, Cursor, MessageRow, Recorded, SessionRow, TurnRow
from lastword.runtime._journal_batch import (
    COMPLETION,
    LAST_LINE,
    MESSAGE,
    TURN,
    behind,
    completion_of,
    message_of,
    turn_of,
    write_batch,
)
from lastword.runtime._journal_file import Durability, Identity, JournalFile, Stamp, corrupt, translated
from lastword.runtime._journal_readers import Readers, closed_error

CLOSE_WAIT_S: Final = 10.0
"""How long :meth:`SqliteJournal.close` waits for a commit under way."""

HANGS_S: Final = 5.0
"""A transaction under way for so long is one that the file does not take; a healthy one is seen under way often."""

SEQ_CACHE_MAX: Final = 20_000
"""Sessions whose last seq is remembered between commits."""

_body_of: Final = msgspec.json.Decoder(EventBody)
_session_of: Final = msgspec.json.Decoder(SessionRow)
_cursor_of: Final = msgspec.json.Decoder(Cursor)
_records_of: Final = msgspec.json.Decoder(tuple[str, ...])

_EVENT_COLUMNS = "session_id, seq, at, turn_id, message_id, native_at, body"
_EVENTS = f"SELECT {_EVENT_COLUMNS} FROM event WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608 - constants
_TURN_EVENTS = f"SELECT {_EVENT_COLUMNS} FROM event WHERE turn_id = ? ORDER BY seq"  # noqa: S608 - constants
_WITH_WORK = """SELECT session_id FROM turn WHERE state <> 'settled'
    UNION SELECT session_id FROM message WHERE turn_id IS NULL AND state NOT IN ('joined', 'undelivered')"""
_LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM event WHERE session_id = ?"
_QUEUE_RECORDS = """SELECT coalesce(json_extract(body, '$.records'), '[]') FROM message
    WHERE session_id = ? ORDER BY ord DESC LIMIT ?"""
_OPEN_MESSAGES = """SELECT body FROM (
    SELECT ord, body FROM message
        WHERE session_id = ?1 AND turn_id IS NULL AND state NOT IN ('joined', 'undelivered')
    UNION ALL SELECT message.ord, message.body FROM turn JOIN message ON message.turn_id = turn.turn_id
        WHERE turn.session_id = ?1 AND turn.state <> 'settled' AND message.state <> 'undelivered'
    ) ORDER BY ord"""
_SETTLED = """SELECT turn_id FROM turn
    WHERE session_id = ? AND json_extract(body, '$.native_turn') = ? AND state = 'settled' ORDER BY ord DESC LIMIT 1"""
_LINES = """SELECT at, body FROM line WHERE conversation = ?1
    AND at >= coalesce((SELECT max(at) FROM line WHERE conversation = ?1 AND at <= ?2), 0) ORDER BY at"""
_LAST_COMPLETION = "SELECT body FROM completion WHERE session_id = ? ORDER BY seq DESC LIMIT 1"
_LAST_OF_DIALOGS = f"""SELECT {_EVENT_COLUMNS} FROM event WHERE session_id = ?
    AND type IN ('dialog_opened', 'dialog_closed', 'provider_started', 'session_gone')
    ORDER BY seq DESC LIMIT 1"""  # noqa: S608 - constants
_LAST_OF_TYPE = "SELECT at FROM event WHERE session_id = ? AND type = ? ORDER BY seq DESC LIMIT 1"

_T = TypeVar("_T")


class SqliteJournal:
    """The journal of one state folder; see the module's docstring. Make one with :meth:`open`."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._write_lock = threading.Lock()
        self._db: sqlite3.Connection | None = None if file.readonly else file.connect_writer()
        self._identity = self._begin_log(self._db) if self._db is not None else ()
        self._stamp: Stamp | None = None
        self._failing = False
        self._trouble: JournalError | None = None
        self._began_mono_s: float | None = None
        self._last_seq: dict[SessionId, int] = {}
        self._readers = Readers(file)
        self._closed = False

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], *, durability: Durability = "power", readonly: bool = False
    ) -> SqliteJournal:
        """Open the journal of a state folder.

        Args:
            folder: made with mode 0700 where it is missing; the files in it get 0600.
            durability: ``power``: a recorded commit survives a power cut; ``process``: only the death of the process.
            readonly: only read, while another process may write; takes no lock and makes nothing.

        Raises:
            JournalError: ``journal_locked`` (another host has it), ``journal_unwritable``, ``journal_corrupt``,
                ``journal_newer``, ``journal_failed``.
        """
        file = JournalFile(Path(folder), durability=durability, readonly=readonly)
        try:
            return cls(file)
        except BaseException:
            file.release()
            raise

    @property
    def path(self) -> Path:
        """The database file."""
        return self._file.path

    @property
    def journal_id(self) -> str:
        """As :attr:`JournalFile.journal_id`."""
        return self._file.journal_id

    @property
    def failing(self) -> bool:
        """Whether the last transaction failed for the file's sake (no space, read-only, an error of the device), or the
        one under way hangs. From any thread.
        """
        began_mono_s = self._began_mono_s
        return self._failing or (began_mono_s is not None and time.monotonic() - began_mono_s >= HANGS_S)

    @property
    def trouble(self) -> JournalError | None:
        """What it is where the journal is :attr:`failing`; None where it is not. A new error each time."""
        if not self.failing:
            return None
        known = self._trouble if self._failing else None
        if known is None:
            return JournalError("journal_failed", f"a commit to {self.path} hangs", remedy="Check its device.")
        return copy(known)

    @property
    def under_way_s(self) -> float:
        """How long the transaction under way has taken so far; 0 where there is none. From any thread."""
        began_mono_s = self._began_mono_s
        return 0.0 if began_mono_s is None else max(0.0, time.monotonic() - began_mono_s)

    @property
    def writing(self) -> bool:
        """Whether a transaction is under way. From any thread."""
        return self._began_mono_s is not None

    def refused(self) -> None:
        """See :meth:`lastword.actors.core.ports.Journal.refused`; called by the writer's thread."""
        self._failing = False

    # --- writing ---------------------------------------------------------------------------------------------

    def record(self, batches: Sequence[Batch], now_wall_s: float) -> list[Recorded | JournalError]:
        """See :meth:`lastword.actors.core.ports.Journal.record`; from one thread at a time, others wait."""
        with self._write_lock:
            if self._closed:
                raise closed_error(self.path)
            if self._file.readonly:
                raise JournalError("journal_unwritable", f"{self.path} was opened to be read only")
            self._began_mono_s = time.monotonic()
            try:
                recorded = self._record(self._writer(), batches, now_wall_s)
                self._failing = False
            except sqlite3.Error as error:
                self._failing = True
                self._trouble = translated(error, "committing", self.path)
                raise self._trouble from error
            except BaseException as error:
                self._failing = True
                self._trouble = error if isinstance(error, JournalError) else None
                raise
            finally:
                self._began_mono_s = None
            return recorded

    def _writer(self) -> sqlite3.Connection:
        """The connection, on the file that stands at the path: a commit into a deleted file would be no promise."""
        db, stamp = self._db, self._file.stamp()
        if db is not None and stamp is not None and stamp == self._stamp:
            return db  # nothing in the folder was made, renamed or deleted since it was looked through
        self._file.keep_lock()
        if db is not None and self._file.identity() != self._identity:
            self._file.restore(db, self._identity)
            self._db = None
            db.close()
            self._readers.renew()
            db = None
        if db is None:
            db = self._file.connect_writer()
            self._identity = self._begin_log(db)
            self._db = db
        self._stamp = stamp
        return db

    def _begin_log(self, db: sqlite3.Connection) -> Identity:
        """Have the write-ahead log made; which files they are."""
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return self._file.identity()

    def _record(
        self, db: sqlite3.Connection, batches: Sequence[Batch], now_wall_s: float
    ) -> list[Recorded | JournalError]:
        alone = len(batches) == 1
        seqs: dict[SessionId, int] = {}  # only what this group changed; forgotten with it when it fails
        results: list[Recorded | JournalError] = []
        try:
            db.execute("BEGIN IMMEDIATE")  # inside: even where it fails, it may have left a transaction open
            for batch in batches:
                if not alone:
                    db.execute("SAVEPOINT batch")
                try:
                    recorded = write_batch(db, batch, now_wall_s, self._seq_before(db, batch.session_id, seqs))
                except (sqlite3.OperationalError, sqlite3.InternalError):
                    raise  # the file, not the batch
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and type(error) is sqlite3.DatabaseError:
                        raise
                    self._last_seq.pop(batch.session_id, None)
                    results.append(_refused(batch, error))
                    db.execute("ROLLBACK" if alone else "ROLLBACK TO batch")
                else:
                    seqs[batch.session_id] = recorded.last_seq
                    results.append(recorded)
                if not alone:
                    db.execute("RELEASE batch")
            if db.in_transaction:
                db.execute("COMMIT")
        except BaseException:
            self._roll_back(db)
            raise
        if len(self._last_seq) + len(seqs) > SEQ_CACHE_MAX:
            self._last_seq.clear()
        self._last_seq.update(seqs)
        return results

    def _roll_back(self, db: sqlite3.Connection) -> None:
        """Leave nothing of the group behind; a connection that cannot even do that is replaced.

        A COMMIT that failed may have been carried out after all: what was remembered is read from the file again.
        """
        self._last_seq.clear()
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self._db = None
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _seq_before(self, db: sqlite3.Connection, session_id: SessionId, seqs: dict[SessionId, int]) -> int:
        known = seqs.get(session_id)
        if known is None:
            known = self._last_seq.get(session_id)
        if known is None:
            known = int(db.execute(_LAST_SEQ, (session_id,)).fetchone()[0])
        return known

    # --- reading ---------------------------------------------------------------------------------------------

    def events(self, session_id: SessionId, after: int = 0, limit: int = 500) -> list[Event]:
        return [self._event(row) for row in self._rows(_EVENTS, (session_id, after, limit))]

    def last_seq(self, session_id: SessionId) -> int:
        return int(self._rows(_LAST_SEQ, (session_id,))[0][0])

    def sessions(self) -> list[SessionRow]:
        return [self._session(row) for row in self._rows("SELECT body, cursor FROM session ORDER BY ord")]

    def session(self, session_id: SessionId) -> SessionRow | None:
        rows = self._rows("SELECT body, cursor FROM session WHERE session_id = ?", (session_id,))
        return self._session(rows[0]) if rows else None

    def sessions_with_work(self) -> set[SessionId]:
        """Sessions with a turn that is not settled, or a message whose end is not on record."""
        return {SessionId(row[0]) for row in self._rows(_WITH_WORK)}

    def turn(self, turn_id: TurnId) -> TurnRow | None:
        return self._one(turn_of, TURN, (turn_id,))

    def settled_turn(self, session_id: SessionId, native_turn: str) -> TurnId | None:
        rows = self._rows(_SETTLED, (session_id, native_turn))
        return TurnId(rows[0][0]) if rows else None

    def turn_count(self, session_id: SessionId) -> int:
        return int(self._rows("SELECT count(*) FROM turn WHERE session_id = ?", (session_id,))[0][0])

    def turns(self, session_id: SessionId, *, unsettled: bool = False) -> list[TurnRow]:
        only = "AND state <> 'settled'" if unsettled else ""
        query = f"SELECT body FROM turn WHERE session_id = ? {only} ORDER BY ord"  # noqa: S608 - constants
        return self._many(turn_of, query, (session_id,))

    def message(self, message_id: MessageId) -> MessageRow | None:
        return self._one(message_of, MESSAGE, (message_id,))

    def messages(self, session_id: SessionId) -> list[MessageRow]:
        return self._many(message_of, "SELECT body FROM message WHERE session_id = ? ORDER BY ord", (session_id,))

    def open_messages(self, session_id: SessionId) -> list[MessageRow]:
        return self._many(message_of, _OPEN_MESSAGES, (session_id,))

    def queue_records(self, session_id: SessionId, messages: int) -> list[str]:
        newest = self._many(_records_of, _QUEUE_RECORDS, (session_id, messages))
        return [record for records in reversed(newest) for record in records]

    def completion(self, turn_id: TurnId) -> Completion | None:
        return self._one(completion_of, COMPLETION, (turn_id,))

    def completions(self, session_id: SessionId) -> list[Completion]:
        query = "SELECT body FROM completion WHERE session_id = ? ORDER BY seq"
        return self._many(completion_of, query, (session_id,))

    def last_completion(self, session_id: SessionId) -> Completion | None:
        return self._one(completion_of, _LAST_COMPLETION, (session_id,))

    def last_at(self, session_id: SessionId, event_type: str) -> float | None:
        rows = self._rows(_LAST_OF_TYPE, (session_id, event_type))
        return float(rows[0][0]) if rows else None

    def open_dialog(self, session_id: SessionId) -> DialogOpened | None:
        """The dialog that was told as open last, where neither its end nor another process was told since."""
        rows = self._rows(_LAST_OF_DIALOGS, (session_id,))
        body = self._event(rows[0]).body if rows else None
        return body if isinstance(body, DialogOpened) else None

    def turn_events(self, turn_id: TurnId) -> list[Event]:
        return [self._event(row) for row in self._rows(_TURN_EVENTS, (turn_id,))]

    def lines(self, conversation: str, offset: int, bytes_max: int) -> tuple[bytes, int]:
        with self._readers.lend() as db:
            try:
                last = db.execute(LAST_LINE, (conversation,)).fetchone()
                pieces: list[bytes] = []
                held, skip = 0, 0
                for at, body in db.execute(_LINES, (conversation, offset)):
                    if not pieces:
                        skip = offset - at
                    pieces.append(body.encode() + b"\n")
                    held += len(pieces[-1])
                    if held - skip >= bytes_max:
                        break
            except sqlite3.Error as error:
                raise translated(error, "reading", self.path) from error
        size = 0 if last is None else behind(*last)
        return b"".join(pieces)[skip : skip + bytes_max], size

    def close(self) -> None:
        """Close every connection and give the folder free. Idempotent; waits for a commit under way.

        Raises:
            JournalError: that commit did not end within :data:`CLOSE_WAIT_S`; nothing was closed.
        """
        if not self._write_lock.acquire(timeout=CLOSE_WAIT_S):
            raise JournalError("journal_failed", f"a commit to {self.path} did not end within {CLOSE_WAIT_S:g} s")
        try:
            self._closed = True
            if self._db is not None:
                with contextlib.suppress(JournalError, sqlite3.Error):
                    self._writer()  # what was deleted under us is put back while we still hold it
            self._readers.close()
            if self._db is not None:
                db, self._db = self._db, None
                db.close()
            self._file.release()
        finally:
            self._write_lock.release()

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._readers.lend() as db:
            try:
                return db.execute(query, values).fetchall()
            except UnicodeEncodeError:
                return []  # the name is no Unicode: nothing on record is called so
            except sqlite3.Error as error:
                raise translated(error, "reading", self.path) from error

    def _decoded(self, decoder: msgspec.json.Decoder[_T], text: str) -> _T:
        try:
            return decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise corrupt(self.path, f"a row does not decode: {type(error).__name__}") from error

    def _one(self, decoder: msgspec.json.Decoder[_T], query: str, values: Sequence[Any]) -> _T | None:
        rows = self._rows(query, values)
        return self._decoded(decoder, rows[0][0]) if rows else None

    def _many(self, decoder: msgspec.json.Decoder[_T], query: str, values: Sequence[Any]) -> list[_T]:
        return [self._decoded(decoder, row[0]) for row in self._rows(query, values)]

    def _event(self, row: tuple[Any, ...]) -> Event:
        session_id, seq, at, turn_id, message_id, native_at, body = row
        return Event(
            session_id=session_id,
            seq=seq,
            at=at,
            body=self._decoded(_body_of, body),
            turn_id=turn_id,
            message_id=message_id,
            native_at=native_at,
        )

    def _session(self, row: tuple[Any, ...]) -> SessionRow:
        session = self._decoded(_session_of, row[0])
        return session if row[1] is None else replace(session, cursor=self._decoded(_cursor_of, row[1]))


def _refused(batch: Batch, error: Exception) -> JournalError:
    detail = str(error) if type(error) is ValueError else getattr(error, "sqlite_errorname", type(error).__name__)
    refusal = JournalError("journal_failed", f"a batch of session {batch.session_id} was refused: {detail}")
    refusal.__cause__ = error
    return refusal
