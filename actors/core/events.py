"""What hosts see: typed events, ordered per session by a gapless ``seq``, durable and resumable (C30, C33).

One struct each, tag in past tense. Stored structs: new fields have defaults, tags are never renamed or reused.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, Evidence, Origin

Accepted = Literal["started_turn", "pending", "queued", "applied", "nothing_to_do"]


class Body(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all event bodies."""


class SessionOpened(Body, frozen=True, kw_only=True, tag="session_opened"):
    """The session exists. ``resumed``: it continues a conversation that the provider already had."""

    provider: str
    transport: str
    cwd: str
    native_session_id: str
    resumed: bool = False


class ProviderStarted(Body, frozen=True, kw_only=True, tag="provider_started"):
    """The CLI process of the session was launched (``reason``: ``open``, ``resume``, ``switch``)."""

    pid: int
    pane: str
    reason: str = "open"
    cli_version: str = ""


class MessageAccepted(Body, frozen=True, kw_only=True, tag="message_accepted"):
    """A message was accepted and committed; the turn id is given where the session was idle (C20)."""

    taken: Accepted
    transport: str
    chars: int = 0


class MessageSubmitted(Body, frozen=True, kw_only=True, tag="message_submitted"):
    """The text was typed and submitted. ``rewritten`` names the CLI's own declared rewritings that apply."""

    rewritten: tuple[str, ...] = ()


class MessageQueued(Body, frozen=True, kw_only=True, tag="message_queued"):
    """The CLI's record shows that the message waits in its own queue."""

    evidence: Evidence | None = None


class MessageJoined(Body, frozen=True, kw_only=True, tag="message_joined"):
    """The CLI took the message into the running turn, whose completion answers it."""

    evidence: Evidence | None = None


class MessageMoved(Body, frozen=True, kw_only=True, tag="message_moved"):
    """The CLI moved the message from one turn to another (C19)."""

    from_turn_id: TurnId | None = None
    evidence: Evidence | None = None


class MessageUndelivered(Body, frozen=True, kw_only=True, tag="message_undelivered"):
    """A message that owns no turn ended here, proved never to have been run (C20)."""

    reason: str
    detail: str = ""


class TurnStarted(Body, frozen=True, kw_only=True, tag="turn_started"):
    """The provider's record shows that the turn began."""

    origin: Origin = "host"
    text: str | None = None
    native_turn_id: str = ""
    evidence: Evidence | None = None


class ProviderRetrying(Body, frozen=True, kw_only=True, tag="provider_retrying"):
    """The CLI tries again by itself."""

    message: str = ""


class AssistantMessage(Body, frozen=True, kw_only=True, tag="assistant_message"):
    """One complete assistant message within the turn; not the last word."""

    text: str
    native_message_id: str = ""


class AssistantDelta(Body, frozen=True, kw_only=True, tag="assistant_delta"):
    """More text of an assistant message that is not whole yet. Live only: never on record, ``seq`` 0 (C30).

    ``assistant_message`` brings the whole. A new ``native_message_id`` begins a new text: where an answer was cut and
    is asked for again, what was streamed of it before is void.
    """

    text: str
    native_message_id: str = ""


class ToolStarted(Body, frozen=True, kw_only=True, tag="tool_started"):
    """A tool began; ``arguments`` is JSON text."""

    call_id: str
    name: str
    arguments: str = ""


class ToolFinished(Body, frozen=True, kw_only=True, tag="tool_finished"):
    """That tool ended. ``duration_s`` comes from the record's own stamps, None where it has none."""

    call_id: str
    name: str
    status: Literal["ok", "error", "no_result"]
    result: str = ""
    duration_s: float | None = None


class DialogOpened(Body, frozen=True, kw_only=True, tag="dialog_opened"):
    """A dialog of the CLI waits for a person (C25)."""

    dialog_id: str
    kind: str
    question: str
    options: tuple[str, ...] = ()


