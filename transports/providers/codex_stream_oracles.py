"""The oracles of Codex's two streams: ``exec --json`` and the app-server's JSON-RPC. Bytes to facts, pure.

``exec --json``: one turn a process. ``turn.started`` opens it; ``turn.completed`` or ``turn.failed`` closes it. An
``error`` event is a retry, not an end, and a process that was interrupted or killed writes no end at all. The stream
echoes no prompt and names no turn: its native turn is the thread with the offset of its start.

App-server: ``turn/started`` and ``turn/completed`` of our thread (the first that is named: the hidden title thread
starts later), by turn id, which is that of the rollout. A second ``userMessage`` is a steer. ``error`` with
``willRetry`` is a retry; the terminal status stands in ``turn/completed`` alone.

Live use and the end of the file: every end stands in a record, so the end of the file adds nothing.

Source: codex-cli 0.171.0, docs/providers/codex.md; samples in tests/fixtures/codex/0.171.0/streams.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.facts import (
    AssistantSaid,
    CliVersionSeen,
    CompactionRecorded,
    InputJoined,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence, Status
from lastword.transports.providers.codex_oracle import error_of
from lastword.transports.providers.codex_records import (
    ExecItem,
    ExecLine,
    ServerError,
    ServerItem,
    ServerLine,
    ServerParams,
    ServerResult,
    text_of,
)
from lastword.transports.providers.line_oracle import SUPERSEDED, LineOracle, as_json, cut, turn_error, when

TOOL_NAMES = {"command_execution": "exec_command", "commandExecution": "exec_command"}
CALLS = frozenset({"command_execution", "mcp_tool_call", "file_change", "web_search", "collab_tool_call"})
SERVER_CALLS = frozenset({"commandExecution", "mcpToolCall", "fileChange", "webSearch", "dynamicToolCall"})
SILENT_EXEC_ITEMS = frozenset({"reasoning", "error", "todo_list"})
SILENT_SERVER_ITEMS = frozenset({"reasoning", "plan", "enteredReviewMode", "exitedReviewMode", "hookPrompt"})
STATUSES: dict[str, Status] = {"completed": "completed", "interrupted": "cancelled", "failed": "failed"}

_EXEC = msgspec.json.Decoder(ExecLine)
_SERVER = msgspec.json.Decoder(ServerLine)


class _Turn:
    __slots__ = ("answer", "native", "prompted", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.prompted = False
        self.answer = ""
        self.tools: set[str] = set()


class _ItemOracle(LineOracle):
    """What both streams share: items of an open turn."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn: _Turn | None = None

    @property
    def _busy(self) -> bool:
        return self._turn is not None

    def _said(self, turn: _Turn, item: ExecItem | ServerItem, evidence: Evidence) -> None:
        turn.answer = item.text or ""
        said = AssistantSaid(native_turn=turn.native, native_message=item.id, text=item.text or "", evidence=evidence)
        self._facts.append(said)

    def _call(self, turn: _Turn, item: ExecItem | ServerItem, evidence: Evidence, *, over: bool) -> None:
        turn.answer = ""  # text before a call is not the answer
        if item.id not in turn.tools:
            turn.tools.add(item.id)
            name = TOOL_NAMES.get(item.type, item.type)
            if item.tool:
                name = f"mcp__{item.server}__{item.tool}" if item.server else item.tool
            arguments = item.arguments if item.arguments is not None else item.command
            self._facts.append(
                ToolStarted(
                    native_turn=turn.native,
                    call_id=item.id,
                    name=name,
                    arguments=as_json(arguments),
                    evidence=evidence,
                )
            )
        if over:
            result = item.aggregated_output if item.aggregated_output is not None else item.result
            self._facts.append(
                ToolFinished(
                    native_turn=turn.native,
                    call_id=item.id,
                    status=_status(item),
                    result=cut("" if result is None else as_json(result)),
                    evidence=evidence,
                )
            )


def _status(item: ExecItem | ServerItem) -> ToolStatus:
    failed = item.status in ("failed", "declined") or (item.exit_code is not None and item.exit_code != 0)
    return "error" if failed else "ok"


class CodexExecOracle(_ItemOracle):
    """Reads the output of ``codex exec --json``. Raises nothing for any input."""

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _EXEC.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.item.id if line.item is not None else "")
        turn = self._turn
        match line.type:
            case "thread.started":
                if self._foreign(line.thread_id):
                    self._unknown("foreign_session", evidence)
            case "turn.started":
                if turn is not None:
                    self._close(TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED))
                turn = self._turn = _Turn(f"{self._native_session}@{offset}")
                self._facts.append(PromptRecorded(native_turn=turn.native, text="", evidence=evidence, taken="sdk"))
            case "turn.completed" | "turn.failed":
                if turn is None:
                    self._unknown("late_terminal", evidence)
                    return
                self._turn = None
                if line.type == "turn.completed":
                    closed = TurnClosed(
                        native_turn=turn.native, status="completed", evidence=evidence, answer=turn.answer
                    )
                else:
                    error = turn_error(line.error.message if line.error is not None else "")
                    closed = TurnClosed(native_turn=turn.native, status="failed", evidence=evidence, error=error)
                self._close(closed)
            case "error":
                if turn is not None:
                    retrying = ProviderRetrying(
                        native_turn=turn.native, message=(line.message or "")[:2000], evidence=evidence
                    )
                    self._facts.append(retrying)
            case "item.started" | "item.updated" | "item.completed":
                self._exec_item(line, evidence)
            case _:
                self._unknown(f"type:{line.type[:40]}", evidence)

    def _exec_item(self, line: ExecLine, evidence: Evidence) -> None:
        item, turn = line.item, self._turn
        if item is None or item.type in SILENT_EXEC_ITEMS:
            return
        over = line.type == "item.completed"
        if turn is None:
            self._unknown("item_without_turn", evidence)
        elif item.type in CALLS:
            self._call(turn, item, evidence, over=over)
        elif item.type == "agent_message":
            if over:
                self._said(turn, item, evidence)
        else:
            self._unknown(f"item:{item.type[:40]}", evidence)


