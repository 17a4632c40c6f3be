"""Anthropic Messages on the wire: request bytes in, frames out. No sockets, no clock.

Format facts were taken from what Claude Code 2.1.332 sends and accepts (docs/providers/claude_code.md).
The context overflow's words are those that Anthropic documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lastword.runtime.testing.script import Block, Step, StepError, TextBlock, ThinkingBlock, ToolBlock
from lastword.runtime.testing.wire import CONTEXT_OVERFLOW, LIMIT_REQUESTS, Frame, ModelRequest, Refusal

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_HOST_TEXT = re.compile(r"^<(local-command-|command-)|^\[Request interrupted by user")
_ABSORBED_MARK = "while you were working"


def _texts(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [str(block.get("text", "")) for block in content if block.get("type") == "text"]


def _has_tool_result(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def _prompt_of(message: dict[str, Any]) -> str:
    """The last text of a user message that a person wrote, or an empty string."""
    for raw in reversed(_texts(message)):
        text = _REMINDER.sub("", raw).strip()
        if text and not _HOST_TEXT.match(text) and _ABSORBED_MARK not in raw:
            return text
    return ""


def parse(headers: Mapping[str, str], body: dict[str, Any], path: str) -> ModelRequest:  # noqa: ARG001 - the format's shape
    """Read a request. Any JSON object is accepted; what is missing reads as empty.

    Args:
        headers: names in lower case.
        body: the decoded JSON object.
        path: unused; the body says it all.
    """
    messages = [message for message in body.get("messages") or [] if isinstance(message, dict)]
    prompt, answered = "", 0
    for message in reversed(messages):
        role = message.get("role")
        if role == "assistant":
            answered += 1
        elif role == "user" and not _has_tool_result(message):
            prompt = _prompt_of(message)
            if prompt:
                break
    return ModelRequest(
        prompt=prompt,
        answered=answered,
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        session=headers.get("x-claude-code-session-id", ""),
        messages=len(messages),
        max_tokens=int(body.get("max_tokens") or 0),
        tool_names=tuple(str(tool.get("name", "")) for tool in body.get("tools") or []),
    )


def refuse(request: ModelRequest, error: StepError, serial: int) -> Refusal:  # noqa: ARG001 - the format's shape
    """The failure of one request."""
    status, kind, message = error.status, error.kind, error.message
    if error.word == CONTEXT_OVERFLOW:
        status, kind, message = 400, "invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum"
    headers = {} if error.retry_after_s is None else {"retry-after": f"{error.retry_after_s:g}"}
    if status == 429:
        headers["anthropic-ratelimit-requests-limit"] = str(LIMIT_REQUESTS)
        headers["anthropic-ratelimit-requests-remaining"] = "0"
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return Refusal(status=status, body=body, headers=headers)


def _envelope(request: ModelRequest, serial: int) -> dict[str, Any]:
    return {
        "id": f"msg_scripted_{serial:06d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
    }


def _content(block: Block, serial: int, index: int) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ThinkingBlock(thinking=thinking):
            return {"type": "thinking", "thinking": thinking, "signature": "c2ln"}
        case ToolBlock(name=name, input=arguments, id=call_id):
            call_id = call_id or f"toolu_scripted_{serial:06d}_{index}"
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def whole(request: ModelRequest, step: Step, serial: int) -> bytes:
    """The answer in one piece (``stream: false``)."""
    message = _envelope(request, serial)
    message["content"] = [_content(block, serial, index) for index, block in enumerate(step.blocks)]
    message["stop_reason"] = step.reason
    return json.dumps(message).encode()


def _event(kind: str, *, pause_s: float = 0.0, block_end: bool = False, **fields: Any) -> Frame:
    body = json.dumps({"type": kind, **fields})
    return Frame(data=f"event: {kind}\ndata: {body}\n\n".encode(), pause_s=pause_s, block_end=block_end)


def stream(request: ModelRequest, step: Step, serial: int) -> Iterator[Frame]:
    """The answer as server-sent events, with the script's pauses."""
    yield _event("message_start", message=_envelope(request, serial))
    hang_s = step.hang_s
    for index, block in enumerate(step.blocks):
        content = _content(block, serial, index)
        match block:
            case TextBlock(text=text):
                start: dict[str, Any] = {"type": "text", "text": ""}
                kind, key, full = "text_delta", "text", text
            case ThinkingBlock(thinking=thinking):
                start = {"type": "thinking", "thinking": "", "signature": ""}
                kind, key, full = "thinking_delta", "thinking", thinking
            case ToolBlock():
                start = {**content, "input": {}}
                kind, key, full = "input_json_delta", "partial_json", json.dumps(content["input"])
        yield _event("content_block_start", pause_s=hang_s + block.pause_s, index=index, content_block=start)
        hang_s = 0.0
        for at in range(0, len(full), step.chunk_chars):
            piece = {"type": kind, key: full[at : at + step.chunk_chars]}
            yield _event("content_block_delta", pause_s=step.chunk_pause_s if at else 0.0, index=index, delta=piece)
        if isinstance(block, ThinkingBlock):
            signature = {"type": "signature_delta", "signature": "c2ln"}
            yield _event("content_block_delta", index=index, delta=signature)
        yield _event("content_block_stop", block_end=True, index=index)
    delta = {"stop_reason": step.reason, "stop_sequence": None}
    yield _event("message_delta", pause_s=hang_s + step.stop_pause_s, delta=delta, usage={"output_tokens": 5})
    yield _event("message_stop")
