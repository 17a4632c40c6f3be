"""A place for commands; see command_kit."""

import shutil

import pytest

from command_kit import Place
from lastword.runtime.testing import Rehearsal


@pytest.fixture
def place():
    with Rehearsal() as sealed:
        place = Place(sealed)
        yield place
        for running in place.started:
            if running.process.poll() is None:
                running.process.kill()
                running.end()
        place.end_tmux()


@pytest.fixture(scope="session", autouse=True)
def _tmux_is_here() -> None:
    assert shutil.which("tmux"), "make setup installs tmux"
