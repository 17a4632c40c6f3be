"""Gemini's generateContent on the wire: request bytes in, frames out. No sockets, no clock.

Format facts: ``POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`` and ``:generateContent`` as Gemini CLI 0.61.0
sends them and accepts their answers (tests/live/test_rehearsal_of_clis.py). A rate limit tells its delay in the body
(``google.rpc.RetryInfo``), not in a header. Its classifiers ask for JSON by a response schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lastword.runtime.testing.script import Block, Step, StepError, TextBlock, ThinkingBlock
from lastword.runtime.testing.wire import (
    CONTEXT_OVERFLOW,
    LIMIT_REQUESTS,
    Frame,
    ModelRequest,
    Refusal,
    fields_of,
    person_text,
    tool_call,
)
from lastword.runtime.testing.wire_openai_chat import pieces_of

_ROUTE = re.compile(r"/models/([^/:?]+):(stream)?[gG]enerateContent")
_HOST_TEXT = re.compile(r"^<(session_context|environment_context|hook_context)>|^This is the Gemini CLI\b")
_FINISH = {"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_CLASSIFIED = {
    "reasoning": "rehearsal",
    "next_speaker": "user",
    "model_choice": "flash",
    "complexity_reasoning": "rehearsal",
    "complexity_score": 1,
}


def parse(headers: Mapping[str, str], body: dict[str, Any], path: str) -> ModelRequest:  # noqa: ARG001 - the format's shape
    """Read a request; model and streaming stand in the path."""
    contents = [content for content in body.get("contents") or [] if isinstance(content, dict)]
    prompt, answered = "", 0
    for content in reversed(contents):
        parts = [part for part in content.get("parts") or [] if isinstance(part, dict)]
        if content.get("role") == "model":
            answered += 1
        elif not any("functionResponse" in part for part in parts):
            prompt = person_text([str(part.get("text") or "") for part in parts], _HOST_TEXT)
            if prompt:
                break
    tools = [
        function
        for tool in body.get("tools") or []
        if isinstance(tool, dict)
        for function in tool.get("functionDeclarations") or []
    ]
    config = body.get("generationConfig")
    config = config if isinstance(config, dict) else {}
    classifier = "responseSchema" in config or "responseJsonSchema" in config
    route = _ROUTE.search(path)
    return ModelRequest(
        prompt=prompt,
        answered=answered,
        model=route[1] if route else "",
        stream=bool(route and route[2]),
        messages=len(contents),
        max_tokens=int(config.get("maxOutputTokens") or 0),
        tool_names=tuple(str(function.get("name", "")) for function in tools),
        tool_fields={
            str(each.get("name", "")): fields_of(each.get("parametersJsonSchema") or each.get("parameters"))
            for each in tools
        },
        hidden="classifier" if classifier else "",
        hidden_answer=json.dumps(_CLASSIFIED) if classifier else "",
    )


def refuse(request: ModelRequest, error: StepError, serial: int) -> Refusal:  # noqa: ARG001 - the format's shape
    """The failure of one request."""
    status, message, details = error.status, error.message, []
    if error.word == CONTEXT_OVERFLOW:
        status = 400
        message = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
    if status == 429:
        quota = {"quotaMetric": "rehearsal", "quotaId": "RequestsPerMinute", "quotaValue": str(LIMIT_REQUESTS)}
        details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [quota]})
        if error.retry_after_s is not None:
            delay = f"{error.retry_after_s:g}s"
            details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    word = _STATUS.get(status, "INTERNAL")
    told: dict[str, Any] = {"code": status, "message": message, "status": word}
    if details:
        told["details"] = details
    return Refusal(status=status, body=json.dumps({"error": told}).encode())


def _part(request: ModelRequest, block: Block) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"text": text}
        case ThinkingBlock(thinking=thinking):
            return {"text": thinking, "thought": True}
        case _:
            name, arguments = tool_call(request, block)
            return {"functionCall": {"name": name, "args": arguments}}


def _answer(request: ModelRequest, parts: list[dict[str, Any]], serial: int, finish: str = "") -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return json.dumps(
        {
            "candidates": [candidate],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
            "modelVersion": request.model,
            "responseId": f"scripted{serial:06d}",
        }
    ).encode()


def whole(request: ModelRequest, step: Step, serial: int) -> bytes:
    """The answer in one piece."""
    parts = [_part(request, block) for block in step.blocks]
    return _answer(request, parts, serial, _FINISH.get(step.reason, step.reason.upper()))


def stream(request: ModelRequest, step: Step, serial: int) -> Iterator[Frame]:
    """The answer as server-sent events; a text in pieces, a call in one."""
    hang_s = step.hang_s
    for number, block in enumerate(step.blocks):
        part = _part(request, block)
        parts = [part]
        if "text" in part:
            parts = [{**part, "text": piece} for piece in pieces_of(part["text"], step)]
        for at, piece in enumerate(parts):
            pause_s = step.chunk_pause_s if at else hang_s + block.pause_s
            data = _answer(request, [piece], serial)
            yield Frame(data=b"data: " + data + b"\n\n", pause_s=pause_s, block_end=number > 0 and at == 0)
        hang_s = 0.0
    end = _answer(request, [{"text": ""}], serial, _FINISH.get(step.reason, step.reason.upper()))
    yield Frame(data=b"data: " + end + b"\n\n", pause_s=hang_s + step.stop_pause_s, block_end=True)
