"""Every adapter that has no CLI here is certified on what imitates its CLI or its service, and labelled so (C52, C53)."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from lastword.actors.core.facts import Fact, TurnClosed
from lastword.runtime.testing.conformance import CERTIFICATIONS, Report, Subject, certify, due, run_one, table
from lastword.runtime.testing.conformance.subjects import on_emulator
from lastword.transports.providers import ADAPTERS
from lastword.transports.providers.acp_oracle import AcpOracle

pytestmark = [pytest.mark.contract("C52"), pytest.mark.contract("C53")]
NO_CLI = [
    adapter
    for (_, transport), adapter in ADAPTERS.items()
    if transport == "api" or "emulated" in adapter.capabilities or (transport != "memory" and not adapter.executables)
]
QUICK = ("plain_turn", "completion_gate", "retained_turn", "failure", "oracle_rules", "fresh_process", "label")


def named(adapter: Any) -> str:
    return f"{adapter.name}-{adapter.transport}"


@pytest.mark.contract("C05")
@pytest.mark.parametrize("adapter", NO_CLI, ids=named)
def test_c53_an_adapter_without_a_cli_here_is_certified_on_what_imitates_it(adapter: Any) -> None:
    subject = on_emulator(adapter)
    assert subject is not None, "nothing imitates it: `lastword certify` could not try it"
    wanted = [each.name for each in due(adapter) if each.name in QUICK]
    assert ("retained_turn" in wanted) is ("process_per_turn" not in adapter.capabilities)
    report = certify(subject, only=wanted)
    assert report.certified, "\n".join(table([report]))
    assert (report.realness, bool(report.version)) == ("emulated", True)


@pytest.mark.contract("C42")
def test_c42_a_kept_stream_without_times_is_told_as_not_shown_and_never_as_shown() -> None:
    subject = on_emulator(ADAPTERS["acp", "structured"])
    assert subject is not None
    result = run_one(claiming(subject, "asserts_completion"), CERTIFICATIONS["stall_diagnosis"])
    assert (result.outcome, result.rules) == ("passed", ("C41",))
    assert [rule for rule, _ in result.not_shown] == ["C42"]
    report = Report(provider="acp", transport="structured", version="1", realness="emulated", results=(result,))
    lines = table([report])
    assert "passed, in part" in lines[1]
    assert "C42 not shown: its record tells no time" in lines[2]
    assert "CERTIFIED but for what is not shown" in lines[3]


def claiming(subject: Subject, capability: str) -> Subject:
    """The same adapter with that claim too."""
    adapter: Any = subject.adapter
    kind = type(
        f"Other{type(adapter).__name__}", (type(adapter),), {"capabilities": adapter.capabilities | {capability}}
    )
    other = kind.__new__(kind)
    other.__dict__.update(adapter.__dict__)
    return msgspec.structs.replace(subject, adapter=other)


@pytest.mark.contract("C20")
def test_c20_an_apis_model_is_told_of_a_message_while_its_tool_runs() -> None:
    subject = on_emulator(ADAPTERS["anthropic", "api"])
    assert subject is not None
    result = run_one(subject, CERTIFICATIONS["inject"])
    assert result.outcome == "passed", result.why


@pytest.mark.parametrize("provider", ["muse", "acp"])
def test_c52_who_falsely_claims_or_hides_a_process_for_each_turn_is_refused(provider: str) -> None:
    subject = on_emulator(ADAPTERS[provider, "structured"])
    assert isinstance(subject, Subject)
    adapter: Any = subject.adapter
    kind = type(f"Other{type(adapter).__name__}", (type(adapter),), {})
    other = kind.__new__(kind)
    other.__dict__.update(adapter.__dict__)
    kind.capabilities = adapter.capabilities ^ {"process_per_turn"}
    changed = msgspec.structs.replace(subject, adapter=other)
    name = "fresh_process" if "process_per_turn" in other.capabilities else "retained_turn"
    changed = msgspec.structs.replace(changed, wait_s=3.0)
    assert name in {each.name for each in due(other)}
    assert run_one(changed, CERTIFICATIONS[name]).outcome == "FAILED"


@pytest.mark.contract("C05")
def test_c05_an_end_that_no_stamp_tells_is_late_against_what_another_process_saw(monkeypatch: Any) -> None:
    subject = on_emulator(ADAPTERS["acp", "structured"])
    assert subject is not None
    feed = AcpOracle.feed

    def slow(self: AcpOracle, source: str, chunk: bytes) -> list[Fact]:
        facts = feed(self, source, chunk)
        if any(isinstance(fact, TurnClosed) for fact in facts):
            time.sleep(1.2)  # something optional before the completion
        return facts

    monkeypatch.setattr(AcpOracle, "feed", slow)
    result = run_one(subject, CERTIFICATIONS["plain_turn"])
    assert result.outcome == "FAILED"
    assert "behind its terminal record" in result.why
