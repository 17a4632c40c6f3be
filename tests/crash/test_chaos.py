"""`make chaos`: 500 lives of a host over 2,000 turns, ended by SIGKILL at journal boundaries and at random points."""

from __future__ import annotations

import os
import time

import pytest

from chaos_rig import storm


@pytest.mark.stress
@pytest.mark.contract("C17")
def test_five_hundred_kills() -> None:
    rounds = int(os.environ.get("LASTWORD_ROUNDS", "500"))
    turns = int(os.environ.get("LASTWORD_TURNS", "2000"))
    seed = int(os.environ.get("LASTWORD_SEED", "1"))
    began = time.monotonic()
    total_rounds = total_turns = 0
    faults: list[str] = []
    while (total_rounds < rounds or total_turns < turns) and time.monotonic() - began < 1150 and not faults:
        outcome = storm(rounds=60, sessions=6, turns=40, seed=seed, say=True)
        seed += 1
        total_rounds += outcome.rounds
        total_turns += outcome.turns
        faults += outcome.faults
    print(f"\n{total_rounds} kills, {total_turns} turns, {len(faults)} faults, last seed {seed - 1}")
    assert faults == []
    assert total_rounds >= rounds
    assert total_turns >= turns
