"""The one set of numbers of a runtime, kept by folding what the journal committed (docs/adr/0015).

Theory of operation. :meth:`Numbers.committed` is called by the journal's writer with each group of committed events,
after the subscribers were told: so nothing here can hold up a completion, and nothing is asked of the journal, of an
actor or of a CLI, however often somebody looks. What is kept is one small record for each *open* session and a few
counters. A session that is closed is forgotten. What an earlier host left is told once, at the start
(:meth:`Numbers.found`, :meth:`Numbers.taken_over`).

Two locks, both for a moment: one of the records, one of the deliveries, which are told by the subscribers' own threads.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, get_args

import msgspec

from lastword.actors.core import events
from lastword.actors.core.events import Event
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.outcome import Completion, Status
from lastword.actors.core.ports import MessageRow, SessionRow, TurnRow
from lastword.actors.core.snapshot import SessionState
from lastword.runtime._top import RECENT_MAX, Look, TopLine, percentiles, places, window
from lastword.runtime.metrics import BOUNDS_S, Boundary, Completions, Histogram

TOLD_MAX: Final = 4096
"""Turns whose delivery is remembered, so that a second subscriber's is not measured as well."""

LIVE_STATES: Final[tuple[SessionState, ...]] = tuple(state for state in get_args(SessionState) if state != "closed")


RATE_S: Final = 10
"""Over so many whole seconds completions a second are told."""


class Tap(Protocol):
    """Who wants to be told as it happens. Called on the threads of others: must return at once and never raise."""

    def committed(self, told: Sequence[Event]) -> None: ...

    def delivered(self, completion: Completion, at: float) -> None: ...

    def closing(self) -> None:
        """The runtime ends: all is committed, and the journal can still be read. Alone of the three it may wait, with a
        bound.
        """
        ...


class _Known(msgspec.Struct, kw_only=True):
    """One open session."""

    session_id: SessionId
    provider: str
    transport: str
    cli: Literal["starting", "runs", "gone"]
    turns: dict[TurnId, float] = {}
    waiting: set[MessageId] = set()
    dialogs: set[str] = set()
    state: SessionState = "starting"
    state_at: float | None = None
    last_event: str = ""
    last_at: float | None = None
    settled: int = 0
    last_status: Status | None = None
    last_commit_s: float | None = None
    recent: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """The latest latencies of commit, the place of the oldest being overwritten."""
    measured: int = 0

    def moved(self, at: float | None) -> None:
        """Something of it changed at that moment: its state may be another one."""
        state: SessionState
        if self.dialogs:
            state = "awaiting_user"
        elif self.cli == "gone":
            state = "gone"
        elif self.turns or self.waiting:
            state = "busy"
        else:
            state = "idle" if self.cli == "runs" else "starting"
        if state != self.state or self.state_at is None:
            self.state, self.state_at = state, at

    def took(self, seconds: float) -> None:
        """So long its last turn took to be committed."""
        if len(self.recent) < RECENT_MAX:
            self.recent.append(seconds)
        else:
            self.recent[self.measured % RECENT_MAX] = seconds
        self.measured += 1


