"""The conversation itself, without a process: what is said when, and to whom."""

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
    WithdrawnReport,
)
from lastword.transports.providers import acp_wire as wire
from lastword.transports.providers.acp import GEMINI
from lastword.transports.providers.acp_talk import AcpTalk, prompt_id

REQUEST = LaunchRequest(native_session="", cwd="/work", executable=("agent",), env={})


def job(name: str, turn: str | None = None) -> Job:
    typed = TypedText(text=name, paste=name.encode(), rewritten=name)
    return Job(message_id=MessageId(name), typed=typed, turn_id=TurnId(turn) if turn else None)


def written(effects: list[TalkEffect]) -> list[Any]:
    return [json.loads(effect.data) for effect in effects if isinstance(effect, Write)]


def opened() -> AcpTalk:
    talk = AcpTalk(REQUEST)
    (hello,) = written(talk.opened())
    (new,) = written(talk.heard(wire.answer(hello["id"], {"protocolVersion": 1, "agentCapabilities": {}})))
    effects = talk.heard(wire.answer(new["id"], {"sessionId": "s"}))
    assert isinstance(effects[0], BecameReady)
    return talk


def answered(talk: AcpTalk, name: str) -> list[TalkEffect]:
    return talk.heard(wire.answer(prompt_id(MessageId(name)), {"stopReason": "end_turn"}))


def ask(talk: AcpTalk, number: int) -> list[TalkEffect]:
    options = [{"optionId": each, "name": each, "kind": "allow_once"} for each in ("yes", "no")]
    call = {"toolCallId": f"c{number}", "title": f"tool {number}"}
    return talk.heard(
        wire.request(f"{number}", wire.PERMISSION, {"sessionId": "s", "toolCall": call, "options": options})
    )


def test_nothing_is_named_before_its_first_prompt_and_each_message_goes_out_once() -> None:
    talk = opened()
    first = talk.deliver(job("a"))
    assert isinstance(first[0], Named)
    assert [line["id"] for line in written(first)] == ["message:a"]
    assert talk.deliver(job("a")) == []
    assert talk.deliver(job("b")) == []
    assert [line["id"] for line in written(answered(talk, "a"))] == ["message:b"]
    assert answered(talk, "a") == []


@pytest.mark.contract("C07")
def test_c07_a_cancel_is_for_the_turn_that_was_meant_and_for_no_later_one() -> None:
    talk = opened()
    talk.deliver(job("a", turn="t-a"))
    talk.deliver(job("b", turn="t-b"))
    answered(talk, "a")
    late = talk.interrupt(TurnId("t-a"))
    assert [type(each) for each in late] == [Interrupted]
    assert [line["method"] for line in written(talk.interrupt(TurnId("t-b")))] == [wire.CANCEL]


def test_a_message_that_is_held_can_be_taken_back_and_one_that_runs_not() -> None:
    talk = opened()
    talk.deliver(job("a"))
    talk.deliver(job("b"))
    assert talk.withdraw(MessageId("b")) == [WithdrawnReport(message_id=MessageId("b"))]
    assert talk.withdraw(MessageId("a")) == []
    assert written(answered(talk, "a")) == []


@pytest.mark.contract("C25")
def test_c25_permissions_that_are_asked_for_together_are_answered_one_after_the_other() -> None:
    talk = opened()
    talk.deliver(job("a"))
    (one,) = ask(talk, 1)
    assert isinstance(one, DialogSeen)
    assert ask(talk, 2) == []
    write, gone_one, two = talk.answer("token", one.dialog_id, 2)
    assert isinstance(write, Write)
    assert json.loads(write.data)["result"]["outcome"] == {"outcome": "selected", "optionId": "no"}
    assert write.after == (AnswerResult(token="token", applied=True),)
    assert gone_one == DialogGone(dialog_id=one.dialog_id, answered=True, token="token")
    assert isinstance(two, DialogSeen)
    assert two.dialog_id != one.dialog_id
    assert talk.answer("again", one.dialog_id, 1) == [AnswerResult(token="again", applied=False)]
    assert talk.answer("range", two.dialog_id, 3) == [AnswerResult(token="range", applied=False)]
    gone = answered(talk, "a")
    assert gone == [DialogGone(dialog_id=two.dialog_id, answered=False)]


def test_a_permission_of_no_turn_of_ours_is_answered_as_cancelled() -> None:
    (line,) = written(ask(opened(), 1))
    assert line["result"]["outcome"] == {"outcome": "cancelled"}


