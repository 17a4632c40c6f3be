"""The oracle of a Codex rollout: bytes to facts. Pure; what a fact means for a turn is decided elsewhere.

Theory of operation. ``task_started`` opens a native turn (its ``turn_id``), ``task_complete`` (with ``error``: failed)
or ``turn_aborted`` of that very id closes it, and nothing else does; the next ``task_started`` proves that an open one
never will (``lost``). The first ``UserMessage`` item of a turn is its prompt, each further one was steered in. A turn
that ends without any is the CLI's own (``!cmd``, ``/compact``): a pseudo turn. Text is that of ``AgentMessage`` items
and of the terminal record; ``response_item`` messages are the model's view (context, compaction summaries) and say
nothing. A file of a sub-agent or of the hidden title thread has no turn of ours at all.

Live use and the end of the file: every end stands in a record, so the end of the file adds nothing.

Source: codex-cli 0.171.0, tests/fixtures/codex/0.171.0.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lastword.actors.core.facts import (
    AssistantSaid,
    CliVersionSeen,
    CompactionRecorded,
    InputJoined,
    PromptRecorded,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import ErrorKind, Evidence, TurnError
from lastword.transports.providers import decoding
from lastword.transports.providers.codex_records import (
    ErrorField,
    Item,
    Payload,
    RateLimits,
    RolloutLine,
    text_of,
)
from lastword.transports.providers.line_oracle import SUPERSEDED, LineOracle, as_json, cut, turn_error, when

HIDDEN_THREADS = frozenset({"thread_title", "subagent", "sub_agent"})
ABORTED = "aborted by user"
ERROR_KINDS: dict[str, ErrorKind] = {
    "context_window_exceeded": "context_overflow",
    "usage_limit_exceeded": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "unauthorized": "authentication",
    "server_overloaded": "overloaded",
    "bad_request": "invalid_request",
    "cyber_policy": "refused",
}
SILENT_LINES = frozenset({"turn_context", "world_state", "token_usage_record", "inter_agent_communication"})
SILENT_EVENTS = frozenset(
    {"thread_settings_applied", "item_started", "agent_reasoning", "user_message", "agent_message", "context_compacted"}
)
SILENT_ITEMS = frozenset({"message", "reasoning", "web_search_call", "compaction", "ghost_snapshot", "other"})

_LINE = decoding.Decoder(RolloutLine)


def error_of(message: str, info: Any, limits: RateLimits | None = None) -> TurnError:
    """A turn's error from Codex's own word, which may carry an HTTP status."""
    word, status = "", None
    if isinstance(info, str):
        word = info
    elif isinstance(info, dict) and info:
        word, detail = next(iter(info.items()))
        if isinstance(detail, dict):
            code = next((detail.get(key) for key in ("http_status_code", "httpStatusCode") if detail.get(key)), None)
            status = code if isinstance(code, int) and not isinstance(code, bool) and 0 < code < 1000 else None
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(word)[:200]).lower()
    error = turn_error(message, kind=ERROR_KINDS.get(word) or _kind_in(message), word=word, status=status)
    resets_at = _resets_at(limits) if error.kind == "rate_limited" else None
    return msgspec.structs.replace(error, resets_at=resets_at)


def _kind_in(message: str) -> ErrorKind | None:
    """Where Codex has no word for it: what a filtered answer and the body of a refused request say."""
    if "reason: content_filter" in message:
        return "refused"
    return "invalid_request" if message.startswith("{") and '"invalid_request_error"' in message[:1000] else None


def _resets_at(limits: RateLimits | None) -> float | None:
    windows = [limits.primary, limits.secondary] if limits is not None else []
    full = [
        window.resets_at
        for window in windows
        if window is not None and window.resets_at is not None and (window.used_percent or 0) >= 100
    ]
    return max(full) if full else None


class _Turn:
    __slots__ = ("native", "own", "prompted", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.prompted = False
        self.own = False
        """A pseudo turn of the CLI's own: no model answers it."""
        self.tools: dict[str, ToolStatus] = {}
        """Open calls, with what the executed item said of them."""


