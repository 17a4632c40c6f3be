"""Imitates Pi with our extension in it: reads its commands from one file and appends what happens to the other.

Stdlib only, run by path. Of a text it knows ``[[say:…]]``, ``[[sleep:S]]``, ``[[ask]]``, ``[[move:FILE]]`` (behind the run). Faults, one an argument:
``deaf`` (reads nothing until the file named by ``$SCRIPTED_HEAR`` is there), ``broken`` (shows why, and ends).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

FAULTS = set(sys.argv[1:])


class Filed:
    def __init__(self) -> None:
        stream = os.environ["LASTWORD_PI"]
        self.out = os.open(f"{stream}.jsonl", os.O_WRONLY | os.O_APPEND)
        self.sent = Path(f"{stream}.sent.jsonl")
        self.at = 0
        self.known: set[str] = set()
        self.waiting: list[dict[str, str]] = []
        self.queued: list[dict[str, str]] = []
        self.settles = 0
        self.abort = False
        self.answered = 0

    def say(self, ev: str, **line: object) -> None:
        data = {"v": 1, "t": int(time.time() * 1000), "ev": ev, **line}
        os.write(self.out, json.dumps(data).encode() + b"\n")

    def read(self) -> None:
        with self.sent.open("rb") as file:
            file.seek(self.at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.at += len(whole)
        for line in whole.splitlines():
            command = json.loads(line) if line else {}
            match command.get("do"):
                case "say" if command["id"] not in self.known:
                    self.known.add(command["id"])
                    self.waiting.append(command)
                case "withdraw":
                    for each in [each for each in self.waiting if each["id"] == command["id"]]:
                        self.waiting.remove(each)
                        self.say("withdrawn", id=each["id"])
                case "interrupt" if command["settles"] >= self.settles:
                    self.abort = True
                case "answer":
                    self.answered = command["option"]
                case _:
                    pass

    def wait(self, seconds: float) -> None:
        """Of a run: what comes is queued."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.abort:
            self.read()
            for each in self.waiting:
                self.say("taken", id=each["id"])
                self.say("input", id=each["id"], source="extension", streamingBehavior="steer")
            self.queued += self.waiting
            self.waiting = []
            time.sleep(0.005)

    def message(self, text: dict[str, str]) -> None:
        self.say("message_end", role="user", at=int(time.time() * 1000), msg=text["text"], id=text["id"])

    def run(self, text: dict[str, str]) -> None:
        self.abort = False
        self.say("taken", id=text["id"])
        self.say("input", id=text["id"], source="extension")
        self.say("agent_start")
        self.message(text)
        self.turn(text["text"])
        while self.queued and not self.abort:
            steer = self.queued.pop(0)
            self.message(steer)
            self.turn(steer["text"])
        self.settles += 1
        self.say("agent_settled", aborted=self.abort)
        for each in self.queued:
            self.say("returned", id=each["id"])
        for file in re.findall(r"\[\[move:(.*?)\]\]", text["text"]):
            self.say("session_start", reason="new", file=file)
        self.waiting, self.queued = [*self.queued, *self.waiting], []

    def turn(self, text: str) -> None:
        if "[[ask]]" in text:
            self.say("dialog", id=f"q{self.settles}", kind="question", msg="May it run?", options=["Yes", "No"])
            self.answered = 0
            while not self.answered and not self.abort:
                self.wait(0.01)
            self.say("dialog_closed", id=f"q{self.settles}", by="host")
        for seconds in re.findall(r"\[\[sleep:(.*?)\]\]", text):
            self.wait(float(seconds))
        said = re.findall(r"\[\[say:(.*?)\]\]", text)
        answer = said[-1] if said else f"echo: {text}"
        stop = {"stop": "aborted", "msg": ""} if self.abort else {"stop": "stop", "msg": answer}
        self.say("message_end", role="assistant", at=int(time.time() * 1000), **stop)
        print(stop["msg"], flush=True)

    def live(self) -> None:
        file = sys.argv[sys.argv.index("--session") + 1]
        self.say("session_start", reason="startup", file=file)
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
        while True:
            hear = os.environ.get("SCRIPTED_HEAR", "")
            if "deaf" not in FAULTS or Path(hear).exists():
                self.read()
            if self.waiting:
                self.run(self.waiting.pop(0))
            time.sleep(0.002)


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("1.6.0")
    elif "broken" in FAULTS:
        print("error: it cannot start like this", flush=True)
        sys.exit(3)
    else:
        Filed().live()
