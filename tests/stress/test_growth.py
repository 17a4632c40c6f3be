"""What a session keeps of a turn that is over does not grow with the number of turns (but for bounded memories)."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from lastword import Runtime
from lastword.actors.session_turns import OpenTurns
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld

WARM, TURNS = 10, 1_000
OBJECTS_MAX = TURNS // 2
"""Half an object a turn: one that each turn leaves behind is beyond it, the interpreter's own coming and going is not."""


def objects() -> int:
    for _ in range(3):
        gc.collect()
    return len(gc.get_objects())


def grown(folder: Path) -> int:
    """Objects more after 1,000 turns of one session than after 10."""
    world = MemoryWorld()
    with Runtime.open(folder, edge=memory_edge(world), durability="process") as runtime:
        session = runtime.session("memory")
        for turn in range(WARM):
            session.run(f"warm {turn}", deadline_s=60)
        before = objects()
        for turn in range(WARM, TURNS):
            session.run(f"turn {turn}", deadline_s=60)
        return objects() - before


def test_a_thousand_turns_of_a_session_leave_no_objects_behind(tmp_path: Path) -> None:
    assert grown(tmp_path) < OBJECTS_MAX


def test_a_session_that_keeps_its_turns_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, kept = OpenTurns.begin, []

    def keep(self: OpenTurns, state: Any, first: Any) -> None:
        kept.append([state])
        begin(self, state, first)

    monkeypatch.setattr(OpenTurns, "begin", keep)
    assert grown(tmp_path) >= OBJECTS_MAX


def test_an_in_process_world_can_forget_those_that_ended(tmp_path: Path) -> None:
    world = MemoryWorld()
    with Runtime.open(tmp_path, edge=memory_edge(world), durability="process") as runtime:
        lives = runtime.session("memory")
        ends = runtime.session("memory")
        for session in (lives, ends):
            session.run("hello", deadline_s=60)
        ends.close()
        (alive,) = world.alive()
        world.forget_ended()
        assert (list(world.clis.values()), world.started, len(world.opened)) == ([alive], [alive], 1)
        assert sorted(world._files) == sorted([alive.path, alive.registry_path])
        assert lives.run("again", deadline_s=60).status == "completed"
