"""Draws docs/turn.svg from the declared edges of the turn machine. Standard library only; it invents nothing.

Run: ``python tools/draw_turn.py [FILE]`` (with lastword importable). A test compares the committed file with it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from lastword.actors.core.turn import TURN_EDGES, TurnState

PLACES: Mapping[TurnState, tuple[int, int]] = {
    TurnState.ACCEPTED: (110, 90),
    TurnState.SUBMITTED: (310, 90),
    TurnState.RUNNING: (510, 90),
    TurnState.CANCELLING: (310, 250),
    TurnState.SETTLING: (710, 90),
    TurnState.SETTLED: (910, 90),
}
BOX_W, BOX_H = 130, 44
WIDTH, HEIGHT = 1020, 330
BOW = 70
"""How far an edge between boxes of one row that are not neighbours bows out, pixels."""
NEIGHBOURS = 200


def _edge(source: TurnState, target: TurnState) -> str:
    (x1, y1), (x2, y2) = PLACES[source], PLACES[target]
    if source is target:
        return f"M {x1 - 16} {y1 + BOX_H // 2} c 0 26 32 26 32 0" if y1 > 200 else _loop(x1, y1)
    if y1 == y2:
        if x2 - x1 == NEIGHBOURS:
            return f"M {x1 + BOX_W // 2} {y1} L {x2 - BOX_W // 2} {y2}"
        bow = y1 - BOX_H // 2 - BOW * (x2 - x1) // (2 * NEIGHBOURS)
        return f"M {x1 + 30} {y1 - BOX_H // 2} Q {(x1 + x2) // 2} {bow} {x2 - 30} {y2 - BOX_H // 2}"
    if y2 > y1:
        return f"M {x1 + 20} {y1 + BOX_H // 2} L {(x1 + 3 * x2) // 4} {y2 - BOX_H // 2}"
    return f"M {x1 + BOX_W // 2} {y1} Q {x2} {y1} {x2} {y2 + BOX_H // 2}"


def _loop(x: int, y: int) -> str:
    return f"M {x - 44} {y + BOX_H // 2} c 0 26 32 26 32 0"


def svg() -> str:
    """The picture, byte for byte the same for the same edges."""
    states = list(TurnState)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        "<title>The life of a turn: drawn by tools/draw_turn.py from TURN_EDGES</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        '<g fill="none" stroke="#555" stroke-width="1.4" marker-end="url(#head)">',
    ]
    for source in states:
        for target in states:
            if target in TURN_EDGES[source]:
                path = _edge(source, target)
                lines.append(f'<path d="{path}"><title>{source.value} to {target.value}</title></path>')
    lines += ["</g>", '<g text-anchor="middle" font-size="15">']
    for state in states:
        x, y = PLACES[state]
        ends = state is TurnState.SETTLED
        lines.append(
            f'<rect x="{x - BOX_W // 2}" y="{y - BOX_H // 2}" width="{BOX_W}" height="{BOX_H}" rx="8" fill="#f4f6f8" '
            f'stroke="#222" stroke-width="{3 if ends else 1.4}"/>'
        )
        lines.append(f'<text x="{x}" y="{y + 5}">{state.value.upper()}</text>')
    return "\n".join([*lines, "</g>", "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/turn.svg").write_text(svg(), encoding="utf-8")
