"""Anthropic's Messages API through its SDK (``lastword[anthropic]``, seen with 2.16.0)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from lastword.actors.core.service import Failure
from lastword.transports.api_hooks import (
    CONNECT_S,
    HOOKS,
    READ_S,
    RETRIES_MAX,
    CutOffError,
    as_json,
    failure_of,
    http_of,
)

BASE_URL = "https://api.anthropic.com"
_sdk: Any = importlib.import_module("anthropic")
_http: Any = http_of(_sdk)


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
        response = ""
        async with self._client.messages.stream(**body) as stream:
            async for event in stream:
                if event.type == "message_start":
                    response = event.message.id
                    streamed(response, "")
                elif event.type == "text":
                    streamed(response, event.text)
            message = await stream.get_final_message()
        if message.stop_reason is None:
            raise CutOffError("the stream ended before the answer did")
        return as_json(message.to_dict(mode="json"))

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
