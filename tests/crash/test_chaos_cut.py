"""A short cut of `make chaos`: the host is killed again and again, and nothing is lost, doubled or typed twice."""

from __future__ import annotations

import pytest

from chaos_rig import storm


@pytest.mark.tmux
@pytest.mark.contract("C02")
@pytest.mark.contract("C09")
@pytest.mark.contract("C17")
def test_c17_a_host_killed_again_and_again_loses_doubles_and_retypes_nothing() -> None:
    outcome = storm(rounds=12, sessions=3, turns=14, seed=3)
    assert outcome.faults == []
    assert outcome.rounds >= 4


@pytest.mark.tmux
@pytest.mark.contract("C02")
def test_c02_without_insert_or_nothing_the_checker_sees_turns_with_two_completions() -> None:
    """The gate itself: the product is broken on purpose, and the storm must be red for that very reason."""
    outcome = storm(rounds=2, sessions=2, turns=12, seed=5, sabotage=True, lost_acks=0.3)
    assert any("completions told" in fault for fault in outcome.faults), outcome.faults
