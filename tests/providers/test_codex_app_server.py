"""Codex over its app-server, from recorded exchanges with the real one: what the talk writes, what the oracle reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastword.actors.core.adapter import LaunchRequest, TypedText
from lastword.actors.core.facts import (
    CliVersionSeen,
    CompactionRecorded,
    Fact,
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
from lastword.actors.core.talk import TalkEffect, Write
from lastword.actors.core.typing_effects import Job
from lastword.transports.providers.codex_stream_oracles import CodexAppServerOracle
from lastword.transports.providers.codex_talk import CodexTalk

FOLDER = Path(__file__).parents[1] / "fixtures" / "codex" / "0.171.0" / "app_server"
CASES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
SOURCE = "stream"


def exchange(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{case}.jsonl").read_text(encoding="utf-8").splitlines()]


def heard(case: str) -> bytes:
    return b"".join(encoded(each["rec"]) for each in exchange(case) if each["dir"] == "out")


def encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def request_of(args: dict[str, Any]) -> LaunchRequest:
    return LaunchRequest(executable=("codex",), env={}, **args)


def job(message_id: str, text: str = "hello", turn_id: str | None = None) -> Job:
    return Job(
        message_id=MessageId(message_id),
        typed=TypedText(text=text, paste=text.encode(), rewritten=text),
        turn_id=TurnId(turn_id) if turn_id is not None else None,
    )


def written(effects: list[TalkEffect]) -> list[dict[str, Any]]:
    return [json.loads(effect.data) for effect in effects if isinstance(effect, Write)]


def asked_of(talk: CodexTalk, what: str, args: list[Any]) -> list[TalkEffect]:
    effects: list[TalkEffect] = getattr(talk, what)(*([job(*args)] if what == "deliver" else args))
    return effects


# --- the recorded exchanges -------------------------------------------------------------------------------------------


@pytest.mark.contract("C24")
@pytest.mark.parametrize("case", CASES)
def test_c24_the_talk_writes_what_the_real_cli_was_told_and_nothing_else(case: str) -> None:
    first, *rest = exchange(case)
    talk, pending = CodexTalk(request_of(first["rec"]["args"])), list[dict[str, Any]]()
    for each in rest:
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
    assert set(CASES) == set(READ)


def told(case: str, chunk: int = 0) -> list[Fact]:
    oracle, data = CodexAppServerOracle(), heard(case)
    step = chunk or len(data)
    facts = [fact for at in range(0, len(data), step) for fact in oracle.feed(SOURCE, data[at : at + step])]
    return [*facts, *oracle.eof(SOURCE)]


def outline(facts: list[Fact]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for fact in facts:
        match fact:
            case PromptRecorded():
                if not (fact.key and fact.text):  # told again
                    found.append(("began", fact.key or fact.origin))
            case InputQueued():
                found.append(("queued", fact.key))
            case InputJoined():
                found.append(("joined", fact.key))
            case ToolStarted():
                found.append(("tool", fact.name))
            case ToolFinished():
                found.append(("tool_end", fact.status))
            case ProviderRetrying():
                found.append(("retrying",))
            case CompactionRecorded():
                found.append(("compacted",))
            case TurnClosed():
                kind = fact.error.kind if fact.error is not None else ""
                found.append(("closed", fact.status, fact.answer or kind))
            case UnknownRecord():
                found.append(("unknown", fact.what))
            case _:
                pass
    return found


READ: dict[str, list[tuple[str, ...]]] = {
    "plain": [
        ("began", "m_1"),
        ("tool", "exec_command"),
        ("tool_end", "ok"),
        ("closed", "completed", "done"),
        ("began", "m_2"),
        ("closed", "completed", "two"),
    ],
    "steer": [
        ("began", "m_1"),
        ("tool", "exec_command"),
        ("queued", "m_2"),
        ("queued", "m_3"),
        ("tool_end", "ok"),
        ("joined", "m_2"),
        ("joined", "m_3"),
        ("closed", "completed", "c"),
    ],
    "at_once": [
        ("queued", "m_2"),
        ("queued", "m_3"),
        ("began", "m_1"),
        ("joined", "m_2"),
        ("joined", "m_3"),
        ("closed", "completed", "3"),
    ],
    "late": [
        ("began", "m_1"),
        ("closed", "completed", "one"),
        ("began", "m_2"),
        ("closed", "completed", "two"),
    ],
    "interrupt": [
        ("began", "m_1"),
        ("closed", "cancelled", ""),
        ("began", "m_2"),
        ("closed", "completed", "on"),
    ],
    "interrupt_early": [("began", "m_1"), ("closed", "cancelled", "")],
    "dropped": [
        ("began", "m_1"),
        ("tool", "exec_command"),
        ("queued", "m_2"),
        ("queued", "m_3"),
        ("closed", "cancelled", ""),
        ("queued", "m_3"),
        ("began", "m_2"),
        ("joined", "m_3"),
        ("closed", "completed", "c"),
        ("unknown", "item_without_turn"),  # the tool of the first turn, which ran on
    ],
    "dialogs": [
        ("began", "m_1"),
        ("tool", "exec_command"),
        ("tool", "exec_command"),
        ("tool_end", "error"),
        ("tool_end", "ok"),
        ("closed", "completed", "done"),
        ("began", "m_2"),
        ("tool", "apply_patch"),
        ("tool_end", "ok"),
        ("tool", "mcp__lab__shout"),
        ("tool_end", "ok"),
        ("closed", "completed", "done"),
        ("began", "m_3"),
        ("tool", "exec_command"),
        ("closed", "cancelled", ""),
    ],
    "questions": [("began", "m_1"), ("closed", "completed", "thanks")],
    "errors": [
        ("began", "m_1"),
        ("closed", "failed", "invalid_request"),
        ("began", "m_2"),
        ("retrying",),
        ("closed", "failed", "authentication"),
        ("began", "m_3"),
        ("closed", "failed", "rate_limited"),
        ("began", "m_4"),
        ("retrying",),
        ("closed", "failed", "refused"),
        ("began", "m_5"),
        ("retrying",),
        ("closed", "completed", "half of it"),
    ],
    "compacting": [
        ("began", "m_1"),
        ("closed", "completed", "one"),
        ("compacted",),
        ("began", "local_command"),
        ("closed", "completed", ""),
        ("began", "m_2"),
        ("closed", "completed", "two"),
    ],
    "resumed": [("began", "m_2"), ("closed", "completed", "two")],
    "killed": [("began", "m_1"), ("tool", "exec_command")],
    "refused": [],
}


@pytest.mark.contract("C04")
@pytest.mark.parametrize("case", CASES)
def test_c04_the_stream_says_whose_message_began_joined_and_ended(case: str) -> None:
    facts = told(case)
    assert outline(facts) == READ[case]
    assert told(case, chunk=1) == facts
    assert told(case, chunk=97) == facts


@pytest.mark.parametrize("case", [case for case in CASES if case != "refused"])
def test_a_turn_is_named_before_its_text_is_on_record_and_told_again_with_it(case: str) -> None:
    ours = [fact for fact in told(case) if isinstance(fact, PromptRecorded) and fact.key]
    for native in {fact.native_turn for fact in ours}:
        first, second = [fact for fact in ours if fact.native_turn == native]
        assert (first.key, first.text) == (second.key, "")
        assert second.text
        assert first.evidence.offset < second.evidence.offset


def test_c03_a_used_up_limit_says_when_it_ends() -> None:
    closed = next(
        fact
        for fact in told("errors")
        if isinstance(fact, TurnClosed) and fact.error is not None and fact.error.kind == "rate_limited"
    )
    assert closed.error is not None
    assert (closed.error.native_kind, closed.error.resets_at) == ("usage_limit_exceeded", 1_900_000_000)


@pytest.mark.contract("C32")
def test_c32_tools_have_their_arguments_and_results() -> None:
    facts = told("dialogs")
    started = [json.loads(fact.arguments) for fact in facts if isinstance(fact, ToolStarted)]
    finished = [fact.result for fact in facts if isinstance(fact, ToolFinished)]
    assert sorted(each["command"] for each in started[:2]) == ["touch a", "touch b"]
    assert started[2]["changes"][0]["path"] == "/home/user/project/made"
    assert started[3] == {"text": "hi"}
    assert finished[-1] == "HI"


@pytest.mark.contract("C04")
def test_c04_text_before_a_tool_is_no_answer_even_where_no_other_comes() -> None:
    lines = heard("plain").splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"text": "done"' in line and b"item/completed" in line)
    closed = next(
        fact
        for fact in CodexAppServerOracle().feed(SOURCE, b"".join(lines[:last] + lines[last + 1 :]))
        if isinstance(fact, TurnClosed)
    )
    assert (closed.status, closed.answer) == ("completed", "")


@pytest.mark.contract("C51")
def test_c51_what_is_said_of_another_thread_is_none_of_ours() -> None:
    lines = [line for line in heard("plain").splitlines(keepends=True) if b'"thread/started"' not in line]
    native = _thread(heard("plain"))
    foreign = [line.replace(native.encode(), b"another") for line in lines[3:] if b'"method"' in line]
    oracle = CodexAppServerOracle()
    known = oracle.feed(SOURCE, b"".join(lines[:3]))
    assert outline([*known, *oracle.feed(SOURCE, b"".join(foreign))]) == []
    assert outline(oracle.feed(SOURCE, b"".join(lines[3:]))) == READ["plain"]


def _thread(data: bytes) -> str:
    found = [json.loads(line) for line in data.splitlines()]
    return str(next(line["result"]["thread"]["id"] for line in found if "thread" in line.get("result", {})))


@pytest.mark.contract("C32")
def test_c32_an_item_whose_turn_is_null_is_of_the_turn_that_runs() -> None:
    lines = [json.loads(line) for line in heard("plain").splitlines()]
    for line in lines:
        if line.get("method", "").startswith("item/"):
            line["params"]["turnId"] = None
    assert outline(CodexAppServerOracle().feed(SOURCE, b"".join(map(encoded, lines)))) == READ["plain"]


def test_the_version_is_known_from_the_first_reply() -> None:
    assert CliVersionSeen(version="0.171.0") in told("plain")
