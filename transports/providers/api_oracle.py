"""The record of a conversation with a model's API: our own lines (``actors.core.conversation``), read for facts.

The terminal record is an ``answered`` line with a final answer, or an ``ended`` line. The loop wrote both that
spoke to the service, before anyone heard of them (docs/adr/0011).
"""

from __future__ import annotations

from lastword.actors.core.conversation import Answered, Ended, Joined, Prompted, Retried, ToolEnded, decode
from lastword.actors.core.facts import (
    AssistantSaid,
    InputJoined,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers.line_oracle import CUT_MARK, TOOL_RESULT_CHARS_MAX, LineOracle


class ApiOracle(LineOracle):
    """Reads the record of one conversation."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn = ""

    @property
    def _busy(self) -> bool:
        return bool(self._turn)

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = decode(data)

        def evidence(native_id: str) -> Evidence:
            return Evidence(source=source, offset=offset, native_id=native_id, native_at=line.at)

        match line:
            case Prompted():
                self._turn = line.turn
                self._facts.append(
                    PromptRecorded(
                        native_turn=line.turn,
                        text=line.text,
                        taken="sdk",
                        key=line.message,
                        evidence=evidence(line.message),
                    )
                )
            case Joined():
                self._facts.append(
                    InputJoined(
                        native_turn=line.turn, text=line.text, key=line.message, evidence=evidence(line.message)
                    )
                )
            case Answered():
                self._answered(line, evidence(line.response))
            case ToolEnded():
                result = line.result
                if len(result) > TOOL_RESULT_CHARS_MAX:
                    result = result[:TOOL_RESULT_CHARS_MAX] + CUT_MARK
                self._facts.append(
                    ToolFinished(
                        native_turn=line.turn,
                        call_id=line.call,
                        status=line.status,
                        result=result,
                        evidence=evidence(line.call),
                    )
                )
            case Retried():
                self._facts.append(ProviderRetrying(native_turn=line.turn, message=line.message, evidence=evidence("")))
            case Ended():
                self._turn = ""
                closed = TurnClosed(native_turn=line.turn, status=line.status, error=line.error, evidence=evidence(""))
                self._close(closed)

    def _answered(self, line: Answered, evidence: Evidence) -> None:
        final = line.answer is not None
        if line.text or final:
            self._facts.append(
                AssistantSaid(
                    native_turn=line.turn,
                    native_message=line.response,
                    text=line.text,
                    evidence=evidence,
                    ends_by_itself=final,
                )
            )
        for call in line.calls:
            self._facts.append(
                ToolStarted(
                    native_turn=line.turn,
                    call_id=call.key,
                    name=call.name,
                    arguments=call.arguments,
                    evidence=evidence,
                )
            )
        if final:
            self._turn = ""
            self._close(TurnClosed(native_turn=line.turn, status="completed", answer=line.answer, evidence=evidence))


__all__ = ["ApiOracle"]
