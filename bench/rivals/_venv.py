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


def python_with(*requirements: str, at_least: tuple[int, int] = (3, 11)) -> str:
    """An interpreter of that version or a newer one that has these, and nothing of ours.

    Raises: MissingError: no such interpreter or no venv, or PyPI was not reached, or does not have them.
    """
    made_with, version = interpreter(at_least)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lastword" / "rivals"
    name = "-".join(requirements).replace("==", "-")
    folder = base / f"{name}-py{version}"
    python = folder / "bin" / "python"
    if (folder / ".ready").exists():
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _run(made_with, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stderr or "").strip().splitlines() if "ERROR" in line or "rror:" in line]
        raise MissingError(f"{' '.join(requirements)} cannot be installed: {said[0] if said else error}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{' '.join(requirements)} cannot be installed: {error}") from error
    (folder / ".ready").touch()
    return str(python)


def interpreter(at_least: tuple[int, int]) -> tuple[str, str]:
    """Ours if it is new enough, else one on PATH or of pyenv's; and its ``major.minor``.

    Raises: MissingError: none is.
    """
    if sys.version_info[:2] >= at_least:
        return sys.executable, f"{sys.version_info.major}.{sys.version_info.minor}"
    minors = range(at_least[1], at_least[1] + 4)
    found = [shutil.which(f"python3.{minor}") for minor in minors]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in minors:
        found += sorted(str(path) for path in versions.glob(f"3.{minor}.*/bin/python3"))
    for path in filter(None, found):
        version = _version_of(path)  # a shim may be there for an interpreter that is not
        if version and tuple(map(int, version.split("."))) >= at_least:
            return path, version
    raise MissingError(f"it needs Python {at_least[0]}.{at_least[1]}, which is not here")


def _version_of(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_MAX_S)
