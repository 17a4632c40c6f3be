"""The messages of a session that have not ended, and who waits for the end of each."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core import events
from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.errors import LastwordError, RejectedError
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import MessageRow
from lastword.actors.replies import fail, resolve

UNDELIVERED_KEPT_MAX = 256
"""Undelivered messages whose fate is remembered here, until the journal's own row surely tells it."""

Rows: TypeAlias = dict[MessageId, MessageRow]
"""Rows that changed and go into the next batch."""


def undelivered(reason: str) -> RejectedError:
    """What who waits for an undelivered message is told, and whoever brings its id again."""
    return RejectedError(
        "not_delivered",
        f"the message was not delivered: {reason or 'not known why'}",
        remedy="What is sent anew is another message: give it another message_id, or none",
    )


class MessageBook:
    """Lives in one session's actor; not thread-safe.

    Attributes:
        rows: those that have not ended.
        deliverable: committed ones, which may be handed to the pane.
        abandoned: nobody wants them any more; should one still become a turn, that turn is interrupted at once.
    """

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.deliverable: set[MessageId] = set()
        self.abandoned: set[MessageId] = set()
        self.deadlines_mono: dict[MessageId, float] = {}
        """Deadlines of this life, on the clock that nobody sets; the journal has them by the wall, for the next one."""
        self._waiting: dict[MessageId, list[Future[Completion]]] = {}
        self._undelivered: Rows = {}

    def known(self, row: MessageRow) -> MessageRow:
        """The newest that is known of it."""
        return self.rows.get(row.message_id) or self._undelivered.get(row.message_id) or row

    def trace_of(self, message_id: MessageId) -> str:
        """What it is traced under: its turn, as far as it has one."""
        row = self.rows.get(message_id)
        return (row.turn_id if row is not None else None) or message_id

    def drop(self, message_id: MessageId) -> None:
        """It was never accepted."""
        self.rows.pop(message_id, None)
        self._forget(message_id)

    def wait(self, message_id: MessageId, outcome: Future[Completion]) -> None:
        """Set the future once the message has its end."""
        self._waiting.setdefault(message_id, []).append(outcome)

    def bind(
        self, changed: Rows, message_id: MessageId | None, turn_id: TurnId, state: Literal["bound", "joined"]
    ) -> None:
        """It belongs to that turn."""
        row = self.rows.get(message_id) if message_id is not None else None
        if row is not None:
            row = msgspec.structs.replace(row, turn_id=turn_id, state=state)
            self.rows[row.message_id] = changed[row.message_id] = row

    def advance(self, changed: Rows, message_id: MessageId, state: Literal["submitted", "queued"]) -> None:
        """It has come that far."""
        row = self.rows.get(message_id)
        if row is not None:
            self.rows[message_id] = changed[message_id] = msgspec.structs.replace(row, state=state)

    def told_by(self, changed: Rows, message_id: MessageId, record: str) -> None:
        """That record of the CLI's tells of it: a next life is not to take it for one of another message."""
        row = self.rows.get(message_id)
        if row is not None:
            self.rows[message_id] = changed[message_id] = msgspec.structs.replace(row, records=(*row.records, record))

    def undelivered(self, changed: Rows, message_id: MessageId, reason: str) -> events.Draft:
        """It ends here; the event that says so."""
        row = self.rows.pop(message_id, None)
        if row is not None:
            row = msgspec.structs.replace(row, state="undelivered", reason=reason)
            self._undelivered[message_id] = changed[message_id] = row
            forget_oldest(self._undelivered, UNDELIVERED_KEPT_MAX)
        self._forget(message_id)
        self.give_up(message_id, undelivered(reason))
        return events.Draft(
            body=events.MessageUndelivered(reason=reason), message_id=message_id, once=f"undelivered:{message_id}"
        )

    def settled(self, message_ids: Iterable[MessageId], completion: Completion) -> None:
        """Their turn ended so."""
        for message_id in message_ids:
            self.rows.pop(message_id, None)
            self._forget(message_id)
            for outcome in self._waiting.pop(message_id, ()):
                resolve(outcome, completion)

    def give_up(self, message_id: MessageId, error: LastwordError) -> None:
        """Who waits for it is told that nothing comes."""
        for outcome in self._waiting.pop(message_id, ()):
            fail(outcome, error)

    def give_up_all(self, error: LastwordError) -> None:
        """The same for every message."""
        for message_id in list(self._waiting):
            self.give_up(message_id, error)

    def _forget(self, message_id: MessageId) -> None:
        self.abandoned.discard(message_id)
        self.deliverable.discard(message_id)
        self.deadlines_mono.pop(message_id, None)
