"""OpenAI Responses on the wire: request bytes in, frames out. No sockets, no clock.

Format facts: ``POST /v1/responses`` as Codex 0.171.0 sends it and accepts its answers: server-sent events
``response.created``, ``output_item.added``, ``output_text.delta``, ``output_item.done`` and one of
``response.completed``, ``response.incomplete`` and ``response.failed``. The header ``x-codex-turn-metadata`` tells the
thread and what a request is for. A context overflow comes as ``response.failed`` with ``context_length_exceeded``
(after an HTTP 400 Codex says ``other``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lastword.runtime.testing.script import Step, StepError, TextBlock, ThinkingBlock, ToolBlock
from lastword.runtime.testing.wire import (
    CONTEXT_OVERFLOW,
    SSE_TYPE,
    Frame,
    ModelRequest,
    Refusal,
    fields_of,
    person_text,
    text_parts,
    tool_call,
)
from lastword.runtime.testing.wire_openai_chat import openai_error, pieces_of

_HOST_TEXT = re.compile(
    r"^<(environment_context|user_instructions|turn_aborted|user_shell_command|permissions|skill|INSTRUCTIONS)"
    r"|^# AGENTS\.md instructions"
)
_INCOMPLETE = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
_USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}


def parse(headers: Mapping[str, str], body: dict[str, Any], path: str) -> ModelRequest:  # noqa: ARG001 - the format's shape
    """Read a request. A model's answer is one run of items: reasoning, message and calls up to the calls' outputs."""
    given = body.get("input")
    items: list[dict[str, Any]] = (
        [{"role": "user", "content": given}]
        if isinstance(given, str)
        else [item for item in given or [] if isinstance(item, dict)]
    )
    prompt, answered, in_answer = "", 0, False
    for item in reversed(items):
        kind, role = str(item.get("type") or "message"), item.get("role")
        if kind == "message" and role == "user":
            prompt = person_text(text_parts(item.get("content"), ("input_text", "text")), _HOST_TEXT)
            if prompt:
                break
        of_model = not kind.endswith("_output") and (kind != "message" or role == "assistant")
        answered += of_model and not in_answer
        in_answer = of_model
    tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict)]
    told = _metadata(headers)
    hidden, answer = "", ""
    if told.get("request_kind") == "compaction":
        hidden, answer = "compaction", "A summary of the rehearsal so far."
    elif told.get("thread_source") == "thread_title":
        hidden, answer = "thread_title", "Rehearsal"
    return ModelRequest(
        prompt=prompt,
        answered=answered,
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        session=str(told.get("thread_id") or headers.get("session-id", "")),
        messages=len(items),
        max_tokens=int(body.get("max_output_tokens") or 0),
        tool_names=tuple(str(tool.get("name") or tool.get("type") or "") for tool in tools),
        tool_fields={str(tool.get("name") or tool.get("type")): fields_of(tool.get("parameters")) for tool in tools},
        hidden=hidden,
        hidden_answer=answer,
    )


def _metadata(headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        told = json.loads(headers.get("x-codex-turn-metadata") or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def refuse(request: ModelRequest, error: StepError, serial: int) -> Refusal:
    """The failure of one request."""
    status, told, headers = openai_error(error)
    if error.word != CONTEXT_OVERFLOW or not request.stream:
        return Refusal(status=status, body=json.dumps({"error": told}).encode(), headers=headers)
    events = _Events()
    response = _envelope(request, serial, "failed")
    response["error"] = {"code": told["code"], "message": told["message"]}
    started = events.next("response.created", response=_envelope(request, serial, "in_progress"))
    failed = events.next("response.failed", response=response)
    return Refusal(status=200, body=started.data + failed.data, content_type=SSE_TYPE)


def _envelope(request: ModelRequest, serial: int, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_scripted_{serial:06d}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": request.model,
        "output": [],
    }


def _item(
    request: ModelRequest, block: TextBlock | ThinkingBlock | ToolBlock, serial: int, index: int
) -> dict[str, Any]:
    mark = f"scripted_{serial:06d}_{index}"
    match block:
        case TextBlock(text=text):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            return {
                "id": f"msg_{mark}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        case ThinkingBlock(thinking=thinking):
            summary = [{"type": "summary_text", "text": thinking}]
            return {"id": f"rs_{mark}", "type": "reasoning", "summary": summary, "encrypted_content": "c2ln"}
        case ToolBlock(id=call_id):
            name, arguments = tool_call(request, block)
            space, _, short = name.rpartition("/")
            call = {
                "id": f"fc_{mark}",
                "type": "function_call",
                "status": "completed",
                "name": short,
                "arguments": json.dumps(arguments),
                "call_id": call_id or f"call_{mark}",
            }
            return {**call, "namespace": space} if space else call


def _end(request: ModelRequest, step: Step, serial: int, output: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    why = _INCOMPLETE.get(step.reason)
    response = _envelope(request, serial, "incomplete" if why else "completed")
    response.update(output=output, usage=_USAGE)
    if why:
        response["incomplete_details"] = {"reason": why}
    return str(response["status"]), response


def whole(request: ModelRequest, step: Step, serial: int) -> bytes:
    """The answer in one piece."""
    output = [_item(request, block, serial, index) for index, block in enumerate(step.blocks)]
    return json.dumps(_end(request, step, serial, output)[1]).encode()


class _Events:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self._number = -1

    def next(self, kind: str, *, pause_s: float = 0.0, block_end: bool = False, **fields: Any) -> Frame:
        """The next event."""
        self._number += 1
        body = json.dumps({"type": kind, "sequence_number": self._number, **fields})
        return Frame(data=f"event: {kind}\ndata: {body}\n\n".encode(), pause_s=pause_s, block_end=block_end)


def stream(request: ModelRequest, step: Step, serial: int) -> Iterator[Frame]:
    """The answer as server-sent events."""
    events, output, hang_s = _Events(), [], step.hang_s
    yield events.next("response.created", response=_envelope(request, serial, "in_progress"))
    for index, block in enumerate(step.blocks):
        item = _item(request, block, serial, index)
        begun = dict(item)
        if isinstance(block, TextBlock):
            begun.update(status="in_progress", content=[])
        elif isinstance(block, ToolBlock):
            begun.update(status="in_progress", arguments="")
        else:
            begun.update(summary=[])
        where: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        yield events.next("response.output_item.added", pause_s=hang_s + block.pause_s, output_index=index, item=begun)
        hang_s = 0.0
        match block:
            case TextBlock(text=full):
                kind, where = "output_text", {**where, "content_index": 0}
            case ThinkingBlock(thinking=full):
                kind, where = "reasoning_summary_text", {**where, "summary_index": 0}
            case ToolBlock():
                kind, full = "function_call_arguments", item["arguments"]
        for at, piece in enumerate(pieces_of(full, step)):
            pause_s = step.chunk_pause_s if at else 0.0
            yield events.next(f"response.{kind}.delta", pause_s=pause_s, delta=piece, **where)
        yield events.next("response.output_item.done", block_end=True, output_index=index, item=item)
        output.append(item)
    status, response = _end(request, step, serial, output)
    yield events.next(f"response.{status}", pause_s=hang_s + step.stop_pause_s, block_end=True, response=response)
