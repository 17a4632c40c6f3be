"""Admission, order and binding, against a CLI that uses what it is given in its own way."""

from __future__ import annotations

import os
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastword.actors.core import session as core
from lastword.actors.core import session_effects as asks
from lastword.actors.core import turn as turns
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    RecordExhausted,
    TurnClosed,
    TurnInherited,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Evidence
from session_model import HERE, SessionModel, new_core, somewhere, typed

EXAMPLES = int(os.environ.get("LASTWORD_EXAMPLES", "500"))
ORIGINS = ("", "task_notification", "hook", "local_command", "resubmitted_steer")
OPS = (
    *("send", "deliver", "report", "take", "read", "finish") * 2,
    *("merge", "absorb", "drop", "lose", "prove_lost", "person", "say", "close", "die", "withdraw"),
)


def step(model: SessionModel, op: str, number: int) -> None:
    match op:
        case "send":
            model.send("abc"[number % 3])
        case "merge":
            model.take(2 + number % 2)
        case "person":
            model.person(("by hand", "a")[number % 2], ORIGINS[number % len(ORIGINS)])
        case "read":
            model.read(1 + number)
        case "finish":
            model.finish(number)
        case _:
            getattr(model, op)()


@pytest.mark.contract("C19")
@pytest.mark.contract("C20")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops=st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 9)), max_size=80))
def test_c20_every_message_ends_in_one_turn_or_undelivered_and_every_turn_ends_once(ops: list[tuple[str, int]]) -> None:
    model = SessionModel()
    for op, number in ops:
        step(model, op, number)
    model.settle()
    model.check()


# --- one promise each -------------------------------------------------------------------------------------------


def prompt(native: str, text: str, origin: str = "") -> PromptRecorded:
    return PromptRecorded(native_turn=native, text=text, evidence=HERE, origin=origin)


def closed(native: str) -> TurnClosed:
    return TurnClosed(native_turn=native, status="completed", answer="done", evidence=HERE)


def queued(text: str) -> InputQueued:
    return InputQueued(text=text, evidence=somewhere())


def with_messages(*texts: str, deliver: bool = True) -> core.SessionCore:
    """A session with these messages m1, m2, ...; the first starts the turn t1."""
    session = new_core()
    for number, text in enumerate(texts, 1):
        turn_id = TurnId("t1") if session.admit(run=False).starts_turn else None
        session.accept(MessageId(f"m{number}"), typed(text), turn_id)
        if deliver:
            session.typing(MessageId(f"m{number}"))
            session.submitted(MessageId(f"m{number}"), ())
    return session


def told(effects: list[asks.SessionEffect]) -> list[tuple[str, str]]:
    """The effects in short: what, and of whom."""
    short: list[tuple[str, str]] = []
    for effect in effects:
        match effect:
            case asks.ToTurn():
                short.append((type(effect.event).__name__, effect.turn_id))
            case asks.OpenTurn():
                short.append((f"Open {effect.origin}", effect.message_id or ""))
            case asks.Proved():
                short.append((f"Proved {effect.stage}", effect.message_id))
            case asks.Undelivered():
                short.append((f"Undelivered {effect.reason}", effect.message_id))
            case asks.Rebound():
                short.append(("Rebound", effect.native_session))
            case asks.Gone():
                short.append(("Gone", ",".join(effect.redeliver)))
            case asks.Count():
                short.append(("Count", effect.what))
    return short


@pytest.mark.contract("C14")
@pytest.mark.contract("C20")
def test_c20_a_message_for_an_idle_session_starts_a_turn_and_any_other_is_pending() -> None:
    session = new_core()
    assert session.admit(run=True).starts_turn
    session.accept(MessageId("m1"), typed("a"), TurnId("t1"))
    assert session.admit(run=False) == core.Admission(starts_turn=False)
    assert session.admit(run=True).refused == "busy"
    session.typing(MessageId("m1"))
    session.read([prompt("n1", "a")])
    assert session.pending == {}
    assert session.admit(run=True).refused == "busy"
    session.read([closed("n1")])
    assert session.admit(run=True).refused == "busy"
    session.finished(TurnId("t1"))
    assert session.admit(run=True).starts_turn


@pytest.mark.contract("C21")
def test_c21_too_many_waiting_messages_are_refused_as_overloaded_and_a_refused_accept_leaves_nothing() -> None:
    session = with_messages(*["a"] * (core.WAITING_MAX - 1), deliver=False)
    assert session.admit(run=False).refused is None
    session.accept(MessageId("last"), typed("a"), None)
    assert session.admit(run=False).refused == "overloaded"
    session.refuse(MessageId("last"))
    assert session.admit(run=False).refused is None
    single = with_messages("a", deliver=False)
    single.refuse(MessageId("m1"))
    assert single.idle


