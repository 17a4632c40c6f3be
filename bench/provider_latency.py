"""Native terminal record -> a subscriber holds the committed completion, for each adapter and transport.

The real CLI where it is on PATH or cached (`make live`), on a scripted model, sealed off; an API through its SDK. Two
sources of the native time: "seen": another process saw the record's file hold it; "stamped": the CLI's (or our own
record's) stamp in it, which some CLIs take well before they write. Prints figures, asserts nothing.

Usage: python bench/provider_latency.py [--turns 40] [PROVIDER/TRANSPORT ...]
"""

from __future__ import annotations

import argparse
import os

from _report import QUICK, percentile, show, skipped

from lastword.actors.core.errors import LastwordError, UsageError
from lastword.runtime.command._rehearse import find_real_cli
from lastword.runtime.testing.conformance import Bench, Subject
from lastword.runtime.testing.conformance.subjects import on_emulator, on_real
from lastword.transports.providers import ADAPTERS

WARM_UP = 1
"""Turns before: the first one shows where the record is."""


def subject_of(adapter) -> Subject | None:
    """None: it is no adapter of a model. Raises ``LastwordError`` where its CLI is not here."""
    if adapter.transport == "api":
        return on_emulator(adapter)
    if adapter.transport == "memory":
        return None
    if "emulated" in adapter.capabilities:
        raise UsageError("unsupported_capability", "it is emulated: there is no CLI to measure")
    return on_real(adapter, (str(find_real_cli(adapter)),))


def row_of(subject: Subject, turns: int) -> list[object]:
    with Bench(subject) as bench:
        session = bench.session()
        for number in range(WARM_UP + turns):
            bench.say(session, f"turn {number}")
        version = next(iter(bench.versions), "")
        measured = bench.measured[WARM_UP:]
    row: list[object] = [subject.name, version, subject.realness]
    for since in ([m.told - m.seen if m.seen is not None else None for m in measured],
                  [m.told - m.stamped if m.stamped is not None else None for m in measured]):  # fmt: skip
        known = [each * 1e3 for each in since if each is not None]
        row += [len(known), percentile(known, 0.5), percentile(known, 0.99)] if known else [0, "-", "-"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=8 if QUICK else 40)
    parser.add_argument("names", nargs="*", metavar="PROVIDER/TRANSPORT")
    args = parser.parse_args()
    rows = []
    for adapter in ADAPTERS.values():
        if args.names and f"{adapter.name}/{adapter.transport}" not in args.names:
            continue
        try:
            subject = subject_of(adapter)
        except LastwordError as error:
            skipped(f"{adapter.name}/{adapter.transport}", str(error))
            continue
        if subject is None:
            continue
        try:
            rows.append(row_of(subject, args.turns))
        except Exception as error:  # one that does not come up must not take the others' figures with it
            skipped(subject.name, f"{type(error).__name__}: {error}")
    columns = ["adapter", "version", "CLI", "n seen", "p50", "p99", "n stamped", "p50 stamped", "p99 stamped"]
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    show("Native terminal record -> subscriber holds the committed completion, ms", columns, rows, f"Load: {load}.")


if __name__ == "__main__":
    main()
