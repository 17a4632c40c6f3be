"""The adapter of OpenAI's Responses API: what a request looks like, and what an answer says.

Nothing is kept at the vendor (``store`` is off): reasoning comes encrypted, and is told again with the conversation.

Source: the API as its SDK 3.57.0 speaks it; docs/providers/api.md.
"""

from __future__ import annotations

import re
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

_PLAIN = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt)")
"""Models that do not reason, and refuse to be asked for it encrypted."""


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class _Why(msgspec.Struct):
    reason: str | None = None


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    type: str
    content: list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    encrypted_content: str | None = None


_ITEM = Decoder(_Item)
_ITEMS = Decoder(list[Any])
_RAWS = Decoder(list[msgspec.Raw])
_ANY = Decoder(dict[str, Any])


class _Response(msgspec.Struct):
    id: str
    output: msgspec.Raw
    status: str
    model: str = ""
    incomplete_details: _Why | None = None
    usage: _Usage | None = None


_RESPONSE = Decoder(_Response)


class OpenAiAdapter(ApiBase):
    """OpenAI's models, asked by us."""

    name = "openai"
    service = Service(
        sdk="openai", driver="openai", key="OPENAI_API_KEY", base_url="OPENAI_BASE_URL", model="OPENAI_MODEL"
    )

    def body(self, request: LaunchRequest, lines: Sequence[Line], tools: Sequence[Tool]) -> Mapping[str, Any]:
        """``responses.create``, with the whole conversation."""
        options = self._options(request)
        body: dict[str, Any] = {"model": options.model, "input": items(told(healed(lines, _kept))), "store": False}
        if _PLAIN.match(options.model) is None:
            body["include"] = ["reasoning.encrypted_content"]
        if options.system:
            body["instructions"] = options.system
        if options.max_tokens:
            body["max_output_tokens"] = options.max_tokens
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in tools
            ]
        return body

    def reply(self, body: bytes) -> Reply:
        """What an answer says."""
        response = _RESPONSE.decode(body)
        again = _kept(response.output)
        output = [_ITEM.decode(raw) for raw in _RAWS.decode(response.output)]
        said = [part for item in output if item.type == "message" for part in item.content or []]
        refused = any(part.type == "refusal" for part in said)
        why = response.incomplete_details
        stop = (why.reason if why is not None else None) or ("refusal" if refused else response.status)
        usage = response.usage or _Usage()
        return Reply(
            response=response.id,
            content=again.content,
            text=again.text,
            calls=again.calls,
            error=_fault(stop, response.status),
            model=response.model,
            stop=stop,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )


def _kept(output: msgspec.Raw) -> Kept:
    """What is kept of those items; of what was kept, the same."""
    found: list[Any] = []
    calls = KeptCalls()
    texts: list[str] = []
    for raw in _RAWS.decode(output):
        item = _ITEM.decode(raw)
        if item.type == "reasoning" and not item.encrypted_content:
            continue  # it could not be found again: nothing is stored
        found.append(_ANY.decode(raw))
        if item.type == "function_call":
            call_id, name, arguments = calls.keep(item.call_id, item.name, item.arguments)
            found[-1].update(call_id=call_id, name=name, arguments=item.arguments if arguments else "{}")
        elif item.type == "message":
            texts += [part.text for part in item.content or [] if part.type == "output_text"]
            found[-1]["role"] = "assistant"
    while found and found[-1]["type"] == "reasoning":
        found.pop()  # without the item behind it, it is refused
    return kept(found, texts, calls)


def _fault(stop: str, status: str) -> TurnError | None:
    if stop in ("refusal", "content_filter"):
        return cut_off(stop, "refused")
    if stop == "max_output_tokens":
        return cut_off(stop, "cut")
    return unknown_end(stop) if status != "completed" else None


def items(pieces: Sequence[Piece]) -> list[Any]:
    """The conversation in the API's own form."""
    found: list[Any] = []
    ids = CallIds()
    for piece in pieces:
        match piece:
            case Human(text=text):
                found.append({"role": "user", "content": text})
            case Result():
                output = f"Error: {piece.text}" if piece.failed else piece.text
                found.append({"type": "function_call_output", "call_id": ids.result(piece.call), "output": output})
            case Model(content=content):
                for item in _ITEMS.decode(content):
                    called = item.get("type") == "function_call"
                    found.append({**item, "call_id": ids.call(item["call_id"])} if called else item)
            case Note(text=text):
                found.append({"role": "assistant", "content": text})
    return found


__all__ = ["OpenAiAdapter", "items"]
