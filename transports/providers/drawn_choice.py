"""A numbered choice that a terminal has drawn: its options, where the cursor stands, and the keys towards one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lastword.actors.core.adapter import DialogOpen


class Choice(NamedTuple):
    """``first``: index of the first option's line, or the number of lines; ``cursor``: counted from 1, 0 for none."""

    first: int
    options: tuple[str, ...]
    cursor: int


def numbered(lines: Sequence[str], option: re.Pattern[str]) -> Choice:
    """The last run 1, 2, 3, … of lines that match ``option`` (groups ``cursor``, ``number``, ``label``).

    A list of that shape in what is asked about stands above it.
    """
    options: list[str] = []
    first, cursor = len(lines), 0
    for at, line in enumerate(lines):
        found = option.match(line)
        if found is None:
            continue
        number = int(found["number"])
        if number == 1:
            options, first, cursor = [], at, 0
        elif number != len(options) + 1 or not options:
            continue
        options.append(found["label"])
        if found["cursor"]:
            cursor = number
    return Choice(first, tuple(options), cursor) if options else Choice(len(lines), (), 0)


def answer_keys(dialog: DialogOpen, option: int) -> tuple[str, ...]:
    """The next keys towards that option: one step of the cursor, and Enter once it is there; its digit without one."""
    if not 1 <= option <= len(dialog.options):
        return ()
    if not dialog.cursor:
        return (str(option),)
    if dialog.cursor == option:
        return ("Enter",)
    return ("Down",) if dialog.cursor < option else ("Up",)
