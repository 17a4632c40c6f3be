"""An open dialog (C25): nothing is typed into it but an answer, it outlives its host, and an interrupt overtakes it."""

from __future__ import annotations

import shutil

import msgspec
import pytest

from dialog_kit import PERMISSION, TRUST, Thinking, advanced, closed_by, counted, digits, edge_of, opened, shown
from host_kit import WAIT_S, away, bodies, completed, kinds
from kit_system import until
from lastword import Answer, Command, Dialog, Interrupt, RejectedError, Runtime, events
from lastword.actors.core.adapter import DialogOpen
from lastword.runtime._edge import Survivor

pytestmark = [pytest.mark.contract("C25"), pytest.mark.filterwarnings("error")]


@pytest.mark.contract("C21")
@pytest.mark.contract("C25")
def test_c25_a_command_while_a_dialog_is_open_is_refused_and_typed_by_nobody(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.open_dialog(DialogOpen(key="d", question="May I?", options=("yes", "no")))
    until(lambda: session.snapshot().state == "awaiting_user", within_s=WAIT_S)
    with pytest.raises(RejectedError) as caught:
        session.send(Command("/clear"))
    assert caught.value.kind == "dialog_open"
    cli.close_dialog()
    until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)
    rig.settle()
    assert "<paste>" not in cli.keys
    assert session.send(Command("/clear")).taken == "applied"


# --- an open dialog outlives its host -------------------------------------------------------------------------------


def taken_over(rig, cli, tmp_path, session, meanwhile, alive=True):
    """The next host's events of dialogs, once it has looked: ``(type, dialog, by)``."""
    shutil.copytree(rig.state, tmp_path / "killed", ignore=shutil.ignore_patterns("*.lock", "*.sock"))
    rig.abandon()
    rig.world.host_died()
    meanwhile()
    edge = edge_of(
        rig.world,
        survivors=lambda handles: {each: Survivor(endpoint=cli if alive else None, epoch=1) for each in handles},
    )
    second = Runtime.open(tmp_path / "killed", edge=edge, durability="process")
    return second, second.session(session_id=session.session_id)


def told_of_dialogs(runtime, session):
    told = [event.body for event in runtime._journal.events(session.session_id, 0, 1000)]
    return [
        (type(body).__name__, body.dialog_id, getattr(body, "by", ""))
        for body in told
        if isinstance(body, events.DialogOpened | events.DialogClosed)
    ]


@pytest.mark.contract("C17")
def test_c17_a_dialog_that_closed_while_no_host_lived_is_told_as_closed_elsewhere(make, tmp_path):
    rig = make(manual=True)
    session, cli = opened(rig)
    dialog_id = session.snapshot().dialog.dialog_id
    second, again = taken_over(rig, cli, tmp_path, session, cli.close_dialog)
    with second:
        until(lambda: len(told_of_dialogs(second, again)) == 2)
        cli.finish("ok")
        until(lambda: again.snapshot().state == "idle")
        assert told_of_dialogs(second, again) == [
            ("DialogOpened", dialog_id, ""),
            ("DialogClosed", dialog_id, "elsewhere"),
        ]


@pytest.mark.contract("C17")
def test_c17_a_dialog_that_is_open_still_is_told_as_open_once(make, tmp_path):
    rig = make(manual=True)
    session, cli = opened(rig)
    dialog_id = session.snapshot().dialog.dialog_id
    second, again = taken_over(rig, cli, tmp_path, session, lambda: None)
    with second:
        until(lambda: again.snapshot().dialog is not None)
        assert again.snapshot().dialog == Dialog(dialog_id=dialog_id, **shown(PERMISSION))
        assert again.send(Answer(dialog_id, 2)).taken == "applied"
        until(lambda: len(told_of_dialogs(second, again)) > 1)
        cli.finish("ok")
        until(lambda: again.snapshot().state == "idle")
        assert told_of_dialogs(second, again) == [("DialogOpened", dialog_id, ""), ("DialogClosed", dialog_id, "host")]


@pytest.mark.contract("C17")
def test_c17_a_dialog_whose_place_another_took_meanwhile_is_told_as_closed_before_that_one_is_open(make, tmp_path):
    rig = make(manual=True)
    session, cli = opened(rig)
    first = session.snapshot().dialog.dialog_id
    other = msgspec.structs.replace(PERMISSION, key="p2")
    second, again = taken_over(rig, cli, tmp_path, session, lambda: cli.open_dialog(other))
    with second:
        until(lambda: len(told_of_dialogs(second, again)) == 3)
        (_, closed, opened_again) = told_of_dialogs(second, again)
        assert closed == ("DialogClosed", first, "elsewhere")
        assert opened_again == ("DialogOpened", again.snapshot().dialog.dialog_id, "")
        cli.close_dialog()
        cli.finish("ok")
        until(lambda: again.snapshot().state == "idle")


