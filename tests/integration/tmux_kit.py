"""Helpers of the tmux tests: waiting on conditions, answers of callback verbs, one echo TUI in a pane."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit_system import until
from lastword.actors.core.errors import TransportError
from lastword.transports.tmux import TmuxServer
from lastword.transports.tmux_pane import PaneHandle

ECHO_TUI = str(Path(__file__).with_name("echo_tui.py"))


def open_pane(
    server: TmuxServer, name: str, argv: list[str], cwd: str = "/", env: dict[str, str] | None = None
) -> PaneHandle | TransportError:
    """Open a pane and wait for what came of it."""
    got: queue.Queue[PaneHandle | TransportError] = queue.Queue()
    server.open_pane(name, argv, cwd=cwd, env=env or {}, on_opened=got.put)
    return got.get(timeout=5)


def answer(verb: Callable[..., object], *args: Any, timeout_s: float = 10.0, key: str | None = None) -> Any:
    """Call a verb that answers by callback; its answer."""
    got: queue.Queue[Any] = queue.Queue()
    if key is None:
        verb(*args, got.put)
    else:
        verb(*args, **{key: got.put})
    return got.get(timeout=timeout_s)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def close(pane: PaneHandle, grace_s: float) -> None:
    """Close a pane and wait for it."""
    done = threading.Event()
    pane.close(grace_s, done.set)
    assert done.wait(grace_s + 5)


class Echo:
    """One echo TUI in a pane."""

    def __init__(self, server: TmuxServer, folder: Path, name: str, **env: str) -> None:
        self.log = folder / f"{name}.log"
        self.meta_path = folder / f"{name}.json"
        env = {"ECHO_LOG": str(self.log), "ECHO_META": str(self.meta_path), **env}
        pane = open_pane(server, name, [sys.executable, ECHO_TUI], str(folder), env)
        assert isinstance(pane, PaneHandle), pane
        self.pane = pane
        self.meta = json.loads(until(lambda: self.meta_path.exists() and self.meta_path.read_text()))
        until(self.log.exists)
        self.seen = 0

    def fresh(self) -> bytes:
        """What arrived since the last ``take``."""
        return self.log.read_bytes()[self.seen :]

    def take(self, expected: bytes) -> bytes:
        until(lambda: len(self.fresh()) >= len(expected), within_s=10)
        data = self.fresh()
        self.seen += len(data)
        return data
