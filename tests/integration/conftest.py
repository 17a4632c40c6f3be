from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from lastword.transports.tmux import TmuxServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TmuxServer]:
    one = TmuxServer(f"lwt-{os.getpid()}-{time.monotonic_ns() % 10**8}")
    one.start()
    yield one
    one.stop(0.2)


@pytest.fixture
def own_server() -> Iterator[TmuxServer]:
    one = TmuxServer(f"lwo-{os.getpid()}-{time.monotonic_ns() % 10**8}")
    one.start()
    yield one
    one.stop(0.2)
