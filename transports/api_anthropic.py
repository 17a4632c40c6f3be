"""Anthropic's Messages API through its SDK (``lastword[anthropic]``, seen with 2.16.0)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from lastword.actors.core.service import Failure
from lastword.actors.core.tools import arguments_of
from lastword.transports.api_hooks import (
    CONNECT_S,
    HOOKS,
    READ_S,
    RETRIES_MAX,
    CutOffError,
    as_json,
    failure_of,
    http_of,
    no_last_word,
    pieces_of,
)

BASE_URL = "https://api.anthropic.com"
_sdk: Any = importlib.import_module("anthropic")
_http: Any = http_of(_sdk)


class Pieces:
    """An answer put together from its stream: of a call, the very text that the model wrote. (The SDK's own message
    makes an object of text that is cut, and fails at other text that is no JSON.)
    """

    def __init__(self, streamed: Callable[[str, str], None]) -> None:
        self._streamed = streamed
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._parts: dict[int, list[str]] = {}
        """Of each block what comes piece by piece: text, thoughts, or JSON."""

    def take(self, event: Any) -> bool:
        """The next event. False: there may be more."""
        match event.type:
            case "message_start":
                self._message = event.message.to_dict(mode="json", warnings=False)
                self._streamed(self._message["id"], "")
            case "content_block_start":
                self._blocks[event.index] = event.content_block.to_dict(mode="json", warnings=False)
            case "content_block_delta" if event.index in self._blocks:
                self._add(event.index, event.delta)
            case "message_delta" if self._message:
                self._message["stop_reason"] = event.delta.stop_reason
                if (usage := getattr(event, "usage", None)) is not None:
                    figures = usage.to_dict(mode="json", warnings=False, exclude_none=True)
                    self._message["usage"] = {**(self._message.get("usage") or {}), **figures}
            case _:
                pass
        return False

    def _add(self, index: int, delta: Any) -> None:
        block, parts = self._blocks[index], self._parts.setdefault(index, [])
        match delta.type:
            case "text_delta":
                parts.append(delta.text)
                if delta.text:
                    self._streamed(self._message.get("id", ""), delta.text)
            case "input_json_delta":
                parts.append(delta.partial_json)
            case "thinking_delta":
                parts.append(delta.thinking)
            case "signature_delta":
                block["signature"] = delta.signature
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta.citation.to_dict(mode="json")]
            case _:
                pass

    @property
    def begun(self) -> bool:
        """Whether the answer has begun."""
        return bool(self._message)

    def whole(self) -> dict[str, Any] | None:
        """The answer, if it has ended; a call has its ``arguments`` as they were written, where any were."""
        if self._message.get("stop_reason") is None:
            return None
        content = []
        for index, block in sorted(self._blocks.items()):
            written = "".join(self._parts.get(index, ()))
            match block["type"]:
                case "text" | "thinking" as kind:
                    content.append({**block, kind: (block.get(kind) or "") + written})
                case "tool_use" if written:
                    content.append({**block, "arguments": written})
                case _ if written:  # a tool of the vendor's own: what it takes is told to it again
                    content.append({**block, "input": arguments_of(written) or {}})
                case _:
                    content.append(block)
        return {**self._message, "content": content}


class AnthropicDriver:
    """One client; its connections are kept between requests."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._client = _sdk.AsyncAnthropic(
            api_key=env["ANTHROPIC_API_KEY"],
            base_url=env.get("ANTHROPIC_BASE_URL") or BASE_URL,
            max_retries=RETRIES_MAX,
            timeout=_http.Timeout(READ_S, connect=CONNECT_S),
            http_client=_sdk.DefaultAsyncHttpxClient(event_hooks=HOOKS),
        )

    async def ask(self, body: Mapping[str, Any], streamed: Callable[[str, str], None]) -> bytes:
        """One streamed request, to its end."""
        pieces = Pieces(streamed)
        async with await self._client.messages.create(**body, stream=True) as stream:
            await pieces_of(stream, pieces.take)
        whole = pieces.whole()
        if whole is None:
            raise no_last_word(stream.response, begun=pieces.begun)
        return as_json(whole)

    def failure(self, error: Exception, at: float) -> Failure:
        """What that exception says."""
        broken = (_sdk.APIConnectionError, _http.RequestError, CutOffError)
        return failure_of(error, at, status_error=_sdk.APIStatusError, connection_errors=broken)

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()


def make(env: Mapping[str, str]) -> AnthropicDriver:
    """As :mod:`lastword.transports.api` has drivers made: by the runtime's environment, not by the process's own."""
    return AnthropicDriver(env)
