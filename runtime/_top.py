"""What ``lastword top`` shows: a bounded number of sessions, those first that want a look. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

import msgspec

from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.outcome import Status
from lastword.actors.core.snapshot import SessionState

LINES_MAX: Final = 500
"""Sessions in one answer; no terminal has more rows."""


class TopLine(msgspec.Struct, frozen=True, kw_only=True):
    """One session. Ages in seconds at :attr:`Top.at`.

    Attributes:
        turn_id, turn_age_s: its oldest open turn, if there is one, and since when.
        waiting: messages that no turn shows yet.
        last_event, last_event_age_s: the newest event's type; "" where this host was told none yet.
        mailbox: messages queued at its actors now.
        last_status, last_commit_s: of the turn that was settled last: how, and how long its terminal record, once
            seen, took to be a committed completion.
    """

    session_id: SessionId
    provider: str
    transport: str
    state: SessionState
    open_turns: int = 0
    turn_id: TurnId | None = None
    turn_age_s: float | None = None
    waiting: int = 0
    last_event: str = ""
    last_event_age_s: float | None = None
    mailbox: int = 0
    last_status: Status | None = None
    last_commit_s: float | None = None


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one host at one moment: the first lines, and figures of all.

    Attributes:
        live: a host lives; else this is what the journal says.
        sessions: open ones by state.
    """

    at: float
    live: bool
    sessions: dict[SessionState, int]
    open_turns: int
    waiting: int
    completions: int
    dead_letters: int
    invariant_violations: int
    lines: tuple[TopLine, ...]

    @property
    def total(self) -> int:
        """Open sessions."""
        return sum(self.sessions.values())


def urgency(line: TopLine) -> tuple[int, float, str]:
    """Sorts by what wants a look: a person is asked; work is open and the CLI is gone; work is open, the longest
    silent first; a start; then what moved last.
    """
    quiet = line.last_event_age_s if line.last_event_age_s is not None else float("inf")
    open_work = bool(line.open_turns or line.waiting)
    if line.state == "awaiting_user":
        return 0, -quiet, line.session_id
    if line.state == "gone" and open_work:
        return 1, -quiet, line.session_id
    if line.state == "busy":
        return 2, -quiet, line.session_id
    if line.state == "starting":
        return 3, -quiet, line.session_id
    return (4 if line.state == "idle" else 5), quiet, line.session_id


def first(lines: Iterable[TopLine], count: int) -> tuple[TopLine, ...]:
    """The ``count`` most urgent, in order."""
    return tuple(heapq.nsmallest(min(max(count, 0), LINES_MAX), lines, key=urgency))
