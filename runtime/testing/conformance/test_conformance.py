"""What the pytest plugin runs: ``pytest --pyargs lastword.runtime.testing.conformance --lastword-subject …``."""

from __future__ import annotations

import pytest

from lastword.runtime.testing.conformance import Certification, Subject, claims_without_proof, plugin, run_one
from lastword.runtime.testing.conformance._run import proofs_without_claim


def test_conformance(subject: Subject, certification: Certification, request: pytest.FixtureRequest) -> None:
    """One certification, and no capability seen in it that is not claimed."""
    refused = [each for each in claims_without_proof(subject) if each.certification in ("-", certification.name)]
    result = refused[0] if refused else run_one(subject, certification)
    plugin.keep(request.config, subject, result)
    unclaimed = proofs_without_claim(subject, [result])
    for each in unclaimed:
        plugin.keep(request.config, subject, each)
    assert result.outcome == "passed", f"{result.outcome} {result.proves}: {result.why}"
    assert not unclaimed, f"seen at work, and not claimed: {', '.join(each.proves for each in unclaimed)}"