@pytest.mark.contract("C13")
def test_c13_the_same_text_twice_is_bound_in_the_order_of_delivery() -> None:
    session = with_messages("a", "a")
    assert told(session.read([prompt("n1", "a")])) == [("Proved submitted", "m1"), ("Bound", "t1")]
    assert told(session.read([closed("n1")])) == [("TurnClosed", "t1")]
    session.finished(TurnId("t1"))
    assert told(session.read([prompt("n2", "a")])) == [("Proved submitted", "m2"), ("Open host", "m2")]


@pytest.mark.contract("C20")
def test_c20_a_text_that_was_not_delivered_yet_is_not_bound_to_what_a_person_typed() -> None:
    session = with_messages("a", deliver=False)
    assert told(session.read([prompt("n1", "a")])) == [("Open human_terminal", "")]
    assert list(session.pending) == ["m1"]


@pytest.mark.contract("C20")
def test_c20_messages_that_the_cli_merged_share_its_turn() -> None:
    session = with_messages("a", "b", "c", "d")
    effects = session.read([prompt("n1", "a\nb\n\nc")])
    assert told(effects) == [
        ("Proved submitted", "m1"),
        ("Bound", "t1"),
        ("Proved submitted", "m2"),
        ("Joined", "t1"),
        ("Proved submitted", "m3"),
        ("Joined", "t1"),
    ]
    assert list(session.pending) == ["m4"]


@pytest.mark.contract("C19")
@pytest.mark.parametrize(
    ("recorded", "origin"),
    [
        ("", "human_terminal"),
        ("task_notification", "task_notification"),
        ("hook", "hook"),
        ("local_command", "local_command"),
        ("resubmitted_steer", "resubmitted_steer"),
    ],
)
def test_c19_a_prompt_that_nobody_sent_gets_a_turn_of_its_own_and_closes_none_of_ours(
    recorded: str, origin: str
) -> None:
    session = with_messages("a")
    text = "other" if not recorded else "a"
    assert told(session.read([prompt("n1", text, recorded), closed("n1")])) == [
        (f"Open {origin}", ""),
        ("TurnClosed", "minted 1"),
    ]
    assert told(session.finished(TurnId("minted 1"))) == []
    assert list(session.open) == ["t1"]
    assert told(session.read([prompt("n2", "a")])) == [("Proved submitted", "m1"), ("Bound", "t1")]


@pytest.mark.contract("C19")
def test_c19_a_message_that_owns_a_turn_and_joined_another_ends_with_that_one() -> None:
    session = with_messages("a")
    session.read([prompt("n1", "by hand")])
    effects = session.read([queued("a"), InputJoined(native_turn="n1", text="a", evidence=somewhere())])
    assert told(effects) == [
        ("Submitted", "t1"),
        ("Proved queued", "m1"),
        ("Proved submitted", "m1"),
        ("Adopted", "t1"),
    ]
    assert session.pending == {}
    assert sorted(told(session.read([closed("n1")]))) == [("TurnClosed", "minted 1"), ("TurnClosed", "t1")]
    session.finished(TurnId("t1"))
    session.finished(TurnId("minted 1"))
    assert session.idle


def test_a_message_joined_into_a_turn_that_nobody_knows_is_undelivered_once() -> None:
    session = with_messages("x", "a")
    effects = session.read([InputJoined(native_turn="n9", text="a", evidence=somewhere())])
    assert told(effects) == [("Proved submitted", "m2"), ("Undelivered joined_unknown_turn", "m2")]
    assert list(session.pending) == ["m1"]


@pytest.mark.contract("C20")
def test_c20_a_message_that_the_cli_dropped_has_an_end() -> None:
    session = with_messages("a", "b")
    dropped = [InputDropped(text=text, reason="edited", evidence=somewhere()) for text in ("b", "a")]
    assert told(session.read([queued("a"), *dropped])) == [
        ("Submitted", "t1"),
        ("Proved queued", "m1"),
        ("Proved submitted", "m2"),
        ("Undelivered not_delivered", "m2"),
        ("Proved submitted", "m1"),
        ("Undeliverable", "t1"),
    ]
    session.finished(TurnId("t1"))
    assert session.idle


