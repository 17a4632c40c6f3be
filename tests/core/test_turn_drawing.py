"""docs/turn.svg shows the turn machine as it is declared."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from lastword.actors.core.turn import TURN_EDGES

ROOT = Path(__file__).parents[2]


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_turn", ROOT / "tools" / "draw_turn.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_drawing_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "turn.svg").read_text(encoding="utf-8")
    assert committed == drawing().svg(), "run: python tools/draw_turn.py"


def test_every_declared_edge_is_drawn() -> None:
    shown = drawing().svg()
    for source, targets in TURN_EDGES.items():
        for target in targets:
            assert f"<title>{source.value} to {target.value}</title>" in shown
    assert shown.count("<title>") == 1 + sum(map(len, TURN_EDGES.values()))
