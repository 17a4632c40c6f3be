"""Edges: those of one runtime, each opened when a session first needs it: who has no tmux can run what needs none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ports import SessionRow
from lastword.actors.core.tools import Tool
from lastword.runtime._edge import Edge, left_behind, open_api_edge, open_edge
from lastword.runtime._journal import SqliteJournal


class Edges:
    """Safe from any thread.

    Attributes:
        opened: so far, by transport.
    """

    def __init__(
        self,
        given: Edge | None,
        *,
        state: Path,
        env: Mapping[str, str],
        tools: Mapping[str, Tool],
        journal: SqliteJournal,
        told: Callable[[str], None],
    ) -> None:
        """``given``: the host's own. ``told``: called with a word where one had to do with less than it wants."""
        self.opened: dict[TransportName, Edge] = {} if given is None else {given.transport.name: given}
        self._state = state
        self._env = env
        self._tools = tools
        self._journal = journal
        self._told = told
        self._lock = threading.Lock()

    def open(self, name: TransportName, rows: Sequence[SessionRow] = ()) -> Edge:
        """The one of that transport. Blocks while it is opened. ``rows``: the open sessions over it, on record.

        Raises:
            UsageError: ``unsupported_capability``: none is built in.
            TransportError: ``tmux_missing``, ``tmux_unsupported``, ``transport_failed``.
        """
        with self._lock:
            if name not in self.opened:
                self.opened[name] = (
                    open_api_edge(self._journal, self._env, self._tools)
                    if name == "api"
                    else open_edge(name, self._state, self._env, self._told, rows, journal=self._journal)
                )
            return self.opened[name]

    def has_work(self, name: TransportName) -> bool:
        """Whether it is open, or an earlier host may have left something of it."""
        return name in self.opened or left_behind(name, self._state, self._env)

    def close(self, grace_s: float) -> None:
        """End all that is beyond them, each within about the grace, seconds."""
        with self._lock:
            edges = list(self.opened.values())
        for edge in edges:
            edge.close(grace_s)

    def threads_left(self) -> tuple[str, ...]:
        """After :meth:`close`: threads that did not end."""
        return tuple(name for edge in self.opened.values() for name in edge.threads_left())

    def processes_left(self) -> tuple[str, ...]:
        """After :meth:`close`: what lives in spite of it, as ``pid (name)``."""
        return tuple(name for edge in self.opened.values() for name in edge.left())
