"""What ``lastword top`` can say where no host answers: what stands in the journal, which is only read.

The journal is opened for a reading and closed behind it, so nothing is held while nothing changes, and a host that
comes finds nobody in its way. It is read again only where its files changed, and while somebody writes it only behind a
rest of :data:`REST_FACTOR` times what the last reading took. Ages go on with the clock between the readings.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, cast

import msgspec

from lastword.actors.core.errors import JournalError
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.outcome import Status
from lastword.actors.core.ports import TurnRow
from lastword.actors.core.snapshot import SessionState
from lastword.runtime._journal_file import FILE_NAME, JournalFile, corrupt, translated
from lastword.runtime._numbers import LIVE_STATES
from lastword.runtime._top import LINES_MAX, RECENT_MAX, Look, Top, TopLine, percentiles, places, window

REST_FACTOR: Final = 20
"""A journal that grows is read for one part in so many of the time."""
TAIL_EVENTS: Final = 32
"""Events of a session that are looked at for its state: what lies further back is taken as over."""
OUTLINES_MAX: Final = 4 * LINES_MAX
"""Sessions whose latencies are remembered between two readings."""

_SESSIONS = """SELECT session_id, coalesce(json_extract(body, '$.provider'), ''),
    coalesce(json_extract(body, '$.transport'), '') FROM session WHERE state = 'open' ORDER BY ord"""
_OPEN_TURNS = "SELECT session_id, body FROM turn WHERE state <> 'settled'"
_LOOSE = """SELECT session_id, count(*) FROM message
    WHERE turn_id IS NULL AND state NOT IN ('joined', 'undelivered') GROUP BY session_id"""
_TAIL = "SELECT at, type FROM event WHERE session_id = ? ORDER BY seq DESC LIMIT ?"
_LATEST = """SELECT status, committed_at, json_extract(body, '$.times.terminal_seen_at') FROM completion
    WHERE session_id = ? ORDER BY seq DESC LIMIT ?"""
_SETTLED = "SELECT count(*) FROM completion WHERE session_id = ?"
_COMPLETIONS = "SELECT count(*) FROM completion"

_turn_of: Final = msgspec.json.Decoder(TurnRow)
_Files: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class _Stand(msgspec.Struct, kw_only=True):
    """One open session, as of the last reading."""

    session_id: SessionId
    provider: str
    transport: str
    state: SessionState = "idle"
    state_at: float | None = None
    turns: dict[TurnId, float] = {}
    waiting: int = 0
    last_event: str = ""
    last_at: float | None = None
    last_status: Status | None = None
    last_commit_s: float | None = None


class _Outline(msgspec.Struct, frozen=True):
    """What is read of a session only once it is shown."""

    turns: int
    p50_s: float | None
    p99_s: float | None


class RecordTop:
    """The journal of one state folder, looked at again and again. From one thread at a time.

    Args:
        folder: the state folder; nothing is made or changed in it.
        wall: Unix seconds.
        mono: seconds, for the rest between two readings.
    """

    def __init__(
        self, folder: Path, *, wall: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._wall = wall
        self._mono = mono
        self._files: _Files = ()
        self._not_before_s = 0.0
        self._stands: list[_Stand] = []
        self._outlines: dict[SessionId, _Outline] = {}
        self._completions = 0
        self.readings = 0

    def look(self, look: Look) -> Top:
        """The open sessions on record that are asked for, and figures of all.

        Raises:
            JournalError: there is no journal, or it cannot be read.
        """
        files = _files(self._folder)
        if not files[0]:
            self._files = ()  # the next one is another one
        if not self._files or (files != self._files and self._mono() >= self._not_before_s):
            self._read(files)
        offset, chosen = window(places(self._stands, look), look)
        shown = [self._stands[number] for number in chosen]
        self._outline(shown)
        now = self._wall()
        states = [each.state for each in self._stands]
        return Top(
            at=now,
            live=False,
            sessions={state: states.count(state) for state in LIVE_STATES},
            open_turns=sum(len(each.turns) for each in self._stands),
            waiting=sum(each.waiting for each in self._stands),
            completions=self._completions,
            dead_letters=None,
            invariant_violations=None,
            offset=offset,
            lines=tuple(_line(each, self._outlines[each.session_id], now) for each in shown),
        )

    def _read(self, files: _Files) -> None:
        began_s = self._mono()
        with _Reading(self._folder) as rows:
            stands = {
                SessionId(session_id): _Stand(session_id=SessionId(session_id), provider=provider, transport=transport)
                for session_id, provider, transport in rows(_SESSIONS)
            }
            for session_id, body in rows(_OPEN_TURNS):
                if session_id in stands:
                    turn = rows.decoded(body)
                    stands[session_id].turns[turn.turn_id] = turn.accepted_at or turn.bound_at or 0.0
            for session_id, count in rows(_LOOSE):
                if session_id in stands:
                    stands[session_id].waiting = count
            for stand in stands.values():
                latest = rows(_LATEST, (stand.session_id, 1))
                settled_at = _told_of(stand, latest[0]) if latest else None
                tail = rows(_TAIL, (stand.session_id, TAIL_EVENTS))
                if tail:
                    stand.last_at, stand.last_event = tail[0]
                stand.state, stand.state_at = _state_of(stand, tail, settled_at)
            self._completions = rows(_COMPLETIONS)[0][0]
        self._stands, self._outlines, self._files = list(stands.values()), {}, files
        self._not_before_s = self._mono() + REST_FACTOR * (self._mono() - began_s)
        self.readings += 1

    def _outline(self, stands: Sequence[_Stand]) -> None:
        wanted = [each.session_id for each in stands if each.session_id not in self._outlines]
        if not wanted:
            return
        if len(self._outlines) + len(wanted) > OUTLINES_MAX:
            self._outlines.clear()
            wanted = [each.session_id for each in stands]
        with _Reading(self._folder) as rows:
            for session_id in wanted:
                latest = rows(_LATEST, (session_id, RECENT_MAX))
                took = [each for row in latest if (each := _latency(row)) is not None]
                p50_s, p99_s = percentiles(took) or (None, None)
                self._outlines[session_id] = _Outline(rows(_SETTLED, (session_id,))[0][0], p50_s, p99_s)


class _Reading:
    """One connection and one view of the file, for a ``with``; called with a query, it gives its rows."""

    def __init__(self, folder: Path) -> None:
        self._file = JournalFile(folder, durability="process", readonly=True)
        self._db: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        self._db = self._file.connect_reader()
        try:
            self("BEGIN")
        except JournalError:
            self._db.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._db is not None:
            self._db.close()

    def __call__(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        assert self._db is not None
        try:
            return self._db.execute(query, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise translated(error, "reading", self._file.path) from error

    def decoded(self, body: str) -> TurnRow:
        """That row of a turn."""
        try:
            return _turn_of.decode(body)
        except msgspec.MsgspecError as error:
            raise corrupt(self._file.path, f"a row does not decode: {type(error).__name__}") from error


def _told_of(stand: _Stand, latest: tuple[Any, ...]) -> float:
    """Note how its last turn was settled; when."""
    stand.last_status, stand.last_commit_s = cast("Status", latest[0]), _latency(latest)
    return float(latest[1])


def _latency(row: tuple[Any, ...]) -> float | None:
    _, committed_at, seen_at = row
    return None if seen_at is None else max(0.0, committed_at - seen_at)


def _state_of(
    stand: _Stand, tail: Sequence[tuple[float, str]], settled_at: float | None
) -> tuple[SessionState, float | None]:
    """The state that its newest events leave it in, and since when; ``tail``: newest first."""
    cli: tuple[Literal["starting", "runs", "gone"], float] | None = None
    asked_at: float | None = None
    dialogs_end = False
    for at, kind in tail:
        if kind == "session_gone":
            cli, dialogs_end = cli or ("gone", at), True
        elif kind == "provider_started":
            cli, dialogs_end = cli or ("runs", at), True
        elif kind in ("session_opened", "session_switched"):
            cli, dialogs_end = cli or ("starting", at), True
        elif kind == "dialog_closed":
            dialogs_end = True
        elif kind == "dialog_opened" and not dialogs_end:
            asked_at = asked_at or at
    if asked_at is not None:
        return "awaiting_user", asked_at
    if cli is not None and cli[0] == "gone":
        return "gone", cli[1]
    if stand.turns or stand.waiting:
        return "busy", min(stand.turns.values(), default=stand.last_at)
    if cli is not None and cli[0] == "starting":
        return "starting", cli[1]
    return "idle", settled_at if settled_at is not None else cli[1] if cli is not None else None


def _line(stand: _Stand, outline: _Outline, now: float) -> TopLine:
    turn_id, since = min(stand.turns.items(), key=lambda item: item[1], default=(None, None))
    return TopLine(
        session_id=stand.session_id,
        provider=stand.provider,
        transport=stand.transport,
        state=stand.state,
        state_age_s=_age(stand.state_at, now),
        open_turns=len(stand.turns),
        turn_id=turn_id,
        turn_age_s=_age(since, now),
        waiting=stand.waiting,
        last_event=stand.last_event,
        last_event_age_s=_age(stand.last_at, now),
        turns=outline.turns,
        last_status=stand.last_status,
        last_commit_s=stand.last_commit_s,
        commit_p50_s=outline.p50_s,
        commit_p99_s=outline.p99_s,
    )


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(0.0, now - at)


def _files(folder: Path) -> _Files:
    """What tells whether the journal changed: its file and its log, None where one is not there or empty (a look
    leaves an empty log behind).
    """
    return tuple(_stamp(folder / f"{FILE_NAME}{suffix}") for suffix in ("", "-wal"))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a look a second, of two files
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError("journal_failed", f"{path} cannot be looked at: {error.strerror}") from error
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found.st_size else None
