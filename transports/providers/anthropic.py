"""The adapter of Anthropic's Messages API: what a request looks like, and what an answer says.

Source: the API as its SDK 2.16.0 speaks it; docs/providers/api.md.
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
    text: str | None = ""
    citations: list[Any] | None = None
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    arguments: str | None = None
    """As the model wrote them (``api_anthropic``); None: nothing but ``input`` is there."""


_BLOCK = Decoder(_Block)
_RAWS = Decoder(list[msgspec.Raw])
_CONTENT = Decoder(list[Any])
_ANY = Decoder(dict[str, Any])
_THOUGHTS = ("thinking", "redacted_thinking")


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
            "messages": messages(told(healed(lines, _kept))),
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
        again = _kept(message.content)
        stop = message.stop_reason
        return Reply(
            response=message.id,
            content=again.content,
            text=again.text,
            calls=again.calls,
            goes_on=stop == "pause_turn",
            error=_fault(stop),
            model=message.model,
            stop=stop,
            input_tokens=message.usage.read,
            output_tokens=message.usage.output_tokens or 0,
        )


def _kept(content: msgspec.Raw) -> Kept:
    """What is kept of those blocks; of what was kept, the same."""
    calls = KeptCalls(plain_ids=True)
    blocks: list[dict[str, Any]] = []
    texts: list[str] = []
    for raw in _RAWS.decode(content):
        block = _BLOCK.decode(raw)
        match block.type:
            case "text":
                texts.append(block.text or "")
                blocks += _text(block)
            case "tool_use":
                blocks.append(_use(block, calls))
            case _:
                blocks.append(_ANY.decode(raw))
    while blocks and blocks[-1]["type"] in _THOUGHTS:
        blocks.pop()  # an answer that ends so is refused
    return kept(blocks, texts, calls)


def _text(block: _Block) -> list[dict[str, Any]]:
    """A blank text cannot be told again."""
    if not block.text or not block.text.strip():
        return []
    kept = {"type": "text", "text": block.text}
    return [{**kept, "citations": block.citations} if block.citations else kept]


def _use(block: _Block, calls: KeptCalls) -> dict[str, Any]:
    written = bytes(block.input).decode() if block.arguments is None else block.arguments
    call_id, name, arguments = calls.keep(block.id, block.name, written)
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}}


def _fault(stop: str) -> TurnError | None:
    match stop:
        case "max_tokens":
            return cut_off(stop, "cut")
        case "model_context_window_exceeded":
            return cut_off(stop, "overflow")
        case "refusal":
            return cut_off(stop, "refused")
        case "end_turn" | "stop_sequence" | "tool_use" | "pause_turn":
            return None
        case _:
            return unknown_end(stop)


def messages(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The conversation in the API's own form: the host's and the model's turns alternate."""
    found: list[dict[str, Any]] = []
    ids = CallIds()

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
                result = {"type": "tool_result", "tool_use_id": ids.result(piece.call), "content": piece.text}
                say("user", [{**result, "is_error": True} if piece.failed else result])
            case Model(content=content):
                blocks = _CONTENT.decode(content)
                say(
                    "assistant", [_called(block, ids) if block.get("type") == "tool_use" else block for block in blocks]
                )
            case Note(text=text):
                say("assistant", [{"type": "text", "text": text}])
    return found


def _called(block: dict[str, Any], ids: CallIds) -> dict[str, Any]:
    return {**block, "id": ids.call(block["id"])}


__all__ = ["AnthropicAdapter", "messages"]
