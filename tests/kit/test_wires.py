"""The scripted model server in the four wire formats, spoken to in raw HTTP: the same script, the same promises."""

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from lastword.runtime.testing import CONTEXT_OVERFLOW, ModelServer, Script, Step, StepError, TextBlock

Json = dict[str, Any]
SHELL = {"type": "object", "properties": {"command": {}, "description": {}, "is_background": {}}}


class Format(NamedTuple):
    """How a client of one format asks and reads.

    ``turn`` makes the messages of one tool round (prompt, the call as it was read, its result).
    """

    path: Callable[[bool], str]
    ask: Callable[[list[Any], bool], Json]
    user: Callable[[str], Any]
    turn: Callable[[str, tuple[str, Json]], list[Any]]
    stream_text: Callable[[list[Json]], str]
    stream_call: Callable[[list[Json]], tuple[str, Json]]
    whole_text: Callable[[Json], str]
    finished: Callable[[list[Json]], str]
    shell: str
    argument: str = "command"


def _responses_items(events: list[Json]) -> list[Json]:
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def _chat_call(events: list[Json]) -> tuple[str, Json]:
    calls = [c for e in events for choice in e["choices"] for c in choice["delta"].get("tool_calls") or []]
    return calls[0]["function"]["name"], json.loads("".join(c["function"]["arguments"] for c in calls))


def _gemini_parts(events: list[Json]) -> list[Json]:
    return [part for event in events for part in event["candidates"][0]["content"]["parts"]]


