from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

import pytest

from kit_system import lastword_threads, until
from lastword.actors.system.clock import ManualClock
from lastword.actors.system.system import ActorSystem

_names = itertools.count(1)


@pytest.fixture(params=["pooled", "pinned"])
def dispatcher(request: pytest.FixtureRequest) -> Literal["pooled", "pinned"]:
    return request.param


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def system(dispatcher: Literal["pooled", "pinned"], clock: ManualClock) -> Iterator[ActorSystem]:
    """A system on a hand-moved clock; whatever a test does, none of its threads may stay."""
    name = f"sut{next(_names)}"
    system = ActorSystem(name, clock=clock, dispatcher=dispatcher)
    yield system
    system.shutdown(2.0)
    until(lambda: not lastword_threads(name), within_s=2.0)
