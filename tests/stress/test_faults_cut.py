"""A cut of the stress run that fits into the hermetic suite."""

from __future__ import annotations

import pytest

from fault_rig import load


@pytest.mark.tmux
@pytest.mark.contract("C02")
@pytest.mark.contract("C04")
def test_turns_with_faults_in_real_panes_end_once_each_with_their_own_answer() -> None:
    tally = load(6, 12, 7, slow=False)
    assert (tally.wrong, tally.account.counts()) == ([], [0] * 6)
    assert tally.turns == 72


@pytest.mark.tmux
@pytest.mark.contract("C22")
@pytest.mark.contract("C40")
def test_turns_whose_cli_dies_or_never_says_the_end_end_once_each_too() -> None:
    tally = load(4, 6, 11, slow=True)
    assert (tally.wrong, tally.account.counts()) == ([], [0] * 6)
