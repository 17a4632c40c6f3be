"""What is read out of a conversation over the Agent Client Protocol: any chunking alike, nothing of another turn."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from lastword.actors.core.facts import AssistantSaid, Fact, PromptRecorded, ToolFinished, ToolStarted, TurnClosed
from lastword.actors.core.talk import EXITED, ORPHANED
from lastword.transports.providers import acp_wire as wire
from lastword.transports.providers.acp_oracle import AcpOracle, rpc_error

SENT, HEARD = "/s/x-1.sent.jsonl", "/s/x-1.jsonl"


def prompt(number: str, text: str) -> bytes:
    return wire.request(number, wire.PROMPT, {"sessionId": "s", "prompt": [{"type": "text", "text": text}]})


def update(session: str = "s", **told: Any) -> bytes:
    return wire.notification(wire.UPDATE, {"sessionId": session, "update": told})


def said(text: str, **more: Any) -> bytes:
    return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text}, **more)


def done(number: str, reason: str = "end_turn") -> bytes:
    return wire.answer(number, {"stopReason": reason})


def failed(number: str, code: int, message: str, data: Any = None) -> bytes:
    return json.dumps({"id": number, "error": {"code": code, "message": message, "data": data}}).encode() + b"\n"


def tool(kind: str, status: str, call: str = "c1", **more: Any) -> bytes:
    return update(sessionUpdate=kind, toolCallId=call, status=status, **more)


def read(sent: list[bytes], heard: list[bytes]) -> list[Fact]:
    oracle = AcpOracle()
    facts = oracle.feed(SENT, b"".join(sent))
    return facts + oracle.feed(HEARD, b"".join(heard))


def closed(facts: list[Fact]) -> list[tuple[str, str, str | None]]:
    return [(fact.native_turn, fact.status, fact.answer) for fact in facts if isinstance(fact, TurnClosed)]


def test_any_chunking_of_both_files_gives_the_same_facts() -> None:
    sent = b"".join([wire.request("i", wire.INITIALIZE, {}), prompt("a", "one"), prompt("b", "two \U0001f468")])
    heard = b"".join(
        [
            wire.answer("i", {"protocolVersion": 1, "agentInfo": {"name": "x", "version": "1.2.3"}}),
            said("let me "),
            said("look"),
            tool("tool_call", "pending", title="t", rawInput={}),
            tool("tool_call_update", "in_progress", rawInput={"command": "ls"}),
            tool("tool_call_update", "completed", content=[{"content": {"type": "text", "text": "out"}}]),
            said("an\u00e9 answer"),
            done("a"),
            said("second"),
            done("b"),
        ]
    )
    whole = AcpOracle()
    wanted = whole.feed(SENT, sent) + whole.feed(HEARD, heard)
    assert closed(wanted) == [("a", "completed", "an\u00e9 answer"), ("b", "completed", "second")]
    assert [f.arguments for f in wanted if isinstance(f, ToolStarted)] == ['{"command":"ls"}']
    assert [f.result for f in wanted if isinstance(f, ToolFinished)] == ["out"]
    assert [f.text for f in wanted if isinstance(f, AssistantSaid)] == ["let me look", "an\u00e9 answer", "second"]
    assert whole.quiescent
    dice = random.Random(7)
    for size in (1, 2, 3, 7, 50, 0):
        oracle, facts = AcpOracle(), []
        for source, data in ((SENT, sent), (HEARD, heard)):
            at = 0
            while at < len(data):
                step = size or dice.randint(1, 200)
                facts += oracle.feed(source, data[at : at + step])
                at += step
        assert facts == wanted


@pytest.mark.contract("C04")
def test_c04_what_is_sent_later_is_not_begun_before_the_answer_to_what_was_sent_before() -> None:
    """The file of what was sent is read ahead: a prompt that stands there already takes nothing of the one before."""
    facts = read([prompt("a", "one"), prompt("b", "two")], [said("first"), done("a"), said("second"), done("b")])
    kinds = [type(fact).__name__ for fact in facts]
    assert kinds == ["PromptRecorded", "AssistantSaid", "TurnClosed"] * 2
    assert closed(facts) == [("a", "completed", "first"), ("b", "completed", "second")]


@pytest.mark.contract("C16")
def test_c16_history_that_is_told_anew_is_of_no_turn() -> None:
    sent = [
        wire.request("l", wire.LOAD, {"sessionId": "s"}),
        wire.request("f", wire.FENCE, {}),
        prompt("a", "new"),
    ]
    heard = [
        said("old 1"),
        wire.answer("l", {}),
        update(sessionUpdate="user_message_chunk", content={"type": "text", "text": "old prompt"}),
        said("old 2"),
        failed("f", -32601, "Method not found"),
        said("new answer"),
        done("a"),
    ]
    assert closed(read(sent, heard)) == [("a", "completed", "new answer")]
    late = [wire.answer("l", {}), failed("f", -32601, ""), said("old 2")]
    late += [update(sessionUpdate="user_message_chunk", content={"type": "text", "text": "x"}), said("new"), done("a")]
    assert closed(read(sent, late)) == [("a", "completed", "new")]


@pytest.mark.contract("C04")
def test_c04_a_message_or_call_of_an_earlier_turn_that_is_told_on_is_late() -> None:
    heard = [
        said("one", messageId="m1"),
        tool("tool_call", "in_progress", call="c1"),
        done("a"),
        said(" more", messageId="m1"),
        tool("tool_call_update", "completed", call="c1"),
        said("two", messageId="m2"),
        done("b"),
    ]
    facts = read([prompt("a", "x"), prompt("b", "y")], heard)
    assert closed(facts)[1] == ("b", "completed", "two")
    assert [f for f in facts if isinstance(f, ToolFinished)] == []


@pytest.mark.contract("C07")
def test_c07_only_our_own_cancel_makes_a_cancellation_of_an_error() -> None:
    cancel = wire.notification(wire.CANCEL, {"sessionId": "s"})
    aborted = failed("a", -32603, "Internal error", {"details": "Request was aborted."})
    assert closed(read([prompt("a", "x"), cancel], [aborted])) == [("a", "cancelled", None)]
    assert closed(read([prompt("a", "x")], [aborted])) == [("a", "failed", None)]
    silent = failed("a", -32603, "Internal error: Internal service failure", {})
    assert closed(read([prompt("a", "x"), cancel], [silent])) == [("a", "cancelled", None)]
    nothing = [prompt("a", "x"), cancel], [done("a")]
    assert closed(read(*nothing)) == [("a", "cancelled", None)]
    in_time = [prompt("a", "x"), cancel], [said("answer"), done("a")]
    assert closed(read(*in_time)) == [("a", "completed", "answer")]
    limit = failed("a", 429, "slow down")
    assert closed(read([prompt("a", "x"), cancel], [limit])) == [("a", "failed", None)]


@pytest.mark.contract("C03")
@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (wire.RpcError(400, '{"error":{"code":400,"message":"scripted failure"}}'), "invalid_request", 400),
        (wire.RpcError(-32603, "Internal error", {"details": "429 too many"}), "rate_limited", 429),
        (wire.RpcError(-32603, "Internal error: x", {"errorName": "APIError"}), "provider_error", None),
        (wire.RpcError(-32000, "Authentication required"), "authentication", None),
        (wire.RpcError(-32603, "prompt is too long"), "context_overflow", None),
    ],
)
def test_c03_an_error_has_the_kind_that_its_words_say(error: wire.RpcError, kind: str, status: int | None) -> None:
    told = rpc_error(error)
    assert (told.kind, told.status_code) == (kind, status)


def test_hostile_lines_raise_nothing_and_close_nothing() -> None:
    lines = [
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"id":{},"result":{}}\n',
        b'{"method":"session/update"}\n',
        b'{"method":"session/update","params":[]}\n',
        b'{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":7}}}\n',
        b'{"method":"session/request_permission","id":1,"params":{"options":3}}\n',
        b"[" * 100_000 + b"\n",
        said("foreign").replace(b'"s"', b'"other"'),
        done("nobody"),
    ]
    facts = read([prompt("a", "x")], lines)
    assert closed(facts) == []
    assert [f for f in facts if isinstance(f, (PromptRecorded, AssistantSaid))] == []


@pytest.mark.contract("C02")
@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (b'{"jsonrpc":"2.0","id":"a","error":"just text"}', "failed", "just text"),
        (b'{"jsonrpc":"2.0","id":"a","error":["x",1]}', "failed", '["x",1]'),
        (b'{"jsonrpc":"2.0","id":"a","error":{"code":"E1","message":{"deep":"words"}}}', "failed", "words"),
        (b'{"jsonrpc":"2.0","id":"a","error":{"reason":"no message here"}}', "failed", "no message here"),
        (b'{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":null,"data":NaN}}', "failed", ""),
        (b'{"jsonrpc":"2.0","id":"a","method":null,"result":{"stopReason":"end_turn"}}', "completed", ""),
        (b'{"jsonrpc":"2.0","id":"a","result":{"stopReason":"end_turn","score":NaN}}', "completed", ""),
        (b'{"jsonrpc":"2.0","id":"a","result":{"stopReason":"end_turn","_meta":"a\tb\xff"}}', "completed", ""),
        (b'{"jsonrpc":"2.0","id":"a","result":{"stopReason":7}}', "failed", "7"),
        (b'{"jsonrpc":"2.0","id":"a","result":[1]}', "failed", "no stopReason"),
        (b'{"jsonrpc":"2.0","id":"a"}', "failed", "no stopReason"),
        (b'[{"jsonrpc":"2.0","id":"a","result":{"stopReason":"end_turn"}}]', "completed", ""),
        (b'[5,{"jsonrpc":"2.0","id":"z"},{"id":"a","error":"batched"},{}]', "failed", "batched"),
    ],
)
def test_c02_an_answer_to_our_prompt_settles_it_whatever_its_shape(line: bytes, status: str, words: str) -> None:
    facts = read([prompt("a", "x")], [line + b"\n"])
    (end,) = [fact for fact in facts if isinstance(fact, TurnClosed)]
    assert (end.native_turn, end.status) == ("a", status)
    assert words in (end.error.message if end.error is not None else "")


def test_a_batch_is_read_in_its_order() -> None:
    lines = b",".join(line.strip() for line in (said("in "), said("a batch"), done("a"), said("late")))
    assert closed(read([prompt("a", "x")], [b"[" + lines + b"]\n"])) == [("a", "completed", "in a batch")]


@pytest.mark.contract("C04")
def test_c04_a_text_or_a_permission_that_names_no_conversation_or_another_one_is_none_of_the_turns() -> None:
    unnamed = wire.notification(
        wire.UPDATE,
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "unnamed"}}},
    )
    foreign = update("other", sessionUpdate="agent_message_chunk", content={"type": "text", "text": "foreign"})
    call = {"toolCall": {"toolCallId": "c9", "title": "x"}, "options": []}
    asked = [wire.request("p", wire.PERMISSION, {**where, **call}) for where in ({}, {"sessionId": "other"})]
    facts = read([prompt("a", "x")], [unnamed, said("mine"), foreign, *asked, done("a")])
    assert closed(facts) == [("a", "completed", "mine")]
    assert [fact for fact in facts if isinstance(fact, ToolStarted)] == []


def exited(heard: list[bytes]) -> bytes:
    return wire.notification(EXITED, {"heard": len(b"".join(heard))})


@pytest.mark.contract("C07")
def test_c07_a_cancellation_that_nobody_asked_for_behind_the_agents_death_is_its_loss() -> None:
    before = [said("half")]
    word = done("a", "cancelled")
    (lost,) = [f for f in read([prompt("a", "x"), exited(before)], [*before, word]) if isinstance(f, TurnClosed)]
    assert (lost.status, lost.error.kind if lost.error else "") == ("lost", "provider_exited")
    assert lost.error is not None
    assert lost.error.native_kind == "cancelled"
    cancel = wire.notification(wire.CANCEL, {"sessionId": "s"})
    for sent, heard in (
        ([prompt("a", "x"), exited([*before, word])], [*before, word]),  # said before it died
        ([prompt("a", "x"), cancel, exited(before)], [*before, word]),  # asked for
        ([prompt("a", "x")], [*before, word]),  # it lives
    ):
        assert closed(read(sent, heard)) == [("a", "cancelled", None)]
    finished = read([prompt("a", "x"), exited(before)], [*before, done("a")])
    assert closed(finished) == [("a", "completed", "half")]


@pytest.mark.contract("C07")
def test_c07_a_cancellation_that_nobody_asked_for_behind_the_hosts_death_is_its_loss() -> None:
    alone, cancel = wire.notification(ORPHANED, {}), wire.notification(wire.CANCEL, {"sessionId": "s"})
    word = done("a", "cancelled")
    (lost,) = [f for f in read([prompt("a", "x"), alone], [said("half"), word]) if isinstance(f, TurnClosed)]
    assert (lost.status, lost.error.kind if lost.error else "") == ("lost", "provider_exited")
    assert closed(read([prompt("a", "x"), cancel, alone], [said("half"), word])) == [("a", "cancelled", None)]
    assert closed(read([prompt("a", "x"), alone], [said("half"), done("a")])) == [("a", "completed", "half")]