def test_gemini_loads_no_conversation_in_the_minute_of_its_making() -> None:
    for since_s, waits in ((5.0, 70.0), (500.0, None)):
        request = LaunchRequest(
            native_session="s", cwd="/", executable=("gemini",), env={}, resume=True, since_start_s=since_s
        )
        talk = GEMINI.talk(request)
        (hello,) = written(talk.opened())
        effects = talk.heard(
            wire.answer(hello["id"], {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
        )
        if waits is None:
            assert [line["method"] for line in written(effects)] == [wire.LOAD]
        else:
            assert effects[0] == Remind(name="load", delay_s=waits)
            assert written(effects) == []
            assert [line["method"] for line in written(talk.reminded("load"))] == [wire.LOAD]


def test_a_prompt_that_cannot_be_written_gives_the_agent_up() -> None:
    """Else all that comes later would wait for its answer."""
    write = opened().deliver(job("a"))[1]
    assert isinstance(write, Write)
    assert isinstance(write.failed[-1], GiveUp)


def test_no_line_raises() -> None:
    talk = opened()
    talk.deliver(job("a"))
    for line in (b"\xff", b"[]", b"{}", b"null", b'{"id":{}}', b'{"id":1,"method":"session/request_permission"}'):
        talk.heard(line)
    assert [line["id"] for line in written(talk.heard(b'{"id":7,"method":"fs/read_text_file"}'))] == [7]


@pytest.mark.contract("C25")
def test_c25_a_permission_of_another_conversation_is_no_dialog_of_ours() -> None:
    talk = opened()
    talk.deliver(job("a"))
    asked = {"toolCall": {"toolCallId": "c"}, "options": [{"optionId": "yes", "name": "yes", "kind": "allow_once"}]}
    for where in ({"sessionId": "other"}, {}, {"sessionId": 5}):
        effects = talk.heard(wire.request("q", wire.PERMISSION, {**where, **asked}))
        assert [type(each) for each in effects] == [Write]
        assert written(effects)[0]["result"]["outcome"] == {"outcome": "cancelled"}


@pytest.mark.contract("C25")
def test_c25_a_request_that_comes_twice_while_it_is_open_is_answered_once() -> None:
    talk = opened()
    talk.deliver(job("a"))
    (one,) = ask(talk, 1)
    assert isinstance(one, DialogSeen)
    assert ask(talk, 1) == []
    effects = talk.answer("token", one.dialog_id, 1)
    assert [line["id"] for line in written(effects)] == ["1"]
    assert not any(isinstance(each, DialogSeen) for each in effects)
    assert talk.answer("again", one.dialog_id, 1) == [AnswerResult(token="again", applied=False)]


@pytest.mark.contract("C21")
@pytest.mark.parametrize("result", [b"5", b'{"protocolVersion":"one"}', b"[]"])
def test_c21_an_answer_to_the_handshake_that_cannot_be_read_is_given_up_at_once(result: bytes) -> None:
    talk = AcpTalk(REQUEST)
    (hello,) = written(talk.opened())
    (end,) = talk.heard(b'{"jsonrpc":"2.0","id":"%s","result":%s}' % (hello["id"].encode(), result))
    assert isinstance(end, GiveUp)
    assert "cannot be read" in end.reason


def test_an_old_conversation_is_open_where_the_answer_is_null() -> None:
    request = LaunchRequest(native_session="s", cwd="/", executable=("agent",), env={}, resume=True)
    talk = AcpTalk(request)
    (hello,) = written(talk.opened())
    can = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    (load,) = written(talk.heard(wire.answer(hello["id"], can)))
    (fence,) = written(talk.heard(b'{"jsonrpc":"2.0","id":"%s","result":null}' % load["id"].encode()))
    assert fence["method"] == wire.FENCE


def test_a_batch_is_heard_in_its_order() -> None:
    talk = opened()
    talk.deliver(job("a"))
    options = [{"optionId": "yes", "name": "yes", "kind": "allow_once"}]
    call = {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": options}
    lines = [wire.request("q", wire.PERMISSION, call), wire.answer("message:a", {"stopReason": "end_turn"})]
    effects = talk.heard(b"[" + b",".join(line.strip() for line in lines) + b"]")
    assert [type(each) for each in effects] == [DialogSeen, DialogGone]
