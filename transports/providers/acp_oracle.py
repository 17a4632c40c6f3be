"""What an agent said over the Agent Client Protocol, with what was said to it: two files to facts. Pure.

Theory of operation. Prompts are not echoed, so the file of what we sent is read too, and before each piece of what the
agent said. Requests go out in lock step (:mod:`lastword.transports.providers.acp_talk`): what the agent says belongs to
the oldest request that is not answered yet, and to a prompt only if that is one. The turn has begun with the first
thing that the agent says about it. Its end is the answer to the prompt, a ``stopReason`` or an error, and nothing else:
no update ever ends a turn. An update between two turns is late and is counted; it changes neither.

The answer is the agent's last message: its text since the last tool call.

A ``cancelled`` that nobody asked for, said behind the death of the process that was started, is no cancellation: it is
what that process left behind, which saw the end of its stdin (Qwen Code's launcher and its child). That turn is lost.
So is one that is told ``cancelled`` to nobody, as the host that had asked was gone: it is what Qwen Code makes of that.

Source: protocol version 1; Gemini CLI 0.61.0, Qwen Code 0.24.4, opencode 1.18.33.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.facts import (
    AssistantSaid,
    CliVersionSeen,
    Fact,
    PromptRecorded,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    UnknownRecord,
)
from lastword.actors.core.outcome import ErrorKind, Evidence, TurnError
from lastword.actors.core.talk import EXITED, ORPHANED
from lastword.actors.core.transcript import LineFramer
from lastword.transports.providers import acp_wire as wire
from lastword.transports.providers import decoding
from lastword.transports.providers.line_oracle import cut, turn_error

SENT_ENDING = ".sent.jsonl"
LEFT = TurnError(
    kind="provider_exited",
    message="the agent's process is gone, and what it left behind said 'cancelled', for which nobody had asked",
    native_kind="cancelled",
)
ALONE = TurnError(
    kind="provider_exited",
    message="the agent's host was gone, and it said 'cancelled', for which nobody had asked",
    native_kind="cancelled",
)
NAMES_MAX = 4096
"""Messages and tool calls of turns that are over, by which what comes late is known."""
_CONTENT = frozenset({"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"})
"""Updates that are about a turn; others (commands, modes, usage) are about the conversation."""
_ABORTED = re.compile(r"abort|cancel", re.IGNORECASE)
_STATUS = re.compile(r'"code"\s*:\s*"?([45]\d\d)\b|^\W*([45]\d\d)\b|\bstatus(?: code)?[ :=]+([45]\d\d)\b')

_UPDATE = decoding.Decoder(wire.UpdateParams)
_ASKED = decoding.Decoder(wire.PermissionParams)
_PROMPT = decoding.Decoder(wire.PromptParams)
_PROMPTED = decoding.Decoder(wire.Prompted)
_INITIALIZED = decoding.Decoder(wire.Initialized)
_EXITED = decoding.Decoder(wire.Exited)


class _Tool(msgspec.Struct, kw_only=True):
    """One call of the running turn."""

    title: str = ""
    kind: str = ""
    name: str = ""
    arguments: Any = None
    output: str = ""
    told: bool = False
    finished: bool = False


class _Request(msgspec.Struct, kw_only=True):
    """One request of ours that is not answered yet."""

    method: str
    text: str = ""
    begun: bool = False
    cancelled: bool = False
    """We asked it to stop."""
    said: str = ""
    message: str = ""
    messages: int = 0
    tools: dict[str, _Tool] = {}


class AcpOracle:
    """Reads one process's two files. Raises nothing for any input."""

    def __init__(self) -> None:
        self._native_session = ""
        """Of the prompts."""
        self._framers: dict[str, LineFramer] = {}
        self._facts: list[Fact] = []
        self._open: dict[str, _Request] = {}
        """By request id, oldest first."""
        self._over: dict[str, None] = {}
        """Names of messages and tool calls of turns that are over."""
        self._answered: deque[str] = deque(maxlen=64)
        self._exited_at: int | None = None
        """So much had been said when the process was gone."""
        self._orphaned = False

    @property
    def quiescent(self) -> bool:
        """No request is open and no half line is held."""
        return not self._open and not any(framer.tail_bytes for framer in self._framers.values())

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Facts of the bytes that follow the previous chunk of that source."""
        framer = self._framers.setdefault(source, LineFramer())
        for line in framer.feed(chunk):
            evidence = Evidence(source=source, offset=line.offset)
            if line.oversized:
                self._unknown("oversized_line", evidence)
            elif line.data.strip():
                self._line(line.data, evidence)
        return self._taken()

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:  # noqa: ARG002 - no such source
        """Nothing: there is no snapshot file."""
        return []

    def eof(self, source: str) -> list[Fact]:
        """The agent is gone and all was fed: a whole last line without its newline counts."""
        framer = self._framers.get(source)
        tail = framer.flush() if framer is not None else None
        if tail is not None and tail.data.strip() and not tail.oversized:
            self._line(tail.data, Evidence(source=source, offset=tail.offset))
        return self._taken()

    def _taken(self) -> list[Fact]:
        facts, self._facts = self._facts, []
        return facts

    def _unknown(self, what: str, evidence: Evidence) -> None:
        self._facts.append(UnknownRecord(what=what, evidence=evidence))

    def _line(self, data: bytes, evidence: Evidence) -> None:
        try:
            objects = wire.read(data)
        except wire.UNREADABLE:
            self._unknown("unreadable", evidence)
            return
        for said in objects:
            try:
                self._object(said, evidence)
            except wire.UNREADABLE:
                self._unknown("unreadable", evidence)

    def _object(self, said: wire.Rpc, evidence: Evidence) -> None:
        if evidence.source.endswith(SENT_ENDING):
            self._sent(said)
        elif said.method:
            self._told(said, evidence)
        elif isinstance(said.id, str) and said.id in self._open:
            self._answer(said.id, said, msgspec.structs.replace(evidence, native_id=said.id))
        else:
            late = isinstance(said.id, str) and said.id in self._answered
            self._unknown("late_terminal" if late else "answer_to_nothing", evidence)

    # --- what we sent -----------------------------------------------------------------------------------------------

    def _sent(self, said: wire.Rpc) -> None:
        if said.method == wire.CANCEL:
            prompt = next(reversed(self._open.values()), None)
            if prompt is not None:
                prompt.cancelled = True
        elif said.method == EXITED:
            self._exited_at = _EXITED.decode(said.params).heard
        elif said.method == ORPHANED:
            self._orphaned = True
        elif said.method and isinstance(said.id, str):
            text = ""
            if said.method == wire.PROMPT:
                asked = _PROMPT.decode(said.params)
                text = "".join(block.text for block in asked.prompt)
                self._native_session = asked.session_id
            self._open[said.id] = _Request(method=said.method, text=text)

    # --- what the agent said ----------------------------------------------------------------------------------------

    def _told(self, said: wire.Rpc, evidence: Evidence) -> None:
        key, turn = next(iter(self._open.items()), ("", None))
        if turn is not None and turn.method != wire.PROMPT:
            turn = None
        if said.method == wire.UPDATE:
            params = _UPDATE.decode(said.params)
            self._update(key, turn, params, msgspec.structs.replace(evidence, native_id=params.update.tool_call_id))
        elif said.method == wire.PERMISSION:
            asked = _ASKED.decode(said.params)
            if turn is None or not self._is_ours(asked.session_id):
                self._unknown("permission_of_no_turn", evidence)
                return
            self._begin(key, turn, evidence)
            self._tool(key, turn, asked.tool_call, evidence, known=True)
        else:
            self._unknown(f"method:{said.method[:40]}", evidence)

    def _is_ours(self, session: str) -> bool:
        """No prompt was sent before the conversation had a name: what bears none is nobody's."""
        return not self._native_session or session == self._native_session

    def _update(self, key: str, turn: _Request | None, params: wire.UpdateParams, evidence: Evidence) -> None:
        update, kind = params.update, params.update.session_update
        if not self._is_ours(params.session_id):
            self._unknown("foreign_session", evidence)
        elif kind == "user_message_chunk":
            if turn is not None:  # an old conversation told anew, or an echo: what came before is none of this turn's
                turn.said = turn.message = ""
        elif kind not in _CONTENT:
            self._unknown(f"update:{kind[:40]}", evidence)
        elif turn is None or update.tool_call_id in self._over or (update.message_id or "") in self._over:
            self._unknown("late_update", evidence)
        else:
            self._begin(key, turn, evidence)
            match kind:
                case "agent_message_chunk":
                    self._chunk(key, turn, update, evidence)
                case "tool_call" | "tool_call_update" if update.tool_call_id:
                    self._tool(key, turn, update, evidence, known=False)
                case _:
                    pass  # a thought, a plan

    def _begin(self, key: str, turn: _Request, evidence: Evidence) -> None:
        if not turn.begun:
            turn.begun = True
            self._facts.append(PromptRecorded(native_turn=key, text=turn.text, key=key, taken="sdk", evidence=evidence))

    def _chunk(self, key: str, turn: _Request, update: wire.Update, evidence: Evidence) -> None:
        content = update.content
        text = content.get("text") if isinstance(content, dict) and content.get("type") == "text" else None
        if not isinstance(text, str) or not text:
            return
        if update.message_id and update.message_id != turn.message:
            self._said(key, turn, evidence)
            turn.message = update.message_id
        turn.said += text

    def _said(self, key: str, turn: _Request, evidence: Evidence) -> None:
        """What was said up to here is one message."""
        text, turn.said = turn.said, ""
        if text:
            turn.messages += 1
            name = turn.message or f"{key}#{turn.messages}"
            self._over_soon(turn.message)
            self._facts.append(AssistantSaid(native_turn=key, native_message=name, text=text, evidence=evidence))

    def _tool(self, key: str, turn: _Request, call: wire.ToolCall, evidence: Evidence, *, known: bool) -> None:
        """A call, or news of one. It is told as begun once its arguments are whole: it runs, or is asked about."""
        if call.tool_call_id not in turn.tools:
            self._said(key, turn, evidence)
            turn.message = ""
        tool = turn.tools.setdefault(call.tool_call_id, _Tool())
        if tool.finished:
            return
        tool.title = call.title or tool.title
        tool.kind = call.kind or tool.kind
        name = call.meta.get("toolName") if isinstance(call.meta, dict) else None
        tool.name = name if isinstance(name, str) and name else tool.name
        tool.arguments = call.raw_input or tool.arguments
        tool.output = wire.texts(call.content) or tool.output
        if known or call.status in ("in_progress", "completed", "failed"):
            self._tool_begun(key, call.tool_call_id, tool, evidence)
        if call.status in ("completed", "failed"):
            tool.finished = True
            self._facts.append(
                ToolFinished(
                    native_turn=key,
                    call_id=call.tool_call_id,
                    status="ok" if call.status == "completed" else "error",
                    result=cut(tool.output or (wire.as_text(call.raw_output) if call.raw_output else "")),
                    evidence=evidence,
                )
            )

    def _tool_begun(self, key: str, call_id: str, tool: _Tool, evidence: Evidence) -> None:
        if not tool.told:
            tool.told = True
            arguments = tool.arguments if tool.arguments is not None else {"title": tool.title}
            self._facts.append(
                ToolStarted(
                    native_turn=key,
                    call_id=call_id,
                    name=tool.name or tool.kind or tool.title or "tool",
                    arguments=wire.as_text(arguments),
                    evidence=evidence,
                )
            )

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, key: str, said: wire.Rpc, evidence: Evidence) -> None:
        request = self._open.pop(key)
        self._answered.append(key)
        if request.method == wire.INITIALIZE and said.error is None:
            agent = _INITIALIZED.decode(said.result).agent_info
            if agent is not None and agent.version:
                self._facts.append(CliVersionSeen(version=agent.version))
        if request.method != wire.PROMPT:
            return
        self._begin(key, request, evidence)
        answer = request.said
        self._said(key, request, evidence)
        for call_id, tool in request.tools.items():
            self._tool_begun(key, call_id, tool, evidence)  # its end is told with the turn's
            self._over_soon(call_id)
        self._facts.append(self._closed(key, request, said, answer, evidence))

    def _closed(self, key: str, turn: _Request, said: wire.Rpc, answer: str, evidence: Evidence) -> TurnClosed:
        if said.error is not None:
            if turn.cancelled and _is_abort(said.error):
                return TurnClosed(native_turn=key, status="cancelled", evidence=evidence)
            return TurnClosed(native_turn=key, status="failed", evidence=evidence, error=rpc_error(said.error))
        try:
            told = _PROMPTED.decode(said.result).stop_reason
            reason = wire.as_text(told) if told is not None else ""
        except wire.UNREADABLE:
            reason = ""
        match reason:
            case "end_turn" if turn.cancelled and not answer and not turn.messages and not turn.tools:
                return TurnClosed(native_turn=key, status="cancelled", evidence=evidence)  # stopped before it began
            case "end_turn":
                return TurnClosed(native_turn=key, status="completed", evidence=evidence, answer=answer)
            case "cancelled" if (
                not turn.cancelled and self._exited_at is not None and evidence.offset >= self._exited_at
            ):
                return TurnClosed(native_turn=key, status="lost", evidence=evidence, error=LEFT)
            case "cancelled" if not turn.cancelled and self._orphaned:
                return TurnClosed(native_turn=key, status="lost", evidence=evidence, error=ALONE)
            case "cancelled":
                return TurnClosed(native_turn=key, status="cancelled", evidence=evidence)
            case "refusal":
                error = turn_error("the model refused", kind="refused", word=reason)
            case _:
                error = turn_error(
                    f"the agent stopped before its end: {reason or 'no stopReason'}",
                    kind="provider_error",
                    word=reason,
                )
        return TurnClosed(native_turn=key, status="failed", evidence=evidence, error=error)

    def _over_soon(self, name: str) -> None:
        if name:
            self._over[name] = None
            forget_oldest(self._over, NAMES_MAX)


