from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lastword.actors import stdio
from lastword.runtime.testing.conformance.subjects import EMULATORS
from lastword.transports.providers import ADAPTERS
from structured_kit import StdioHost

EMULATED = sorted(name for (name, _), adapter in ADAPTERS.items() if "emulated" in adapter.capabilities)


def emulator(provider: str, *faults: str) -> tuple[str, ...]:
    path = EMULATORS[provider, "structured"]
    return (sys.executable, str(path), *(word for fault in faults for word in ("--fault", fault)))


@pytest.fixture(autouse=True)
def quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is ended has a tenth of a second to do it by itself."""
    monkeypatch.setattr(stdio, "GIVEN_UP_GRACE_S", 0.1)


@pytest.fixture(params=EMULATED)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(provider: str) -> Iterator[StdioHost]:
    with StdioHost(emulator(provider), provider=provider, permission_mode="", allow_uncertified=True) as made:
        yield made


@pytest.fixture
def hosts(provider: str) -> Iterator[Callable[..., StdioHost]]:
    """Makes hosts whose CLI has these faults; each must come to a clean end."""
    with ExitStack() as stack:

        def build(*faults: str, **options: Any) -> StdioHost:
            options = {"allow_uncertified": True, "permission_mode": "", **options}
            return stack.enter_context(StdioHost(emulator(provider, *faults), provider=provider, **options))

        yield build
