"""How much may wait at the same time before more is refused at the door (docs/adr/0016)."""

from __future__ import annotations

import msgspec

from lastword.actors.core.errors import UsageError

WAITING_MAX = 1_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of admission: counts. What is beyond one is refused as ``overloaded``: nothing of it was accepted, and the
    same ``message_id`` may be sent again. What was accepted is never dropped.

    Attributes:
        waiting_max: messages of one session that are accepted and not yet in a turn.
        calls_max: calls of the host that wait for one session's actor.
        journal_behind_max: batches of all sessions that wait for the journal's writer: a slow disk.
        sessions_max: sessions that have an actor in this runtime.
    """

    waiting_max: int = WAITING_MAX
    calls_max: int = 1_000
    journal_behind_max: int = 10_000
    sessions_max: int = 20_000

    def check(self) -> None:
        """Refuse what is no limit.

        Raises:
            UsageError: ``usage``.
        """
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError("usage", f"{name} is an int of at least 1, not {value!r}")


__all__ = ["WAITING_MAX", "Limits"]
