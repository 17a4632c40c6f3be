from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from api_kit import ApiHost

PROVIDERS = ("anthropic", "openai")


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(provider: str) -> Iterator[ApiHost]:
    with ApiHost(provider) as made:
        yield made


@pytest.fixture
def hosts(provider: str) -> Iterator[Callable[..., ApiHost]]:
    """Makes hosts; each must come to a clean end."""
    with ExitStack() as stack:

        def build(**options: Any) -> ApiHost:
            return stack.enter_context(ApiHost(provider, **options))

        yield build
