"""A scripted CLI on a pseudo-terminal: faster than tmux, the same bytes."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lastword.runtime.testing import SCRIPTED_CLI

WAIT_S = 5.0


class Terminal:
    def __init__(self, home: Path, *words: str, session_id: str | None = None, resume: str = "") -> None:
        self.home, self.cwd = home, home / "work_x.y"
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.session_id = session_id or resume or str(uuid.uuid4())
        bind = ["--resume", resume] if resume else ["--session-id", self.session_id]
        argv = [sys.executable, str(SCRIPTED_CLI), *bind, *words]
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(self.cwd)
            os.execve(sys.executable, argv, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.output = b""
        self.code: int | None = None

    def pump(self, seconds: float = 0.01) -> None:
        readable, _, _ = select.select([self.fd], [], [], seconds)
        if readable:
            try:
                self.output += os.read(self.fd, 1 << 16)
            except OSError:
                time.sleep(seconds)

    def until(self, condition: Callable[[], Any], what: str, bound_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + bound_s
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what}; kinds {self.kinds()}; screen {self.screen()[-1500:]}")
            self.pump()

    def quiet(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.pump()

    def screen(self) -> str:
        frame = self.output.rpartition(b"\x1b[?25l\x1b[H")[2].decode("utf-8", "replace")
        return re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", frame).replace("\r", "")

    def box(self) -> str:
        return re.split("─{10,}\n?", self.screen())[-2] if self.screen().count("───") else ""

    def write(self, text: str | bytes) -> None:
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def paste(self, text: str) -> None:
        raw = b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
        while raw:
            raw = raw[os.write(self.fd, raw[:1024]) :]
            self.pump(0)

    def submit(self, text: str) -> None:
        self.paste(text)
        self.quiet(0.03)
        self.write("\r")

    @property
    def path(self) -> Path:
        slug = re.sub(r"[^A-Za-z0-9]", "-", str(self.cwd))
        return self.home / ".claude/projects" / slug / f"{self.session_id}.jsonl"

    def raw(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw().split(b"\n")[:-1]]

    def kinds(self) -> list[str]:
        skip = [
            "mode",
            "permission-mode",
            "atis-latch",
            "file-history-snapshot",
            "last-prompt",
            "cost-state",
            "tools-used",
        ]
        rows = []
        for record in self.records():
            if record["type"] in skip or record["type"].startswith("api-request"):
                continue
            if record["type"] == "attachment" and record["attachment"]["type"] != "queued_command":
                continue
            word = record.get("subtype") or record.get("operation") or ""
            rows.append(record["type"] + (f"/{word}" if word else ""))
        return rows

    def find(self, **fields: Any) -> list[dict[str, Any]]:
        return [r for r in self.records() if all(r.get(key) == value for key, value in fields.items())]

    def answers(self) -> list[str]:
        rows = self.find(type="assistant")
        return [b["text"] for r in rows for b in r["message"]["content"] if b["type"] == "text"]

    def ends(self) -> int:
        return len(self.find(subtype="turn_duration"))

    def wait_end(self, number: int = 1, bound_s: float = WAIT_S) -> None:
        self.until(lambda: self.ends() >= number, f"end {number}", bound_s)

    def registry(self) -> dict[str, Any]:
        try:
            return json.loads((self.home / f".claude/sessions/{self.pid}.json").read_text())
        except (OSError, ValueError):
            return {}

    def ready(self) -> "Terminal":
        self.until(lambda: self.registry().get("status") == "idle" and "❯" in self.screen(), "ready")
        return self

    def exit_code(self, bound_s: float = WAIT_S) -> int:
        """As os.waitstatus_to_exitcode tells it: negative for a signal."""

        def ended() -> bool:
            if self.code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.code = os.waitstatus_to_exitcode(status)
            return self.code is not None

        self.until(ended, "exit", bound_s)
        assert self.code is not None
        return self.code

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*words: str, ready: bool = True, **options: Any) -> Terminal:
        terminal = Terminal(tmp_path, *words, **options)
        opened.append(terminal)
        return terminal.ready() if ready else terminal

    yield start
    for terminal in opened:
        terminal.close()
