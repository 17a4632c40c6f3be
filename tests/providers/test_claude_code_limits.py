"""When a limit of Claude Code ends, from its own record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import TurnClosed
from lastword.actors.core.outcome import TurnError
from lastword.transports.providers.claude_code_oracle import ClaudeOracle

LIMITS = Path(__file__).parents[1] / "fixtures" / "claude_code" / "2.1.332" / "limits"


def failed(raw: bytes) -> TurnError:
    oracle = ClaudeOracle(SourceSpec(kind="append-jsonl", path="t.jsonl", root="."), "")
    (closed,) = [fact for fact in oracle.feed("t.jsonl", raw) if isinstance(fact, TurnClosed)]
    assert closed.status == "failed"
    assert closed.error is not None
    return closed.error


@pytest.mark.contract("C03")
def test_c03_a_usage_limit_says_when_it_ends() -> None:
    error = failed((LIMITS / "usage_limit.jsonl").read_bytes())
    assert (error.kind, error.resets_at, error.status_code) == ("rate_limited", 1796220000.0, 429)


@pytest.mark.contract("C03")
def test_c03_a_429_without_an_end_on_record_invents_none() -> None:
    error = failed((LIMITS / "plain_429.jsonl").read_bytes())
    assert (error.kind, error.resets_at, error.status_code) == ("rate_limited", None, 429)


@pytest.mark.contract("C03")
@pytest.mark.parametrize("quota", [None, 3, [], {}, {"resetsAt": None}, {"resetsAt": "soon"}, {"resetsAt": True}])
def test_c03_an_odd_limit_still_settles(quota: Any) -> None:
    lines = [json.loads(line) for line in (LIMITS / "usage_limit.jsonl").read_text().splitlines()]
    lines[-1]["quotaLimits"] = quota
    error = failed("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert (error.kind, error.resets_at) == ("rate_limited", None)
