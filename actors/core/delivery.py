"""What a host may submit and the one acknowledgement that it gets (C20). Differences between providers are values."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.events import Accepted
from lastword.actors.core.ids import MessageId, SessionId, TurnId

TransportName = Literal["tmux", "structured", "api", "memory"]


class Interrupt(msgspec.Struct, frozen=True):
    """Cancel the running turn. Idempotent; ``turn_id`` narrows it to that very turn."""

    turn_id: TurnId | None = None


class Answer(msgspec.Struct, frozen=True):
    """Answer an open dialog: ``option`` is 1-based. Nothing else ever types into one."""

    dialog_id: str
    option: int


class Command(msgspec.Struct, frozen=True):
    """A command of the CLI's own that starts no turn, e.g. ``/compact`` or ``/clear`` (capability-gated)."""

    text: str


Sendable: TypeAlias = str | Interrupt | Answer | Command


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The acknowledgement of an accepted message, given once it is committed.

    Attributes:
        taken: ``started_turn`` (idle session; ``turn_id`` is given), ``pending`` (the CLI is busy and decides;
            events bind it later), ``queued`` (API), ``applied`` or ``nothing_to_do`` (for what is no message).
        transport: the transport that is really used.
        seq: the session's event count at acceptance: ``events(after=seq)`` shows all that follows.
        duplicate: this ``message_id`` was accepted before; the first acknowledgement is given again.
    """

    session_id: SessionId
    message_id: MessageId
    taken: Accepted
    transport: TransportName
    seq: int
    turn_id: TurnId | None = None
    duplicate: bool = False
