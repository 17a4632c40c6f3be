from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from structured_kit import StdioHost

pytest.register_assert_rewrite("acp_promises")
SCRIPTED_ACP = Path(__file__).parents[2] / "runtime" / "testing" / "scripted_acp.py"


def scripted(*faults: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTED_ACP), *(word for fault in faults for word in ("--fault", fault)))


@pytest.fixture
def host() -> Iterator[StdioHost]:
    with StdioHost(scripted(), provider="acp") as made:
        yield made


@pytest.fixture
def hosts() -> Iterator[Callable[..., StdioHost]]:
    """Makes hosts whose agent has these faults; each must come to a clean end."""
    with ExitStack() as stack:

        def build(*faults: str, **options: Any) -> StdioHost:
            return stack.enter_context(StdioHost(scripted(*faults), provider="acp", **options))

        yield build
