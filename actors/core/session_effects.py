"""What a session's core asks of its actor, which carries it out in order."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lastword.actors.core import turn as turns
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Evidence, Origin
from lastword.actors.core.pending import Stage


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A native turn without a turn of ours yet: open ``turn_id`` for it and tell it that it is bound."""

    turn_id: TurnId
    message_id: MessageId | None
    origin: Origin
    bound: turns.Bound


class ToTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Tell that turn."""

    turn_id: TurnId
    event: turns.TurnEvent


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """The record proves that this message was submitted: the pane may go on with the next. ``record``: see
    :func:`lastword.actors.core.pending.record_of`; "" where it is a prompt's, which is known by its native turn.
    """

    message_id: MessageId
    stage: Stage
    evidence: Evidence
    record: str = ""


class Undelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A message without a turn of its own was proved not to run."""

    message_id: MessageId
    reason: str


class Rebound(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI says that it is in another conversation: follow it. ``seen_at``: when it was last seen in the one before
    (its own stamp, Unix seconds): what it did since, it did where it is now. None where that was in an earlier life of
    the host: it may have moved, and worked there, while nobody looked.
    """

    native_session: str
    previous: str
    seen_at: float | None


class Moved(msgspec.Struct, frozen=True):
    """All that the conversation before holds is read and settled: from now on a restart is to follow the new one."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI is gone and its record was read to the end. ``redeliver``: messages that were never typed."""

    redeliver: tuple[MessageId, ...]
    exit_status: int | None


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Count a record that was not handled (unknown and handled ones are counted alike); ``times``: so many."""

    what: str
    times: int = 1


SessionEffect: TypeAlias = OpenTurn | ToTurn | Proved | Undelivered | Rebound | Moved | Gone | Count
