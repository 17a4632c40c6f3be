"""The README's table of exceptions against the code: each kind has one class, and is raised by it alone (C21)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

from lastword.actors.core import errors
from lastword.actors.core.session import SessionCore

ROOT = Path(__file__).parents[1]
KINDS = {
    "UsageError": errors.UsageKind,
    "RejectedError": errors.RejectedKind,
    "ProviderError": errors.ProviderKind,
    "TransportError": errors.TransportKind,
    "JournalError": errors.JournalKind,
    "ActorError": errors.ActorKind,
}
SUBCLASSES = {"TransportTimeoutError": ("TransportError", "transport_timeout")}


def documented() -> dict[str, set[str]]:
    """Class to kinds, as the README has them."""
    rows = re.findall(r"^\| `(\w+Error)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", kinds)) for name, kinds in rows}


def raised() -> dict[str, set[str]]:
    """Class to kinds, as the sources make them: the words themselves, and those that a rule of the core answers with."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in ("actors", "runtime", "transports"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                name = node.func.id
                if name in SUBCLASSES:
                    found[SUBCLASSES[name][0]].add(SUBCLASSES[name][1])
                elif name in (*KINDS, "LastwordError") and node.args:
                    kind = node.args[0]
                    if isinstance(kind, ast.Constant):
                        found[name].add(str(kind.value))
    found["RejectedError"] |= {"busy", "overloaded"} & _refusals()
    return found


def _refusals() -> set[str]:
    tree = ast.parse((ROOT / "actors/core/session.py").read_text())
    assert SessionCore.admit
    words = (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "refused")
    return {str(word.value) for word in words if isinstance(word, ast.Constant)}


@pytest.mark.contract("C21")
def test_c21_the_table_of_exceptions_is_what_the_types_say() -> None:
    assert documented() == {name: set(get_args(kinds)) for name, kinds in KINDS.items()}


@pytest.mark.contract("C21")
def test_c21_each_documented_kind_is_raised_and_by_its_class_only() -> None:
    assert raised() == documented()


@pytest.mark.contract("C21")
def test_c21_no_kind_has_two_classes_and_every_kind_is_in_the_union() -> None:
    kinds = [kind for each in KINDS.values() for kind in get_args(each)]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == {kind for union in get_args(errors.Kind) for kind in get_args(union)}
