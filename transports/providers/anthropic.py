"""The adapter of Anthropic's Messages API: what a request looks like, and what an answer says.

Source: the API as its SDK 2.16.0 speaks it; docs/providers/api.md.
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

MAX_TOKENS = 16_000
"""Of one answer, where the session names no other figure; the API demands one."""


class _Usage(msgspec.Struct):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0

    @property
    def read(self) -> int:
        parts = (self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens)
        return sum(part or 0 for part in parts)


class _Message(msgspec.Struct):
    id: str
    content: msgspec.Raw
    stop_reason: str
    model: str = ""
    usage: _Usage = msgspec.field(default_factory=_Usage)


_MESSAGE = Decoder(_Message)


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


_BLOCKS = Decoder(list[_Block])
_CONTENT = Decoder(list[Any])


class AnthropicAdapter(ApiBase):
    """Claude models, asked by us."""

    name = "anthropic"
    service = Service(
        sdk="anthropic",
        driver="anthropic",
        key="ANTHROPIC_API_KEY",
        base_url="ANTHROPIC_BASE_URL",
        model="ANTHROPIC_MODEL",
    )

    def body(self, request: LaunchRequest, lines: Sequence[Line], tools: Sequence[Tool]) -> Mapping[str, Any]:
        """``messages.create``, with the whole conversation."""
        options = self._options(request)
        body: dict[str, Any] = {
            "model": options.model,
            "max_tokens": options.max_tokens or MAX_TOKENS,
            "messages": messages(told(lines)),
        }
        if options.system:
            body["system"] = options.system
        if tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
            ]
        return body

    def reply(self, body: bytes) -> Reply:
        """What an answer says."""
        message = _MESSAGE.decode(body)
        blocks = _BLOCKS.decode(message.content)
        calls = tuple(
            Call(id=block.id, name=block.name, arguments=bytes(block.input).decode())
            for block in blocks
            if block.type == "tool_use"
        )
        stop = message.stop_reason
        return Reply(
            response=message.id,
            content=message.content if blocks else msgspec.Raw(b"null"),
            text="".join(block.text for block in blocks if block.type == "text"),
            calls=calls,
            goes_on=stop == "pause_turn",
            error=_fault(stop),
            model=message.model,
            stop=stop,
            input_tokens=message.usage.read,
            output_tokens=message.usage.output_tokens or 0,
        )


def _fault(stop: str) -> TurnError | None:
    match stop:
        case "max_tokens":
            return cut_off(stop, "cut")
        case "model_context_window_exceeded":
            return cut_off(stop, "overflow")
        case "refusal":
            return cut_off(stop, "refused")
        case _:
            return None


def messages(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The conversation in the API's own form: the host's and the model's turns alternate."""
    found: list[dict[str, Any]] = []

    def say(role: str, blocks: list[Any]) -> None:
        if found and found[-1]["role"] == role:
            found[-1]["content"] += blocks
        else:
            found.append({"role": role, "content": blocks})

    for piece in pieces:
        match piece:
            case Human(text=text):
                say("user", [{"type": "text", "text": text}])
            case Result():
                result = {"type": "tool_result", "tool_use_id": piece.call, "content": piece.text}
                say("user", [{**result, "is_error": True} if piece.failed else result])
            case Model(content=content):
                say("assistant", _CONTENT.decode(content))
            case Note(text=text):
                say("assistant", [{"type": "text", "text": text}])
    return found


__all__ = ["AnthropicAdapter", "messages"]
