"""Probes for the actor system's tests: actors that do what a message says, and waits with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lastword.actors.system.actor import Actor

WAIT_MAX_S = 5.0


def until(condition: Callable[[], Any], *, within_s: float = WAIT_MAX_S) -> Any:
    """The first true value; fails the test when the bound runs out."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.001)


class Do:
    """A message that is a function of the actor."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


class Boom(Exception):
    """What probes raise."""


def boom(_actor: Any = None) -> None:
    raise Boom


class Probe(Actor):
    """Keeps what it is told in the list given to it, which outlives the actor; runs what it is told to do."""

    def __init__(self, log: list[Any] | None = None) -> None:
        super().__init__()
        self.log: list[Any] = log if log is not None else []

    def receive(self, message: object) -> Any:
        if isinstance(message, Do):
            return message.function(self)
        self.log.append(message)
        return message


class Gate:
    """A message that holds its handler until opened; bounded."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def hold(self) -> Do:
        return Do(self._wait)

    def open(self) -> None:
        self._open.set()

    def _wait(self, _actor: Any) -> None:
        self.entered.set()
        assert self._open.wait(WAIT_MAX_S)


def lastword_threads(name: str) -> list[str]:
    """Threads that belong to the system of that name."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]
