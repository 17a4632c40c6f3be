"""The promises of a session over the Agent Client Protocol, on the real agents and a scripted model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import live_clis
import pytest

from acp_promises import *  # noqa: F403 - the tests that every agent is put to
from structured_kit import StdioHost

pytestmark = pytest.mark.live
CACHE = Path(os.environ.get("LASTWORD_CLI_CACHE") or "/nonexistent")
MODES = {"gemini": "default", "qwen": "default", "opencode": ""}
ENV = {"opencode": {"OPENCODE_PERMISSION": '{"bash": "ask"}'}}
"""Its sealed home allows everything."""


@pytest.fixture(params=sorted(MODES))
def host(request: pytest.FixtureRequest) -> Iterator[StdioHost]:
    provider = str(request.param)
    if not live_clis.is_there(CACHE, provider):
        pytest.skip(f"the pinned {provider} is not in the cache folder: make live")
    argv = (str(live_clis.executable_of(CACHE, provider)),)
    with StdioHost(argv, provider=provider, permission_mode=MODES[provider], env=ENV.get(provider)) as made:
        yield made
