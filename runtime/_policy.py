"""The host's policy for dialogs, where nobody sits at the terminal (C25): asked off every actor's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from lastword.actors.core.ids import SessionId
from lastword.actors.core.snapshot import Dialog

DialogPolicy: TypeAlias = Callable[[str, Dialog], int | None]
"""(session_id, dialog) -> the option to choose, counted from 1; None leaves the dialog to a person."""
ASKED_MAX = 16
"""Calls of a policy under way at the same time; a further dialog is left to a person."""


class PolicyDesk:
    """Calls the policy on a daemon thread of its own for each dialog: one that hangs holds up no session.

    Who asks sets the bound: an answer that comes too late is not taken any more.
    """

    def __init__(self, policy: DialogPolicy) -> None:
        self._policy = policy
        self._room = threading.Semaphore(ASKED_MAX)

    def ask(self, session_id: SessionId, dialog: Dialog, answer: Callable[[object], None]) -> None:
        """Give ``answer`` the option, None, or the exception that came instead; from another thread, or at once."""
        if not self._room.acquire(blocking=False):
            answer(None)
            return

        def decide() -> None:
            try:
                answer(self._policy(session_id, dialog))
            except Exception as error:
                answer(error)
            finally:
                self._room.release()

        threading.Thread(target=decide, name="lastword-dialog-policy", daemon=True).start()
