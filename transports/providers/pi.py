"""What both adapters of Pi share: its names, and where a conversation of it stands.

A conversation is a file that we name before the start (``--session FILE``); the same flag resumes it. It stands where
Pi looks for the sessions of that working directory, so that a person finds it there too.

Source: Pi 1.6.0, docs/providers/pi.md.
"""

from __future__ import annotations

import re
import uuid

from lastword.actors.core.adapter import LaunchRequest, SourceSpec

TEXT_CHARS_MAX = 2_000_000
_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)\b")
_PARTS = re.compile(r"[/\\:]")
OURS = "lastword_"
ENDING = ".jsonl"


class Pi:
    """What its adapters share."""

    name = "pi"
    certified_versions: tuple[str, ...] = ("1.6.0",)
    executables: tuple[str, ...] = ("pi",)

    def new_native_session(self, entropy: bytes) -> str:
        """A random UUID; it is in the file's name. The id inside the file is Pi's own."""
        return str(uuid.UUID(bytes=entropy[:16], version=4))

    def parse_version(self, output: str) -> str:
        """It prints nothing else."""
        found = _VERSION.search(output)
        return found.group(1) if found else ""

    def transcript(self, request: LaunchRequest) -> SourceSpec:
        """``AGENT/sessions/--<cwd, separators as dashes>--/lastword_ID.jsonl``; not there before a prompt. One that a
        person moved Pi to is named by its path.
        """
        root = f"{_agent_folder(request)}/sessions"
        path = f"{root}/{session_folder(request.cwd)}/{OURS}{request.native_session}{ENDING}"
        if request.native_session.startswith("/"):
            path = request.native_session
        return SourceSpec(kind="append-jsonl", path=path, root=root)

    def conversation(self, request: LaunchRequest) -> list[str]:
        """The arguments for a conversation, new or known, and how it is asked for. Pi has no permission modes."""
        argv = ["--session", self.transcript(request).path]
        if request.model:
            argv += ["--model", request.model]
        return [*argv, *request.extra_args]


def session_folder(cwd: str) -> str:
    """Pi's folder name for a working directory."""
    return f"--{_PARTS.sub('-', cwd.removeprefix('/'))}--"


def conversation_of(path: str) -> str:
    """The name of the conversation in that file: the one that we gave it, else its path."""
    name = path.rpartition("/")[2]
    ours = name.startswith(OURS) and name.endswith(ENDING)
    return name.removeprefix(OURS).removesuffix(ENDING) if ours else path


def unfit(text: str) -> str:
    """Why that text cannot be sent to Pi, however it is sent; "" where it can."""
    if len(text) > TEXT_CHARS_MAX:
        return f"longer than {TEXT_CHARS_MAX} characters"
    if found := _SURROGATE.search(text):
        return f"the lone surrogate U+{ord(found.group()):04X} is no text"
    return ""


def _agent_folder(request: LaunchRequest) -> str:
    home = request.env.get("HOME", "")
    folder = request.env.get("PI_CODING_AGENT_DIR", "")
    if folder == "~" or folder.startswith("~/"):
        folder = home + folder[1:]
    return folder or f"{home}/.pi/agent"


__all__ = ["Pi", "conversation_of", "session_folder", "unfit"]
