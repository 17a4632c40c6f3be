from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from host_kit import Rig
from lastword.actors.system.clock import ManualClock


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs; all are closed at the end, and each must come to a clean end."""
    with ExitStack() as stack:

        def build(**options: Any) -> Rig:
            return stack.enter_context(Rig(tmp_path, **options))

        yield build


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
