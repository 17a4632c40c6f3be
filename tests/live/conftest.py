"""The pinned real CLIs, from the cache folder of `make live`; each test gets a sealed home and a scripted model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastword import Runtime
from lastword.runtime.testing import Rehearsal

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import live_clis

from live.certification import Certification

pytest.register_assert_rewrite("structured_promises", "pane_promises", "acp_promises")

CACHE = os.environ.get("LASTWORD_CLI_CACHE", "")
CLAUDE = live_clis.executable_of(Path(CACHE), "claude-code") if CACHE else Path("/nonexistent")
if CLAUDE.exists():
    os.environ.setdefault("LASTWORD_CLAUDE_BIN", str(CLAUDE))


def pytest_configure(config: pytest.Config) -> None:
    """The table at the end."""
    config.pluginmanager.register(Certification(), "certification")


@pytest.fixture
def claude() -> Path:
    if not CLAUDE.exists():
        pytest.skip("the pinned Claude Code is not in the cache folder: make live")
    return CLAUDE


@pytest.fixture
def rehearsal(claude: Path) -> Iterator[Rehearsal]:
    with Rehearsal() as kit:
        yield kit


@pytest.fixture
def open_runtime(claude: Path, rehearsal: Rehearsal) -> Iterator[Callable[..., Runtime]]:
    opened: list[Runtime] = []

    def start(**options: object) -> Runtime:
        options.setdefault("env", rehearsal.env)
        runtime = Runtime.open(rehearsal.root / "state", executables={"claude-code": str(claude)}, **options)
        opened.append(runtime)
        return runtime

    yield start
    for runtime in opened:
        runtime.close()


@pytest.fixture
def runtime(open_runtime: Callable[..., Runtime]) -> Runtime:
    return open_runtime()
