"""The in-process edge: a runtime without a terminal, a CLI or a disk full of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import SessionRow
from lastword.actors.core.snapshot import Handle
from lastword.actors.core.world import Endpoint, Files, Transport, Wakes
from lastword.runtime._edge import Edge, Survivor


class MemoryProcess(Endpoint, Protocol):
    """A CLI of such a world. ``name``: what it was opened as, ``SESSION-EPOCH``."""

    name: str


class InProcess(Files, Wakes, Transport, Protocol):
    """Files, wake-ups and transport in one, as ``lastword.transports.memory.MemoryWorld``."""

    def alive(self) -> list[MemoryProcess]:
        """CLIs that run, oldest first."""
        ...

    def close(self, grace_s: float) -> None:
        """End every CLI."""
        ...


def memory_edge(world: InProcess) -> Edge:
    """The edge of a runtime in that world. A second runtime on the same state folder and world takes over the CLIs
    that live, as after the death of a host with CLIs in panes.
    """

    def survivors(rows: Mapping[SessionId, SessionRow]) -> dict[SessionId, Survivor]:
        found: dict[SessionId, Survivor] = {}
        for cli in world.alive():
            session, _, number = cli.name.rpartition("-")
            session_id, epoch = SessionId(session), int(number)
            row = rows.get(session_id)
            if row is not None and (epoch > row.epoch or (epoch == row.epoch and _same(row.handle, cli))):
                before = found.pop(session_id, None)
                if before is not None and before.endpoint is not None:
                    before.endpoint.close(0.0, lambda: None)
                found[session_id] = Survivor(endpoint=cli, epoch=epoch)
            else:
                cli.close(0.0, lambda: None)
        return found

    def reattach(row: SessionRow) -> Survivor | None:
        for cli in world.alive():
            if cli.name.rpartition("-")[0] == row.session_id and row.handle != "{}" and _same(row.handle, cli):
                return Survivor(endpoint=cli, epoch=row.epoch)
        return None

    return Edge(transport=world, files=world, wakes=world, close=world.close, survivors=survivors, reattach=reattach)


def _same(handle: str, cli: MemoryProcess) -> bool:
    """Whether the journalled handle is that CLI; an empty one was lost between the start and its commit."""
    if handle == "{}":
        return True
    known = msgspec.json.decode(handle, type=Handle)
    return (known.pid, known.pid_start) == (cli.pid, cli.pid_start)


__all__ = ["InProcess", "MemoryProcess", "memory_edge"]
