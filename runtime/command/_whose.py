"""Whose record a file is: each provider's reader takes the head of it, and what it makes of that is compared. Pure."""

from __future__ import annotations

from lastword.actors.core.adapter import Reader, SourceSpec
from lastword.actors.core.facts import UnknownRecord
from lastword.actors.core.reading import read_turns

HEAD_BYTES = 1024 * 1024
"""So much of a file is looked at. A last line that is cut by this is one unknown record for every form."""


def fits(head: bytes) -> list[str]:
    """The providers whose form it is; several where they write the same one.

    Those whose reader tells a turn of it, leaves the fewest records unknown, and tells more than half of what the best
    of them tells.
    """
    from lastword.transports.providers.readers import RECORDS  # noqa: PLC0415 - late: all known providers

    found = {reader.name: fit for reader in RECORDS if (fit := _fit(reader, head)) is not None}
    fewest = min((unknown for unknown, _ in found.values()), default=0)
    told = {name: told for name, (unknown, told) in found.items() if unknown == fewest}
    return sorted(name for name in told if 2 * told[name] > max(told.values()))


def _fit(reader: Reader, head: bytes) -> tuple[int, int] | None:
    """How many records are unknown to it, and how many facts it tells; None where it tells no turn."""
    oracle = reader.oracle(SourceSpec(kind="append-jsonl", path="head", root=""), "", 0)
    facts = [*oracle.feed("head", head), *oracle.eof("head")]
    if not read_turns(facts):
        return None
    unknown = sum(isinstance(fact, UnknownRecord) for fact in facts)
    return unknown, len(facts) - unknown
