"""What a model should not say, said: nothing runs that it did not ask for, and the conversation goes on.

The service is one that refuses what its vendor refuses (``api_fake``): a conversation that is told wrongly is seen.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import msgspec
import pytest

from api_fake import Act, Body, FakeService, Raw, Stop, Text, Use, Whole, chat_chunk, prompt_of
from api_kit import ApiHost
from lastword import Tool, ToolCall, events
from lastword.actors.core.agent import PAUSES_MAX
from lastword.actors.core.conversation import Call
from lastword.actors.core.service import Reply
from lastword.transports.providers import ADAPTERS
from structured_kit import WAIT_S, of_type

PROVIDERS = ["anthropic", "openai", "openai-chat"]
every = pytest.mark.parametrize("provider", PROVIDERS)


@contextmanager
def speaking(
    provider: str, answers: Callable[[Body], list[Act]], *tools: Tool
) -> Iterator[tuple[ApiHost, FakeService]]:
    """A host whose model says that."""
    with FakeService(answers) as service, ApiHost(provider, tools=list(tools)) as host:
        host.close()
        name, suffix = ("ANTHROPIC_BASE_URL", "") if provider == "anthropic" else ("OPENAI_BASE_URL", "/v1")
        host.env[name] = service.url + suffix
        host.open()
        yield host, service
        host.close()
        host.open()


class Log:
    """A tool that keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, object]] = []
        self.tool = Tool(name="remove", description="d", call=self.call)

    def call(self, call: ToolCall) -> str:
        self.calls.append(dict(call.arguments))
        return f"removed {call.arguments}"


CUT = '{"recursive": true, "path": "/tmp/only/this'


NO_OBJECTS = [CUT, '{"a":1}{"b":2}', "{a:1}", "[1]", '"text"', "null", "[" * 5000]


@every
@pytest.mark.contract("C32")
def test_c32_no_tool_runs_with_arguments_that_are_no_json_object(provider: str) -> None:
    def answers(body: Body) -> list[Act]:
        prompt = prompt_of(body)
        return [Use("c1", "remove", NO_OBJECTS[int(prompt)])] if prompt.isdecimal() else [Text("fine")]

    log = Log()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with speaking(provider, answers, log.tool) as (host, service):
            session = host.session()
            for number, written in enumerate(NO_OBJECTS):
                done = session.run(str(number), deadline_s=WAIT_S)
                assert (done.status, done.answer) == ("completed", "fine"), written
                assert log.calls == [], written
                ended = of_type(session, events.ToolFinished)[number].body
                assert ended.status == "error"
                assert ended.result.startswith(f"The arguments are no JSON object: {written[:100]}")
                assert of_type(session, events.ToolStarted)[number].body.arguments.startswith(written[:100])
            assert session.run("after", deadline_s=WAIT_S).status == "completed"
            assert service.refused == []


ODD: dict[str, list[Act]] = {
    "a blank text": [Text("")],
    "white space": [Text(" \n")],
    "white space before a tool": [Text("\n\n"), Use("c1", "remove", "{}")],
    "arguments that are a list": [Use("c1", "remove", "[1]")],
    "arguments that are cut": [Use("c1", "remove", CUT)],
    "a name with other characters": [Use("c1", "re.move it", "{}")],
    "a name that is too long": [Use("c1", "r" * 200, "{}")],
    "no name": [Use("c1", "", "{}")],
    "an id with other characters": [Use("functions.remove:0", "remove", "{}")],
    "no id": [Use("", "remove", '{"a":1}'), Use("", "remove", '{"a":2}')],
    "an id twice": [Use("same", "remove", '{"a":1}'), Use("same", "remove", '{"a":2}')],
    "a text that is cut off": [Text("\n"), Stop("odd_word")],
}


@every
@pytest.mark.contract("C16")
@pytest.mark.contract("C32")
def test_c16_no_odd_answer_makes_a_later_request_one_that_the_service_refuses(provider: str) -> None:
    def answers(body: Body) -> list[Act]:
        return ODD.get(prompt_of(body), [Text("fine")])

    log = Log()
    refused: dict[str, list[str]] = {}
    with speaking(provider, answers, log.tool) as (host, service):
        for odd in ODD:
            session = host.session()
            log.calls.clear()
            wanted = "failed" if odd == "a text that is cut off" else "completed"
            for _ in range(2):  # the same ids once more
                assert session.run(odd, deadline_s=WAIT_S).status == wanted or service.refused, odd
            for _ in range(2):
                done = session.run("next", deadline_s=WAIT_S)
                assert done.answer == "fine" or service.refused, (odd, done.error)
            if odd in ("an id twice", "no id") and not service.refused:
                assert sorted(str(call["a"]) for call in log.calls) == ["1", "1", "2", "2"]
            refused[odd], service.refused = service.refused, []
    assert {odd: rules for odd, rules in refused.items() if rules} == {}


