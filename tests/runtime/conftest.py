from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from host_kit import Rig


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs, one life after the other in one state folder; those that are open at the end must end cleanly."""
    made: list[Rig] = []

    def build(**options: Any) -> Rig:
        made.append(Rig(tmp_path, **options))
        return made[-1]

    yield build
    for each in reversed(made):
        if not each.runtime._closed:
            each.__exit__()
