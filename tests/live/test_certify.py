"""The conformance kit on the real CLIs: what each adapter claims is shown, and nothing else (C52, C53)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import live_clis
import pytest

from lastword.runtime.testing.conformance import certify, table
from lastword.runtime.testing.conformance.subjects import on_real
from lastword.transports.providers import ADAPTERS
from live.certification import REPORTS

pytestmark = [pytest.mark.live, pytest.mark.contract("C52"), pytest.mark.contract("C53")]
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE") or "/nonexistent")
REAL = [adapter for adapter in ADAPTERS.values() if adapter.name in live_clis.PINNED]
IN_EVERY_RUN = ("completion_gate", "stall_diagnosis")
"""The others, some of which wait minutes, are left to ``make live FULL=1``."""


def certified(adapter: Any, *only: str) -> None:
    if not live_clis.is_there(CACHE, adapter.name):
        pytest.skip(f"the pinned {adapter.name} is not in the cache folder: make live")
    report = certify(on_real(adapter, live_clis.argv_of(CACHE, adapter.name)), only=only)
    REPORTS.append(report)
    assert report.version == live_clis.PINNED[adapter.name].version
    assert report.certified, "\n".join(table([report]))


def named(adapter: Any) -> str:
    return f"{adapter.name}-{adapter.transport}"


@pytest.mark.contract("C05")
@pytest.mark.parametrize("adapter", REAL, ids=named)
def test_c05_every_end_is_told_in_time_and_found_by_another_reader(adapter: Any) -> None:
    certified(adapter, *IN_EVERY_RUN)


@pytest.mark.full
@pytest.mark.parametrize("adapter", REAL, ids=named)
def test_c53_every_adapter_keeps_what_it_claims_on_its_real_cli(adapter: Any) -> None:
    certified(adapter)
