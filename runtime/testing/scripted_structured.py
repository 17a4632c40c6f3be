#!/usr/bin/env python3
"""A program that imitates Claude Code's stream-json mode, with the model inside it, and misbehaves on request.

Stdlib only: run it by path, with any Python from 3.9, beside ``scripted/``, whose script language it plays, and
``scripted_pipe.py``.

    python3 scripted_structured.py [--fault NAME[=ARG]]... [--script FILE] -p --session-id UUID ...

It takes the options of ``claude -p --input-format stream-json`` that lastword gives (unknown ones are ignored) and
speaks as Claude Code 2.1.332 does: ``command_lifecycle``, ``system/init``, echoes, ``assistant``, ``result``, control
requests both ways, the same queue, merges and absorptions, ends at the end of stdin once its work is done, and keeps
a transcript file so that a conversation can be resumed. Facts: docs/providers/claude_code.md;
``tests/live/test_structured_drift.py`` holds it against the real one.

**Faults** come from ``--fault``, ``LASTWORD_SCRIPTED_FAULTS`` (separated by ``;``) or, for one turn, ``[[fault:...]]``.

start  : ``exit_at_start=CODE:MESSAGE``; ``no_handshake``; ``refuse_handshake``; ``slow_start=S``
input  : ``ignore_interrupt`` it is answered and nothing stops; ``mute_interrupt`` not even answered; ``deaf`` nothing
         is read once the handshake is done
output : ``dup_result``; ``torn=MS`` the result in three writes; ``garbage`` lines that are none; ``huge_line=BYTES``;
         ``no_result`` the turn ends without one; ``result_delay=S``; ``odd_request`` it asks what nobody knows, and
         goes on once that is answered; ``foreign`` a result of another conversation
end    : ``crash=before|mid|tool|end|after[:CODE]`` ends there, with CODE or by SIGKILL; ``stay`` the end of stdin is
         ignored; ``stubborn`` SIGHUP and SIGTERM too; ``leave_child`` a process of its own session is left behind
"""

# One program for any Python that starts in tens of milliseconds: no pathlib.
# ruff: noqa: PTH103, PTH109, PTH110, PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import re
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
    Wait = Generator[float, None, None]
if TYPE_CHECKING or __package__:
    from lastword.runtime.testing.scripted.faults import Faults
    from lastword.runtime.testing.scripted.identity import new_uuid, stamp
    from lastword.runtime.testing.scripted.words import API_WORDS, REJECTED, SAFE_COMMANDS
    from lastword.runtime.testing.scripted_pipe import PipeProgram
else:  # run by its path
    from scripted.faults import Faults
    from scripted.identity import new_uuid, stamp
    from scripted.words import API_WORDS, REJECTED, SAFE_COMMANDS
    from scripted_pipe import PipeProgram

VERSION = "2.1.332"
POLL_S = 0.01
NO_OUTPUT = "(Bash completed with no output)"
LIMIT_NOTE = "Output token limit hit. Resume directly \u2014 no apology, no recap of what you were doing."
API_TEXT = {400: "API Error: 400 scripted failure", 401: "Failed to authenticate. API Error: 401 scripted failure"}
API_KINDS = {**API_WORDS, 500: "server_error", 529: "server_error"}


class Turn:
    """One turn under way."""

    def __init__(self, names: list[str], text: str, faults: Faults) -> None:
        self.names = names
        self.text = text
        self.faults = faults
        self.work: Wait | None = None
        self.wake = 0.0
        self.echoed = False
        self.stopped = ""
        self.message = ""
        self.partial = ""
        self.in_tool: list[Record] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.began = time.monotonic()
        self.last_text = ""


