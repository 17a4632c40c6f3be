"""What the canary of the newest CLIs says differs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import live_latest


def test_only_an_outcome_that_changed_is_a_difference() -> None:
    pinned = {"tmux plain_turn": "passed", "tmux dialog dialogs": "FAILED (a)", "tmux clear clear": "passed"}
    latest = {"tmux plain_turn": "FAILED (late)", "tmux dialog dialogs": "FAILED (b)", "tmux version": "passed"}
    assert live_latest.differences(pinned, latest) == [
        "tmux clear clear: passed -> not due",
        "tmux plain_turn: passed -> FAILED (late)",
        "tmux version: not due -> passed",
    ]
    assert live_latest.differences(pinned, pinned) == []
