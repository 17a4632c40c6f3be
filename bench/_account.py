"""The account of a stress run: each turn that it asked for, held against what its caller got, what a subscriber was told,
and what the journal holds. It shares nothing with the runtime: the journal is read with SQLite alone.

A turn is named by its text, which no other turn of the run has. Three places are looked at, and each must have it once:
the *caller* (what ``run`` returned, or ``completion`` of the acknowledged turn), the *subscriber* of a followed session
(one ``unified_completion`` a turn, the seqs without a gap), the *journal* (one completion row and one event a turn). What
is wrong there is one of :data:`KINDS`. *Early* is an end that is not the CLI's last word, and one that is told while it is not on record.

Cheap on purpose: of a turn that its caller has, two strings are kept until :meth:`Account.settle`, none of them the
garbage collector's. Safe from any thread.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from _report import show

KINDS = ("early", "missing", "double", "wrong", "raised", "hung")
PLACES = ("caller", "subscriber", "journal")
LINES_MAX = 20
"""Faults that are told one by one; all are counted."""
FOLLOWED_LEAST, FOLLOWED_EACH = 20, 50

NOTE = (
    "What is early, missing, … is counted at each of three places: what the caller got, what the subscriber of a "
    "followed session was told, and the journal."
)

Judge = Callable[[str, str, str | None], str]
"""Text, status, answer: "" where that is the end the text asked for, else ``early`` or ``wrong``."""
Ids = tuple[str, ...]
"""Of the turn, of its message, of messages that joined it."""


def red(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bool:
    """Whether a row of a report has anything of :data:`KINDS`."""
    return any(row[columns.index(kind)] for row in rows for kind in KINDS)


def follows(number: int, sessions: int) -> bool:
    """Whether this session of so many has a subscriber: each 50th, but at least 20 of them (all of up to 39)."""
    return number % min(FOLLOWED_EACH, max(1, sessions // FOLLOWED_LEAST)) == 0


class Heard:
    """What the subscriber of one session was told."""

    def __init__(self) -> None:
        self.seq = 0
        self.ends = bytearray()
        """A line for each: the turn of the event, and what :func:`_short` says of its completion. A run that counts
        the interpreter's blocks must not grow by its account.
        """
        self.skipped: set[int] = set()
        self.moved: Callable[[], None] = lambda: None


class Found:
    """What the journal holds of one turn."""

    def __init__(self) -> None:
        self.session_id = self.text = ""
        self.rows: list[tuple[str, int, dict[str, Any]]] = []
        self.events: list[tuple[str, int, dict[str, Any]]] = []


class Account:
    """See the module. ``uninvited``: turns that nobody asked for may be; they end once like all others."""

    def __init__(self, journal: Path, judge: Judge, *, uninvited: bool = False) -> None:
        self.faults: Counter[tuple[str, str]] = Counter()
        self.lines: list[str] = []
        self.turns = 0
        """Asked for so far."""
        self.broken_off = False
        """Set where the run is: what its callers are told from then on is that, and no fault."""
        self.followed = 0
        """Sessions with a subscriber so far."""
        self._judge, self._uninvited = judge, uninvited
        self._asked: dict[str, str] = {}
        """Session by text."""
        self._acknowledged: dict[str, str] = {}
        self._got: dict[str, str] = {}
        """Ids by text; "" where the call raised or hung."""
        self._heard: dict[str, Heard] = {}
        self._ends = [0, 0]
        """Completion rows and events of what is settled."""
        self._lock = threading.RLock()
        self._db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True, check_same_thread=False)
        self._db.execute("PRAGMA cache_size = -64")  # KiB: nor may the process grow by it

    def fault(self, place: str, kind: str, what: str, times: int = 1) -> None:
        """Count it, and tell the first few."""
        with self._lock:
            self.faults[place, kind] += times
            if len(self.lines) < LINES_MAX:
                self.lines.append(f"{place}: {kind}: {what}")

    @property
    def clean(self) -> bool:
        return not self.faults

    def counts(self) -> list[int]:
        """How many of each of :data:`KINDS`, at all places."""
        return [sum(self.faults[place, kind] for place in PLACES) for kind in KINDS]

    # --- the caller ---------------------------------------------------------------------------------------------

    def asked(self, text: str, session_id: str) -> None:
        """Before the call."""
        with self._lock:
            if not self.broken_off:
                self.turns += 1
                self._asked[text] = session_id

    def acknowledged(self, text: str, delivery: Any) -> None:
        """What ``send`` returned, where it is not ``run``: the turn and message that all else must name."""
        new = delivery.taken == "started_turn" and delivery.turn_id and not delivery.duplicate
        if not new or delivery.session_id != self._asked.get(text):
            self.fault("caller", "wrong", f"{text}: acknowledged as {delivery}")
        self._acknowledged[text] = f"{delivery.turn_id} {delivery.message_id}"

    def returned(self, text: str, done: Any) -> None:
        """The completion that the caller got; None: there is none."""
        with self._lock:
            if self._is_over(text):
                return
            if self._got.get(text):
                self.fault("caller", "double", text)
            if done is None:
                self._got[text] = ""
                self.fault("caller", "missing", f"{text}: no completion")
                return
            session_id = self._asked[text]
            self._look("caller", text, session_id, done.session_id, done.status, done.answer)
            self._got[text] = " ".join((done.turn_id, done.message_id or "-", *done.joined))
            if (told := self._acknowledged.pop(text, "")) and self._got[text] != told:
                self.fault("caller", "wrong", f"{text}: it got {self._got[text]}, acknowledged was {told}")
            if session_id in self._heard:
                self._on_record("caller", done.turn_id)

    def raised(self, text: str, error: BaseException) -> None:
        """The call raised."""
        self._nothing(text, "raised", f"{text}: {type(error).__name__}: {error}")

    def hung(self, text: str) -> None:
        """The call did not return in its bound. What it returns later is no news."""
        self._nothing(text, "hung", f"{text}: it does not return")

    def _nothing(self, text: str, kind: str, what: str) -> None:
        with self._lock:
            if not self._is_over(text):
                self._got[text] = ""
                self.fault("caller", kind, what)

    def _is_over(self, text: str) -> bool:
        """Whether it is settled, or was broken off."""
        return self.broken_off or text not in self._asked

    # --- the subscriber -----------------------------------------------------------------------------------------

    def follow(self, session_id: str) -> Heard:
        """Before the first event of a session is heard."""
        with self._lock:
            self.followed += 1
            return self._heard.setdefault(session_id, Heard())

    def heard(self, session_id: str, event: Any) -> None:
        """An event that the subscriber of the session was told."""
        with self._lock:
            heard = self._heard[session_id]
            if event.session_id != session_id:
                self.fault("subscriber", "wrong", f"{session_id}: told of {event.session_id}")
            if event.seq:
                if event.seq <= heard.seq:
                    self.fault("subscriber", "double", f"{session_id}: seq {event.seq} after {heard.seq}")
                heard.skipped.update(range(heard.seq + 1, event.seq))
                heard.seq = max(heard.seq, event.seq)
            if event.type == "unified_completion":
                turn_id, done = event.turn_id or "", event.body.completion
                short = _short(done.turn_id, done.session_id, done.status, done.answer, done.message_id)
                heard.ends += f"{turn_id} {short}\n".encode()
                self._on_record("subscriber", turn_id)
        heard.moved()

    def last_end(self, session_id: str) -> int:
        """The seq of the last completion on record: up to there the subscriber must come."""
        query = "SELECT coalesce(max(seq), 0) FROM event WHERE session_id = ? AND type = 'unified_completion'"
        return int(self._rows(query, (session_id,))[0][0])

    # --- the journal --------------------------------------------------------------------------------------------

    def settle(self, session_id: str | None = None, *, interrupted: bool = False) -> None:
        """Hold all of a session (of all sessions) against the journal, and forget it.

        Args:
            interrupted: the run was broken off: a turn that its caller still waited for may be nowhere.
        """
        with self._lock:
            mine = {text for text, of in self._asked.items() if session_id in (None, of)}
            waiting = {text for text in mine if text not in self._got}
            if not interrupted:
                for text in waiting:
                    self.fault("caller", "missing", f"{text}: it was never told")
            turns, messages = self._read(session_id)
            for text in mine:
                self._settle_message(text, messages.get(text, []), turns, open_=interrupted and text in waiting)
            for turn_id, found in turns.items():
                self._ends[0] += len(found.rows)
                self._ends[1] += len(found.events)
                self._settle_turn(turn_id, found, open_=interrupted and (found.text in waiting or not found.text))
            for of in [of for of in self._heard if session_id in (None, of)]:
                self._settle_heard(of, self._heard.pop(of), turns)
            for text in mine:
                for kept in (self._asked, self._got, self._acknowledged):
                    kept.pop(text, None)

    def settle_rest(self, *, interrupted: bool = False) -> None:
        """All sessions that are not settled yet, one by one: where others were before."""
        for session_id in {*self._asked.values(), *self._heard}:
            self.settle(session_id, interrupted=interrupted)

    def close(self) -> None:
        """After the last :meth:`settle`: nothing was added to what is settled."""
        queries = ("SELECT count(*) FROM completion", "SELECT count(*) FROM event WHERE type = 'unified_completion'")
        for query, settled in zip(queries, self._ends, strict=True):
            if (more := self._rows(query)[0][0] - settled) and not self._asked:
                self.fault("journal", "double" if more > 0 else "missing", f"{more} ends since they were settled")
        self._db.close()

    def _rows(self, query: str, values: Iterable[Any] = ()) -> list[Any]:
        with self._lock:
            return self._db.execute(query, tuple(values)).fetchall()

    def _read(self, session_id: str | None) -> tuple[dict[str, Found], dict[str, list[Ids]]]:
        """Turns by id, and (turn, message, session) by text."""
        where, values = ("true", ()) if session_id is None else ("session_id = ?", (session_id,))
        turns: defaultdict[str, Found] = defaultdict(Found)
        for turn_id, of in self._db.execute(f"SELECT turn_id, session_id FROM turn WHERE {where}", values):
            turns[turn_id].session_id = of
        messages: defaultdict[str, list[Ids]] = defaultdict(list)
        query = f"SELECT json_extract(body, '$.text'), turn_id, message_id, session_id FROM message WHERE {where}"
        for text, turn_id, message_id, of in self._db.execute(query, values):
            messages[text].append((turn_id or "", message_id, of))
            if turn_id and not turns[turn_id].text:
                turns[turn_id].text = text
        for turn_id, of, seq, body in self._db.execute(
            f"SELECT turn_id, session_id, seq, body FROM completion WHERE {where}", values
        ):
            turns[turn_id].rows.append((of, seq, _brief(body)))
        query = f"SELECT turn_id, session_id, seq, body FROM event WHERE {where} AND type = 'unified_completion'"
        for turn_id, of, seq, body in self._db.execute(query, values):
            turns[turn_id or ""].events.append((of, seq, _brief(body)))
        query = f"SELECT session_id, count(*), max(seq) FROM event WHERE {where} GROUP BY session_id"
        for of, count, last in self._db.execute(query, values):
            if count != last:
                self.fault("journal", "missing", f"{of}: {count} events up to seq {last}", last - count)
        return turns, messages

    def _settle_message(self, text: str, rows: list[Ids], turns: dict[str, Found], *, open_: bool) -> None:
        """The message is on record once, and its caller got the turn that it came to."""
        got, session_id = self._got.get(text, ""), self._asked[text]
        if len(rows) > 1:
            self.fault("journal", "double", f"{text}: accepted {len(rows)} times")
        if not rows or not rows[0][0]:
            if got or (text not in self._got and not open_):
                self.fault("journal", "missing", f"{text}: it has no turn")
            return
        turn_id, message_id, of = rows[0]
        if of != session_id or turns[turn_id].session_id != session_id:
            self.fault("journal", "wrong", f"{text}: it is of {of}, not {session_id}")
        if got and (got.split()[0] != turn_id or message_id not in got.split()[1:]):
            self.fault("caller", "wrong", f"{text}: it got {got}, not {turn_id} {message_id}")
        if (told := self._acknowledged.get(text)) and told != f"{turn_id} {message_id}":
            self.fault("caller", "wrong", f"{text}: acknowledged as {told}, not {turn_id} {message_id}")

    def _settle_turn(self, turn_id: str, found: Found, *, open_: bool) -> None:
        """It has one completion and one event, which say the same and fit its text."""
        named = f"{found.text or 'a turn that nobody asked for'} ({turn_id})"
        if found.text not in self._asked and not self._uninvited:
            self.fault("journal", "wrong", named)
        for what, rows in (("completion", found.rows), ("event", found.events)):
            if not rows and not open_:
                self.fault("journal", "missing", f"{named}: no {what}")
            if len(rows) > 1:
                self.fault("journal", "double", f"{named}: {len(rows)} of the {what}", len(rows) - 1)
            for _, _, done in rows:
                if done["turn_id"] != turn_id:
                    self.fault("journal", "wrong", f"{named}: its {what} names {done['turn_id']}")
        text = found.text if found.text in self._asked else ""
        for of, _, done in [] if open_ else found.rows or found.events:
            self._look("journal", text, found.session_id, of, done["status"], done["answer"])
        if found.rows and found.events and found.rows[0][1:] != found.events[0][1:]:
            self.fault("journal", "wrong", f"{named}: its completion and its event differ")

    def _settle_heard(self, session_id: str, heard: Heard, turns: dict[str, Found]) -> None:
        """The subscriber was told of each of the session's ends once; one that no caller got may come after it left."""
        ends: defaultdict[str, list[str]] = defaultdict(list)
        for line in heard.ends.decode().split("\n")[:-1]:
            turn_id, _, short = line.partition(" ")
            ends[turn_id].append(short)
        for turn_id, found in turns.items():
            if found.session_id != session_id or not found.events:
                continue  # one without an event is the journal's fault, and counted there
            told = ends.pop(turn_id, [])
            named, seq, row = f"{found.text} ({turn_id})", found.events[0][1], found.events[0][2]
            late = seq > heard.seq and found.text not in self._got
            if not told and not late:
                self.fault("subscriber", "missing", named)
            if len(told) > 1:
                self.fault("subscriber", "double", f"{named}: {len(told)} ends", len(told) - 1)
            heard.skipped -= {each[1] for each in found.events}
            wanted = _short(turn_id, session_id, row["status"], row["answer"], row["message_id"])
            for short in told:
                if short != wanted:
                    self.fault("subscriber", "wrong", f"{named}: {short}, not {wanted}")
        for turn_id in ends:
            self.fault("subscriber", "wrong", f"an end of {turn_id!r}, which has no event on record")
        if heard.skipped:
            self.fault("subscriber", "missing", f"{session_id}: seqs {sorted(heard.skipped)}", len(heard.skipped))

    # --- both ---------------------------------------------------------------------------------------------------

    def _look(self, place: str, text: str, session_id: str, of: str, status: str, answer: str | None) -> None:
        if of != session_id:
            self.fault(place, "wrong", f"{text}: of {of}, not {session_id}")
        if text and (kind := self._judge(text, status, answer)):
            self.fault(place, kind, f"{text}: {status} {answer!r}")

    def _on_record(self, place: str, turn_id: str) -> None:
        if not self._rows("SELECT count(*) FROM completion WHERE turn_id = ?", (turn_id,))[0][0]:
            self.fault(place, "early", f"{turn_id} is told while it is not on record")

    def tell(self) -> None:
        """Print what is wrong and where, if anything is."""
        for line in self.lines:
            print("  ", line)
        if not self.clean:
            rows = [[place, *(self.faults[place, kind] for kind in KINDS)] for place in PLACES]
            show("What is wrong, and where", ["", *KINDS], rows)


def _short(*what: object) -> str:
    """One string on one line, which is one block and none of the collector's."""
    return repr(what)


def _brief(body: str) -> dict[str, Any]:
    done = json.loads(body)
    done = done.get("completion", done)
    return {name: done.get(name) for name in ("turn_id", "status", "answer", "message_id")}
