"""The tools of a host for a model's API: what the prompts of :class:`Words` ask for, done in the session's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lastword.actors.core.tools import Tool, ToolCall

LOOK_S = 0.01
_COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def bash(cwd: Path) -> Sequence[Tool]:
    """One tool, ``Bash``: runs ``command`` in that folder; what it prints is the result."""
    return (Tool(name="Bash", description="Runs a command.", call=partial(_run, cwd), parameters=_COMMAND),)


def _run(cwd: Path, call: ToolCall) -> str:
    """Ended, with all that it began, once nobody waits any more."""
    with subprocess.Popen(
        ["/bin/sh", "-c", str(call.arguments["command"])],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        while child.poll() is None and not call.cancelled():
            time.sleep(LOOK_S)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        assert child.stdout is not None
        return child.stdout.read().decode(errors="replace")


__all__ = ["bash"]