class App(PipeProgram):
    """The program."""

    def __init__(self, argv: list[str]) -> None:
        self.session_id = ""
        self.resume = False
        self.permission_mode = "default"
        words = os.environ.get("LASTWORD_SCRIPTED_FAULTS", "").split(";")
        self.script_file = ""
        rest = iter(argv)
        for word in rest:
            if word == "--session-id":
                self.session_id = next(rest)
            elif word == "--resume":
                self.session_id, self.resume = next(rest), True
            elif word == "--permission-mode":
                self.permission_mode = next(rest)
            elif word == "--fault":
                words.append(next(rest))
            elif word == "--script":
                self.script_file = next(rest)
            elif word in ("--version", "-v"):
                print(f"{VERSION} (Claude Code)")
                sys.exit(0)
        self.faults = Faults(words)
        self.cwd = os.getcwd()
        self.home = os.environ.get("HOME", "")
        self.waiting: deque[tuple[str, str]] = deque()
        self.known: set[str] = set()
        self.turn: Turn | None = None
        self.background: deque[tuple[float, str]] = deque()
        self.asked: dict[str, Any] = {}
        self.buffer = b""
        self.eof = False
        self.deaf = False
        self.failed = False
        self.numbers = 0

    # --- output -------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:
        """One line."""
        self.raw(json.dumps({**record, "session_id": self.session_id, "uuid": record.get("uuid") or new_uuid()}))

    def lifecycle(self, name: str, state: str) -> None:
        """What became of a message."""
        self.put({"type": "command_lifecycle", "command_uuid": name, "state": state})

    def transcript(self) -> str:
        """Where the conversation is kept."""
        slug = re.sub(r"[^A-Za-z0-9]", "-", self.cwd)
        config = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(self.home, ".claude")
        return os.path.join(config, "projects", slug, f"{self.session_id}.jsonl")

    def keep(self, kind: str, name: str, text: str) -> None:
        """A line of the conversation's own file."""
        path = self.transcript()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        line = {"type": kind, "uuid": name, "sessionId": self.session_id, "message": {"role": kind, "content": text}}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    # --- life -----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Until stdin ends and the work is done."""
        if (code := self.exits_at_start()) is not None:
            return code
        there = os.path.exists(self.transcript())
        if self.resume and not there:
            print(f"No conversation found with session ID: {self.session_id}", file=sys.stderr)
            return 1
        if not self.resume and there:
            print(f"Error: Session ID {self.session_id} is already in use.", file=sys.stderr)
            return 1
        if there:
            with open(self.transcript(), encoding="utf-8") as file:
                self.known = {json.loads(line)["uuid"] for line in file}
        if "stubborn" in self.faults:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if "leave_child" in self.faults:
            subprocess.Popen(["/bin/sleep", "300"], start_new_session=True, stdout=sys.stdout)
        time.sleep(self.faults.number("slow_start"))
        while not self.eof or self.turn is not None or self.waiting or self.background or "stay" in self.faults:
            self.once()
        return 1 if self.failed else 0

    def once(self) -> None:
        """Wait for what comes next, and do it."""
        now = time.monotonic()
        due = [self.turn.wake] if self.turn is not None else []
        due += [now] if self.turn is None and self.waiting else []
        due += [at for at, _ in self.background] if self.turn is None else []
        wait_s = max(0.0, min(due) - now) if due else (0.5 if self.eof else None)
        inputs = [] if self.eof or self.deaf else [0]
        ready, _, _ = select.select(inputs, [], [], wait_s if inputs else min(wait_s or 0.5, 0.5))
        if ready:
            self.read()
        now = time.monotonic()
        if self.turn is None and (self.waiting or (self.background and self.background[0][0] <= now)):
            self.begin()
        if self.turn is not None and self.turn.wake <= now:
            self.step(self.turn)

    def read(self) -> None:
        """Lines of stdin."""
        chunk = os.read(0, 1 << 20)
        if not chunk:
            self.eof = True
            for request_id in [key for key, answer in self.asked.items() if answer is None]:
                self.asked[request_id] = {"behavior": "deny", "message": "Tool permission request failed: AbortError"}
            return
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        for line in lines:
            try:
                self.take(json.loads(line))
            except ValueError:
                print(f"Error parsing streaming input line (type=unknown, {len(line)} chars)", file=sys.stderr)
                sys.exit(1)

    def take(self, line: Record) -> None:
        """One line of stdin."""
        kind = line.get("type")
        if kind == "user":
            self.message(line.get("uuid") or new_uuid(), line["message"]["content"])
        elif kind == "control_request":
            self.control(line["request_id"], line["request"])
        elif kind == "control_response":
            self.raw(json.dumps(line))  # echoed, as the real one does
            response = line["response"]
            if response.get("request_id") in self.asked:
                self.asked[response["request_id"]] = response.get("response") or {"error": response.get("error")}

    def message(self, name: str, text: str) -> None:
        """A prompt of the host's; one that is known is taken no second time."""
        if name in self.known:
            self.put({"type": "user", "message": {"role": "user", "content": text}, "uuid": name, "isReplay": True})
            if self.resume:
                self.lifecycle(name, "completed")
            return
        self.known.add(name)
        self.waiting.append((name, text))
        self.lifecycle(name, "queued")

    def control(self, request_id: str, request: Record) -> None:
        """A control request of the host's."""
        subtype = request.get("subtype")
        answer: Record = {}
        if subtype == "initialize":
            if "no_handshake" in self.faults:
                return
            if "refuse_handshake" in self.faults:
                refusal = {"subtype": "error", "request_id": request_id, "error": "not today"}
                self.raw(json.dumps({"type": "control_response", "response": refusal}))
                return
            self.deaf = "deaf" in self.faults
            answer = {"commands": [], "models": [], "pid": os.getpid()}
        elif subtype == "interrupt":
            faults = self.turn.faults if self.turn is not None else self.faults
            if "mute_interrupt" in faults:
                return
            answer = {"still_queued": [name for name, _ in self.waiting]}
            if self.turn is not None and "ignore_interrupt" not in faults:
                self.stop_turn(self.turn)
        elif subtype == "cancel_async_message":
            wanted = request["message_uuid"]
            there = any(name == wanted for name, _ in self.waiting)
            self.waiting = deque(each for each in self.waiting if each[0] != wanted)
            if there:
                self.lifecycle(wanted, "cancelled")
            answer = {"cancelled": there, "message_uuid": wanted}
        response: Record = {"subtype": "success", "request_id": request_id, "response": answer}
        self.raw(json.dumps({"type": "control_response", "response": response}))

    def ask(self, request: Record) -> Generator[float, None, Any]:
        """Ask the host; gives its answer."""
        self.numbers += 1
        request_id = f"ask-{os.getpid()}-{self.numbers}"
        self.asked[request_id] = None
        self.raw(json.dumps({"type": "control_request", "request_id": request_id, "request": request}))
        turn = self.turn
        while self.asked[request_id] is None:
            if self.eof:
                self.asked[request_id] = {"behavior": "deny", "message": "Tool permission stream closed"}
                break
            if turn is not None and turn.stopped:
                self.raw(json.dumps({"type": "control_cancel_request", "request_id": request_id}))
                break
            yield POLL_S
        return self.asked.pop(request_id)

    # --- a turn -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The next turn: all that waits, merged; or what a background task sets off."""
        if self.waiting:
            taken = list(self.waiting)
            self.waiting.clear()
            for name, text in taken[:-1]:
                self.echo(name, text, stamped=False)
            text = "\n".join(text.strip() for _, text in taken)
            turn = Turn([name for name, _ in taken], text, self.faults.with_prompt(text))
            for name in turn.names:
                self.lifecycle(name, "started")
        else:
            _, text = self.background.popleft()
            self.put({"type": "system", "subtype": "task_notification", "status": "completed", "summary": text})
            turn = Turn([], text, self.faults)
        self.turn = turn
        names = {"user_message_uuids": turn.names} if turn.names else {}
        self.put({"type": "system", "subtype": "init", "cwd": self.cwd, "claude_code_version": VERSION, **names})
        if turn.names:
            self.keep("user", turn.names[-1], turn.text)
        turn.work = self.play(turn)

    def step(self, turn: Turn) -> None:
        """Go on with it."""
        assert turn.work is not None
        try:
            turn.wake = time.monotonic() + next(turn.work)
        except StopIteration:
            self.turn = None

    def echo(self, name: str, text: str, *, stamped: bool = True) -> None:
        """The prompt, told back."""
        record: Record = {"type": "user", "message": {"role": "user", "content": text}, "uuid": name, "isReplay": True}
        self.put({**record, "timestamp": stamp()} if stamped else record)

    def first_output(self, turn: Turn) -> None:
        """Before it, the prompt is told back."""
        if not turn.echoed:
            turn.echoed = True
            if turn.names:
                self.echo(turn.names[-1], turn.text)

    def say(self, turn: Turn, block: Record, **more: object) -> None:
        """A block of the model's."""
        self.first_output(turn)
        message = {"id": turn.message, "type": "message", "role": "assistant", "model": "scripted", "content": [block]}
        record: Record = {"type": "assistant", "message": {**message, "stop_reason": None}, "timestamp": stamp()}
        self.put({**record, **more})

    def user(self, content: list[Record], **more: object) -> None:
        """What goes back to the model."""
        message = {"role": "user", "content": content}
        self.put({"type": "user", "message": message, "timestamp": stamp(), **more})

    def play(self, turn: Turn) -> Wait:
        """The whole turn."""
        self.crash(turn, "before")
        if "garbage" in turn.faults:
            os.write(1, b'\xff\xfe not json\n[]\n{"type":"news","session_id":"' + self.session_id.encode() + b'"}\n')
        if "huge_line" in turn.faults:
            self.put({"type": "stream_event", "event": "x" * int(turn.faults.number("huge_line"))})
        if "odd_request" in turn.faults:
            answer = yield from self.ask({"subtype": "elicitation", "message": "?"})
            print(f"odd request answered: {answer}", file=sys.stderr, flush=True)
        steps = self.steps(turn.text)
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            turn.message = f"msg_{os.getpid()}_{self.numbers}"
            self.numbers += 1
            if (yield from self.failing(turn, step)):
                return
            yield from self.request(turn, step)
            if turn.stopped:
                return self.finish_stopped(turn)
            if step.get("stop_reason") == "refusal":
                error = {"is_api_error_message": True, "error": "invalid_request"}
                self.say(turn, {"type": "text", "text": "API Error: flagged"}, **error)
                return self.result(turn, stop_reason="refusal", terminal_reason="api_error", is_error=True)
            if step.get("stop_reason") == "max_tokens" and not last:
                self.user([{"type": "text", "text": LIMIT_NOTE}], isSynthetic=True)
        self.crash(turn, "end")
        yield from self.end(turn)

    def end(self, turn: Turn) -> Wait:
        if turn.faults.number("result_delay"):
            yield turn.faults.number("result_delay")
        if "foreign" in turn.faults:
            other = {"type": "result", "subtype": "success", "is_error": False, "result": "foreign"}
            self.raw(json.dumps({**other, "session_id": new_uuid()}))
        self.result(turn)
        self.crash(turn, "after")

    def failing(self, turn: Turn, step: Record) -> Generator[float, None, bool]:
        """The model's service fails; whether that ends the turn."""
        error = step.get("error")
        if not error and not step.get("cut"):
            return False
        status = error["status"] if error else None
        word = API_KINDS.get(status, "unknown") if status is not None else "unknown"
        if status != 400:
            retry = {"attempt": 1, "max_retries": 1, "error_status": status, "error": word}
            self.put({"type": "system", "subtype": "api_retry", **retry})
            yield 0.05
        if not error or error.get("times"):
            return False
        text = API_TEXT.get(status or 0, f"API Error: {status} scripted failure")
        turn.message = new_uuid()
        self.say(
            turn,
            {"type": "text", "text": text},
            is_api_error_message=True,
            error=word,
            api_error_status=status,
        )
        self.result(
            turn,
            result=text,
            is_error=True,
            terminal_reason="api_error",
            stop_reason="stop_sequence",
            api_error_status=status,
        )
        return True

    def request(self, turn: Turn, step: Record) -> Wait:
        """One answer of the model, and its tools."""
        yield from self.pause(turn, float(step.get("delay_s") or 0.0))
        tools = []
        for block in step["blocks"]:
            yield from self.pause(turn, float(block.get("pause_s") or 0.0))
            if turn.stopped:
                return
            if block["type"] == "text":
                yield from self.text(turn, step, block["text"])
                turn.last_text = block["text"]
                self.crash(turn, "mid")
            elif block["type"] == "tool_use":
                self.numbers += 1
                shown = {"id": f"toolu_{os.getpid()}_{self.numbers}", **block}
                shown.pop("pause_s", None)
                self.say(turn, shown)
                tools.append(shown)
        yield from self.pause(turn, float(step.get("hang_s") or 0.0))
        turn.in_tool = list(tools)
        for tool in tools:
            yield from self.tool(turn, tool)
            if turn.stopped:
                return
        if tools:
            self.absorb(turn)

    def text(self, turn: Turn, step: Record, text: str) -> Wait:
        """A text block; streamed in pieces, it shows only when it is whole, or when it is cut off."""
        size = int(step.get("chunk_chars") or 0)
        for at in range(0, len(text) if size else 0, max(1, size)):
            turn.partial = text[:at]
            yield from self.pause(turn, float(step.get("chunk_pause_s") or 0.0))
            if turn.stopped:
                return
        turn.partial = ""
        if not turn.stopped:
            self.say(turn, {"type": "text", "text": text})

    def tool(self, turn: Turn, tool: Record) -> Wait:
        """One call, asked for where that is needed."""
        name, given = tool["name"], tool["input"]
        command = str(given.get("command", ""))
        asks = name == "AskUserQuestion" or (name == "Bash" and command.split(maxsplit=1)[0] not in SAFE_COMMANDS)
        if asks and self.permission_mode != "bypassPermissions":
            rule = {"toolName": name, "ruleContent": f"{command} *"}
            suggestions = [
                {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"},
                {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
            ]
            request = {"subtype": "can_use_tool", "tool_name": name, "input": given, "tool_use_id": tool["id"]}
            if name == "Bash":
                request["permission_suggestions"] = suggestions
            answer = yield from self.ask(request)
            if turn.stopped:
                return
            if not isinstance(answer, dict) or answer.get("behavior") != "allow":
                reason = answer.get("message", "denied") if isinstance(answer, dict) else "denied"
                self.returned(turn, tool, str(reason), failed=True)
                return
            for update in answer.get("updatedPermissions") or ():
                if update.get("type") == "setMode":
                    self.permission_mode = "bypassPermissions"
            given = answer.get("updatedInput") or given
        self.crash(turn, "tool")
        if name == "AskUserQuestion":
            self.returned(turn, tool, f"answered: {json.dumps(given.get('answers'))}", failed=False)
        elif name == "Agent":
            self.background.append((time.monotonic() + 0.2, f"echo: {given.get('prompt', '')}"))
            self.returned(turn, tool, "Async agent launched successfully.", failed=False)
        elif name == "Bash":
            yield from self.bash(turn, tool, command)
        else:
            self.returned(turn, tool, "done", failed=False)

    def bash(self, turn: Turn, tool: Record, command: str) -> Wait:
        """A real command, in a group of its own."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        turn.processes.append(process)
        while process.poll() is None and not turn.stopped:
            yield POLL_S
        if turn.stopped:
            return
        turn.processes.remove(process)
        said = process.stdout.read().decode(errors="replace").rstrip("\n") if process.stdout is not None else ""
        self.returned(turn, tool, said or NO_OUTPUT, failed=process.returncode != 0)

    def returned(self, turn: Turn, tool: Record, text: str, *, failed: bool) -> None:
        """Its result."""
        turn.in_tool = [each for each in turn.in_tool if each["id"] != tool["id"]]
        self.user([{"type": "tool_result", "tool_use_id": tool["id"], "content": text, "is_error": failed}])

    def absorb(self, turn: Turn) -> None:
        """What waits goes into the running turn behind a tool, but for what looks like a command."""
        for name, text in list(self.waiting):
            if not text.strip().startswith("/"):
                self.waiting.remove((name, text))
                turn.names.append(name)
                self.echo(name, text)
                self.lifecycle(name, "started")

    def stop_turn(self, turn: Turn) -> None:
        """The host wants it to stop."""
        turn.stopped = "aborted_tools" if turn.in_tool else "aborted_streaming"
        turn.wake = 0.0
        for process in turn.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def finish_stopped(self, turn: Turn) -> None:
        """The end of a turn that was stopped."""
        self.first_output(turn)
        if turn.partial:
            self.say(turn, {"type": "text", "text": turn.partial}, aborted=True)
        in_tool = bool(turn.in_tool)
        for tool in list(turn.in_tool):
            self.returned(turn, tool, REJECTED, failed=True)
        note = "[Request interrupted by user for tool use]" if in_tool else "[Request interrupted by user]"
        self.user([{"type": "text", "text": note}])
        self.result(
            turn, subtype="error_during_execution", is_error=True, terminal_reason=turn.stopped, stop_reason=None
        )

    def result(self, turn: Turn, **more: object) -> None:
        """The end of it."""
        self.first_output(turn)
        record: Record = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "terminal_reason": "completed",
            "stop_reason": "end_turn",
            "result": turn.last_text,
            "num_turns": 1,
            "duration_ms": int((time.monotonic() - turn.began) * 1000),
            **more,
        }
        if turn.names:
            record["user_message_uuids"] = turn.names
        else:
            record["origin"] = {"kind": "task-notification"}
        self.failed = bool(record["is_error"])
        if "no_result" not in turn.faults:
            line = json.dumps({**record, "session_id": self.session_id, "uuid": new_uuid()})
            if "torn" in turn.faults:
                for at in (0, len(line) // 3, 2 * len(line) // 3):
                    end = len(line) if at > len(line) // 2 else at + len(line) // 3
                    os.write(1, line[at:end].encode())
                    time.sleep(turn.faults.number("torn") / 1000)
                os.write(1, b"\n")
            else:
                self.raw(line)
            if "dup_result" in turn.faults:
                self.raw(line)
        for name in turn.names:
            self.lifecycle(name, "cancelled" if record["is_error"] else "completed")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.exit(App(sys.argv[1:]).run())
    except BrokenPipeError:
        sys.exit(1)
