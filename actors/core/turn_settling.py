"""How a turn ends: the one place where a completion is made. Until the journal has taken it the turn is settling,
whatever comes.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from lastword.actors.core.facts import RecordExhausted, TurnClosed
from lastword.actors.core.outcome import Completion, ErrorKind, Evidence, Source, Status, Times, TurnError
from lastword.actors.core.turn_drafts import orphaned_tool
from lastword.actors.core.turn_messages import (
    CancelTimer,
    Now,
    RecordCompletion,
    Step,
    TimerName,
    Turn,
    TurnState,
    Undeliverable,
)

_STATE_TIMERS: tuple[TimerName, ...] = (
    "reread",
    "interrupt_again",
    "interrupt_grace",
    "end_grace",
    "answer_grace",
    "record_gone",
)
_DISARM = tuple(CancelTimer(name=name) for name in (*_STATE_TIMERS, "deadline"))


def close(turn: Turn, event: TurnClosed, now: Now) -> Step:
    error = event.error
    if event.status == "cancelled":
        error = TurnError(kind=turn.cancel or "interrupted", message=f"{_who(turn)}, by the provider's own record")
    elif event.status == "lost" and error is None:
        error = TurnError(kind="superseded", message="a later turn began without this one's end")
    elif event.status == "failed" and error is None:
        error = TurnError(kind="provider_error")
    return settle(
        turn,
        now,
        event.status,
        _record_of(turn),
        answer=event.answer if event.status == "completed" else None,
        error=error,
        evidence=event.evidence,
        background_pending=event.background_pending,
    )


def settle_cancelled(turn: Turn, now: Now, *, source: Source) -> Step:
    kind: ErrorKind = turn.cancel or "interrupted"
    message = "the host's deadline passed" if kind == "deadline" else "cancelled by the host"
    return settle(turn, now, "cancelled", source, error=TurnError(kind=kind, message=message))


def fail_delivery(turn: Turn, event: Undeliverable, now: Now) -> Step:
    return settle(turn, now, "failed", "delivery", error=TurnError(kind=event.kind, message=event.reason))


def lose(turn: Turn, now: Now, kind: ErrorKind, message: str) -> Step:
    source: Source = "process_exit" if kind == "provider_exited" else _record_of(turn)
    return settle(turn, now, "lost", source, error=TurnError(kind=kind, message=message))


def settle(
    turn: Turn,
    now: Now,
    status: Status,
    source: Source,
    *,
    answer: str | None = None,
    error: TurnError | None = None,
    evidence: Evidence | None = None,
    background_pending: int = 0,
) -> Step:
    if status == "completed" and answer is None:
        answer = ""
    completion = Completion(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        status=status,
        source=source,
        provider=turn.provider,
        transport=turn.transport,
        answer=answer,
        empty=status == "completed" and not answer,
        error=error if status != "completed" else None,
        message_id=turn.message_id,
        joined=turn.joined,
        origin=turn.origin,
        parent_turn_id=turn.parent_turn_id,
        native_turn_id=turn.native_turn,
        native_session_id=turn.native_session,
        cli_version=turn.cli_version,
        cli_uncertified=turn.certified is not None and turn.cli_version not in turn.certified,
        background_pending=background_pending,
        continued_by_hook=turn.continued_by_hook,
        evidence=evidence,
        times=Times(
            accepted_at=turn.accepted_at,
            submitted_at=turn.submitted_at,
            bound_at=turn.bound_at,
            terminal_seen_at=now.wall_s,
            native_started_at=turn.native_started_at,
            native_ended_at=evidence.native_at if evidence is not None else None,
        ),
    )
    after = msgspec.structs.replace(turn, state=TurnState.SETTLING, completion=completion)
    orphans = tuple(orphaned_tool(turn, call_id, tool) for call_id, tool in turn.tools.items())
    return after, (*orphans, RecordCompletion(completion=completion), *_DISARM)


def ended(turn: Turn, exhausted: RecordExhausted, record: str) -> str:
    who = "the host that asked the model" if turn.transport == "api" else "the CLI"
    if exhausted.unread:
        return f"{who} ended and its record could not be read, for as long as that was tried: {exhausted.unread}"
    return f"{who} ended and its record {record}"


def _who(turn: Turn) -> str:
    """Who cancelled it; where it was not us, the record does not tell."""
    match turn.cancel:
        case "deadline":
            return "interrupted as the host's deadline passed"
        case "interrupted":
            return "interrupted by the host"
        case None:
            return "interrupted, though not by the host"
        case _:
            assert_never(turn.cancel)


def _record_of(turn: Turn) -> Source:
    """What the provider's own record is, over that transport: its file, or what it said to us."""
    return "stream" if turn.transport in ("structured", "api") else "transcript"
