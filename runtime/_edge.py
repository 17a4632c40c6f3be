"""The world as one value: how panes, files and wake-ups are reached. Tests and other transports give their own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from lastword.actors.core.world import Files, Transport, Wakes


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """``close`` ends all CLIs of the transport within about the grace given, seconds."""

    transport: Transport
    files: Files
    wakes: Wakes
    close: Callable[[float], None]


def socket_name(state: Path) -> str:
    """The tmux socket of a state folder: the same one after a restart."""
    return "lastword-" + hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]


def open_tmux_edge(state: Path, env: Mapping[str, str]) -> Edge:
    """A private tmux server, local files and their wake-ups. Blocks while tmux starts; libtmux loads here, late.

    Raises:
        TransportError: ``tmux_missing``, ``tmux_unsupported``, ``transport_failed``.
    """
    from lastword.transports.files import LocalFiles  # noqa: PLC0415
    from lastword.transports.tmux import TmuxServer  # noqa: PLC0415
    from lastword.transports.watch import FileWatcher  # noqa: PLC0415

    server = TmuxServer(socket_name(state), env=env)
    server.start()
    wakes = FileWatcher()

    def close(grace_s: float) -> None:
        server.stop(grace_s)
        wakes.close()

    return Edge(transport=server, files=LocalFiles(), wakes=wakes, close=close)
