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
