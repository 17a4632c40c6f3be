"""The command as a person runs it: a process of its own, a sealed home, the scripted CLI under the real one's name."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from lastword.runtime._edge import socket_name
from lastword.runtime.testing import SCRIPTED_CLI, Rehearsal

WAIT_S = 30.0
SOURCES = str(Path(__file__).parents[1] / "src")


class Running:
    """A command under way; its stderr is read as it comes."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()

    def wait_for(self, text: str) -> str:
        """The first stderr line with that text."""
        until = time.monotonic() + WAIT_S
        with self._more:
            while True:
                for line in self.lines:
                    if text in line:
                        return line
                left = until - time.monotonic()
                assert left > 0, self.lines
                assert self.process.poll() is None or self._reader.is_alive(), self.lines
                self._more.wait(min(left, 0.5))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        out = self.process.stdout.read()
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return code, out, "".join(self.lines)


class Place:
    """Where commands run. ``bin`` comes first on PATH and holds the scripted CLI."""

    def __init__(self, sealed: Rehearsal) -> None:
        self.root, self.cwd, self.home = sealed.root, sealed.cwd, sealed.home
        self.state = sealed.root / "state"
        self.bin = sealed.root / "bin"
        self.bin.mkdir()
        self.env = sealed.env | {
            "PYTHONPATH": SOURCES,
            "LASTWORD_STATE": str(self.state),
            "LASTWORD_CLI_CACHE": str(sealed.root / "no-cache"),
            "PATH": f"{self.bin}:{sealed.env['PATH']}",
        }
        self.started: list[Running] = []
        self.install_cli()

    def install_cli(self, *options: str) -> None:
        chosen = " ".join(f"'{option}'" for option in options)
        self.program("claude", f"#!/bin/sh\nexec '{sys.executable}' '{SCRIPTED_CLI}' {chosen} \"$@\"\n")

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "lastword.runtime.command", *words]

    def start(self, *words: str) -> Running:
        running = Running(self.argv(*words), self.env, self.cwd)
        self.started.append(running)
        return running

    def lastword(self, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> tuple[int, str, str]:
        done = subprocess.run(
            self.argv(*words),
            env=env or self.env,
            cwd=self.cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def end_tmux(self) -> None:
        """Whatever a command that was killed left behind."""
        for state in (self.state, *self.root.glob("t/lw-*/state")):
            tmux = Path("/tmp") / f"tmux-{os.getuid()}" / socket_name(state)
            if tmux.exists():
                subprocess.run(["tmux", "-S", str(tmux), "kill-server"], capture_output=True, timeout=10, check=False)
                tmux.unlink(missing_ok=True)

    def assert_nothing_is_left(self) -> None:
        """No tmux server of the state folder, no socket, no CLI that works in the sealed folder."""
        tmux = Path("/tmp") / f"tmux-{os.getuid()}" / socket_name(self.state)
        assert not tmux.exists()
        assert not (self.state / "host.sock").exists()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    where = str((folder / "cwd").readlink())
                except OSError:
                    continue
                assert not where.startswith(str(self.root)), (folder / "cmdline").read_bytes()
