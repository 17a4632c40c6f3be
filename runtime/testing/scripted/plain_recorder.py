"""The record in the ``plain`` dialect, which is this program's own."""

# ruff: noqa: ARG002, PTH100, PTH118

from __future__ import annotations

import os

from .claude_recorder import ClaudeRecorder
from .identity import new_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .steps import Record
    from .turn import Turn


class PlainRecorder(ClaudeRecorder):
    """Writes the ``plain`` dialect: few kinds, each line enough in itself."""

    def path(self) -> str:
        """``--record FILE``, or a file named after the session."""
        default = os.path.join(self.app.home, ".plain", f"{self.app.session_id}.jsonl")
        return os.path.abspath(self.app.record_path or default)

    def _line(self, kind: str, **fields: Any) -> None:
        ClaudeRecorder.raw(self, {"kind": kind, "session": self.app.session_id, "turn": self.prompts, **fields})

    def raw(self, record: Record) -> None:
        """Nothing of the other dialect."""

    def begin(self, turn: Turn) -> None:
        """A prompt line."""
        self.prompts += 1
        self._line("prompt", text=turn.prompt, source=turn.source)

    def message(self, turn: Turn, blocks: list[Record], reason: str | None, *, aborted: bool = False) -> list[str]:
        """An answer line for each text block, a tool line for each call."""
        for block in blocks:
            if block["type"] == "text":
                self._line("answer", text=block["text"], final=reason != "tool_use" and not aborted)
                turn.faults.table["_last"] = block["text"]
            elif block["type"] == "tool_use":
                self._line("tool", id=block["id"], name=block["name"], input=block["input"])
        return [new_uuid() for _ in blocks]

    def tool_result(self, turn: Turn, block: Record, uuid: str, text: str, *, error: bool, asked: bool) -> None:
        """A tool_result line."""
        self._line("tool_result", id=block["id"], text=text, error=error)

    def absorbed(self, text: str, item: Record) -> None:
        """A joined line."""
        self._line("joined", text=text)

    def queue(self, operation: str, **fields: Any) -> None:
        """A queued line for what waits."""
        if operation == "enqueue":
            self._line("queued", text=fields.get("content", ""))

    def turn_end(self, turn: Turn) -> None:
        """The end line."""
        self._line("end", status="completed", text=turn.faults.text("_last"))

    def api_error(self, turn: Turn, status: int, text: str, *, reason: str = "stop_sequence") -> None:
        """The end line of a failure."""
        self._line("end", status="failed", text=text, code=status)

    def interrupted(self, turn: Turn) -> None:
        """The end line of a cancelled turn."""
        self._line("end", status="cancelled", text="")
