"""A sealed place for a real CLI: its own home, its own temporary folder, a fake key, a scripted model.

Nothing of the person's own configuration is read or written. It starts no CLI: it prepares what one needs. The
other CLIs' homes are in ``homes``. Facts about the files that Claude Code wants come from
docs/providers/claude_code.md (measured with 2.1.332).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lastword.runtime.testing.homes import HOMES, Home
from lastword.runtime.testing.model_server import ModelServer, Respond
from lastword.runtime.testing.script import Script

FAKE_KEY = "sk-ant-rehearsal-not-a-real-key"
_APPROVED_CHARS = 20  # Claude Code keeps the end of an approved key


def claude_home(
    home: Path,
    cwds: Sequence[Path],
    api_key: str = FAKE_KEY,
    *,
    base_url: str = "",
    tmp: Path | None = None,
    trusted: bool = True,
) -> dict[str, str]:
    """Seed ``home`` so that Claude Code starts without a dialog; returns the environment for ``env -i``.

    Args:
        home: made if missing.
        cwds: folders that count as trusted.
        api_key: goes into the environment, and its end among the approved keys.
        base_url: the model server. Without one the CLI would call the real API: give one.
        tmp: where the CLI may put what it writes outside its home (``TMPDIR``); default ``home/tmp``.
        trusted: with False the trust dialog will show.
    """
    tmp = tmp or home / "tmp"
    home.mkdir(parents=True, exist_ok=True)
    tmp.mkdir(parents=True, exist_ok=True)
    settings = {
        "hasCompletedOnboarding": True,
        "hasSeenAutoDefaultNotice": True,
        "customApiKeyResponses": {"approved": [api_key[-_APPROVED_CHARS:]], "rejected": []},
        "projects": {os.path.abspath(cwd): {"hasTrustDialogAccepted": trusted} for cwd in cwds},  # noqa: PTH100 - the path as the shell gives it, links unresolved
    }
    target = home / ".claude.json"
    target.write_text(json.dumps(settings), encoding="utf-8")
    target.chmod(0o600)
    env = {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
        "TMPDIR": str(tmp),
        "ANTHROPIC_API_KEY": api_key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    if base_url:
        env["ANTHROPIC_BASE_URL"] = base_url
    return env


def _claude_home(home: Path, cwds: Sequence[Path], base_url: str, tmp: Path) -> dict[str, str]:
    return claude_home(home, cwds, base_url=base_url, tmp=tmp)


SEALED_HOMES: Mapping[str, Home] = {"claude-code": _claude_home, **HOMES}
"""Every real CLI that can be rehearsed, by the name of its provider."""


class Rehearsal:
    """A folder with home, work folder, temporary folder and a running model server; a context manager.

    ``provider`` says for which CLI: one of :data:`SEALED_HOMES`.

    Attributes:
        root, home, cwd, tmp: the folders. server: the running :class:`ModelServer`. env: for ``env -i``.

    On leaving, the server stops and the whole folder goes, with all that the CLI wrote (``TMPDIR`` keeps its
    task outputs and sockets inside). End the CLIs first: what still runs keeps writing.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        respond: Respond | None = None,
        parent: Path | None = None,
        provider: str = "claude-code",
    ) -> None:
        if provider not in SEALED_HOMES:
            raise ValueError(f"no sealed home for {provider!r}, only for {', '.join(SEALED_HOMES)}")
        self._seal = SEALED_HOMES[provider]
        self.server = ModelServer(script, respond=respond)
        self._parent = parent
        self.root = Path()
        self.home = self.cwd = self.tmp = self.root
        self.env: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.root = Path(tempfile.mkdtemp(prefix="lw-", dir=self._parent)).resolve()
        self.home, self.cwd, self.tmp = self.root / "home", self.root / "work", self.root / "t"
        self.cwd.mkdir()
        self.server.start()
        self.env = self.env_for(self.cwd)
        return self

    def env_for(self, *cwds: Path) -> dict[str, str]:
        """Seed the home anew so that these folders count as trusted; returns the environment for ``env -i``."""
        return self._seal(self.home, cwds, self.server.base_url, self.tmp)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.stop()
        shutil.rmtree(self.root, ignore_errors=True)
