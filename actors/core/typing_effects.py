"""What the typing machine takes and asks for: jobs, effects, reports, and what it needs of an adapter; values only."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from lastword.actors.core.adapter import DialogOpen, TypedText
from lastword.actors.core.ids import MessageId, TurnId


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One text to deliver. ``proved_by_record`` is False for a CLI's own command, which leaves no prompt.

    ``uncertain``: an earlier life of the host may have typed it, or not. It is never typed again on a guess: what the
    box shows of it is submitted; it is typed only once it is proved absent. ``entered``: that life pressed Enter.
    """

    message_id: MessageId
    typed: TypedText
    turn_id: TurnId | None = None
    proved_by_record: bool = True
    uncertain: bool = False
    entered: bool = False


# --- effects ----------------------------------------------------------------------------------------------------


class Look(msgspec.Struct, frozen=True):
    """Look at the pane and the registry now; ``number`` comes back with what was seen."""

    number: int


class LookIn(msgspec.Struct, frozen=True):
    """Look after that long; replaces an earlier one."""

    delay_s: float


class Paste(msgspec.Struct, frozen=True):
    """Paste these bytes, bracketed."""

    data: bytes


class Press(msgspec.Struct, frozen=True, kw_only=True):
    """Press keys. With ``guard`` the pane is looked at first, in the same round trip, and the press is dropped where
    the guard does not hold: ``landed`` (the box shows the job's text, no dialog), ``ours`` (it shows a text that we
    pasted, no dialog), ``dialog`` (that dialog is open, its cursor where it was).
    """

    keys: tuple[str, ...]
    what: Literal["enter", "interrupt", "clear", "answer"]
    number: int = 0
    guard: Literal["", "landed", "ours", "dialog"] = ""
    dialog_id: str = ""
    cursor: int = 0


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """Report: Enter went out for this message; ``at``: the Unix time taken just before it, where a key was pressed."""

    message_id: MessageId
    rewritten: tuple[str, ...]
    at: float | None = None


class WithdrawnReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report: it was never submitted and is no longer in the box."""

    message_id: MessageId


class NotDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """Report: proved not to have become a prompt."""

    message_id: MessageId
    kind: Literal["not_delivered", "launch_failed"]
    reason: str


class LeftBehind(msgspec.Struct, frozen=True, kw_only=True):
    """Report: an earlier life entered it, and no record that we know of shows it. That of a conversation that the CLI
    was in meanwhile, while no host looked, may.
    """

    message_id: MessageId


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """Report: a command that leaves no prompt has left the box."""

    message_id: MessageId


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """Report: the interrupt key is going out now."""

    turn_id: TurnId


class NothingToInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """Report: the box is idle and empty."""

    turn_id: TurnId


class DialogSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Report: a dialog is open."""

    dialog_id: str
    dialog: DialogOpen


class DialogGone(msgspec.Struct, frozen=True, kw_only=True):
    """Report: that dialog is no longer open. ``token``: of the answer of ours that was pressed, if one was."""

    dialog_id: str
    answered: bool
    token: str = ""


class AnswerResult(msgspec.Struct, frozen=True, kw_only=True):
    """Report: the answer was pressed, or the dialog is not the one that is open."""

    token: str
    applied: bool


class BecameReady(msgspec.Struct, frozen=True):
    """Report: the input box takes text for the first time."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Report: delivery waits for a person (once per reason)."""

    reason: Literal["draft", "copy_mode", "dialog"]


Report: TypeAlias = (
    Submitted
    | WithdrawnReport
    | NotDelivered
    | LeftBehind
    | Delivered
    | Interrupted
    | NothingToInterrupt
    | DialogSeen
    | DialogGone
    | AnswerResult
    | BecameReady
    | Held
)
"""What is told to the session, by whatever way the CLI is spoken to."""


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """Report of an API's loop: a turn runs, and the message waits here."""

    message_id: MessageId


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """Report of an API's loop: more text of an answer that is not whole yet. Live only."""

    native_turn: str
    native_message: str
    text: str


LoopReport: TypeAlias = Queued | Streamed
PaneEffect: TypeAlias = Look | LookIn | Paste | Press | Report


class TypingRules(Protocol):
    """The part of an adapter that typing needs."""

    def landed(self, typed: TypedText, draft: str) -> bool: ...

    def interrupt_keys(self) -> tuple[str, ...]: ...

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]: ...

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]: ...
