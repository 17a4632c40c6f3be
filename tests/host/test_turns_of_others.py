"""Turns that nobody sent: their own id, origin and completion (C19)."""

from __future__ import annotations

import pytest

from host_kit import WAIT_S, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import events
from lastword.transports.providers.memory import Record


@pytest.mark.contract("C19")
@pytest.mark.parametrize(
    ("origin", "told"), [("", "human_terminal"), ("task_notification", "task_notification"), ("hook", "hook")]
)
def test_c19_a_turn_that_nobody_sent_has_its_own_id_origin_and_one_completion(make, origin, told):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.start_turn("typed by a person", origin=origin)
    until(lambda: "turn_started" in kinds(rig, session))
    assert session.snapshot().state == "busy"
    cli.finish("for the person")
    (done,) = completed(rig, session)
    assert (done.origin, done.message_id, done.answer) == (told, None, "for the person")
    (started,) = bodies(rig, session, events.TurnStarted)
    assert (started.turn_id, started.body.origin, started.body.text) == (done.turn_id, told, "typed by a person")


@pytest.mark.contract("C19")
def test_c19_a_foreign_turn_never_closes_one_of_ours(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.start_turn("theirs")
    until(lambda: "turn_started" in kinds(rig, session))
    waiting = away(session.run, "ours", queue=True)
    until(lambda: cli.queue == ["ours"])
    cli.finish("their answer")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    assert not waiting.done()
    cli.finish("our answer")
    assert waiting.result(WAIT_S).answer == "our answer"
    assert [done.origin for done in completions(rig, session)] == ["human_terminal", "host"]


@pytest.mark.contract("C19")
def test_c19_a_person_who_types_the_same_words_as_a_background_notification_is_kept_apart(make):
    """A notification's turn is never bound to a message, whatever its text."""
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    session.send("same words")
    until(lambda: cli.turn)
    native = cli.turn
    cli._kept.clear()
    cli.hold_records = False
    cli.write(Record(k="prompt", turn="n1", text="same words", origin="task_notification"))
    cli.write(Record(k="end", turn="n1", status="completed", text="of the task"))
    cli.write(Record(k="prompt", turn=native, text="same words"))
    cli.write(Record(k="end", turn=native, status="completed", text="of the message"))
    done = completed(rig, session, 2)
    assert [(one.origin, one.answer) for one in done] == [
        ("task_notification", "of the task"),
        ("host", "of the message"),
    ]


@pytest.mark.contract("C19")
@pytest.mark.contract("C24")
def test_c24_a_prompt_that_the_cli_changed_beyond_recognition_is_bound_to_the_message_that_alone_can_have_made_it(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    waiting = away(session.run, "ours")
    until(lambda: cli.turn and "message_submitted" in kinds(rig, session))
    native = cli.turn
    cli._kept.clear()
    cli.hold_records = False
    cli.write(Record(k="prompt", turn=native, text="[made of it]"))
    cli.write(Record(k="end", turn=native, status="completed", text="the answer"))
    done = waiting.result(WAIT_S)
    assert (done.origin, done.status, done.answer) == ("host", "completed", "the answer")
    assert [one.origin for one in completions(rig, session)] == ["host"]


@pytest.mark.contract("C03")
@pytest.mark.contract("C24")
def test_c24_a_message_is_not_told_undelivered_while_a_prompt_of_nobodys_stands_behind_its_enter(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    rig.settle()
    cli = rig.ready(session)
    cli.hold_records = True
    session.send("ours")
    clock.advance(5)
    rig.settle()
    assert "message_submitted" in kinds(rig, session)
    native = cli.turn
    cli._kept.clear()
    cli.hold_records = False
    clock.advance(5)
    cli.write(Record(k="prompt", turn=native, text="[made of it]"))
    cli.finish("for somebody")
    clock.advance(120)
    first, second = completed(rig, session, 2)
    assert (first.origin, first.status) == ("human_terminal", "completed")
    assert (second.origin, second.status, second.error.kind) == ("host", "lost", "superseded")
    assert "[made of it]" not in second.error.message