def _is_abort(error: wire.RpcError) -> bool:
    """Whether an error behind our own cancel is its effect: it says so, or is an internal one that tells no cause."""
    words = f"{error.message} {wire.as_text(error.data) if error.data else ''}"
    if error.code == wire.REQUEST_CANCELLED or _ABORTED.search(words):
        return True
    return error.code == wire.INTERNAL_ERROR and not error.data and rpc_error(error).status_code is None


def rpc_error(error: wire.RpcError) -> TurnError:
    """A JSON-RPC error as why a turn failed. Agents put what the model's service said into its message or its data."""
    data = error.data if isinstance(error.data, dict) else {}
    details = data.get("details") or data.get("message") or ""
    message = error.message if not details else f"{error.message}: {wire.as_text(details)}"
    status = error.code if 400 <= error.code < 600 else None
    for text in (wire.as_text(details), error.message):
        if status is None and (found := _STATUS.search(text)):
            status = int(next(group for group in found.groups() if group))
    kind: ErrorKind | None = "authentication" if error.code == wire.AUTH_REQUIRED else None
    word = data.get("errorName")
    if not isinstance(word, str):
        word = str(error.code) if error.code else ""
    return turn_error(message, kind=kind, word=word, status=status)


__all__ = ["AcpOracle", "rpc_error"]
