"""What scripted programs behind pipes have in common: lines on stdout, a script's turns, and the faults of their life.

Stdlib only: imported beside ``scripted/``, by programs that are run by their path, with any Python from 3.9.
"""

# ruff: noqa: PTH123

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Protocol

    class Playing(Protocol):
        """One turn under way; ``stopped``: it is to end, true where it is."""

        faults: Faults
        stopped: Any


if TYPE_CHECKING or __package__:
    from lastword.runtime.testing.scripted.faults import Faults
    from lastword.runtime.testing.scripted.steps import inline_steps
else:  # run by its path
    from scripted.faults import Faults
    from scripted.steps import inline_steps


class PipeProgram:
    """Speaks lines of JSON. ``script_file``: steps by name, for prompts with ``[[script:NAME]]``."""

    faults: Faults
    script_file = ""

    def raw(self, line: str) -> None:
        """One line as it stands."""
        data = line.encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    def exits_at_start(self) -> int | None:
        """The exit code with which it ends before it says a word, where a fault says so."""
        if not self.faults.text("exit_at_start"):
            return None
        code, _, message = self.faults.text("exit_at_start").partition(":")
        print(message, file=sys.stderr)
        return int(code)

    def crash(self, turn: Playing, where: str) -> None:
        """End here, where a fault says so."""
        place, _, code = turn.faults.text("crash").partition(":")
        if place == where:
            if code:
                os._exit(int(code))
            os.kill(os.getpid(), signal.SIGKILL)

    def steps(self, prompt: str) -> list[dict[str, Any]]:
        """What the model says to that prompt."""
        name = prompt.partition("[[script:")[2].partition("]]")[0]
        if name and self.script_file:
            with open(self.script_file, encoding="utf-8") as file:
                steps: list[dict[str, Any]] = json.load(file)[name]
            return steps
        return inline_steps(prompt)

    def pause(self, turn: Playing, seconds: float) -> Generator[float, None, None]:
        """So long, unless it is stopped."""
        end = time.monotonic() + seconds
        while not turn.stopped and (left := end - time.monotonic()) > 0:
            yield left
