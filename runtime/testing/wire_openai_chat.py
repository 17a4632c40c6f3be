"""OpenAI chat completions on the wire: request bytes in, frames out. No sockets, no clock.

Format facts: ``POST /v1/chat/completions`` as Pi 1.6.0, Qwen Code 0.24.4 and opencode 1.18.33 send it and accept its
answers (tests/live/test_rehearsal_of_clis.py). A stream without ``finish_reason`` is an error to Pi, which retries.
Error bodies and the limit headers are those that OpenAI documents for its API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lastword.runtime.testing.script import Step, StepError, TextBlock, ThinkingBlock, ToolBlock
from lastword.runtime.testing.wire import (
    CONTEXT_OVERFLOW,
    LIMIT_REQUESTS,
    Frame,
    ModelRequest,
    Refusal,
    fields_of,
    person_text,
    text_parts,
    tool_call,
)

_HOST_TEXT = re.compile(r"^This is the Qwen Code\b|^<(environment|session)_context>|^Got it\. Thanks for the context")
_FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
_TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 403: "permission_error", 429: "requests"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_KEEPER = re.compile(r"You are now acting as the managed memory \w+ subagent")  # Qwen Code, after a turn
_TITLE = re.compile(r"title generator|generate a (short |brief |concise )*title", re.IGNORECASE)


def parse(headers: Mapping[str, str], body: dict[str, Any], path: str) -> ModelRequest:  # noqa: ARG001 - the format's shape
    """Read a request."""
    messages = [message for message in body.get("messages") or [] if isinstance(message, dict)]
    prompt, answered = "", 0
    for message in reversed(messages):
        if message.get("role") == "assistant":
            answered += 1
        elif message.get("role") == "user":
            prompt = person_text(text_parts(message.get("content"), ("text",)), _HOST_TEXT)
            if prompt:
                break
    functions = [tool.get("function") or {} for tool in body.get("tools") or [] if isinstance(tool, dict)]
    hidden, answer = _hidden(messages, body, offers_tools=bool(functions))
    return ModelRequest(
        prompt=prompt,
        answered=answered,
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        session=headers.get("x-session-id", ""),
        messages=len(messages),
        max_tokens=int(body.get("max_tokens") or body.get("max_completion_tokens") or 0),
        tool_names=tuple(str(function.get("name", "")) for function in functions),
        tool_fields={str(each.get("name", "")): fields_of(each.get("parameters")) for each in functions},
        hidden=hidden,
        hidden_answer=answer,
    )


def _hidden(messages: list[dict[str, Any]], body: dict[str, Any], *, offers_tools: bool) -> tuple[str, str]:
    """A title (opencode), memory, a suggestion or a classifier (Qwen Code): each says in its text what it is."""
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") in {"json_schema", "json_object"}:
        return "classifier", "{}"
    told = " ".join(
        text
        for message in messages
        if message.get("role") in {"system", "developer"}
        for text in text_parts(message.get("content"), ("text",))
    )
    if not offers_tools and _TITLE.search(told):
        return "title", "Rehearsal"
    if _KEEPER.match(told):
        return "memory", "Nothing to keep."
    newest = text_parts(messages[-1].get("content"), ("text",)) if messages else []
    if newest and newest[-1].lstrip().startswith("[SUGGESTION MODE"):
        return "suggestion", ""
    return "", ""


def openai_error(error: StepError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, error object and headers, which both OpenAI formats share."""
    status, kind = error.status, error.word or _TYPES.get(error.status, "server_error")
    code, message = _CODES.get(status), error.message
    if error.word == CONTEXT_OVERFLOW:
        status, kind, code = 400, "invalid_request_error", "context_length_exceeded"
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    headers = {}
    if status == 429:
        wait_s = error.retry_after_s or 0.0
        headers = {
            "x-ratelimit-limit-requests": str(LIMIT_REQUESTS),
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": f"{wait_s:g}s",
        }
    if error.retry_after_s is not None:
        headers["retry-after"] = f"{error.retry_after_s:g}"
    return status, {"message": message, "type": kind, "param": None, "code": code}, headers


def refuse(request: ModelRequest, error: StepError, serial: int) -> Refusal:  # noqa: ARG001 - the format's shape
    """The failure of one request."""
    status, told, headers = openai_error(error)
    return Refusal(status=status, body=json.dumps({"error": told}).encode(), headers=headers)


def _call(request: ModelRequest, block: ToolBlock, serial: int, index: int) -> dict[str, Any]:
    name, arguments = tool_call(request, block)
    return {
        "id": block.id or f"call_scripted_{serial:06d}_{index}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def _finish(step: Step) -> str:
    return _FINISH.get(step.reason, step.reason)


_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _envelope(request: ModelRequest, serial: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-scripted{serial:06d}", "object": kind, "created": 1, "model": request.model}


def whole(request: ModelRequest, step: Step, serial: int) -> bytes:
    """The answer in one piece."""
    texts = [block.text for block in step.blocks if isinstance(block, TextBlock)]
    thoughts = [block.thinking for block in step.blocks if isinstance(block, ThinkingBlock)]
    calls = [block for block in step.blocks if isinstance(block, ToolBlock)]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = [_call(request, block, serial, index) for index, block in enumerate(calls)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(step)}
    return json.dumps({**_envelope(request, serial, "chat.completion"), "choices": [choice], "usage": _USAGE}).encode()


def stream(request: ModelRequest, step: Step, serial: int) -> Iterator[Frame]:
    """The answer as server-sent events."""
    base = _envelope(request, serial, "chat.completion.chunk")

    def chunk(
        delta: dict[str, Any], *, pause_s: float = 0.0, block_end: bool = False, finish: str | None = None
    ) -> Frame:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        data = f"data: {json.dumps({**base, 'choices': choices})}\n\n".encode()
        return Frame(data=data, pause_s=pause_s, block_end=block_end)

    yield chunk({"role": "assistant", "content": ""})
    hang_s, calls = step.hang_s, 0
    for number, block in enumerate(step.blocks):
        pause_s, hang_s, fresh = hang_s + block.pause_s, 0.0, number > 0
        if isinstance(block, ToolBlock):
            call = {"index": calls, **_call(request, block, serial, calls)}
            arguments = call["function"]["arguments"]
            call["function"] = {**call["function"], "arguments": ""}
            yield chunk({"tool_calls": [call]}, pause_s=pause_s, block_end=fresh)
            fresh, pause_s = False, 0.0
            pieces: list[dict[str, Any]] = [
                {"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}
                for piece in pieces_of(arguments, step)
            ]
            calls += 1
        elif isinstance(block, ThinkingBlock):
            pieces = [{"reasoning_content": piece} for piece in pieces_of(block.thinking, step)]
        else:
            pieces = [{"content": piece} for piece in pieces_of(block.text, step)]
        for at, piece in enumerate(pieces):
            yield chunk(piece, pause_s=step.chunk_pause_s if at else pause_s, block_end=fresh and at == 0)
    yield chunk({}, pause_s=hang_s + step.stop_pause_s, block_end=True, finish=_finish(step))
    yield Frame(data=f"data: {json.dumps({**base, 'choices': [], 'usage': _USAGE})}\n\n".encode())
    yield Frame(data=b"data: [DONE]\n\n")


def pieces_of(text: str, step: Step) -> list[str]:
    """``text`` in the pieces that the step streams; one empty piece for nothing."""
    return [text[at : at + step.chunk_chars] for at in range(0, len(text), step.chunk_chars)] or [""]
