"""The account of the stress runs: a product that is broken at one of the three places turns it red, of the right kind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from fault_rig import of_bench
from lastword import Completion, Delivery
from lastword.actors.core.events import CompletionReached, Event, SessionOpened, TurnStarted
from lastword.actors.core.ids import MessageId, SessionId, TurnId

SCHEMA = Path(__file__).parents[2] / "runtime" / "_schema.sql"
ONE, TWO = SessionId("s_one"), SessionId("s_two")


def judge(text: str, status: str, answer: str | None) -> str:
    if answer == "not the end":
        return "early"
    return "" if (status, answer) == ("completed", f"answer {text}") else "wrong"


class Turn(NamedTuple):
    """One, as each place has it."""

    text: str
    row: Completion
    event: Event


class Product:
    """A product in miniature: two sessions of two turns each; what it tells and holds is broken by a test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.db"
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        self.db.executescript(SCHEMA.read_text())
        self.turns: list[Turn] = []
        self.told: dict[SessionId, list[Event]] = {}
        for session_id in (ONE, TWO):
            self.told[session_id] = [self._event(session_id, 1, SessionOpened(provider="p", transport="t", cwd="", native_session_id=""))]  # fmt: skip
            for number in (1, 2):
                self._turn(session_id, number)

    def _event(self, session_id: SessionId, seq: int, body: Any, turn_id: TurnId | None = None) -> Event:
        event = Event(session_id=session_id, seq=seq, at=1.0, body=body, turn_id=turn_id)
        text = msgspec.json.encode(body).decode()
        row = (session_id, seq, 1.0, event.type, turn_id, text)
        self.db.execute("INSERT INTO event (session_id, seq, at, type, turn_id, body) VALUES (?, ?, ?, ?, ?, ?)", row)
        return event

    def _turn(self, session_id: SessionId, number: int) -> None:
        text = f"{session_id}.{number}"
        turn_id, message_id, seq = TurnId(f"t.{text}"), MessageId(f"m.{text}"), 2 * number + 1
        done = Completion(
            turn_id=turn_id,
            session_id=session_id,
            message_id=message_id,
            status="completed",
            answer=f"answer {text}",
            source="stream",
            provider="p",
            transport="t",
        )
        self.db.execute(
            "INSERT INTO message (message_id, session_id, state, turn_id, accepted_seq, body) VALUES (?, ?, 'x', ?, 1, ?)",
            (message_id, session_id, turn_id, json.dumps({"text": text})),
        )
        self.db.execute(
            "INSERT INTO turn (turn_id, session_id, state, body) VALUES (?, ?, 'settled', '{}')", (turn_id, session_id)
        )
        self.told[session_id].append(self._event(session_id, seq - 1, TurnStarted(), turn_id))
        event = self._event(session_id, seq, CompletionReached(completion=done), turn_id)
        self.db.execute(
            "INSERT INTO completion VALUES (?, ?, ?, 'completed', 1.0, ?)",
            (turn_id, session_id, seq, msgspec.json.encode(done).decode()),
        )
        self.told[session_id].append(event)
        self.turns.append(Turn(text, done, event))

    def run(
        self, *, caller: Callable[[Any, Turn], None] | None = None, uninvited: bool = False, interrupted: bool = False
    ) -> Any:
        """The account of a run of it. ``caller``: what the caller of the second turn sees."""
        account = of_bench("_account").Account(self.path, judge, uninvited=uninvited)
        for session_id in (ONE, TWO):
            account.follow(session_id)
        for place, turn in enumerate(self.turns):
            account.asked(turn.text, turn.row.session_id)
            if place == 1 and caller is not None:
                caller(account, turn)
            else:
                account.returned(turn.text, turn.row)
        for session_id, events in self.told.items():
            for event in events:
                account.heard(session_id, event)
        account.settle(interrupted=interrupted)
        account.close()
        return account

    def hears(self, *events: Event) -> None:
        """What the subscriber is told in place of the end of the second turn."""
        self.told[ONE][4:] = events

    def execute(self, statement: str) -> None:
        self.db.execute(statement)


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def faults(account: Any) -> dict[str, int]:
    return {f"{place} {kind}": count for (place, kind), count in account.faults.items()}


def test_what_each_place_has_once_is_no_fault(product: Product, capsys: pytest.CaptureFixture[str]) -> None:
    account = product.run()
    account.tell()
    assert (account.clean, account.counts(), account.turns, account.followed) == (True, [0] * 6, 4, 2)
    assert capsys.readouterr().out == ""


def changed(**fields: Any) -> Callable[[Any, Turn], None]:
    return lambda account, turn: account.returned(turn.text, msgspec.structs.replace(turn.row, **fields))


