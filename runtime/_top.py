"""What ``lastword top`` shows: a bounded number of sessions, in the order asked for, and figures of all. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence, Sized
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.outcome import Status
from lastword.actors.core.snapshot import SessionState

LINES_MAX: Final = 2000
"""Sessions in one answer: more than a terminal has rows, and far from what an answer may be long."""

RECENT_MAX: Final = 128
"""Latencies that are remembered of one session; its percentiles are of these."""

Sort = Literal["state", "age", "latency", "name"]
"""``state``: what wants a look first; ``age``: the longest in its state first; ``latency``: the slowest last completion
first; ``name``: by the session's id.
"""

Place: TypeAlias = tuple[float, float, str]
"""Where a session comes in an order; the smallest first."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are asked for: ``lines`` of them behind the first ``offset``, in that order."""

    lines: int
    offset: int = 0
    sort: Sort = "state"


class TopLine(msgspec.Struct, frozen=True, kw_only=True):
    """One session. Ages in seconds at :attr:`Top.at`.

    Attributes:
        state_age_s: since when it is in that state; None where nothing says so.
        turn_id, turn_age_s: its oldest open turn, if there is one, and since when.
        waiting: messages that no turn shows yet.
        last_event, last_event_age_s: the newest event's type; "" where this host was told none yet.
        mailbox: messages queued at its actors now.
        turns: settled ones: by this host, or on record where no host lives.
        last_status, last_commit_s: of the turn that was settled last: how, and how long its terminal record, once
            seen, took to be a committed completion.
        commit_p50_s, commit_p99_s: the same of its latest :data:`RECENT_MAX` turns at most.
    """

    session_id: SessionId
    provider: str
    transport: str
    state: SessionState
    state_age_s: float | None = None
    open_turns: int = 0
    turn_id: TurnId | None = None
    turn_age_s: float | None = None
    waiting: int = 0
    last_event: str = ""
    last_event_age_s: float | None = None
    mailbox: int = 0
    turns: int = 0
    last_status: Status | None = None
    last_commit_s: float | None = None
    commit_p50_s: float | None = None
    commit_p99_s: float | None = None


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one host at one moment: some lines, and figures of all.

    Attributes:
        at, since: Unix seconds: now, and since when is counted.
        live: a host lives and said so; else this is what the journal says.
        pid: of the host, where one is known.
        sessions: open ones by state.
        turns_per_s: completions a second of late; like all that only a host counts, None where none lives.
        journal_behind: batches that are not durable now.
        journal_wait_s: how long the transaction under way has taken; 0 where there is none.
        journal_failing: its file takes nothing.
        offset: how many sessions come before the first line.
    """

    at: float
    live: bool
    sessions: dict[SessionState, int]
    open_turns: int
    waiting: int
    completions: int
    dead_letters: int | None
    invariant_violations: int | None
    lines: tuple[TopLine, ...]
    since: float = 0.0
    pid: int | None = None
    turns_per_s: float | None = None
    journal_behind: int = 0
    journal_wait_s: float = 0.0
    journal_failing: bool = False
    offset: int = 0

    @property
    def total(self) -> int:
        """Open sessions."""
        return sum(self.sessions.values())


def place_of(
    sort: Sort,
    session_id: str,
    state: SessionState,
    *,
    open_work: bool,
    state_at: float | None,
    last_at: float | None,
    last_commit_s: float | None,
) -> Place:
    """Where it comes. Stamps in Unix seconds, so that an order needs no clock.

    By ``state``: a person is asked; work is open and the CLI is gone; work is open, the longest silent first; a start;
    then what moved last.
    """
    match sort:
        case "name":
            return 0.0, 0.0, session_id
        case "age":
            return 0.0, (_LAST if state_at is None else state_at), session_id
        case "latency":
            return 0.0, (_LAST if last_commit_s is None else -last_commit_s), session_id
        case "state":
            rank = _RANKS[state] if state != "gone" or open_work else 5.0
            if rank < _RANKS["idle"]:
                return rank, (-_LAST if last_at is None else last_at), session_id
            return rank, (_LAST if last_at is None else -last_at), session_id


_LAST: Final = float("inf")
_RANKS: Final[dict[SessionState, float]] = {
    "awaiting_user": 0.0,
    "gone": 1.0,
    "busy": 2.0,
    "starting": 3.0,
    "idle": 4.0,
    "closed": 5.0,
}


class Standing(Protocol):
    """A session as its place is found; ``turns`` and ``waiting``: what is open, empty or 0 where nothing is."""

    @property
    def session_id(self) -> SessionId: ...
    @property
    def state(self) -> SessionState: ...
    @property
    def state_at(self) -> float | None: ...
    @property
    def last_at(self) -> float | None: ...
    @property
    def last_commit_s(self) -> float | None: ...
    @property
    def turns(self) -> Sized: ...
    @property
    def waiting(self) -> Sized | int: ...


def places(stands: Iterable[Standing], look: Look) -> list[tuple[Place, int]]:
    """The place of each, and its number."""
    return [
        (
            place_of(
                look.sort,
                each.session_id,
                each.state,
                open_work=bool(each.turns or each.waiting),
                state_at=each.state_at,
                last_at=each.last_at,
                last_commit_s=each.last_commit_s,
            ),
            number,
        )
        for number, each in enumerate(stands)
    ]


def window(places: Sequence[tuple[Place, int]], look: Look) -> tuple[int, list[int]]:
    """The numbers of those that are asked for, in order, and behind how many they come: an offset beyond the end is
    brought back to the last lines.
    """
    count = min(max(look.lines, 0), LINES_MAX)
    offset = min(max(look.offset, 0), max(0, len(places) - count))
    return offset, [number for _, number in heapq.nsmallest(offset + count, places)[offset:]]


def percentiles(latencies: Sequence[float]) -> tuple[float, float] | None:
    """The value that a half, and the one that 99 in 100 of them do not exceed; None where there is none."""
    if not latencies:
        return None
    ordered = sorted(latencies)
    return ordered[(len(ordered) - 1) // 2], ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
