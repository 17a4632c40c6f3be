"""A frame of ``lastword top`` as lines of styled text, no wider than the terminal. Pure.

Whatever a host, a journal or a file's name says passes through :func:`one_line` here: no control character is left in a
frame, and no line is wider than its bound, by the widths that a terminal gives to characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

import msgspec
from rich.cells import cell_len, set_cell_size

from lastword.runtime._top import Look, Sort, TopLine
from lastword.runtime.command._show import one_line
from lastword.runtime.command._top_feed import Sight

Piece: TypeAlias = tuple[str, str]
"""Text and its style, in rich's words; "" for none."""
Line: TypeAlias = tuple[Piece, ...]

GAP: Final = 2
NARROW: Final = 70
"""Columns below which one blank stands between two cells."""
CELL_CHARS: Final = 200
"""Of a text from elsewhere, before its width is looked at."""
STALE_S: Final = 3.0
"""A sight so old is said to be old."""
SHORT_STATES: Final = {"awaiting_user": "asked"}
STATE_STYLES: Final = {
    "awaiting_user": "bold yellow",
    "gone": "red",
    "busy": "green",
    "starting": "cyan",
    "idle": "",
    "closed": "dim",
}
SORT_KEYS: Final[dict[str, Sort]] = {"s": "state", "a": "age", "l": "latency", "n": "name"}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the person has chosen, of which folder, and how many rows there is room for."""

    folder: str = ""
    sort: Sort = "state"
    offset: int = 0
    rows: int = 20

    def look(self) -> Look:
        """What to ask for."""
        return Look(lines=self.rows, offset=self.offset, sort=self.sort)

    def pressed(self, key: str, total: int) -> View | None:
        """The view after that key, of so many sessions; None where it means nothing here."""
        last = max(0, total - self.rows)
        page = max(1, self.rows - 1)
        moves = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page_up": -page,
            "b": -page,
            "page_down": page,
            " ": page,
            "home": -total,
            "g": -total,
            "end": total,
            "G": total,
        }
        if key in moves:
            return msgspec.structs.replace(self, offset=min(max(self.offset + moves[key], 0), last))
        if key in SORT_KEYS:
            return msgspec.structs.replace(self, sort=SORT_KEYS[key], offset=0)
        return None


class Column(NamedTuple):
    """One column. ``need``: it is left out where there is not so much room; ``want``: never wider; ``rank``: the one
    with the highest is left out first.
    """

    name: str
    need: int
    want: int
    rank: int
    cell: Callable[[TopLine], str]
    right: bool = False
    style: Callable[[TopLine], str] = lambda _: ""


def seconds(age: float | None) -> str:
    """An age in five columns at most."""
    if age is None or not isfinite(age):
        return "-"
    for bound, unit, name in ((10, 1, "s"), (120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if age < bound:
            return f"{age:.1f}s" if bound == 10 else f"{int(age / unit)}{name}"
    return f"{min(int(age / 86400), 9999)}d"


def took(spent_s: float | None) -> str:
    """A latency in six columns at most."""
    if spent_s is None:
        return "-"
    if spent_s < 0.9995:
        return f"{spent_s * 1e3:.1f}ms" if spent_s < 0.09995 else f"{spent_s * 1e3:.0f}ms"
    return f"{spent_s:.1f}s" if spent_s < 1000 else seconds(spent_s)


def state_of(line: TopLine) -> str:
    """Its state in a word."""
    return SHORT_STATES.get(line.state, line.state)


COLUMNS: Final[tuple[Column, ...]] = (
    Column("SESSION", 10, 40, 0, lambda line: line.session_id),
    Column("PROVIDER", 10, 28, 8, lambda line: f"{line.provider}/{line.transport}"),
    Column("STATE", 8, 8, 1, state_of, style=lambda line: STATE_STYLES.get(line.state, "")),
    Column("FOR", 5, 5, 2, lambda line: seconds(line.state_age_s), right=True),
    Column("LAST FACT", 10, 20, 6, lambda line: line.last_event or "-"),
    Column("AGO", 5, 5, 5, lambda line: seconds(line.last_event_age_s), right=True),
    Column("BOX", 4, 4, 7, lambda line: str(line.mailbox), right=True),
    Column("TOOK", 6, 6, 3, lambda line: took(line.last_commit_s), right=True),
    Column("P50", 6, 6, 10, lambda line: took(line.commit_p50_s), right=True),
    Column("P99", 6, 6, 9, lambda line: took(line.commit_p99_s), right=True),
    Column("TURNS", 5, 7, 4, lambda line: str(line.turns), right=True),
)


class Item(NamedTuple):
    """A figure of the header. ``gap``: blanks before it."""

    text: str
    style: str = ""
    gap: int = GAP


def header(sight: Sight, view: View, now_mono_s: float) -> list[Item]:
    """The figures of all, in the order in which they matter; none of them is split."""
    top, old_s = sight.top, now_mono_s - sight.seen_mono_s
    items = [Item("lastword top", "bold"), Item(one_line(view.folder, CELL_CHARS))]
    if top is not None and top.live:
        items += [Item(f"host {top.pid}", "bold green"), Item(f"up {seconds(max(0.0, top.at - top.since))}")]
    else:
        items += _sentence(sight.note, "bold yellow")
    if old_s >= STALE_S:
        items.append(Item(f"as of {seconds(old_s)} ago", "bold red"))
    if top is None:
        return items + _sentence(str(sight.error or "nothing can be read"), "bold red")
    items.append(Item(f"{top.total} sessions", "bold"))
    items += [
        Item(f"{n} {SHORT_STATES.get(state, state)}", STATE_STYLES[state]) for state, n in top.sessions.items() if n
    ]
    items += [Item(f"{top.open_turns} open turns"), Item(f"{top.waiting} waiting")]
    if top.turns_per_s is not None:
        items.append(Item(f"{top.turns_per_s:.1f} turns/s"))
    items.append(Item(f"{top.completions} completions"))
    if top.dead_letters is not None:
        items.append(Item(f"{top.dead_letters} dead letters", "yellow" if top.dead_letters else ""))
    if top.invariant_violations:
        items.append(Item(f"{top.invariant_violations} violations", "bold red"))
    if top.live:
        fails = " FAILS" if top.journal_failing else ""
        wait = f"journal{fails} {top.journal_behind} behind, waits {took(top.journal_wait_s)}"
        items.append(Item(wait, "bold red" if fails else ""))
    return items


def _sentence(text: str, style: str) -> list[Item]:
    """May be broken between its words."""
    words = one_line(text, 400).split(" ")
    return [Item(word, style, 1 if number else GAP) for number, word in enumerate(words) if word]


def head_of(sight: Sight, view: View, width: int, height: int, now_mono_s: float) -> int:
    """How many lines the header takes; at most half of the terminal."""
    return min(len(flowed(header(sight, view, now_mono_s), width)), max(1, height // 2))


def frame(sight: Sight, view: View, width: int, height: int, now_mono_s: float, *, head: int = 0) -> tuple[Line, ...]:
    """``height`` lines at most: the figures, on ``head`` lines at least, the heads, the sessions, the keys."""
    lines = flowed(header(sight, view, now_mono_s), width)[: max(1, height // 2)]
    lines += [()] * (head - len(lines))
    room = max(0, height - len(lines) - 2)
    shown = sight.top.lines[:room] if sight.top is not None else ()
    columns = fitted(width, shown)
    if room:
        lines.append(_row([(column.name, "reverse") for column, _ in columns], columns, width, "reverse"))
    for each in shown:
        cells = [(one_line(column.cell(each), CELL_CHARS), column.style(each)) for column, _ in columns]
        lines.append(_row(cells, columns, width, ""))
    lines += [()] * max(0, height - 1 - len(lines))
    if height > len(lines):
        lines.append(((_cut(foot(sight, view, len(shown)), width), "dim"),))
    return tuple(lines[:height])


def foot(sight: Sight, view: View, shown: int) -> str:
    """Where in the list this is, and the keys."""
    total = sight.top.total if sight.top is not None else 0
    first = sight.top.offset + 1 if sight.top is not None and shown else 0
    where = f"{first}-{first + shown - 1} of {total}" if shown else f"0 of {total}"
    return f"{where} by {view.sort}  q quit  sort: s a l n  move: ↑ ↓ PgUp PgDn Home End"


def fitted(width: int, shown: Sequence[TopLine]) -> list[tuple[Column, int]]:
    """The columns that there is room for, and how wide each is."""
    gap = _gap(width)
    chosen = sorted(COLUMNS, key=lambda column: column.rank)
    while len(chosen) > 1 and sum(column.need for column in chosen) + gap * (len(chosen) - 1) > width:
        chosen.pop()
    kept = [column for column in COLUMNS if column in chosen]
    spare = width - sum(column.need for column in kept) - gap * (len(kept) - 1)
    widths = {column.name: min(column.need, width) for column in kept}
    for column in chosen:  # what matters most grows first
        if spare <= 0:
            break
        full = max([len(column.name), *(cell_len(one_line(column.cell(each), CELL_CHARS)) for each in shown)])
        more = min(max(0, min(column.want, full) - column.need), spare)
        widths[column.name] += more
        spare -= more
    return [(column, widths[column.name]) for column in kept]


def _row(cells: Sequence[Piece], columns: Sequence[tuple[Column, int]], width: int, blank: str) -> Line:
    gap = " " * _gap(width)
    pieces: list[Piece] = []
    for (whole, style), (column, wide) in zip(cells, columns, strict=True):
        if pieces:
            pieces.append((gap, blank))
        text = _cut(whole, wide, middle=column.name == "SESSION")
        pad = " " * (wide - cell_len(text))
        pieces.append((pad + text if column.right else text + pad, style))
    return tuple(pieces)


def _gap(width: int) -> int:
    return GAP if width >= NARROW else 1


def _cut(text: str, width: int, *, middle: bool = False) -> str:
    """At most so wide. Of a session's name the end tells it from its neighbours: it stays."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return set_cell_size(text, max(width, 0))
    if middle and width >= 5:
        head = set_cell_size(text, 2).rstrip()
        tail = text
        while cell_len(tail) > width - 1 - cell_len(head):
            tail = tail[1:]
        return f"{head}…{tail}"
    return set_cell_size(text, width - 1).rstrip() + "…"


def flowed(items: Sequence[Item], width: int) -> list[Line]:
    """On as many lines as they take."""
    lines: list[list[Piece]] = [[]]
    used = 0
    for item in items:
        text = _cut(item.text, width)
        if used and used + item.gap + cell_len(text) > width:
            lines.append([])
            used = 0
        if used:
            lines[-1].append((" " * item.gap, ""))
            used += item.gap
        lines[-1].append((text, item.style))
        used += cell_len(text)
    return [tuple(line) for line in lines]
