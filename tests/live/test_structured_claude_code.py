"""The promises of the structured transport, on the real Claude Code and a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from structured_kit import StdioHost
from structured_promises import *  # noqa: F403 - the tests that both CLIs are put to

pytestmark = pytest.mark.live


@pytest.fixture
def host(claude: Path) -> Iterator[StdioHost]:
    with StdioHost((str(claude),)) as made:
        yield made
