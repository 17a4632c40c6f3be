"""A real tmux pane on a server of its own, for tests of terminal programs. Every wait has a bound."""

import json
import os
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

WAIT_S = 12.0


class Pane:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, width: int = 120, height: int = 40):
        self.socket = f"kit-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self.home, self.cwd = Path(env["HOME"]), cwd
        words = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), *argv]
        command = "exec " + " ".join(shlex.quote(word) for word in words)
        self.tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            str(width),
            "-y",
            str(height),
            "-c",
            str(cwd),
            command,
        )
        self.tmux("set-option", "-g", "remain-on-exit", "on")
        self.pid = int(self.tmux("display-message", "-p", "#{pane_pid}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], capture_output=True, timeout=10, check=False)
        folder = Path(os.environ.get("TMUX_TMPDIR", "/tmp"))
        (folder / f"tmux-{os.getuid()}" / self.socket).unlink(missing_ok=True)
        self.until(lambda: not Path(f"/proc/{self.pid}").exists() or self._zombie(), "the program's end", bound_s=5)

    def _zombie(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    def tmux(self, *words: str, data: bytes | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.socket, *words], input=data, capture_output=True, timeout=10, check=True
        )
        return done.stdout.decode().rstrip("\n")

    def until(self, condition: Callable[[], Any], what: str, *, bound_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + bound_s
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} within {bound_s} s; screen:\n{self.screen_or_nothing()}")
            time.sleep(0.01)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def screen_or_nothing(self) -> str:
        try:
            return self.screen()
        except subprocess.CalledProcessError:
            return "(no pane)"

    def box(self) -> str:
        lines = self.screen().splitlines()
        rules = [at for at, line in enumerate(lines) if line.startswith("────")]
        return "\n".join(lines[rules[-2] + 1 : rules[-1]]) if len(rules) > 1 else ""

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        self.tmux("load-buffer", "-b", "b", "-", data=text.encode())
        self.tmux("paste-buffer", "-p", "-d", "-r", "-b", "b")

    def submit(self, text: str) -> None:
        self.paste(text)
        mark = (
            "[Pasted text"
            if text.count("\n") > 2 or len(text) > 800
            else text.rsplit("\n", maxsplit=1)[-1].strip()[-20:]
        )
        self.until(lambda: mark in self.box().replace("\n  ", "") or mark in self.box(), f"{mark!r} in the box")
        self.keys("Enter")

    def registry(self) -> dict[str, Any]:
        try:
            return json.loads((self.home / ".claude/sessions" / f"{self.pid}.json").read_text())
        except (OSError, ValueError):
            return {}

    @property
    def status(self) -> str:
        return str(self.registry().get("status", ""))

    def ready(self) -> None:
        self.until(lambda: self.status == "idle" and "❯" in self.screen(), "ready prompt", bound_s=30)

    def transcript(self, session_id: str) -> Path:
        slug = re.sub(r"[^A-Za-z0-9]", "-", str(self.cwd))
        return self.home / ".claude/projects" / slug / f"{session_id}.jsonl"

    def raw_lines(self, session_id: str) -> list[bytes]:
        try:
            return self.transcript(session_id).read_bytes().split(b"\n")[:-1]
        except OSError:
            return []

    def records(self, session_id: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw_lines(session_id)]
