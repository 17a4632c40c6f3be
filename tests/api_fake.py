"""A model's service that says odd things, and refuses what its vendor's documents say it refuses.

The scripted model server says what a model says; this one writes any piece, also such as no model should. A request is
judged first: one that breaks a rule is answered with HTTP 400, as the vendor answers it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from structured_kit import WAIT_S

_PLAIN = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_KEYS = {"type", "text", "id", "name", "input", "tool_use_id", "content", "is_error", "thinking", "signature"}


class Text(NamedTuple):
    text: str


class Use(NamedTuple):
    """A call; ``arguments`` go out as they are."""

    id: str
    name: str
    arguments: str


class Stop(NamedTuple):
    word: str


class Raw(NamedTuple):
    """An event as it is."""

    event: dict[str, Any]


class Whole(NamedTuple):
    """A response in place of a stream."""

    status: int
    content_type: str
    body: str
    headers: tuple[tuple[str, str], ...] = ()


Act = Text | Use | Stop | Raw | Whole
Body = dict[str, Any]


def prompt_of(body: Body) -> str:
    """The last text of the host's; "" where the last word is a tool's."""
    last = (body.get("messages") or body.get("input"))[-1]
    if last.get("role") != "user":
        return ""
    content = last["content"]
    if isinstance(content, str):
        return content
    return "" if content[0]["type"] == "tool_result" else str(content[-1]["text"])


# --- what the vendors refuse ------------------------------------------------------------------------------------------


def broken_rules(path: str, body: Body) -> list[str]:
    """What of a request its vendor refuses, by its documents."""
    if "chat" in path:
        return list(_chat_rules(body["messages"]))
    return list(_anthropic_rules(body["messages"]) if "messages" in path else _responses_rules(body["input"]))


def _anthropic_rules(messages: list[Any]) -> Iterator[str]:
    owed: list[str] = []
    used: set[str] = set()
    for message in messages:
        blocks = message["content"]
        if not blocks:
            yield "content must be non-empty"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(owed):
            yield f"tool_use ids {owed} without tool_result, or tool_result {results} without tool_use"
        owed = []
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                yield "text content blocks must contain non-whitespace text"
            if extra := set(block) - _KEYS:
                yield f"{extra}: Extra inputs are not permitted"
            if block["type"] == "tool_use":
                if not isinstance(block["input"], dict):
                    yield "tool_use.input: Input should be a valid dictionary"
                if not _PLAIN.fullmatch(block["name"]) or not _PLAIN.fullmatch(block["id"]):
                    yield "tool_use: String should match pattern"
                if block["id"] in used:
                    yield "tool_use ids must be unique"
                used.add(block["id"])
                owed.append(block["id"])
    if owed:
        yield f"tool_use ids {owed} without tool_result"


def _chat_rules(messages: list[Any]) -> Iterator[str]:
    owed: list[str] = []
    for message in messages:
        if message["role"] not in ("system", "user", "assistant", "tool"):
            yield f"unknown role {message['role']}"
        if message["role"] == "tool":
            if message["tool_call_id"] not in owed:
                yield "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            else:
                owed.remove(message["tool_call_id"])
            continue
        if owed:
            yield f"tool_call_ids {owed} did not have response messages"
        calls = message.get("tool_calls") or []
        if message["role"] == "assistant" and not (message.get("content") or "").strip() and not calls:
            yield "content is blank and there are no tool_calls"
        owed = [call["id"] for call in calls]
        if len(set(owed)) != len(owed):
            yield "ids of tool_calls must be unique"
        yield from _function_rules([call["function"] for call in calls])


def _responses_rules(items: list[Any]) -> Iterator[str]:
    if strange := {item["role"] for item in items if "role" in item} - {"user", "assistant"}:
        yield f"unknown roles {strange}"
    calls = [item for item in items if item.get("type") == "function_call"]
    ids = [call["call_id"] for call in calls]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    if sorted(ids) != sorted(results):
        yield f"no tool output found for function calls {ids}: {results}"
    if len(set(ids)) != len(ids):
        yield "call ids must be unique"
    yield from _function_rules(calls)


def _function_rules(functions: list[Any]) -> Iterator[str]:
    for function in functions:
        if not _PLAIN.fullmatch(function["name"]):
            yield "function.name: string does not match pattern"
        try:
            if not isinstance(json.loads(function["arguments"]), dict):
                yield "arguments are no object"  # chat templates of open servers need one
        except ValueError:
            yield "arguments are no JSON"


# --- what it says ---------------------------------------------------------------------------------------------------


def anthropic_events(acts: list[Act], number: int) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    stop = "end_turn"
    for index, act in enumerate(acts):
        match act:
            case Text(text=text):
                block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
            case Use():
                block = {"type": "tool_use", "id": act.id, "name": act.name, "input": {}}
                delta, stop = {"type": "input_json_delta", "partial_json": act.arguments}, "tool_use"
            case Stop(word=word):
                stop = word
                continue
            case Raw(event=event):
                yield event
                continue
            case _:
                raise AssertionError(act)
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}}
    yield {"type": "message_stop"}


def responses_events(acts: list[Act], number: int) -> Iterator[dict[str, Any]]:
    response: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m"}
    yield {"type": "response.created", "sequence_number": 0, "response": {**response, "status": "in_progress"}}
    output: list[Any] = []
    why = None
    for index, act in enumerate(acts):
        match act:
            case Text(text=text):
                part = {"type": "output_text", "text": text, "annotations": []}
                output.append(
                    {"type": "message", "id": f"msg_{number}_{index}", "role": "assistant", "content": [part]}
                )
                place = {"item_id": output[-1]["id"], "output_index": index, "content_index": 0, "logprobs": []}
                yield {"type": "response.output_text.delta", "sequence_number": index, "delta": text, **place}
            case Use():
                call = {"call_id": act.id, "name": act.name, "arguments": act.arguments}
                output.append({"type": "function_call", "id": f"fc_{number}_{index}", **call})
            case Stop(word=word):
                why = {"reason": word}
            case Raw(event=event):
                yield event
            case _:
                raise AssertionError(act)
    status = "completed" if why is None else "incomplete"
    whole = {**response, "status": status, "output": output, "incomplete_details": why}
    yield {"type": f"response.{status}", "sequence_number": 99, "response": whole}


def chat_chunk(delta: dict[str, Any], finish: str | None = None, number: int = 0) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    kind = "chat.completion.chunk"
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": "m", "choices": [choice]}


def chat_events(acts: list[Act], number: int) -> Iterator[dict[str, Any]]:
    finish, calls = "stop", 0
    for act in acts:
        match act:
            case Text(text=text):
                yield chat_chunk({"content": text}, number=number)
            case Use():
                function = {"name": act.name, "arguments": act.arguments}
                call = {"index": calls, "id": act.id, "type": "function", "function": function}
                yield chat_chunk({"tool_calls": [call]}, number=number)
                finish, calls = "tool_calls", calls + 1
            case Stop(word=word):
                finish = word
            case Raw(event=event):
                yield event
            case _:
                raise AssertionError(act)
    yield chat_chunk({}, finish, number)


class FakeService:
    """Listens while it is open; ``answers`` says what is answered to a request. Each host's provider by its path."""

    def __init__(self, answers: Callable[[Body], list[Act]]) -> None:
        fake = self
        self.asked: list[Body] = []
        self.refused: list[str] = []
        self._lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                broken = broken_rules(self.path, body)
                with fake._lock:
                    fake.asked.append(body)
                    fake.refused += broken
                    number = len(fake.asked)
                if broken:
                    error = {"type": "invalid_request_error", "message": broken[0]}
                    acts: list[Act] = [Whole(400, "application/json", json.dumps({"type": "error", "error": error}))]
                else:
                    acts = answers(body)
                if acts and isinstance(acts[0], Whole):
                    self.say(acts[0])
                    return
                stream = chat_events if "chat" in self.path else None
                stream = stream or (anthropic_events if "messages" in self.path else responses_events)
                text = "".join(
                    f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n"
                    for event in stream(acts, number)
                )
                self.say(Whole(200, "text/event-stream", text))

            def say(self, whole: Whole) -> None:
                data = whole.body.encode()
                self.send_response(whole.status)
                for name, value in whole.headers:
                    self.send_header(name, value)
                self.send_header("content-type", whole.content_type)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(WAIT_S)
        self._server.server_close()
