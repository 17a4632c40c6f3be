"""The completion: the one last word of a turn (C02, C03)."""

from __future__ import annotations

from typing import Literal

import msgspec

from lastword.actors.core.ids import MessageId, SessionId, TurnId

Status = Literal["completed", "failed", "cancelled", "lost"]

ErrorKind = Literal[
    "provider_error",  # the CLI or the model said so, and nothing narrower fits
    "rate_limited",
    "authentication",
    "context_overflow",
    "refused",
    "overloaded",  # the model's service is overloaded (529 and its like)
    "invalid_request",  # the model's service refused the request (400)
    "not_delivered",  # proved never to have reached the CLI
    "launch_failed",  # the CLI ended or stayed unready before it could take the message
    "deadline",  # the host's own deadline passed (status cancelled)
    "interrupted",  # somebody cancelled (status cancelled)
    "provider_exited",  # the CLI is gone and its record, read to the end, holds no terminal record (status lost)
    "record_missing",  # its record was deleted or cut off under it, and the CLI is idle (status lost)
    "adapter_failed",  # the adapter raised again and again: nobody can read how the turn ended (status lost)
    "internal",  # the same of an actor of our own (status lost)
    "superseded",  # a later turn of the same conversation began without this one's end (status lost)
]

Source = Literal["transcript", "stream", "interrupt", "process_exit", "delivery", "reconciler"]

Origin = Literal[
    "host",  # sent through lastword
    "human_terminal",  # a person typed it in the attached pane
    "task_notification",  # the CLI started it itself when a background task ended
    "resubmitted_steer",
    "hook",
    "local_command",
    "unknown",
]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fact stands in the provider's own record.

    Attributes:
        source: path of the file, or name of the stream.
        offset: bytes from the start of the source to the start of the record.
        native_id: the provider's own id of that record, or "".
        native_at: the provider's own time stamp, Unix seconds, or None.
    """

    source: str
    offset: int
    native_id: str = ""
    native_at: float | None = None


class TurnError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn did not complete.

    Attributes:
        kind: from the closed list :data:`ErrorKind`.
        message: one sentence for a person; never needed to decide anything.
        native_kind: the provider's own word (``rate_limit``), or "".
        status_code: the HTTP status that the provider recorded, or None.
        resets_at: when a limit ends, Unix seconds, where the provider says so.
    """

    kind: ErrorKind
    message: str = ""
    native_kind: str = ""
    status_code: int | None = None
    resets_at: float | None = None


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When the turn crossed each boundary: the completion trace of C63. All Unix seconds, None where not crossed.

    ``native_started_at`` and ``native_ended_at`` are the provider's own stamps; the others are ours.
    ``committed_at`` is set by the journal in the very row that it commits.
    """

    accepted_at: float | None = None
    submitted_at: float | None = None
    bound_at: float | None = None
    terminal_seen_at: float | None = None
    committed_at: float | None = None
    native_started_at: float | None = None
    native_ended_at: float | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """How one turn ended, once and for ever.

    Attributes:
        status: ``completed``, ``failed``, ``cancelled`` or ``lost``.
        answer: the final answer itself when completed ("" with ``empty`` set when the CLI recorded none); what
            was said before an unfinished end is never passed off as an answer, so None otherwise.
        error: set for every status but ``completed``.
        source: what settled it.
        message_id: the host's message that started the turn; None for a turn that nobody sent through us.
        joined: further messages that the CLI took into this turn, in order.
        evidence: where the terminal record stands; None when no record settled it.
        cli_uncertified: on this version of its CLI the adapter was never seen to work (the host allowed it).
            Never of an API: it has no CLI, and was seen on an imitated service alone.
        background_pending: tasks that the CLI said were still running behind this turn.
    """

    turn_id: TurnId
    session_id: SessionId
    status: Status
    source: Source
    provider: str
    transport: str
    answer: str | None = None
    empty: bool = False
    error: TurnError | None = None
    message_id: MessageId | None = None
    joined: tuple[MessageId, ...] = ()
    origin: Origin = "host"
    parent_turn_id: TurnId | None = None
    native_turn_id: str = ""
    native_session_id: str = ""
    cli_version: str = ""
    cli_uncertified: bool = False
    background_pending: int = 0
    continued_by_hook: int = 0
    evidence: Evidence | None = None
    times: Times = Times()