class _Measured:
    """One histogram as it grows."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds


class _Rate:
    """How often something happened in each of the last seconds. Not thread-safe."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.seconds = [-1] * (RATE_S + 1)
        self.counts = [0] * (RATE_S + 1)

    def add(self, at: float) -> None:
        second = int(at)
        place = second % len(self.seconds)
        if self.seconds[place] != second:
            self.seconds[place], self.counts[place] = second, 0
        self.counts[place] += 1

    def per_s(self, now: float, since: float) -> float:
        """Over the whole seconds before this one, :data:`RATE_S` at most."""
        over = max(1, min(RATE_S, int(now - since)))
        last = int(now)
        return sum(c for s, c in zip(self.seconds, self.counts, strict=True) if last - over <= s < last) / over


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What :class:`Numbers` knows by itself."""

    sessions: dict[SessionState, int]
    sessions_closed: int
    open_turns: int
    waiting: int
    completions: tuple[Completions, ...]
    latencies: tuple[Histogram, ...]
    invariant_violations: int


class Numbers:
    """The fold. ``committed`` is for the journal's writer, one thread at a time; all else for any thread.

    Args:
        wall: Unix seconds.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self.since = wall()
        self._lock = threading.Lock()
        self._known: dict[SessionId, _Known] = {}
        self._completions: Counter[tuple[str, Status]] = Counter()
        self._closed = 0
        self._violations = 0
        self._rate = _Rate()
        self._measured: dict[tuple[Boundary, str], _Measured] = {}
        self._told_lock = threading.Lock()
        self._told: dict[TurnId, None] = {}
        self._told_measured: dict[str, _Measured] = {}
        self._taps: tuple[Tap, ...] = ()

    # --- what is told -------------------------------------------------------------------------------------------------

    def found(self, row: SessionRow) -> None:
        """An open session on record, of an earlier host. Its CLI counts as gone until an event or the taking over says
        otherwise. Nothing for a session that is known.
        """
        with self._lock:
            if row.session_id not in self._known:
                self._known[row.session_id] = _Known(
                    session_id=row.session_id, provider=row.provider, transport=row.transport, cli="gone", state="gone"
                )

    def taken_over(
        self,
        row: SessionRow,
        *,
        turns: Sequence[TurnRow],
        messages: Sequence[MessageRow],
        last: Event | None,
        last_completion: Completion | None,
        lives: bool,
    ) -> None:
        """That session has an actor here now, with this open work; ``lives``: its CLI does. Only where no event of it
        came before.
        """
        self.found(row)
        with self._lock:
            known = self._known[row.session_id]
            if known.last_at is not None:
                return
            known.cli = "runs" if lives else "gone"
            known.turns = {turn.turn_id: turn.accepted_at or turn.bound_at or self._wall() for turn in turns}
            known.waiting = {each.message_id for each in messages if each.turn_id is None}
            if last is not None:
                known.last_event, known.last_at = last.type, last.at
            if last_completion is not None:
                self._settled(known, last_completion)
            known.moved(min(known.turns.values(), default=known.last_at))

    def committed(self, told: Sequence[Event]) -> None:
        """These were committed, in this order."""
        with self._lock:
            for event in told:
                self._fold(event)
        for tap in self._taps:
            tap.committed(told)

    def delivered(self, completion: Completion) -> None:
        """Somebody has it. The first time counts, of a completion of this runtime's life."""
        at, committed_at = self._wall(), completion.times.committed_at
        if committed_at is None or committed_at < self.since:
            return
        with self._told_lock:
            if completion.turn_id in self._told:
                return
            self._told[completion.turn_id] = None
            if len(self._told) > TOLD_MAX:
                del self._told[next(iter(self._told))]
            measured = self._told_measured.get(completion.provider)
            if measured is None:
                measured = self._told_measured[completion.provider] = _Measured(BOUNDS_S["delivery"])
            measured.add(max(0.0, at - committed_at))
        for tap in self._taps:
            tap.delivered(completion, at)

    def closing(self) -> None:
        """All is committed, and nothing more will be."""
        for tap in self._taps:
            tap.closing()

    def tap(self, tap: Tap) -> Callable[[], None]:
        """Have it told from now on, until what this returns is called."""
        with self._lock:
            self._taps = (*self._taps, tap)

        def end() -> None:
            with self._lock:
                self._taps = tuple(each for each in self._taps if each is not tap)

        return end

    # --- what is asked ------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Everything but the sessions one by one."""
        with self._lock:
            states = Counter(known.state for known in self._known.values())
            turns = sum(len(known.turns) for known in self._known.values())
            waiting = sum(len(known.waiting) for known in self._known.values())
            ended = sorted(self._completions.items())
            measured = [_histogram(*key, grown) for key, grown in self._measured.items()]
            closed, violations = self._closed, self._violations
        with self._told_lock:
            measured += [_histogram("delivery", provider, grown) for provider, grown in self._told_measured.items()]
        return Counts(
            sessions={state: states[state] for state in LIVE_STATES},
            sessions_closed=closed,
            open_turns=turns,
            waiting=waiting,
            completions=tuple(Completions(provider=who, status=how, count=count) for (who, how), count in ended),
            latencies=tuple(sorted(measured, key=lambda each: (each.boundary, each.provider))),
            invariant_violations=violations,
        )

    def turns_per_s(self, now: float) -> float:
        """Completions a second over the last :data:`RATE_S` seconds."""
        with self._lock:
            return self._rate.per_s(now, self.since)

    def lines(self, now: float, mailboxes: Mapping[str, int], look: Look) -> tuple[int, tuple[TopLine, ...]]:
        """The open sessions that are asked for, and how many come before them. ``mailboxes``: messages queued at a
        session's actors. The fold is held up for the lines alone: the order is found without the lock, each session at
        a moment of its own.
        """
        with self._lock:
            known = list(self._known.values())
        offset, chosen = window(places(known, look), look)
        with self._lock:
            lines = [(_line(each := known[number], now, mailboxes), each.recent[:]) for number in chosen]
        return offset, tuple(_measured_line(line, recent) for line, recent in lines)

    # --- the fold -----------------------------------------------------------------------------------------------------

    def _fold(self, event: Event) -> None:
        body, known = event.body, self._known.get(event.session_id)
        if known is None:
            if isinstance(body, events.SessionClosed):
                self._closed += 1
                return
            known = self._known[event.session_id] = _Known(
                session_id=event.session_id, provider="", transport="", cli="starting"
            )
        known.last_event, known.last_at = event.type, event.at
        match body:
            case events.AssistantMessage() | events.MessageSubmitted() | events.ToolStarted() | events.ToolFinished():
                return  # as of the rest, only that it came
            case events.MessageAccepted():
                if event.turn_id is not None:
                    known.turns.setdefault(event.turn_id, event.at)
                elif event.message_id is not None:
                    known.waiting.add(event.message_id)
            case events.TurnStarted() | events.MessageJoined() | events.MessageMoved():
                if event.message_id is not None:
                    known.waiting.discard(event.message_id)
                if event.turn_id is not None and isinstance(body, events.TurnStarted):
                    known.turns.setdefault(event.turn_id, event.at)
            case events.CompletionReached():
                self._completed(known, body.completion)
            case events.SessionOpened():
                known.provider, known.transport = body.provider, body.transport
            case events.ProviderStarted():
                known.cli = "runs"
            case events.SessionGone():
                known.cli = "gone"
                known.dialogs.clear()
            case events.SessionSwitched():
                known.provider, known.transport, known.cli = body.provider, body.transport, "starting"
            case events.MessageUndelivered():
                if event.message_id is not None:
                    known.waiting.discard(event.message_id)
            case events.DialogOpened():
                known.dialogs.add(body.dialog_id)
            case events.DialogClosed():
                known.dialogs.discard(body.dialog_id)
            case events.InvariantViolated():
                self._violations += 1
            case events.SessionClosed():
                del self._known[event.session_id]
                self._closed += 1
            case _:
                return  # nothing is counted of it but that it came
        known.moved(event.at)

    def _completed(self, known: _Known, completion: Completion) -> None:
        known.turns.pop(completion.turn_id, None)
        known.waiting.difference_update(completion.joined)
        if completion.message_id is not None:
            known.waiting.discard(completion.message_id)
        self._settled(known, completion)
        known.settled += 1
        if known.last_commit_s is not None:
            known.took(known.last_commit_s)
        self._completions[completion.provider, completion.status] += 1
        if completion.times.committed_at is not None:
            self._rate.add(completion.times.committed_at)
        for boundary, seconds in waits(completion):
            key = (boundary, completion.provider)
            measured = self._measured.get(key)
            if measured is None:
                measured = self._measured[key] = _Measured(BOUNDS_S[boundary])
            measured.add(seconds)

    @staticmethod
    def _settled(known: _Known, completion: Completion) -> None:
        known.last_status = completion.status
        known.last_commit_s = next((took for boundary, took in waits(completion) if boundary == "commit"), None)


