"""The file that a record is written to."""

# ruff: noqa: PTH103, PTH120, PTH123

from __future__ import annotations

import json
import os
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .steps import Record

FLUSH_S = 0.1
SURROGATE = re.compile("[\ud800-\udfff]")


def stringify(record: Record) -> str:
    """As ``JSON.stringify`` writes it: half a surrogate pair alone becomes an escape."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


class Out:
    """A file that only grows; what is written waits for its time and keeps its order."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.waiting: list[tuple[float, bytes]] = []

    def put(self, raw: bytes, delay_s: float = FLUSH_S) -> None:
        """Append ``raw`` after ``delay_s``, and not before what was put earlier."""
        due = time.monotonic() + delay_s
        if self.waiting:
            due = max(due, self.waiting[-1][0]) if delay_s > FLUSH_S else self.waiting[-1][0]
        self.waiting.append((due, raw))

    def due_at(self) -> float:
        """Monotonic time of the next write."""
        return self.waiting[0][0] if self.waiting else float("inf")

    def flush(self, *, everything: bool = False) -> None:
        """Write what is due."""
        now = time.monotonic()
        ready = b""
        while self.waiting and (everything or self.waiting[0][0] <= now):
            ready += self.waiting.pop(0)[1]
        if ready:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path, "ab", buffering=0) as sink:
                sink.write(ready)
