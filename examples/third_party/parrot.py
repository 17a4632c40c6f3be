"""A little CLI of somebody else's: a terminal program that answers what it is told to, and keeps a record of it.

Prompts: ``[[say:TEXT]]`` answers TEXT, ``[[sleep:S]]`` thinks first, ``[[error:…]]`` fails. Escape interrupts. What is
entered while it thinks waits. ``parrot.py RECORD``; ``--version``.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import termios
import time
import tty
from pathlib import Path


class Parrot:
    def __init__(self, record: Path) -> None:
        self.record = record.open("a", encoding="utf-8")
        self.run = sum(1 for _ in record.open(encoding="utf-8"))
        self.draft = ""
        self.queue: list[str] = []
        self.turn = ""
        self.answer: str | None = ""
        self.ends_at = 0.0

    def write(self, kind: str, **fields: object) -> None:
        self.record.write(json.dumps({"kind": kind, "at": time.time(), **fields}) + "\n")
        self.record.flush()

    def start(self, text: str) -> None:
        self.run += 1
        self.turn = f"{os.getpid()}-{self.run}"
        self.write("prompt", turn=self.turn, text=text)
        said = re.findall(r"\[\[say:(.*?)\]\]", text)
        self.answer = None if "[[error" in text else "".join(said)
        self.ends_at = time.monotonic() + sum(map(float, re.findall(r"\[\[sleep:([\d.]+)\]\]", text)))

    def end(self, status: str) -> None:
        turn, self.turn = self.turn, ""
        self.write("end", turn=turn, status=status, text=self.answer if status == "completed" else None)
        if self.queue:
            self.start(self.queue.pop(0))

    def enter(self) -> None:
        text, self.draft = self.draft, ""
        if text and self.turn:
            self.queue.append(text)
            self.write("queued", text=text)
        elif text:
            self.start(text)

    def typed(self, data: str) -> None:
        for part in re.split(r"(\x1b\[200~.*?\x1b\[201~|\r|\x15|\x1b)", data, flags=re.DOTALL):
            match part:
                case "\r":
                    self.enter()
                case "\x15":
                    self.draft = ""
                case "\x1b" if self.turn:
                    self.end("cancelled")
                case _:
                    self.draft += part.removeprefix("\x1b[200~").removesuffix("\x1b[201~").replace("\x1b", "")

    def draw(self) -> None:
        state = "thinking" if self.turn else "listening"
        sys.stdout.write(f"\x1b[2J\x1b[Hparrot is {state}\r\n> " + self.draft.replace("\n", "\r\n"))
        sys.stdout.flush()


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print("parrot 1.0.0")
        return
    record = Path(sys.argv[1])
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()
    parrot = Parrot(record)
    before = termios.tcgetattr(0)
    tty.setraw(0)
    sys.stdout.write("\x1b[?2004h")
    try:
        held = ""
        while True:
            parrot.draw()
            wait_s = max(0.0, parrot.ends_at - time.monotonic()) if parrot.turn else None
            if select.select([0], [], [], wait_s)[0]:
                data = os.read(0, 65536)
                if not data:
                    return
                held += data.decode(errors="replace")
                if held.count("\x1b[200~") == held.count("\x1b[201~"):
                    parrot.typed(held)
                    held = ""
            elif parrot.turn:
                parrot.end("failed" if parrot.answer is None else "completed")
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


if __name__ == "__main__":
    main()