class CodexAppServerOracle(_ItemOracle):
    """Reads what an app-server writes. Raises nothing for any input."""

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _SERVER.decode(data)
        params = line.params or ServerParams()
        native_id = (params.item.client_id or params.item.id) if params.item is not None else ""
        at = when(line.emitted_at_ms)
        evidence = Evidence(source=source, offset=offset, native_id=native_id or params.turn_id, native_at=at)
        if not line.method:
            self._reply(line.result)
            return
        if params.thread is not None and line.method == "thread/started":
            if params.thread.cli_version and not self._foreign(params.thread.id):
                self._facts.append(CliVersionSeen(version=params.thread.cli_version))
            self._foreign(params.thread.id)
            return
        if params.thread_id and self._foreign(params.thread_id):
            return  # the hidden title thread, or another one of this server
        match line.method:
            case "turn/started":
                self._started(params, evidence)
            case "turn/completed":
                self._completed(params, evidence)
            case "item/started" | "item/completed":
                self._server_item(params, evidence, over=line.method == "item/completed")
            case "error":
                turn = self._turn
                if turn is not None and params.will_retry and params.error is not None:
                    message = params.error.message[:2000]
                    self._facts.append(ProviderRetrying(native_turn=turn.native, message=message, evidence=evidence))
            case "thread/compacted":
                self._facts.append(CompactionRecorded(evidence=evidence))
            case _:
                pass  # deltas, usage, states, requests for approval: nothing about the turn's life

    def _reply(self, result: Any) -> None:
        if isinstance(result, dict) and isinstance(result.get("thread"), dict):
            reply = msgspec.convert(result, ServerResult)
            if reply.thread is not None:
                self._foreign(reply.thread.id)

    def _started(self, params: ServerParams, evidence: Evidence) -> None:
        native, turn = params.turn.id if params.turn is not None else "", self._turn
        if not native or native in self._closed or (turn is not None and turn.native == native):
            self._unknown("turn_started_again", evidence)
            return
        if turn is not None and turn.prompted:
            self._close(TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED))
        self._turn = _Turn(native)

    def _prompted(self, turn: _Turn, text: str, evidence: Evidence, origin: str = "") -> None:
        turn.prompted = True
        self._facts.append(
            PromptRecorded(
                native_turn=turn.native,
                text=text,
                evidence=evidence,
                taken="self" if origin else "sdk",
                origin=origin,
            )
        )

    def _completed(self, params: ServerParams, evidence: Evidence) -> None:
        turn = self._turn
        if params.turn is None or turn is None or turn.native != params.turn.id:
            self._unknown("late_terminal", evidence)
            return
        status = STATUSES.get(params.turn.status)
        if status is None:
            self._unknown(f"turn_status:{params.turn.status[:40]}", evidence)
            return
        own = not turn.prompted
        if own:
            self._prompted(turn, "", evidence, origin="local_command" if status == "completed" else "unknown")
        self._turn = None
        error = None
        if status == "failed":
            told = params.turn.error or ServerError()
            error = error_of(told.message, told.codex_error_info)
        answer = (None if own else turn.answer) if status == "completed" else None
        self._close(TurnClosed(native_turn=turn.native, status=status, evidence=evidence, answer=answer, error=error))

    def _server_item(self, params: ServerParams, evidence: Evidence, *, over: bool) -> None:
        item, turn = params.item, self._turn
        if item is None or item.type in SILENT_SERVER_ITEMS:
            return
        if turn is None or params.turn_id not in ("", turn.native):
            self._unknown("item_without_turn", evidence)
        elif item.type in SERVER_CALLS:
            self._call(turn, item, evidence, over=over)
        elif not over:
            pass
        elif item.type == "userMessage":
            text = text_of(item.content)
            if turn.prompted:
                turn.answer = ""
                self._facts.append(InputJoined(native_turn=turn.native, text=text, evidence=evidence))
            else:
                self._prompted(turn, text, evidence)
        elif item.type == "agentMessage":
            self._said(turn, item, evidence)
        elif item.type == "contextCompaction":
            self._facts.append(CompactionRecorded(evidence=evidence))
        else:
            self._unknown(f"item:{item.type[:40]}", evidence)
