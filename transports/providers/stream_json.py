"""The stream that Claude Code, Qwen Code and Cursor write in their stream-json modes. Bytes to facts, pure.

Theory of operation. ``system/init`` begins a native turn (in Cursor, and where a prompt is echoed, the ``user`` message
carries its text); ``result`` closes it, once, and nothing else does. An ``assistant`` event is a block or a whole
message, joined by ``message.id``; ``parent_tool_use_id`` marks a sub-agent's. ``result`` is judged by ``is_error`` and
``terminal_reason``, never by ``subtype`` alone: an API error is told as ``subtype: success`` with ``is_error``. Its
``result`` text is the last block (Claude Code) or everything that was said (Cursor), so the answer is that of the last
assistant message, and ``result`` only where the stream held none.

Live use and the end of the file: a stream that ends without ``result`` proves nothing about its turn.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.facts import (
    AssistantSaid,
    CliVersionSeen,
    CompactionRecorded,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import ErrorKind, Evidence, TurnError
from lastword.transports.providers import decoding
from lastword.transports.providers.line_oracle import SUPERSEDED, LineOracle, as_json, cut, turn_error, when

SILENT_TYPES = frozenset(
    {
        "stream_event",
        "thinking",
        "control_request",
        "control_response",
        "keep_alive",
        "rate_limit_event",
        "tool_progress",
        "auth_status",
        "tool_use_summary",
        "interaction_query",
    }
)
CANCELLED = frozenset({"aborted_streaming", "aborted_tools", "aborted", "interrupted", "cancelled"})


class Block(msgspec.Struct, frozen=True):
    """One content block."""

    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class Message(msgspec.Struct, frozen=True):
    """The message inside an event."""

    id: str = ""
    content: str | list[Block] | None = None

    @property
    def blocks(self) -> list[Block]:
        """Its blocks; a plain string is one of text."""
        if isinstance(self.content, str):
            return [Block(type="text", text=self.content)]
        return self.content or []


class StreamLine(msgspec.Struct, frozen=True):
    """One event, whatever its type."""

    type: str = ""
    subtype: str | None = None
    uuid: str = ""
    session_id: str = ""
    timestamp: str | None = None
    timestamp_ms: float | None = None
    claude_code_version: str | None = None
    qwen_code_version: str | None = None
    parent_tool_use_id: str | None = None
    message: Message | None = None
    model_call_id: str | None = None
    call_id: str = ""
    tool_call: dict[str, Any] | None = None
    is_error: bool | None = None
    terminal_reason: str | None = None
    stop_reason: str | None = None
    api_error_status: int | None = None
    result: Any = None
    error: Any = None
    errors: Any = None
    request_id: str | None = None
    command_uuid: str = ""
    state: str = ""
    isReplay: bool = False  # noqa: N815 - the wire's own spelling
    isSynthetic: bool = False  # noqa: N815
    is_api_error_message: bool = False
    user_message_uuids: list[str] = []


_LINE = decoding.Decoder(StreamLine)


class OpenTurn:
    """The native turn that the stream is in."""

    __slots__ = ("carry", "finished", "known", "message", "native", "prompted", "text", "tools")

    def __init__(self, native: str, *, prompted: bool) -> None:
        self.native = native
        self.prompted = prompted
        self.message = ""
        self.text: str | None = None
        """Of the last assistant message; None while there is none."""
        self.carry = ""
        """Of the message before, which this one goes on."""
        self.known = False
        """Its text was told."""
        self.tools: set[str] = set()
        self.finished: set[str] = set()


class StreamJsonOracle(LineOracle):
    """Reads one stream. Raises nothing for any input."""

    echoes_prompts = False
    """Whether a ``user`` event of text is the prompt of the turn."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn: OpenTurn | None = None
        self._version = ""

    @property
    def _busy(self) -> bool:
        return self._turn is not None

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _LINE.decode(data)
        stamp = line.timestamp or line.timestamp_ms
        native_id = line.uuid or (line.message.id if line.message is not None else "") or line.request_id or ""
        evidence = Evidence(source=source, offset=offset, native_id=native_id, native_at=when(stamp))
        if line.type in SILENT_TYPES:
            return
        if not line.session_id or self._foreign(line.session_id):
            self._unknown("foreign_session", evidence)
            return
        if line.parent_tool_use_id:
            return  # a sub-agent's
        match line.type:
            case "system":
                self._system(line, evidence)
            case "user":
                self._user(line, evidence)
            case "assistant" if line.message is not None:
                self._assistant(self._open(evidence), line, line.message, evidence)
            case "tool_call":
                self._tool_call(self._open(evidence), line, evidence)
            case "result":
                self._result(line, evidence)
            case _:
                self._other(line, evidence)

    def _other(self, line: StreamLine, evidence: Evidence) -> None:
        """An event of a type that not every one of these CLIs has."""
        self._unknown(f"type:{line.type[:40]}", evidence)

    def _system(self, line: StreamLine, evidence: Evidence) -> None:
        match line.subtype:
            case "init":
                version = line.claude_code_version or line.qwen_code_version or ""
                if version and version != self._version:
                    self._version = version
                    self._facts.append(CliVersionSeen(version=version))
                self._init(line, evidence)
            case "compact_boundary":
                self._facts.append(CompactionRecorded(evidence=evidence))
            case "api_retry":
                if self._turn is not None:
                    message = as_json(line.error)[:2000] if line.error is not None else ""
                    retrying = ProviderRetrying(native_turn=self._turn.native, message=message, evidence=evidence)
                    self._facts.append(retrying)
            case _:
                pass  # hooks, thinking, status: nothing about the turn's life

    def _init(self, line: StreamLine, evidence: Evidence) -> None:  # noqa: ARG002 - for those that say more in it
        """A native turn begins."""
        self._supersede(evidence)
        self._begin(evidence)

    def _supersede(self, evidence: Evidence) -> None:
        """No end of the turn that is open will come any more."""
        turn, self._turn = self._turn, None
        if turn is not None and turn.prompted:
            self._close(TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED))

    def _begin(self, evidence: Evidence) -> OpenTurn:
        native = f"{self._native_session}@{evidence.offset}"
        self._turn = turn = OpenTurn(native, prompted=False)
        if not self.echoes_prompts:
            self._prompted(turn, "", evidence)
        return turn

    def _open(self, evidence: Evidence) -> OpenTurn:
        """The open turn; one that was begun before the stream is read, where there is none."""
        turn = self._turn or self._begin(evidence)
        if not turn.prompted:
            self._prompted(turn, "", evidence)
        return turn

    def _prompted(self, turn: OpenTurn, text: str, evidence: Evidence) -> None:
        turn.prompted = True
        self._facts.append(PromptRecorded(native_turn=turn.native, text=text, evidence=evidence, taken="sdk"))

    def _user(self, line: StreamLine, evidence: Evidence) -> None:
        blocks = line.message.blocks if line.message is not None else []
        results = [block for block in blocks if block.type == "tool_result"]
        if self.echoes_prompts and not results:
            turn = self._turn or self._begin(evidence)
            if not turn.prompted:
                self._prompted(turn, "".join(block.text for block in blocks if block.type == "text"), evidence)
            return
        turn_now = self._turn
        for block in results:
            if turn_now is not None:
                self._returned(turn_now, block.tool_use_id, block.content, evidence, failed=block.is_error)

    def _assistant(self, turn: OpenTurn, line: StreamLine, message: Message, evidence: Evidence) -> None:
        if not message.id or turn.message != message.id:
            turn.message, turn.text, turn.carry = message.id, turn.carry, ""
        for block in message.blocks:
            if block.type == "text":
                turn.text = (turn.text or "") + block.text
                self._facts.append(
                    AssistantSaid(
                        native_turn=turn.native,
                        native_message=message.id or line.model_call_id or f"@{evidence.offset}",
                        text=turn.text,
                        evidence=evidence,
                    )
                )
            elif block.type in ("tool_use", "server_tool_use", "mcp_tool_use"):
                self._called(turn, block.id, block.name, block.input, evidence)

    def _tool_call(self, turn: OpenTurn, line: StreamLine, evidence: Evidence) -> None:
        """Cursor's: ``{"<name>ToolCall": {"args", "result"?: {"success"|…}}}``."""
        if not line.tool_call:
            self._unknown("tool_call_without_call", evidence)
            return
        key, call = next(iter(line.tool_call.items()))
        known = call if isinstance(call, dict) else {}
        name = known.get("name") if key == "function" else key.removesuffix("ToolCall")
        self._called(turn, line.call_id, name if isinstance(name, str) else key, known.get("args"), evidence)
        if line.subtype == "completed":
            result = known.get("result")
            failed = not (isinstance(result, dict) and "success" in result)
            self._returned(turn, line.call_id, result, evidence, failed=failed)

    def _called(self, turn: OpenTurn, call_id: str, name: str, arguments: Any, evidence: Evidence) -> None:
        turn.text, turn.message = None, ""  # text before a call is not the answer
        if call_id and call_id not in turn.tools:
            turn.tools.add(call_id)
            self._facts.append(
                ToolStarted(
                    native_turn=turn.native,
                    call_id=call_id,
                    name=name,
                    arguments="{}" if arguments is None else as_json(arguments),
                    evidence=evidence,
                )
            )

    def _returned(self, turn: OpenTurn, call_id: str, content: Any, evidence: Evidence, *, failed: bool | None) -> None:
        if call_id in turn.tools and call_id not in turn.finished:
            turn.finished.add(call_id)
            status: ToolStatus = "error" if failed else "ok"
            result = cut("" if content is None else as_json(content))
            self._facts.append(
                ToolFinished(native_turn=turn.native, call_id=call_id, status=status, result=result, evidence=evidence)
            )

    def _result(self, line: StreamLine, evidence: Evidence) -> None:
        turn = self._turn
        if turn is None:
            self._unknown("late_terminal", evidence)
            return
        if line.is_error is None and line.subtype is None:
            self._unknown("result_without_verdict", evidence)
            return
        if not turn.prompted:
            self._prompted(turn, "", evidence)
        self._turn = None
        reason = line.terminal_reason or ""
        if reason in CANCELLED:
            closed = TurnClosed(native_turn=turn.native, status="cancelled", evidence=evidence)
        elif line.is_error or (line.subtype or "success").startswith("error") or reason not in ("", "completed"):
            error = self._error(line)
            closed = TurnClosed(native_turn=turn.native, status="failed", evidence=evidence, error=error)
        else:
            answer = turn.text
            if answer is None:
                answer = line.result if isinstance(line.result, str) and not turn.tools else ""
            closed = TurnClosed(native_turn=turn.native, status="completed", evidence=evidence, answer=answer)
        self._close(closed)

    def _error(self, line: StreamLine) -> TurnError:
        told = next((one for one in (line.result, line.error, line.errors) if one), None)
        message = told.get("message") if isinstance(told, dict) and isinstance(told.get("message"), str) else told
        word = line.terminal_reason if line.terminal_reason not in (None, "completed") else line.subtype
        kind: ErrorKind | None = "refused" if line.stop_reason == "refusal" else None
        text = as_json(message) if message is not None else ""
        native = word if word and word != "success" else ""
        return turn_error(text, kind=kind, word=native, status=line.api_error_status)


class QwenStreamOracle(StreamJsonOracle):
    """Qwen Code's ``--output-format stream-json`` (0.24.4)."""


class CursorStreamOracle(StreamJsonOracle):
    """Cursor's ``-p --output-format stream-json``; from its documentation, not from recordings."""

    echoes_prompts = True