class DialogClosed(Body, frozen=True, kw_only=True, tag="dialog_closed"):
    """That dialog is gone; ``by`` says who answered, where we know."""

    dialog_id: str
    by: Literal["host", "policy", "elsewhere"] = "elsewhere"


class CompletionReached(Body, frozen=True, kw_only=True, tag="unified_completion"):
    """The one terminal event of the turn."""

    completion: Completion


class UsageReported(Body, frozen=True, kw_only=True, tag="usage_reported"):
    """Enrichment; comes after the completion and never holds it up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class StallDiagnosed(Body, frozen=True, kw_only=True, tag="stall_diagnosed"):
    """What a silent turn is waiting for, with evidence. Settles nothing (C42).

    ``kind`` is a word of :data:`lastword.actors.core.stall.StallKind`, for programs; ``evidence`` says where in the
    provider's record it stands.
    """

    waits_for: str
    elapsed_s: float
    quiet_s: float
    evidence: str = ""
    kind: str = ""
    provider: str = ""


class InvariantViolated(Body, frozen=True, kw_only=True, tag="invariant_violation"):
    """The reconciler found a state that must not be, and repaired it by an ordinary fact (C40)."""

    what: str
    repair: str = ""


class SessionRebound(Body, frozen=True, kw_only=True, tag="session_rebound"):
    """The CLI is in another native conversation now (``/clear``); the session of ours is the same."""

    native_session_id: str
    previous: str = ""


class SessionSwitched(Body, frozen=True, kw_only=True, tag="session_switched"):
    """The session has another provider or model from here on (C13). The process before is gone, and all that it had to
    say comes before this. ``native_session_id`` is ``previous``'s where the conversation goes on (another model of the
    same provider), else a new one, which is told nothing of what was said before; "" where the provider will name it.
    """

    config_epoch: int
    provider: str
    transport: str
    model: str = ""
    native_session_id: str = ""
    previous_provider: str = ""
    previous_transport: str = ""
    previous_model: str = ""
    previous_native_session_id: str = ""


class SessionGone(Body, frozen=True, kw_only=True, tag="session_gone"):
    """The CLI's process is gone; the next message resumes its conversation."""

    reason: str
    exit_status: int | None = None


class SessionClosed(Body, frozen=True, kw_only=True, tag="session_closed"):
    """The session is closed; the last event of its stream."""

    reason: str = ""


EventBody: TypeAlias = (
    SessionOpened
    | ProviderStarted
    | MessageAccepted
    | MessageSubmitted
    | MessageQueued
    | MessageJoined
    | MessageMoved
    | MessageUndelivered
    | TurnStarted
    | ProviderRetrying
    | AssistantMessage
    | AssistantDelta
    | ToolStarted
    | ToolFinished
    | DialogOpened
    | DialogClosed
    | CompletionReached
    | UsageReported
    | StallDiagnosed
    | InvariantViolated
    | SessionRebound
    | SessionSwitched
    | SessionGone
    | SessionClosed
)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope. Key: (session_id, seq); ``seq`` starts at 1 and has no gaps; 0 is an event that lives only now.

    Attributes:
        at: when we recorded it, Unix seconds.
        native_at: the provider's own stamp of what it tells, Unix seconds, or None.
    """

    session_id: SessionId
    seq: int
    at: float
    body: EventBody
    turn_id: TurnId | None = None
    message_id: MessageId | None = None
    native_at: float | None = None

    @property
    def ephemeral(self) -> bool:
        """Whether it is live only: told to who listens, never recorded, never told again."""
        return self.seq == 0

    @property
    def type(self) -> str:
        """The body's tag, e.g. ``unified_completion``."""
        return str(self.body.__struct_config__.tag)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is to be recorded: it has no ``seq`` yet.

    Attributes:
        once: natural key of what it tells, unique within the session; the journal records the first event with
            that key and nothing for the next (replaying a transcript is harmless). "" for no key.
    """

    body: EventBody
    turn_id: TurnId | None = None
    message_id: MessageId | None = None
    native_at: float | None = None
    once: str = ""
