"""One turn."""

from __future__ import annotations

import time

from .faults import Faults
from .identity import new_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

    from .steps import Record, Wait


class Turn:
    """One turn under way."""

    def __init__(self, prompt: str, source: str, parent: str | None) -> None:
        self.prompt = prompt
        self.source = source
        self.parent_before = parent
        self.uuid = new_uuid()
        self.prompt_id = new_uuid()
        self.started = time.monotonic()
        self.phase = "before"
        self.message_id = ""
        self.shown: list[Record] = []
        self.open_tools: list[tuple[Record, str]] = []
        self.answered = 0
        self.processes: list[subprocess.Popen[bytes]] = []
        self.work: Wait | None = None
        self.wake = 0.0
        self.faults = Faults([])
        self.subagents = 0
        self.pasted_at = 0.0
        self.awaits_paste = False
