"""A host's dialog policy (C25): it is asked once, is never waited for, and may fail in every way."""

from __future__ import annotations

import asyncio
import shutil
import threading

import msgspec
import pytest

from dialog_kit import PERMISSION, TRUST, Thinking, advanced, closed_by, counted, digits, edge_of, opened, shown
from host_kit import WAIT_S, away, bodies
from kit_system import until
from lastword import Answer, AsyncRuntime, Dialog, RejectedError, Runtime, UsageError, answer_trust, events
from lastword.actors import dialog_policy
from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.policy import unusable
from lastword.actors.system.deadletters import DEAD
from lastword.runtime import _policy
from lastword.runtime._edge import Survivor
from lastword.transports.memory import MemoryWorld

pytestmark = [pytest.mark.contract("C25"), pytest.mark.filterwarnings("error")]


# --- it answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dispatcher", ["pooled", "pinned"])
def test_c25_a_policy_answers_once_and_the_dialog_is_closed_by_it(make, dispatcher):
    policy = Thinking(option=2, hangs=lambda _: False)
    rig = make(manual=True, dialog_policy=policy, dispatcher=dispatcher)
    session, cli = opened(rig)
    assert closed_by(rig, session) == ["policy"]
    (asked,) = policy.asked
    (told,) = bodies(rig, session, events.DialogOpened)
    assert asked == (session.session_id, Dialog(dialog_id=told.body.dialog_id, **shown(PERMISSION)))
    assert digits(cli) == ["2"]
    cli.finish("ok")
    rig.settle()
    assert digits(cli) == ["2"]
    assert not bodies(rig, session, events.StallDiagnosed)


def test_c25_trust_at_the_start_is_answered_and_the_first_message_goes_on(make):
    rig = make(dialog_policy=answer_trust)
    rig.world.on_start = lambda cli: setattr(cli, "dialog", TRUST)
    session = rig.session()
    assert session.run("held").answer == "echo: held"
    assert closed_by(rig, session) == ["policy"]
    assert digits(rig.cli(session)) == ["2"]


def test_c25_an_answer_that_is_known_before_its_dialog_is_seen_gone_was_the_policys_all_the_same(make, monkeypatch):
    """The real CLI draws itself anew behind the trust dialog: for a while there is neither a dialog nor a box."""
    heard = threading.Event()
    real = dialog_policy.PolicyRoom.answered

    def answered(room, token, *, applied):
        real(room, token, applied=applied)
        heard.set()

    monkeypatch.setattr(dialog_policy.PolicyRoom, "answered", answered)
    rig = make(dialog_policy=answer_trust)

    def start(cli):
        cli.dialog, cli.starting = TRUST, True

    rig.world.on_start = start
    session = rig.session()
    assert heard.wait(WAIT_S)
    assert not bodies(rig, session, events.DialogClosed)
    rig.cli(session).starting = False
    assert closed_by(rig, session) == ["policy"]


def test_c25_each_dialog_of_a_session_is_asked_about_by_itself(make):
    policy = Thinking(hangs=lambda _: False)
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    assert closed_by(rig, session) == ["policy"]
    cli.open_dialog(msgspec.structs.replace(PERMISSION, key="p2"))
    until(lambda: len(closed_by(rig, session)) == 2)
    assert closed_by(rig, session) == ["policy", "policy"]
    assert len({dialog.dialog_id for _, dialog in policy.asked}) == len(policy.asked) == 2
    cli.finish("ok")


def test_c25_none_leaves_the_dialog_to_a_person_without_a_word(make):
    policy = Thinking(option=None, hangs=lambda _: False)
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    until(lambda: policy.asked)
    rig.settle()
    assert session.snapshot().state == "awaiting_user"
    assert digits(cli) == []
    session.send(Answer(session.snapshot().dialog.dialog_id, 1))
    assert closed_by(rig, session) == ["host"]
    assert not bodies(rig, session, events.StallDiagnosed)
    cli.finish("ok")


def test_c25_without_a_policy_nothing_answers(make):
    rig = make(manual=True)
    session, cli = opened(rig, TRUST)
    rig.settle()
    assert session.snapshot().state == "awaiting_user"
    assert digits(cli) == []
    cli.close_dialog()
    cli.finish("ok")


# --- it fails -------------------------------------------------------------------------------------------------------


def left_to_a_person(rig, session):
    """What was told of dialogs that the policy did not answer."""
    until(lambda: bodies(rig, session, events.StallDiagnosed))
    told = [event.body for event in bodies(rig, session, events.StallDiagnosed)]
    assert {body.kind for body in told} == {"person"}
    return [body.waits_for for body in told]


