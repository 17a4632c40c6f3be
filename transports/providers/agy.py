"""Antigravity's CLI (``agy``). Known from public reports alone: **emulated**, never seen on the real CLI.

``agy --output-format json [--conversation ID] -p PROMPT``: one process a turn, one object at its end. ``SUCCESS`` in it
is no proof: a turn that an inner time limit has cut says so too, and only stderr tells. So stderr is part of the
record, and the object counts once the process has ended and all that it said was read. It stands on one line, or begins
with a brace alone on its line.

Source: docs/providers/agy.md.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, SourceSpec
from lastword.actors.core.facts import AssistantSaid, PromptRecorded, TurnClosed
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.transports.providers.decoding import Decoder
from lastword.transports.providers.line_oracle import LineOracle, turn_error
from lastword.transports.providers.one_shot import OneShotAdapter, OneShotOracle, OneShotTalk, recipe

OBJECT_BYTES_MAX = 16 * 1024 * 1024
_TIMED_OUT = re.compile(r"time[ds]?[ -]?out", re.IGNORECASE)
_NAME = re.compile(rb'"conversation_id"\s*:\s*"([A-Za-z0-9_.-]+)"')
_STATUS = re.compile(rb'"status"\s*:\s*"')


class _Result(msgspec.Struct):
    status: str
    conversation_id: str = ""
    response: Any = None
    error: Any = None


_RESULT = Decoder(_Result)


class AgyOracle(LineOracle):
    """Reads ``agy --output-format json``, with what it said on stderr."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._object = b""
        self._object_at = 0
        self._result: tuple[_Result, Evidence] | None = None
        self._timed_out = ""

    @property
    def _busy(self) -> bool:
        return bool(self._object) or self._result is not None or bool(self._timed_out)

    def _line(self, data: bytes, source: str, offset: int) -> None:
        if not self._object and not data.lstrip().startswith(b"{"):
            text = data.decode("utf-8", "replace")
            if _TIMED_OUT.search(text):
                self._timed_out = text
            else:
                self._unknown("no_json", Evidence(source=source, offset=offset))
            return
        if not self._object:
            self._object_at = offset
            if data.strip() != b"{":
                self._found(data, source)
                return
        self._object += data + b"\n"
        if len(self._object) > OBJECT_BYTES_MAX:
            self._object = b""
            self._unknown("oversized_object", Evidence(source=source, offset=self._object_at))
            return
        if data.rstrip() == b"}":
            whole, self._object = self._object, b""
            self._found(whole, source)

    def _found(self, data: bytes, source: str) -> None:
        result = _RESULT.decode(data)
        if self._result is not None:
            self._unknown("late_terminal", Evidence(source=source, offset=self._object_at))
            return
        evidence = Evidence(source=source, offset=self._object_at, native_id=result.conversation_id)
        self._result = (result, evidence)

    def _ended(self) -> None:
        """Only now it is sure that no word of a time limit follows."""
        found, self._result = self._result, None
        if found is None:
            return
        result, evidence = found
        native = f"{result.conversation_id}@{evidence.offset}"
        self._facts.append(PromptRecorded(native_turn=native, text="", evidence=evidence, taken="sdk"))
        text = result.response if isinstance(result.response, str) else ""
        if text:
            said = AssistantSaid(native_turn=native, native_message=native, text=text, evidence=evidence)
            self._facts.append(said)
        error = self._fault(result)
        self._close(
            TurnClosed(
                native_turn=native,
                status="failed" if error is not None else "completed",
                answer=text if error is None else None,
                error=error,
                evidence=evidence,
                by_end_of_file=True,
            )
        )

    def _fault(self, result: _Result) -> TurnError | None:
        if self._timed_out:
            return turn_error(f"cut by the CLI's own time limit: {self._timed_out}", word="print_timeout")
        if result.status == "SUCCESS":
            return None
        return turn_error(result.error if isinstance(result.error, str) else "", word=result.status)


class AgyReader:
    """Reads what ``agy --output-format json`` printed, whole."""

    name = "agy"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> AgyOracle:  # noqa: ARG002
        """A reader of it."""
        return AgyOracle(native_session, offset)


class AgyAdapter(OneShotAdapter):
    """Antigravity, a process a turn."""

    name = "agy"
    executables = ("agy",)
    capabilities: frozenset[Capability] = frozenset(
        {"queues_while_busy", "interrupt", "resume", "process_per_turn", "emulated"}
    )
    guarded = ("-", "/")

    def new_native_session(self, entropy: bytes) -> str:  # noqa: ARG002
        """Its first answer names it."""
        return ""

    def parse_version(self, output: str) -> str:
        """Its first line."""
        return output.partition("\n")[0].strip()

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """One prompt; ``args`` may hold ``--dangerously-skip-permissions``."""
        model = ("--model", request.model) if request.model else ()
        run = (*request.executable, "--output-format", "json", *model, *request.extra_args)
        return recipe(request, run, named=("--conversation", "{}"), last=("-p",), stderr=True)

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> OneShotOracle:  # noqa: ARG002
        """A reader of one process's files; always from the start."""
        return OneShotOracle(AgyOracle())

    def talk(self, request: LaunchRequest) -> OneShotTalk:  # noqa: ARG002 - a process has one conversation
        """A new process is spoken to."""
        return OneShotTalk(_is_result, _named)


def _is_result(line: bytes) -> bool:
    return _STATUS.search(line) is not None


def _named(line: bytes) -> str:
    found = _NAME.search(line)
    return found.group(1).decode() if found else ""


__all__ = ["AgyAdapter", "AgyOracle", "AgyReader"]