CALLERS: dict[str, tuple[Callable[[Any, Turn], Any], dict[str, int]]] = {
    "nothing": (lambda account, turn: None, {"caller missing": 1}),
    "no completion": (lambda account, turn: account.returned(turn.text, None), {"caller missing": 1}),
    "twice": (lambda account, turn: [account.returned(turn.text, turn.row) for _ in "12"], {"caller double": 1}),
    "another answer": (changed(answer="another"), {"caller wrong": 1}),
    "another status": (changed(status="lost"), {"caller wrong": 1}),
    "not the last word": (changed(answer="not the end"), {"caller early": 1}),
    "another session": (changed(session_id=TWO), {"caller wrong": 1}),
    "another turn": (changed(turn_id=TurnId("t.s_one.1")), {"caller wrong": 1}),
    "another message": (changed(message_id=MessageId("m.s_one.1")), {"caller wrong": 1}),
    "an exception": (lambda account, turn: account.raised(turn.text, RuntimeError("broken")), {"caller raised": 1}),
    "no return": (lambda account, turn: account.hung(turn.text), {"caller hung": 1}),
}


@pytest.mark.parametrize("what", CALLERS)
def test_what_the_caller_gets_is_held_against_what_it_asked_for(
    product: Product, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    caller, wanted = CALLERS[what]
    account = product.run(caller=caller)
    assert faults(account) == wanted
    account.tell()
    assert "What is wrong, and where" in capsys.readouterr().out


def ack(**fields: Any) -> Delivery:
    """Of the second turn."""
    right = Delivery(
        session_id=ONE,
        message_id=MessageId("m.s_one.2"),
        taken="started_turn",
        transport="memory",
        seq=1,
        turn_id=TurnId("t.s_one.2"),
    )
    return msgspec.structs.replace(right, **fields)


ACKS: dict[str, tuple[Delivery, dict[str, int]]] = {
    "right": (ack(), {}),
    "another turn": (ack(turn_id=TurnId("t.s_one.1")), {"caller wrong": 1}),
    "another message": (ack(message_id=MessageId("m.s_one.1")), {"caller wrong": 1}),
    "another session": (ack(session_id=TWO), {"caller wrong": 1}),
    "pending": (ack(taken="pending"), {"caller wrong": 1}),
    "a duplicate": (ack(duplicate=True), {"caller wrong": 1}),
}


@pytest.mark.parametrize("what", ACKS)
@pytest.mark.parametrize("hangs", [False, True])
def test_an_acknowledgement_names_what_else_there_is(product: Product, what: str, hangs: bool) -> None:
    given, wanted = ACKS[what]

    def caller(account: Any, turn: Turn) -> None:
        account.acknowledged(turn.text, given)
        account.hung(turn.text) if hangs else account.returned(turn.text, turn.row)

    assert faults(product.run(caller=caller)) == wanted | ({"caller hung": 1} if hangs else {})


def test_what_the_subscriber_misses_is_missing(product: Product) -> None:
    product.hears()
    assert faults(product.run()) == {"subscriber missing": 1}


def test_an_end_that_is_left_out_is_missing_once_though_its_seq_is_missing_too(product: Product) -> None:
    product.told[ONE].pop(2)
    assert faults(product.run()) == {"subscriber missing": 1}


def test_an_event_that_is_left_out_is_missing(product: Product) -> None:
    product.told[ONE].pop(1)
    assert faults(product.run()) == {"subscriber missing": 1}


def test_an_end_that_is_told_twice_is_double(product: Product) -> None:
    end = product.turns[1].event
    product.hears(end, end)
    assert faults(product.run()) == {"subscriber double": 2}  # the end, and its seq
    product.hears(end, msgspec.structs.replace(end, seq=6))
    assert faults(product.run()) == {"subscriber double": 1}


@pytest.mark.parametrize(
    "fields", [{"answer": "another"}, {"status": "lost"}, {"turn_id": "t.s_one.1"}, {"message_id": "m.s_one.1"}]
)
def test_a_wrong_end_that_is_told_is_wrong(product: Product, fields: dict[str, Any]) -> None:
    end = product.turns[1]
    body = CompletionReached(completion=msgspec.structs.replace(end.row, **fields))
    product.hears(msgspec.structs.replace(end.event, body=body))
    assert faults(product.run()) == {"subscriber wrong": 1}


def test_an_event_of_another_session_is_wrong(product: Product) -> None:
    end = product.turns[1].event
    product.hears(msgspec.structs.replace(end, session_id=TWO))
    assert faults(product.run()) == {"subscriber wrong": 1}


def test_an_end_of_a_turn_that_is_not_on_record_is_early_and_wrong(product: Product) -> None:
    end = product.turns[1].event
    product.hears(end, msgspec.structs.replace(end, seq=6, turn_id=TurnId("t.none")))
    assert faults(product.run()) == {"subscriber early": 1, "subscriber wrong": 1}


MINE = "turn_id = 't.s_one.2'"
COPY = "SELECT session_id, 6, at, type, turn_id, message_id, native_at, once, body FROM event"
SAID = "replace(body, 'answer s_one.2', 'another')"
NAMED = "replace(body, 't.s_one.2', 't.s_one.1')"
JOURNALS: dict[str, tuple[str, dict[str, int]]] = {
    "no event": (
        f"DELETE FROM event WHERE {MINE} AND type = 'unified_completion'",
        {"journal missing": 1, "subscriber wrong": 1},
    ),
    "two events": (
        f"INSERT INTO event {COPY} WHERE {MINE} AND type = 'unified_completion'",
        {"journal double": 1},
    ),
    "no completion": (
        f"DELETE FROM completion WHERE {MINE}",
        {"journal missing": 1, "caller early": 1, "subscriber early": 1},
    ),
    "no turn of the message": (
        f"UPDATE message SET turn_id = NULL WHERE {MINE}",
        {"journal missing": 1, "journal wrong": 1},
    ),
    "the message twice": (
        "INSERT INTO message SELECT 9, 'm9', session_id, state, turn_id, accepted_seq, body FROM message WHERE "
        + MINE,
        {"journal double": 1},
    ),
    "a gap": (f"DELETE FROM event WHERE {MINE} AND seq = 4", {"journal missing": 1}),
    "another answer in both": (
        f"UPDATE completion SET body = {SAID} WHERE {MINE}; UPDATE event SET body = {SAID} WHERE {MINE}",
        {"journal wrong": 1, "subscriber wrong": 1},
    ),
    "another answer in the event": (
        f"UPDATE event SET body = {SAID} WHERE {MINE}",
        {"journal wrong": 1},
    ),
    "of another session": (f"UPDATE message SET session_id = 's_two' WHERE {MINE}", {"journal wrong": 1}),
    "another turn in both": (
        f"UPDATE completion SET body = {NAMED} WHERE {MINE}; UPDATE event SET body = {NAMED} WHERE {MINE}",
        {"journal wrong": 2},
    ),
    "another session": (f"UPDATE completion SET session_id = 's_two' WHERE {MINE}", {"journal wrong": 1}),
    "a turn that nobody asked for, without an end": (
        "INSERT INTO turn VALUES (9, 't9', 's_one', 'x', '{}')",
        {"journal wrong": 1, "journal missing": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", JOURNALS)
def test_what_the_journal_holds_is_held_against_what_was_asked_for(product: Product, what: str) -> None:
    script, wanted = JOURNALS[what]
    product.db.executescript(script)
    assert {name: count for name, count in faults(product.run()).items() if name in wanted} == wanted


def test_where_turns_that_nobody_asked_for_may_be_they_end_once_too(product: Product) -> None:
    product.execute("INSERT INTO turn VALUES (9, 't9', 's_one', 'x', '{}')")
    assert faults(product.run(uninvited=True)) == {"journal missing": 2}


def test_a_session_is_settled_alone_and_an_end_that_comes_after_that_is_double(product: Product) -> None:
    account = of_bench("_account").Account(product.path, judge)
    for turn in product.turns:
        account.asked(turn.text, turn.row.session_id)
        account.returned(turn.text, turn.row)
        account.settle(ONE) if turn.text == "s_one.2" else None
    account.settle_rest()
    assert account.clean
    product.execute("INSERT INTO completion SELECT 'late', session_id, 9, status, 1.0, body FROM completion LIMIT 1")
    account.close()
    assert faults(account) == {"journal double": 1}


def test_of_a_run_that_was_broken_off_a_turn_that_nobody_has_yet_is_no_fault(product: Product) -> None:
    for statement in ("DELETE FROM event WHERE seq > 3", "DELETE FROM completion WHERE seq > 3"):
        product.execute(statement + " AND session_id = 's_one'")
    product.hears()
    assert faults(product.run(caller=lambda *_: None, interrupted=True)) == {}
    assert faults(product.run(caller=changed(), interrupted=True)) == {"caller early": 1, "journal missing": 2}


def test_each_fiftieth_session_is_followed_and_at_least_twenty(tmp_path: Path) -> None:
    follows = of_bench("_account").follows
    wanted = {1: 1, 10: 10, 39: 39, 100: 20, 1_000: 20, 10_000: 200}
    assert {count: sum(follows(n, count) for n in range(count)) for count in wanted} == wanted
