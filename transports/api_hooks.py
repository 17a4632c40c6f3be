"""What both vendors' SDKs are told to do on the wire, and what is heard of it: retries are theirs, and are told.

Both count the tries of a request in a header of theirs and obey ``x-should-retry`` of an answer. A task knows whom to
tell by a context variable: hooks run in the task of their request.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from lastword.actors.core.service import Failure
from lastword.transports.providers.api_adapter import retry_after_s

RETRIES_MAX: Final = 2
"""Further tries of one request, by the SDK, with its own pauses."""
RETRY_AFTER_MAX_S: Final = 30.0
"""A service that wants a longer pause is not waited for: the turn ends ``rate_limited``, with ``resets_at``."""
CONNECT_S: Final = 10.0
READ_S: Final = 600.0
"""Silence within an answer, at most; the SDKs' own figure."""
MESSAGE_CHARS_MAX: Final = 2000
_COUNT = "x-stainless-retry-count"

RETRIES: ContextVar[Callable[[str], None] | None] = ContextVar("lastword_retries", default=None)
_LAST: ContextVar[list[str] | None] = ContextVar("lastword_last", default=None)


async def on_request(request: Any) -> None:
    """A try goes out: the first one, or one more."""
    told = RETRIES.get()
    tries = request.headers.get(_COUNT, "0")
    last = _LAST.get()
    if last is None or tries == "0":
        last = []
        _LAST.set(last)
    if told is not None and tries != "0":
        told(f"try {int(tries) + 1 if tries.isdigit() else '?'}, after {last[0] if last else 'no answer'}")
    last.clear()


async def on_response(response: Any) -> None:
    """An answer's head is here."""
    if response.status_code < 400:
        return
    last = _LAST.get()
    if last is not None:
        last[:] = [f"HTTP {response.status_code}"]
    if (wait_s := retry_after_s(response.headers, time.time())) is not None and wait_s > RETRY_AFTER_MAX_S:
        response.headers["x-should-retry"] = "false"


class CutOffError(Exception):
    """The stream ended, and the answer had not."""


class SaidError(Exception):
    """The service said in the stream that there will be no answer."""

    def __init__(self, *, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def no_last_word(response: Any, *, begun: bool) -> Exception:
    """The stream is over, and nothing in it ended the answer."""
    kind = str(response.headers.get("content-type") or "nothing that says what it is").partition(";")[0]
    if begun or kind == "text/event-stream":
        return CutOffError("the stream ended before the answer did")
    return SaidError(
        code="no_stream", message=f"the service answered HTTP {response.status_code} with {kind}, not with an answer"
    )


async def pieces_of(stream: Any, take: Callable[[Any], bool]) -> None:
    """Give ``take`` each piece of an SDK's stream, until one is the last (True) or there is none. What comes behind the
    last one is read and dropped, for ``DRAIN_S`` at most: the SDK's generators run to their end here, on the loop. One
    left half way is in a ring of references, and the collector would end it on whatever thread it happens to run.
    """
    over = False
    try:
        while not over and (piece := await anext(stream, _NONE)) is not _NONE:
            over = take(piece)
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(DRAIN_S):
                while await anext(stream, _NONE) is not _NONE:
                    pass


_NONE: Final = object()
DRAIN_S: Final = 0.25
"""A service ends its stream with the last word; one that does not is hung up on."""

HOOKS: Final[Mapping[str, list[Any]]] = {"request": [on_request], "response": [on_response]}


def failure_of(error: Exception, at: float, *, status_error: type, connection_errors: tuple[type, ...]) -> Failure:
    """What an SDK's exception says. Both SDKs shape them alike."""
    if isinstance(error, SaidError):
        return Failure(kind="status", message=str(error)[:MESSAGE_CHARS_MAX], at=at, code=error.code)
    if isinstance(error, connection_errors):
        cause = error.__cause__ if error.__cause__ is not None else error
        return Failure(kind="connection", message=f"{type(cause).__name__}: {cause}"[:MESSAGE_CHARS_MAX], at=at)
    if isinstance(error, status_error):
        body = getattr(error, "body", None)
        inner = body.get("error", body) if isinstance(body, dict) else {}
        inner = inner if isinstance(inner, dict) else {}
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None)
        return Failure(
            kind="status",
            message=str(inner.get("message") or error)[:MESSAGE_CHARS_MAX],
            at=at,
            status=status if isinstance(status, int) and status >= 400 else None,
            word=str(inner.get("type") or ""),
            code=str(inner.get("code") or ""),
            headers={name.lower(): value for name, value in response.headers.items()} if response is not None else {},
        )
    return Failure(kind="other", message=f"{type(error).__name__}: {error}"[:MESSAGE_CHARS_MAX], at=at)


def http_of(sdk: Any) -> Any:
    """The HTTP package under that SDK."""
    return importlib.import_module(sdk.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])


def as_json(value: Any) -> bytes:
    """The vendor's own object."""
    return msgspec.json.encode(value)
