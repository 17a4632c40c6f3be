"""What the chat files of Gemini CLI and Qwen Code share: messages without a terminal record. Pure.

Nothing in such a file ends a turn while its writer lives: an answer may be followed by a steer, a hook or a retry. What
it shows once the writer is gone is told by ``eof`` alone and marked ``by_end_of_file``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.facts import (
    AssistantSaid,
    InputJoined,
    PromptRecorded,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
)
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.transports.providers.line_oracle import SUPERSEDED, LineOracle, as_json, cut


class _Turn:
    __slots__ = ("end", "finished", "native", "tools")

    def __init__(self, native: str) -> None:
        self.native = native
        self.end: TurnClosed | None = None
        """How it would end if the file ended here; None where that is not told."""
        self.tools: set[str] = set()
        self.finished: set[str] = set()


class ChatOracle(LineOracle):
    """The open turn of a chat file, and the ends of those before it."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._turn: _Turn | None = None
        self._ends: list[TurnClosed] = []
        self._seen: set[str] = set()

    @property
    def _busy(self) -> bool:
        return self._turn is not None or bool(self._ends)

    def _prompt(self, native: str, text: str, evidence: Evidence) -> None:
        if native in self._seen:
            self._unknown("prompt_again", evidence)
            return
        self._seen.add(native)
        if self._turn is not None:
            lost = TurnClosed(native_turn=self._turn.native, status="lost", evidence=evidence, error=SUPERSEDED)
            self._ends.append(self._turn.end or lost)
        self._turn = _Turn(native)
        self._facts.append(PromptRecorded(native_turn=native, text=text, evidence=evidence))

    def _joined(self, text: str, evidence: Evidence) -> None:
        if self._turn is None:
            self._unknown("joined_without_turn", evidence)
            return
        self._turn.end = None
        self._facts.append(InputJoined(native_turn=self._turn.native, text=text, evidence=evidence))

    def _said(self, message: str, text: str, evidence: Evidence, *, finished: bool) -> None:
        turn = self._turn
        if turn is None:
            self._unknown("assistant_without_turn", evidence)
            return
        turn.end = None
        if finished:
            turn.end = TurnClosed(native_turn=turn.native, status="completed", evidence=evidence, answer=text)
        if text:
            said = AssistantSaid(
                native_turn=turn.native, native_message=message, text=text, evidence=evidence, ends_by_itself=finished
            )
            self._facts.append(said)

    def _called(self, call_id: str, name: str, arguments: Any, evidence: Evidence) -> None:
        turn = self._turn
        if turn is None or not call_id:
            return
        turn.end = None
        if call_id not in turn.tools:
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

    def _returned(self, call_id: str, result: str, evidence: Evidence, *, failed: bool) -> None:
        turn = self._turn
        if turn is not None and call_id in turn.tools and call_id not in turn.finished:
            turn.finished.add(call_id)
            status: ToolStatus = "error" if failed else "ok"
            self._facts.append(
                ToolFinished(
                    native_turn=turn.native, call_id=call_id, status=status, result=cut(result), evidence=evidence
                )
            )

    def _cancelled(self, evidence: Evidence) -> None:
        if self._turn is not None:
            self._turn.end = TurnClosed(native_turn=self._turn.native, status="cancelled", evidence=evidence)

    def _failed(self, error: TurnError, evidence: Evidence) -> None:
        if self._turn is not None:
            self._turn.end = TurnClosed(native_turn=self._turn.native, status="failed", evidence=evidence, error=error)

    def _ended(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and turn.end is not None:
            self._ends.append(turn.end)
        ends, self._ends = self._ends, []
        for closed in ends:
            self._close(msgspec.structs.replace(closed, by_end_of_file=True))
