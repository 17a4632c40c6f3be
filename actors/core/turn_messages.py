"""What a turn is, what it is told and what it asks for: the words of the turn machine, values only."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core import events
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    CompactionRecorded,
    PromptRecorded,
    ProviderRetrying,
    RecordExhausted,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
)
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, Evidence, Origin
from lastword.actors.core.ports import TurnRow


class TurnState(enum.StrEnum):
    """States from the caller's point of view; details are fields of :class:`Turn`."""

    ACCEPTED = "accepted"
    SUBMITTED = "submitted"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SETTLING = "settling"
    SETTLED = "settled"


CancelReason = Literal["interrupted", "deadline"]
TimerName = Literal[
    "deadline",
    "reread",
    "interrupt_again",
    "interrupt_grace",
    "end_grace",
    "record_retry",
    "answer_grace",
    "record_gone",
]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that has begun and not ended."""

    name: str
    started_at: float | None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one turn. ``*_at`` in Unix seconds."""

    turn_id: TurnId
    session_id: SessionId
    provider: str
    transport: TransportName
    message_id: MessageId | None = None
    origin: Origin = "host"
    parent_turn_id: TurnId | None = None
    epoch: int = 1
    state: TurnState = TurnState.ACCEPTED
    native_turn: str = ""
    native_session: str = ""
    cli_version: str = ""
    certified: tuple[str, ...] | None = None  # versions; None: not known here
    accepted_at: float | None = None
    submitted_at: float | None = None
    bound_at: float | None = None
    native_started_at: float | None = None
    deadline_at: float | None = None
    joined: tuple[MessageId, ...] = ()
    tools: Mapping[str, Tool] = {}
    continued_by_hook: int = 0
    cancel: CancelReason | None = None
    withdrawing: bool = False
    withdrawals: int = 0
    presses: int = 0  # repeats of the first one; asked for, whether or not the pane could press
    interrupted_at: float | None = None
    pressing_early: bool = False  # the key was asked for again ahead of its time: the turn began behind the first one
    moots: int = 0
    idle_since: float | None = None
    reread_armed: bool = False
    rereading: bool = False
    seeking_end: bool = False  # the CLI is idle since long, and its record is being looked at once more
    standing: AssistantSaid | None = None
    ending: bool = False
    completion: Completion | None = None


# --- what a turn is told --------------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """The first message: arm the deadline."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The session found the turn's prompt in the provider's record."""

    prompt: PromptRecorded
    native_session: str = ""
    cli_version: str = ""


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI moved this turn's message into another native turn, whose end is now this turn's end too (C19)."""

    native_turn: str
    from_turn_id: TurnId | None
    evidence: Evidence


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The text was typed and Enter was pressed."""

    rewritten: tuple[str, ...] = ()


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A further message was taken into this turn."""

    message_id: MessageId
    evidence: Evidence


class Undeliverable(msgspec.Struct, frozen=True, kw_only=True):
    """Proved: the text never became a prompt, or the CLI never came up."""

    kind: Literal["not_delivered", "launch_failed"]
    reason: str


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """Stop the turn. Idempotent."""

    reason: CancelReason = "interrupted"


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The text was never typed and will not be."""


class InterruptPressed(msgspec.Struct, frozen=True, kw_only=True):
    """The interrupt key went out; ``at`` is the Unix time taken just before it."""

    at: float


class LookedAgain(msgspec.Struct, frozen=True, kw_only=True):
    """The record was looked at since :class:`LookAgain` asked for it, and what it held was told before this. ``read``:
    it was read to its end, or is seen not to be there; False: it could not be looked at, which proves nothing.
    """

    read: bool = True


class InterruptMoot(msgspec.Struct, frozen=True, kw_only=True):
    """There was nothing to interrupt: the CLI's input box is idle. A hint, which starts the re-read."""


class TimerFired(msgspec.Struct, frozen=True, kw_only=True):
    """One of this turn's own timers."""

    name: TimerName


class CompletionRecorded(msgspec.Struct, frozen=True, kw_only=True):
    """The journal: this completion stands. ``won`` is False where an earlier one stood already."""

    completion: Completion
    won: bool


class RecordingFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The journal could not take the completion now."""


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's own registry says that it is in another conversation; this one was read to its end. Or, before the
    turn was bound, ``why`` it will never be known which record is its own.
    """

    why: str = ""


TurnFact: TypeAlias = (
    AssistantSaid
    | ToolStarted
    | ToolFinished
    | ProviderRetrying
    | TurnContinued
    | TurnClosed
    | CompactionRecorded
    | CliStatusSeen
    | RecordExhausted
)
TurnEvent: TypeAlias = (
    Begin
    | Bound
    | Adopted
    | Submitted
    | Joined
    | Undeliverable
    | Cancel
    | Withdrawn
    | InterruptPressed
    | InterruptMoot
    | LookedAgain
    | TimerFired
    | CompletionRecorded
    | RecordingFailed
    | Superseded
    | TurnFact
)

# --- what a turn asks for ---------------------------------------------------------------------------------------


class Emit(msgspec.Struct, frozen=True, kw_only=True):
    """Record an event."""

    draft: events.Draft


class Persist(msgspec.Struct, frozen=True, kw_only=True):
    """Write the turn's row."""

    row: TurnRow


class RecordCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Offer the completion to the journal: inserted, or nothing."""

    completion: Completion


class Withdraw(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the endpoint to forget the message if it was not typed."""

    message_id: MessageId


class PressInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """Press the provider's interrupt key."""


class EndEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """End the CLI: it ignores interrupts."""


class LookAgain(msgspec.Struct, frozen=True, kw_only=True):
    """Have the record read to its end now, whatever hints were lost."""


class SetTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Arm (or re-arm) a timer of the turn's own."""

    name: TimerName
    delay_s: float


class CancelTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Disarm it."""

    name: TimerName


class RecordLate(msgspec.Struct, frozen=True, kw_only=True):
    """Count and trace a fact that came after the end (C06)."""

    what: str


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the session and stop."""

    completion: Completion


Effect: TypeAlias = (
    Emit
    | Persist
    | RecordCompletion
    | Withdraw
    | PressInterrupt
    | EndEndpoint
    | LookAgain
    | SetTimer
    | CancelTimer
    | RecordLate
    | Finish
)


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The instant of a step: ``mono_s`` for durations, ``wall_s`` for stamps."""

    mono_s: float
    wall_s: float


Step: TypeAlias = tuple[Turn, tuple[Effect, ...]]
