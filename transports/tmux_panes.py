"""The panes of a server in tmux's own words: the list of them, and the command that opens another one. Pure but for the
look whether folder and program are there. tmux facts were tried on 3.3a; the floor is 3.2 (``new-session -e``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from lastword.actors.core.errors import ProviderError, UsageError
from lastword.transports.tmux_control import Reply, quote
from lastword.transports.tmux_find import PANE_MARK
from lastword.transports.tmux_program import HUB

LIST_PANES: Final = b"list-panes -a -F '#{pane_id} #{pane_pid} #{pane_dead} #{session_name}'"
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Of a socket, and of a pane's session."""


class PaneRow(msgspec.Struct, frozen=True):
    """One pane of the server: ours, or one that a person opened there."""

    pane_id: str
    pid: int
    name: str
    dead: bool = False


def rows_of(reply: Reply) -> list[PaneRow]:
    """What it answered to :data:`LIST_PANES`; none where it failed."""
    rows: list[PaneRow] = []
    for line in reply.lines if reply.ok else ():
        words = line.decode("utf-8", "replace").split(" ", 3)
        if len(words) == 4 and words[1].isdigit():
            rows.append(PaneRow(words[0], int(words[1]), words[3], words[2] == "1"))
    return rows


def new_pane(
    name: str, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], base: Mapping[str, str], size: tuple[int, int]
) -> bytes:
    """The command that opens a pane for that program; it answers the pane's id and the program's pid.

    ``env`` is added to ``base``, which every pane has; ``size`` is columns and rows; ``name`` is of its session.

    Raises:
        UsageError: ``usage``: such a name; ``cwd_unusable``: tmux would silently take another folder.
        ProviderError: ``launch_failed``: no such program on the pane's PATH.
    """
    if not NAME.fullmatch(name) or name == HUB:
        raise UsageError("usage", f"not a pane name: {name!r}")
    if not argv or not argv[0] or any(not key or "=" in key for key in env):
        raise UsageError("usage", "a program needs a name, and so does a variable")
    if not (Path(cwd).is_absolute() and Path(cwd).is_dir() and os.access(cwd, os.X_OK)):
        raise UsageError("cwd_unusable", f"not a folder to work in: {cwd}")
    path = {**base, **env}.get("PATH", os.defpath)
    program = argv[0] if os.path.isabs(argv[0]) or "/" not in argv[0] else os.path.join(cwd, argv[0])  # noqa: PTH117, PTH118
    if shutil.which(program, path=path) is None:
        raise ProviderError("launch_failed", f"there is no program {argv[0]!r}")
    # With one word tmux hands it to a shell; only with more it executes them.
    words = argv if len(argv) > 1 else ("/bin/sh", "-c", 'exec "$0"', argv[0])
    parts = [b"new-session -d -P -F '#{pane_id} #{pane_pid}' -n cli -s", name.encode()]
    parts += [b"-x %d -y %d -c" % size, quote(cwd.replace("#", "##"))]  # -c expands formats
    for key, value in {**env, PANE_MARK: name}.items():
        parts += [b"-e", quote(f"{key}={value}")]
    return b" ".join([*parts, b"--", *map(quote, words)])