def kept_as_said(monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    """Answers go to the record as the service said them, with a role that is none: as before any of them was cleaned."""
    adapter = ADAPTERS[provider, "api"]
    reply = type(adapter).reply

    def as_before(self: Any, body: bytes) -> Reply:
        said = msgspec.json.decode(body)
        content: list[Any] = said["content"] if provider == "anthropic" else said.get("output") or [said["message"]]
        calls: list[Call] = []
        for item in content:
            if item.get("type") == "tool_use":
                written = item.pop("arguments", None) or "{}"
                item["input"] = msgspec.json.decode(written) if written.startswith("[1") else item["input"]
                calls.append(Call(id=item["id"], name=item["name"], arguments=written))
            elif item.get("type") == "function_call":
                calls.append(Call(id=item["call_id"], name=item["name"], arguments=item["arguments"]))
            elif provider != "anthropic":
                item["role"] = "model"
            for call in item.get("tool_calls") or ():
                function = call["function"]
                calls.append(Call(id=call["id"], name=function["name"], arguments=function["arguments"]))
        raw = msgspec.Raw(msgspec.json.encode(content))
        return msgspec.structs.replace(reply(self, body), content=raw, calls=tuple(calls))

    monkeypatch.setattr(type(adapter), "reply", as_before)


@every
@pytest.mark.contract("C16")
@pytest.mark.contract("C17")
def test_c17_an_odd_answer_that_was_recorded_as_it_was_said_is_told_in_a_form_that_is_taken(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(body: Body) -> list[Act]:
        return ODD.get(prompt_of(body), [Text("fine")])

    log = Log()
    refused: dict[str, list[str]] = {}
    with speaking(provider, answers, log.tool) as (host, service):
        with monkeypatch.context() as before:
            kept_as_said(before, provider)
            sessions = {odd: host.session().session_id for odd in ODD}
            for odd, session in sessions.items():
                host.again(session).run(odd, deadline_s=WAIT_S)
            host.close()
        service.refused.clear()
        host.open()
        for odd, session in sessions.items():
            done = host.again(session).run("next", deadline_s=WAIT_S)
            assert done.answer == "fine" or service.refused, (odd, done.error)
            refused[odd], service.refused = service.refused, []
    assert {odd: rules for odd, rules in refused.items() if rules} == {}


@every
@pytest.mark.contract("C03")
def test_c03_an_answer_that_ends_with_an_unknown_word_is_no_answer(provider: str) -> None:
    log = Log()

    def answers(body: Body) -> list[Act]:
        if prompt_of(body) == "call":
            return [Use("c1", "remove", "{}"), Stop("weird_new_reason")]
        return [Text("half an answ"), Stop("weird_new_reason")] if prompt_of(body) == "say" else [Text("fine")]

    with speaking(provider, answers, log.tool) as (host, service):
        session = host.session()
        for prompt in ("say", "call"):
            done = session.run(prompt, deadline_s=WAIT_S)
            assert (done.status, done.answer) == ("failed", None)
            assert done.error is not None
            assert (done.error.kind, done.error.native_kind) == ("provider_error", "weird_new_reason")
            assert "weird_new_reason" in done.error.message
        assert log.calls == []
        assert session.run("after", deadline_s=WAIT_S).answer == "fine"
        assert service.refused == []


@every
@pytest.mark.contract("C03")
@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/html", "<html>log in</html>"), ("application/json", '{"error": {"message": "soft"}}')],
)
def test_c03_a_page_in_place_of_an_answer_is_a_typed_error(provider: str, content_type: str, body: str) -> None:
    def answers(asked: Body) -> list[Act]:
        return [Whole(200, content_type, body)] if prompt_of(asked) == "page" else [Text("fine")]

    with speaking(provider, answers) as (host, _):
        session = host.session()
        done = session.run("page", deadline_s=WAIT_S)
        assert done.error is not None
        assert (done.status, done.error.kind, done.error.native_kind) == ("failed", "provider_error", "no_stream")
        assert content_type in done.error.message
        assert session.run("after", deadline_s=WAIT_S).answer == "fine"


@pytest.mark.contract("C03")
@pytest.mark.parametrize("provider", PROVIDERS[:2])
def test_c03_a_long_pause_that_the_service_wants_until_a_date_is_not_waited_for(provider: str) -> None:
    until = int(time.time()) + 7200
    headers = (("retry-after", formatdate(until, usegmt=True)),)

    def answers(_: Body) -> list[Act]:
        return [Whole(429, "application/json", '{"error": {"message": "later"}}', headers)]

    with speaking(provider, answers) as (host, service):
        done = host.session().run("hello", deadline_s=WAIT_S)
        assert done.error is not None
        assert (done.error.kind, done.error.resets_at) == ("rate_limited", pytest.approx(until, abs=2))
        assert len(service.asked) == 1


@pytest.mark.contract("C05")
def test_c05_an_answer_that_is_paused_for_ever_ends_after_so_many_requests() -> None:
    def answers(body: Body) -> list[Act]:
        return [Text("p"), Stop("pause_turn")] if prompt_of(body) != "after" else [Text("fine")]

    with speaking("anthropic", answers) as (host, service):
        session = host.session()
        done = session.run("pause", deadline_s=WAIT_S)
        assert (done.status, done.answer) == ("failed", None)
        assert done.error is not None
        assert (done.error.kind, done.error.native_kind) == ("provider_error", "pause_turn")
        assert len(service.asked) == PAUSES_MAX + 1
        assert session.run("after", deadline_s=WAIT_S).answer == "fine"


def pieces(*each: dict[str, Any]) -> Raw:
    return Raw(chat_chunk({"tool_calls": list(each)}))


def piece(arguments: str, name: str = "remove", **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"type": "function", "function": function, **fields}


TWO: dict[str, list[Act]] = {
    "as OpenAI does": [
        pieces(piece("", index=0, id="p"), piece("", index=1, id="q")),
        pieces(piece('{"a"', "", index=0), piece('{"a"', "", index=1)),
        pieces(piece(":1}", "", index=0), piece(":2}", "", index=1)),
    ],
    "no ids": [pieces(piece('{"a":1}', index=0), piece('{"a":2}', index=1))],
    "ids that are null": [pieces(piece('{"a":1}', index=0, id=None), piece('{"a":2}', index=1, id=""))],
    "no numbers": [pieces(piece('{"a":1}', id="p"), piece('{"a":2}', id="q"))],
    "no numbers, in turns": [
        pieces(piece('{"a"', id="p"), piece('{"a"', id="q")),
        pieces(piece(":1}", "", id="p"), piece(":2}", "", id="q")),
    ],
    "no numbers, ids once": [
        pieces(piece('{"a"', id="p")),
        pieces(piece(":1}", "")),
        pieces(piece('{"a"', id="q")),
        pieces(piece(":2}", "")),
    ],
    "no numbers and no ids": [pieces(piece('{"a":1}'), piece('{"a":2}'))],
    "one number for all": [pieces(piece('{"a":1}', index=0, id="p")), pieces(piece('{"a":2}', index=0, id="q"))],
    "one number for all and no ids": [pieces(piece('{"a":1}', index=0)), pieces(piece('{"a":2}', index=0))],
    "names and ids again": [
        pieces(piece('{"a"', index=0, id="p")),
        pieces(piece(":1}", index=0, id="p")),
        pieces(piece('{"a"', index=1, id="q")),
        pieces(piece(":2}", index=1, id="q")),
    ],
    "names again": [
        pieces(piece('{"a"', index=0), piece('{"a"', index=1)),
        pieces(piece(":1}", index=0), piece(":2}", index=1)),
    ],
    "a name in pieces": [
        pieces(piece("", "re", index=0, id="p"), piece('{"a":2}', index=1, id="q")),
        pieces(piece('{"a":1}', "move", index=0)),
    ],
}


@pytest.mark.contract("C32")
def test_c32_calls_are_told_apart_however_a_server_of_chat_completions_numbers_them() -> None:
    def answers(body: Body) -> list[Act]:
        prompt = prompt_of(body)
        return [*TWO[prompt], Stop("tool_calls")] if prompt in TWO else [Text("fine")]

    log = Log()
    with speaking("openai-chat", answers, log.tool) as (host, service):
        for way in TWO:
            log.calls.clear()
            done = host.session().run(way, deadline_s=WAIT_S)
            assert (done.status, done.answer) == ("completed", "fine"), way
            assert sorted(log.calls, key=str) == [{"a": 1}, {"a": 2}], way
        assert service.refused == []


@pytest.mark.contract("C16")
@pytest.mark.contract("C32")
def test_c16_thoughts_are_told_again_with_their_signature_and_a_call_that_comes_in_one_piece_is_heard() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "remove", "input": {"a": 1}}
    thought = [
        Raw({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        Raw({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        Raw({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}}),
        Raw({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        Raw({"type": "content_block_start", "index": 1, "content_block": call}),
        Stop("tool_use"),
    ]

    def answers(body: Body) -> list[Act]:
        return list(thought) if prompt_of(body) == "think" else [Text("fine")]

    log = Log()
    with speaking("anthropic", answers, log.tool) as (host, service):
        done = host.session().run("think", deadline_s=WAIT_S)
        assert (done.status, done.answer, log.calls) == ("completed", "fine", [{"a": 1}]), service.refused
        told = service.asked[-1]["messages"][1]["content"]
        assert told == [{"type": "thinking", "thinking": "hmm", "signature": "c2ln"}, call]
