"""The oracles of Pi's records: events and push lines, which settle, and the session file, which does not. Pure.

Events (``--mode json`` and ``rpc``) and the lines of a push extension tell the life of a *run*. Its first user message
opens a native turn, each further one is joined, ``agent_settled`` closes it, and nothing else does: ``agent_end`` comes
once per attempt, and an assistant ``stop`` comes before a follow-up in the same run as well. How it ended: ``aborted``,
else the last assistant's stopReason. A new process on the same record proves that an open run will never settle.

The session file has no such record, so reading it live closes nothing, ever. What it shows once its writer is gone is a
rule of its own, in ``eof`` alone (every such end is marked ``by_end_of_file``): the stopReason of the last assistant
message of each run. ``stop`` and ``length`` complete, ``aborted`` cancels, ``error`` fails unless a ``context_edit``
says that Pi meant to try again; a run with none of these is lost where a later run follows, else unsettled. Which
messages make one run the file does tell: a message carries the time at which it was submitted, so one that is older
than the record before it was queued while the run went on, and joined it. (A steer sent in the wait before a retry is
not told apart so; an event or push file, where there is one, is believed before the session file.)

A turn is named by the stamp of its first message, which session file and events share. A push line has no such stamp:
there, and in the session file, it is also named by the entry that it follows.

Source: pi 1.6.0, tests/fixtures/pi/1.6.0.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from lastword.actors.core.facts import (
    AssistantSaid,
    CompactionRecorded,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    Taken,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import ErrorKind, Evidence, TurnError
from lastword.transports.providers import decoding
from lastword.transports.providers.line_oracle import CLOSED_MAX, SUPERSEDED, LineOracle, as_json, cut, turn_error, when
from lastword.transports.providers.pi_records import Block, Entry, Event, Message, Pushed, Recorded

STATUS = re.compile(r"\s*(?:HTTP )?([45]\d\d)\b")
SILENT_ENTRIES = frozenset(
    {"model_change", "thinking_level_change", "label", "session_info", "custom", "custom_message", "branch_summary"}
)
SILENT_EVENTS = frozenset(
    {
        "agent_start",
        "agent_end",
        "agent_before_settle",
        "before_agent_start",
        "turn_start",
        "turn_end",
        "message_start",
        "message_update",
        "tool_execution_update",
        "auto_retry_end",
        "entry_appended",
        "extension_ui_request",
        "compaction_start",
        "session_shutdown",
    }
)
COMPACTIONS = frozenset({"compaction_end", "session_compact", "compaction"})

_ENTRY = decoding.Decoder(Entry)
_EVENT = decoding.Decoder(Event)
_RECORDED = decoding.Decoder(Recorded)
_PUSHED = decoding.Decoder(Pushed)


def error_of(message: str) -> TurnError:
    """The error of a failed run; Pi's text begins with the HTTP status where there was one."""
    found = STATUS.match(message)
    kind: ErrorKind | None = "refused" if "content_filter" in message else None
    return turn_error(message, kind=kind, status=int(found.group(1)) if found else None)


def after(entry: str | None) -> tuple[str, ...]:
    """The other name of the turn that follows that entry."""
    return (f"after:{entry}",) if entry else ()


