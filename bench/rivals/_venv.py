"""A rival is installed from PyPI into a venv of its own, under the cache folder, once for each version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL_MAX_S = 300


class MissingError(Exception):
    """It cannot be measured here; the text says why."""


def python_with(*requirements: str) -> str:
    """An interpreter that has these, and nothing of ours.

    Raises: MissingError: no venv could be made, or PyPI was not reached, or does not have them.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lastword" / "rivals"
    name = "-".join(requirements).replace("==", "-")
    folder = base / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if (folder / ".ready").exists():
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, timeout=INSTALL_MAX_S
        )
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_MAX_S,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").strip().splitlines()
        raise MissingError(f"{' '.join(requirements)} cannot be installed: {said[-1] if said else error}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{' '.join(requirements)} cannot be installed: {error}") from error
    (folder / ".ready").touch()
    return str(python)
