"""What a session tells the actor that speaks to its CLI, and what that one reports: the same for every transport.

The CLI in a pane is spoken to by :class:`~lastword.actors.pane.PaneActor`, one behind a pipe by
:class:`~lastword.actors.stdio.StdioActor`, a model's API by :class:`~lastword.actors.api.ApiActor`; the session does
not know which.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from lastword.actors.core.adapter import LaunchRecipe, LaunchRequest, TypedText
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.talk import TalkReport
from lastword.actors.core.typing_effects import Job, LoopReport
from lastword.actors.core.world import Endpoint

# --- commands -----------------------------------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Start the CLI."""

    name: str
    recipe: LaunchRecipe
    request: LaunchRequest
    epoch: int


class Attach(msgspec.Struct, frozen=True, kw_only=True):
    """Take over a CLI that lives already. ``command``, ``texts``: what may stand in its input box, typed by us."""

    endpoint: Endpoint
    request: LaunchRequest
    epoch: int
    command: str = ""
    texts: tuple[TypedText, ...] = ()


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Hand over this text after those before it."""

    job: Job


class Withdraw(msgspec.Struct, frozen=True, kw_only=True):
    """Forget it, if it was not handed over."""

    message_id: MessageId


class PressInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """Interrupt that turn; ``native_turn``: its name in the record, once it is bound."""

    turn_id: TurnId
    native_turn: str = ""


class AnswerDialog(msgspec.Struct, frozen=True, kw_only=True):
    """Answer that dialog; ``token`` comes back."""

    token: str
    dialog_id: str
    option: int


class Prove(msgspec.Struct, frozen=True, kw_only=True):
    """The record shows that the message was submitted."""

    message_id: MessageId


class Nudge(msgspec.Struct, frozen=True):
    """The CLI's registry changed: look."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """That name of the conversation is on record: what is typed there now can be found again."""

    epoch: int
    native_session: str


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The session knows the process of that epoch, and it is on its way to the record: another can find it. One that is
    not known so ends with its mouth.
    """

    epoch: int


class MovedUnseen(msgspec.Struct, frozen=True, kw_only=True):
    """It is found in another conversation than the one on record, and may have been in others between: what an earlier
    life typed may stand where nobody looks.
    """

    epoch: int


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """End the CLI."""

    grace_s: float


MouthCommand: TypeAlias = (
    Open
    | Attach
    | Deliver
    | Withdraw
    | PressInterrupt
    | AnswerDialog
    | Prove
    | Nudge
    | Known
    | Kept
    | MovedUnseen
    | Close
)

# --- reports to the session -------------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI's process runs."""

    epoch: int
    pane_id: str
    pid: int
    pid_start: int
    attach: tuple[str, ...] = ()


class OpenFailed(msgspec.Struct, frozen=True, kw_only=True):
    """It could not be started."""

    epoch: int
    error: LastwordError


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened on the way to the CLI; ``at`` is the Unix time of it."""

    TRACED_BY: ClassVar[str] = "report"

    epoch: int
    report: TalkReport | LoopReport
    at: float


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI's process is gone. ``last_words``: what it showed or wrote where it ended before it was ready."""

    epoch: int
    exit_status: int | None
    was_ready: bool
    last_words: str


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """It was closed as asked."""

    epoch: int


MouthReport: TypeAlias = Opened | OpenFailed | Said | Gone | Closed
