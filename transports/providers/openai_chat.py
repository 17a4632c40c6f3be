"""The adapter of chat completions: for servers that speak no Responses (``OPENAI_BASE_URL``), of whatever vendor.

Source: the API as OpenAI's SDK 3.57.0 speaks it; docs/providers/api.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.conversation import Human, Line, Model, Note, Piece, Result, told
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.service import Reply, Service
from lastword.actors.core.tools import Tool
from lastword.transports.providers.api_adapter import ApiBase, cut_off, unknown_end
from lastword.transports.providers.api_kept import CallIds, Kept, KeptCalls, healed, kept
from lastword.transports.providers.decoding import Decoder


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


_SAID = Decoder(list[_Message])
_MESSAGES = Decoder(list[Any])


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(msgspec.Struct):
    id: str
    message: msgspec.Raw
    finish_reason: str
    model: str = ""
    refused: bool = False
    usage: _Usage | None = None


_COMPLETION = Decoder(_Completion)


class OpenAiChatAdapter(ApiBase):
    """Models behind chat completions, asked by us."""

    name = "openai-chat"
    service = Service(
        sdk="openai", driver="openai_chat", key="OPENAI_API_KEY", base_url="OPENAI_BASE_URL", model="OPENAI_MODEL"
    )

    def body(self, request: LaunchRequest, lines: Sequence[Line], tools: Sequence[Tool]) -> Mapping[str, Any]:
        """``chat.completions.create``, with the whole conversation."""
        options = self._options(request)
        system = [{"role": "system", "content": options.system}] if options.system else []
        body: dict[str, Any] = {"model": options.model, "messages": [*system, *messages(told(healed(lines, _kept)))]}
        if options.max_tokens:
            body["max_tokens"] = options.max_tokens
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in tools
            ]
        return body

    def reply(self, body: bytes) -> Reply:
        """What an answer says, put together from its stream."""
        completion = _COMPLETION.decode(body)
        again = _kept(msgspec.Raw(b"[" + bytes(completion.message) + b"]"))
        usage = completion.usage or _Usage()
        stop = "refusal" if completion.refused else completion.finish_reason
        return Reply(
            response=completion.id,
            content=again.content,
            text=again.text,
            calls=again.calls,
            error=_fault(stop),
            model=completion.model,
            stop=stop,
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
        )


def _kept(messages: msgspec.Raw) -> Kept:
    """What is kept of those messages; of what was kept, the same."""
    calls = KeptCalls()
    found: list[Any] = []
    texts: list[str] = []
    for message in _SAID.decode(messages):
        texts.append(message.content or "")
        told_again = [_called(call, calls) for call in message.tool_calls or ()]
        said = message.content if message.content and message.content.strip() else None
        if said or told_again:
            found.append({"role": "assistant", "content": said} | ({"tool_calls": told_again} if told_again else {}))
    return kept(found, texts, calls)


def _called(call: _Call, calls: KeptCalls) -> dict[str, Any]:
    call_id, name, arguments = calls.keep(call.id, call.function.name, call.function.arguments)
    function = {"name": name, "arguments": call.function.arguments if arguments else "{}"}
    return {"id": call_id, "type": "function", "function": function}


def _fault(stop: str) -> TurnError | None:
    match stop:
        case "stop" | "tool_calls" | "function_call" | "eos" | "eos_token" | "stop_sequence":  # the last three: others'
            return None
        case "refusal" | "content_filter":
            return cut_off(stop, "refused")
        case "length":
            return cut_off(stop, "cut")
        case _:
            return unknown_end(stop)


def messages(pieces: Sequence[Piece]) -> list[Any]:
    """The conversation in the API's own form."""
    found: list[Any] = []
    ids = CallIds()
    for piece in pieces:
        match piece:
            case Human(text=text):
                found.append({"role": "user", "content": text})
            case Result():
                output = f"Error: {piece.text}" if piece.failed else piece.text
                found.append({"role": "tool", "tool_call_id": ids.result(piece.call), "content": output})
            case Model(content=content):
                for message in _MESSAGES.decode(content):
                    calls = [{**call, "id": ids.call(call["id"])} for call in message.get("tool_calls") or ()]
                    found.append({**message, "tool_calls": calls} if calls else message)
            case Note(text=text):
                found.append({"role": "assistant", "content": text})
    return found


__all__ = ["OpenAiChatAdapter", "messages"]
