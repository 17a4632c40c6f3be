"""OpenAI's Responses API through its SDK (``lastword[openai]``, seen with 3.57.0)."""

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
    SaidError,
    as_json,
    failure_of,
    http_of,
    no_last_word,
    pieces_of,
)

BASE_URL = "https://api.openai.com/v1"
_sdk: Any = importlib.import_module("openai")
_http: Any = http_of(_sdk)


class OpenAiDriver:
    """One client; its connections are kept between requests."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._client = _sdk.AsyncOpenAI(
            api_key=env["OPENAI_API_KEY"],
            base_url=env.get("OPENAI_BASE_URL") or BASE_URL,
            max_retries=RETRIES_MAX,
            timeout=_http.Timeout(READ_S, connect=CONNECT_S),
            http_client=_sdk.DefaultAsyncHttpxClient(event_hooks=HOOKS),
        )
        self._client.organization = env.get("OPENAI_ORG_ID")
        self._client.project = env.get("OPENAI_PROJECT_ID")

    async def ask(self, body: Mapping[str, Any], streamed: Callable[[str, str], None]) -> bytes:
        """One streamed request, to its end."""
        response, whole = "", b""

        def take(event: Any) -> bool:
            nonlocal response, whole
            match event.type:
                case "response.created":
                    response = event.response.id
                    streamed(response, "")
                case "response.output_text.delta":
                    streamed(response, event.delta)
                case "response.completed" | "response.incomplete":
                    whole = as_json(event.response.to_dict(mode="json"))
                case "response.failed":
                    error = event.response.error
                    raise SaidError(code=str(error.code), message=str(error.message))
                case "error":
                    raise SaidError(code=str(event.code or ""), message=str(event.message))
                case _:
                    pass
            return bool(whole)

        async with await self._client.responses.create(**body, stream=True) as stream:
            await pieces_of(stream, take)
            if not whole:
                raise no_last_word(stream.response, begun=bool(response))
        return whole

    def failure(self, error: Exception, at: float) -> Failure:
        """What that exception says."""
        broken = (_sdk.APIConnectionError, _http.RequestError, CutOffError)
        return failure_of(error, at, status_error=_sdk.APIError, connection_errors=broken)

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()


def make(env: Mapping[str, str]) -> OpenAiDriver:
    """As :mod:`lastword.transports.api` has drivers made: by the runtime's environment, not by the process's own."""
    return OpenAiDriver(env)
