"""The record of Pi in its terminal program: what our extension (``pi_extension.ts``) appends as it happens. Pure.

Events as :mod:`pi_oracle` reads them, in the extension's own lines: ``agent_settled`` ends a run and nothing else does.
A message of ours bears its id wherever it is told, so that no text tells whose it is: ``input`` (Pi has it in its
queue), the user message (it began, or joined), ``refused``. One that came back from the queue (``returned``) is no
loss: the extension gives it to Pi again. A user message without an id was typed by a person, or by another extension.

Source: pi 1.6.0, tests/fixtures/pi/1.6.0/pane, docs/providers/pi.md.
"""

from __future__ import annotations

from lastword.actors.core.facts import (
    CompactionRecorded,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers import decoding
from lastword.transports.providers.line_oracle import SUPERSEDED, when
from lastword.transports.providers.pi_oracle import RunOracle
from lastword.transports.providers.pi_records import Pushed

REASON_CHARS_MAX = 300
SILENT = frozenset({"taken", "withdrawn", "returned", "session_shutdown", "dialog", "dialog_closed"})

_PUSHED = decoding.Decoder(Pushed)


class PiPaneOracle(RunOracle):
    """Reads the lines of our extension in one process of Pi. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._queued: set[str] = set()
        """Messages of ours in Pi's queue."""
        self._agent_runs = False

    @property
    def _busy(self) -> bool:
        return self._run is not None or self._agent_runs or bool(self._queued)

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _PUSHED.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.name or line.id, native_at=when(line.t))
        run = self._run
        match line.ev:
            case "session_start":
                self._began(evidence)
            case "agent_start":
                self._started(evidence)
            case "input":
                if line.id and line.streaming_behavior:
                    self._queued.add(line.id)
                    self._facts.append(InputQueued(text="", key=line.id, evidence=evidence))
            case "message_end":
                self._message(line, evidence)
            case "tool_execution_start" if run is not None:
                self._called(run, line.tool_call_id, line.tool_name, line.args, evidence)
            case "tool_execution_end" if run is not None:
                self._returned(run, line.tool_call_id, line.msg or "", evidence, failed=line.is_error)
            case "agent_settled":
                self._settled(evidence, aborted=bool(line.aborted))
            case "refused":
                self._queued.discard(line.id)
                reason = (line.reason or "")[:REASON_CHARS_MAX]
                self._facts.append(InputDropped(text="", key=line.id, reason=reason, evidence=evidence))
            case "session_compact":
                self._facts.append(CompactionRecorded(evidence=evidence))
            case kind if kind in SILENT:
                self._queued.discard(line.id)
            case kind:
                self._unknown(f"event:{kind[:40]}", evidence)

    def _began(self, evidence: Evidence) -> None:
        """Pi is in that conversation now: a run that is open did not settle in the one before."""
        run, self._run = self._run, None
        self._agent_runs = False
        if run is not None:
            self._close(TurnClosed(native_turn=run.native, status="lost", evidence=evidence, error=SUPERSEDED))

    def _started(self, evidence: Evidence) -> None:
        """An attempt begins; of a run whose last one failed, another one."""
        run, self._agent_runs = self._run, True
        if run is not None and run.stop == "error":
            self._facts.append(ProviderRetrying(native_turn=run.native, message=run.error[:2000], evidence=evidence))

    def _message(self, line: Pushed, evidence: Evidence) -> None:
        run, text = self._run, line.msg or ""
        if line.role == "user":
            self._user(line.id, text, evidence)
        elif run is None and line.role == "custom" and self._agent_runs:
            native = self._native(evidence)
            self._opened(native, "", evidence, "self")
            opened = self._facts[-1]
            if isinstance(opened, PromptRecorded):
                self._facts[-1] = PromptRecorded(
                    native_turn=native, text="", evidence=evidence, taken="self", origin="task_notification"
                )
        elif run is None:
            self._unknown("message_without_run", evidence)
        elif line.role == "assistant":
            self._said(run, line.stop or "", text, line.err or "", evidence)

    def _user(self, key: str, text: str, evidence: Evidence) -> None:
        run = self._run
        self._queued.discard(key)
        if run is not None:
            run.stop = run.text = run.error = ""
            joined = InputJoined(
                native_turn=run.native, text=text, key=key, evidence=evidence, also=(evidence.native_id,)
            )
            self._facts.append(joined)
            return
        native = self._native(evidence)
        self._opened(native, text, evidence, "sdk" if key else "typed")
        opened = self._facts[-1]
        if isinstance(opened, PromptRecorded):
            self._facts[-1] = PromptRecorded(
                native_turn=native, text=text, evidence=evidence, taken=opened.taken, key=key
            )

    def _native(self, evidence: Evidence) -> str:
        native = evidence.native_id or f"@{evidence.offset}"
        return f"{native}@{evidence.offset}" if native in self._opened_names else native  # within one millisecond

    def _settled(self, evidence: Evidence, *, aborted: bool) -> None:
        run, self._run = self._run, None
        self._agent_runs = False
        if run is None:
            self._unknown("late_terminal", evidence)
        else:
            self._close(self._closing(run, evidence, aborted=aborted))


__all__ = ["PiPaneOracle"]
