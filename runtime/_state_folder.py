"""The state folder: where a runtime's journal lives, by the host's word or by the desktop's convention (XDG)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lastword.actors.core.errors import UsageError


def state_folder(state: object, env: Mapping[str, str] | None = None) -> Path:
    """The folder that is meant by ``state``; None: ``$XDG_STATE_HOME/lastword``, or ``~/.local/state/lastword``.

    Args:
        state: a path of text, or None.
        env: where the default is looked up; None: this process's own environment.

    Raises:
        UsageError: ``usage``: ``state`` is no path.
    """
    return _default(os.environ if env is None else env) if state is None else _path_of(state)


def _default(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".local" / "state")
    return Path(base) / "lastword"


def _path_of(state: object) -> Path:
    try:
        name = os.fspath(state)  # type: ignore[call-overload]
    except TypeError:
        name = b""
    if not isinstance(name, str):
        raise UsageError("usage", f"the state folder is a path of text, not {type(state).__name__}")
    if not name:
        raise UsageError("usage", "the state folder has no name", remedy="Leave it out for the usual one.")
    try:
        usable = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise UsageError("usage", "the name of the state folder holds a character that no file name can")
    return Path(name)
