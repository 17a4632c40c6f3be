"""The oracles of Codex's two streams: ``exec --json`` and the app-server's JSON-RPC. Bytes to facts, pure.

``exec --json``: one turn a process. ``turn.started`` opens it; ``turn.completed`` or ``turn.failed`` closes it. An
``error`` event is a retry, not an end, and a process that was interrupted or killed writes no end at all. The stream
echoes no prompt and names no turn: its native turn is the thread with the place of its start, the file included, since
each run of a conversation begins alike. What runs of another conversation say in the same file is none of ours.

App-server: ``turn/started`` and ``turn/completed`` of our thread (the first that is named: others start later), by
turn id, which is that of the rollout. A second ``userMessage`` is a steer. ``error`` with ``willRetry`` is a retry;
the terminal status stands in ``turn/completed`` alone. A message of ours is named by its ``clientId``, and so are its
request and the reply to that (``start:NAME``, ``steer:NAME``): the reply to the one says which turn it begins, before
its text is on record; the reply to the other, that it waits to be taken into the running turn.

Live use and the end of the file: every end stands in a record, so the end of the file adds nothing.

Source: codex-cli 0.171.0, docs/providers/codex.md; samples in tests/fixtures/codex/0.171.0/streams.
"""

from __future__ import annotations

import shlex
from typing import Any, Final

import msgspec

