#!/usr/bin/env python3
"""A program that imitates an agent of the Agent Client Protocol, with the model inside it, and misbehaves on request.

Stdlib only: run it by path, with any Python from 3.9, beside ``scripted/``, whose script language it plays, and
``scripted_pipe.py``.

    python3 scripted_acp.py [--fault NAME[=ARG]]... [--script FILE]

It speaks version 1 over stdin and stdout: ``initialize``, ``session/new``, ``session/load`` (with the old conversation
told anew), ``session/prompt``, ``session/cancel``, ``session/set_mode``; it asks for permission before it runs a
command that is not known to be harmless, keeps its conversations in ``$HOME/.scripted-acp`` and ends at the end of its
stdin once its work is done.

**Faults** come from ``--fault`` or, for one turn, ``[[fault:...]]`` in its prompt.

start  : ``exit_at_start=CODE:MESSAGE``; ``no_handshake``; ``version=N``; ``auth``: a login is wanted; ``no_load``;
         ``replay_late``: the old conversation is told a moment after ``session/load`` was answered, before it reads on
busy   : ``second=cancels|fails|queues``: what a second prompt does (default ``queues``, the text of the second before
         the answer of the first)
turn   : ``late=S`` an update behind the answer; ``no_response`` the prompt is never answered; ``dup_response``;
         ``garbage`` lines that are none; ``foreign`` a message of another conversation; ``odd_request`` it asks what
         nobody knows; ``stop=REASON``; ``silent`` it says nothing; ``abort_is_error`` a cancelled prompt is answered
         with an error; ``deaf_cancel``; ``cancel_at_eof`` the end of its stdin cancels what runs;
         ``crash=before|mid|tool|end[:CODE]``
"""

# One program for any Python that starts in tens of milliseconds: no pathlib.
# ruff: noqa: PTH103, PTH110, PTH118, PTH123

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    Record = dict[str, Any]
    Wait = Generator[float, None, str]
if TYPE_CHECKING or __package__:
    from lastword.runtime.testing.scripted.faults import Faults
    from lastword.runtime.testing.scripted.identity import new_uuid
    from lastword.runtime.testing.scripted.words import SAFE_COMMANDS
    from lastword.runtime.testing.scripted_pipe import PipeProgram
else:  # run by its path
    from scripted.faults import Faults
    from scripted.identity import new_uuid
    from scripted.words import SAFE_COMMANDS
    from scripted_pipe import PipeProgram

