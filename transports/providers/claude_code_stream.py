"""What Claude Code says in its stream-json mode: its stdout as a record. Bytes to facts, pure.

Theory of operation. A message that is written to it bears a UUID of ours, and the CLI tells of each by that name:
``command_lifecycle`` *queued* (it was read), *started* (it is in a turn now), *completed* or *cancelled*. The first
that starts while no turn is open begins a native turn, called by its UUID; those that start while one is open were
merged with it or taken into it. ``result`` closes the turn (:mod:`lastword.transports.providers.stream_json`). The
text of a prompt is echoed later (``isReplay``), with the first output; then the prompt is told again, with its text.

An ``init`` without a message is a turn that the CLI began itself, when a background task ended. A stream without any
``command_lifecycle`` (messages without a UUID, ``-p PROMPT``) has a turn per ``init``.

Source: Claude Code 2.1.332, docs/providers/claude_code.md.
"""

from __future__ import annotations

import msgspec

from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.facts import InputDropped, InputJoined, InputQueued, PromptRecorded
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.transports.providers.claude_code_errors import api_error_kind
from lastword.transports.providers.stream_json import Message, OpenTurn, StreamJsonOracle, StreamLine

STARTED_MAX = 4096
"""Messages that are remembered as begun; only the end of an older one would be misread as a drop."""
WAITING_MAX = 4096
CUT_BY_LIMIT = "Output token limit hit"
"""How the CLI's own note begins by which it has a message continued that ``max_tokens`` cut."""


class ClaudeStreamOracle(StreamJsonOracle):
    """Claude Code's ``-p --output-format stream-json`` (2.1.332)."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._waiting: dict[str, str] = {}
        """Messages that the CLI has read and not begun, with their text where it was echoed."""
        self._started: dict[str, None] = {}
        self._named = False
        """Messages bear names here."""
        self._error_word = ""

    @property
    def _busy(self) -> bool:
        return super()._busy or bool(self._waiting)

    def _other(self, line: StreamLine, evidence: Evidence) -> None:
        if line.type == "command_lifecycle" and line.command_uuid:
            self._named = True
            self._lifecycle(line.command_uuid, line.state, evidence)
        else:
            super()._other(line, evidence)

    def _lifecycle(self, key: str, state: str, evidence: Evidence) -> None:
        match state:
            case "queued":
                self._waiting.setdefault(key, "")
                forget_oldest(self._waiting, WAITING_MAX)
                if self._turn is not None:  # else it starts at once
                    self._facts.append(InputQueued(text="", key=key, evidence=evidence))
            case "started":
                self._start(key, evidence)
            case "completed" | "cancelled":
                if key in self._started:
                    del self._started[key]
                else:  # never begun
                    self._waiting.pop(key, None)
                    reason = "taken back" if state == "cancelled" else "a message of that name was taken before"
                    self._facts.append(InputDropped(text="", key=key, reason=reason, evidence=evidence))
            case _:
                self._unknown(f"lifecycle:{state[:40]}", evidence)

    def _start(self, key: str, evidence: Evidence) -> None:
        text = self._waiting.pop(key, "")
        self._started[key] = None
        forget_oldest(self._started, STARTED_MAX)
        turn = self._turn
        if turn is not None:
            self._facts.append(InputJoined(native_turn=turn.native, text=text, key=key, evidence=evidence))
            return
        self._turn = turn = OpenTurn(key, prompted=True)
        turn.known = bool(text)
        self._facts.append(PromptRecorded(native_turn=key, text=text, key=key, taken="sdk", evidence=evidence))

    def _init(self, line: StreamLine, evidence: Evidence) -> None:
        turn = self._turn
        if not self._named:
            super()._init(line, evidence)
        elif turn is None:
            native = f"{self._native_session}@{evidence.native_id or evidence.offset}"
            self._turn = OpenTurn(native, prompted=True)
            origin = "" if line.user_message_uuids else "task_notification"
            self._facts.append(
                PromptRecorded(native_turn=native, text="", taken="self", origin=origin, evidence=evidence)
            )

    def _user(self, line: StreamLine, evidence: Evidence) -> None:
        blocks = line.message.blocks if line.message is not None else []
        text = "".join(block.text for block in blocks if block.type == "text")
        turn = self._turn
        if line.isReplay:
            self._echo(line.uuid, text, evidence)
        elif line.isSynthetic and text.startswith(CUT_BY_LIMIT) and turn is not None:
            turn.carry = turn.text or ""
        else:
            super()._user(line, evidence)

    def _assistant(self, turn: OpenTurn, line: StreamLine, message: Message, evidence: Evidence) -> None:
        if line.is_api_error_message:  # no word of the model's
            self._error_word = line.error if isinstance(line.error, str) else ""
            return
        super()._assistant(turn, line, message, evidence)

    def _error(self, line: StreamLine) -> TurnError:
        error = super()._error(line)
        word, self._error_word = self._error_word, ""
        if line.terminal_reason != "api_error":
            return error
        kind = api_error_kind(word, line.api_error_status, line.stop_reason, error.message)
        return msgspec.structs.replace(error, kind=kind, native_kind=word.removeprefix("unknown") or error.native_kind)

    def _echo(self, key: str, text: str, evidence: Evidence) -> None:
        turn = self._turn
        if key in self._waiting:
            self._waiting[key] = text
        elif turn is not None and not turn.known and (key == turn.native or not self._named):
            turn.known = True
            name = key if self._named else ""
            self._facts.append(
                PromptRecorded(native_turn=turn.native, text=text, key=name, taken="sdk", evidence=evidence)
            )


__all__ = ["ClaudeStreamOracle"]
