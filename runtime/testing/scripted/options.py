"""The command line."""

# ruff: noqa: PTH109, PTH118, PTH119, PTH123, PTH208

from __future__ import annotations

import json
import os
import re

from .identity import UUID_FORM, new_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .steps import Record

WITH_VALUE = frozenset(
    (
        "--session-id",
        "--resume",
        "-r",
        "--permission-mode",
        "--model",
        "--settings",
        "--dialect",
        "--fault",
        "--script",
        "--record",
        "--mcp-config",
        "--allowedTools",
        "--allowed-tools",
        "--disallowedTools",
        "--append-system-prompt",
        "--add-dir",
        "--effort",
        "--system-prompt",
    )
)


def parse(argv: list[str]) -> Record:
    """The options; unknown ones are ignored, as a newer or older CLI's would be."""
    given: dict[str, str] = {}
    faults = [word for word in os.environ.get("LASTWORD_SCRIPTED_FAULTS", "").split(";") if word]
    at = 0
    while at < len(argv):
        name, eq, value = argv[at].partition("=")
        if name in WITH_VALUE and not eq and at + 1 < len(argv):
            at += 1
            value = argv[at]
        if name == "--fault":
            faults.append(value)
        else:
            given[name] = value
        at += 1
    path = given.get("--script") or os.environ.get("LASTWORD_SCRIPTED_SCRIPT", "")
    scripts: dict[str, list[Record]] = {}
    if path:
        with open(path, encoding="utf-8") as source:
            scripts = json.load(source).get("scripts", {})
    return {
        "dialect": given.get("--dialect", "claude-code"),
        "session_id": given.get("--session-id", ""),
        "resume": given.get("--resume", given.get("-r", "")),
        "continue": "--continue" in given or "-c" in given,
        "version": "--version" in given or "-v" in given,
        "permission_mode": given.get("--permission-mode", "default"),
        "model": given.get("--model", "claude-opus-5-5"),
        "record": given.get("--record", ""),
        "scripts": scripts,
        "faults": faults,
    }


def bind(options: Record) -> str:
    """Fix the session id; returns a complaint, or an empty string."""
    if options["session_id"] and not UUID_FORM.fullmatch(options["session_id"]):
        return "Error: Invalid session ID. Must be a valid UUID."
    if options["continue"] and not options["resume"]:
        slug = re.sub(r"[^A-Za-z0-9]", "-", os.getcwd())
        folder = os.path.join(os.environ.get("HOME", "/"), ".claude", "projects", slug)
        try:
            files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jsonl")]
        except OSError:
            files = []
        if not files:
            return "No conversation found to continue"
        options["resume"] = os.path.basename(max(files, key=os.path.getmtime))[: -len(".jsonl")]
    fixed = options["resume"] or options["session_id"]
    options["session_id"] = fixed or new_uuid()
    return ""