FORMATS = {
    "openai_responses": Format(
        path=lambda stream: "/v1/responses",
        ask=lambda items, stream: {
            "model": "m",
            "stream": stream,
            "input": items,
            "tools": [{"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}}],
        },
        user=lambda text: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
        turn=lambda text, call: [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": call[0], "arguments": json.dumps(call[1]), "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ],
        stream_text=lambda events: "".join(
            event["delta"] for event in events if event["type"] == "response.output_text.delta"
        ),
        stream_call=lambda events: next(
            (item["name"], json.loads(item["arguments"]))
            for item in _responses_items(events)
            if item["type"] == "function_call"
        ),
        whole_text=lambda body: body["output"][0]["content"][0]["text"],
        finished=lambda events: (
            (events[-1]["response"].get("incomplete_details") or {}).get("reason") or events[-1]["response"]["status"]
        ),
        shell="exec_command",
        argument="cmd",
    ),
    "openai_chat": Format(
        path=lambda stream: "/v1/chat/completions",
        ask=lambda messages, stream: {
            "model": "m",
            "stream": stream,
            "messages": messages,
            "tools": [{"type": "function", "function": {"name": "run_shell_command", "parameters": SHELL}}],
        },
        user=lambda text: {"role": "user", "content": text},
        turn=lambda text, call: [
            {"role": "user", "content": [{"type": "text", "text": text}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": call[0]}}]},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ],
        stream_text=lambda events: "".join(
            choice["delta"].get("content") or "" for event in events for choice in event["choices"]
        ),
        stream_call=_chat_call,
        whole_text=lambda body: body["choices"][0]["message"]["content"],
        finished=lambda events: events[-2]["choices"][0]["finish_reason"],
        shell="run_shell_command",
    ),
    "gemini": Format(
        path=lambda stream: "/v1beta/models/m:" + ("streamGenerateContent?alt=sse" if stream else "generateContent"),
        ask=lambda contents, stream: {
            "contents": contents,
            "tools": [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": SHELL}]}],
        },
        user=lambda text: {"role": "user", "parts": [{"text": text}]},
        turn=lambda text, call: [
            {"role": "user", "parts": [{"text": text}]},
            {"role": "model", "parts": [{"functionCall": {"name": call[0], "args": call[1]}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": call[0], "response": {"output": "x"}}}]},
        ],
        stream_text=lambda events: "".join(part.get("text", "") for part in _gemini_parts(events)),
        stream_call=lambda events: next(
            (part["functionCall"]["name"], part["functionCall"]["args"])
            for part in _gemini_parts(events)
            if "functionCall" in part
        ),
        whole_text=lambda body: body["candidates"][0]["content"]["parts"][0]["text"],
        finished=lambda events: events[-1]["candidates"][0]["finishReason"],
        shell="run_shell_command",
    ),
}

END_MARKS = (b"response.completed", b"output_item.done", b'"finish_reason": "', b"[DONE]", b"finishReason")


@pytest.fixture(params=sorted(FORMATS))
def wire(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


class Reply(NamedTuple):
    """An answer and whether its stream broke."""

    status: int
    headers: dict[str, str]
    body: bytes
    broken: bool = False

    @property
    def events(self) -> list[Json]:
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def post(server: ModelServer, path: str, body: Json, headers: dict[str, str] | None = None) -> Reply:
    link = http.client.HTTPConnection("127.0.0.1", int(server.base_url.rpartition(":")[2]), timeout=10)
    try:
        link.request("POST", path, json.dumps(body), headers or {})
        reply = link.getresponse()
        told = {name.lower(): value for name, value in reply.getheaders()}
        try:
            return Reply(reply.status, told, reply.read())
        except http.client.IncompleteRead as broken:
            return Reply(reply.status, told, broken.partial, broken=True)
    finally:
        link.close()


def play(server: ModelServer, wire: Format, *messages: Any, stream: bool = True) -> Reply:
    turns = [wire.user(message) if isinstance(message, str) else message for message in messages]
    return post(server, wire.path(stream), wire.ask(turns, stream))


def test_the_whole_prompt_comes_back_in_pieces_or_in_one(server: ModelServer, wire: Format) -> None:
    prompt = "grüße\n" + "x" * 900
    assert wire.stream_text(play(server, wire, prompt).events) == f"echo: {prompt}"
    whole = play(server, wire, prompt, stream=False)
    assert wire.whole_text(json.loads(whole.body)) == f"echo: {prompt}"
    assert [record.stream for record in server.requests] == [True, False]
    assert [record.model for record in server.requests] == ["m", "m"]


def test_the_shell_is_called_by_the_name_and_the_fields_that_the_client_offers(
    server: ModelServer, wire: Format
) -> None:
    prompt = "[[think:hm]][[say:one]][[tool:Bash:echo hi]][[say:two]][[next]][[say:three]]"
    first = play(server, wire, prompt)
    name, arguments = wire.stream_call(first.events)
    assert name == wire.shell
    assert arguments[wire.argument] == "echo hi"
    assert set(arguments) <= {wire.argument, "description", "is_background"}
    second = play(server, wire, *wire.turn(prompt, (name, arguments)))
    assert wire.stream_text(second.events) == "two"
    assert [record.step for record in server.requests] == [0, 1]


def test_a_further_prompt_starts_a_script_of_its_own(server: ModelServer, wire: Format) -> None:
    history = wire.turn("[[tool:Bash:ls]][[say:old]]", (wire.shell, {}))
    assert wire.stream_text(play(server, wire, *history, "[[say:new]]").events) == "new"
    assert server.requests[-1].step == 0


def test_an_answer_that_ran_out_of_room_says_so(server: ModelServer, wire: Format) -> None:
    words = {wire.finished(play(server, wire, f"[[say:a]][[stop:{why}]]").events) for why in ("max_tokens", "end_turn")}
    assert words in ({"max_output_tokens", "completed"}, {"length", "stop"}, {"MAX_TOKENS", "STOP"})


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_an_error_comes_the_given_number_of_times(server: ModelServer, wire: Format, status: int) -> None:
    failed = play(server, wire, f"[[error:{status}:1:7]]hello")
    assert failed.status == status
    told = json.loads(failed.body)["error"]
    assert told["message"] == "scripted failure"
    if status == 429 and "code" in told and told["code"] == 429:
        assert told["status"] == "RESOURCE_EXHAUSTED"
        assert told["details"][-1]["retryDelay"] == "7s"
    elif status == 429:
        assert (failed.headers["retry-after"], failed.headers["x-ratelimit-remaining-requests"]) == ("7", "0")
        assert told["code"] == "rate_limit_exceeded"
    assert "hello" in wire.stream_text(play(server, wire, f"[[error:{status}:1:7]]hello").events)


def test_a_cut_breaks_the_stream_within_the_first_block(server: ModelServer, wire: Format) -> None:
    for script in ("[[cut]][[say:half]][[say:never]]", "[[cut]][[say:half]]"):
        cut = play(server, wire, script)
        assert cut.broken
        assert wire.stream_text(cut.events) == "half"
        assert server.requests[-1].outcome == "cut"
        assert not any(mark in cut.body for mark in END_MARKS)


def test_a_context_overflow_is_told_in_the_vendors_words(wire: Format) -> None:
    script = Script(scripts={"full": (Step(error=StepError(status=400, word=CONTEXT_OVERFLOW)),)})
    with ModelServer(script) as server:
        reply = play(server, wire, "[[script:full]]")
    if wire is FORMATS["openai_responses"]:
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.events[-1]["type"] == "response.failed"
        assert reply.events[-1]["response"]["error"]["code"] == "context_length_exceeded"
        return
    told = json.loads(reply.body)["error"]
    assert reply.status == 400
    if wire is FORMATS["gemini"]:
        assert (told["status"], "exceeds the maximum number of tokens" in told["message"]) == ("INVALID_ARGUMENT", True)
    else:
        assert told["code"] == "context_length_exceeded"


HIDDEN = {
    "codex title": (
        "/v1/responses",
        {"stream": True, "input": "[[error:500]]"},
        {"thread_source": "thread_title", "thread_id": "T"},
        "hidden:thread_title",
    ),
    "codex compaction": (
        "/v1/responses",
        {"stream": True, "input": "[[error:500]]"},
        {"request_kind": "compaction"},
        "hidden:compaction",
    ),
    "opencode title": (
        "/v1/chat/completions",
        {
            "stream": True,
            "messages": [
                {"role": "system", "content": "You are a title generator. You output ONLY a thread title."},
                {"role": "user", "content": "[[error:500]]"},
            ],
        },
        {},
        "hidden:title",
    ),
    "qwen memory": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "system", "content": "You are now acting as the managed memory extraction subagent for an AI"},
                {"role": "user", "content": "[[error:500]]"},
            ],
            "tools": [{"type": "function", "function": {"name": "read_file"}}],
        },
        {},
        "hidden:memory",
    ),
    "qwen suggestion": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "[[error:500]]"},
                {"role": "assistant", "content": "x"},
                {"role": "user", "content": "[SUGGESTION MODE: Suggest what the user might naturally type next]"},
            ],
            "tools": [{"type": "function", "function": {"name": "read_file"}}],
        },
        {},
        "hidden:suggestion",
    ),
    "gemini classifier": (
        "/v1beta/models/m:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "[[error:500]]"}]}],
            "generationConfig": {"responseJsonSchema": {"type": "object"}},
        },
        {},
        "hidden:classifier",
    ),
}


@pytest.mark.parametrize("case", sorted(HIDDEN))
def test_what_a_cli_asks_for_itself_plays_no_step_of_the_script(server: ModelServer, case: str) -> None:
    path, body, metadata, played = HIDDEN[case]
    reply = post(server, path, body, {"x-codex-turn-metadata": json.dumps(metadata)} if metadata else None)
    assert reply.status == 200
    assert server.requests[-1].script == played


def test_a_callable_may_answer_a_hidden_request_too() -> None:
    path, body, metadata, _ = HIDDEN["codex title"]
    mine = Step(blocks=(TextBlock(text="mine"),))
    with ModelServer(respond=lambda request: mine if request.hidden == "thread_title" else None) as server:
        reply = post(server, path, body, {"x-codex-turn-metadata": json.dumps(metadata)})
        assert FORMATS["openai_responses"].stream_text(reply.events) == "mine"
        assert server.requests[-1].session == "T"