@pytest.mark.contract("C13")
@pytest.mark.contract("C20")
@pytest.mark.parametrize("ended", ["", "joined", "dropped", "run"])
def test_c20_a_record_that_is_read_again_tells_nothing_of_another_message_with_its_text(ended: str) -> None:
    session = new_core()
    session.accept(MessageId("m0"), typed("a"), TurnId("t0"))
    session.typing(MessageId("m0"))
    record: list[InputQueued | InputJoined | InputDropped | PromptRecorded | TurnClosed] = [prompt("n1", "a")]
    session.read(record)
    session.accept(MessageId("m1"), typed("a"), None)
    session.typing(MessageId("m1"))
    more: list[InputQueued | InputJoined | InputDropped | PromptRecorded | TurnClosed] = [queued("a")]
    if ended == "joined":
        more.append(InputJoined(native_turn="n1", text="a", evidence=somewhere()))
    elif ended == "dropped":
        more.append(InputDropped(text="a", reason="edited", evidence=somewhere()))
    elif ended == "run":
        more += [closed("n1"), prompt("n2", "a")]
    session.read(more)
    if ended == "run":
        session.finished(TurnId("t0"))
    session.accept(MessageId("m2"), typed("a"), None)
    session.typing(MessageId("m2"))
    before = session.pending[MessageId("m2")].stage
    again = session.read([*record, *more])
    assert session.pending[MessageId("m2")].stage == before == "typing"
    assert not any(isinstance(effect, asks.Proved | asks.Undelivered) for effect in again)
    (proved,) = (effect for effect in session.read([queued("a")]) if isinstance(effect, asks.Proved))
    assert (proved.message_id, proved.stage) == ("m2", "queued")


def test_one_record_that_tells_of_two_messages_with_one_text_tells_of_both() -> None:
    session = new_core()
    for name in ("m0", "m1"):
        session.accept(MessageId(name), typed("a"), None)
        session.typing(MessageId(name))
    line = somewhere()
    both = [InputDropped(text="a", reason="returned_to_editor", evidence=line) for _ in range(2)]
    ends = [effect.message_id for effect in session.read(both) if isinstance(effect, asks.Undelivered)]
    assert ends == ["m0", "m1"]


def test_a_queued_message_is_proved_once_and_then_runs() -> None:
    session = with_messages("a", "b")
    assert told(session.read([prompt("n1", "a"), queued("b"), queued("b")])) == [
        ("Proved submitted", "m1"),
        ("Bound", "t1"),
        ("Proved queued", "m2"),
    ]
    assert session.pending[MessageId("m2")].stage == "queued"


def test_a_withdrawn_message_ends_its_turn_or_is_undelivered() -> None:
    session = with_messages("a", "b", deliver=False)
    assert told(session.withdraw(MessageId("m2"))) == [("Undelivered withdrawn", "m2")]
    assert told(session.withdraw(MessageId("m1"))) == [("Withdrawn", "t1")]
    assert session.withdraw(MessageId("m1")) == []
    session.finished(TurnId("t1"))
    assert session.idle


@pytest.mark.contract("C03")
def test_c03_the_end_of_the_cli_settles_what_was_submitted_and_gives_back_what_was_not_typed() -> None:
    session = with_messages("a", "b")
    session.accept(MessageId("m3"), typed("c"), None)
    session.accept(MessageId("m4"), typed("d"), None)
    session.typing(MessageId("m3"))
    session.read([prompt("n1", "a")])
    effects = session.read([RecordExhausted(exit_status=3)])
    assert told(effects) == [
        ("Undelivered provider_exited", "m2"),
        ("RecordExhausted", "t1"),
        ("Gone", "m3,m4"),
    ]
    assert session.settling(TurnId("t1"))
    session.finished(TurnId("t1"))
    assert [pending.stage for pending in session.pending.values()] == ["waiting", "waiting"]


def test_the_end_of_the_cli_leaves_a_turn_whose_text_was_never_typed_open() -> None:
    session = with_messages("a", deliver=False)
    assert told(session.read([RecordExhausted()])) == [("Gone", "m1")]
    assert not session.settling(TurnId("t1"))
    session.typing(MessageId("m1"))
    assert told(session.read([prompt("n1", "a")])) == [("Proved submitted", "m1"), ("Submitted", "t1"), ("Bound", "t1")]


def test_another_conversation_of_the_cli_is_followed_once() -> None:
    session = with_messages("a")
    moved = CliStatusSeen(status="idle", waiting_for="", updated_at=1.0, native_session="other")
    assert told(session.read([moved])) == [("Rebound", "other"), ("CliStatusSeen", "t1")]
    assert told(session.read([moved])) == [("CliStatusSeen", "t1")]
    session.read([prompt("n1", "a")])
    assert told(session.read([turns.Superseded()])) == [("Superseded", "t1")]
    assert session.settling(TurnId("t1"))


