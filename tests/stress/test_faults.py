"""1,000 turns with faults mixed in, on scripted CLIs in real panes: nothing early, nothing missing, nothing twice."""

from __future__ import annotations

import os
import statistics

import pytest

from fault_rig import load


@pytest.mark.stress
@pytest.mark.contract("C02")
def test_a_thousand_turns_with_faults_in_real_panes() -> None:
    seed = int(os.environ.get("LASTWORD_SEED", "1"))
    sessions = int(os.environ.get("LASTWORD_SESSIONS", "20"))
    each = int(os.environ.get("LASTWORD_TURNS", "1000")) // sessions
    tally = load(sessions, each, seed, slow=True, say=True)
    fast = sorted(tally.latencies_ms)
    print(
        f"\nseed {seed}: {tally.turns} turns in {sessions} sessions: {dict(tally.statuses)}; early, missing, double, "
        f"wrong, raised, hung: {tally.account.counts()}; record read -> committed p50 {statistics.median(fast):.2f} ms, "
        f"p99 {fast[int(len(fast) * 0.99)]:.2f} ms"
    )
    tally.account.tell()
    assert tally.account.clean
    assert tally.turns == sessions * each
