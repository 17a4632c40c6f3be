"""What a parent is told about a child, what a watcher is told about a death, and the restart policy.

A failure is an exception out of a ``tell`` handler or out of ``started``. An exception out of an ``ask``
handler belongs to the asker and is no failure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from lastword.actors.system.ref import Ref

EndReason = Literal["stopped", "failed", "killed"]
"""``killed``: given up on while its handler was still running (shutdown deadline, or its parent's bound); its
``stopped`` hook runs if the handler comes back."""


class ChildFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Told to the parent on every failure of a child.

    Attributes:
        ref: the child. After a restart it is still good; else its name is free again when this arrives.
        epoch: which incarnation failed, from 1.
        error: what was raised; may hold prompt text in its message, so never log it whole.
        message_type: type name of the message it failed on, or ``started`` / ``stopped`` for the hooks.
        restarted: a new incarnation takes over under the same ref.
        quarantined: it failed too often and was stopped; told once.
    """

    ref: Ref
    epoch: int
    error: BaseException
    message_type: str
    restarted: bool = False
    quarantined: bool = False


class Terminated(msgspec.Struct, frozen=True, kw_only=True):
    """Told exactly once to each watcher, after every message that the dead actor had told it."""

    ref: Ref
    reason: EndReason


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a failure: ``stop``, or ``restart`` at most ``max_restarts`` times in ``within_s``
    seconds.

    A restart makes a new object from the class and arguments given to ``spawn``; nothing of the old memory
    is kept, the mailbox is. The message that failed is not tried again. One failure more than allowed means
    quarantine: stopped.
    """

    restart: Literal["stop", "restart"] = "stop"
    max_restarts: int = 3
    within_s: float = 60.0


STOP_ON_FAILURE = Supervision()


class RestartLedger:
    """Remembers the instants of the restarts inside the window of one actor.

    Attributes:
        refused: a restart was asked for beyond what the policy allows.
    """

    __slots__ = ("_at_s", "_policy", "refused")

    def __init__(self, policy: Supervision) -> None:
        self._policy = policy
        self._at_s: deque[float] | None = None
        self.refused = False

    def grant(self, now_s: float) -> bool:
        """Whether one more restart is allowed at this instant; a granted one is counted."""
        policy = self._policy
        if policy.restart != "restart":
            return False
        if self._at_s is None:
            self._at_s = deque()
        while self._at_s and now_s - self._at_s[0] > policy.within_s:
            self._at_s.popleft()
        if len(self._at_s) >= policy.max_restarts:
            self.refused = True
            return False
        self._at_s.append(now_s)
        return True
