"""Messages that nobody will handle: counted for ever by reason, the latest ones kept by type name.

Never keeps a message itself: a dead letter must hold no prompt text and keep nothing alive.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable

import msgspec

RECENT_MAX = 1000
"""Dead letters remembered one by one; older ones live on in the counts only."""

REASONS_MAX = 1_000
"""Reasons counted apart; further ones are counted together."""
OTHER = "other"

DEAD = "dead"
"""Told to an actor that had already ended."""
STOPPED = "stopped"
"""Queued behind a stop."""
FAILED = "failed"
"""The very message whose handler raised; it is not tried again."""
BEHIND_FAILURE = "behind_failure"
"""Queued behind a message whose handler raised, where the actor was not restarted."""
SHUTDOWN = "shutdown"
"""Queued at an actor that the shutdown gave up on."""
MAILBOX_FULL = "mailbox_full"
"""Refused; the sender was told so."""
OWN = (DEAD, STOPPED, FAILED, BEHIND_FAILURE, SHUTDOWN, MAILBOX_FULL)
"""What any system may count; the other reasons are its actors' own words."""


class DeadLetter(msgspec.Struct, frozen=True):
    """One message that nobody handled.

    Attributes:
        reason: one of the words of this module, or the caller's own (``late_terminal``).
        recipient: the actor's name.
        message_type: type name only.
        at_wall_s: seconds since 1970.
    """

    reason: str
    recipient: str
    message_type: str
    at_wall_s: float


class DeadLetters:
    """The dead-letter office of one system; safe from any thread."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._recent: deque[DeadLetter] = deque(maxlen=RECENT_MAX)

    def record(self, reason: str, recipient: object, message: object, times: int = 1) -> None:
        """Count a message so many ``times``; ``recipient`` is a ref or a name, of ``message`` only the type is kept."""
        name = recipient if isinstance(recipient, str) else getattr(recipient, "name", str(recipient))
        letter = DeadLetter(reason, name, type(message).__name__, self._wall())
        with self._lock:
            if len(self._counts) >= REASONS_MAX and reason not in self._counts:
                reason = OTHER  # reasons may name what stands in a file: a hostile one costs no memory
            self._counts[reason] += times
            self._recent.append(letter)

    def counts(self) -> dict[str, int]:
        """How many so far, by reason."""
        with self._lock:
            return dict(self._counts)

    def recent(self) -> list[DeadLetter]:
        """The latest ones, oldest first, at most ``RECENT_MAX``."""
        with self._lock:
            return list(self._recent)
