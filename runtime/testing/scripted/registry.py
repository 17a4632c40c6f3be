"""What the CLI says about itself while it runs."""

# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH119, PTH120, PTH123

from __future__ import annotations

import json
import os
import time

from .identity import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .app import App
    from .steps import Record


class Registry:
    """``~/.claude/sessions/<pid>.json``: what the CLI says about itself."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.path = os.path.join(app.home, ".claude", "sessions", f"{os.getpid()}.json")
        self.status = ""
        self.started_ms = int(time.time() * 1000)
        self.enabled = "no_registry" not in app.faults and app.dialect == "claude-code"

    def put(self, status: str, waiting_for: str = "") -> None:
        """Say a status, unless a fault keeps the old one."""
        stale = self.status and "registry_stale" in self.app.faults
        faults = self.app.turn.faults if self.app.turn else self.app.faults
        if not self.enabled or stale or (status == "idle" and self.status and "registry_busy" in faults):
            return
        self.status = status
        now_ms = int(time.time() * 1000)
        entry: Record = {
            "pid": os.getpid(),
            "sessionId": self.app.session_id,
            "cwd": self.app.cwd,
            "startedAt": self.started_ms,
            "procStart": proc_start(),
            "version": VERSION,
            "peerProtocol": 1,
            "kind": "interactive",
            "entrypoint": "cli",
            "name": os.path.basename(self.app.cwd),
            "nameSource": "derived",
            "status": status,
            "updatedAt": now_ms,
            "statusUpdatedAt": now_ms,
        }
        if waiting_for:
            entry["waitingFor"] = waiting_for
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as sink:
            json.dump(entry, sink)
        os.replace(self.path + ".new", self.path)

    def remove(self) -> None:
        """A clean exit."""
        try:
            os.unlink(self.path)
        except OSError:
            pass


def proc_start() -> str:
    """Start time of this process in the kernel's ticks."""
    try:
        with open("/proc/self/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"