@pytest.mark.contract("C17")
def test_c17_a_dialog_of_a_cli_that_ended_while_no_host_lived_is_told_as_closed(make, tmp_path):
    rig = make(manual=True)
    session, cli = opened(rig)
    dialog_id = session.snapshot().dialog.dialog_id
    second, again = taken_over(rig, cli, tmp_path, session, lambda: cli.exit(1), alive=False)
    with second:
        until(lambda: len(told_of_dialogs(second, again)) == 2)
        assert told_of_dialogs(second, again)[1] == ("DialogClosed", dialog_id, "elsewhere")
        until(lambda: again.snapshot().state == "gone")


# --- an interrupt ---------------------------------------------------------------------------------------------------


def held(cli):
    """Looks of the session's wait until they are let go: what is asked of the pane meanwhile is on its way."""
    cli.stuck_looks = True


def let_go(cli):
    cli.stuck_looks = False
    looks, cli.held = cli.held, []
    for look in looks:
        look()


def refused(future):
    with pytest.raises(RejectedError) as caught:
        future.result(WAIT_S)
    return caught.value.kind


def cancelled_without_a_choice(rig, session, cli):
    until(lambda: "Escape" in cli.keys)
    cli.finish(status="cancelled")
    (done,) = completed(rig, session)
    assert done.status == "cancelled"
    assert digits(cli) == [], "the tool was let run behind an interrupt"


@pytest.mark.contract("C07")
def test_c07_an_answer_behind_an_interrupt_is_refused_and_presses_nothing(make):
    rig = make(manual=True)
    session, cli = opened(rig)
    dialog_id = session.snapshot().dialog.dialog_id
    held(cli)
    assert session.send(Interrupt()).taken == "applied"
    assert refused(away(session.send, Answer(dialog_id, 1))) == "unknown_dialog"
    let_go(cli)
    cancelled_without_a_choice(rig, session, cli)
    assert closed_by(rig, session) == ["elsewhere"]


@pytest.mark.contract("C07")
def test_c07_an_answer_behind_a_deadline_is_refused_and_presses_nothing(make, clock):
    rig = make(manual=True, clock=clock)
    session = rig.session()
    cli = rig.cli(session)
    until(lambda: advanced(rig, clock, 0.1) and session.snapshot().state == "idle")
    session.send("go", deadline_s=60.0)
    until(lambda: advanced(rig, clock, 0.1) and "turn_started" in kinds(rig, session))
    cli.open_dialog(PERMISSION)
    until(lambda: advanced(rig, clock, 0.1) and "dialog_opened" in kinds(rig, session))
    dialog_id = session.snapshot().dialog.dialog_id
    held(cli)
    clock.advance(60.0)
    rig.settle()
    assert refused(away(session.send, Answer(dialog_id, 1))) == "unknown_dialog"
    let_go(cli)
    rig.settle()
    cancelled_without_a_choice(rig, session, cli)


@pytest.mark.contract("C07")
def test_c07_an_answer_that_is_not_pressed_yet_is_overtaken_by_an_interrupt(make):
    rig = make(manual=True)
    session, cli = opened(rig)
    held(cli)
    answer = away(session.send, Answer(session.snapshot().dialog.dialog_id, 1))
    until(lambda: cli.held)
    assert session.send(Interrupt()).taken == "applied"
    rig.settle()
    let_go(cli)
    assert refused(answer) == "unknown_dialog"
    cancelled_without_a_choice(rig, session, cli)


@pytest.mark.contract("C07")
def test_c07_what_the_policy_says_behind_an_interrupt_presses_nothing(make):
    policy = Thinking(option=1)
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    until(lambda: policy.asked)
    held(cli)
    assert session.send(Interrupt()).taken == "applied"
    policy.may.set()
    until(lambda: counted(rig, "policy_late") == 1)
    rig.settle()
    let_go(cli)
    cancelled_without_a_choice(rig, session, cli)
    assert not bodies(rig, session, events.StallDiagnosed)


@pytest.mark.contract("C07")
def test_c07_an_answer_of_the_policys_that_is_not_pressed_yet_is_overtaken_by_an_interrupt(make):
    policy = Thinking(option=1)
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    until(lambda: policy.asked)
    held(cli)
    policy.may.set()
    until(lambda: cli.held)
    assert session.send(Interrupt()).taken == "applied"
    rig.settle()
    let_go(cli)
    cancelled_without_a_choice(rig, session, cli)
    assert not bodies(rig, session, events.StallDiagnosed)


@pytest.mark.contract("C25")
def test_c25_trust_at_the_start_is_answered_behind_an_interrupt_of_a_message_that_waits_for_it(make):
    """Nothing of that turn runs: its text is taken back, and the dialog is the folder's, not the turn's."""
    rig = make()
    rig.world.on_start = lambda cli: setattr(cli, "dialog", TRUST)
    session = rig.session()
    session.send("waits")
    until(lambda: session.snapshot().dialog is not None)
    assert session.send(Interrupt()).taken == "applied"
    assert session.send(Answer(session.snapshot().dialog.dialog_id, 2)).taken == "applied"
    (done,) = completed(rig, session)
    assert done.status == "cancelled"
    assert session.run("next").answer == "echo: next"