def waits(completion: Completion) -> Iterable[tuple[Boundary, float]]:
    """What its own trace says of how long it took, in seconds; never below 0, whatever was done to the clock."""
    times = completion.times
    if times.committed_at is None:
        return
    if times.terminal_seen_at is not None:
        yield "commit", max(0.0, times.committed_at - times.terminal_seen_at)
    if times.accepted_at is not None and completion.origin == "host":
        yield "turn", max(0.0, times.committed_at - times.accepted_at)


def _histogram(boundary: Boundary, provider: str, grown: _Measured) -> Histogram:
    return Histogram(boundary=boundary, provider=provider, counts=tuple(grown.counts), sum_s=grown.sum_s)


def _line(known: _Known, now: float, mailboxes: Mapping[str, int]) -> TopLine:
    turn_id, since = min(known.turns.items(), key=lambda item: item[1], default=(None, None))
    return TopLine(
        session_id=known.session_id,
        provider=known.provider,
        transport=known.transport,
        state=known.state,
        state_age_s=None if known.state_at is None else max(0.0, now - known.state_at),
        open_turns=len(known.turns),
        turn_id=turn_id,
        turn_age_s=None if since is None else max(0.0, now - since),
        waiting=len(known.waiting),
        last_event=known.last_event,
        last_event_age_s=None if known.last_at is None else max(0.0, now - known.last_at),
        mailbox=mailboxes.get(known.session_id, 0),
        turns=known.settled,
        last_status=known.last_status,
        last_commit_s=known.last_commit_s,
    )


def _measured_line(line: TopLine, recent: Sequence[float]) -> TopLine:
    found = percentiles(recent)
    if found is None:
        return line
    return msgspec.structs.replace(line, commit_p50_s=found[0], commit_p99_s=found[1])
