"""What a terminal sends: keys, texts and pastes."""

from __future__ import annotations

import re
import time

ESCAPE_WAIT_S = 0.03
KEYS = {
    b"\r": "enter",
    b"\n": "newline",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x01": "home",
    b"\x05": "end",
    b"\x04": "delete",
    b"\x02": "left",
    b"\x06": "right",
    b"\x0b": "kill",
    b"\x15": "unkill",
    b"\x03": "ctrl-c",
    b"\t": "tab",
}
SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\x1b[3~": "delete",
}
PASTE_ON, PASTE_OFF = b"\x1b[200~", b"\x1b[201~"


class Keys:
    """Terminal bytes to events: ``("paste"|"text", str)`` or ``("key", name)``."""

    def __init__(self) -> None:
        self.rest = b""
        self.escape_due = float("inf")

    def feed(self, raw: bytes) -> list[tuple[str, str]]:
        """Take what was read; keeps what is not complete."""
        self.rest += raw
        events: list[tuple[str, str]] = []
        while self.rest:
            taken = self._one(events)
            if taken == 0:
                break
            self.rest = self.rest[taken:]
        lone = self.rest[:1] == b"\x1b" and not self.rest.startswith(PASTE_ON)
        self.escape_due = time.monotonic() + ESCAPE_WAIT_S if lone else float("inf")
        return events

    def lone_escape(self) -> list[tuple[str, str]]:
        """Nothing followed an ESC byte: it was the key."""
        self.rest = self.rest[1:]
        self.escape_due = float("inf")
        return [("key", "escape"), *self.feed(b"")]

    def _one(self, events: list[tuple[str, str]]) -> int:
        rest = self.rest
        if rest.startswith(PASTE_ON):
            end = rest.find(PASTE_OFF)
            if end < 0:
                return 0
            events.append(("paste", rest[len(PASTE_ON) : end].decode("utf-8", "replace")))
            return end + len(PASTE_OFF)
        if rest[:1] == b"\x1b":
            if rest[:2] == b"\x1b\x1b":
                events.append(("key", "escape"))
                return 1
            match = re.match(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]|O[A-Z]|[^\[O])", rest)
            if match is None:
                return 0
            events.append(("key", SEQUENCES.get(match.group(0), "other")))
            return match.end()
        if rest[:1] in KEYS:
            events.append(("key", KEYS[rest[:1]]))
            return 1
        if rest[0] < 0x20:
            events.append(("key", "other"))
            return 1
        match = re.match(rb"[^\x00-\x1f\x7f]+(?:[\r\n]+[^\x00-\x1f\x7f]+)*", rest)
        run = match.group(0) if match else rest[:1]
        try:
            text = run.decode("utf-8")
        except UnicodeDecodeError as bad:
            if bad.start > 0:
                run = run[: bad.start]
                text = run.decode("utf-8")
            elif len(run) < 4 and run == rest:
                return 0
            else:
                run, text = run[:1], "\ufffd"
        events.append(("text", text.replace("\r", "\n")))
        return len(run)
