"""The independent checker of the in-process stress run: it finds nothing where nothing is wrong, and what is wrong."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from lastword.actors.core.facts import Fact
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers.memory import MemoryOracle, Record

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def stress(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("stress_memory")
    yield module
    for name in ("stress_memory", "_account", "_arguments", "_chart", "_ending", "_listeners", "_report"):
        sys.modules.pop(name, None)


def found(stress: Any, folder: Path) -> list[int]:
    """Early, missing, double, wrong."""
    row = asyncio.run(stress.load(folder, 20, 3))
    named = dict(zip(stress.COLUMNS, row, strict=True))
    return [named[what] for what in ("early", "missing", "double", "wrong")]


@pytest.mark.contract("C02")
def test_c02_turns_of_sessions_at_the_same_time_end_once_each_with_their_own_answer(
    stress: Any, tmp_path: Path
) -> None:
    assert found(stress, tmp_path) == [0, 0, 0, 0]


def test_a_product_that_ends_a_turn_at_the_first_text_is_reported_as_early(
    stress: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = MemoryOracle._fact

    def end_at_the_first_text(self: MemoryOracle, record: Record, evidence: Evidence) -> Fact:
        if record.k == "said":
            record = msgspec.structs.replace(record, k="end", status="completed")
        return fact(self, record, evidence)

    monkeypatch.setattr(MemoryOracle, "_fact", end_at_the_first_text)
    early, _, _, wrong = found(stress, tmp_path)
    assert (early, wrong) == (120, 0)  # what the callers got, and what the journal holds


def test_the_report_says_the_same_in_markdown_json_and_a_chart(stress: Any, tmp_path: Path) -> None:
    rows = [["paced", 1, 1.5, 0.0], ["paced", 10, 30.0, float("nan")]]
    columns = ["load", "panes", "p50 ms", "p99 ms"]
    stress.report(tmp_path, "panes", "Panes", columns, rows, columns[2:], "panes")
    table = (tmp_path / "panes.md").read_text()
    assert table.startswith("### Panes")
    assert "| paced | 10 | 30.00 | - |" in table
    assert [row["p50 ms"] for row in json.loads((tmp_path / "panes.json").read_text())] == [1.5, 30.0]
    drawn = ET.parse(tmp_path / "panes.svg").getroot()
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 3
