"""Dialogs of sessions that nobody watches: the host's policy answers, or leaves them to a person (C25)."""

from __future__ import annotations

import threading

import pytest

from host_kit import WAIT_S, Rig, away, bodies, kinds
from kit_system import until
from lastword import Answer, RejectedError, events
from lastword.actors import session_cli
from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.snapshot import Dialog
from lastword.runtime.host import answer_trust

PERMISSION = DialogOpen(key="p", question="Run rm?", options=("Yes", "No"), kind="permission")
TRUST = DialogOpen(key="t", question="Trust this folder?", options=("No, exit", "Yes, I trust it"), kind="trust")


class Asked:
    """A policy that remembers what it was asked."""

    def __init__(self, says: object) -> None:
        self.says, self.dialogs = says, []

    def __call__(self, session_id: str, dialog: Dialog) -> object:
        self.dialogs.append((session_id, dialog))
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says


def in_dialog(rig: Rig, dialog: DialogOpen):
    """A session whose CLI asks that while a turn runs."""
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    cli.open_dialog(dialog)
    until(lambda: "dialog_opened" in kinds(rig, session))
    return session, cli, waiting


@pytest.mark.contract("C25")
def test_c25_a_policy_answers_once_and_the_closing_says_so(make):
    policy = Asked(2)
    rig = make(manual=True, dialog_policy=policy)
    session, cli, waiting = in_dialog(rig, PERMISSION)
    until(lambda: "dialog_closed" in kinds(rig, session))
    ((asked_for, dialog),) = policy.dialogs
    assert (asked_for, dialog.kind, dialog.question, dialog.options) == (
        session.session_id,
        "permission",
        "Run rm?",
        ("Yes", "No"),
    )
    (closed,) = bodies(rig, session, events.DialogClosed)
    assert (closed.body.by, closed.body.dialog_id) == ("policy", dialog.dialog_id)
    cli.finish("done")
    assert waiting.result(WAIT_S).answer == "done"
    assert len(policy.dialogs) == 1


@pytest.mark.contract("C25")
@pytest.mark.parametrize("says", [None, 0, 3, "1", ValueError("secret words")])
def test_c25_what_is_no_answer_leaves_the_dialog_to_a_person_and_presses_nothing(make, says):
    policy = Asked(says)
    rig = make(manual=True, dialog_policy=policy)
    session, cli, waiting = in_dialog(rig, PERMISSION)
    until(lambda: policy.dialogs)
    rig.settle()
    if says is not None:
        (told,) = until(lambda: bodies(rig, session, events.StallDiagnosed))
        assert told.body.kind == "person"
        assert "secret words" not in told.body.waits_for
    assert session.snapshot().state == "awaiting_user"
    assert [key for key in cli.keys if key not in ("<paste>", "Enter")] == []
    assert cli.keys.count("Enter") == 1
    session.send(Answer(session.snapshot().dialog.dialog_id, 1))
    until(lambda: "dialog_closed" in kinds(rig, session))
    (closed,) = bodies(rig, session, events.DialogClosed)
    assert closed.body.by == "host"
    cli.finish("done")
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C25")
@pytest.mark.contract("C13")
def test_c25_a_policy_that_hangs_holds_up_nobody_and_is_not_waited_for_beyond_its_bound(make, monkeypatch):
    monkeypatch.setattr(session_cli, "POLICY_S", 0.2)
    release = threading.Event()

    def hangs(session_id, dialog):
        release.wait(WAIT_S)
        return 1

    rig = make(manual=True, dialog_policy=hangs)
    try:
        session, cli, waiting = in_dialog(rig, PERMISSION)
        until(lambda: bodies(rig, session, events.StallDiagnosed))
        rig.world.manual = False
        assert rig.runtime.session("memory").run("another session").answer == "echo: another session"
    finally:
        release.set()
    rig.settle()
    assert session.snapshot().state == "awaiting_user", "what came too late is not taken"
    session.send(Answer(session.snapshot().dialog.dialog_id, 1))
    cli.finish("done")
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C25")
def test_c25_a_dialog_that_a_person_answered_meanwhile_is_not_answered_again(make):
    asked, release = threading.Event(), threading.Event()

    def slow(session_id, dialog):
        asked.set()
        release.wait(WAIT_S)
        return 1

    rig = make(manual=True, dialog_policy=slow)
    session, cli, waiting = in_dialog(rig, PERMISSION)
    assert asked.wait(WAIT_S)
    cli.close_dialog()
    until(lambda: "dialog_closed" in kinds(rig, session))
    before = list(cli.keys)
    release.set()
    rig.settle()
    assert cli.keys == before
    (closed,) = bodies(rig, session, events.DialogClosed)
    assert closed.body.by == "elsewhere"
    cli.finish("done")
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C25")
@pytest.mark.contract("C17")
def test_c25_a_dialog_that_is_open_when_a_host_comes_back_is_put_to_its_policy(tmp_path):
    first = Rig(tmp_path, manual=True)
    session, cli, _ = in_dialog(first, PERMISSION)
    first.abandon()
    policy = Asked(1)
    with Rig(tmp_path, world=first.world, dialog_policy=policy) as second:
        again = second.runtime.session(session_id=session.session_id)
        until(lambda: [each.body.by for each in bodies(second, again, events.DialogClosed)] == ["policy"])
        assert len(policy.dialogs) == 1
        cli.finish("done")
        until(lambda: "unified_completion" in kinds(second, again))


@pytest.mark.contract("C25")
def test_c25_the_ready_made_policy_trusts_the_folder_by_the_words_and_answers_nothing_else(make):
    rig = make(manual=True, dialog_policy=answer_trust)
    session, cli, waiting = in_dialog(rig, TRUST)
    until(lambda: "dialog_closed" in kinds(rig, session))
    assert bodies(rig, session, events.DialogClosed)[0].body.by == "policy"
    cli.open_dialog(PERMISSION)
    until(lambda: kinds(rig, session).count("dialog_opened") == 2)
    rig.settle()
    assert session.snapshot().state == "awaiting_user"
    with pytest.raises(RejectedError) as refused:
        session.send(Answer("another", 1))
    assert refused.value.kind == "unknown_dialog"
    session.send(Answer(session.snapshot().dialog.dialog_id, 2))
    cli.finish("done")
    assert waiting.result(WAIT_S).status == "completed"
    unknown = Dialog(dialog_id="d", kind="trust", question="?", options=("Leave", "Stay"))
    assert answer_trust("s", unknown) is None
