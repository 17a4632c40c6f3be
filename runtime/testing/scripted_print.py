"""What scripted programs share that take one prompt as an argument, print what becomes of it, and end.

Stdlib only: imported beside ``scripted/``, whose script language it plays, by programs that are run by path.
Such a program imitates a CLI that could not be run: it is written from documents, as its adapter is.

**Faults** come from ``--fault NAME[=ARG]`` in front of the command or, for one turn, ``[[fault:...]]`` in the prompt:
``exit_at_start=CODE:MESSAGE``; ``no_end``: it ends without a last word; ``linger=S``: it lives on behind it;
``crash=before|mid|tool|end[:CODE]``; ``garbage``; ``dup_end``; ``stderr=TEXT``; ``exit=CODE``.
"""

# ruff: noqa: PTH103, PTH118, PTH123

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Record = dict[str, Any]
if TYPE_CHECKING or __package__:
    from lastword.runtime.testing.scripted.faults import Faults
    from lastword.runtime.testing.scripted_pipe import PipeProgram
else:  # run by its path
    from scripted.faults import Faults
    from scripted_pipe import PipeProgram

VERSION = "1.0.0"


class PrintProgram(PipeProgram):
    """One prompt. A dialect says how each thing is told."""

    stopped = False

    def __init__(self, argv: list[str]) -> None:
        words: list[str] = []
        while argv and argv[0] == "--fault":
            words.append(argv[1])
            argv = argv[2:]
        self.faults = Faults(words)
        self.argv = argv
        self.calls = 0
        self.said: list[str] = []
        """Every text of the turn."""

    # --- what a dialect says itself -------------------------------------------------------------------------------

    def prompt(self) -> str:
        """The prompt in its command line; keeps what else stands there. Ends the program where that is wrong."""
        raise NotImplementedError

    def conversation(self) -> str:
        """The conversation's name."""
        raise NotImplementedError

    def begin(self, prompt: str) -> None:
        """The turn begins."""

    def text(self, text: str) -> None:
        """The model says that."""

    def tool(self, call: str, command: str, result: str | None, *, failed: bool = False) -> None:
        """A tool is called (``result`` None), or has ended."""

    def end(self, reason: str) -> None:
        """The last word: ``end_turn``, ``error:STATUS`` or another stop reason."""
        raise NotImplementedError

    # --- the turn -------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:
        """One line."""
        self.raw(json.dumps(record))

    def kept(self) -> str:
        """Where the conversation is kept."""
        folder = os.path.join(os.environ.get("HOME", ""), ".scripted-print")
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, self.conversation())

    def remembered(self) -> list[str]:
        """Its prompts so far."""
        try:
            with open(self.kept(), encoding="utf-8") as file:
                return [str(json.loads(line)) for line in file]
        except FileNotFoundError:
            return []

    def run(self) -> int:
        """The whole life of the program."""
        if self.argv == ["--version"]:
            print(VERSION)
            return 0
        if (code := self.exits_at_start()) is not None:
            return code
        prompt = self.prompt()
        before = self.remembered()
        with open(self.kept(), "a", encoding="utf-8") as file:
            file.write(json.dumps(prompt) + "\n")
        self.faults = self.faults.with_prompt(prompt)
        if "garbage" in self.faults:
            os.write(1, b"\xff\xfe not json\n[]\n")
        self.crash(self, "before")
        self.begin(prompt)
        reason = "end_turn"
        if "[[history]]" in prompt:
            self.say(" | ".join(before))
        else:
            reason = list(self.play(prompt))[-1]
        self.crash(self, "end")
        if self.faults.text("stderr"):
            print(self.faults.text("stderr"), file=sys.stderr, flush=True)
        if "no_end" not in self.faults:
            self.end(reason)
        if "dup_end" in self.faults:
            self.end(reason)
        time.sleep(self.faults.number("linger"))
        return int(self.faults.number("exit"))

    def play(self, prompt: str) -> Iterator[str]:
        """Step after step; the last one given is the reason of the end."""
        for step in self.steps(prompt):
            time.sleep(float(step.get("delay_s") or 0.0))
            error = step.get("error")
            if error and not error.get("times"):
                yield f"error:{error['status']}"
                return
            tools = []
            for block in step["blocks"]:
                time.sleep(float(block.get("pause_s") or 0.0))
                if block["type"] == "text":
                    self.say(block["text"])
                    self.crash(self, "mid")
                elif block["type"] == "tool_use":
                    tools.append(block)
            time.sleep(float(step.get("hang_s") or 0.0))
            for tool in tools:
                self.run_tool(str(tool["input"].get("command", "")))
            if step.get("stop_reason") in ("refusal", "max_tokens"):
                yield str(step["stop_reason"])
                return
            yield "end_turn"

    def say(self, text: str) -> None:
        """A text of the model's."""
        self.said.append(text)
        self.text(text)

    def run_tool(self, command: str) -> None:
        """One call."""
        self.calls += 1
        call = f"call_{os.getpid()}_{self.calls}"
        self.tool(call, command, None)
        self.crash(self, "tool")
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.tool(call, command, done.stdout.decode(errors="replace").rstrip("\n"), failed=done.returncode != 0)