class _Run:
    """The open run."""

    __slots__ = ("error", "finished", "native", "stop", "text", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.stop = ""
        self.text = ""
        self.error = ""
        self.tools: set[str] = set()
        self.finished: set[str] = set()


class RunOracle(LineOracle):
    """What all three kinds share: the messages and calls of the open run."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._run: _Run | None = None
        self._opened_names: deque[str] = deque(maxlen=CLOSED_MAX)

    @property
    def _busy(self) -> bool:
        return self._run is not None

    def _opened(self, native: str, text: str, evidence: Evidence, taken: Taken, also: tuple[str, ...] = ()) -> None:
        if native in self._opened_names:
            self._unknown("prompt_again", evidence)
            return
        self._opened_names.append(native)
        self._run = _Run(native)
        self._facts.append(PromptRecorded(native_turn=native, text=text, evidence=evidence, taken=taken, also=also))

    def _joined(self, run: _Run, text: str, evidence: Evidence, also: tuple[str, ...] = ()) -> None:
        run.stop = run.text = run.error = ""
        self._facts.append(InputJoined(native_turn=run.native, text=text, evidence=evidence, also=also))

    def _said(self, run: _Run, stop: str, text: str, error: str, evidence: Evidence) -> None:
        run.stop, run.text, run.error = stop, text, error
        if text and stop not in ("error", "aborted"):
            self._facts.append(
                AssistantSaid(
                    native_turn=run.native,
                    native_message=evidence.native_id or f"{run.native}@{evidence.offset}",
                    text=text,
                    evidence=evidence,
                    ends_by_itself=stop in ("stop", "length"),
                )
            )

    def _calls(self, run: _Run, calls: list[Block], evidence: Evidence) -> None:
        for call in calls:
            self._called(run, call.id, call.name, call.arguments, evidence)

    def _called(self, run: _Run, call_id: str, name: str, arguments: Any, evidence: Evidence) -> None:
        if call_id and call_id not in run.tools:
            run.tools.add(call_id)
            self._facts.append(
                ToolStarted(
                    native_turn=run.native,
                    call_id=call_id,
                    name=name,
                    arguments="{}" if arguments is None else as_json(arguments),
                    evidence=evidence,
                )
            )

    def _returned(self, run: _Run, call_id: str, result: str, evidence: Evidence, *, failed: bool | None) -> None:
        if call_id in run.tools and call_id not in run.finished:
            run.finished.add(call_id)
            status: ToolStatus = "error" if failed else "ok"
            self._facts.append(
                ToolFinished(
                    native_turn=run.native, call_id=call_id, status=status, result=cut(result), evidence=evidence
                )
            )

    def _closing(self, run: _Run, evidence: Evidence, *, aborted: bool = False) -> TurnClosed:
        """How a run that settled ended."""
        if aborted or run.stop == "aborted":
            return TurnClosed(native_turn=run.native, status="cancelled", evidence=evidence)
        if run.stop == "error":
            error = error_of(run.error)
            return TurnClosed(native_turn=run.native, status="failed", evidence=evidence, error=error)
        answer = run.text if run.stop != "toolUse" else ""  # text before a call is not the answer
        return TurnClosed(native_turn=run.native, status="completed", evidence=evidence, answer=answer)


class _SettledOracle(RunOracle):
    """What events and push lines share: runs that settle, and the queue behind them."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._queued: list[str] = []

    @property
    def _busy(self) -> bool:
        return self._run is not None or bool(self._queued)

    def _queue(self, text: str, evidence: Evidence) -> None:
        self._queued.append(text)
        self._facts.append(InputQueued(text=text, evidence=evidence))

    def _user(
        self, native: str, text: str, evidence: Evidence, taken: Taken, also: tuple[str, ...], joins: tuple[str, ...]
    ) -> None:
        queued = text in self._queued
        if queued:
            self._queued.remove(text)
        if self._run is None or native in self._opened_names:
            self._opened(native, text, evidence, "queued" if queued else taken, also)
        else:
            self._joined(self._run, text, evidence, joins)

    def _settled(self, evidence: Evidence, *, aborted: bool, kept: list[str]) -> None:
        run, self._run = self._run, None
        if run is None:
            self._unknown("late_terminal", evidence)
        else:
            self._close(self._closing(run, evidence, aborted=aborted))
        for text in list(self._queued):
            if text not in kept:
                self._queued.remove(text)
                self._facts.append(InputDropped(text=text, reason="returned_to_editor", evidence=evidence))

    def _new_process(self, evidence: Evidence) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._close(TurnClosed(native_turn=run.native, status="lost", evidence=evidence, error=SUPERSEDED))
        dropped, self._queued = self._queued, []
        for text in dropped:
            self._facts.append(InputDropped(text=text, reason="process_ended", evidence=evidence))


class PiEventsOracle(_SettledOracle):
    """Reads Pi's json or rpc output, bare or in a recorder's envelope. Raises nothing for any input."""

    _waiting: tuple[str, ...] = ()

    def _line(self, data: bytes, source: str, offset: int) -> None:
        evidence = Evidence(source=source, offset=offset)
        recorded = _RECORDED.decode(data)
        if recorded.dir == "in":
            return
        event = recorded.rec if recorded.rec is not None else _EVENT.decode(data)
        run = self._run
        match event.type:
            case "response":
                self._response(event, evidence)
            case "agent_start":
                self._started_agent()
            case "session":
                self._foreign(event.id if isinstance(event.id, str) else "")
                self._new_process(evidence)
            case "message_end":
                self._message(msgspec.convert(event.message, Message), source, offset)
            case "tool_execution_start" if run is not None:
                self._called(run, event.tool_call_id, event.tool_name, event.args, evidence)
            case "tool_execution_end" if run is not None:
                result = Message(content=_blocks(event.result)).text
                self._returned(run, event.tool_call_id, result, evidence, failed=event.is_error)
            case "queue_update":
                self._queue_update((*event.steering, *event.follow_up), evidence)
            case "auto_retry_start" if run is not None:
                message = (event.error_message or "")[:2000]
                self._facts.append(ProviderRetrying(native_turn=run.native, message=message, evidence=evidence))
            case "agent_settled":
                self._settled(evidence, aborted=bool(event.aborted), kept=list(self._waiting))
            case kind if kind in COMPACTIONS:
                self._facts.append(CompactionRecorded(evidence=evidence))
            case kind if kind not in SILENT_EVENTS:
                self._unknown(f"event:{kind[:40]}", evidence)

    def _message(self, message: Message, source: str, offset: int) -> None:
        evidence = Evidence(source=source, offset=offset, native_id=message.name, native_at=when(message.timestamp))
        run = self._run
        if message.role == "user":
            native = message.name or f"{self._native_session}@{offset}"
            self._user(native, message.text, evidence, "sdk", (), (message.name,) if message.name else ())
        elif run is None:
            if message.role != "system" and not self._of_itself(message, evidence):
                self._unknown("message_without_run", evidence)
        elif message.role == "assistant":
            self._said(run, message.stop_reason or "", message.text, message.error_message or "", evidence)
            self._calls(run, message.calls, evidence)
        elif message.role == "toolResult":
            self._returned(run, message.tool_call_id, message.text, evidence, failed=message.is_error)

    def _response(self, event: Event, evidence: Evidence) -> None:
        """What Pi answers to a command; the events say the rest."""

    def _started_agent(self) -> None:
        """The first event of an attempt."""

    def _of_itself(self, message: Message, evidence: Evidence) -> bool:  # noqa: ARG002
        """Whether a message that no run precedes begins one."""
        return False

    def _queue_update(self, waiting: tuple[str, ...], evidence: Evidence) -> None:
        before = list(self._waiting)
        self._waiting = waiting
        for text in waiting:
            if text in before:
                before.remove(text)
            else:
                self._queue(text, evidence)


def _blocks(result: Any) -> list[Block] | str | None:
    content = result.get("content") if isinstance(result, dict) else result
    try:
        return msgspec.convert(content, str | list[Block] | None)
    except msgspec.ValidationError:
        return None


class PiPushOracle(_SettledOracle):
    """Reads the lines of a push extension. Raises nothing for any input."""

    _leaf: str | None = None

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _PUSHED.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.leaf or "", native_at=when(line.t))
        run = self._run
        match line.ev:
            case "session_start":
                if line.reason == "startup" or run is None:
                    self._new_process(evidence)
                self._leaf = line.leaf
            case "input":
                if line.streaming_behavior and line.text:
                    self._queue(line.text, evidence)
            case "message_end":
                self._message(line, evidence)
            case "tool_execution_start" if run is not None:
                self._called(run, line.tool_call_id, line.tool_name, None, evidence)
            case "tool_execution_end" if run is not None:
                self._returned(run, line.tool_call_id, "", evidence, failed=line.is_error)
            case "agent_settled":
                kept = list(self._queued) if line.pending else []
                self._settled(evidence, aborted=bool(line.aborted), kept=kept)
                self._leaf = line.leaf
            case kind if kind in COMPACTIONS:
                self._facts.append(CompactionRecorded(evidence=evidence))
            case kind if kind not in SILENT_EVENTS:
                self._unknown(f"event:{kind[:40]}", evidence)

    def _message(self, line: Pushed, evidence: Evidence) -> None:
        run, text = self._run, line.msg or ""
        if line.role == "user":
            stamp = int(line.t) if line.t is not None and 0 < line.t < 1e14 else 0
            native = f"push:{stamp}" if stamp else f"push@{evidence.offset}"
            self._user(native, text, evidence, "typed", after(self._leaf), ())
        elif line.role == "assistant" and run is not None:
            self._said(run, line.stop or "", text, line.err or "", evidence)


