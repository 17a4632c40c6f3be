"""Chat completions through OpenAI's SDK (``lastword[openai]``, seen with 3.57.0), for servers without Responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lastword.transports.api_hooks import CutOffError, as_json
from lastword.transports.api_openai import OpenAiDriver


class ChatDriver(OpenAiDriver):
    """The same client, in the older protocol."""

    async def ask(self, body: Mapping[str, Any], streamed: Callable[[str, str], None]) -> bytes:
        """One streamed request, to its end: its pieces put together again."""
        told: dict[str, Any] = {"id": "", "model": "", "finish_reason": None, "usage": None}
        texts: list[str] = []
        refusals: list[str] = []
        calls: dict[int, dict[str, Any]] = {}
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with await self._client.chat.completions.create(**asked) as stream:
            async for chunk in stream:
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
                        _join(calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""}), piece)
                    told["finish_reason"] = choice.finish_reason or told["finish_reason"]
        if told["finish_reason"] is None:
            raise CutOffError("the stream ended before the answer did")
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
        if calls:
            message["tool_calls"] = [_call(index, call) for index, call in sorted(calls.items())]
        return as_json({**told, "message": message, "refused": bool(refusals)})


def _join(call: dict[str, Any], piece: Any) -> None:
    call["id"] = piece.id or call["id"]
    if piece.function is not None:
        call["name"] += piece.function.name or ""
        call["arguments"] += piece.function.arguments or ""


def _call(index: int, call: dict[str, Any]) -> dict[str, Any]:
    """Some servers give a call no id: it needs one to have a result."""
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"] or f"call_{index}", "type": "function", "function": function}


def make(env: Mapping[str, str]) -> ChatDriver:
    """As :mod:`lastword.transports.api` has drivers made: by the runtime's environment, not by the process's own."""
    return ChatDriver(env)
