"""A wait in steps: its logic is written once, and taken by a thread that blocks or by a task that awaits.

Theory of operation. Who waits for an actor is a generator. It yields what it would wait for next, and for how long
(:class:`Until`), or what would block (:class:`Aside`); it knows neither threads nor asyncio, and reads no clock: how
long it has waited is the sum of its steps. :func:`blocked` and :func:`awaited` take the steps and decide nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, TypeVar, assert_never

import msgspec

from lastword.actors.system.system import ActorSystem

SIGNALS_S: Final = 1.0
"""How long the main thread blocks in one go."""

_T = TypeVar("_T")


class Until(msgspec.Struct, frozen=True):
    """Go on once the future is done, and after so many seconds in any case; whether it is done is seen by itself."""

    future: Future[Any]
    at_most_s: float


class Aside(msgspec.Struct, frozen=True):
    """Call it where it may block, and go on with what it returns; what it raises ends the steps."""

    call: Callable[[], Any]


Steps: TypeAlias = Generator[Until | Aside, Any, _T]


def blocked(steps: Steps[_T], system: ActorSystem) -> _T:
    """Take the steps in the calling thread, which blocks; in a simulation that goes on meanwhile.

    Raises: what the steps raise.
    """
    came: Any = None
    try:
        while True:
            step = steps.send(came)
            match step:
                case Until():
                    came = None
                    _block(step.future, system.wait_s(step.future.done, step.at_most_s))
                case Aside():
                    came = step.call()
                case _:
                    assert_never(step)
    except StopIteration as end:
        result: _T = end.value
        return result
    finally:
        steps.close()


def _block(future: Future[Any], at_most_s: float) -> None:
    """Until it is done. The main thread comes up in between: ``_thread.interrupt_main`` does not wake it."""
    slice_s = SIGNALS_S if threading.current_thread() is threading.main_thread() else at_most_s
    while True:
        with contextlib.suppress(TimeoutError):
            future.exception(timeout=min(slice_s, at_most_s))
        at_most_s -= slice_s
        if future.done() or at_most_s <= 0.0:
            return


async def awaited(steps: Steps[_T]) -> _T:
    """Take the steps in the running task, and block no loop. Cancelling the task ends them and touches no future.

    Raises: what the steps raise.
    """
    came: Any = None
    watched: Future[Any] | None = None
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            step = steps.send(came)
            match step:
                case Until():
                    came = None
                    if waiting is None or step.future is not watched:  # a long wait has many steps, and one watch
                        watched, waiting = step.future, asyncio.wrap_future(step.future)
                        waiting.add_done_callback(_seen)
                    await asyncio.wait({waiting}, timeout=step.at_most_s)
                case Aside():
                    came = await asyncio.to_thread(step.call)
                case _:
                    assert_never(step)
    except StopIteration as end:
        result: _T = end.value
        return result
    finally:
        steps.close()


def _seen(future: asyncio.Future[Any]) -> None:
    """The steps read the future that it watches, not this one: asyncio need not complain that nobody fetched it."""
    if not future.cancelled():
        future.exception()
