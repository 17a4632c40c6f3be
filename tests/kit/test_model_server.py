"""The scripted model server, spoken to in raw HTTP."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lastword.runtime.testing import (
    ModelServer,
    Script,
    Step,
    StepError,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    echo,
)


def ask(server: ModelServer, *messages: Any, stream: bool = True, headers: dict[str, str] | None = None):
    turns = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    link = http.client.HTTPConnection("127.0.0.1", int(server.base_url.rpartition(":")[2]), timeout=10)
    body = json.dumps({"model": "m", "stream": stream, "messages": turns})
    link.request("POST", "/v1/messages?beta=true", body, headers or {})
    return link, link.getresponse()


def events(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in raw.decode().split("\n") if line.startswith("data: ")]


def text_of(raw: bytes) -> str:
    return "".join(e["delta"].get("text", "") for e in events(raw) if e["type"] == "content_block_delta")


def answer(server: ModelServer, *messages: Any) -> bytes:
    link, reply = ask(server, *messages)
    try:
        assert reply.status == 200
        return reply.read()
    finally:
        link.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def test_without_a_script_the_whole_prompt_comes_back(server: ModelServer) -> None:
    prompt = "grüße\n" + "x" * 1990
    assert text_of(answer(server, prompt)) == f"echo: {prompt}"
    assert text_of(answer(server, "y" * 2001)) == echo("y" * 2001)
    assert "[2001 characters]" in echo("y" * 2001)


def test_a_stream_has_the_events_of_the_wire_format_in_order(server: ModelServer) -> None:
    raw = answer(server, "[[think:hm]][[say:one]][[tool:Bash:echo hi]]")
    kinds = [e["type"] for e in events(raw)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    starts = [e["content_block"]["type"] for e in events(raw) if e["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use"]
    assert events(raw)[-2]["delta"]["stop_reason"] == "tool_use"


def test_without_streaming_the_answer_comes_in_one_piece(server: ModelServer) -> None:
    link, reply = ask(server, "[[say:a]][[stop:max_tokens]]", stream=False)
    body = json.loads(reply.read())
    link.close()
    assert body["content"] == [{"type": "text", "text": "a"}]
    assert body["stop_reason"] == "max_tokens"


def test_a_named_script_plays_one_step_for_each_request() -> None:
    steps = (
        Step(blocks=(ToolBlock(name="Bash", input={"command": "ls"}),)),
        Step(blocks=(TextBlock(text="done"),)),
    )
    with ModelServer(Script(scripts={"two": steps})) as server:
        first = answer(server, "[[script:two]]")
        call = next(e["content_block"] for e in events(first) if e["type"] == "content_block_start")
        history = [
            "[[script:two]]",
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "x"}]},
        ]
        assert text_of(answer(server, *history)) == "done"
        assert [(r.script, r.step) for r in server.requests] == [("two", 0), ("two", 1)]


def test_the_prompt_is_found_behind_reminders_and_interruptions(server: ModelServer) -> None:
    content = [
        {"type": "text", "text": "[Request interrupted by user]"},
        {"type": "text", "text": "<system-reminder>noise</system-reminder>"},
        {"type": "text", "text": "the real one"},
        {"type": "text", "text": "<system-reminder>more</system-reminder>"},
    ]
    assert text_of(answer(server, {"role": "user", "content": content})) == "echo: the real one"


@pytest.mark.parametrize("told", ["[Request interrupted by user]", "<local-command-stdout>x</local-command-stdout>"])
def test_what_the_cli_says_itself_is_no_prompt(server: ModelServer, told: str) -> None:
    content = [{"type": "text", "text": "asked"}, {"type": "text", "text": told}]
    assert text_of(answer(server, {"role": "user", "content": content})) == "echo: asked"


def test_a_message_absorbed_in_a_turn_does_not_change_its_script(server: ModelServer) -> None:
    absorbed = "<system-reminder>\nThe user sent a new message while you were working:\nmore\n</system-reminder>"
    history = [
        "[[tool:Bash:ls]][[say:end]]",
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": absorbed}],
        },
    ]
    assert text_of(answer(server, *history)) == "end"


def test_an_idle_connection_does_not_outlive_the_server() -> None:
    before = set(threading.enumerate())
    with ModelServer() as server:
        link, reply = ask(server, "x")
        reply.read()
        assert set(threading.enumerate()) != before
    assert set(threading.enumerate()) == before
    link.close()


def test_errors_come_the_given_number_of_times_and_then_the_answer(server: ModelServer) -> None:
    statuses = []
    for _ in range(3):
        link, reply = ask(server, "[[error:429:2:7]]hello")
        statuses.append((reply.status, reply.getheader("retry-after")))
        reply.read()
        link.close()
    assert statuses == [(429, "7"), (429, "7"), (200, None)]
    assert [r.outcome for r in server.requests] == ["error", "error", "answered"]


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_each_error_has_the_providers_word(server: ModelServer, status: int) -> None:
    link, reply = ask(server, f"[[error:{status}]]")
    assert reply.status == status
    assert json.loads(reply.read())["error"]["type"] == StepError(status=status).kind
    link.close()


def test_a_cut_breaks_the_stream_within_the_first_block(server: ModelServer) -> None:
    link, reply = ask(server, "[[cut]][[say:half]][[say:never]]")
    with pytest.raises(http.client.IncompleteRead) as broken:
        reply.read()
    link.close()
    assert text_of(broken.value.partial) == "half"
    assert b"content_block_stop" not in broken.value.partial
    assert server.requests[-1].outcome == "cut"


def test_delays_are_kept_and_a_stop_ends_a_hanging_answer_and_every_thread() -> None:
    before = set(threading.enumerate())
    server = ModelServer().start()
    started = time.monotonic()
    answer(server, "[[sleep:0.2]]x")
    assert time.monotonic() - started >= 0.2
    link, reply = ask(server, "[[hang:600]]x")
    started = time.monotonic()
    server.stop()
    server.stop()
    assert time.monotonic() - started < 3
    with pytest.raises(http.client.HTTPException):
        reply.read()
    link.close()
    assert set(threading.enumerate()) == before
    assert server.requests[-1].outcome == "stopped"


def test_probes_and_token_counts_are_answered(server: ModelServer) -> None:
    link = http.client.HTTPConnection("127.0.0.1", int(server.base_url.rpartition(":")[2]), timeout=10)
    for method, path, status in (("HEAD", "/", 200), ("GET", "/v1/models", 200), ("GET", "/x", 404)):
        link.request(method, path)
        reply = link.getresponse()
        reply.read()
        assert reply.status == status
    link.request("POST", "/v1/messages/count_tokens", "{}")
    assert json.loads(link.getresponse().read())["input_tokens"] >= 1
    link.request("POST", "/v1/messages", "not json")
    assert link.getresponse().status == 400
    link.close()


def test_a_callable_may_answer_and_sees_the_session() -> None:
    seen = []

    def respond(request):
        seen.append((request.session, request.prompt))
        return Step(blocks=(TextBlock(text="mine"),)) if request.prompt == "q" else None

    with ModelServer(respond=respond) as server:
        link, reply = ask(server, "q", headers={"X-Claude-Code-Session-Id": "S1"})
        assert text_of(reply.read()) == "mine"
        link.close()
        assert text_of(answer(server, "other")) == "echo: other"
    assert seen == [("S1", "q"), ("", "other")]
    assert server.requests[0].session == "S1"


def test_a_script_survives_its_json_form(tmp_path) -> None:
    blocks = (TextBlock(text="a"), ThinkingBlock(thinking="b"), ToolBlock(name="T", input={"k": 1}))
    script = Script(scripts={"s": (Step(blocks=blocks, error=StepError(status=500, times=1)),)})
    path = tmp_path / "script.json"
    path.write_bytes(script.to_json())
    assert Script.from_file(path) == script
    assert ModelServer.from_file(path).script == script


def test_a_scripted_error_brings_its_own_headers() -> None:
    error = StepError(status=429, headers={"anthropic-ratelimit-unified-status": "rejected"}, retry_after_s=7)
    with ModelServer(Script(scripts={"limit": (Step(error=error),)})) as limited:
        link, reply = ask(limited, "[[script:limit]]")
        with contextlib.closing(link):
            assert reply.status == 429
            assert reply.headers["anthropic-ratelimit-unified-status"] == "rejected"
            assert reply.headers["retry-after"] == "7"
