"""The promises of the structured transport, on the real Pi and a scripted model; and what is Pi's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import os

import live_clis
import pytest

from structured_kit import StdioHost
from structured_promises import *  # noqa: F403 - the tests that both CLIs are put to

pytestmark = pytest.mark.live
CACHE = os.environ.get("LASTWORD_CLI_CACHE", "")
ARGS = ("--offline", "--no-approve")


@pytest.fixture
def pi() -> tuple[str, ...]:
    if not CACHE or not live_clis.is_there(Path(CACHE), "pi"):
        pytest.skip("the pinned pi is not in the cache folder: make live")
    return live_clis.argv_of(Path(CACHE), "pi")


@pytest.fixture
def host(pi: tuple[str, ...]) -> Iterator[StdioHost]:
    with StdioHost(pi, provider="pi", version="1.6.0", args=ARGS) as made:
        yield made