VERSION = "1.0.0"
POLL_S = 0.01
REPLAY_S = 0.2
OPTIONS = [
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Turn:
    """One prompt under way."""

    def __init__(self, number: object, text: str, faults: Faults) -> None:
        self.number = number
        self.text = text
        self.faults = faults
        self.work: Wait | None = None
        self.wake = 0.0
        self.stopped = False
        self.said = ""


class App(PipeProgram):
    """The program."""

    def __init__(self, argv: list[str]) -> None:
        words: list[str] = []
        self.script_file = ""
        rest = iter(argv)
        for word in rest:
            if word == "--fault":
                words.append(next(rest))
            elif word == "--script":
                self.script_file = next(rest)
            elif word == "--version":
                print(VERSION)
                sys.exit(0)
        self.faults = Faults(words)
        self.session = ""
        self.always = False
        self.mode = "default"
        self.waiting: deque[tuple[object, str]] = deque()
        self.turn: Turn | None = None
        self.asked: dict[int, Any] = {}
        self.numbers = 0
        self.buffer = b""
        self.eof = False
        self.later: list[tuple[float, str]] = []
        self.deaf = False

    # --- lines --------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:
        """One line."""
        self.raw(json.dumps({"jsonrpc": "2.0", **record}))

    def update(self, **update: object) -> None:
        """What happens."""
        self.put({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def chunk(self, text: str, kind: str = "agent_message_chunk") -> None:
        """A piece of a message."""
        self.update(sessionUpdate=kind, content={"type": "text", "text": text})

    def path(self) -> str:
        """Where the conversation is kept."""
        return os.path.join(os.environ.get("HOME", ""), ".scripted-acp", f"{self.session}.jsonl")

    def keep(self, who: str, text: str) -> None:
        """A line of it."""
        os.makedirs(os.path.dirname(self.path()), exist_ok=True)  # noqa: PTH120
        with open(self.path(), "a", encoding="utf-8") as file:
            file.write(json.dumps([who, text]) + "\n")

    def replay(self) -> None:
        """The whole conversation, told anew."""
        with open(self.path(), encoding="utf-8") as file:
            for line in file:
                who, text = json.loads(line)
                self.chunk(text, "user_message_chunk" if who == "user" else "agent_message_chunk")

    # --- life -----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Until stdin ends and the work is done."""
        if (code := self.exits_at_start()) is not None:
            return code
        while not self.eof or self.turn is not None or self.waiting:
            self.once()
        return 0

    def once(self) -> None:
        """Wait for what comes next, and do it."""
        now = time.monotonic()
        due = [self.turn.wake] if self.turn is not None else [now] if self.waiting else []
        due += [at for at, _ in self.later]
        wait_s = max(0.0, min(due) - now) if due else None
        ready, _, _ = select.select([] if self.eof else [0], [], [], wait_s)
        if ready:
            self.read()
        now = time.monotonic()
        for at, text in list(self.later):
            if at <= now:
                self.later.remove((at, text))
                self.chunk(text)
        if self.turn is None and self.waiting:
            number, text = self.waiting.popleft()
            self.begin(number, text)
        if self.turn is not None and self.turn.wake <= now:
            self.step(self.turn)

    def read(self) -> None:
        """Lines of stdin."""
        chunk = os.read(0, 1 << 20)
        if not chunk:
            self.eof = True
            for number in [key for key, answer in self.asked.items() if answer is None]:
                self.asked[number] = {"outcome": "cancelled"}
            if self.turn is not None and "cancel_at_eof" in self.turn.faults:
                self.turn.stopped = True
                self.turn.wake = 0.0
            return
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        for line in lines:
            self.take(json.loads(line))

    def take(self, line: Record) -> None:
        """One line of stdin."""
        method, number, params = line.get("method"), line.get("id"), line.get("params") or {}
        if method is None:
            if number in self.asked:
                self.asked[number] = (line.get("result") or {}).get("outcome") or {"outcome": "refused"}
        elif method == "session/prompt":
            self.prompt(number, "".join(block.get("text", "") for block in params["prompt"]))
        elif method == "session/cancel":
            if self.turn is not None and "deaf_cancel" not in self.turn.faults:
                self.turn.stopped = True
                self.turn.wake = 0.0
        elif number is not None and "no_handshake" not in self.faults:
            self.request(number, method, params)

    def request(self, number: object, method: str, params: Record) -> None:
        """All but prompts."""
        result: Record = {}
        after = False
        if method == "initialize":
            result = {
                "protocolVersion": int(self.faults.number("version") or 1),
                "agentCapabilities": {"loadSession": "no_load" not in self.faults},
                "agentInfo": {"name": "scripted", "version": VERSION},
                "authMethods": [{"id": "login", "name": "Log in"}] if "auth" in self.faults else [],
            }
        elif method == "session/new" and "auth" in self.faults:
            self.put({"id": number, "error": {"code": -32000, "message": "Authentication required"}})
            return
        elif method == "session/new":
            self.session = f"conversation-{new_uuid()}"
            result = {"sessionId": self.session}
        elif method == "session/load":
            self.session = params["sessionId"]
            if not os.path.exists(self.path()):
                error = {"code": -32002, "message": f"Resource not found: {self.session}"}
                self.put({"id": number, "error": error})
                return
            after = "replay_late" in self.faults
            if not after:
                self.replay()
        elif method == "session/set_mode":
            self.mode = params["modeId"]
        else:
            self.put({"id": number, "error": {"code": -32601, "message": f"Method not found: {method}"}})
            return
        self.put({"id": number, "result": result})
        if after:
            time.sleep(REPLAY_S)
            self.replay()

    def prompt(self, number: object, text: str) -> None:
        """A prompt; one may run already."""
        if self.turn is not None and self.faults.text("second") in ("cancels", "fails"):
            self.turn.stopped = True
            self.turn.wake = 0.0
        elif self.turn is not None:
            self.chunk("crossed over: ")  # nobody can say to which of the two this belongs
        if self.turn is None and not self.waiting:
            self.begin(number, text)  # at once: a cancel may stand behind it
        else:
            self.waiting.append((number, text))

    # --- a turn -----------------------------------------------------------------------------------------------------

    def begin(self, number: object, text: str) -> None:
        """The next prompt."""
        self.keep("user", text)
        self.turn = turn = Turn(number, text, self.faults.with_prompt(text))
        turn.work = self.play(turn)

    def step(self, turn: Turn) -> None:
        """Go on with it."""
        assert turn.work is not None
        try:
            turn.wake = time.monotonic() + next(turn.work)
        except StopIteration as end:
            self.turn = None
            self.respond(turn, end.value)

    def respond(self, turn: Turn, reason: str) -> None:
        """The answer to the prompt."""
        self.keep("agent", turn.said)
        if "no_response" in turn.faults:
            return
        answer: Record = {"id": turn.number, "result": {"stopReason": turn.faults.text("stop") or reason}}
        if reason.startswith("{"):
            answer = {"id": turn.number, "error": json.loads(reason)}
        elif reason == "cancelled" and ("abort_is_error" in turn.faults or self.faults.text("second") == "fails"):
            error = {"code": -32603, "message": "Internal error", "data": {"details": "Request was aborted."}}
            answer = {"id": turn.number, "error": error}
        self.put(answer)
        if "dup_response" in turn.faults:
            self.put(answer)
        if turn.faults.number("late"):
            self.later.append((time.monotonic() + turn.faults.number("late"), "said too late"))

    def play(self, turn: Turn) -> Wait:
        """The whole turn; gives the stop reason, or an error as JSON."""
        self.crash(turn, "before")
        if "garbage" in turn.faults:
            os.write(1, b'\xff\xfe not json\n[]\n{"method":"session/update"}\n')
        if "foreign" in turn.faults:
            update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "foreign"}}
            self.put({"method": "session/update", "params": {"sessionId": "another", "update": update}})
        if "odd_request" in turn.faults:
            answer = yield from self.ask("fs/read_text_file", {"sessionId": self.session, "path": "/etc/hosts"})
            print(f"odd request answered: {answer}", file=sys.stderr, flush=True)
        for step in self.steps(turn.text):
            error = step.get("error")
            if error and not error.get("times"):
                message = json.dumps({"error": {"code": error["status"], "message": "scripted failure"}})
                return json.dumps({"code": error["status"], "message": message})
            yield from self.answer(turn, step)
            if turn.stopped:
                return "cancelled"
            if step.get("stop_reason") in ("refusal", "max_tokens"):
                return str(step["stop_reason"])
        self.crash(turn, "end")
        return "end_turn"

    def answer(self, turn: Turn, step: Record) -> Generator[float, None, None]:
        """One answer of the model, and its tools."""
        yield from self.pause(turn, float(step.get("delay_s") or 0.0))
        tools = []
        for block in step["blocks"]:
            yield from self.pause(turn, float(block.get("pause_s") or 0.0))
            if turn.stopped:
                return
            if block["type"] == "text" and "silent" not in turn.faults:
                yield from self.text(turn, step, block["text"])
                self.crash(turn, "mid")
            elif block["type"] == "tool_use":
                tools.append(block)
        yield from self.pause(turn, float(step.get("hang_s") or 0.0))
        for tool in tools:
            yield from self.tool(turn, tool)
            if turn.stopped:
                return

    def text(self, turn: Turn, step: Record, text: str) -> Generator[float, None, None]:
        """A text block, in pieces."""
        size = int(step.get("chunk_chars") or 0) or max(1, len(text))
        for at in range(0, len(text), size):
            if turn.stopped:
                return
            self.chunk(text[at : at + size])
            turn.said += text[at : at + size]
            yield from self.pause(turn, float(step.get("chunk_pause_s") or 0.0))

    def ask(self, method: str, params: Record) -> Generator[float, None, Any]:
        """A request of ours; its answer."""
        self.numbers += 1
        number = self.numbers
        self.asked[number] = None
        self.put({"id": number, "method": method, "params": params})
        while self.asked[number] is None:
            yield POLL_S
        return self.asked.pop(number)

    def tool(self, turn: Turn, tool: Record) -> Generator[float, None, None]:
        """One call, asked for where that is needed."""
        command = str(tool["input"].get("command", ""))
        self.numbers += 1
        name = f"call_{os.getpid()}_{self.numbers}"
        call = {"toolCallId": name, "title": command or tool["name"], "kind": "execute", "rawInput": tool["input"]}
        self.update(sessionUpdate="tool_call", status="pending", **call)
        if command.split(maxsplit=1)[0] not in SAFE_COMMANDS and not self.always and self.mode != "yolo":
            asked = {"sessionId": self.session, "toolCall": {**call, "status": "pending"}, "options": OPTIONS}
            outcome = yield from self.ask("session/request_permission", asked)
            if outcome.get("optionId") == "always":
                self.always = True
            if outcome.get("outcome") != "selected" or outcome.get("optionId") == "no" or turn.stopped:
                self.finished(name, "denied", failed=True)
                return
        self.update(sessionUpdate="tool_call_update", toolCallId=name, status="in_progress")
        self.crash(turn, "tool")
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while process.poll() is None and not turn.stopped:
            yield POLL_S
        if turn.stopped:
            os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        self.finished(name, said.decode(errors="replace").rstrip("\n"), failed=process.returncode != 0)

    def finished(self, name: str, text: str, *, failed: bool) -> None:
        """Its result."""
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        status = "failed" if failed else "completed"
        self.update(sessionUpdate="tool_call_update", toolCallId=name, status=status, content=content)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.exit(App(sys.argv[1:]).run())
    except BrokenPipeError:
        sys.exit(1)
