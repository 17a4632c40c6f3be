"""The adapter of chat completions: for servers that speak no Responses (``OPENAI_BASE_URL``), of whatever vendor.

Source: the API as OpenAI's SDK 3.57.0 speaks it; docs/providers/api.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.conversation import Call, Human, Line, Model, Note, Piece, Result, told
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.service import Reply, Service
from lastword.actors.core.tools import Tool
from lastword.transports.providers.api_adapter import ApiBase, cut_off
from lastword.transports.providers.decoding import Decoder


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] = []


_MESSAGE = Decoder(_Message)
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
        body: dict[str, Any] = {"model": options.model, "messages": [*system, *messages(told(lines))]}
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
        message = _MESSAGE.decode(completion.message)
        calls = tuple(
            Call(id=call.id, name=call.function.name, arguments=call.function.arguments) for call in message.tool_calls
        )
        usage = completion.usage or _Usage()
        stop = "refusal" if completion.refused else completion.finish_reason
        said = bool(message.content or calls)
        return Reply(
            response=completion.id,
            content=msgspec.Raw(b"[" + bytes(completion.message) + b"]") if said else msgspec.Raw(b"null"),
            text=message.content or "",
            calls=calls,
            error=_fault(stop),
            model=completion.model,
            stop=stop,
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
        )


def _fault(stop: str) -> TurnError | None:
    if stop in ("refusal", "content_filter"):
        return cut_off(stop, "refused")
    return cut_off(stop, "cut") if stop == "length" else None


def messages(pieces: Sequence[Piece]) -> list[Any]:
    """The conversation in the API's own form."""
    found: list[Any] = []
    for piece in pieces:
        match piece:
            case Human(text=text):
                found.append({"role": "user", "content": text})
            case Result():
                output = f"Error: {piece.text}" if piece.failed else piece.text
                found.append({"role": "tool", "tool_call_id": piece.call, "content": output})
            case Model(content=content):
                found += _MESSAGES.decode(content)
            case Note(text=text):
                found.append({"role": "assistant", "content": text})
    return found


__all__ = ["OpenAiChatAdapter", "messages"]