from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.facts import (
    AssistantSaid,
    CliVersionSeen,
    CompactionRecorded,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence, Status
from lastword.transports.providers import decoding
from lastword.transports.providers.codex_oracle import error_of
from lastword.transports.providers.codex_records import (
    ExecItem,
    ExecLine,
    RateLimits,
    ServerError,
    ServerItem,
    ServerLine,
    ServerParams,
    ServerResult,
    text_of,
)
from lastword.transports.providers.line_oracle import SUPERSEDED, LineOracle, as_json, cut, when

START: Final = "start"
STEER: Final = "steer"
"""How the requests are named that carry a message: ``start:NAME``, ``steer:NAME``."""
BEGUN_MAX = 64
"""Turns that a reply has named and that have not started yet."""
SHELL_CHARS_MAX = 4096
"""A longer command line is shown as it is, with the shell around it."""
TOOL_NAMES = {
    "command_execution": "exec_command",
    "commandExecution": "exec_command",
    "file_change": "apply_patch",
    "fileChange": "apply_patch",
    "web_search": "web_search",
    "webSearch": "web_search",
}
CALLS = frozenset({"command_execution", "mcp_tool_call", "file_change", "web_search", "collab_tool_call"})
SERVER_CALLS = frozenset(
    {
        "commandExecution",
        "mcpToolCall",
        "fileChange",
        "webSearch",
        "dynamicToolCall",
        "collabAgentToolCall",
        "imageGeneration",
    }
)
SILENT_EXEC_ITEMS = frozenset({"reasoning", "error", "todo_list"})
SILENT_SERVER_ITEMS = frozenset(
    {
        "reasoning",
        "plan",
        "enteredReviewMode",
        "exitedReviewMode",
        "hookPrompt",
        "functionCallOutput",
        "subAgentActivity",
        "imageView",
        "sleep",
    }
)
STATUSES: dict[str, Status] = {"completed": "completed", "interrupted": "cancelled", "failed": "failed"}

_EXEC = decoding.Decoder(ExecLine)
_SERVER = decoding.Decoder(ServerLine)


class _Turn:
    __slots__ = ("answer", "key", "native", "prompted", "told", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.prompted = False
        self.key = ""
        """The message that began it, where it has a name."""
        self.told = False
        """Its text is on record."""
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
            self._facts.append(
                ToolStarted(
                    native_turn=turn.native,
                    call_id=item.id,
                    name=name,
                    arguments=as_json(_arguments(item)),
                    evidence=evidence,
                )
            )
        if over:
            self._facts.append(
                ToolFinished(
                    native_turn=turn.native,
                    call_id=item.id,
                    status=_status(item),
                    result=cut(_result(item)),
                    evidence=evidence,
                )
            )


def _status(item: ExecItem | ServerItem) -> ToolStatus:
    failed = item.status in ("failed", "declined") or (item.exit_code is not None and item.exit_code != 0)
    return "error" if failed or item.error is not None else "ok"


def _arguments(item: ExecItem | ServerItem) -> Any:
    if item.arguments is not None:
        return item.arguments
    if item.changes is not None:
        return {"changes": item.changes}
    if item.query is not None:
        return {"query": item.query}
    if isinstance(item.command, str):
        return {"command": inner_command(item.command)}
    return {} if item.command is None else {"command": item.command}


def _result(item: ExecItem | ServerItem) -> str:
    if item.aggregated_output is not None:
        return item.aggregated_output
    if isinstance(item.error, dict) and isinstance(item.error.get("message"), str):
        return str(item.error["message"])
    content = item.result.get("content") if isinstance(item.result, dict) else None
    if text := text_of(content):
        return text
    return "" if item.result is None else as_json(item.result)


def inner_command(line: str) -> str:
    """The command that the model gave: Codex shows it with the shell that runs it (``/bin/bash -lc '…'``)."""
    if " -lc " not in line[:64] or len(line) > SHELL_CHARS_MAX:
        return line
    try:
        words = shlex.split(line)
    except ValueError:
        return line
    return words[2] if len(words) == 3 and words[1] == "-lc" else line


class CodexExecOracle(_ItemOracle):
    """Reads the output of ``codex exec --json``. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._elsewhere = False
        """What comes is of another conversation's run."""

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _EXEC.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.item.id if line.item is not None else "")
        turn = self._turn
        match line.type:
            case "thread.started":
                self._elsewhere = self._foreign(line.thread_id)
                if self._elsewhere:
                    self._unknown("foreign_session", evidence)
            case _ if self._elsewhere:
                pass
            case "turn.started":
                if turn is not None:
                    self._close(TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED))
                turn = self._turn = _Turn(f"{self._native_session}@{source}:{offset}")
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
                    error = error_of(line.error.message if line.error is not None else "", None)
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

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._begun: dict[str, str] = {}
        """Turns that have not started yet, with the name of the message that begins each."""
        self._limits: RateLimits | None = None

    @property
    def _busy(self) -> bool:
        return super()._busy or bool(self._begun)

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _SERVER.decode(data)
        params = line.params or ServerParams()
        native_id = (params.item.client_id or params.item.id) if params.item is not None else ""
        at = when(line.emitted_at_ms)
        evidence = Evidence(source=source, offset=offset, native_id=native_id or params.turn_id or "", native_at=at)
        if not line.method:
            self._reply(line.id, line.result, evidence)
            return
        if params.thread is not None and line.method == "thread/started":
            if params.thread.cli_version and not self._foreign(params.thread.id):
                self._facts.append(CliVersionSeen(version=params.thread.cli_version))
            self._foreign(params.thread.id)
            return
        if params.thread_id and self._foreign(params.thread_id):
            return  # the hidden title thread, a sub-agent's, or another one of this server
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
                    message = ": ".join(filter(None, (params.error.message, params.error.additional_details)))[:2000]
                    self._facts.append(ProviderRetrying(native_turn=turn.native, message=message, evidence=evidence))
            case "account/rateLimits/updated":
                self._limits = params.limits or self._limits
            case "thread/compacted":
                self._facts.append(CompactionRecorded(evidence=evidence))
            case _:
                pass  # deltas, usage, states, requests for approval: nothing about the turn's life

    def _reply(self, request_id: Any, result: Any, evidence: Evidence) -> None:
        if not isinstance(result, dict):
            return
        reply = msgspec.convert(result, ServerResult)
        if reply.thread is not None and not self._foreign(reply.thread.id) and reply.thread.cli_version:
            self._facts.append(CliVersionSeen(version=reply.thread.cli_version))
        what, _, key = request_id.partition(":") if isinstance(request_id, str) else ("", "", "")
        if not key or what not in (START, STEER):
            return
        native = (reply.turn.id if reply.turn is not None else "") if what == START else reply.turn_id
        turn = self._turn
        if turn is not None and turn.native == native:
            if what == START and not turn.prompted:
                turn.key = key
                self._prompted(turn, "", evidence)
            elif key != turn.key:
                self._facts.append(InputQueued(text="", key=key, evidence=evidence))  # it waits for the running turn
        elif what == STEER and native in self._begun:
            self._facts.append(InputQueued(text="", key=key, evidence=evidence))
        elif what == START and native and native not in self._closed:
            self._begun[native] = key
            forget_oldest(self._begun, BEGUN_MAX)

    def _started(self, params: ServerParams, evidence: Evidence) -> None:
        native, turn = params.turn.id if params.turn is not None else "", self._turn
        if not native or native in self._closed or (turn is not None and turn.native == native):
            self._unknown("turn_started_again", evidence)
            return
        if turn is not None and turn.prompted:
            self._close(TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED))
        self._turn = turn = _Turn(native)
        turn.key = self._begun.pop(native, "")
        if turn.key:
            self._prompted(turn, "", evidence)

    def _prompted(self, turn: _Turn, text: str, evidence: Evidence, origin: str = "") -> None:
        turn.prompted = True
        self._facts.append(
            PromptRecorded(
                native_turn=turn.native,
                text=text,
                key=turn.key,
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
            error = error_of(told.message, told.codex_error_info, self._limits)
        answer = (None if own else turn.answer) if status == "completed" else None
        self._close(TurnClosed(native_turn=turn.native, status=status, evidence=evidence, answer=answer, error=error))

    def _server_item(self, params: ServerParams, evidence: Evidence, *, over: bool) -> None:
        item, turn = params.item, self._turn
        if item is None or item.type in SILENT_SERVER_ITEMS:
            return
        if turn is None or (params.turn_id and params.turn_id != turn.native):
            self._unknown("item_without_turn", evidence)
        elif item.type in SERVER_CALLS:
            self._call(turn, item, evidence, over=over)
        elif not over:
            pass
        elif item.type == "userMessage":
            self._user(turn, item, evidence)
        elif item.type == "agentMessage":
            self._said(turn, item, evidence)
        elif item.type == "contextCompaction":
            self._facts.append(CompactionRecorded(evidence=evidence))
        else:
            self._unknown(f"item:{item.type[:40]}", evidence)

    def _user(self, turn: _Turn, item: ServerItem, evidence: Evidence) -> None:
        text, key = text_of(item.content), item.client_id or ""
        first = not turn.prompted
        if first or (turn.key == key and key and not turn.told):
            turn.key, turn.told = key, True
            self._prompted(turn, text, evidence)  # told again with its text, where the reply had named it
        else:
            turn.answer = ""
            self._facts.append(InputJoined(native_turn=turn.native, text=text, key=key, evidence=evidence))
