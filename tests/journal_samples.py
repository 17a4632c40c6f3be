"""Small rows and batches for tests of the journal."""

from __future__ import annotations

from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import AssistantMessage, Draft, SessionClosed
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, TurnError
from lastword.actors.core.ports import Batch, MessageRow, Recorded, SessionRow, TurnRow

S1 = SessionId("s_1")
S2 = SessionId("s_2")


def session(session_id: str = "s_1", **fields) -> SessionRow:
    fields.setdefault("native_session", "n")
    return SessionRow(session_id=SessionId(session_id), provider="fake", transport="memory", cwd="/", **fields)


def message(message_id: str, session_id: str = "s_1", text: str = "hello", **fields) -> MessageRow:
    return MessageRow(
        message_id=MessageId(message_id), session_id=SessionId(session_id), text=text, taken="started_turn", **fields
    )


def turn(turn_id: str, session_id: str = "s_1", **fields) -> TurnRow:
    fields.setdefault("message_id", None)
    return TurnRow(turn_id=TurnId(turn_id), session_id=SessionId(session_id), **fields)


def completion(turn_id: str, session_id: str = "s_1", answer: str | None = "done", **fields) -> Completion:
    if fields.get("status", "completed") != "completed":
        answer = None
        fields.setdefault("error", TurnError(kind="provider_error"))
    return Completion(
        turn_id=TurnId(turn_id),
        session_id=SessionId(session_id),
        source="transcript",
        provider="fake",
        transport="memory",
        answer=answer,
        **{"status": "completed", **fields},
    )


def said(text: str = "hm", once: str = "", turn_id: str | None = None) -> Draft:
    return Draft(body=AssistantMessage(text=text), once=once, turn_id=turn_id and TurnId(turn_id))


def closing() -> Draft:
    return Draft(body=SessionClosed(reason="asked"))


def saying(n: int = 1, session_id: str = "s_1", start: int = 0) -> Batch:
    drafts = tuple(said(str(start + i)) for i in range(n))
    return Batch(session_id=SessionId(session_id), drafts=drafts)


def ok(result: Recorded | JournalError) -> Recorded:
    assert isinstance(result, Recorded), result
    return result


def commit(journal, batch: Batch, at: float = 100.0) -> Recorded:
    return ok(journal.record([batch], at)[0])
