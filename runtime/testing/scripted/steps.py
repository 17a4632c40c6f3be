"""What the model says to a prompt: the language of ``script.py``, as plain dictionaries."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    Record = dict[str, Any]
    Wait = Generator[float, None, None]

ECHO_CHARS_MAX = 2000
DIRECTIVE = re.compile(r"\[\[([a-z]+)(?::(.*?))?\]\]", re.DOTALL)


def echo(prompt: str) -> str:
    """The default answer."""
    if len(prompt) <= ECHO_CHARS_MAX:
        return f"echo: {prompt}"
    half = ECHO_CHARS_MAX // 2
    return f"echo: {prompt[:half]} ...[{len(prompt)} characters]... {prompt[-half:]}"


def tool_block(argument: str) -> Record:
    """The block of ``[[tool:NAME:ARG]]``."""
    name, _, rest = argument.partition(":")
    if name == "Bash":
        return {
            "type": "tool_use",
            "name": name,
            "input": {"command": rest, "description": "scripted command"},
        }
    value = json.loads(rest) if rest else {}
    if not isinstance(value, dict):
        raise ValueError(f"the argument of tool {name} is not a JSON object")  # noqa: TRY004 - bad text
    return {"type": "tool_use", "name": name, "input": value}


def inline_steps(prompt: str) -> list[Record]:
    """Compile the directives of a prompt; see ``script.py`` for the language."""
    steps: list[Record] = []
    step: Record = {"blocks": []}
    pause = 0.0

    def add(block: Record) -> None:
        nonlocal pause
        if pause:
            block["pause_s"], pause = pause, 0.0
        step["blocks"].append(block)

    def end() -> None:
        nonlocal step, pause
        if pause:
            step["stop_pause_s"], pause = pause, 0.0
        steps.append(step)
        step = {"blocks": []}

    try:
        for word, argument in DIRECTIVE.findall(prompt):
            part = argument.split(":")
            if word in ("sleep", "hang"):
                step["delay_s" if word == "sleep" else "hang_s"] = float(argument)
            elif word == "pause":
                pause += float(argument)
            elif word == "chunk":
                step["chunk_chars"], step["chunk_pause_s"] = max(1, int(part[0])), float(part[1])
            elif word == "say":
                add({"type": "text", "text": argument})
            elif word == "half":
                add({"type": "text", "text": argument + "\ud83d"})
            elif word == "size":
                add({"type": "text", "text": ("0123456789" * (int(argument) // 10 + 1))[: int(argument)]})
            elif word == "think":
                add({"type": "thinking", "thinking": argument})
            elif word in ("tool", "also"):
                if word == "also":
                    step = steps.pop()
                    step.pop("stop_pause_s", None)
                add(tool_block(argument))
                end()
            elif word == "stop":
                step["stop_reason"] = argument
                end()
            elif word == "next":
                end()
            elif word == "error":
                step["error"] = {
                    "status": int(part[0]),
                    "times": int(part[1]) if len(part) > 1 else 0,
                    "retry_after_s": float(part[2]) if len(part) > 2 else None,
                }
            elif word == "cut":
                step["cut"], step["cut_times"] = True, int(argument or 0)
    except (ValueError, IndexError) as bad:
        return [{"blocks": [{"type": "text", "text": f"bad directive: {bad}"}]}]
    if step["blocks"] or len(step) > 1 or pause or not steps:
        end()
    kinds = [block["type"] for block in steps[-1]["blocks"]]
    if "tool_use" in kinds:
        end()
    elif "text" in kinds or steps[-1].get("stop_reason"):
        return steps
    steps[-1]["blocks"].append({"type": "text", "text": echo(prompt)})
    return steps


def last_text(blocks: list[Record]) -> str:
    """The last text of a message."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return texts[-1] if texts else ""
