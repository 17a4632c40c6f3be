"""Why the actors of sessions failed, how often, and that another has taken the place of one."""

from __future__ import annotations

import threading

from lastword.actors.core.fault import Fault
from lastword.actors.core.ids import SessionId


class Faults:
    """Of all sessions of one runtime. Safe from any thread.

    Attributes:
        moved: told whenever an actor of a session has taken the place of one that failed, or none will.
    """

    def __init__(self) -> None:
        self.moved = threading.Condition()
        self._lock = threading.Lock()
        self._last: dict[SessionId, Fault] = {}
        self._times: dict[SessionId, int] = {}

    def count(self, session_id: SessionId, fault: Fault) -> int:
        """Its actor failed of that; how often it has failed so far."""
        with self._lock:
            times = self._times[session_id] = self._times.get(session_id, 0) + 1
            self._last[session_id] = fault
            return times

    def last(self, session_id: SessionId) -> tuple[Fault, int] | None:
        """What its actor failed of last, and how often it has failed; None: it never failed, or is forgotten."""
        with self._lock:
            fault = self._last.get(session_id)
            return (fault, self._times[session_id]) if fault is not None else None

    def why(self, session_id: SessionId) -> str:
        """Why its actor failed last, or ""."""
        with self._lock:
            fault = self._last.get(session_id)
        return fault.what if fault is not None else ""

    def forget(self, session_id: SessionId) -> None:
        """It is closed for ever."""
        with self._lock:
            self._times.pop(session_id, None)
            self._last.pop(session_id, None)
