"""What was seen of each turn of a rival, and the rows that are made of it. No files, no clock, no processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from _report import percentile

KINDS = ("plain", "pause", "tools")
_TURN = re.compile(rf"\b({'|'.join(KINDS)}) question (\d+)\b")
Marks = list[tuple[int, int]]
"""Where a line of a record ends (bytes), and the number of the turn that it is about."""


@dataclass
class Turn:
    """Times are Unix seconds by the machine's clock; None: never seen."""

    kind: str
    number: int
    sent: float
    told: float
    answer: str
    asked: list[float] = field(default_factory=list)
    """When each request of the turn came to the model."""
    model_ended: float | None = None
    prompt_seen: float | None = None
    """When another process saw the prompt in the CLI's record."""
    end_seen: float | None = None
    """When it saw the CLI's terminal record."""

    @property
    def early(self) -> bool:
        """Told before the model had answered."""
        return self.model_ended is not None and self.told < self.model_ended

    @property
    def wrong(self) -> bool:
        """The model's text is not in what was told."""
        return bare(answer_of(self.kind, self.number)) not in bare(self.answer)

    @property
    def more(self) -> bool:
        """It is, among what the model did not say."""
        whole = begin_of(self.number) + answer_of(self.kind, self.number)
        return not self.wrong and bare(self.answer) not in (bare(answer_of(self.kind, self.number)), bare(whole))


def prompt_of(kind: str, number: int) -> str:
    return f"Here is {kind} question {number}: which number is it?"


def answer_of(kind: str, number: int) -> str:
    """The last text of the turn; of a pause, what comes after it."""
    return f"The number of this {kind} turn is {number * 7919}, and that is all there is to say."


def begin_of(number: int) -> str:
    """What a turn with a pause says before it: whole lines, so that a terminal shows them; longer than the rest."""
    return f"Of question {number} I say the first half now.\n\n" + "The second half comes after a pause. " * 3 + "\n\n"


def turn_of(text: str) -> tuple[str, int] | None:
    """The kind and number of the last question that a text holds."""
    found = _TURN.findall(text)
    return (found[-1][0], int(found[-1][1])) if found else None


def bare(text: str) -> str:
    """Without what a screen does to it: the width, the indentation, the line breaks."""
    return "".join(text.split())


def marks_in(record: bytes) -> tuple[Marks, Marks]:
    """Of a Claude Code transcript: where prompts stand, and where turns end."""
    prompts: Marks = []
    ends: Marks = []
    at, current = 0, -1
    for line in record.splitlines(keepends=True):
        at += len(line)
        if not line.endswith(b"\n"):
            break  # half of a line: not yet written
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        message = entry.get("message") if isinstance(entry, dict) else None
        if not isinstance(message, dict):
            continue
        asked = turn_of(_text(message)) if entry.get("type") == "user" else None
        if asked is not None:
            current = asked[1]
            prompts.append((at, current))
        elif entry.get("type") == "assistant" and message.get("stop_reason") == "end_turn" and current >= 0:
            ends.append((at, current))
    return prompts, ends


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _ms(pairs: Iterable[tuple[float | None, float | None]]) -> list[float]:
    return [(end - begin) * 1e3 for begin, end in pairs if begin is not None and end is not None]


COLUMNS = [
    "who", "mode", "turns", "given -> model asked p50", "p99", "given -> in the CLI's record p50", "p99",
    "terminal record -> told (own) p50", "p99", "model's end -> told p50", "early", "wrong text", "more than the text",
    "own p50 to ours",
]  # fmt: skip
BY_KIND = ["who", "turns of", "n", "own p50", "own max", "early", "wrong text"]


def own(turns: Sequence[Turn]) -> list[float]:
    """Terminal record -> told, ms, of the turns that were not told early."""
    return _ms((turn.end_seen, turn.told) for turn in turns if not turn.early)


def row(who: str, mode: str, turns: Sequence[Turn], ours_p50: float | None) -> list[object]:
    """Early turns are counted, and left out of the latencies."""
    timed = [turn for turn in turns if not turn.early]
    asked = _ms((turn.sent, turn.asked[0] if turn.asked else None) for turn in timed)
    recorded = _ms((turn.sent, turn.prompt_seen) for turn in timed)
    ended = _ms((turn.model_ended, turn.told) for turn in timed)
    mine = own(turns)
    p50 = percentile(mine, 0.5)
    ratio: object = f"{p50 / ours_p50:.1f}" if mine and ours_p50 and ours_p50 > 0 and p50 > 0 else "-"
    return [
        who, mode, len(turns), percentile(asked, 0.5), percentile(asked, 0.99), percentile(recorded, 0.5),
        percentile(recorded, 0.99), p50, percentile(mine, 0.99), percentile(ended, 0.5),
        sum(turn.early for turn in turns), sum(turn.wrong for turn in turns), sum(turn.more for turn in turns), ratio,
    ]  # fmt: skip


def rows_by_kind(who: str, turns: Sequence[Turn]) -> list[list[object]]:
    rows: list[list[object]] = []
    for kind in KINDS:
        some = [turn for turn in turns if turn.kind == kind]
        mine = own(some)
        counts = [sum(turn.early for turn in some), sum(turn.wrong for turn in some)]
        if some:
            rows.append([who, kind, len(some), percentile(mine, 0.5), percentile(mine, 1.0), *counts])
    return rows
