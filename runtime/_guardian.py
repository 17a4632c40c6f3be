"""Guardian: the parent of all sessions' actors. One that fails is told of, and replaced or given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Protocol, assert_never

import msgspec

from lastword.actors.core import events
from lastword.actors.core.errors import JournalError
from lastword.actors.core.fault import Fault
from lastword.actors.core.ids import SessionId
from lastword.actors.core.outcome import Completion, Times, TurnError
from lastword.actors.core.ports import Batch, MessageRow, SessionRow, TurnRow
from lastword.actors.journal import Commit, CommitFailed, Committed
from lastword.actors.system.actor import Actor
from lastword.actors.system.ref import Ref
from lastword.actors.system.supervision import ChildFailed

GUARDIAN_RETRY_S = 0.5


class Keeper(Protocol):
    """Who holds the sessions; called on the guardian's thread."""

    def failed(self, session_id: SessionId, error: BaseException) -> Batch:
        """Its actor failed of that; what is to be told of it."""
        ...

    def succeed(self, session_id: SessionId) -> Sequence[Batch]:
        """All that it had sent, and that it failed, is on record: another takes its place; or, where it is given up,
        the last words of what was open.
        """
        ...

    def given_up(self, session_id: SessionId) -> None:
        """Its last words are on record, or there are none."""
        ...


class Guardian(Actor):
    """Has each session's actor that fails replaced, once all that it had sent to the journal is on record; else its
    successor would not know of it. Decides nothing else, and outlives whatever its keeper raises.
    """

    def __init__(self, journal: Ref, keeper: Keeper) -> None:
        super().__init__()
        self._journal = journal
        self._keeper = keeper
        self._waiting: dict[int, tuple[Batch, Callable[[], None]]] = {}
        self._tokens = count(1)

    def receive(self, message: ChildFailed | Committed | CommitFailed | _AskAgain) -> None:
        match message:
            case ChildFailed():
                self._failed(SessionId(message.ref.name), message.error)
            case Committed():
                _, then = self._waiting.pop(message.token)
                then()
            case CommitFailed():
                self.after(GUARDIAN_RETRY_S, _AskAgain(*self._waiting.pop(message.token)))
            case _AskAgain():
                self._commit(message.batch, message.then)
            case _:
                assert_never(message)

    def _failed(self, session_id: SessionId, error: BaseException) -> None:
        try:
            batch = self._keeper.failed(session_id, error)
        except JournalError:
            batch = Batch(session_id=session_id)
        self._commit(batch, partial(self._succeed, session_id))

    def _succeed(self, session_id: SessionId) -> None:
        try:
            words = list(self._keeper.succeed(session_id))
        except JournalError:
            self.after(GUARDIAN_RETRY_S, _AskAgain(Batch(session_id=session_id), partial(self._succeed, session_id)))
        except Exception as error:
            self._failed(session_id, error)
        else:
            self._tell_all(session_id, words)

    def _tell_all(self, session_id: SessionId, words: list[Batch]) -> None:
        """One after the other: each is tried until it is on record."""
        if words:
            self._commit(words[0], partial(self._tell_all, session_id, words[1:]))
        else:
            self._keeper.given_up(session_id)

    def _commit(self, batch: Batch, then: Callable[[], None]) -> None:
        """It is answered behind all that was sent before it."""
        token = next(self._tokens)
        self._waiting[token] = (batch, then)
        self._journal.tell(Commit(batch=batch, reply_to=self.ref, token=token))


class _AskAgain(msgspec.Struct, frozen=True):
    """The journal could not say; a moment later."""

    batch: Batch
    then: Callable[[], None]


def last_words(
    row: SessionRow,
    turns: Iterable[TurnRow],
    messages: Sequence[MessageRow],
    fault: Fault,
    cli_version: str = "",
) -> list[Batch]:
    """The ends of all that is open in a session that is given up: nobody can read any more how a turn ended, so each is
    ``lost``; what owns no turn is undelivered.
    """
    words = [_lost(row, turn, messages, fault, cli_version) for turn in turns]
    ended = [
        msgspec.structs.replace(each, state="undelivered", reason=fault.kind)
        for each in messages
        if each.turn_id is None and each.state in ("accepted", "submitted", "queued")
    ]
    undelivered = [
        events.Draft(
            body=events.MessageUndelivered(reason=fault.kind, detail=fault.what),
            message_id=each.message_id,
            once=f"undelivered:{each.message_id}",
        )
        for each in ended
    ]
    gone = events.Draft(body=events.SessionGone(reason=fault.kind))
    words.append(
        Batch(
            session_id=row.session_id,
            session=msgspec.structs.replace(row, handle="{}", cursor=None),
            messages=tuple(ended),
            drafts=(*undelivered, gone),
        )
    )
    return words


def _lost(row: SessionRow, turn: TurnRow, messages: Sequence[MessageRow], fault: Fault, cli_version: str) -> Batch:
    joined = (each for each in messages if each.turn_id == turn.turn_id and each.state == "joined")
    return Batch(
        session_id=row.session_id,
        completion=Completion(
            turn_id=turn.turn_id,
            session_id=row.session_id,
            status="lost",
            source="reconciler",
            provider=row.provider,
            transport=row.transport,
            error=TurnError(kind=fault.kind, message=f"how it ended can be read no more: {fault.what}"),
            message_id=turn.message_id,
            joined=tuple(each.message_id for each in joined),
            origin=turn.origin,
            parent_turn_id=turn.parent_turn_id,
            native_turn_id=turn.native_turn,
            native_session_id=row.native_session,
            cli_version=cli_version,
            times=Times(accepted_at=turn.accepted_at, submitted_at=turn.submitted_at, bound_at=turn.bound_at),
        ),
    )
