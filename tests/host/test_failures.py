"""What goes wrong around a turn: dialogs, starts that fail, transcripts that are replaced, lost wake-ups, a dying actor."""

from __future__ import annotations

import threading

import msgspec
import pytest

from host_kit import WAIT_S, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import Answer, RejectedError, TransportError, UsageError, events
from lastword.actors import turn as turn_shell
from lastword.actors.core import turn as turn_core
from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.facts import AssistantSaid, TurnClosed
from lastword.actors.core.outcome import Completion
from lastword.runtime import _counterpart
from lastword.runtime._edge import Survivor
from lastword.transports.providers.memory import Record

PERMISSION = DialogOpen(key="p1", question="Run rm -rf build?", options=("Yes", "No"), kind="permission")


# --- a record that is written anew ------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
@pytest.mark.parametrize("pieces", [(0,), (100,), (0, 100, 200)], ids=["empty", "begun", "bit_by_bit"])
def test_c17_a_record_that_is_seen_while_it_is_written_anew_loses_no_open_turn(make, pieces):
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "first")
    cli = rig.running(session)
    cli.finish("first answer")
    first.result(WAIT_S)
    second = away(session.run, "second")
    rig.running(session)
    rig.settle()
    data = rig.world.contents(cli.path)
    rig.world.replace(cli.path, b"")
    for start, end in zip((0, *pieces), (*pieces, len(data)), strict=True):
        rig.world.append(cli.path, data[start:end])
        rig.settle()
    cli.finish("second answer")
    done = second.result(WAIT_S)
    assert (done.status, done.answer) == ("completed", "second answer")
    assert [each.answer for each in completed(rig, session, 2)] == ["first answer", "second answer"]


