"""A tmux transport that outlives its server: when the private server has died, the next pane gets a new one.

Panes of a dead server die with it and are reported gone by the server object that opened them; it is kept for that
until the end. Nothing here blocks but :meth:`close`; starting a server anew runs on a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, TransportError
from lastword.actors.core.world import Endpoint, PaneEndpoint
from lastword.transports.family import left_alive
from lastword.transports.process import named
from lastword.transports.tmux import TmuxServer

START_TRIES = 3
START_PAUSE_S = 0.3
SERVERS_MAX = 20
"""Servers of one runtime, one after the other: a tmux that dies again and again is given up."""


class RenewingTmux:
    """Implements :class:`lastword.actors.core.world.Transport` over one started server at a time.

    Args:
        make: makes a server that is not started; :meth:`start` starts the first.
    """

    name: TransportName = "tmux"

    def __init__(self, make: Callable[[], TmuxServer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._servers: list[TmuxServer] = []
        self._server_of: WeakKeyDictionary[Endpoint, TmuxServer] = WeakKeyDictionary()

    @property
    def server(self) -> TmuxServer:
        """The server of the moment."""
        return self._servers[-1]

    def start(self) -> None:
        """Start the first server. Blocks, bounded.

        Raises:
            TransportError: as :meth:`TmuxServer.start`.
        """
        for left in range(START_TRIES - 1, -1, -1):
            server = self._make()
            try:
                server.start()
            except TransportError as error:
                server.detach()
                if not left or error.kind not in ("transport_failed", "transport_timeout"):
                    raise
                time.sleep(START_PAUSE_S)  # a server of a killed host may be on its way out, or the machine is crowded
            else:
                self._servers.append(server)
                return

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        width: int,
        height: int,
        on_opened: Callable[[PaneEndpoint | LastwordError], None],
    ) -> None:
        """As the port says; on a dead server the pane opens in a new one."""

        def open_in(server: TmuxServer) -> None:
            def opened(result: PaneEndpoint | LastwordError) -> None:
                if not isinstance(result, LastwordError):
                    self._server_of[result] = server
                on_opened(result)

            server.open(name, argv, cwd=cwd, env=env, width=width, height=height, on_opened=opened)

        def renew() -> None:
            try:
                server = self._renewed()
            except LastwordError as error:
                on_opened(error)
                return
            open_in(server)

        if self._lives(self.server):
            open_in(self.server)
        else:
            threading.Thread(target=renew, name="lastword-tmux-renew", daemon=True).start()

    def watch_exit(self, endpoint: Endpoint, on_exit: Callable[[int | None], None]) -> None:
        """As the port says."""
        self._server_of.get(endpoint, self.server).watch_exit(endpoint, on_exit)

    def attach_command(self, endpoint: Endpoint) -> tuple[str, ...]:
        """As the port says."""
        return self.server.attach_command(endpoint)

    def close(self, grace_s: float) -> list[str]:
        """End every server and what it left; gives what lives all the same, as ``pid (name)``. Blocks for the grace."""
        left: list[str] = []
        for server in reversed(self._servers):
            report = server.stop(grace_s)
            left += left_alive(report.survivors, unsure=report.unsure)
            if report.server == "survives" and server.process is not None:
                left.append(named(server.process.pid))
        return left

    def _lives(self, server: TmuxServer) -> bool:
        process = server.process
        return process is not None and process.is_alive()

    def _renewed(self) -> TmuxServer:
        with self._lock:
            if not self._lives(self.server) and len(self._servers) < SERVERS_MAX:
                self.start()
            return self.server