class Fatal(BaseException):
    pass


def raises(error):
    def policy(session_id, dialog):
        raise error

    return policy


@pytest.mark.parametrize(
    ("policy", "reason", "says"),
    [
        (raises(ValueError("the secret question")), "policy_failed", "raised ValueError"),
        (raises(SystemExit(3)), "policy_failed", "raised SystemExit"),
        (raises(Fatal()), "policy_failed", "raised Fatal"),
        (lambda *_: 0, "policy_bad_option", "chose option 0 of 2"),
        (lambda *_: 3, "policy_bad_option", "chose option 3 of 2"),
        (lambda *_: True, "policy_bad_option", "gave a bool"),
        (lambda *_: "1", "policy_bad_option", "gave a str"),
        (lambda *_: 1.0, "policy_bad_option", "gave a float"),
        (lambda *_: asyncio.sleep(0), "policy_bad_option", "gave a coroutine"),
        (lambda: 1, "policy_failed", "raised TypeError"),
    ],
)
def test_c25_a_policy_that_fails_leaves_the_dialog_to_a_person_and_is_told(make, policy, reason, says):
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    (told,) = left_to_a_person(rig, session)
    assert says in told
    assert "secret" not in told
    assert counted(rig, reason) == 1
    rig.settle()
    assert digits(cli) == []
    assert session.snapshot().state == "awaiting_user"
    session.send(Answer(session.snapshot().dialog.dialog_id, 2))
    assert closed_by(rig, session) == ["host"]
    cli.finish("ok")


def test_c25_a_policy_that_hangs_is_given_up_at_its_bound_and_its_late_word_is_not_heard(make, clock):
    policy = Thinking()
    rig = make(manual=True, dialog_policy=policy, clock=clock)
    session = rig.session()
    cli = rig.cli(session)
    until(lambda: advanced(rig, clock, 0.1) and session.snapshot().state == "idle")
    cli.open_dialog(PERMISSION)
    until(lambda: advanced(rig, clock, 0.1) and policy.asked)
    clock.advance(dialog_policy.POLICY_S - 1.0)
    rig.settle()
    assert not bodies(rig, session, events.StallDiagnosed)
    clock.advance(1.0)
    (told,) = left_to_a_person(rig, session)
    assert f"said nothing within {dialog_policy.POLICY_S:g} s" in told
    assert counted(rig, "policy_timeout") == 1
    policy.may.set()
    until(lambda: counted(rig, "policy_late") == 1)
    for _ in range(20):
        advanced(rig, clock, 0.5)
    assert digits(cli) == []
    assert session.snapshot().state == "awaiting_user"


def test_c25_a_hanging_policy_stalls_neither_its_session_nor_another_one(make):
    policy = Thinking(hangs=lambda dialog: dialog.question == "hang")
    rig = make(manual=True, dialog_policy=policy)
    stuck, cli = opened(rig, DialogOpen(key="h", question="hang", options=("Yes", "No"), kind="permission"))
    until(lambda: policy.asked)
    others = [opened(rig) for _ in range(3)]
    assert [closed_by(rig, session) for session, _ in others] == [["policy"]] * 3
    assert stuck.snapshot().state == "awaiting_user"
    stuck.send("meanwhile")
    cli.close_dialog()
    assert closed_by(rig, stuck) == ["elsewhere"]
    for _, other in others:
        other.finish("ok")
    policy.may.set()


def test_c25_a_session_whose_policy_always_hangs_uses_up_nobody_elses_questions(make):
    policy = Thinking(hangs=lambda dialog: dialog.question == "hang")
    rig = make(manual=True, dialog_policy=policy)
    hang = DialogOpen(key="h0", question="hang", options=("Yes", "No"), kind="permission")
    session, cli = opened(rig, hang)
    for number in range(1, _policy.CALLS_PER_SESSION_MAX + 1):
        until(lambda asked=number: len(policy.asked) == asked)
        cli.close_dialog()
        until(lambda: session.snapshot().dialog is None)
        cli.open_dialog(msgspec.structs.replace(hang, key=f"h{number}"))
        until(lambda: session.snapshot().dialog is not None)
    (told,) = left_to_a_person(rig, session)
    assert "has not answered the questions before" in told
    assert counted(rig, "policy_refused") == 1
    other, cli_of_other = opened(rig)
    assert closed_by(rig, other) == ["policy"]
    cli_of_other.finish("ok")
    policy.may.set()
    until(lambda: counted(rig, "policy_late") == _policy.CALLS_PER_SESSION_MAX)
    assert digits(cli) == []