# --- C25: dialogs -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C25")
def test_c25_a_dialog_is_an_event_nothing_is_typed_into_it_and_the_host_answers(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    keys = list(cli.keys)
    cli.open_dialog(PERMISSION)
    until(lambda: "dialog_opened" in kinds(rig, session))
    snapshot = session.snapshot()
    assert snapshot.state == "awaiting_user"
    assert (snapshot.dialog.question, snapshot.dialog.options) == ("Run rm -rf build?", ("Yes", "No"))
    pending = session.send("while it is open")
    with pytest.raises(UsageError) as caught:
        session.send(Answer(snapshot.dialog.dialog_id, 3))
    assert caught.value.kind == "usage"
    with pytest.raises(RejectedError) as caught:
        session.send(Answer("d_other", 1))
    assert caught.value.kind == "unknown_dialog"
    rig.settle()
    assert cli.keys == keys, "nothing may be typed while a dialog is open"
    ack = session.send(Answer(snapshot.dialog.dialog_id, 2))
    assert ack.taken == "applied"
    until(lambda: "dialog_closed" in kinds(rig, session))
    (closed,) = bodies(rig, session, events.DialogClosed)
    assert closed.body.by == "host"
    assert cli.keys[len(keys)] == "2"
    until(lambda: cli.queue == ["while it is open"])
    cli.join()
    cli.finish("ok")
    assert pending.message_id in waiting.result(WAIT_S).joined
    assert session.snapshot().dialog is None


@pytest.mark.contract("C25")
def test_c25_a_dialog_at_start_holds_the_first_message_and_a_person_may_answer_it(make):
    trust = DialogOpen(key="trust", question="Trust this folder?", options=("Yes", "No"), kind="trust")
    rig = make()
    rig.world.on_start = lambda cli: setattr(cli, "dialog", trust)
    session = rig.session()
    session.send("held")
    until(lambda: session.snapshot().state == "awaiting_user")
    cli = rig.cli(session)
    assert cli.keys == []
    cli.close_dialog()
    (done,) = completed(rig, session)
    assert done.answer == "echo: held"
    (closed,) = bodies(rig, session, events.DialogClosed)
    assert closed.body.by == "elsewhere"


@pytest.mark.contract("C25")
def test_c25_the_same_dialog_again_is_a_new_question_only_in_a_new_process(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.open_dialog(PERMISSION)
    until(lambda: session.snapshot().dialog)
    first = session.snapshot().dialog.dialog_id
    cli.exit(0)
    until(lambda: session.snapshot().state == "gone")
    until(lambda: kinds(rig, session).count("dialog_closed") == 1)  # what is seen may be on its way to the journal
    session.send("again")
    again = rig.running(session)
    again.open_dialog(PERMISSION)
    until(lambda: session.snapshot().dialog)
    assert session.snapshot().dialog.dialog_id != first
    again.close_dialog()
    again.finish("ok")


# --- starts that fail -----------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C21")
def test_c21_a_pane_that_cannot_be_opened_fails_the_turn_and_the_next_message_tries_again(make):
    rig = make()
    rig.world.fail_open = TransportError("transport_failed", "no more ptys")
    session = rig.session()
    done = session.run("go")
    assert (done.status, done.error.kind, done.source) == ("failed", "launch_failed", "delivery")
    assert "no more ptys" in done.error.message
    assert session.snapshot().state == "gone"
    assert session.run("still not").error.kind == "launch_failed"
    rig.world.fail_open = None
    assert session.run("now").answer == "echo: now"


@pytest.mark.contract("C02")
def test_c02_a_cli_that_exits_at_every_start_is_tried_twice_and_fails_what_waits(make):
    rig = make()
    rig.world.on_start = lambda cli: cli.exit(3)
    session = rig.session()
    until(lambda: session.snapshot().state == "gone")
    queued = away(session.run, "first", queue=True)
    done = queued.result(WAIT_S)
    assert (done.status, done.error.kind) == ("failed", "launch_failed")
    assert "status 3" in done.error.message
    assert len(rig.world.opened) <= 3
    rig.world.on_start = None
    assert session.run("healthy again").answer == "echo: healthy again"


@pytest.mark.contract("C02")
def test_c02_a_cli_that_exits_at_its_first_start_only_costs_nothing(make):
    rig = make()
    starts = []

    def start(cli):
        starts.append(cli)
        if len(starts) == 1:
            cli.exit(1)

    rig.world.on_start = start
    session = rig.session()
    assert session.run("go").answer == "echo: go"
    assert len(starts) == 2


@pytest.mark.contract("C24")
def test_c24_a_lost_paste_and_swallowed_enters_are_repeated_and_nothing_is_submitted_twice(make, clock):
    rig = make(clock=clock)
    session = rig.session()
    rig.settle()
    cli = rig.ready(session)
    cli.lose_pastes, cli.swallow_enters = 2, 3
    session.send("once only")
    clock.advance(20)
    (done,) = completed(rig, session)
    assert done.answer == "echo: once only"
    assert rig.world.contents(cli.path).count(b'"k":"prompt"') == 1
    assert kinds(rig, session).count("message_submitted") == 1


@pytest.mark.contract("C24")
@pytest.mark.contract("C22")
def test_c22_a_message_accepted_while_the_end_of_the_cli_is_being_read_is_delivered_once(make):
    """The pane is gone, the session does not know yet: what it hands to the dead pane must not come up twice later."""
    rig = make()
    session = rig.session()
    session.run("before")
    rig.world.unreadable = True
    rig.cli(session).exit(1)
    rig.settle()
    ack = session.send("just now")
    rig.settle()
    rig.world.unreadable = False
    done = completed(rig, session, 2)[1]
    assert (done.turn_id, done.answer) == (ack.turn_id, "echo: just now")
    session.run("after")
    path = rig.cli(session).path
    assert rig.world.contents(path).count(b'"k":"prompt"') == 3


@pytest.mark.contract("C24")
def test_c24_a_text_that_never_lands_fails_as_not_delivered(make, clock):
    rig = make(clock=clock)
    session = rig.session()
    rig.settle()
    cli = rig.ready(session)
    cli.lose_pastes = 1000
    session.send("void")
    clock.advance(60)
    (done,) = completed(rig, session)
    assert (done.status, done.error.kind, done.source) == ("failed", "not_delivered", "delivery")
    assert "Enter" not in cli.keys
    cli.lose_pastes = 0
    session.send("next")
    rig.settle()
    assert completed(rig, session, 2)[1].answer == "echo: next"


@pytest.mark.contract("C24")
def test_c24_a_persons_draft_is_not_mixed_with_ours(make, clock):
    rig = make(clock=clock)
    session = rig.session()
    rig.settle()
    cli = rig.ready(session)
    cli.draft = "I was just about to"
    session.send("ours")
    clock.advance(30)
    assert cli.draft == "I was just about to"
    assert cli.keys == []
    (held,) = bodies(rig, session, events.StallDiagnosed)
    assert "draft" in held.body.waits_for
    cli.draft = ""
    clock.advance(1)
    assert completed(rig, session)[0].answer == "echo: ours"


# --- the record -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C30")
@pytest.mark.contract("C06")
@pytest.mark.parametrize("turns_before", [1, 80])
def test_c30_a_transcript_that_is_replaced_mid_way_is_read_again_without_a_second_event(make, turns_before):
    rig = make()
    session = rig.session()
    for number in range(turns_before):
        session.run(f"{number}")
    rig.world.manual = True
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.tool("c1", "Bash")
    cli.tool_end("c1", "out")
    cli.say("half way")
    until(lambda: kinds(rig, session).count("assistant_message") == turns_before + 1)
    before = rig.events(session)
    rig.world.replace(cli.path, rig.world.contents(cli.path))
    rig.settle()
    assert rig.events(session) == before
    cli.finish("the end")
    assert waiting.result(WAIT_S).answer == "the end"
    rig.world.replace(cli.path, rig.world.contents(cli.path))
    rig.settle()
    assert len(completions(rig, session)) == turns_before + 1
    assert kinds(rig, session).count("tool_finished") == 1
    assert rig.dead_letters().counts()["transcript_rewritten"] == 2


@pytest.mark.contract("C06")
def test_c06_unreadable_and_unknown_records_are_counted_and_the_turn_goes_on(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    rig.world.append(cli.path, b"{not json\n\xff\xfe\n{}\n")
    cli.finish("fine")
    assert waiting.result(WAIT_S).answer == "fine"
    rig.settle()
    assert rig.dead_letters().counts()["unreadable"] == 3


@pytest.mark.contract("C05")
def test_c05_a_record_that_arrives_byte_by_byte_is_read_once_it_is_whole(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.hold_records = True
    cli.write(Record(k="said", turn=cli.turn, text="émile ✓"))
    cli.write(Record(k="end", turn=cli.turn, text="émile ✓", status="completed"))
    for byte in b"".join(cli._kept):
        assert not waiting.done()
        rig.world.append(cli.path, bytes([byte]))
    assert waiting.result(WAIT_S).answer == "émile ✓"


@pytest.mark.contract("C05")
def test_c05_with_every_wake_up_lost_the_sweep_finds_everything(make):
    rig = make(wake=False)
    session = rig.session()
    stop = threading.Event()

    def sweep():
        while not stop.wait(0.02):
            rig.world.sweep()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for number in range(10):
            assert session.run(f"{number}").answer == f"echo: {number}"
    finally:
        stop.set()
        sweeper.join(WAIT_S)
    assert len(completions(rig, session)) == 10


# --- a turn's actor that dies ------------------------------------------------------------------------------------------


@pytest.mark.contract("C40")
@pytest.mark.contract("C02")
@pytest.mark.parametrize(
    "at",
    [turn_core.Begin, turn_core.Submitted, turn_core.Bound, AssistantSaid, TurnClosed, turn_core.CompletionRecorded],
)
def test_c40_a_turn_actor_that_dies_is_replaced_under_a_new_epoch_and_settles_once(make, monkeypatch, at):
    """Also when it dies between the commit of its completion and its own notice of it: the one on record stands."""
    failed, epochs = [], []
    real = turn_core.step

    def step(turn, event, now):
        if isinstance(event, at) and not failed:
            failed.append(type(event))
            raise RuntimeError("killed")
        epochs.append(turn.epoch)
        return real(turn, event, now)

    monkeypatch.setattr(turn_shell.core, "step", step)
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session) if at not in (turn_core.Begin, turn_core.Bound) else rig.cli(session)
    until(lambda: cli.turn)
    cli.say("on the way")
    cli.tool("c1", "Bash")
    cli.finish("survived")
    done = waiting.result(WAIT_S)
    rig.settle()
    assert failed == [at]
    assert set(epochs) == {1, 2} or set(epochs) == {2}
    assert (done.status, done.answer) == ("completed", "survived")
    assert completions(rig, session) == [done]
    told = kinds(rig, session)
    for once in ("turn_started", "message_submitted", "tool_started", "tool_finished"):
        assert told.count(once) == 1, once
    assert told.count("assistant_message") == 2
    assert rig.dead_letters().counts()["turn_actor_failed"] == 1
    assert rig.runtime._journal.message(done.message_id).state == "bound", "its row was told again as well"
    cli.world.manual = False
    assert session.run("and on").status == "completed"


@pytest.mark.contract("C40")
def test_c40_what_an_actor_of_an_old_epoch_still_says_is_not_taken(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    turn_id = session.snapshot().turn_id
    forged = turn_shell.TurnFinished(
        turn_id=turn_id,
        epoch=0,
        completion=Completion(
            turn_id=turn_id,
            session_id=session.session_id,
            status="completed",
            source="transcript",
            provider="memory",
            transport="memory",
            answer="of an old epoch",
        ),
    )
    session._counterpart.ref.tell(forged)
    rig.settle()
    assert not waiting.done()
    cli.finish("the real one")
    assert waiting.result(WAIT_S).answer == "the real one"


@pytest.mark.contract("C40")
@pytest.mark.contract("C17")
def test_c40_a_session_whose_actor_failed_is_taken_over_with_its_living_cli_and_its_turn(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    edge = rig.runtime._edges.opened["memory"]
    rig.runtime._edges.opened["memory"] = msgspec.structs.replace(
        edge, reattach=lambda row: Survivor(endpoint=cli, epoch=row.epoch) if cli.alive else None
    )
    ack = session.send("go")
    until(lambda: cli.turn)
    failed = session._counterpart.ref
    failed.tell(object())  # no message of the session's: its handler raises
    until(lambda: session._counterpart.ref is not failed)
    cli.finish("done")
    until(lambda: any(each.turn_id == ack.turn_id for each in completions(rig, session)))
    (done,) = completions(rig, session)
    assert (done.status, done.answer) == ("completed", "done")
    assert cli.alive
    cli.world.manual = False
    assert session.run("again").answer == "echo: again"


@pytest.mark.contract("C40")
def test_c40_who_waits_for_a_turn_is_woken_by_the_end_of_the_actor_and_looks_for_nothing_meanwhile(make, monkeypatch):
    monkeypatch.setattr(_counterpart, "LOOK_S", 10_000.0)
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    rig.running(session)
    session._counterpart.ref._cell.kill()
    error = waiting.exception(WAIT_S)
    assert isinstance(error, RejectedError)
    assert error.kind == "session_closed"
