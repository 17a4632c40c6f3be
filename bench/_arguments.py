"""What the stress runs take on their command lines: each out of range is refused with its reason, before anything runs."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number")
    return value


def count(most: int) -> Callable[[str], int]:
    """A whole number from 1 to ``most``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number") from None
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]} is not from 1 to {most:,}")
        return value

    return read


def counts(most: int) -> Callable[[str], list[int]]:
    """Such numbers with commas between."""
    return lambda text: [count(most)(each) for each in text.split(",")]


def rate(text: str) -> float:
    """Turns a second, from 0.1 to 100,000."""
    value = _number(text)
    if not 0.1 <= value <= 100_000:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.1 to 100,000 a second")
    return value


def rate_or_none(text: str) -> float:
    """The same; 0: none."""
    return 0.0 if _number(text) == 0.0 else rate(text)


def length(least_s: float, most_s: float) -> Callable[[str], float]:
    """A length of time in seconds, with or without a unit: 20m, 90s, 1h."""

    def read(text: str) -> float:
        unit = UNITS.get(text[-1:])
        value = _number(text if unit is None else text[:-1]) * (unit or 1.0)
        if not least_s <= value <= most_s:
            raise argparse.ArgumentTypeError(f"{text} is not from {least_s:g} s to {most_s / 3600:g} h")
        return value

    return read


def folder(text: str) -> Path:
    """A folder that can be written into; it is made."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} can be no folder: {error}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written into")
    return path


def check_product(parser: argparse.ArgumentParser, sessions: list[int], turns: int, most: int) -> None:
    """Refuse what each number alone allows, and both together do not."""
    if max(sessions) * turns > most:
        parser.error(f"{max(sessions)} sessions times {turns} turns are more than {most:,} turns")