def test_a_superseded_conversation_leaves_a_turn_that_is_not_bound_open() -> None:
    session = with_messages("a")
    assert session.read([turns.Superseded()]) == [asks.Moved()]
    assert told(session.read([prompt("n1", "a")]))[1] == ("Bound", "t1")


def test_copied_history_of_another_conversation_ends_the_turn_that_was_opened_for_it() -> None:
    session = new_core()
    session.read([prompt("n1", "old")])
    assert told(session.read([TurnInherited(native_turn="n1", evidence=HERE)])) == [("Superseded", "minted 1")]
    session.finished(TurnId("minted 1"))
    assert session.idle
    assert session.read([prompt("n1", "old")]) == []


@pytest.mark.contract("C19")
def test_c19_nothing_is_read_out_behind_a_terminal_before_its_turn_is_settled() -> None:
    session = with_messages("a", "b")
    effects = session.read([prompt("n1", "a"), closed("n1"), prompt("n2", "b"), closed("n2")])
    assert told(effects)[-1] == ("TurnClosed", "t1")
    assert session.backlog == 2
    assert told(session.finished(TurnId("t1"))) == [
        ("Proved submitted", "m2"),
        ("Open host", "m2"),
        ("TurnClosed", "minted 1"),
    ]
    assert session.backlog == 0


@pytest.mark.contract("C17")
@pytest.mark.parametrize("settled", [True, False])
def test_c17_a_record_that_is_read_again_opens_and_closes_nothing_twice(settled: bool) -> None:
    session = new_core(was_settled=lambda native: settled and native == "n1")
    if not settled:
        session.known_native("n1", TurnId("t1"))
    assert told(session.read([prompt("n1", "a")])) == ([] if settled else [("Bound", "t1")])
    expected = [("Count", "late_terminal")] if settled else [("TurnClosed", "t1")]
    assert told(session.read([closed("n1")])) == expected
    session.finished(TurnId("t1"))
    assert session.idle
    assert told(session.read([prompt("n1", "a"), closed("n1")])) == [("Count", "late_terminal")]


@pytest.mark.contract("C17")
def test_c17_a_session_that_began_here_asks_no_journal_what_was_settled_until_it_forgets(monkeypatch) -> None:
    monkeypatch.setattr(core, "CLOSED_KEPT_MAX", 2)
    asked: list[str] = []
    session = new_core(was_settled=lambda native: bool(asked.append(native)) or native == "n1")
    session.remembers_all = True
    for number in (1, 2, 3):
        [opened] = session.read([prompt(f"n{number}", "by a person")])
        assert told(session.read([closed(f"n{number}")])) == [("TurnClosed", opened.turn_id)]
        session.finished(opened.turn_id)
    assert asked == []
    assert told(session.read([prompt("n1", "by a person"), closed("n1")])) == [("Count", "late_terminal")]
    assert asked == ["n1"], "it was forgotten: the journal knows"


def test_facts_of_a_closed_or_an_unknown_turn_are_counted() -> None:
    session = with_messages("a")
    session.read([prompt("n1", "a"), closed("n1")])
    session.finished(TurnId("t1"))
    said = [AssistantSaid(native_turn=native, native_message="x", text="y", evidence=HERE) for native in ("n1", "n9")]
    assert told(session.read([*said, closed("n1"), closed("n9")])) == [
        ("Count", "late_fact"),
        ("Count", "fact_of_unknown_turn"),
        ("Count", "late_terminal"),
        ("Count", "terminal_of_unknown_turn"),
    ]


def test_an_interrupt_means_the_turn_that_runs_before_the_one_that_is_delivered() -> None:
    session = with_messages("a")
    assert session.interrupted_turn() == "t1"
    session.read([prompt("n1", "by hand")])
    assert session.interrupted_turn() == "minted 1"
    session.read([closed("n1")])
    assert session.interrupted_turn() == "t1"


# --- a prompt whose text the CLI changed ------------------------------------------------------------------------


def at(
    stamp: float | None, text: str, native: str = "n1", taken: Literal["typed", "shell"] = "typed"
) -> PromptRecorded:
    evidence = Evidence(source="record", offset=0, native_at=stamp)
    return PromptRecorded(native_turn=native, text=text, evidence=evidence, taken=taken)


