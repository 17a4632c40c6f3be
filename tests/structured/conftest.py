from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from structured_kit import StdioHost, scripted

pytest.register_assert_rewrite("structured_promises")


@pytest.fixture
def host() -> Iterator[StdioHost]:
    with StdioHost(scripted()) as made:
        yield made


@pytest.fixture
def hosts() -> Iterator[Callable[..., StdioHost]]:
    """Makes hosts whose CLI has these faults; each must come to a clean end."""
    with ExitStack() as stack:

        def build(*faults: str, **options: Any) -> StdioHost:
            words = [word for fault in faults for word in ("--fault", fault)]
            return stack.enter_context(StdioHost(scripted(*words), **options))

        yield build
