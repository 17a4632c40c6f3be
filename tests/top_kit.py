"""``lastword top`` in a pane of a tmux server of its own, and a host in a process of its own to look at."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Self

SOURCES = str(Path(__file__).parents[1] / "src")
WAIT_S = 45.0
LOOK_AGAIN_S = 0.05
HOST = """
import sys
from lastword import Runtime
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld
world = MemoryWorld(respond=lambda text: text)
with Runtime.open(sys.argv[1], edge=memory_edge(world), durability="process", serve_socket=sys.argv[3] == "1") as runtime:
    sessions = [runtime.session("memory") for _ in range(int(sys.argv[2]))]
    for session in sessions[:3]:
        session.run("x", deadline_s=60)
    print("ready", flush=True)
    sys.stdin.read()
"""
_numbers = count(1)


def until(found: Callable[[], object], what: Callable[[], object], within_s: float = WAIT_S) -> None:
    """Waits for it; the second one says what there was instead."""
    end_s = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < end_s, what()
        time.sleep(LOOK_AGAIN_S)


class Host:
    """A host of that folder that has finished three turns. For ``with``: ends it."""

    def __init__(self, state: Path, sessions: int = 3, *, serves: bool = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(state), str(sessions), str(int(serves))],
            env={**os.environ, "PYTHONPATH": SOURCES},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Without a word."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


class Pane:
    """The command in a pane, and a shell around it that tells its end and whether the terminal is as it was.

    ``jobs``: the shell has job control; once the command is stopped it says so, and lets it go on at a line.
    """

    def __init__(
        self,
        folder: Path,
        *words: str,
        width: int = 150,
        height: int = 30,
        extra_path: Path | None = None,
        jobs: bool = False,
    ) -> None:
        self.name = f"lwtop-{os.getpid()}-{next(_numbers)}"
        self.pid_file = folder / f"{self.name}.pid"
        command = shlex.join([sys.executable, "-m", "lastword.runtime.command", "top", "--interval", "0.2", *words])
        script = folder / f"{self.name}.sh"
        script.write_text(
            "ulimit -c 0\n"
            + ("set -m\n" if jobs else "")
            + "before=$(stty -g)\n"
            + f"sh -c 'echo $$ > {shlex.quote(str(self.pid_file))}; exec {command}'\n"
            + ('echo "stopped=$?"; read -r line; fg\n' if jobs else "")
            + 'echo "code=$?"\n'
            '[ "$before" = "$(stty -g)" ] && echo same-terminal\n'
            "exec cat\n"
        )
        environment = {**os.environ, "PYTHONPATH": SOURCES, "LC_ALL": "C.UTF-8"}
        if extra_path is not None:
            environment["PYTHONPATH"] = f"{extra_path}:{SOURCES}"
        environment.pop("TMUX", None)
        self._env = environment
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), f"sh {shlex.quote(str(script))}")

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-u", "-L", self.name, "-f", "/dev/null", *words]
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def pid(self) -> int:
        until(lambda: self.pid_file.exists() and self.pid_file.read_text().strip(), self.text)
        return int(self.pid_file.read_text())

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, *texts: str) -> str:
        """The screen, once it shows all of them, wherever a line may be broken."""
        found = ""

        def shown() -> bool:
            nonlocal found
            found = self.text()
            words = " ".join(found.split())
            return all(each in words for each in texts)

        until(shown, lambda: f"not {texts}:\n{found}")
        return found

    def flags(self) -> list[str]:
        """Whether it is on the other screen, and whether the cursor is seen and lines wrap."""
        return self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}").split()

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def ended(self, code: int) -> str:
        """What the pane shows once the command has ended so, and left the terminal as it was."""
        text = self.shows(f"code={code}", "same-terminal")
        assert self.flags() == ["0", "1", "1"]
        assert "SESSION" not in text
        return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux("kill-server")
        (Path("/tmp") / f"tmux-{os.getuid()}" / self.name).unlink(missing_ok=True)
