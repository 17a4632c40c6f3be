"""Tools of a host in the tests, importable by one in a process of its own."""

from __future__ import annotations

import os
import subprocess
import time

from lastword import Tool, ToolCall

_COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def bash(call: ToolCall) -> str:
    """Runs it; ended once nobody waits."""
    with subprocess.Popen(
        ["bash", "-c", call.arguments["command"]], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        while child.poll() is None:
            if call.cancelled():
                os.killpg(child.pid, 9)
            time.sleep(0.01)
        assert child.stdout is not None
        return child.stdout.read()


def broken(call: ToolCall) -> str:
    raise ValueError(f"not {call.arguments['what']}")


def odd(call: ToolCall) -> object:
    return {"list": [1, 2], "none": None} if call.arguments.get("fit") else object()


def large(call: ToolCall) -> str:
    return "z" * call.arguments["size"]


TOOLS = [
    Tool(name="Bash", description="Runs a command.", call=bash, parameters=_COMMAND),
    Tool(name="broken", description="Raises.", call=broken),
    Tool(name="odd", description="Gives what is no text.", call=odd),
    Tool(name="large", description="Gives much.", call=large),
]
