"""The conformance kit: a claim needs a proof, a proof needs a claim, every transport has a floor (C50, C52, C53)."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from lastword.actors.core.adapter import Capability, Oracle, PaneAdapter, StructuredAdapter
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.facts import Fact, TurnClosed
from lastword.actors.core.talk import Talk
from lastword.runtime._handed_in import _parts_of
from lastword.runtime.testing.conformance import (
    CERTIFICATIONS,
    FLOORS,
    PROOFS,
    Bench,
    Report,
    Subject,
    claims_without_proof,
    due,
    probe,
    probes,
    proofs_without_claim,
    run_one,
    table,
)
from lastword.runtime.testing.conformance.subjects import on_emulator, on_real
from lastword.transports.providers import ADAPTERS

EXAMPLES = Path(__file__).parents[2] / "examples" / "third_party"
DRIVEN = [adapter for (_, transport), adapter in ADAPTERS.items() if transport != "memory"]


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("parrot_adapter")


def claiming(subject: Subject, *capabilities: str) -> Subject:
    """The same adapter with these claims."""
    kind = type(subject.adapter)
    adapter = type(kind.__name__, (kind,), {"capabilities": frozenset(capabilities)})()
    return msgspec.structs.replace(subject, adapter=adapter)


# --- the registry


@pytest.mark.contract("C52")
def test_c52_every_capability_has_a_certification_and_every_transport_a_floor() -> None:
    assert set(PROOFS) == set(get_args(Capability))
    assert not [name for name, proofs in PROOFS.items() if not proofs]
    assert set(FLOORS) == set(get_args(TransportName))
    for transport, floor in FLOORS.items():
        assert {"plain_turn", "completion_gate", "retained_turn", "isolation", "clean_end"} <= set(floor), transport
        assert set(floor) <= set(CERTIFICATIONS)
    proving = {each.name for proofs in PROOFS.values() for each in proofs}
    floors = {name for floor in FLOORS.values() for name in floor}
    assert proving | floors == set(CERTIFICATIONS), "a certification that nothing asks for"
    assert not proving & floors


@pytest.mark.contract("C52")
@pytest.mark.parametrize("adapter", DRIVEN, ids=lambda adapter: f"{adapter.name}-{adapter.transport}")
def test_c52_no_built_in_adapter_claims_what_nothing_can_show(adapter: Any) -> None:
    subject = on_real(adapter, ("true",))
    assert claims_without_proof(subject) == ()
    assert {each.proves for each in due(adapter)} - {None} == adapter.capabilities


# --- the gates, each of them seen to refuse


@pytest.mark.contract("C52")
def test_c52_a_claim_that_no_certification_proves_is_refused(parrot: Any) -> None:
    (refused,) = claims_without_proof(claiming(parrot.SUBJECT, "interrupt", "teleports"))
    assert (refused.outcome, refused.proves) == ("UNPROVED", "teleports")


@pytest.mark.contract("C52")
def test_c52_a_claim_that_its_cli_cannot_be_asked_to_show_is_refused(parrot: Any) -> None:
    (refused,) = claims_without_proof(claiming(parrot.SUBJECT, "cli_started_turns"))
    assert (refused.certification, refused.outcome) == ("own_turn", "UNPROVED")


@pytest.mark.tmux
@pytest.mark.contract("C52")
def test_c52_a_false_claim_fails_its_certification(parrot: Any) -> None:
    result = run_one(claiming(parrot.SUBJECT, "versions_in_record"), CERTIFICATIONS["version"])
    assert (result.outcome, result.proves) == ("FAILED", "versions_in_record")
    assert "no version" in result.why


@pytest.mark.contract("C52")
def test_c52_what_is_shown_and_not_claimed_is_refused() -> None:
    subject = on_emulator(ADAPTERS["claude-code", "structured"])
    assert subject is not None
    assert proofs_without_claim(subject, [run_one(subject, CERTIFICATIONS["tool_receipts"])]) == ()
    modest = claiming(subject, *(subject.adapter.capabilities - {"tool_calls"}))
    result = run_one(modest, CERTIFICATIONS["tool_receipts"])
    assert result.outcome == "passed"
    (unclaimed,) = proofs_without_claim(modest, [result])
    assert (unclaimed.outcome, unclaimed.proves) == ("UNCLAIMED", "tool_calls")


@pytest.mark.tmux
@pytest.mark.contract("C52")
def test_c52_what_works_when_it_is_tried_and_is_not_claimed_is_refused(parrot: Any) -> None:
    modest = claiming(parrot.SUBJECT)
    found = [probe(modest, each) for each in probes(modest.adapter)]
    told = [(each.certification, each.outcome, each.proves) for each in found if each is not None]
    assert told == [
        ("interrupt", "UNCLAIMED", "interrupt"),
        ("resume", "UNCLAIMED", "resume"),
        ("queue", "UNCLAIMED", "queues_while_busy"),
    ]


@pytest.mark.tmux
@pytest.mark.contract("C52")
def test_c52_what_does_not_work_when_it_is_tried_is_no_fault(parrot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastword.runtime.testing.conformance._run.PROBE_WAIT_S", 3.0)
    deaf = type("Deaf", (parrot.ParrotAdapter,), {"capabilities": frozenset(), "interrupt_keys": lambda _: ("C-g",)})()
    subject = msgspec.structs.replace(parrot.SUBJECT, adapter=deaf)
    assert probe(subject, CERTIFICATIONS["interrupt"]) is None
    mute = msgspec.structs.replace(subject, words=msgspec.structs.replace(subject.words, slow=""))
    assert probe(mute, CERTIFICATIONS["queue"]) is None


@pytest.mark.contract("C52")
def test_c52_what_is_claimed_is_not_tried_again_nor_a_queue_where_the_turn_takes_the_message(parrot: Any) -> None:
    assert probes(parrot.SUBJECT.adapter) == ()
    takes = claiming(parrot.SUBJECT, "interrupt", "resume", "absorbs_while_busy")
    assert probes(takes.adapter) == ()
    assert [each.name for adapter in DRIVEN for each in probes(adapter)] == [], "of the built-in ones"


@pytest.mark.tmux
@pytest.mark.contract("C52")
def test_c52_a_record_without_times_does_not_say_when_a_turn_was_over(parrot: Any) -> None:
    class Timeless(parrot.ParrotOracle):
        def feed(self, source: str, chunk: bytes) -> list[Fact]:
            facts: list[Fact] = []
            for fact in super().feed(source, chunk):
                evidence = msgspec.structs.replace(fact.evidence, native_at=None)  # type: ignore[union-attr]
                facts.append(msgspec.structs.replace(fact, evidence=evidence))
            return facts

    class Adapter(parrot.ParrotAdapter):
        def oracle(self, source: Any, native_session: str, offset: int = 0) -> Any:
            return Timeless(offset)

    subject = msgspec.structs.replace(parrot.SUBJECT, adapter=Adapter())
    result = run_one(subject, CERTIFICATIONS["stall_diagnosis"])
    assert result.outcome == "FAILED"
    assert "tells no time" in result.why


@pytest.mark.tmux
@pytest.mark.contract("C05")
def test_c05_a_completion_that_comes_late_fails_the_certification(parrot: Any) -> None:
    class Slow(parrot.ParrotOracle):
        def feed(self, source: str, chunk: bytes) -> list[Fact]:
            facts: list[Fact] = super().feed(source, chunk)
            if any(isinstance(fact, TurnClosed) for fact in facts):
                time.sleep(1.2)  # something optional before the completion
            return facts

    class Adapter(parrot.ParrotAdapter):
        def oracle(self, source: Any, native_session: str, offset: int = 0) -> Any:
            return Slow(offset)

    subject = msgspec.structs.replace(parrot.SUBJECT, adapter=Adapter())
    result = run_one(subject, CERTIFICATIONS["plain_turn"])
    assert result.outcome == "FAILED"
    assert "behind its terminal record" in result.why


@pytest.mark.tmux
@pytest.mark.contract("C50")
def test_c50_an_oracle_that_depends_on_the_chunks_fails_the_certification(parrot: Any) -> None:
    class Whole(parrot.ParrotOracle):
        def feed(self, source: str, chunk: bytes) -> list[Fact]:
            return super().feed(source, chunk) if chunk.endswith(b"\n") else []

    class Adapter(parrot.ParrotAdapter):
        def oracle(self, source: Any, native_session: str, offset: int = 0) -> Any:
            return Whole(offset)

    subject = msgspec.structs.replace(parrot.SUBJECT, adapter=Adapter())
    assert run_one(subject, CERTIFICATIONS["oracle_rules"]).outcome == "FAILED"


def test_a_report_without_all_that_is_due_is_not_certified_and_says_real_or_emulated(parrot: Any) -> None:
    (refused,) = claims_without_proof(claiming(parrot.SUBJECT, "cli_started_turns"))
    report = Report(provider="parrot", transport="tmux", version="1.0.0", realness="emulated", results=(refused,))
    assert not report.certified
    lines = "\n".join(table([report]))
    assert "emulated" in lines
    assert "UNPROVED" in lines
    assert "NOT CERTIFIED" in lines
    assert not msgspec.structs.replace(report, results=()).certified


# --- a third party's adapter


@pytest.mark.tmux
@pytest.mark.contract("C53")
def test_c53_a_third_partys_adapter_is_certified_by_the_same_kit_through_pytest(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path != str(EXAMPLES)),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "lastword.runtime.testing.conformance.plugin",
        "--import-mode=importlib",
    ]
    kit = ["--pyargs", "lastword.runtime.testing.conformance", "--lastword-subject", "parrot_adapter:SUBJECT"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *words, "-c", os.devnull, "--rootdir", str(tmp_path), *kit],
        env=environment,
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parrot 1.0.0 over tmux (real): CERTIFIED" in done.stdout
    assert "13 passed" in done.stdout


@pytest.mark.contract("C53")
@pytest.mark.parametrize("name", ["plain_turn", "failure", "oracle_rules", "fresh_process"])
def test_c53_a_third_partys_cli_that_is_a_process_a_turn_is_certified_by_the_same_kit(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    subject = importlib.import_module("quill_adapter").SUBJECT
    assert claims_without_proof(subject) == ()
    assert probes(subject.adapter) == ()
    result = run_one(subject, CERTIFICATIONS[name])
    assert (result.outcome, result.why) == ("passed", "")


def test_every_part_of_an_adapter_stands_in_the_checklist() -> None:
    checklist = (EXAMPLES.parents[1] / "docs" / "adding-a-provider.md").read_text(encoding="utf-8")
    for kind in (PaneAdapter, StructuredAdapter, Oracle, Talk):
        missing = [name for name in _parts_of(kind) if f"`{name}" not in checklist]
        assert not missing, (kind.__name__, missing)


def test_lastword_certify_prints_the_table_and_its_exit_code_tells() -> None:
    def certify(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "lastword.runtime.command", "certify", *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path != str(EXAMPLES))},
            cwd=EXAMPLES,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = certify("claude-code", "--transport", "structured", "--emulated", "--only", "plain_turn")
    assert done.returncode == 0, done.stderr
    assert "claude-code  structured  2.1.332  emulated  plain_turn" in done.stdout
    assert "CERTIFIED" not in done.stdout, "a part is no certificate"
    assert certify("nobody").returncode == 2
    assert certify("codex", "--emulated").returncode == 2
    assert certify("claude-code", "--only", "nothing").returncode == 2
    done = certify("parrot_adapter:SUBJECT", "--only", "oracle_rules")
    assert done.returncode == 0, done.stderr
    for name in ("parrot_adapter:NOTHING", "no_such_module:SUBJECT", ":SUBJECT"):
        done = certify(name)
        assert (done.returncode, "cannot be imported" in done.stderr) == (2, True), done.stderr


@pytest.mark.tmux
@pytest.mark.parametrize(("version", "uncertified"), [("1.0.0", False), ("1.0.1", True)])
def test_a_completion_names_a_version_of_its_cli_that_was_never_certified(
    parrot: Any, version: str, uncertified: bool
) -> None:
    class Adapter(parrot.ParrotAdapter):
        certified_versions = (version,)

    subject = msgspec.structs.replace(parrot.SUBJECT, adapter=Adapter())
    with Bench(subject) as bench:
        done = bench.say(bench.session(), "hello")
        assert (done.cli_version, done.cli_uncertified) == ("1.0.0", uncertified)
