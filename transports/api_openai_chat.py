"""Chat completions through OpenAI's SDK (``lastword[openai]``, seen with 3.57.0), for servers without Responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lastword.actors.core.tools import arguments_of
from lastword.transports.api_hooks import as_json, no_last_word, pieces_of
from lastword.transports.api_openai import OpenAiDriver


class ChatDriver(OpenAiDriver):
    """The same client, in the older protocol."""

    async def ask(self, body: Mapping[str, Any], streamed: Callable[[str, str], None]) -> bytes:
        """One streamed request, to its end: its pieces put together again."""
        told: dict[str, Any] = {"id": "", "model": "", "finish_reason": None, "usage": None}
        texts: list[str] = []
        refusals: list[str] = []
        calls = Calls()
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}

        def take(chunk: Any) -> bool:
            if not told["id"]:
                told.update(id=chunk.id, model=chunk.model)
                streamed(chunk.id, "")
            if chunk.usage is not None:
                told["usage"] = chunk.usage.to_dict(mode="json")
            for choice in chunk.choices[:1]:
                delta = choice.delta
                if delta.content:
                    texts.append(delta.content)
                    streamed(told["id"], delta.content)
                if delta.refusal:
                    refusals.append(delta.refusal)
                for piece in delta.tool_calls or ():
                    calls.take(piece)
                told["finish_reason"] = choice.finish_reason or told["finish_reason"]
            return False

        async with await self._client.chat.completions.create(**asked) as stream:
            await pieces_of(stream, take)
        if told["finish_reason"] is None:
            raise no_last_word(stream.response, begun=bool(told["id"]))
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
        if whole := calls.whole():
            message["tool_calls"] = whole
        return as_json({**told, "message": message, "refused": bool(refusals)})


@dataclass
class _Call:
    index: int | None
    id: str = ""
    name: str = ""
    written: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.written)


class Calls:
    """The calls of one answer, put together from their pieces.

    OpenAI's servers number the calls, and give id and name with the first piece of each. Others give no number, or 0 to
    all; no id; or the name with every piece. So a piece is of the call that has its number and its id; where it has no
    id, of the last one with its number, unless it names a function and that call is whole.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def take(self, piece: Any) -> None:
        """The next piece."""
        index, call_id = getattr(piece, "index", None), getattr(piece, "id", None) or ""
        function = getattr(piece, "function", None)
        name, arguments = getattr(function, "name", None) or "", getattr(function, "arguments", None) or ""
        alike = [call for call in self._calls if index is None or call.index in (index, None)]
        call = next((call for call in reversed(alike) if call_id and call.id == call_id), None)
        if call is None and alike and not _another(alike[-1], index, call_id, name, arguments):
            call = alike[-1]
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        call.id = call.id or call_id
        if name != call.name and not call.written:
            call.name += name  # in pieces too
        if arguments:
            call.written.append(arguments)

    def whole(self) -> list[dict[str, Any]]:
        """All of them, in the order in which they began; one without an id gets one, to have a result."""
        return [
            {
                "id": call.id or f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(self._calls)
        ]


def _another(call: _Call, index: int | None, call_id: str, name: str, arguments: str) -> bool:
    """Whether the piece is none of that call, which has its number, but begins a new one."""
    if call_id and call.id:
        return call_id != call.id
    if not name or not call.name:
        return False
    if name != call.name:
        return index is None or bool(call.written)
    return bool(arguments.strip()) and bool(call.written) and arguments_of(call.arguments) is not None


def make(env: Mapping[str, str]) -> ChatDriver:
    """As :mod:`lastword.transports.api` has drivers made: by the runtime's environment, not by the process's own."""
    return ChatDriver(env)
