"""The queue that Claude Code keeps of its own, as its transcript tells it. Pure."""

from __future__ import annotations

from lastword.actors.core.facts import Fact, InputDropped, InputQueued, UnknownRecord
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers.claude_code_records import Line, text_of
from lastword.transports.providers.claude_code_text import unwrap

ENQUEUED_MAX = 1_000
"""Messages in the CLI's queue that are remembered by their text."""
TASK_NOTIFICATION = "<task-notification>"


class CliQueue:
    """The messages that wait, by their text."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self._texts)

    def change(self, line: Line, evidence: Evidence) -> list[Fact]:
        """What a ``queue-operation`` line tells."""
        facts: list[Fact] = []
        text = text_of(line.content)
        match line.operation:
            case "enqueue":
                self._texts.append(text)
                if len(self._texts) > ENQUEUED_MAX:
                    del self._texts[0]
                if not text.startswith(TASK_NOTIFICATION):
                    facts.append(InputQueued(text=unwrap(text), evidence=evidence))
            case "dequeue":
                self._take(text)
            case "remove":
                taken = self._take(text)
                if line.reason != "absorbed_mid_turn" and taken and not taken.startswith(TASK_NOTIFICATION):
                    reason = line.reason or "removed"
                    facts.append(InputDropped(text=unwrap(taken), reason=reason, evidence=evidence))
            case "popAll":
                dropped, self._texts = self._texts, []
                for each in dropped:
                    if not each.startswith(TASK_NOTIFICATION):
                        fact = InputDropped(text=unwrap(each), reason="returned_to_editor", evidence=evidence)
                        facts.append(fact)
            case _:
                facts.append(UnknownRecord(what=f"queue-operation:{(line.operation or '')[:40]}", evidence=evidence))
        return facts

    def _take(self, text: str) -> str:
        """Take a message out of the queue: the one with that text, or the first where the record names none."""
        if text:
            if text in self._texts:
                self._texts.remove(text)
            return text
        return self._texts.pop(0) if self._texts else ""
