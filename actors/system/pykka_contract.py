"""The one inner detail of pykka that the dispatchers lean on, as a check that runs before they do.

In pykka 4.5 ``Actor._actor_loop_running`` calls ``actor_inbox.get()`` outside its ``try``. So a
BaseException out of ``get`` leaves the loop with the actor unharmed; inside the ``try`` it would stop every
pykka actor in the process.
"""

from __future__ import annotations

import importlib.metadata
import threading
from typing import Any

import pykka

from lastword.actors.core.errors import UsageError

_verified = threading.Event()


class _ProbeOverError(BaseException):
    """Out of the probe's inbox."""


class _ProbeInbox:
    """Gives one message, then raises."""

    def __init__(self) -> None:
        self.left = 1

    def put(self, envelope: Any, /) -> None:
        """Nothing is kept."""

    def get(self) -> Any:
        if self.left == 0:
            raise _ProbeOverError
        self.left -= 1
        return _ProbeEnvelope()

    def empty(self) -> bool:
        return True


class _ProbeEnvelope:
    """The two names that pykka's loop reads."""

    message = "probe"
    reply_to = None


class _Probe(pykka.Actor):
    """Never started or registered: only its loop is called, by hand."""

    seen: Any = None

    @staticmethod
    def _create_actor_inbox() -> _ProbeInbox:
        return _ProbeInbox()

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        raise AssertionError

    def on_receive(self, message: Any) -> None:
        self.seen = message

    def _stop(self) -> None:
        """Where pykka's handling of a BaseException begins: stopping this actor, then all others."""
        raise AssertionError("pykka took the inbox's exception for the handler's")


def verify_pykka() -> None:
    """Once per process: raises ``UsageError`` when the installed pykka's loop is not the one we know."""
    if _verified.is_set():
        return
    probe = _Probe()
    try:
        probe._actor_loop_running()  # noqa: SLF001  # the detail in question
    except _ProbeOverError:
        if probe.seen == "probe" and not probe.actor_stopped.is_set():
            _verified.set()
            return
    except Exception as error:
        raise _unknown_pykka() from error
    raise _unknown_pykka()


def _unknown_pykka() -> UsageError:
    version = importlib.metadata.version("pykka")
    return UsageError(
        "usage",
        f"the actor loop of pykka {version} is not the one that the dispatchers were built on",
        remedy="Install pykka>=4.5,<4.6",
    )
