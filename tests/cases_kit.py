"""Recorded conversations of every provider and the right reading of each; what the tests of readers share.

The convention is that of tests/fixtures/claude_code/2.1.332/cases/README.md, the same for all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import CliVersionSeen, Fact, InputJoined, PromptRecorded
from lastword.transports.providers.readers import READERS

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Family:
    """The cases of one provider in one CLI version.

    Attributes:
        session: finds the conversation in a raw file, for a reader that starts in its midst.
        terminal: what the line of a completing or failing record holds, one of these.
    """

    provider: str
    folders: tuple[str, ...]
    session: re.Pattern[bytes]
    terminal: tuple[bytes, ...]
    cases_min: int
    by_end_of_file: frozenset[str] = field(default_factory=frozenset)
    """Parts of names of files whose turns only the end of the file closes."""
    other_ends: frozenset[str] = field(default_factory=frozenset)
    """Names of files that have no terminal records, where a later prompt proves an end (Claude Code's ``-p``)."""

    def expected(self) -> list[Path]:
        return sorted(path for folder in self.folders for path in (FIXTURES / folder).glob("*.expect.json"))

    def raw(self) -> list[Path]:
        return sorted(path for folder in self.folders for path in (FIXTURES / folder).glob("*.*json*") if is_raw(path))


def is_raw(path: Path) -> bool:
    return path.suffix in (".jsonl", ".ndjson")


FAMILIES = (
    Family(
        "claude-code",
        ("claude_code/2.1.332/cases", "claude_code/2.1.332/lab"),
        re.compile(rb'"session(?:_id|Id)": ?"([^"]+)"'),
        (b'"turn_duration"', b"[Request interrupted", b'"isApiErrorMessage":true', b'"type":"result"'),
        38,
        other_ends=frozenset({"print.jsonl"}),
    ),
    Family(
        "codex",
        ("codex/0.171.0/cases", "codex/0.171.0/streams"),
        re.compile(rb'"(?:thread_id|threadId)": ?"([^"]+)"'),
        (b'"type":"task_complete"', b'"type":"turn.completed"', b'"type":"turn.failed"', b'"turn/completed"'),
        22,
    ),
    Family(
        "pi",
        ("pi/1.6.0/cases",),
        re.compile(rb'"type": ?"session".*?"id": ?"([^"]+)"'),
        (b'"agent_settled"',),
        18,
        by_end_of_file=frozenset({".session."}),
    ),
    Family(
        "qwen",
        ("qwen/0.24.4/cases",),
        re.compile(rb'"session(?:_id|Id)": ?"([^"]+)"'),
        (b'"type":"result"',),
        3,
        by_end_of_file=frozenset({"tui-chat"}),
    ),
    Family(
        "gemini",
        ("gemini/0.61.0/cases",),
        re.compile(rb'"session(?:_id|Id)": ?"([^"]+)"'),
        (b'"type":"result"',),
        3,
        by_end_of_file=frozenset({"chat-tool"}),
    ),
    Family(
        "opencode",
        ("opencode/1.18.33/cases",),
        re.compile(rb'"sessionID": ?"([^"]+)"'),
        (b'"type":"error"',),
        2,
        by_end_of_file=frozenset({"run-"}),
    ),
    Family(
        "cursor",
        ("cursor/emulated/cases",),
        re.compile(rb'"session_id": ?"([^"]+)"'),
        (b'"type":"result"',),
        2,
    ),
    Family(
        "agy",
        ("agy/emulated/cases",),
        re.compile(rb'"conversation_id": ?"([^"]+)"'),
        (b'"status"',),
        2,
        by_end_of_file=frozenset({"emulated-"}),
    ),
    Family(
        "muse",
        ("muse/emulated/cases",),
        re.compile(rb'"stream": ?{"id": ?"([^"]+)"'),
        (b'"run_terminal"',),
        2,
    ),
)
BY_PROVIDER = {family.provider: family for family in FAMILIES}
CASES = [(family, path) for family in FAMILIES for path in family.expected()]
RAW = [(family, path) for family in FAMILIES for path in family.raw()]
ENDED = [(family, path) for family, path in RAW if path.name not in family.other_ends]
"""Those whose turns are ended by terminal records, or by the end of the file alone."""


def name_of(value: object) -> str:
    """A short id for pytest."""
    if isinstance(value, Family):
        return value.provider
    return value.name.removesuffix(".expect.json").removesuffix(".jsonl") if isinstance(value, Path) else str(value)


@cache
def case(path: Path) -> dict:
    return json.loads(path.read_bytes())


@cache
def raw(path: Path) -> bytes:
    return path.read_bytes()


def files_of(path: Path) -> list[Path]:
    return [path.parent / file for file in case(path)["files"]]


def session_of(family: Family, data: bytes) -> str:
    found = family.session.search(data)
    return found.group(1).decode() if found else ""


def oracle_of(family: Family, offset: int = 0, session: str = "") -> Oracle:
    source = SourceSpec(kind="append-jsonl", path="f", root="")
    return READERS[family.provider].oracle(source, session, offset)


def all_facts(family: Family, data: bytes) -> list[Fact]:
    reader = oracle_of(family)
    return reader.feed("f", data) + reader.eof("f")


def without_names(facts: list[Fact]) -> list[Fact]:
    """The facts that a resumed reader gives as well: it says the version again, and knows no other names of a turn."""
    kept: list[Fact] = []
    for fact in facts:
        if isinstance(fact, (PromptRecorded, InputJoined)):
            kept.append(msgspec.structs.replace(fact, also=()))
        elif not isinstance(fact, CliVersionSeen):
            kept.append(fact)
    return kept


def squeezed(text: str | None) -> str | None:
    return None if text is None else "".join(text.split())


def assert_turns(turns: list[dict], expected: list[dict]) -> None:
    """The convention's own comparison: white space is not compared, nor an input of null."""
    assert len(turns) == len(expected), turns
    for got, want in zip(turns, expected, strict=True):
        if want["input"] is not None:
            assert squeezed(got["input"]) == squeezed(want["input"])
        assert squeezed(got["final_text"]) == squeezed(want["final_text"])
        for key in ("status", "origin", "error", "joined"):
            assert got.get(key) == want.get(key), key
        calls = [(call["name"], call["status"]) for call in got["tool_calls"]]
        assert [name for name, _ in calls] == [call["name"] for call in want["tool_calls"]]
        for (_, status), call in zip(calls, want["tool_calls"], strict=True):
            assert call.get("status") in (None, status)