def test_c25_a_policy_that_hangs_holds_up_no_end_of_the_runtime_and_its_thread_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(_policy, "STOP_S", 0.05)
    policy = Thinking()
    world = MemoryWorld(manual=True)
    runtime = Runtime.open(tmp_path / "state", edge=edge_of(world), durability="process", dialog_policy=policy)
    session = runtime.session("memory")
    until(lambda: session.snapshot().state == "idle")
    world.clis[session.snapshot().handle.native_session_id].open_dialog(PERMISSION)
    until(lambda: policy.asked)
    report = away(runtime.close).result(WAIT_S)
    assert [name.startswith("lastword-policy-") for name in report.threads_left] == [True]
    assert not report.actors_abandoned
    policy.may.set()
    until(lambda: not [each for each in threading.enumerate() if each.name.startswith("lastword-policy-")])


# --- somebody else was faster ---------------------------------------------------------------------------------------


def test_c25_what_a_person_answered_in_the_pane_the_policy_does_not_answer(make):
    may = {"p1": threading.Event(), "p2": threading.Event()}
    asked = []

    def policy(session_id, dialog):
        asked.append(dialog.question)
        assert may[dialog.question].wait(WAIT_S)
        return {"p1": 1, "p2": 2}[dialog.question]

    rig = make(manual=True, dialog_policy=policy)
    first, second = (msgspec.structs.replace(PERMISSION, key=key, question=key) for key in ("p1", "p2"))
    session, cli = opened(rig, first)
    until(lambda: asked == ["p1"])
    cli.close_dialog()
    assert closed_by(rig, session) == ["elsewhere"]
    cli.open_dialog(second)
    until(lambda: asked == ["p1", "p2"])
    may["p1"].set()
    until(lambda: counted(rig, "policy_late") == 1)
    rig.settle()
    assert digits(cli) == [], "the word for the first dialog must not go into the second"
    may["p2"].set()
    until(lambda: closed_by(rig, session) == ["elsewhere", "policy"])
    assert digits(cli) == ["2"]
    cli.finish("ok")


def test_c25_what_the_host_answered_meanwhile_the_policy_does_not_answer(make):
    policy = Thinking(option=1)
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    until(lambda: policy.asked)
    rig.settle()
    cli.stuck_looks = True  # the host's answer is on its way and not pressed yet
    answer = away(session.send, Answer(session.snapshot().dialog.dialog_id, 2))
    until(lambda: cli.held)
    policy.may.set()
    until(lambda: counted(rig, "policy_late") == 1)
    rig.settle()
    cli.stuck_looks = False
    for look in cli.held:
        look()
    assert answer.result(WAIT_S).taken == "applied"
    assert closed_by(rig, session) == ["host"]
    assert digits(cli) == ["2"]
    cli.finish("ok")


def test_c25_a_hosts_answer_behind_the_policys_key_presses_nothing(make):
    rig = make(manual=True, dialog_policy=lambda *_: 2)
    session = rig.session()
    session.send("go")
    cli = rig.running(session)
    real = cli.close_dialog
    cli.close_dialog = lambda: None  # the key is on its way: the dialog is still to be seen
    cli.open_dialog(PERMISSION)
    until(lambda: digits(cli) == ["2"])
    with pytest.raises(RejectedError) as caught:
        session.send(Answer(session.snapshot().dialog.dialog_id, 1))
    assert caught.value.kind == "unknown_dialog"
    cli.close_dialog = real
    real()
    assert closed_by(rig, session) == ["policy"]
    assert "1" not in cli.keys
    cli.finish("ok")


def test_c25_a_policy_that_answers_by_itself_through_the_session_is_the_host(make):
    rig = None

    def policy(session_id, dialog):
        rig.runtime.session(session_id=session_id).send(Answer(dialog.dialog_id, 2))

    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    assert closed_by(rig, session) == ["host"]
    assert digits(cli) == ["2"]
    cli.finish("ok")


# --- other lives ----------------------------------------------------------------------------------------------------


def test_c25_a_restarted_host_asks_its_policy_about_a_dialog_that_is_still_open(make, tmp_path):
    rig = make()
    rig.world.on_start = lambda cli: setattr(cli, "dialog", TRUST)
    session = rig.session()
    until(lambda: session.snapshot().state == "awaiting_user")
    cli = rig.cli(session)
    shutil.copytree(rig.state, tmp_path / "killed", ignore=shutil.ignore_patterns("*.lock", "*.sock"))
    edge = edge_of(
        rig.world,
        survivors=lambda handles: {each: Survivor(endpoint=cli, epoch=1) for each in handles},
    )
    asked = []

    def policy(session_id, dialog):
        asked.append(session_id)
        return answer_trust(session_id, dialog)

    with Runtime.open(tmp_path / "killed", edge=edge, durability="process", dialog_policy=policy) as second:
        until(lambda: closes(second, session.session_id) == ["policy"])
        assert asked == [session.session_id]
        assert digits(cli) == ["2"]


