"""Certifying one subject: what is due, what came of it, and the table. A claim needs a proof, a proof needs a claim."""

from __future__ import annotations

import statistics
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from lastword.actors.core.adapter import AnyAdapter, Capability
from lastword.actors.core.errors import LastwordError
from lastword.runtime.testing.conformance._bench import GATE_S, Bench
from lastword.runtime.testing.conformance._certifications import CERTIFICATIONS, FLOORS, INSTEAD, Certification
from lastword.runtime.testing.conformance._subject import Realness, Subject

Outcome: TypeAlias = Literal["passed", "FAILED", "UNPROVED", "UNCLAIMED"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one certification.

    Attributes:
        outcome: ``UNPROVED``: claimed, or of the floor, and nothing here can show it; ``UNCLAIMED``: shown, and not
            claimed.
        rules: that were judged. not_shown: those that could not be, with the reason, though the rest of it passed.
        why: of everything but ``passed``.
        delays_s: terminal record -> completion, of each turn. observed: capabilities that were seen at work.
        versions: of the CLI, as the completions tell.
    """

    certification: str
    outcome: Outcome
    rules: tuple[str, ...] = ()
    not_shown: tuple[tuple[str, str], ...] = ()
    proves: str = ""
    why: str = ""
    delays_s: tuple[float, ...] = ()
    observed: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All of one subject."""

    provider: str
    transport: str
    version: str
    realness: Realness
    results: tuple[Result, ...]
    whole: bool = True

    @property
    def certified(self) -> bool:
        """Everything that is due was shown, and nothing else."""
        return bool(self.results) and all(each.outcome == "passed" for each in self.results)

    @property
    def delays_s(self) -> list[float]:
        """Terminal record -> completion of every turn, sorted."""
        return sorted(delay for each in self.results for delay in each.delays_s)


def due(adapter: AnyAdapter) -> tuple[Certification, ...]:
    """What that adapter has to show: its transport's floor, and a proof of each capability that it claims, instead of
    that part of the floor where it says otherwise.
    """
    floor = {name for name in FLOORS[adapter.transport] if INSTEAD.get(name) not in adapter.capabilities}
    return tuple(each for each in CERTIFICATIONS.values() if each.name in floor or each.proves in adapter.capabilities)


def claims_without_proof(subject: Subject) -> tuple[Result, ...]:
    """Capabilities that it claims and for which there is no certification, or no way to ask this CLI for it."""
    refused = [
        Result(certification="-", outcome="UNPROVED", proves=name, why="no certification proves that capability")
        for name in sorted(set(subject.adapter.capabilities) - set(get_args(Capability)))
    ]
    for each in due(subject.adapter):
        if not getattr(subject.words, each.word):
            why = f"its CLI cannot be asked for it: no words.{each.word}"
            refused.append(_result(each, "UNPROVED", why))
    return tuple(refused)


def run_one(subject: Subject, each: Certification) -> Result:
    """Run it, in a sealed folder of its own. Never raises but for what is no failure of the subject's."""
    bench = Bench(subject)
    try:
        with bench:
            each.run(bench)
    except (AssertionError, LastwordError) as error:
        return _result(each, "FAILED", _told(error), bench)
    except Exception as error:
        return _result(each, "FAILED", f"{type(error).__name__}: {error}", bench)
    if (late := max(bench.delays_s, default=0.0)) > (allowed := GATE_S + subject.stamped_early_s):
        why = f"a completion came {late:.2f} s behind its terminal record, at most {allowed:g} s are allowed"
        return _result(each, "FAILED", why, bench)
    return _result(each, "passed", "", bench)


def proofs_without_claim(subject: Subject, results: Iterable[Result]) -> tuple[Result, ...]:
    """Capabilities that were seen at work and that it does not claim: a host would not know of them."""
    seen = set[str]().union(*(each.observed for each in results))
    return tuple(
        Result(certification="-", outcome="UNCLAIMED", proves=name, why="seen at work, and not claimed")
        for name in sorted(seen - set(subject.adapter.capabilities))
    )


PROBE_WAIT_S = 20.0
"""How long a probe waits for any one thing: one that shows nothing is no fault."""


def probes(adapter: AnyAdapter) -> tuple[Certification, ...]:
    """What is tried though it is not claimed, for it can be tried on any CLI: a text, a key, a second start. A message
    while busy that goes into the running turn, as claimed, is no queue.
    """
    claimed = adapter.capabilities
    tried: dict[str, frozenset[Capability]] = {
        "interrupt": frozenset(),
        "resume": frozenset(),
        "queue": frozenset({"absorbs_while_busy", "injects_while_busy"}),
    }
    return tuple(
        CERTIFICATIONS[name]
        for name, instead in tried.items()
        if CERTIFICATIONS[name].proves not in claimed and not instead & claimed
    )


def probe(subject: Subject, each: Certification) -> Result | None:
    """The refusal, where it is shown all the same: a host would not know of it. None where it is not, or where its CLI
    cannot be asked for it.
    """
    if not getattr(subject.words, each.word):
        return None
    impatient = msgspec.structs.replace(subject, wait_s=min(subject.wait_s, PROBE_WAIT_S))
    shown = run_one(impatient, each)
    if shown.outcome != "passed":
        return None
    return msgspec.structs.replace(shown, outcome="UNCLAIMED", why="shown when it was tried, and not claimed")


def certify(subject: Subject, *, only: Sequence[str] = (), told: Callable[[Result], None] = lambda _: None) -> Report:
    """Certify it, one after the other.

    Args:
        subject: an adapter and its CLI.
        only: names of certifications; default: all that are due.
        told: called with each result as it comes.

    Raises:
        ProviderError: ``provider_unavailable``: its CLI is not there, or does not say its version.
    """
    with Bench(subject) as bench:
        version = bench.version()
    results = [each for each in claims_without_proof(subject) if not only or each.certification in only]
    unproved = {each.certification for each in results}
    for each in due(subject.adapter):
        if each.name not in unproved and (not only or each.name in only):
            results.append(run_one(subject, each))
            told(results[-1])
    results += proofs_without_claim(subject, results)
    if not only:
        for unclaimed in filter(None, (probe(subject, each) for each in probes(subject.adapter))):
            results.append(unclaimed)
            told(unclaimed)
    return Report(
        provider=subject.adapter.name,
        transport=subject.adapter.transport,
        version=version or ", ".join(sorted(set().union(*(each.versions for each in results)))),
        realness=subject.realness,
        results=tuple(results),
        whole=not only,
    )


def table(reports: Iterable[Report]) -> list[str]:
    """Adapter x transport x certification, as lines, with the CLI's version and whether it is real or emulated."""
    cells = [("PROVIDER", "TRANSPORT", "VERSION", "CLI", "CERTIFICATION", "CAPABILITY", "RESULT", "RULES")]
    notes: list[str] = []
    for report in reports:
        head = (report.provider, report.transport, report.version or "-", report.realness)
        for each in report.results:
            proves = each.proves or "(floor)"
            how = f"{each.outcome}, in part" if each.not_shown else each.outcome
            cells.append((*head, each.certification, proves, how, " ".join(each.rules)))
            which = f"{report.provider}/{report.transport} {each.certification} {proves}"
            if each.why:
                notes.append(f"{which}: {each.why}")
            notes += [f"{which}: {rule} not shown: {why}" for rule, why in each.not_shown]
        delays = report.delays_s
        but = " but for what is not shown" if any(each.not_shown for each in report.results) else ""
        verdict = (f"CERTIFIED{but}" if report.whole else "shown, in part") if report.certified else "NOT CERTIFIED"
        measured = ""
        if delays:
            p50, worst = statistics.median(delays) * 1e3, delays[-1] * 1e3
            p99 = delays[min(len(delays) - 1, round(0.99 * (len(delays) - 1)))] * 1e3
            measured = f"; terminal record -> completion of {len(delays)} turns: p50 {p50:.1f} ms, p99 {p99:.1f} ms"
            measured += f", at most {worst:.1f} ms"
        named = report.version if report.transport == "api" else f"{report.provider} {report.version}".strip()
        notes.append(f"{named} over {report.transport} ({report.realness}): {verdict}{measured}")
    widths = [max(len(row[column]) for row in cells) for column in range(7)]
    return [*("  ".join([*map(str.ljust, row, widths), row[7]]).rstrip() for row in cells), *notes]


def _result(each: Certification, outcome: Outcome, why: str, bench: Bench | None = None) -> Result:
    not_shown = dict(bench.not_shown) if bench is not None and outcome == "passed" else {}
    return Result(
        certification=each.name,
        outcome=outcome,
        rules=tuple(rule for rule in each.rules if rule not in not_shown),
        not_shown=tuple(not_shown.items()),
        proves=each.proves or "",
        why=why,
        delays_s=tuple(bench.delays_s) if bench is not None else (),
        observed=frozenset(bench.observed) if bench is not None else frozenset(),
        versions=frozenset(bench.versions - {""}) if bench is not None else frozenset(),
    )


def _told(error: BaseException) -> str:
    """What failed, and where: an assertion without a word of its own is told by its line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error).splitlines()[0] if str(error) else ""
    return f"{said or frame.line} (line {frame.lineno} in {frame.name})"
