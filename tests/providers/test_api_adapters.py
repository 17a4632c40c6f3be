"""Requests and answers of model APIs, and what their errors mean; the record read in any chunking."""

from __future__ import annotations

import msgspec
import pytest

from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.conversation import Answered, Call, Ended, Joined, Prompted, Retried, ToolEnded, encode
from lastword.actors.core.facts import TurnClosed, UnknownRecord
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.service import Failure
from lastword.actors.core.tools import Tool
from lastword.transports.providers.anthropic import AnthropicAdapter
from lastword.transports.providers.api_adapter import resets_at, turn_error
from lastword.transports.providers.api_oracle import ApiOracle
from lastword.transports.providers.openai import OpenAiAdapter
from lastword.transports.providers.openai_chat import OpenAiChatAdapter

TOOL = Tool(name="t", description="d", call=print, parameters={"type": "object", "properties": {}})


def asked(model="m", *args):
    return LaunchRequest(native_session="c", cwd="/", executable=(), env={}, model=model, extra_args=args)


def lines(content: bytes):
    call = Call(id="id1", name="t", arguments='{"a": 1}', key="k1")
    said = Answered(turn="a", response="r", content=msgspec.Raw(content), text="look", at=2.0, calls=(call,))
    return [
        Prompted(turn="a", message="a", text="first", at=1.0),
        said,
        ToolEnded(turn="a", call="k1", name="t", status="error", result="no", at=3.0),
        Joined(turn="a", message="b", text="and that", at=3.5),
        Ended(turn="a", status="cancelled", at=4.0),
        Prompted(turn="c", message="c", text="last", at=5.0),
    ]


def test_anthropic_is_told_turns_that_alternate_with_results_first():
    thought = b'[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"tool_use","id":"id1","name":"t","input":{"a":1}}]'
    body = AnthropicAdapter().body(asked("m", "--system", "S", "--max-tokens", "7"), lines(thought), [TOOL])
    assert (body["model"], body["max_tokens"], body["system"]) == ("m", 7, "S")
    assert body["tools"] == [{"name": "t", "description": "d", "input_schema": TOOL.parameters}]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert body["messages"][1]["content"] == msgspec.json.decode(thought)
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "id1", "content": "no", "is_error": True},
        {"type": "text", "text": "and that"},
    ]
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "last"}]


def test_openai_is_told_items_and_keeps_nothing_at_the_vendor():
    call = b'[{"type":"function_call","call_id":"id1","name":"t","arguments":"{}"}]'
    body = OpenAiAdapter().body(asked("gpt-6", "--system", "S", "--max-tokens", "7"), lines(call), [TOOL])
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["instructions"], body["max_output_tokens"]) == ("S", 7)
    assert body["input"][2:] == [
        {"type": "function_call_output", "call_id": "id1", "output": "Error: no"},
        {"role": "user", "content": "and that"},
        {"role": "assistant", "content": "[This turn was not answered: cancelled.]"},
        {"role": "user", "content": "last"},
    ]
    assert "include" not in OpenAiAdapter().body(asked("gpt-4.1"), [], [])


def test_chat_completions_are_told_messages_with_each_result_behind_its_call():
    call = {"id": "id1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    said = msgspec.json.encode([{"role": "assistant", "content": None, "tool_calls": [call]}])
    body = OpenAiChatAdapter().body(asked("m", "--system", "S", "--max-tokens", "7"), lines(said), [TOOL])
    assert [message["role"] for message in body["messages"]] == [
        *("system", "user", "assistant", "tool", "user", "assistant", "user"),
    ]
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "id1", "content": "Error: no"}
    assert body["tools"][0]["function"]["name"] == "t"
    answer = {
        "id": "c1",
        "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        "finish_reason": "stop",
    }
    reply = OpenAiChatAdapter().reply(msgspec.json.encode(answer))
    assert reply.calls == (Call(id="id1", name="t", arguments="{}"),)
    assert msgspec.json.decode(reply.content) == [answer["message"]]


