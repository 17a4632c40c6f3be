"""The tmux program of one socket, called apart from any control client: it starts servers and sets them.

libtmux lives here and nowhere else. It sets the options only: it has no timeouts and its lists are empty on a dead
server, so it is called on a thread that may be given up, and never asked whether something lives.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from lastword.actors.core.errors import LastwordError, TransportError, TransportTimeoutError
from lastword.transports.tmux_setup import CALL_TIMEOUT_S, find_tmux, option_words

HUB = "hub"
"""The session that keeps the server, and the control client in it, up while no CLI runs."""
HOLD_S = 2**31 - 1
START_TIMEOUT_S = 10.0

_T = TypeVar("_T")


class TmuxProgram:
    """Blocks for :data:`CALL_TIMEOUT_S` a call; safe from any thread.

    Attributes:
        argv: the prefix of every call.

    Raises:
        TransportError: from the start: ``tmux_missing``, ``tmux_unsupported``.
    """

    def __init__(self, socket_path: Path, env: Mapping[str, str]) -> None:
        self.argv = [find_tmux().path, "-S", str(socket_path), "-f", "/dev/null"]
        self._socket_path = socket_path
        self._env = env

    def call(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """What it said, whatever that is.

        Raises:
            TransportError: ``transport_timeout``; ``transport_failed``: it did not start.
        """
        try:
            return subprocess.run(
                [*self.argv, *words], capture_output=True, timeout=CALL_TIMEOUT_S, check=False, env=self._env
            )
        except subprocess.TimeoutExpired as error:
            raise TransportTimeoutError(f"tmux {words[0]}", CALL_TIMEOUT_S) from error
        except OSError as error:
            raise TransportError("transport_failed", f"tmux did not start: {error.strerror}") from error

    def start_server(self, *then: str) -> None:
        """With its hub; ``then``: further words of the same call.

        Raises:
            TransportError: it did not start.
        """
        self._run("-u", "new-session", "-d", "-s", HUB, "--", "sleep", str(HOLD_S), *then)

    def ensure_hub(self) -> None:
        """The server runs: its hub does too from now on. Raises as :meth:`start_server`."""
        if self.call("has-session", "-t", f"={HUB}").returncode != 0:
            self._run("new-session", "-d", "-s", HUB, "--", "sleep", str(HOLD_S))

    def set_options(self) -> None:
        """Those of a private server. Raises as :meth:`start_server`."""
        _bounded(self._set_options, START_TIMEOUT_S, "tmux options")

    def _set_options(self) -> None:
        import libtmux  # noqa: PLC0415 - 70 ms

        words = option_words()
        server = libtmux.Server(socket_path=str(self._socket_path), config_file="/dev/null")
        result = server.cmd(words[0], *words[1:])
        if result.stderr:
            raise TransportError("transport_failed", f"tmux options: {' '.join(result.stderr)}")

    def _run(self, *words: str) -> None:
        result = self.call(*words)
        if result.returncode != 0:
            text = result.stderr.decode("utf-8", "replace").strip()
            raise TransportError("transport_failed", f"tmux did not start its server: {text}")


def _bounded(call: Callable[[], _T], timeout_s: float, what: str) -> _T:
    """Call on a thread that is given up after ``timeout_s``: libtmux waits for ever."""
    results: list[_T | BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # handed to the caller
            results.append(error)

    thread = threading.Thread(target=run, name="lastword-libtmux", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not results:
        raise TransportTimeoutError(what, timeout_s)
    result = results[0]
    if isinstance(result, LastwordError):
        raise result
    if isinstance(result, BaseException):
        raise TransportError("transport_failed", f"{what}: {type(result).__name__}") from result
    return result
