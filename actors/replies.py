"""Setting the futures that a host waits on, whether it still does or not."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any


def resolve(future: Future[Any], value: Any) -> None:
    """Set a result, unless it is set or the waiter gave up."""
    with suppress(InvalidStateError):
        future.set_result(value)


def fail(future: Future[Any], error: BaseException) -> None:
    """Set an exception, unless it is set or the waiter gave up."""
    with suppress(InvalidStateError):
        future.set_exception(error)


def chain(first: Future[None], second: Future[None]) -> None:
    """The second ends when the first does."""
    first.add_done_callback(lambda _: resolve(second, None))
