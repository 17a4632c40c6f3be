"""Which tmux, and how its server is set: the program found, its version, the options of a private server.

Option facts were tried on 3.3a; options that an older tmux does not know are passed over in silence (``-q``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from lastword.actors.core.errors import TransportError, TransportTimeoutError

VERSION_MIN = (3, 2)
HISTORY_LINES = 2000
"""Scrollback kept for a person who attaches; we never read it."""
CALL_TIMEOUT_S = 5.0
_INSTALL = "install tmux 3.2 or newer (apt install tmux, dnf install tmux, brew install tmux)"

_SERVER_OPTIONS = {
    "exit-empty": "off",
    "exit-unattached": "off",
    "escape-time": "0",
    "message-limit": "0",  # its log of commands would keep every text that is pasted
    "set-clipboard": "off",  # a CLI must not reach the person's clipboard
}
_SESSION_OPTIONS = {
    "history-limit": str(HISTORY_LINES),
    "status": "off",
    "destroy-unattached": "off",
    "update-environment": "",  # a pane's environment is what we say, not what a client brings
    "set-titles": "off",
    "bell-action": "none",
    "mouse": "off",
}
# window-size stays "latest": as a global "manual" it makes new-session crash the whole 3.3a server (tried); each
# window is pinned with resize-window instead.
_WINDOW_OPTIONS = {
    "remain-on-exit": "on",  # a CLI that ends leaves its last words and its exit status
    "remain-on-exit-format": "",
    "automatic-rename": "off",
    "allow-rename": "off",
    "allow-passthrough": "off",
    "monitor-bell": "off",
}


class TmuxInfo(msgspec.Struct, frozen=True):
    """The tmux program found."""

    path: str
    version: tuple[int, int]


def find_tmux() -> TmuxInfo:
    """The tmux on PATH. Blocks for one ``tmux -V``.

    Raises:
        TransportError: kind ``tmux_missing`` or ``tmux_unsupported``, with the remedy.
    """
    path = shutil.which("tmux")
    if path is None:
        raise TransportError("tmux_missing", "there is no tmux on PATH", remedy=_INSTALL)
    try:
        result = subprocess.run([path, "-V"], capture_output=True, timeout=CALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TransportTimeoutError("tmux -V", CALL_TIMEOUT_S) from error
    except OSError as error:
        raise TransportError("tmux_missing", f"{path} does not run: {error.strerror}", remedy=_INSTALL) from error
    text = result.stdout.decode("utf-8", "replace").strip()
    match = re.search(r"(\d+)\.(\d+)", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < VERSION_MIN:
        raise TransportError("tmux_unsupported", f"{path} says {text!r}; 3.2 is the oldest known", remedy=_INSTALL)
    return TmuxInfo(path, version)


def option_words() -> list[str]:
    """One tmux command list that sets them all."""
    terminal = "tmux-256color" if _has_terminfo("tmux-256color") else "screen-256color"
    words: list[str] = []
    for flag, options in (
        ("-sq", {**_SERVER_OPTIONS, "default-terminal": terminal}),
        ("-gq", _SESSION_OPTIONS),
        ("-gwq", _WINDOW_OPTIONS),
    ):
        for option, value in options.items():
            words += ["set-option", flag, option, value, ";"]
    return words[:-1]


def _has_terminfo(name: str) -> bool:
    folders = ("/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo", "/usr/lib/terminfo", "/usr/share/misc/terminfo")
    return any(Path(folder, sub, name).exists() for folder in folders for sub in (name[0], f"{ord(name[0]):x}"))
