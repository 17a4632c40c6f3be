"""What is remembered, but not for ever."""

from __future__ import annotations

from typing import Any


def forget_oldest(known: dict[Any, Any], most: int) -> None:
    """Drop what was put in first until at most ``most`` entries are left. Not thread-safe; owned by the caller."""
    while len(known) > most:
        del known[next(iter(known))]


__all__ = ["forget_oldest"]