class PiSessionOracle(RunOracle):
    """Reads a session file. It closes nothing before its end. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._ends: list[TurnClosed] = []
        self._last: Evidence | None = None
        self._last_at: float | None = None
        self._retrying = False
        self._born: float | None = None
        self._lead: tuple[str, str | None] | None = None
        """The system entry last seen, and the one that it follows: a turn follows the latter."""

    def _line(self, data: bytes, source: str, offset: int) -> None:
        entry = _ENTRY.decode(data)
        at = when(entry.timestamp)
        evidence = Evidence(source=source, offset=offset, native_id=entry.id, native_at=at)
        if entry.type == "session":
            if self._foreign(entry.id):
                self._unknown("foreign_session", evidence)
            elif entry.parent_session:
                self._born = at
        elif self._born is not None and at is not None and at < self._born:
            pass  # copied from the session that this one was forked from
        elif entry.type == "message" and entry.message is not None:
            self._message(entry, entry.message, evidence)
        elif entry.type == "context_edit":
            if self._last is not None and entry.target_id == self._last.native_id:
                self._retrying = True
        elif entry.type in COMPACTIONS:
            self._facts.append(CompactionRecorded(evidence=evidence))
        elif entry.type not in SILENT_ENTRIES:
            self._unknown(f"type:{entry.type[:40]}", evidence)

    def _message(self, entry: Entry, message: Message, evidence: Evidence) -> None:
        run = self._run
        match message.role:
            case "system":
                self._lead = (entry.id, entry.parent_id)
                return
            case "user":
                made = when(message.timestamp)
                queued = made is not None and self._last_at is not None and made < self._last_at
                if message.name and message.name in self._opened_names:
                    self._unknown("prompt_again", evidence)
                    return
                if run is not None and queued:
                    self._joined(run, message.text, evidence, (message.name,) if message.name else ())
                else:
                    self._end_of_run(last=False)
                    parent = entry.parent_id
                    if self._lead is not None and parent == self._lead[0]:
                        parent = self._lead[1]
                    native = message.name or entry.id or f"@{evidence.offset}"
                    self._opened(native, message.text, evidence, "typed", after(parent))
            case "assistant" if run is not None:
                self._said(run, message.stop_reason or "", message.text, message.error_message or "", evidence)
                self._calls(run, message.calls, evidence)
            case "toolResult" if run is not None:
                self._returned(run, message.tool_call_id, message.text, evidence, failed=message.is_error)
            case _ if run is None:
                self._unknown("message_without_run", evidence)
        self._last, self._retrying = evidence, False
        self._last_at = evidence.native_at

    def _end_of_run(self, *, last: bool) -> None:
        """Note how the run ended, for the end of the file."""
        run, self._run = self._run, None
        if run is None or self._last is None:
            return
        proved = run.stop in ("stop", "length", "aborted") or (run.stop == "error" and not self._retrying)
        if proved:
            closed = self._closing(run, self._last)
        elif not last:
            closed = TurnClosed(native_turn=run.native, status="lost", evidence=self._last, error=SUPERSEDED)
        else:
            return
        self._ends.append(msgspec.structs.replace(closed, by_end_of_file=True))

    def _ended(self) -> None:
        self._end_of_run(last=True)
        ends, self._ends = self._ends, []
        for closed in ends:
            self._close(closed)

    @property
    def _busy(self) -> bool:
        return self._run is not None or bool(self._ends)
