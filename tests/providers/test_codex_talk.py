"""How Codex is spoken to over its app-server, line by line: what the talk writes, and when it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lastword.actors.core.adapter import LaunchRequest, TypedText
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.talk import GiveUp, Named, Remind, TalkEffect, Write
from lastword.actors.core.typing_effects import (
    AnswerResult,
    BecameReady,
    DialogGone,
    DialogSeen,
    Interrupted,
    Job,
    NotDelivered,
    NothingToInterrupt,
    Submitted,
    WithdrawnReport,
)
from lastword.transports.providers.codex_stream_oracles import CodexAppServerOracle
from lastword.transports.providers.codex_talk import CodexTalk

SOURCE = "stream"


def encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def job(message_id: str, text: str = "hello", turn_id: str | None = None) -> Job:
    return Job(
        message_id=MessageId(message_id),
        typed=TypedText(text=text, paste=text.encode(), rewritten=text),
        turn_id=TurnId(turn_id) if turn_id is not None else None,
    )


def written(effects: list[TalkEffect]) -> list[dict[str, Any]]:
    return [json.loads(effect.data) for effect in effects if isinstance(effect, Write)]


T_1, M_1, M_2 = TurnId("t_1"), MessageId("m_1"), MessageId("m_2")


def fresh(**options: Any) -> CodexTalk:
    return CodexTalk(
        LaunchRequest(native_session="", cwd="/w", executable=("codex",), env={}, stream="/s/abc-1", **options)
    )


def ready() -> CodexTalk:
    talk = fresh()
    talk.opened()
    talk.heard(encoded({"id": "initialize", "result": {}}))
    assert talk.heard(encoded({"id": "thread", "result": {"thread": {"id": "th"}}})) == [
        Named(native_session="th"),
        BecameReady(),
    ]
    return talk


def started(message_id: str, native: str) -> bytes:
    return encoded({"id": f"start:{message_id}", "result": {"turn": {"id": native}}})


def steered(message_id: str, native: str) -> bytes:
    return encoded({"id": f"steer:{message_id}", "result": {"turnId": native}})


def refused(request_id: str, message: str, data: Any = None) -> bytes:
    return encoded({"id": request_id, "error": {"code": -32600, "message": message, "data": data}})


def turn(what: str, native: str) -> bytes:
    return encoded({"method": f"turn/{what}", "params": {"threadId": "th", "turn": {"id": native}}})


def shown(message_id: str, native: str) -> bytes:
    item = {"type": "userMessage", "id": "i", "clientId": message_id}
    return encoded({"method": "item/completed", "params": {"threadId": "th", "turnId": native, "item": item}})


def running(native: str = "n_1") -> CodexTalk:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    talk.heard(started("m_1", native))
    talk.heard(turn("started", native))
    return talk


def methods(effects: list[TalkEffect]) -> list[str]:
    return [line.get("method", "") for line in written(effects)]


def ids(effects: list[TalkEffect]) -> list[str]:
    return [line.get("id", "") for line in written(effects)]


def test_c24_nothing_is_written_before_the_handshake_and_a_mute_cli_is_given_up() -> None:
    talk = fresh()
    opened = talk.opened()
    assert methods(opened) == ["initialize"]
    assert [effect.name for effect in opened if isinstance(effect, Remind)] == ["handshake"]
    assert talk.deliver(job("m_1")) == []
    assert isinstance(talk.reminded("handshake")[0], GiveUp)
    assert talk.withdraw(M_1) == [WithdrawnReport(message_id=M_1)]


@pytest.mark.parametrize("what", ["initialize", "thread"])
def test_c24_a_handshake_that_is_refused_is_given_up_in_the_clis_words(what: str) -> None:
    talk = fresh()
    talk.opened()
    if what == "thread":
        talk.heard(encoded({"id": "initialize", "result": {}}))
    assert talk.heard(refused(what, "no")) == [GiveUp(reason="the CLI refused the handshake: no")]


def test_c51_a_known_thread_is_resumed_by_its_name() -> None:
    talk = fresh(model="m", permission_mode="never")
    talk.opened()
    start = written(talk.heard(encoded({"id": "initialize", "result": {}})))[1]
    assert (start["method"], start["params"]) == (
        "thread/start",
        {"cwd": "/w", "approvalPolicy": "never", "model": "m"},
    )
    known = LaunchRequest(native_session="th", cwd="/w", executable=("codex",), env={}, resume=True)
    talk = CodexTalk(known)
    talk.opened()
    resume = written(talk.heard(encoded({"id": "initialize", "result": {}})))[1]
    assert (resume["method"], resume["params"]["threadId"]) == ("thread/resume", "th")


def test_c13_one_message_is_on_its_way_at_a_time_and_each_once() -> None:
    talk = ready()
    first = talk.deliver(job("m_1"))
    (write,) = [effect for effect in first if isinstance(effect, Write)]
    assert write.after == (Submitted(message_id=M_1, rewritten=()),)
    assert isinstance(write.failed[-1], GiveUp)  # else all that comes later would wait for its answer
    assert talk.deliver(job("m_2")) == []
    assert talk.deliver(job("m_1")) == []
    steer = talk.heard(started("m_1", "n_1"))
    assert ids(steer) == ["steer:m_2"]
    assert written(steer)[0]["params"]["expectedTurnId"] == "n_1"
    assert talk.heard(steered("m_2", "n_1")) == []
    assert talk.deliver(job("m_1")) == []


@pytest.mark.contract("C13")
@pytest.mark.parametrize("words", ["no active turn to steer", "expected active turn id `n_1` but found `n_2`"])
def test_c13_a_steer_that_comes_too_late_goes_out_again_as_a_start(words: str) -> None:
    talk = running()
    assert ids(talk.deliver(job("m_2"))) == ["steer:m_2"]
    assert ids(talk.heard(refused("steer:m_2", words))) == ["start:m_2"]
    assert ids(talk.heard(turn("completed", "n_1"))) == []
    assert talk.heard(started("m_2", "n_2")) == []


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("cannot steer a compact turn", {"codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": "compact"}}}),
        ("failed to submit turn input: ActiveTurnNotSteerable { turn_kind: Compact }", None),
    ],
)
def test_c13_what_a_turn_does_not_take_waits_for_its_end_or_a_while(words: str, data: Any) -> None:
    talk = running()
    talk.deliver(job("m_2"))
    assert talk.heard(refused("steer:m_2", words, data)) == [Remind(name="again", delay_s=1.0)]
    assert ids(talk.deliver(job("m_3"))) == []
    assert ids(talk.heard(turn("completed", "n_1"))) == ["start:m_2"]
    assert talk.heard(refused("start:m_2", words, data)) == [Remind(name="again", delay_s=1.0)]
    assert ids(talk.reminded("again")) == ["start:m_2"]


def test_c20_what_codex_refuses_for_good_is_told_in_its_words_and_the_next_goes_on() -> None:
    talk = ready()
    talk.deliver(job("m_1"))
    talk.deliver(job("m_2"))
    told_off, *rest = talk.heard(refused("start:m_1", "Input exceeds the maximum length"))
    assert isinstance(told_off, NotDelivered)
    assert "exceeds the maximum" in told_off.reason
    assert ids(rest) == ["start:m_2"]


@pytest.mark.contract("C07")
def test_c07_what_an_interrupt_makes_codex_drop_goes_out_again_in_order_and_what_it_took_does_not() -> None:
    talk = running()
    for name in ("m_2", "m_3", "m_4"):
        talk.deliver(job(name))
        talk.heard(steered(name, "n_1"))
    assert talk.heard(shown("m_2", "n_1")) == []
    assert ids(talk.heard(turn("completed", "n_1"))) == ["start:m_3"]
    assert ids(talk.heard(started("m_3", "n_2"))) == ["steer:m_4"]


def test_c07_what_was_shown_before_its_answer_is_not_sent_again() -> None:
    talk = running()
    talk.deliver(job("m_2"))
    talk.heard(shown("m_2", "n_1"))
    assert talk.heard(steered("m_2", "n_1")) == []
    assert talk.heard(turn("completed", "n_1")) == []


def test_c07_what_is_accepted_into_a_turn_whose_end_was_heard_before_goes_out_again() -> None:
    talk = running()
    talk.deliver(job("m_2"))
    assert talk.heard(turn("completed", "n_1")) == []
    assert ids(talk.heard(steered("m_2", "n_1"))) == ["start:m_2"]


@pytest.mark.contract("C07")
def test_c07_an_interrupt_waits_until_the_turn_has_started() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    assert talk.interrupt(T_1) == []
    assert talk.heard(started("m_1", "n_1")) == []
    assert talk.interrupt(T_1) == []
    effects = talk.heard(turn("started", "n_1"))
    assert effects[0] == Interrupted(turn_id=T_1)
    assert written(effects)[0]["params"] == {"threadId": "th", "turnId": "n_1"}


def test_c07_an_interrupt_of_a_turn_that_is_over_hits_no_later_one() -> None:
    talk = running()
    talk.heard(turn("completed", "n_1"))
    talk.deliver(job("m_2", turn_id="t_2"))
    talk.heard(started("m_2", "n_2"))
    talk.heard(turn("started", "n_2"))
    assert talk.interrupt(T_1) == [Interrupted(turn_id=T_1)]
    assert methods(talk.interrupt(TurnId("t_2"))) == ["turn/interrupt"]


def test_c07_an_interrupt_that_waits_for_a_turn_that_ends_first_hits_no_later_one() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    talk.heard(started("m_1", "n_1"))
    assert talk.interrupt(T_1) == []
    talk.heard(turn("completed", "n_1"))
    talk.deliver(job("m_2", turn_id="t_2"))
    talk.heard(started("m_2", "n_2"))
    assert talk.heard(turn("started", "n_2")) == []


def test_c07_an_interrupt_that_finds_nothing_says_so() -> None:
    talk = ready()
    assert talk.interrupt(T_1) == [NothingToInterrupt(turn_id=T_1)]
    talk = running()
    (line,) = written(talk.interrupt(T_1))
    assert talk.heard(refused(line["id"], "no active turn to interrupt")) == [NothingToInterrupt(turn_id=T_1)]


def test_c07_an_interrupted_message_that_is_refused_is_not_sent_again() -> None:
    talk = running()
    talk.deliver(job("m_2", turn_id="t_2"))
    assert talk.interrupt(TurnId("t_2")) == []
    assert talk.heard(refused("steer:m_2", "no active turn to steer")) == [
        Interrupted(turn_id=TurnId("t_2")),
        WithdrawnReport(message_id=M_2),
    ]


@pytest.mark.contract("C07")
def test_c07_a_turn_that_has_started_before_its_answer_is_interrupted_and_told_by_its_own_end() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    assert talk.heard(turn("started", "n_1")) == []
    assert talk.interrupt(T_1) == []
    assert methods(talk.heard(started("m_1", "n_1"))) == ["turn/interrupt"]
    assert talk.heard(turn("completed", "n_1")) == []  # nothing of an undelivered message: its turn began


@pytest.mark.contract("C07")
def test_c07_an_interrupt_that_waits_for_a_turn_of_no_name_dies_with_it() -> None:
    """Of a message that came while another turn ran the talk does not know the turn."""
    talk = ready()
    talk.deliver(job("m_1"))
    talk.heard(started("m_1", "n_1"))
    assert talk.interrupt(T_1) == []
    talk.heard(turn("completed", "n_1"))
    talk.deliver(job("m_2"))
    talk.heard(started("m_2", "n_2"))
    assert talk.heard(turn("started", "n_2")) == []


def test_c07_an_interrupt_of_a_turn_that_nobody_knows_any_more_hits_no_other() -> None:
    assert running().interrupt(TurnId("t_0")) == [Interrupted(turn_id=TurnId("t_0"))]


@pytest.mark.contract("C07")
@pytest.mark.parametrize("accepted", [False, True])
def test_c07_what_was_taken_back_and_is_given_back_is_not_written_again(accepted: bool) -> None:
    talk = running()
    talk.deliver(job("m_2"))
    talk.deliver(job("m_3"))
    if accepted:
        assert ids(talk.heard(steered("m_2", "n_1"))) == ["steer:m_3"]
    assert talk.withdraw(M_2) == []
    if accepted:
        talk.heard(steered("m_3", "n_1"))
        back = talk.heard(turn("completed", "n_1"))
    else:
        back = talk.heard(refused("steer:m_2", "no active turn to steer"))
    assert back[0] == WithdrawnReport(message_id=M_2)
    assert ids(back) == ["start:m_3"]


@pytest.mark.contract("C07")
def test_c07_an_interrupted_message_that_is_dropped_is_not_written_again() -> None:
    talk = running()
    talk.deliver(job("m_2", turn_id="t_2"))
    talk.heard(steered("m_2", "n_1"))
    assert methods(talk.interrupt(TurnId("t_2"))) == ["turn/interrupt"]
    assert talk.heard(turn("completed", "n_1")) == [WithdrawnReport(message_id=M_2)]


# --- dialogs ----------------------------------------------------------------------------------------------------------


def ask(talk: CodexTalk, number: int, method: str = "item/commandExecution/requestApproval", **params: Any) -> Any:
    wanted = {"threadId": "th", "turnId": "n_1", "itemId": f"i_{number}", **params}
    effects = talk.heard(encoded({"id": number, "method": method, "params": wanted}))
    return effects[0] if effects else None


@pytest.mark.contract("C25")
def test_c25_a_command_is_asked_for_as_it_was_given_and_answered_as_offered() -> None:
    talk = running()
    rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "a"]}}
    seen = ask(talk, 0, command="/bin/bash -lc 'touch a'", availableDecisions=["accept", rule, "cancel"], reason="why")
    assert isinstance(seen, DialogSeen)
    assert seen.dialog.question == "May it run? touch a\nwhy"
    assert seen.dialog.options == ("Yes", "Yes, and do not ask again for touch a", "No, and stop the turn", "No")
    decisions = ["accept", rule, "cancel", "decline"]
    write, gone = talk.answer("k", seen.dialog_id, 2)
    assert written([write]) == [{"id": 0, "result": {"decision": decisions[1]}}]
    assert gone == DialogGone(dialog_id=seen.dialog_id, answered=True, token="k")
    assert isinstance(write, Write)
    assert (write.after, write.failed) == (
        (AnswerResult(token="k", applied=True),),
        (AnswerResult(token="k", applied=False),),
    )


@pytest.mark.contract("C25")
def test_c25_no_option_that_denies_reads_like_a_yes() -> None:
    hosts = [
        {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"action": action, "host": "example.org"}}}
        for action in ("allow", "deny")
    ]
    context = {"host": "example.org", "protocol": "https"}
    wanted = {"networkApprovalContext": context, "availableDecisions": ["accept", *hosts, {"new": 1}, "cancel"]}
    seen = ask(running(), 0, command="curl x", **wanted)
    assert seen.dialog.question == "May it reach example.org? curl x"
    assert seen.dialog.options == (
        "Yes",
        "Yes, and always allow example.org",
        "No, and never allow example.org",
        '{"new":1}',
        "No, and stop the turn",
        "No",
    )


@pytest.mark.contract("C25")
def test_c25_a_dialog_of_another_process_is_another_one() -> None:
    one = ask(running(), 0, command="x")
    talk = CodexTalk(LaunchRequest(native_session="", cwd="/w", executable=("codex",), env={}, stream="/s/abc-2"))
    two = ask(talk, 0, command="x")
    assert one.dialog_id != two.dialog_id
    assert talk.answer("k", one.dialog_id, 1) == [AnswerResult(token="k", applied=False)]


@pytest.mark.contract("C25")
def test_c25_what_the_server_does_not_wait_for_any_more_is_gone() -> None:
    talk = running()
    one = ask(talk, 0, command="x")
    assert ask(talk, 1, command="y") is None
    resolved = lambda number: encoded({"method": "serverRequest/resolved", "params": {"requestId": number}})  # noqa: E731
    gone, two = talk.heard(resolved(0))
    assert gone == DialogGone(dialog_id=one.dialog_id, answered=False)
    assert isinstance(two, DialogSeen)
    assert ask(talk, 2, command="z") is None
    _, gone, three = talk.answer("k", two.dialog_id, 1)  # in this order: a dialog is told when none is open
    assert gone == DialogGone(dialog_id=two.dialog_id, answered=True, token="k")
    assert isinstance(three, DialogSeen)
    assert talk.heard(resolved(1)) == []


@pytest.mark.contract("C25")
@pytest.mark.parametrize(
    ("method", "params", "results"),
    [
        (
            "item/permissions/requestApproval",
            {"permissions": {"network": {"enabled": True}}},
            [
                {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
                {"permissions": {"network": {"enabled": True}}, "scope": "session"},
                {"permissions": {}},
            ],
        ),
        (
            "mcpServer/elicitation/request",
            {"mode": "form", "serverName": "lab", "message": "Sure?", "requestedSchema": {"properties": {}}},
            [{"action": "accept", "content": {}}, {"action": "decline"}],
        ),
        (
            "mcpServer/elicitation/request",
            {"mode": "form", "serverName": "lab", "message": "Who?", "requestedSchema": {"required": ["name"]}},
            [{"action": "decline"}],
        ),
        (
            "mcpServer/elicitation/request",
            {"mode": "url", "serverName": "lab", "message": "Log in", "url": "http://x"},
            [{"action": "accept"}, {"action": "decline"}],
        ),
        (
            "item/tool/requestUserInput",
            {"questions": [{"id": "q", "question": "Which?", "options": [{"label": "A"}]}]},
            [{"answers": {"q": {"answers": ["A"]}}}, {"answers": {}}],
        ),
    ],
)
def test_c25_each_option_is_an_answer_of_the_protocols(method: str, params: Any, results: list[Any]) -> None:
    for number, result in enumerate(results, 1):
        talk = running()
        seen = ask(talk, 0, method, **params)
        assert len(seen.dialog.options) == len(results)
        assert written(talk.answer("k", seen.dialog_id, number)) == [{"id": 0, "result": result}]


@pytest.mark.contract("C25")
def test_c25_declining_one_question_declines_the_rest_of_them() -> None:
    talk = running()
    questions = [{"id": name, "question": name, "options": [{"label": "A"}]} for name in ("q1", "q2")]
    seen = ask(talk, 0, "item/tool/requestUserInput", questions=questions)
    effects = talk.answer("k", seen.dialog_id, 2)
    assert written(effects) == [{"id": 0, "result": {"answers": {}}}]
    assert not any(isinstance(effect, DialogSeen) for effect in effects)


def test_a_request_that_is_not_for_a_person_is_answered_with_an_error() -> None:
    (line,) = written(running().heard(encoded({"id": "r", "method": "item/tool/call", "params": {}})))
    assert (line["id"], line["error"]["code"]) == ("r", -32601)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b'{"id":{}}',
        b'{"id":"start:m_1"}',
        b'{"id":"thread","result":{}}',
        b'{"id":"start:m_1","result":{"turn":7}}',
        b'{"method":"turn/started","params":{"turn":7}}',
        b'{"method":"turn/completed"}',
        b'{"id":1,"method":"item/commandExecution/requestApproval","params":7}',
    ],
)
def test_no_line_raises(line: bytes) -> None:
    talk = ready()
    talk.deliver(job("m_1"))
    talk.heard(line)
    CodexAppServerOracle().feed(SOURCE, line + b"\n")
