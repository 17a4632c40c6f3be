"""A user and mount namespace of one's own: real limits, real file systems, and nobody else notices. Linux only."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
BOUND_S = 60.0


@functools.cache
def available() -> bool:
    """Whether this machine lets an ordinary user have one."""
    try:
        return subprocess.run(["unshare", "-Urm", "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def run_inside(script: str, *words: object) -> str:
    """Run a Python script there, as its root; what it printed. It fails the test where it fails."""
    if not available():
        pytest.skip("no user namespaces here")
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", script, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