class CodexRolloutOracle(LineOracle):
    """Reads one rollout. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn: _Turn | None = None
        self._hidden = False
        self._version = ""
        self._limits: RateLimits | None = None

    @property
    def _busy(self) -> bool:
        return self._turn is not None

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _LINE.decode(data)
        payload = line.payload
        native_id = ""
        if payload is not None:
            native_id = (payload.item.client_id or payload.item.id) if payload.item is not None else payload.id
        evidence = Evidence(
            source=source, offset=offset, native_id=native_id or payload_id(payload), native_at=when(line.timestamp)
        )
        if payload is None:
            self._unknown(f"type:{line.type[:40]}", evidence)
            return
        if line.type == "session_meta":
            self._session_meta(payload, evidence)
        elif self._hidden:
            pass
        elif line.type == "event_msg":
            self._event(payload, evidence)
        elif line.type == "response_item":
            self._response_item(payload, evidence)
        elif line.type == "compacted":
            self._facts.append(CompactionRecorded(evidence=evidence))
        elif line.type not in SILENT_LINES:
            self._unknown(f"type:{line.type[:40]}", evidence)

    def _session_meta(self, payload: Payload, evidence: Evidence) -> None:
        if self._foreign(payload.id):
            self._unknown("foreign_session", evidence)
            return
        of_agent = isinstance(payload.source, dict) and any(key in HIDDEN_THREADS for key in payload.source)
        named = payload.thread_source if isinstance(payload.thread_source, str) else ""
        self._hidden = of_agent or named in HIDDEN_THREADS
        if payload.cli_version and payload.cli_version != self._version:
            self._version = payload.cli_version
            self._facts.append(CliVersionSeen(version=payload.cli_version))

    # --- events -----------------------------------------------------------------------------------------------------

    def _event(self, payload: Payload, evidence: Evidence) -> None:
        if payload.thread_id and self._foreign(payload.thread_id):
            self._unknown("foreign_session", evidence)
            return
        match payload.type:
            case "task_started":
                self._started(payload, evidence)
            case "task_complete" | "turn_aborted":
                self._ended_by(payload, evidence)
            case "item_completed":
                self._item(payload, evidence)
            case "token_count":
                self._limits = payload.rate_limits or self._limits
            case kind if kind not in SILENT_EVENTS:
                self._unknown(f"event:{kind[:40]}", evidence)

    def _started(self, payload: Payload, evidence: Evidence) -> None:
        attribution = payload.turn_attribution
        if attribution is not None and (attribution.parent_turn_id or attribution.initiating_agent_path):
            return  # a sub-agent's: its records name an id that is never open here
        turn = self._turn
        if not payload.turn_id or payload.turn_id in self._closed or (turn and turn.native == payload.turn_id):
            self._unknown("task_started_again", evidence)
            return
        if turn is not None and turn.prompted:
            self._close(
                TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=SUPERSEDED),
            )
        self._turn = _Turn(payload.turn_id)

    def _open(self, native: str) -> _Turn | None:
        return self._turn if self._turn is not None and self._turn.native == native else None

    def _item(self, payload: Payload, evidence: Evidence) -> None:
        item, turn = payload.item, self._open(payload.turn_id)
        if item is None or turn is None:
            self._unknown("item_without_turn", evidence)
            return
        match item.type:
            case "UserMessage":
                text = text_of(item.content)
                if turn.prompted:
                    self._facts.append(InputJoined(native_turn=turn.native, text=text, evidence=evidence))
                else:
                    self._prompted(turn, text, evidence)
            case "AgentMessage":
                self._facts.append(
                    AssistantSaid(
                        native_turn=turn.native,
                        native_message=item.id,
                        text=text_of(item.content),
                        evidence=evidence,
                    )
                )
            case "CommandExecution" if item.source == "user_shell":
                if not turn.prompted:
                    self._prompted(turn, "", evidence, origin="local_command")
            case _:
                if item.id in turn.tools:
                    turn.tools[item.id] = _item_status(item)

    def _prompted(self, turn: _Turn, text: str, evidence: Evidence, origin: str = "") -> None:
        turn.prompted = True
        turn.own = bool(origin)
        self._facts.append(
            PromptRecorded(
                native_turn=turn.native,
                text=text,
                evidence=evidence,
                taken="self" if origin else "typed",
                origin=origin,
            )
        )

    def _ended_by(self, payload: Payload, evidence: Evidence) -> None:
        turn = self._open(payload.turn_id)
        if turn is None:
            self._unknown("late_terminal", evidence)
            return
        if not turn.prompted:  # nobody's words: /compact where it completes, else whatever ended before its prompt
            completed = payload.type == "task_complete" and payload.error is None
            self._prompted(turn, "", evidence, origin="local_command" if completed else "unknown")
        self._turn = None
        if payload.type == "turn_aborted":
            self._close(TurnClosed(native_turn=turn.native, status="cancelled", evidence=evidence))
        elif payload.error is not None:
            error = _error(payload.error, self._limits)
            self._close(TurnClosed(native_turn=turn.native, status="failed", evidence=evidence, error=error))
        else:
            answer = payload.last_agent_message
            if answer is None and not turn.own:
                answer = ""
            self._close(TurnClosed(native_turn=turn.native, status="completed", evidence=evidence, answer=answer))

    # --- the model's calls --------------------------------------------------------------------------------------------

    def _response_item(self, payload: Payload, evidence: Evidence) -> None:
        turn = self._turn
        match payload.type:
            case "function_call" | "custom_tool_call" | "local_shell_call":
                if turn is None or not payload.call_id:
                    self._unknown("call_without_turn", evidence)
                elif payload.call_id not in turn.tools:
                    turn.tools[payload.call_id] = "ok"
                    name = f"{payload.namespace}__{payload.name}" if payload.namespace else payload.name
                    arguments = payload.arguments if payload.arguments is not None else payload.input
                    self._facts.append(
                        ToolStarted(
                            native_turn=turn.native,
                            call_id=payload.call_id,
                            name=name or payload.type,
                            arguments=as_json(arguments),
                            evidence=evidence,
                        )
                    )
            case "function_call_output" | "custom_tool_call_output":
                status = turn.tools.pop(payload.call_id, None) if turn is not None else None
                if turn is None or status is None:
                    self._unknown("output_without_call", evidence)
                    return
                output = payload.output if isinstance(payload.output, str) else text_of(payload.output)
                if output.endswith(ABORTED):
                    status = "error"
                self._facts.append(
                    ToolFinished(
                        native_turn=turn.native,
                        call_id=payload.call_id,
                        status=status,
                        result=cut(output),
                        evidence=evidence,
                    )
                )
            case kind if kind not in SILENT_ITEMS:
                self._unknown(f"item:{kind[:40]}", evidence)


def payload_id(payload: Payload | None) -> str:
    """The native id of an event: that of its turn."""
    return payload.turn_id if payload is not None else ""


def _item_status(item: Item) -> ToolStatus:
    failed = item.status in ("failed", "declined") or (item.exit_code is not None and item.exit_code != 0)
    return "error" if failed else "ok"


def _error(error: ErrorField, limits: RateLimits | None) -> TurnError:
    return error_of(error.message, error.codex_error_info, limits)
