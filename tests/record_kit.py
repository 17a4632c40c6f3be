"""Small records for the tests of their reader, which looks only when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volume_kit import encoded, turn_lines


class NoWakes:
    def watch(self, path: str, root: str, callback: Callable[[], None]) -> object:
        return object()

    def unwatch(self, token: object) -> None:
        pass


def turn(number: int, tools: int = 1) -> list[dict[str, Any]]:
    """Lines of one turn whose ids are its own."""
    lines = turn_lines(prompt=f"prompt {number}", answer=f"answer {number}", at="2026-01-01T00:00:00Z", tools=tools)
    text = encoded(lines).replace(b"0badc0de", f"{number:08x}".encode())
    return [line + b"\n" for line in text.splitlines()]
