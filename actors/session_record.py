"""What of a session is durable: its row, its way to the journal, and the place where its transcript may be read on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lastword.actors.core import events
from lastword.actors.core.ports import Batch, Cursor, MessageRow, SessionRow, TurnRow
from lastword.actors.journal import CommitFailed, Committed
from lastword.actors.outbox import Outbox, Retry
from lastword.actors.system.flow import Flow
from lastword.actors.system.ref import Ref


class SessionRecord:
    """Lives in one session's actor; not thread-safe.

    Attributes:
        row: the session's row, as it is or is being committed.
        seq: the last one of the session that is known to be committed.

    Args:
        retry: arms a timer that brings a :class:`Retry` back to the actor.
        flow: counts what is sent and not acknowledged.
    """

    def __init__(
        self, row: SessionRow, journal: Ref, me: Ref, retry: Callable[[float, Retry], None], flow: Flow
    ) -> None:
        self.row = row
        self.seq = 0
        self._outbox = Outbox(journal, me, retry, flow, "record")
        self._cursor: Cursor | None = None
        self._next: Cursor | None = None
        self._saved: Cursor | None = row.cursor

    @property
    def acknowledged(self) -> bool:
        """Whether everything that was sent is durable."""
        return self._outbox.empty

    @property
    def failing(self) -> bool:
        """Whether the journal could not take something and will be asked again."""
        return self._outbox.failing

    def change(self, **changes: Any) -> SessionRow:
        """Change fields of the row; give it to ``send`` to have it stored."""
        self.row = msgspec.structs.replace(self.row, **changes)
        return self.row

    def send(
        self,
        *,
        session: SessionRow | None = None,
        accept: MessageRow | None = None,
        messages: tuple[MessageRow, ...] = (),
        turns: tuple[TurnRow, ...] = (),
        drafts: tuple[events.Draft, ...] = (),
    ) -> int:
        """Have it committed, together; the token comes back with the answer."""
        cursor = self._cursor if self._cursor != self._saved else None
        if cursor is not None:
            self._saved = cursor
            self.change(cursor=cursor)
        return self._outbox.send(
            Batch(
                session_id=self.row.session_id,
                session=session,
                accept=accept,
                messages=messages,
                turns=turns,
                drafts=drafts,
                cursor=cursor,
            )
        )

    def committed(self, answer: Committed) -> Batch | None:
        """Note an answer; the batch that it is about, None where it was answered before."""
        self.reached(answer.recorded.last_seq)
        return self._outbox.committed(answer)

    def failed(self, answer: CommitFailed) -> None:
        """Note a failure; all but a new message is offered again."""
        self._outbox.failed(answer)

    def again(self, retry: Retry) -> None:
        """The pause is over."""
        self._outbox.again(retry)

    def reached(self, seq: int) -> None:
        """So far the session is committed."""
        self.seq = max(self.seq, seq)

    # --- the place in the transcript ------------------------------------------------------------------------------

    def read_to(self, cursor: Cursor | None, *, facts: bool) -> None:
        """Reading came there; ``cursor`` is None where it cannot be resumed without state."""
        self._next = cursor or (None if facts else self._next)

    def take_place(self, *, quiet: bool) -> None:
        """``quiet``: all that was read is settled and committed, so reading may be resumed where it came to."""
        if quiet and self._next is not None:
            self._cursor, self._next = self._next, None

    def forget_place(self) -> None:
        """It follows another record from its start."""
        self.change(cursor=None)
        self._cursor = self._next = self._saved = None

    def move(self, native_session: str) -> None:
        """It follows another conversation from its start."""
        self.change(native_session=native_session)
        self.forget_place()
