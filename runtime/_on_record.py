"""What the journal has of sessions, turns and messages, as a host is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lastword.actors.core.errors import JournalError, UsageError
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import MessageRow, SessionRow
from lastword.actors.core.snapshot import Handle, Snapshot
from lastword.runtime._journal import SqliteJournal

_T = TypeVar("_T")


class OnRecord:
    """Reads one runtime's journal. Safe from any thread; blocks on the disk.

    Each call raises ``UsageError`` ``runtime_closed`` where the journal is closed: that is the runtime's doing.
    """

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal

    def sessions(self) -> list[SessionRow]:
        """All of them, oldest first."""
        return self._read(self._journal.sessions)

    def session(self, session_id: SessionId) -> SessionRow:
        """Its row.

        Raises:
            UsageError: ``unknown_session``.
        """
        row = self._read(lambda: self._journal.session(session_id))
        if row is None:
            remedy = "`lastword sessions` lists them"
            raise UsageError("unknown_session", f"no session {session_id!r} is on record", remedy=remedy)
        return row

    def message(self, message_id: MessageId) -> MessageRow | None:
        """What is on record of it."""
        return self._read(lambda: self._journal.message(message_id))

    def completion(self, turn_id: TurnId) -> Completion | None:
        """How that turn ended, if it is settled."""
        return self._read(lambda: self._journal.completion(turn_id))

    def snapshot(self, session_id: SessionId) -> Snapshot:
        """A session that has no actor here.

        Raises:
            UsageError: ``unknown_session``.
        """
        row = self.session(session_id)
        return self._read(
            lambda: Snapshot(
                session_id=session_id,
                provider=row.provider,
                transport=row.transport,
                cwd=row.cwd,
                state="closed" if row.state == "closed" else "gone",
                seq=self._journal.last_seq(session_id),
                handle=Handle(native_session_id=row.native_session),
                last_completion=self._journal.last_completion(session_id),
            )
        )

    def _read(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except JournalError as error:
            if error.kind != "journal_closed":
                raise
            raise UsageError("runtime_closed", "the runtime is closed") from error
