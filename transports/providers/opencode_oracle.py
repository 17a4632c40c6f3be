"""opencode's ``run --format json``: bytes to facts, pure.

One turn a process, and no result line. ``step_start`` opens the turn; ``step_finish`` with reason ``tool-calls`` goes
on. ``step_finish`` with any other reason is the last record, but what proves the end is the process's: so reading it
live closes nothing, and ``eof`` (the writer is gone) completes the turn whose last step finished by itself, marked
``by_end_of_file``. An ``error`` line is terminal: the process writes it once and ends.

Source: opencode 1.18.33, tests/fixtures/opencode/1.18.33; the form of ``error`` is from docs/providers/opencode.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import (
    AssistantSaid,
    PromptRecorded,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers import decoding
from lastword.transports.providers.line_oracle import LineOracle, as_json, cut, turn_error, when


class _State(msgspec.Struct, frozen=True):
    status: str = ""
    input: Any = None
    output: Any = None
    error: Any = None


class _Part(msgspec.Struct, frozen=True, rename={"message_id": "messageID", "call_id": "callID"}):
    id: str = ""
    message_id: str = ""
    call_id: str = ""
    text: str = ""
    tool: str = ""
    reason: str = ""
    state: _State | None = None


class _ErrorData(msgspec.Struct, frozen=True, rename="camel"):
    message: str = ""
    status_code: int | None = None


class _Error(msgspec.Struct, frozen=True):
    name: str = ""
    data: _ErrorData | None = None


class _Line(msgspec.Struct, frozen=True, rename={"session_id": "sessionID"}):
    type: str = ""
    timestamp: float | None = None
    session_id: str = ""
    part: _Part | None = None
    error: _Error | None = None


_LINE = decoding.Decoder(_Line)


class _Turn:
    __slots__ = ("end", "message", "native", "text", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.end: Evidence | None = None
        """Where its last step finished by itself; None while a step goes on or another must follow."""
        self.message = ""
        self.text = ""
        self.tools: set[str] = set()


class OpencodeOracle(LineOracle):
    """Reads the output of one run. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn: _Turn | None = None

    @property
    def _busy(self) -> bool:
        return self._turn is not None

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _LINE.decode(data)
        part = line.part or _Part()
        evidence = Evidence(source=source, offset=offset, native_id=part.id, native_at=when(line.timestamp))
        if self._foreign(line.session_id):
            self._unknown("foreign_session", evidence)
        elif line.type == "error" and line.error is not None:
            data_of = line.error.data or _ErrorData()
            error = turn_error(data_of.message, word=line.error.name, status=data_of.status_code)
            turn = self._open(evidence)
            self._turn = None
            self._close(TurnClosed(native_turn=turn.native, status="failed", evidence=evidence, error=error))
        elif line.type in ("step_start", "text", "tool_use", "step_finish", "reasoning") and line.part is not None:
            self._part(self._open(evidence), line.type, part, evidence)
        else:
            self._unknown(f"type:{line.type[:40]}", evidence)

    def _open(self, evidence: Evidence) -> _Turn:
        turn = self._turn
        if turn is None:
            turn = self._turn = _Turn(f"{self._native_session}@{evidence.offset}")
            self._facts.append(PromptRecorded(native_turn=turn.native, text="", evidence=evidence, taken="sdk"))
        return turn

    def _part(self, turn: _Turn, kind: str, part: _Part, evidence: Evidence) -> None:
        turn.end = None
        if part.message_id != turn.message:
            turn.message, turn.text = part.message_id, ""
        match kind:
            case "text":
                turn.text += part.text
                self._facts.append(
                    AssistantSaid(
                        native_turn=turn.native, native_message=part.message_id, text=turn.text, evidence=evidence
                    )
                )
            case "tool_use":
                self._tool(turn, part, evidence)
            case "step_finish" if part.reason and part.reason != "tool-calls":
                turn.end = evidence

    def _tool(self, turn: _Turn, part: _Part, evidence: Evidence) -> None:
        turn.text = ""  # text before a call is not the answer
        state = part.state or _State()
        if part.call_id not in turn.tools:
            turn.tools.add(part.call_id)
            arguments = as_json(state.input)
            self._facts.append(
                ToolStarted(
                    native_turn=turn.native,
                    call_id=part.call_id,
                    name=part.tool,
                    arguments=arguments,
                    evidence=evidence,
                )
            )
        if state.status in ("completed", "error"):
            status: ToolStatus = "ok" if state.status == "completed" else "error"
            result = state.output if status == "ok" else state.error
            self._facts.append(
                ToolFinished(
                    native_turn=turn.native,
                    call_id=part.call_id,
                    status=status,
                    result=cut("" if result is None else as_json(result)),
                    evidence=evidence,
                )
            )

    def _ended(self) -> None:
        turn = self._turn
        if turn is not None and turn.end is not None:
            self._turn = None
            self._close(
                TurnClosed(
                    native_turn=turn.native,
                    status="completed",
                    evidence=turn.end,
                    answer=turn.text,
                    by_end_of_file=True,
                )
            )


class OpencodeReader:
    """Reads ``opencode run --format json``."""

    name = "opencode"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that stream."""
        return OpencodeOracle(native_session, offset)