def closes(runtime, session_id):
    told = runtime._journal.events(session_id, 0, 1000)
    return [event.body.by for event in told if isinstance(event.body, events.DialogClosed)]


def test_c25_a_session_that_is_taken_over_asks_again_and_the_word_to_the_one_before_is_dropped(make):
    policy = Thinking(option=2)
    rig = make(manual=True, dialog_policy=policy)
    session, cli = opened(rig)
    until(lambda: len(policy.asked) == 1)
    edge = rig.runtime._edges.opened["memory"]
    rig.runtime._edges.opened["memory"] = msgspec.structs.replace(
        edge, reattach=lambda row: Survivor(endpoint=cli, epoch=row.epoch) if cli.alive else None
    )
    failed = session._counterpart.ref
    failed.tell(object())  # no message of the session's: its handler raises
    until(lambda: session._counterpart.ref is not failed)
    until(lambda: len(policy.asked) == 2)
    dead = counted(rig, DEAD)
    policy.may.set()
    until(lambda: closed_by(rig, session) == ["policy"])
    until(lambda: counted(rig, DEAD) > dead)
    cli.finish("ok")
    rig.settle()
    assert digits(cli) == ["2"]


def test_c25_the_asyncio_twin_takes_the_same_policy(tmp_path):
    world = MemoryWorld()
    world.on_start = lambda cli: setattr(cli, "dialog", TRUST)

    async def main():
        options = {"edge": edge_of(world), "durability": "process", "dialog_policy": answer_trust}
        async with AsyncRuntime.open(tmp_path / "state", **options) as runtime:
            session = await runtime.session("memory")
            done = await asyncio.wait_for(session.run("held"), WAIT_S)
            return done.answer, closes(runtime._runtime, session.session_id)

    assert asyncio.run(main()) == ("echo: held", ["policy"])


# --- what it may be -------------------------------------------------------------------------------------------------


async def coroutine_function(session_id, dialog):
    return 1


class AsyncCallable:
    async def __call__(self, session_id, dialog):
        return 1


@pytest.mark.parametrize("policy", ["yes", 1, coroutine_function, AsyncCallable()])
def test_c25_what_is_no_plain_function_is_refused_before_anything_is_opened(tmp_path, policy):
    with pytest.raises(UsageError) as caught:
        Runtime.open(tmp_path / "state", dialog_policy=policy)
    assert caught.value.kind == "usage"
    assert not (tmp_path / "state").exists()


def dialog(kind, *options):
    return Dialog(dialog_id="d", kind=kind, question="Do you trust this folder?", options=options)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (dialog("trust", "No, exit", "Yes, I trust this folder"), 2),
        (dialog("trust", "Yes, I trust this folder", "No, exit"), 1),
        (dialog("permission", "Yes, I trust this folder", "No"), None),
        (dialog("other", "Yes, I trust this folder", "No"), None),
        (dialog("trust", "Yes", "Yes, and don't ask again for: echo Yes, I trust this folder", "No"), None),
        (dialog("trust", "Yes, I trust this folder and everything in it", "No, exit"), None),
        (dialog("trust", "Yes, I trust this folder", "Yes, I trust this folder"), None),
        (dialog("trust", "No, exit"), None),
        (dialog("trust"), None),
    ],
)
def test_c25_answer_trust_chooses_the_trusting_option_by_its_text_and_never_a_permission(asked, chosen):
    assert answer_trust("s_1", asked) == chosen


def test_c25_what_looks_like_a_trust_dialog_behind_the_first_input_box_is_not_told_as_one(make):
    rig = make(manual=True, dialog_policy=answer_trust)
    session, cli = opened(rig, TRUST)
    rig.settle()
    (told,) = bodies(rig, session, events.DialogOpened)
    assert told.body.kind == "other"
    assert session.snapshot().dialog.kind == "other"
    assert digits(cli) == []
    cli.close_dialog()
    cli.finish("ok")


def test_c25_an_option_can_be_chosen_only_where_one_is_shown():
    assert unusable(1, dialog("permission", "Yes")) == ""
    assert unusable(1, dialog("permission")) == "chose option 1 of 0"