def entered(*texts: str, at: float | None = 100.0) -> core.SessionCore:
    """A session whose messages were entered at that time."""
    session = new_core()
    for number, text in enumerate(texts, 1):
        turn_id = TurnId("t1") if session.admit(run=False).starts_turn else None
        session.accept(MessageId(f"m{number}"), typed(text), turn_id, accepted_at=99.0)
        session.typing(MessageId(f"m{number}"))
        session.submitted(MessageId(f"m{number}"), (), at)
    return session


@pytest.mark.parametrize(
    "recorded", ["R\u00e9sum\u00e9 K b", "Re\u0301sume\u0301\n\u212ab", "Re\u0301sume\u0301 \u212a\ufe0f b"]
)
@pytest.mark.contract("C19")
@pytest.mark.contract("C24")
def test_c24_a_prompt_that_is_ours_but_for_what_a_terminal_does_to_any_text_is_ours(recorded: str) -> None:
    session = entered("Re\u0301sume\u0301 \u212a b", at=None)
    assert told(session.read([at(None, recorded)]))[:2] == [("Proved submitted", "m1"), ("Bound", "t1")]


@pytest.mark.contract("C19")
def test_c19_the_exact_text_goes_before_the_alike_one_and_another_text_is_nobodys() -> None:
    session = entered("\u212a", "K", at=None)
    assert ("Proved submitted", "m2") in told(session.read([at(None, "K")]))
    assert ("Open human_terminal", "") in told(entered("Resume", at=None).read([at(None, "R\u00e9sum\u00e9")]))


LIKE = ":-) please, and at once"


@pytest.mark.contract("C24")
def test_c24_a_changed_text_is_known_again_out_of_the_clis_own_queue() -> None:
    session = entered("one", "[smile] and the second of them")
    session.read([at(100.1, "one")])
    seen = InputQueued(text=":-) and the second of them", evidence=Evidence(source="record", offset=7, native_at=100.3))
    assert told(session.read([seen])) == [("Proved queued", "m2")]
    assert ("Proved submitted", "m2") in told(session.read([at(105.0, ":-) and the second of them", "n2")]))


@pytest.mark.contract("C24")
def test_c24_the_first_prompt_right_behind_our_enter_is_ours_where_nothing_else_can_have_made_it() -> None:
    session = entered("[smile] please, and at once")
    effects = told(session.read([at(100.2, ":-) please, and at once")]))
    assert effects[:3] == [("Proved submitted", "m1"), ("Count", "undeclared_rewriting"), ("Bound", "t1")]


@pytest.mark.parametrize(
    ("stamp", "texts", "enter", "taken", "said"),
    [
        (99.9, ("[smile] please, and at once",), 100.0, "typed", LIKE),
        (100.0 + core.OUR_ENTER_S + 0.1, ("[smile] please, and at once",), 100.0, "typed", LIKE),
        (None, ("[smile] please, and at once",), 100.0, "typed", LIKE),
        (100.2, ("[smile] please, and at once",), None, "typed", LIKE),
        (100.2, ("[smile] please, and at once", "more"), 100.0, "typed", LIKE),
        (100.2, ("[smile] please, and at once",), 100.0, "shell", LIKE),
        (100.2, ("[smile] please, and at once",), 100.0, "typed", "something of their own"),
    ],
    ids=[
        "before our Enter",
        "late",
        "without a stamp",
        "of an earlier life",
        "two of ours",
        "a shell line",
        "another text",
    ],
)
@pytest.mark.contract("C19")
def test_c19_a_prompt_that_a_person_can_have_made_is_theirs(
    stamp: float | None, texts: tuple[str, ...], enter: float | None, taken: Literal["typed", "shell"], said: str
) -> None:
    effects = told(entered(*texts, at=enter).read([at(stamp, said, taken=taken)]))
    assert effects == [("Open human_terminal", "")]


@pytest.mark.contract("C03")
@pytest.mark.contract("C24")
def test_c24_absence_behind_our_enter_is_no_proof_beside_a_prompt_that_nobody_owns() -> None:
    session = entered("[smile]", "more")
    session.read([at(100.2, ":-)")])
    assert told(session.undeliverable(MessageId("m1"), "not_delivered", "nothing on record")) == [("Superseded", "t1")]
    assert told(session.undeliverable(MessageId("m2"), "not_delivered", "")) == [("Undelivered superseded", "m2")]


@pytest.mark.contract("C24")
def test_c24_a_prompt_of_before_our_enter_leaves_the_proof_of_absence_whole() -> None:
    session = entered("[smile]")
    session.read([at(99.5, "by hand")])
    assert told(session.undeliverable(MessageId("m1"), "not_delivered", "nothing")) == [("Undeliverable", "t1")]
