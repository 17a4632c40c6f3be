"""What a session is at one instant, for a host (C10, C33)."""

from __future__ import annotations

from typing import Literal

import msgspec

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.stall import Wait

SessionState = Literal["starting", "idle", "busy", "awaiting_user", "gone", "closed"]


class Dialog(msgspec.Struct, frozen=True, kw_only=True):
    """An open dialog; answer it with ``send(Answer(dialog_id, option))``, options counted from 1."""

    dialog_id: str
    kind: str
    question: str
    options: tuple[str, ...]


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """Where the CLI lives. ``attach`` is what a person types to watch it; ``pid`` 0 and no pane where it is gone."""

    native_session_id: str = ""
    pane: str = ""
    pid: int = 0
    pid_start: int = 0
    attach: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One session now.

    Attributes:
        state: ``busy`` while a turn is open or a message waits; ``awaiting_user`` while a dialog is open; ``gone``
            when the CLI is not running (the next message resumes its conversation).
        turn_id: the turn that runs or is being delivered, or None.
        waiting: messages accepted and not bound to a turn yet.
        seq: the session's last event known here.
        config_epoch: one more with each switch of provider or model.
        waits_for: what the open turn waits for now (C42), one whose end is not committed yet, or a message that has no
            turn yet; None where nothing is open. Once it is ``closed``, only the journal, where that cannot be written.
    """

    session_id: SessionId
    provider: str
    transport: TransportName
    cwd: str
    state: SessionState
    seq: int
    turn_id: TurnId | None = None
    waiting: tuple[MessageId, ...] = ()
    dialog: Dialog | None = None
    handle: Handle = Handle()
    cli_version: str = ""
    last_completion: Completion | None = None
    waits_for: Wait | None = None
    config_epoch: int = 1
