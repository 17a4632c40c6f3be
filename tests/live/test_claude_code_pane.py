"""The real Claude Code in a real pane: what every CLI promises there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pane_kit import PaneHost, Ways
from pane_promises import *  # noqa: F403 - the tests that every CLI in a pane is put to

pytestmark = pytest.mark.live


@pytest.fixture
def host(claude: Path) -> Iterator[PaneHost]:
    ways = Ways(
        provider="claude-code",
        version="2.1.332",
        argv=(str(claude),),
        options={"permission_mode": "default"},
        asking={"permission_mode": "default"},
        approval="[[tool:Bash:touch {file}]][[say:touched]] please",
        records=".claude/projects/*/*.jsonl",
        ended='"turn_duration"',
        error_kinds={400: "invalid_request", 401: "authentication", 429: "rate_limited"},
        stamped_early_s=1.0,
    )
    with PaneHost(ways) as made:
        yield made
