"""Pi over rpc, from recorded exchanges with the real CLI: what the talk writes, and what the oracle reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastword.actors.core.adapter import TypedText
from lastword.actors.core.facts import (
    Fact,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    UnknownRecord,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.talk import GiveUp, Remind, TalkEffect, Write
from lastword.actors.core.typing_effects import (
    AnswerResult,
    BecameReady,
    DialogGone,
    DialogSeen,
    Interrupted,
    Job,
    Submitted,
    WithdrawnReport,
)
from lastword.transports.providers.pi_stream import PiStreamOracle
from lastword.transports.providers.pi_talk import PiTalk

FOLDER = Path(__file__).parents[1] / "fixtures" / "pi" / "1.6.0" / "rpc"
CASES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
SOURCE = "stream"


def exchange(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{case}.jsonl").read_text(encoding="utf-8").splitlines()]


def heard(case: str) -> bytes:
    return b"".join(encoded(each["rec"]) for each in exchange(case) if each["dir"] == "out")


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


def asked_of(talk: PiTalk, what: str, args: list[Any]) -> list[TalkEffect]:
    effects: list[TalkEffect] = getattr(talk, what)(*([job(*args)] if what == "deliver" else args))
    return effects


# --- the recorded exchanges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_c24_the_talk_writes_what_the_real_cli_was_told_and_nothing_else(case: str) -> None:
    talk, pending = PiTalk(), list[dict[str, Any]]()
    for each in exchange(case):
        match each["dir"]:
            case "host":
                assert pending == []
                pending += written(asked_of(talk, each["rec"]["do"], each["rec"]["args"]))
            case "out":
                assert pending == []
                pending += written(talk.heard(json.dumps(each["rec"]).encode()))
            case _:
                assert each["rec"] == pending.pop(0)
    assert pending == []


def test_every_recording_is_read() -> None:
    assert len(CASES) == 9


def told(case: str, chunk: int = 0) -> list[Fact]:
    oracle, data = PiStreamOracle(), heard(case)
    step = chunk or len(data)
    facts = [fact for at in range(0, len(data), step) for fact in oracle.feed(SOURCE, data[at : at + step])]
    return [*facts, *oracle.eof(SOURCE)]


def outline(facts: list[Fact]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for fact in facts:
        match fact:
            case PromptRecorded():
                found.append(("began", fact.key))
            case InputQueued():
                found.append(("queued", fact.key))
            case InputJoined():
                found.append(("joined", fact.key))
            case InputDropped():
                found.append(("dropped", fact.key))
            case ToolStarted():
                found.append(("tool", fact.name))
            case ToolFinished():
                found.append(("tool_end", fact.status))
            case ProviderRetrying():
                found.append(("retrying",))
            case TurnClosed():
                kind = fact.error.kind if fact.error is not None else ""
                found.append(("closed", fact.status, fact.answer or kind))
            case UnknownRecord():
                found.append(("unknown", fact.what))
            case _:
                pass
    return found


READ = {
    "plain": [
        ("began", "m_1"),
        ("tool", "bash"),
        ("tool_end", "ok"),
        ("closed", "completed", "done"),
        ("began", "m_2"),
        ("closed", "completed", "echo: /llama"),
    ],
    "busy": [
        ("began", "m_1"),
        ("queued", "m_2"),
        ("queued", "m_3"),
        ("joined", "m_2"),
        ("joined", "m_3"),
        ("closed", "completed", "echo: same"),
    ],
    "at_once": [
        ("began", "m_0"),
        ("queued", "m_1"),
        ("queued", "m_2"),
        ("joined", "m_1"),
        ("joined", "m_2"),
        ("closed", "completed", "echo: number 2"),
    ],
    "interrupt_queued": [
        ("began", "m_1"),
        ("queued", "m_2"),
        ("closed", "cancelled", ""),
        ("began", "m_2"),
        ("closed", "completed", "behind"),
    ],
    "interrupt_flying": [
        ("began", "m_1"),
        ("closed", "cancelled", ""),
        ("began", "m_2"),
        ("closed", "completed", "on"),
    ],
    "withdraw_queued": [
        ("began", "m_1"),
        ("queued", "m_2"),
        ("queued", "m_3"),
        ("queued", "m_3"),
        ("joined", "m_3"),
        ("closed", "completed", "echo: wanted"),
    ],
    "dialog": [
        ("began", "m_1"),
        ("tool", "bash"),
        ("tool_end", "ok"),
        ("closed", "completed", "done"),
        ("began", "m_2"),
        ("tool", "bash"),
        ("tool_end", "error"),
        ("closed", "cancelled", ""),
    ],
    "retry": [
        ("began", "m_1"),
        ("retrying",),
        ("closed", "completed", "in the end"),
        ("began", "m_2"),
        ("closed", "failed", "invalid_request"),
        ("began", "m_3"),
        ("closed", "failed", "refused"),
    ],
    "killed": [("began", "m_1"), ("queued", "m_2")],
}


@pytest.mark.contract("C04")
@pytest.mark.parametrize("case", CASES)
def test_c04_the_stream_says_whose_message_began_joined_and_ended(case: str) -> None:
    facts = told(case)
    assert outline(facts) == READ[case]
    assert told(case, chunk=1) == facts
    assert told(case, chunk=97) == facts


# --- the talk ---------------------------------------------------------------------------------------------------------


def ready(*commands: str) -> PiTalk:
    talk = PiTalk()
    first, second = written(talk.opened())
    assert talk.heard(encoded({"id": first["id"], "type": "response", "command": "get_state", "success": True})) == []
    names = {"commands": [{"name": name} for name in commands]}
    answer = {"id": second["id"], "type": "response", "command": "get_commands", "success": True, "data": names}
    assert talk.heard(encoded(answer)) == [BecameReady()]
    return talk


def answered(message_id: str, disposition: str) -> bytes:
    data = {"disposition": disposition}
    return encoded({"id": message_id, "type": "response", "command": "prompt", "success": True, "data": data})


SETTLED = encoded({"type": "agent_settled", "aborted": False})


def test_c13_one_prompt_is_on_its_way_at_a_time_and_each_once() -> None:
    talk = ready()
    first = talk.deliver(job("m_1"))
    assert [effect.after for effect in first if isinstance(effect, Write)] == [
        (Submitted(message_id=MessageId("m_1"), rewritten=()),)
    ]
    assert talk.deliver(job("m_2")) == []
    assert talk.deliver(job("m_1")) == []
    assert [line["id"] for line in written(talk.heard(answered("m_1", "started")))] == ["m_2"]
    assert talk.heard(answered("m_2", "queued")) == []
    assert talk.deliver(job("m_1")) == []


def test_c24_nothing_is_written_before_the_handshake_and_a_mute_cli_is_given_up() -> None:
    talk = PiTalk()
    opened = talk.opened()
    assert [line["type"] for line in written(opened)] == ["get_state", "get_commands"]
    assert [effect.name for effect in opened if isinstance(effect, Remind)] == ["handshake"]
    assert talk.deliver(job("m_1")) == []
    assert isinstance(talk.reminded("handshake")[0], GiveUp)
    assert talk.withdraw(MessageId("m_1")) == [WithdrawnReport(message_id=MessageId("m_1"))]


def test_c24_a_handshake_that_is_refused_is_given_up() -> None:
    talk = PiTalk()
    first, _ = written(talk.opened())
    refused = {"id": first["id"], "type": "response", "command": "get_state", "success": False, "error": "no"}
    assert talk.heard(encoded(refused)) == [GiveUp(reason="the CLI refused the handshake: no")]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("/fix it", " /fix it"),
        ("/fix", " /fix"),
        ("/fix\nit", " /fix\nit"),
        ("/fixed", "/fixed"),
        ("/usr/bin", "/usr/bin"),
        ("/", "/"),
        ("fix", "fix"),
    ],
)
def test_c24_only_a_word_that_pi_would_execute_gets_a_blank(text: str, sent: str) -> None:
    effects = ready("fix").deliver(job("m_1", text))
    assert written(effects)[0]["message"] == sent
    (write,) = effects
    assert isinstance(write, Write)
    notes = ("leading_blank",) if sent != text else ()
    assert write.after == (Submitted(message_id=MessageId("m_1"), rewritten=notes),)


def test_c07_an_interrupt_waits_for_the_answer_to_what_was_just_sent() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    assert talk.interrupt(TurnId("t_1")) == []
    effects = talk.heard(answered("m_1", "started"))
    assert effects[0] == Interrupted(turn_id=TurnId("t_1"))
    assert [line["type"] for line in written(effects)] == ["clear_queue", "abort"]


def test_c07_an_interrupt_that_is_asked_for_again_does_not_wait_for_an_answer_that_does_not_come() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    assert talk.interrupt(TurnId("t_1")) == []
    assert [line["type"] for line in written(talk.interrupt(TurnId("t_1")))] == ["clear_queue", "abort"]
    assert "abort" in [line["type"] for line in written(talk.heard(answered("m_1", "started")))]


def test_c07_an_interrupt_of_a_turn_that_has_settled_does_not_hit_the_next() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    talk.heard(answered("m_1", "started"))
    talk.heard(SETTLED)
    talk.deliver(job("m_2", turn_id="t_2"))
    talk.heard(answered("m_2", "started"))
    assert written(talk.interrupt(TurnId("t_1"))) == []
    assert [line["type"] for line in written(talk.interrupt(TurnId("t_2")))] == ["clear_queue", "abort"]


def test_c22_what_stands_in_the_queue_of_a_run_that_settled_is_sent_again() -> None:
    talk = ready()
    talk.deliver(job("m_1"))
    talk.heard(answered("m_1", "started"))
    talk.deliver(job("m_2", "late"))
    talk.heard(answered("m_2", "queued"))
    (clear,) = written(talk.heard(SETTLED))
    assert clear["type"] == "clear_queue"
    assert talk.deliver(job("m_3")) == []
    cleared = {"id": clear["id"], "type": "response", "command": "clear_queue", "success": True}
    again = talk.heard(encoded({**cleared, "data": {"steering": ["late"], "followUp": []}}))
    assert [line["id"] for line in written(again)] == ["m_2"]
    assert [line["id"] for line in written(talk.heard(answered("m_2", "started")))] == ["m_3"]


def test_c22_a_queue_that_the_run_took_up_before_it_was_cleared_is_not_sent_again() -> None:
    talk = ready()
    talk.deliver(job("m_1"))
    talk.heard(answered("m_1", "started"))
    talk.deliver(job("m_2", "late"))
    talk.heard(answered("m_2", "queued"))
    effects = talk.interrupt(TurnId("t_1"))
    clear, abort = written(effects)
    talk.heard(encoded({"type": "message_end", "message": {"role": "user", "content": "late", "timestamp": 1}}))
    nothing = {"data": {"steering": [], "followUp": []}, "type": "response", "success": True}
    assert talk.heard(encoded({**nothing, "id": clear["id"], "command": "clear_queue"})) == []
    assert talk.heard(SETTLED) == []
    assert talk.heard(encoded({"id": abort["id"], "type": "response", "command": "abort", "success": True})) == []


def ask(request_id: str, method: str, **more: Any) -> bytes:
    return encoded({"type": "extension_ui_request", "id": request_id, "method": method, "title": "T", **more})


def seen(effects: list[TalkEffect]) -> DialogSeen:
    (dialog,) = (effect for effect in effects if isinstance(effect, DialogSeen))
    return dialog


@pytest.mark.contract("C25")
@pytest.mark.parametrize(
    ("method", "more", "options", "option", "reply"),
    [
        ("confirm", {"message": "m"}, ("Yes", "No"), 2, {"confirmed": False}),
        ("select", {"options": ["A", "B"]}, ("A", "B", "Cancel"), 1, {"value": "A"}),
        ("select", {"options": ["A", "B"]}, ("A", "B", "Cancel"), 3, {"cancelled": True}),
        ("input", {}, ("Cancel",), 1, {"cancelled": True}),
        ("editor", {"prefill": "x"}, ("Leave the text as it is", "Cancel"), 1, {"value": "x"}),
        ("editor", {}, ("Cancel",), 1, {"cancelled": True}),
    ],
)
def test_c25_each_kind_of_request_has_its_options_and_answers(
    method: str, more: dict[str, Any], options: tuple[str, ...], option: int, reply: dict[str, Any]
) -> None:
    talk = ready()
    shown = seen(talk.heard(ask("u_1", method, **more)))
    assert shown.dialog.options == options
    assert talk.answer("a_0", shown.dialog_id, len(options) + 1) == [AnswerResult(token="a_0", applied=False)]
    write, gone = talk.answer("a_1", shown.dialog_id, option)
    assert isinstance(write, Write)
    assert gone == DialogGone(dialog_id=shown.dialog_id, answered=True, token="a_1")
    assert json.loads(write.data) == {"type": "extension_ui_response", "id": "u_1", **reply}
    assert write.after[-1] == AnswerResult(token="a_1", applied=True)
    assert talk.answer("a_2", shown.dialog_id, option) == [AnswerResult(token="a_2", applied=False)]


@pytest.mark.contract("C25")
def test_c25_of_several_dialogs_one_is_told_at_a_time_and_one_out_of_time_goes() -> None:
    talk = ready()
    effects = talk.heard(ask("u_1", "confirm", timeout=500))
    first = seen(effects)
    assert Remind(name="dialog:u_1", delay_s=0.5) in effects
    assert talk.heard(ask("u_2", "confirm")) == []
    assert talk.heard(ask("u_3", "setStatus", statusText="s")) == []
    gone, second = talk.reminded("dialog:u_1")
    assert gone == DialogGone(dialog_id=first.dialog_id, answered=False)
    assert isinstance(second, DialogSeen)
    assert talk.reminded("dialog:u_1") == []
    effects = talk.interrupt(TurnId("t_1"))
    assert DialogGone(dialog_id=second.dialog_id, answered=False) in effects
    assert {"type": "extension_ui_response", "id": "u_2", "cancelled": True} in written(effects)


# --- what no recording shows ------------------------------------------------------------------------------------------


def read(*lines: dict[str, Any]) -> list[tuple[str, ...]]:
    return outline(PiStreamOracle().feed(SOURCE, b"".join(encoded(line) for line in lines)))


def prompted(key: str, **answer: Any) -> dict[str, Any]:
    return {"id": key, "type": "response", "command": "prompt", "success": True, **answer}


def user(text: str, stamp: int) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "user", "content": text, "timestamp": stamp}}


STARTED = {"data": {"disposition": "started"}}
QUEUED = {"data": {"disposition": "queued"}}
SETTLE = {"type": "agent_settled", "aborted": False}
STOP = {"type": "message_end", "message": {"role": "assistant", "content": "yes", "stopReason": "stop"}}


def test_c02_a_prompt_that_is_refused_handled_or_never_begun_is_dropped() -> None:
    assert read(prompted("m_1", success=False, error="no key")) == [("dropped", "m_1")]
    assert read(prompted("m_1", data={"disposition": "handled"})) == [("dropped", "m_1")]
    assert read(prompted("m_1", **STARTED), {"type": "agent_start"}, SETTLE) == [("dropped", "m_1")]


def test_c02_a_settling_without_its_message_ends_no_other_run() -> None:
    lines = (user("theirs", 1), prompted("m_1", **STARTED), SETTLE, STOP, SETTLE)
    assert read(*lines) == [("began", ""), ("dropped", "m_1"), ("closed", "completed", "yes")]


def test_c20_a_message_that_was_begun_before_its_answer_came_is_still_known() -> None:
    waits, empty = ({"type": "queue_update", "steering": texts, "followUp": []} for texts in (["b"], []))
    lines = (user("a", 1), waits, empty, user("b", 2), prompted("m_2", **QUEUED), STOP, SETTLE)
    assert read(*lines) == [("began", ""), ("joined", ""), ("joined", "m_2"), ("closed", "completed", "yes")]
    lines = (user("a", 1), waits, empty, prompted("m_2", **QUEUED), user("b", 2), STOP, SETTLE)
    assert read(*lines) == [("began", ""), ("queued", "m_2"), ("joined", "m_2"), ("closed", "completed", "yes")]


def test_c06_a_second_end_is_counted_and_ends_nothing() -> None:
    lines = (prompted("m_1", **STARTED), user("a", 1), STOP, SETTLE, SETTLE)
    assert read(*lines) == [("began", "m_1"), ("closed", "completed", "yes"), ("unknown", "late_terminal")]


@pytest.mark.contract("C03")
def test_c03_an_abort_in_the_wait_before_a_retry_is_a_cancellation_though_the_last_word_is_an_error() -> None:
    failed = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "529 overloaded"}
    lines = (prompted("m_1", **STARTED), user("a", 1), {"type": "message_end", "message": failed})
    assert read(*lines, {**SETTLE, "aborted": True}) == [("began", "m_1"), ("closed", "cancelled", "")]
    assert read(*lines, SETTLE) == [("began", "m_1"), ("closed", "failed", "overloaded")]


@pytest.mark.parametrize("case", CASES)
def test_no_line_however_broken_raises(case: str) -> None:
    talk, oracle = ready("x"), PiStreamOracle()
    for each in exchange(case):
        line = json.dumps(each["rec"])
        for at in range(0, len(line), 7):
            for bad in (line[:at], line[at:], line[:at] + "0" + line[at:], line[:at] + "null" + line[at + 4 :]):
                talk.heard(bad.encode())
                oracle.feed(SOURCE, bad.encode() + b"\n")