def test_an_answer_of_anthropic_is_kept_whole_with_its_thinking():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "one "},
        {"type": "text", "text": "two"},
        {"type": "tool_use", "id": "id1", "name": "t", "input": {"a": [1]}},
    ]
    message = {"id": "m1", "content": content, "stop_reason": "tool_use", "model": "x", "usage": {"input_tokens": 3}}
    reply = AnthropicAdapter().reply(msgspec.json.encode(message))
    assert (reply.text, reply.error, reply.goes_on, reply.input_tokens) == ("one two", None, False, 3)
    assert reply.calls == (Call(id="id1", name="t", arguments='{"a":[1]}'),)
    assert msgspec.json.decode(reply.content) == content
    assert AnthropicAdapter().reply(msgspec.json.encode({**message, "stop_reason": "pause_turn"})).goes_on
    full = AnthropicAdapter().reply(msgspec.json.encode({**message, "stop_reason": "model_context_window_exceeded"}))
    assert full.error is not None
    assert full.error.kind == "context_overflow"


def test_an_answer_of_openai_keeps_the_reasoning_that_can_be_told_again():
    output = [
        {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "abc"},
        {"type": "reasoning", "id": "rs2", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "id1", "name": "t", "arguments": "{}"},
    ]
    response = {"id": "r1", "output": output, "status": "completed", "usage": {"input_tokens": 3, "output_tokens": 4}}
    reply = OpenAiAdapter().reply(msgspec.json.encode(response))
    assert (reply.text, reply.error, reply.output_tokens) == ("hi", None, 4)
    assert [item.get("id") for item in msgspec.json.decode(reply.content)] == ["rs1", None, None]
    refusal = [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]
    refused = OpenAiAdapter().reply(msgspec.json.encode({**response, "output": refusal}))
    assert refused.error is not None
    assert refused.error.kind == "refused"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        ({"status": 401, "word": "invalid_request_error", "code": "invalid_api_key"}, "authentication"),
        ({"status": 429, "code": "insufficient_quota"}, "rate_limited"),
        ({"status": 400, "word": "invalid_request_error", "code": "context_length_exceeded"}, "context_overflow"),
        (
            {"status": 400, "word": "invalid_request_error", "message": "prompt is too long: 3 > 2 maximum"},
            "context_overflow",
        ),
        ({"word": "overloaded_error"}, "overloaded"),
        ({"status": 503, "code": "slow_down"}, "overloaded"),
        ({"status": 529}, "overloaded"),
        ({"code": "context_length_exceeded"}, "context_overflow"),
        ({"status": 500, "word": "api_error"}, "provider_error"),
        ({"kind": "connection"}, "provider_error"),
    ],
)
def test_c03_what_a_failure_means(failure, kind):
    given = {"kind": "status", "message": "m", "at": 1.0, **failure}
    assert turn_error(Failure(**given)).kind == kind


@pytest.mark.parametrize(
    ("headers", "resets"),
    [
        ({"retry-after": "12.5"}, 112.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 100.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:05:00 GMT"}, 300.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 100.0),
        ({"retry-after": "-7"}, 100.0),
        ({"retry-after": "inf"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1970-01-01T00:00:30Z"}, 100.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m1.5s"}, 461.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 100.12),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "1h"}, None),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "1970-01-01T00:10:00Z",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "1970-01-01T00:05:00Z",
            },
            600.0,
        ),
        ({"retry-after": "soon", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "later"}, None),
    ],
)
def test_c03_when_a_limit_ends(headers, resets):
    failure = Failure(kind="status", message="m", at=100.0, status=429, headers=headers)
    assert resets_at(failure) == (pytest.approx(resets) if resets is not None else None)
    assert turn_error(failure).resets_at == resets_at(failure)


def test_the_record_says_the_same_in_any_chunking_and_garbage_is_counted():
    record = b"\n".join(
        [
            *map(encode, lines(b"[]")),
            encode(Retried(turn="c", message="try 2", at=5.5)),
            b'{"type":"newer","turn":"c"}',
            b"\xff\xfe not a line",
            encode(Ended(turn="c", status="failed", at=6.0, error=TurnError(kind="refused"))),
            b"",
        ]
    )
    whole = ApiOracle().feed("s", record)
    assert [fact.native_turn for fact in whole if isinstance(fact, TurnClosed)] == ["a", "c"]
    assert sum(isinstance(fact, UnknownRecord) for fact in whole) == 2
    for size in (1, 7, 64):
        oracle = ApiOracle()
        pieces = [record[at : at + size] for at in range(0, len(record), size)]
        assert [fact for piece in pieces for fact in oracle.feed("s", piece)] == whole
        assert oracle.quiescent
