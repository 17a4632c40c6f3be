"""What a session is given and told by its host and by itself: values only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.adapter import Adapter, LaunchRequest
from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt
from lastword.actors.core.events import Event
from lastword.actors.core.ids import (
    MessageId,
    SessionId,
)
from lastword.actors.core.limits import Limits
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import Journal, MessageRow, TurnRow
from lastword.actors.core.snapshot import Dialog
from lastword.actors.core.world import Endpoint, Files, Streams, Transport, Wakes
from lastword.actors.look_pace import LookPace
from lastword.actors.system.ref import Ref

AskPolicy: TypeAlias = Callable[[SessionId, Dialog, Callable[[object, str], None]], str]
"""Has the host's policy asked about a dialog, without waiting; says why it is not asked, or "". Its word comes by the
callback, from any thread: what it gave, or its fault.
"""


def _nobody(_: Event) -> None:
    """Nobody is told."""


def _never() -> int:
    """Never behind."""
    return 0


class SessionDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is given.

    Attributes:
        adapter, transport: of the same kind: both for panes, or both for children behind pipes.
        streams: where CLIs of the transport are behind pipes.
        ask_policy: None where the host has no policy for dialogs.
        live: tells an event that is not recorded.
        limits: beyond which a message is refused. behind: batches that wait for the journal's writer.
        looks: when a quiet turn may be looked into; one for all sessions of a runtime.
    """

    journal: Ref
    reader: Journal
    adapter: Adapter
    transport: Transport
    files: Files
    wakes: Wakes
    entropy: Callable[[int], bytes]
    streams: Streams | None = None
    ask_policy: AskPolicy | None = None
    live: Callable[[Event], None] = _nobody
    limits: Limits = Limits()
    behind: Callable[[], int] = _never
    looks: LookPace = msgspec.field(default_factory=LookPace)

    @property
    def waits_as(self) -> Literal["pending", "queued"]:
        """How a message is taken while a turn runs: the CLI decides, or it waits with us (C20)."""
        return "queued" if "injects_while_busy" in self.adapter.capabilities else "pending"


# --- commands from the host ---------------------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """A message. ``reply`` is set once it is committed (or refused); ``outcome`` once its turn is settled.
    ``fresh_id``: what it is called where the host has no name for it; nothing is on record under that.
    """

    text: str
    reply: Future[Delivery]
    message_id: MessageId | None = None
    fresh_id: MessageId | None = None
    run: bool = False
    deadline_s: float | None = None
    outcome: Future[Completion] | None = None


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """What is no message: an interrupt, an answer to a dialog, a command of the CLI's own."""

    what: Interrupt | Answer | Command
    reply: Future[Delivery]


class Abandon(msgspec.Struct, frozen=True, kw_only=True):
    """Who waited for this message's completion no longer does (Ctrl-C, a cancelled task): it is taken back if it was
    not typed, else the turn that it is in is interrupted. Never another one.
    """

    submit: Submit


class MessageDeadline(msgspec.Struct, frozen=True, kw_only=True):
    """The deadline of a message that owns no turn has passed."""

    message_id: MessageId


class CheckSettling(msgspec.Struct, frozen=True):
    """The reconciler's grace is over for turns that were told their end (C40)."""


class CheckStall(msgspec.Struct, frozen=True):
    """Look whether an open turn is quiet (C41)."""


class PolicySaid(msgspec.Struct, frozen=True, kw_only=True):
    """What the host's policy gave for the dialog of that question, or its fault."""

    number: int
    option: object
    fault: str = ""


class PolicyTimedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The host's policy has thought about that question for too long."""

    number: int


class GetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is the session now?"""


class CloseSession(msgspec.Struct, frozen=True, kw_only=True):
    """End it. ``forever`` closes the conversation; else only the CLI is ended, and a later runtime may resume it."""

    reply: Future[None]
    forever: bool = True
    grace_s: float = 2.0


class SwitchTo(msgspec.Struct, frozen=True, kw_only=True):
    """Go on with another provider or model, once nothing is open. ``reply`` is set when that is committed.

    Attributes:
        deps: what a session of that provider is given.
        request: how its CLI is launched; its ``native_session`` is a new conversation, for another provider or
            transport.
        config: opaque JSON: how it was asked for.
        cli_version: as that CLI printed it.
    """

    deps: SessionDeps
    request: LaunchRequest
    config: str
    previous_model: str
    cli_version: str
    reply: Future[None]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first message: the session's row is committed; start its CLI."""

    reason: str = "open"


class Rehydrate(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a session of an earlier life: what the journal knows, and its CLI if it still lives.

    Attributes:
        endpoint: the living CLI, or None: then its record is read to its end, and what ended meanwhile is settled.
        turns: unsettled ones; ``messages``: those without an end.
        epoch: of the CLI's process.
        dormant: nothing is open and no CLI runs: wait for the next message.
        last_at: when the last event before this life was recorded, Unix seconds.
        dialog: that an earlier life told as open, and not as closed.
    """

    endpoint: Endpoint | None
    turns: tuple[TurnRow, ...]
    messages: tuple[MessageRow, ...]
    joined: tuple[MessageRow, ...]
    last_completion: Completion | None
    seq: int
    epoch: int
    dormant: bool
    last_at: float
    dialog: Dialog | None = None
