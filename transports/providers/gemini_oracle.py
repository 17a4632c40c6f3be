"""Gemini CLI's records: its stream-json output and the chat file, told apart by their lines. Pure.

Stream: a ``user`` message opens a turn, ``result`` closes it, once; deltas of the assistant are joined. Chat file: it
has no terminal record, so reading it live closes nothing. The same message id is written again (the last wins), and
``$set.messages`` may replace the list: what it holds besides known messages is context. Once the writer is gone
(``eof``, marked ``by_end_of_file``) a finished answer (``tokens``, no call) completes, "Request cancelled." cancels, an
``error`` message fails, anything else settles nothing.

Source: Gemini CLI 0.61.0, tests/fixtures/gemini/0.61.0; the forms of ``error`` and ``info`` are from its documentation.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import (
    AssistantSaid,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers import decoding
from lastword.transports.providers.chat_file import ChatOracle
from lastword.transports.providers.line_oracle import (
    SUPERSEDED,
    LineOracle,
    SniffingOracle,
    as_json,
    cut,
    turn_error,
    when,
)

CANCELLED = "Request cancelled."


class _StreamLine(msgspec.Struct, frozen=True):
    type: str = ""
    timestamp: str | None = None
    session_id: str = ""
    role: str = ""
    content: str | None = None
    tool_name: str = ""
    tool_id: str = ""
    parameters: Any = None
    status: str = ""
    output: Any = None
    error: Any = None
    message: str | None = None


class _Call(msgspec.Struct, frozen=True):
    id: str = ""
    name: str = ""
    args: Any = None
    result: Any = None
    status: str = ""


class _ChatLine(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    session_id: str = ""
    timestamp: str | None = None
    type: str = ""
    content: Any = None
    tokens: dict[str, Any] | None = None
    tool_calls: list[_Call] = []
    kind: str | None = None
    project_hash: str | None = None
    patch: Any = msgspec.field(name="$set", default=None)


_STREAM = decoding.Decoder(_StreamLine)
_CHAT = decoding.Decoder(_ChatLine)


class _Turn:
    __slots__ = ("native", "text", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.text = ""
        self.tools: set[str] = set()


class GeminiStreamOracle(LineOracle):
    """Reads one stream. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn: _Turn | None = None

    @property
    def _busy(self) -> bool:
        return self._turn is not None

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _STREAM.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.tool_id, native_at=when(line.timestamp))
        turn = self._turn
        match line.type:
            case "init":
                if self._foreign(line.session_id):
                    self._unknown("foreign_session", evidence)
                else:
                    self._superseded(evidence)
            case "message" if line.role == "user":
                self._superseded(evidence)
                turn = self._turn = _Turn(f"{self._native_session}@{offset}")
                text = line.content or ""
                self._facts.append(PromptRecorded(native_turn=turn.native, text=text, evidence=evidence, taken="sdk"))
            case "message" | "tool_use" | "tool_result" | "error" if turn is not None:
                self._of_turn(turn, line, evidence)
            case "result" if turn is not None and line.status:
                self._turn = None
                if line.status == "success":
                    closed = TurnClosed(
                        native_turn=turn.native, status="completed", evidence=evidence, answer=turn.text
                    )
                else:
                    told = line.error.get("message") if isinstance(line.error, dict) else line.error
                    error = turn_error(as_json(told) if told is not None else "", word="")
                    closed = TurnClosed(native_turn=turn.native, status="failed", evidence=evidence, error=error)
                self._close(closed)
            case _:
                self._unknown(f"type:{line.type[:40]}", evidence)

    def _superseded(self, evidence: Evidence) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._close(TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED))

    def _of_turn(self, turn: _Turn, line: _StreamLine, evidence: Evidence) -> None:
        if line.type == "message":
            turn.text += line.content or ""
            message = f"{turn.native}/{len(turn.tools)}"
            said = AssistantSaid(native_turn=turn.native, native_message=message, text=turn.text, evidence=evidence)
            self._facts.append(said)
        elif line.type == "tool_use" and line.tool_id not in turn.tools:
            turn.tools.add(line.tool_id)
            turn.text = ""  # text before a call is not the answer
            self._facts.append(
                ToolStarted(
                    native_turn=turn.native,
                    call_id=line.tool_id,
                    name=line.tool_name,
                    arguments=as_json(line.parameters),
                    evidence=evidence,
                )
            )
        elif line.type == "tool_result" and line.tool_id in turn.tools:
            status: ToolStatus = "ok" if line.status == "success" else "error"
            result = cut("" if line.output is None else as_json(line.output))
            self._facts.append(
                ToolFinished(
                    native_turn=turn.native, call_id=line.tool_id, status=status, result=result, evidence=evidence
                )
            )
        elif line.type == "error":
            message = (line.message or "")[:2000]
            self._facts.append(ProviderRetrying(native_turn=turn.native, message=message, evidence=evidence))


class GeminiChatOracle(ChatOracle):
    """Reads one chat file. It closes nothing before its end. Raises nothing for any input."""

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _CHAT.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.id, native_at=when(line.timestamp))
        if line.patch is not None:
            return
        if not line.type:
            if not line.session_id:
                self._unknown("without_type", evidence)
            elif self._foreign(line.session_id):
                self._unknown("foreign_session", evidence)
            return
        text = _text(line.content)
        match line.type:
            case "user" if _answers_a_call(line.content):
                pass
            case "user":
                self._prompt(line.id or f"@{offset}", text, evidence)
            case "gemini":
                self._said(line.id, text, evidence, finished=line.tokens is not None and not line.tool_calls)
                for call in line.tool_calls:
                    self._called(call.id, call.name, call.args, evidence)
                    if call.status in ("success", "error", "cancelled"):
                        failed = call.status != "success"
                        self._returned(call.id, as_json(call.result), evidence, failed=failed)
            case "info":
                if text.strip() == CANCELLED:
                    self._cancelled(evidence)
            case "error":
                self._failed(turn_error(text), evidence)
            case "warning":
                pass
            case _:
                self._unknown(f"type:{line.type[:40]}", evidence)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "".join(parts)


def _answers_a_call(content: Any) -> bool:
    return isinstance(content, list) and any(isinstance(part, dict) and "functionResponse" in part for part in content)


class GeminiReader:
    """Reads a stream or a chat file."""

    name = "gemini"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that file, whichever it is."""

        def choose(data: bytes, at: int) -> Oracle | None:
            chat = _CHAT.decode(data)
            if chat.session_id or chat.patch is not None or (chat.id and chat.type in ("user", "gemini")):
                return GeminiChatOracle(native_session, at)
            line = _STREAM.decode(data)
            known = (line.type == "init" and line.session_id) or (line.type == "message" and line.role)
            return GeminiStreamOracle(native_session, at) if known else None

        return SniffingOracle(choose, offset)
