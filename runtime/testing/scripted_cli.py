#!/usr/bin/env python3
"""A terminal program that imitates a coding CLI, with the model inside it, and misbehaves on request.

One stdlib-only file: run it by path, with any Python from 3.9, in a real terminal.

    python3 scripted_cli.py [--dialect claude-code|plain] [--fault NAME[=ARG]]... [--script FILE] [options]

``claude-code`` imitates Claude Code 2.1.332 as an observer sees it: options (``--session-id --resume
--continue --permission-mode --model --settings --version``; unknown ones are ignored), transcript path and
record dialect, registry file ``~/.claude/sessions/<pid>.json``, screen, keys, dialogs, queue. Format facts
come from docs/providers/claude_code.md; ``tests/live/test_scripted_cli_drift.py`` holds it against the real
one.

``plain`` has the same screen and keys and a record of its own, one JSON object a line, at ``--record FILE``
(default ``$HOME/.plain/<session-id>.jsonl``): ``{"kind": K, "turn": N, "text": ...}`` where K is prompt,
answer, tool, tool_result, queued, joined or end; ``end`` has a ``status`` of completed, failed or cancelled.

**What it says** is read from the prompt: ``[[script:NAME]]`` plays a row of steps from ``--script FILE``
(or ``LASTWORD_SCRIPTED_SCRIPT``), else the inline directives of ``script.py`` (sleep, say, half, think, tool,
also, pause, chunk, size, stop, next, error, cut, hang), else ``echo: <prompt>``.

**Faults** come from ``--fault``, ``LASTWORD_SCRIPTED_FAULTS`` (separated by ``;``) or, for one turn,
``[[fault:NAME=ARG]]``.

start  : ``slow_start=S`` what is typed in the first S seconds is lost; ``paint_early`` with the ready
         screen already shown; ``startup_dialog=trust,api_key,update``; ``exit_at_start=CODE:MESSAGE``;
         ``no_registry``; ``registry_late=S``
input  : ``enter_swallow_ms=N`` Enter within N ms of the last text is lost; ``enter_drop=N`` the first N
         Enters are lost; ``enter_newline_ms=N`` Enter within N ms of the last text is a newline;
         ``paste_drop=N`` the first N pastes are lost; ``ignore_escape``; ``queue_drop`` a queued message is
         removed and never read
screen : ``idle_look`` looks ready all turn; ``repaint=HZ`` storm; ``frozen`` no repaint during a turn;
         ``quote_ui`` the answer quotes the prompt glyph and the busy footer; ``ask`` a permission dialog
         before every tool; ``ask_after_paste=MS`` the same, MS ms after a paste has landed during the turn
         (``MS-MS``: at a random time between the two); ``dialog_lead=MS`` from what the registry says to
         the dialog that is painted and takes the keys, default 450
record : ``dup_end=N`` the terminal record N times more; ``late_dup=S`` the same once more after S seconds;
         ``torn=PARTS:MS`` the terminal records in PARTS writes, cut inside characters too;
         ``no_turn_duration``; ``end_delay=S`` between answer and terminal record; ``record_delay=S`` screen
         and registry are done S seconds before answer and terminal record; ``no_record`` the screen is done
         and no terminal record ever comes; ``huge_line=BYTES``; ``unknown_records=N``; ``interrupt_silent``
         Escape ends the turn and writes nothing; ``auto_compact``; ``stop_hook_veto=N``;
         ``task_notification=S`` a self-started turn S seconds after the end; ``subagent=S`` the same by a
         sub-agent; ``companion`` with the isMeta line before it that the real one writes when the sub-agent
         used tools
registry: ``registry_busy`` stays busy for ever; ``registry_stale`` is never updated after the start
death  : ``crash=before|mid|tool|end|after[:CODE]`` ends there, with CODE or by SIGKILL
"""

# One file for any Python that starts in tens of milliseconds: no pathlib, no zip(strict=). The plain
# dialect's recorder takes what the other one takes.
# ruff: noqa: ARG002, B905, PTH100, PTH103, PTH105, PTH108, PTH109, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Generator
    from typing import Any

    Record = dict[str, Any]
    Wait = Generator[float, None, None]

VERSION = "2.1.332"
FLUSH_S = 0.1
ESCAPE_WAIT_S = 0.03
RETRY_WAIT_S = 0.6
EXIT_AGAIN_S = 0.8
DIALOG_PAINT_S = 0.45
PASTE_LINES = 4
PASTE_CHARS = 801
ECHO_CHARS_MAX = 2000
HISTORY_LINES_MAX = 400
RULE = "\u2500"
GLYPH = "\u276f\u00a0"
ZERO_UUID = "00000000-0000-0000-0000-000000000000"
UUID_FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
DIRECTIVE = re.compile(r"\[\[([a-z]+)(?::(.*?))?\]\]", re.DOTALL)
COMMAND = re.compile(r" */([A-Za-z0-9:_-]*)(?:\s+(.*))?$", re.DOTALL)
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u200c\u200e\u200f"
    "\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
)
SURROGATE = re.compile("[\ud800-\udfff]")
ANSI = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|[@-Z\\\\-_a-z])")
SAFE_COMMANDS = frozenset(("echo", "sleep", "ls", "cat", "pwd", "true", "false", "date", "head", "wc", "sort"))
UNASKED_TOOLS = frozenset(("Read", "Glob", "Grep", "Agent", "TodoWrite"))
REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). STOP what you are doing and wait for the user to "
    "tell you how to proceed."
)
CAVEAT = (
    "<local-command-caveat>The command below was run directly in Claude Code, not sent to you as a request, "
    "and its output goes straight to the user. It's recorded here as context for later messages."
    "</local-command-caveat>"
)
API_WORDS = {400: "unknown", 401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit"}
API_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
FIRST_ATTACHMENTS = (
    "environment",
    "model",
    "deferred_tools_delta",
    "agent_listing_delta",
    "skill_listing",
    "session_context",
    "date",
    "remote_session_change",
    "prompt_snapshot",
)


def new_uuid() -> str:
    """A random UUID, without the import that costs start time."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def stamp() -> str:
    """Wall time in the transcript's form."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def stringify(record: Record) -> str:
    """As ``JSON.stringify`` writes it: half a surrogate pair alone becomes an escape."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


# -- script: the same language as script.py, as plain dictionaries ---------------------------------


def echo(prompt: str) -> str:
    """The default answer."""
    if len(prompt) <= ECHO_CHARS_MAX:
        return f"echo: {prompt}"
    half = ECHO_CHARS_MAX // 2
    return f"echo: {prompt[:half]} ...[{len(prompt)} characters]... {prompt[-half:]}"


def tool_block(argument: str) -> Record:
    """The block of ``[[tool:NAME:ARG]]``."""
    name, _, rest = argument.partition(":")
    if name == "Bash":
        return {
            "type": "tool_use",
            "name": name,
            "input": {"command": rest, "description": "scripted command"},
        }
    value = json.loads(rest) if rest else {}
    if not isinstance(value, dict):
        raise ValueError(f"the argument of tool {name} is not a JSON object")  # noqa: TRY004 - bad text
    return {"type": "tool_use", "name": name, "input": value}


def inline_steps(prompt: str) -> list[Record]:
    """Compile the directives of a prompt; see ``script.py`` for the language."""
    steps: list[Record] = []
    step: Record = {"blocks": []}
    pause = 0.0

    def add(block: Record) -> None:
        nonlocal pause
        if pause:
            block["pause_s"], pause = pause, 0.0
        step["blocks"].append(block)

    def end() -> None:
        nonlocal step, pause
        if pause:
            step["stop_pause_s"], pause = pause, 0.0
        steps.append(step)
        step = {"blocks": []}

    try:
        for word, argument in DIRECTIVE.findall(prompt):
            part = argument.split(":")
            if word in ("sleep", "hang"):
                step["delay_s" if word == "sleep" else "hang_s"] = float(argument)
            elif word == "pause":
                pause += float(argument)
            elif word == "chunk":
                step["chunk_chars"], step["chunk_pause_s"] = max(1, int(part[0])), float(part[1])
            elif word == "say":
                add({"type": "text", "text": argument})
            elif word == "half":
                add({"type": "text", "text": argument + "\ud83d"})
            elif word == "size":
                add({"type": "text", "text": ("0123456789" * (int(argument) // 10 + 1))[: int(argument)]})
            elif word == "think":
                add({"type": "thinking", "thinking": argument})
            elif word in ("tool", "also"):
                if word == "also":
                    step = steps.pop()
                    step.pop("stop_pause_s", None)
                add(tool_block(argument))
                end()
            elif word == "stop":
                step["stop_reason"] = argument
                end()
            elif word == "next":
                end()
            elif word == "error":
                step["error"] = {
                    "status": int(part[0]),
                    "times": int(part[1]) if len(part) > 1 else 0,
                    "retry_after_s": float(part[2]) if len(part) > 2 else None,
                }
            elif word == "cut":
                step["cut"], step["cut_times"] = True, int(argument or 0)
    except (ValueError, IndexError) as bad:
        return [{"blocks": [{"type": "text", "text": f"bad directive: {bad}"}]}]
    if step["blocks"] or len(step) > 1 or pause or not steps:
        end()
    kinds = [block["type"] for block in steps[-1]["blocks"]]
    if "tool_use" in kinds:
        end()
    elif "text" in kinds or steps[-1].get("stop_reason"):
        return steps
    steps[-1]["blocks"].append({"type": "text", "text": echo(prompt)})
    return steps


class Faults:
    """Named misbehaviours with their arguments."""

    def __init__(self, words: list[str]) -> None:
        self.table: dict[str, str] = {}
        for word in words:
            name, _, argument = word.partition("=")
            if name.strip():
                self.table[name.strip()] = argument

    def __contains__(self, name: str) -> bool:
        return name in self.table

    def text(self, name: str) -> str:
        """The argument as it stands."""
        return self.table.get(name, "")

    def number(self, name: str, default: float = 0.0) -> float:
        """The argument as a number; ``default`` where the fault is on without one, 0 where it is off."""
        if name not in self.table:
            return 0.0
        try:
            return float(self.table[name])
        except ValueError:
            return default

    def spend(self, name: str) -> bool:
        """True for the first N calls of a fault with the argument N."""
        left = int(self.number(name, 1))
        if left > 0:
            self.table[name] = str(left - 1)
        return left > 0

    def with_prompt(self, prompt: str) -> Faults:
        """These and the prompt's own."""
        merged = Faults([argument for word, argument in DIRECTIVE.findall(prompt) if word == "fault"])
        merged.table = {**self.table, **merged.table}
        return merged


# -- record ----------------------------------------------------------------------------------------


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


class ClaudeRecorder:
    """Writes what happens in Claude Code's dialect."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.parent: str | None = None
        self.prompts = 0
        self.lines = 0
        self.zero_leaf = False
        self.attached = False
        self.snapshotted = False
        self.out = Out(self.path())
        self.fresh = True
        self.torn: tuple[int, float] | None = None
        self.extra_s = 0.0

    def path(self) -> str:
        """Where the transcript of the current session is."""
        slug = re.sub(r"[^A-Za-z0-9]", "-", self.app.cwd)
        return os.path.join(self.app.home, ".claude", "projects", slug, f"{self.app.session_id}.jsonl")

    def adopt(self) -> None:
        """Go on in an existing transcript (``--resume``)."""
        with open(self.out.path, encoding="utf-8") as old:
            for line in old:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if "uuid" in record and not record.get("isSidechain"):
                    self.parent, self.lines = record["uuid"], self.lines + 1
                if record.get("turnPosition"):
                    self.prompts = record["turnPosition"]["promptIndex"]
        self.fresh, self.attached, self.snapshotted = False, True, True

    def reset(self) -> None:
        """A new session in a new file (``/clear``)."""
        self.out.flush(everything=True)
        self.meta("cost-state", totalCostUSD=0)
        self.out.flush(everything=True)
        self.out = Out(self.path())
        self.parent, self.prompts, self.lines = None, 0, 0
        self.attached = self.snapshotted = False
        self.fresh = False
        self.meta("mode", mode="normal")

    def meta(self, kind: str, **fields: Any) -> None:
        """A line outside the chain."""
        self.raw({"type": kind, **fields, "sessionId": self.app.session_id})

    def raw(self, record: Record) -> None:
        """Write one line, torn in pieces where a fault says so."""
        line = stringify(record).encode() + b"\n"
        base_s = FLUSH_S + self.extra_s
        if self.torn is None:
            self.out.put(line, base_s)
            return
        parts, pause_s = self.torn
        wide = [at for at, byte in enumerate(line) if 0x80 <= byte < 0xC0]
        cuts = sorted({len(line) * part // parts for part in range(1, parts)} | set(wide[: parts - 1]))
        for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(line)])):
            self.out.put(line[start:stop], base_s + number * pause_s)

    def chain(self, record: Record, *, late: bool = True, parent: str | None = None, link: bool = True) -> str:
        """Write a line of the conversation; returns its uuid."""
        uuid = record.pop("uuid", "") or new_uuid()
        line: Record = {"parentUuid": parent or self.parent, "isSidechain": False, **record, "uuid": uuid}
        line["timestamp"] = stamp()
        if late:
            line["session_id"] = self.app.session_id
        line.update(self.app.envelope())
        self.raw(line)
        self.last_line = line
        if link:
            self.parent = uuid
        self.lines += 1
        return uuid

    def header(self) -> None:
        """The lines that open a transcript."""
        if self.fresh:
            self.meta("mode", mode="normal")
            self.meta("permission-mode", permissionMode=self.app.permission_mode)
            self.meta("atis-latch", atis="")
            self.fresh = False

    def snapshot(self, uuid: str) -> None:
        """The file-history line that goes before a prompt."""
        inner = {"messageId": uuid, "trackedFileBackups": {}, "timestamp": stamp()}
        self.raw({"type": "file-history-snapshot", "messageId": uuid, "snapshot": inner, "isSnapshotUpdate": False})

    def begin(self, turn: Turn) -> None:
        """The prompt, and at the first one all that goes with it."""
        self.header()
        if turn.source == "bash":
            self._attach(turn)
            return
        self.prompts += 1
        if turn.source == "system" and "companion" in self.app.faults:
            tools = "<tools-used-before-summary>Bash</tools-used-before-summary>"
            reminder = f"<system-reminder>\n{tools}\n</system-reminder>"
            self._user(
                turn,
                reminder,
                isMeta=True,
                turnCompanion=True,
                rowSource="recorded",
                queueSkipAttachments=True,
            )
        if turn.source != "system":
            self.snapshot(turn.uuid)
        fields: Record = {"permissionMode": self.app.permission_mode, "origin": {"kind": "human"}}
        fields["promptSource"] = turn.source
        if turn.source == "queued":
            fields["sentAtMs"] = int(time.time() * 1000)
        fields["turnOrigin"] = "human"
        if turn.source == "system":
            fields["origin"] = {
                "kind": "task-notification",
                "producer": "session-task",
                "runId": new_uuid()[:17],
            }
            fields.update(sentAtMs=int(time.time() * 1000), rowSource="recorded", turnOrigin="task_notification")
        fields["turnPosition"] = {"promptIndex": self.prompts, "turnIndex": self.prompts}
        turn.uuid = self._user(turn, turn.prompt, uuid=turn.uuid, **fields)
        if self.zero_leaf:
            self.meta("last-prompt", leafUuid=ZERO_UUID, explicit=True)
            self.zero_leaf = False
        self._attach(turn)

    def _attach(self, turn: Turn) -> None:
        del turn
        if not self.attached:
            for kind in FIRST_ATTACHMENTS:
                self.attachment(kind)
            self.meta("api-request-shape")
            self.meta("api-request-blob")
            self.attached = True

    def attachment(self, kind: str) -> None:
        """Context that the CLI gives the model by itself."""
        self.chain({"type": "attachment", "attachment": {"type": kind, "scripted": True}})

    def _user(self, turn: Turn, content: Any, *, parent: str | None = None, **fields: Any) -> str:
        plain = isinstance(content, str) and fields.get("promptSource") is not None
        record = {"promptId": turn.prompt_id, "type": "user", "message": {"role": "user", "content": content}}
        return self.chain({**record, **fields}, late=not plain, parent=parent)

    def request(self) -> str:
        """A model request goes out."""
        uuid = new_uuid()
        self.raw(
            {
                "type": "api-request",
                "id": uuid,
                "timestamp": stamp(),
                "querySource": "repl_main_thread",
                "sessionId": self.app.session_id,
            }
        )
        return uuid

    def message(self, turn: Turn, blocks: list[Record], reason: str | None, *, aborted: bool = False) -> list[str]:
        """An assistant message: a line for each block, all with the final stop reason."""
        tools = [block["name"] for block in blocks if block["type"] == "tool_use"]
        if tools and not aborted:
            self.meta("tools-used", tools=tools)
        uuids = []
        request = new_uuid()
        for index, block in enumerate(blocks):
            content = {key: value for key, value in block.items() if key != "pause_s"}
            if block["type"] == "thinking":
                content["signature"] = "c2ln"
            message: Record = {
                "id": turn.message_id,
                "type": "message",
                "role": "assistant",
                "model": self.app.model,
                "content": [content],
                "stop_reason": reason,
                "stop_sequence": None,
                "usage": {"input_tokens": 10, "output_tokens": 5},
            }
            record: Record = {"message": message, "apiBlockIndex": index, "requestId": f"req_{request[:8]}"}
            if not aborted:
                message["stop_details"] = None
            record.update(requestRef=request, requestedModel=self.app.model, promptCacheRequested="5m")
            record.update(type="assistant", effort="medium", perTurnEffort="medium")
            if aborted:
                record["isAbortedMidStream"] = True
            record["madeBy"] = "model"
            uuids.append(self.chain(record))
        return uuids

    def note(self, turn: Turn, text: str, **fields: Any) -> None:
        """Text that the CLI puts to the model as if from the user."""
        self._user(turn, text, isMeta=True, turnCompanion=True, ownNote=True, **fields)

    def tool_result(self, turn: Turn, block: Record, uuid: str, text: str, *, error: bool, asked: bool) -> None:
        """What a tool gave back."""
        content = [{"tool_use_id": block["id"], "type": "tool_result", "content": text, "is_error": error}]
        stdout = "" if text == "(Bash completed with no output)" else text
        result: Any = {
            "stdout": stdout,
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": False,
        }
        decision = {"decision": "accept", "source": "config", "reasonType": "subcommandResults"}
        if asked:
            decision = {"decision": "accept", "source": "user_temporary", "grantScope": "once"}
            decision["reasonCode"] = "bashMiss:no-rule-match"
        fields: Record = {"toolUseResult": f"Error: {text}" if error else result}
        if not error:
            fields["sandboxed"] = False
        fields.update(sourceToolAssistantUUID=uuid, permissionDecision=decision)
        self._user(turn, content, parent=uuid, **fields)

    def absorbed(self, text: str, item: Record) -> None:
        """A queued message was read inside the running turn; :meth:`removed` came before."""
        self.chain(
            {
                "attachment": {
                    "type": "queued_command",
                    "prompt": text,
                    "source_uuid": item["uuid"],
                    "delivery_id": item["delivery"],
                    "commandMode": "prompt",
                    "origin": {"kind": "human"},
                    "timestamp": stamp(),
                    "humanTurn": True,
                },
                "type": "attachment",
            }
        )

    def queue(self, operation: str, **fields: Any) -> None:
        """A change of the CLI's own queue."""
        record = {"type": "queue-operation", "operation": operation, "timestamp": stamp()}
        self.raw({**record, "sessionId": self.app.session_id, **fields})

    def turn_end(self, turn: Turn) -> None:
        """The closing record."""
        if not self.snapshotted:
            self.attachment("prompt_snapshot")
            self.snapshotted = True
        record: Record = {"type": "system", "subtype": "turn_duration"}
        record["durationMs"] = int((time.monotonic() - turn.started) * 1000)
        record["messageCount"] = self.lines
        if turn.subagents:
            record["pendingBackgroundAgentCount"] = turn.subagents
        self.chain({**record, "isMeta": False}, late=False)

    def trailer(self, turn: Turn) -> None:
        """The metadata that follows a turn."""
        self.meta("last-prompt", lastPrompt=turn.prompt, leafUuid=self.parent)
        self.meta("mode", mode="normal")
        self.meta("permission-mode", permissionMode=self.app.permission_mode)
        self.meta("atis-latch", atis="")

    def api_error(self, turn: Turn, status: int, text: str, *, reason: str = "stop_sequence") -> None:
        """A turn that failed at the model."""
        del turn
        message = {
            "diagnostics": None,
            "id": new_uuid(),
            "container": None,
            "model": "<synthetic>",
            "role": "assistant",
            "stop_details": None,
            "stop_reason": reason,
            "stop_sequence": "",
            "type": "message",
            "usage": {"input_tokens": 0, "output_tokens": 0},
            "content": [{"type": "text", "text": text}],
            "context_management": None,
        }
        record: Record = {"type": "assistant", "message": message, "requestId": f"req_{new_uuid()[:8]}"}
        record["error"] = API_WORDS.get(status, "server_error") if status else "invalid_request"
        record["isApiErrorMessage"] = True
        if status:
            record["apiErrorStatus"] = status
            record["apiErrorType"] = API_TYPES.get(status, "api_error")
        record.update(failedResponseHadNoToolCall=True, madeBy="model")
        self.chain(record)

    def interrupted(self, turn: Turn) -> None:
        """Escape ended the turn."""
        if turn.phase == "before" and turn.answered == 0:
            self.parent = turn.parent_before
            self.prompts -= 1
            self.zero_leaf = True
            return
        if turn.phase in ("tool", "dialog"):
            for block, uuid in turn.open_tools:
                content = [{"type": "tool_result", "content": REJECTED, "is_error": True, "tool_use_id": block["id"]}]
                fields: Record = {
                    "toolUseResult": "User rejected tool use",
                    "toolDenialKind": "user-rejected",
                }
                if turn.phase == "dialog":
                    fields["toolDenialBeforeRun"] = True
                self._user(turn, content, sourceToolAssistantUUID=uuid, **fields)
            text, extra = "[Request interrupted by user for tool use]", {}
            if turn.phase == "tool":
                extra = {"interruptedMessageId": turn.message_id}
        else:
            text, extra = "[Request interrupted by user]", {}
            if turn.shown:
                self.message(turn, turn.shown, None, aborted=True)
                extra = {"interruptedMessageId": turn.message_id}
        self._user(turn, [{"type": "text", "text": text}], rowSource="harness", **extra)

    def local(self, command: str, arguments: str, stdout: str, *, prompt_id: str = "") -> None:
        """A command that ran in the CLI itself."""
        ids = {"promptId": prompt_id} if prompt_id else {}
        tag = f"<command-name>/{command}</command-name>\n"
        tag += f"            <command-message>{command}</command-message>\n"
        tag += f"            <command-args>{arguments}</command-args>"
        for content, fields in (
            (CAVEAT, {"isMeta": True, "rowSource": "harness"}),
            (tag, {"rowSource": "local"}),
        ):
            self.chain({**ids, "type": "user", "message": {"role": "user", "content": content}, **fields}, late=False)
        told = f"<local-command-stdout>{stdout}</local-command-stdout>"
        if prompt_id:
            self.chain(
                {**ids, "type": "user", "message": {"role": "user", "content": told}, "rowSource": "local"},
                late=False,
            )
            return
        record: Record = {"type": "system", "subtype": "local_command", "level": "info", "isMeta": False}
        record["content"] = told
        self.chain({**record, "commandRun": {"command": command, "args": arguments}}, late=False)

    def inform(self, text: str) -> None:
        """A line for the person only."""
        self.header()
        record = {
            "type": "system",
            "subtype": "informational",
            "content": text,
            "isMeta": False,
            "level": "warning",
        }
        self.chain(record, late=False)

    def compacted(self, trigger: str, prompt_id: str) -> None:
        """The conversation was replaced by a summary."""
        logical, self.parent = self.parent, None
        boundary: Record = {"logicalParentUuid": logical, "type": "system", "subtype": "compact_boundary"}
        boundary.update(content="Conversation compacted", level="info")
        boundary["compactMetadata"] = {
            "trigger": trigger,
            "preTokens": 15,
            "postTokens": 2822,
            "durationMs": 10,
        }
        self.chain(boundary)
        summary = "This session is being continued from a previous conversation that ran out of context."
        record: Record = {
            "promptId": prompt_id,
            "type": "user",
            "message": {"role": "user", "content": summary},
        }
        record.update(isVisibleInTranscriptOnly=True, isCompactSummary=True, rowSource="local")
        record["turnPosition"] = {"promptIndex": self.prompts, "turnIndex": self.prompts}
        self.chain(record)

    def bash(self, turn: Turn, command: str, stdout: str, stderr: str) -> None:
        """A command that the person ran with ``!``."""
        self.header()
        self.prompts += 1
        self._user(turn, f"<bash-input>{command}</bash-input>", rowSource="local")
        text = f"<bash-stdout>{stdout}</bash-stdout><bash-stderr>{stderr}</bash-stderr>"
        position = {"promptIndex": self.prompts, "turnIndex": self.prompts}
        self._user(turn, text, rowSource="local", turnOrigin="human", turnPosition=position)

    def hook_veto(self, turn: Turn) -> None:
        """A Stop hook sent the answer back."""
        self._user(turn, "Stop hook feedback:\nscripted veto", isMeta=True)
        summary: Record = {
            "type": "system",
            "subtype": "stop_hook_summary",
            "hookCount": 1,
            "preventedContinuation": False,
        }
        self.chain({**summary, "level": "suggestion", "isMeta": False}, late=False)

    def subagent(self, prompt: str, answer: str, tool_id: str) -> str:
        """A sub-agent's own file; returns its id."""
        agent = "a" + new_uuid().replace("-", "")[:16]
        folder = os.path.join(self.out.path[: -len(".jsonl")], "subagents")
        os.makedirs(folder, exist_ok=True)
        base: Record = {"isSidechain": True, "agentId": agent, **self.app.envelope()}
        message: Record = {
            "id": f"msg_{agent}",
            "type": "message",
            "role": "assistant",
            "model": self.app.model,
        }
        message.update(content=[{"type": "text", "text": answer}], stop_reason="end_turn", stop_sequence=None)
        first, second = new_uuid(), new_uuid()
        lines = (
            {
                "parentUuid": None,
                "type": "user",
                "message": {"role": "user", "content": prompt},
                "uuid": first,
                **base,
            },
            {
                "parentUuid": first,
                "type": "assistant",
                "message": message,
                "apiBlockIndex": 0,
                "uuid": second,
                **base,
            },
        )
        with open(os.path.join(folder, f"agent-{agent}.jsonl"), "w", encoding="utf-8") as sink:
            sink.writelines(json.dumps(line) + "\n" for line in lines)
        with open(os.path.join(folder, f"agent-{agent}.meta.json"), "w", encoding="utf-8") as sink:
            json.dump({"agentType": "general-purpose", "toolUseId": tool_id}, sink)
        return agent


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


class Registry:
    """``~/.claude/sessions/<pid>.json``: what the CLI says about itself."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.path = os.path.join(app.home, ".claude", "sessions", f"{os.getpid()}.json")
        self.status = ""
        self.started_ms = int(time.time() * 1000)
        self.enabled = "no_registry" not in app.faults and app.dialect == "claude-code"

    def put(self, status: str, waiting_for: str = "") -> None:
        """Say a status, unless a fault keeps the old one."""
        stale = self.status and "registry_stale" in self.app.faults
        faults = self.app.turn.faults if self.app.turn else self.app.faults
        if not self.enabled or stale or (status == "idle" and self.status and "registry_busy" in faults):
            return
        self.status = status
        now_ms = int(time.time() * 1000)
        entry: Record = {
            "pid": os.getpid(),
            "sessionId": self.app.session_id,
            "cwd": self.app.cwd,
            "startedAt": self.started_ms,
            "procStart": proc_start(),
            "version": VERSION,
            "peerProtocol": 1,
            "kind": "interactive",
            "entrypoint": "cli",
            "name": os.path.basename(self.app.cwd),
            "nameSource": "derived",
            "status": status,
            "updatedAt": now_ms,
            "statusUpdatedAt": now_ms,
        }
        if waiting_for:
            entry["waitingFor"] = waiting_for
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as sink:
            json.dump(entry, sink)
        os.replace(self.path + ".new", self.path)

    def remove(self) -> None:
        """A clean exit."""
        try:
            os.unlink(self.path)
        except OSError:
            pass


def proc_start() -> str:
    """Start time of this process in the kernel's ticks."""
    try:
        with open("/proc/self/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


# -- keys and box ----------------------------------------------------------------------------------

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


class Box:
    """The input box: text, cursor, pastes behind placeholders, and the ``!`` mode."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.bash = False
        self.pastes: dict[str, str] = {}
        self.count = 0
        self.tag = new_uuid()[:4]
        self.stripped = False

    def insert(self, text: str, *, pasted: bool) -> None:
        """Put text at the cursor, changed as the real box changes it."""
        text = ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).replace("\t", "    ")
        text = text.replace("\x0b", "\n").replace("\x0c", "\n").replace("\u2028", "\n")
        clean = INVISIBLE.sub("", text)
        self.stripped = self.stripped or clean != text
        if not self.text and clean.startswith("!") and not self.bash:
            self.bash, clean = True, clean[1:]
        lines = clean.count("\n")
        if (pasted or len(clean) > 1) and (lines + 1 >= PASTE_LINES or len(clean) >= PASTE_CHARS):
            self.count += 1
            mark = f"[Pasted text #{self.count}" + (f" +{lines} lines]" if lines else "]")
            self.pastes[mark], clean = clean, mark
        self.text = self.text[: self.at] + clean + self.text[self.at :]
        self.at += len(clean)

    def put_back(self, text: str) -> None:
        """Show a text again that was not sent after all."""
        self.text, self.at = text, len(text)

    def clear(self) -> None:
        """Empty it."""
        self.text, self.at, self.bash, self.stripped = "", 0, False, False
        self.pastes = {}

    def key(self, name: str) -> None:
        """Editing keys."""
        start = self.text.rfind("\n", 0, self.at) + 1
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        before, after = self.text[: self.at], self.text[self.at :]
        if name == "home":
            self.at = start
        elif name == "end":
            self.at = end
        elif name == "left":
            self.at = max(0, self.at - 1)
        elif name == "right":
            self.at = min(len(self.text), self.at + 1)
        elif name == "delete":
            self.text = before + after[1:]
        elif name == "backspace":
            if self.at == 0:
                self.bash = False
            self._cut(max(0, self.at - 1))
        elif name == "unkill":
            self._cut(start if self.at > start else max(0, self.at - 1))
            if not self.text and self.bash:
                self.bash = False
        elif name == "kill":
            self.text = before + self.text[end:]

    def _cut(self, to: int) -> None:
        self.text, self.at = self.text[:to] + self.text[self.at :], to

    def expanded(self, *, wrapped: bool) -> str:
        """What would be sent."""
        text = self.text.rstrip().replace("<pasted_content", "<\\pasted_content")
        for mark, full in self.pastes.items():
            inner = full
            if wrapped:
                inner = full.replace("<pasted_content", "<\\pasted_content").replace(
                    "</pasted_content", "<\\/pasted_content"
                )
                inner = f'\n\n<pasted_content id="{self.tag}">\n{inner}\n</pasted_content id="{self.tag}">\n'
            text = text.replace(mark, inner, 1)
        return text


class Dialog:
    """A question with options; the answer goes to ``done`` as an index, -1 for Escape.

    Without numbers (the real trust dialog) no digit chooses.
    """

    def __init__(
        self,
        title: list[str],
        options: list[str],
        done: Callable[[int], None],
        *,
        chosen: int = 0,
        numbered: bool = True,
    ) -> None:
        self.numbered = numbered
        self.title = title
        self.options = options
        self.done = done
        self.chosen = chosen
        self.paint_at = time.monotonic()

    def lines(self) -> list[str]:
        """How it looks."""
        rows = [f" {line}" for line in self.title]
        for number, option in enumerate(self.options):
            mark = "\u276f" if number == self.chosen else " "
            rows.append(f" {mark} {number + 1}. {option}" if self.numbered else f" {mark} {option}")
        last = " Esc to cancel \u00b7 Tab to amend" if self.numbered else " Enter to confirm \u00b7 Esc to cancel"
        return [*rows, "", last]


# -- the program -----------------------------------------------------------------------------------


class App:
    """One event loop: keys in, screen and records out, at most one turn at a time."""

    def __init__(self, options: Record) -> None:
        self.dialect: str = options["dialect"]
        self.home = os.environ.get("HOME", "/")
        self.cwd = os.getcwd()
        self.session_id: str = options["session_id"]
        self.permission_mode: str = options["permission_mode"]
        self.model: str = options["model"]
        self.record_path: str = options["record"]
        self.scripts: dict[str, list[Record]] = options["scripts"]
        self.faults = Faults(options["faults"])
        self.turn: Turn | None = None
        self.attempts: dict[tuple[str, int], int] = {}
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.timer_count = 0
        self.recorder = ClaudeRecorder(self) if self.dialect == "claude-code" else PlainRecorder(self)
        self.registry = Registry(self)
        self.keys = Keys()
        self.box = Box()
        self.dialog: Dialog | None = None
        self.panel = ""
        self.pending: list[Record] = []
        self.history = [
            "",
            " \u2590\u259b\u2588\u2588\u2588\u259b\u2588   Claude Code v" + VERSION,
            f" {self.cwd}",
            "",
        ]
        self.notice = ""
        self.allowed: set[str] = set()
        self.ready = False
        self.dirty = True
        self.painted_at = 0.0
        self.last_input = 0.0
        self.escape_armed = 0.0
        self.exit_armed = 0.0
        self.exit_code: int | None = None
        self.wake_fd, wake = os.pipe()  # a signal must end the wait for keys
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    # the envelope that every line of the conversation carries
    def envelope(self) -> Record:
        """Common fields."""
        common = {"userType": "external", "entrypoint": "cli", "cwd": self.cwd, "sessionId": self.session_id}
        return {**common, "version": VERSION, "gitBranch": "HEAD"}

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something after a while."""
        self.timer_count += 1
        self.timers.append((time.monotonic() + delay_s, self.timer_count, act))
        self.timers.sort(key=lambda timer: timer[:2])

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Become ready, as slowly and with as many dialogs as the faults say."""
        for kind in reversed([word for word in self.faults.text("startup_dialog").split(",") if word]):
            self.pending.append({"dialog": kind})
        slow_s = self.faults.number("slow_start", 2)
        if slow_s:
            self.later(slow_s, self._ready)
        else:
            self._ready()

    def _ready(self) -> None:
        self.ready = True
        self.dirty = True
        self._next_startup()

    def _next_startup(self) -> None:
        while self.pending and "dialog" in self.pending[-1]:
            kind = self.pending.pop()["dialog"]
            self.dialog = startup_dialog(kind, self.cwd, self._startup_answer)
            self.dirty = True
            return
        self.dialog = None
        late_s = self.faults.number("registry_late", 1)
        self.later(late_s, lambda: self.registry.put("busy" if self.turn else "idle"))

    def _startup_answer(self, go_on: bool) -> None:
        if not go_on:
            self.exit_code = 1
            return
        self.dialog = None
        self._next_startup()

    def run(self) -> int:
        """The loop; returns the exit code."""
        self.start()
        while self.exit_code is None:
            self._paint()
            timeout = max(0.0, min(self._due(), time.monotonic() + 5.0) - time.monotonic())
            readable, _, _ = select.select([0, self.wake_fd], [], [], timeout)
            if self.wake_fd in readable:
                os.read(self.wake_fd, 64)
            if 0 in readable and self.exit_code is None:
                try:
                    raw = os.read(0, 1 << 16)
                except OSError:
                    raw = b""
                if not raw:
                    self.exit_code = 129
                    break
                if self.ready:
                    for event in self.keys.feed(raw):
                        self._event(event)
            now = time.monotonic()
            if self.keys.escape_due <= now:
                for event in self.keys.lone_escape():
                    self._event(event)
            while self.timers and self.timers[0][0] <= now:
                self.timers.pop(0)[2]()
            if self.turn is not None and self.turn.wake <= now:
                self._advance(self.turn)
            self.recorder.out.flush()
        self.recorder.out.flush(everything=True)
        return self.exit_code

    def _due(self) -> float:
        due = min(self.recorder.out.due_at(), self.keys.escape_due)
        if self.timers:
            due = min(due, self.timers[0][0])
        if self.turn is not None:
            due = min(due, self.turn.wake)
            if self._faults_now().number("repaint", 60):
                due = min(due, self.painted_at + 1 / self._faults_now().number("repaint", 60))
        if self.dialog is not None and self.dialog.paint_at > time.monotonic():
            due = min(due, self.dialog.paint_at)
        return due

    def _faults_now(self) -> Faults:
        return self.turn.faults if self.turn is not None else self.faults

    def _advance(self, turn: Turn) -> None:
        assert turn.work is not None
        self.dirty = True
        try:
            wait_s = next(turn.work)
        except StopIteration:
            if self.turn is turn:
                self._turn_over(turn)
            return
        turn.wake = time.monotonic() + wait_s

    def _crash(self, turn: Turn, place: str) -> None:
        """Die here, if the fault says so."""
        where, _, code = turn.faults.text("crash").partition(":")
        if "crash" not in turn.faults or where != place:
            return
        self.recorder.out.flush(everything=True)
        if not code:
            os.kill(os.getpid(), signal.SIGKILL)
        restore_terminal()
        os._exit(int(code))

    # -- keys ----------------------------------------------------------------------------------------------

    def _event(self, event: tuple[str, str]) -> None:
        kind, value = event
        self.dirty = True
        now = time.monotonic()
        if self.dialog is not None and self.dialog.paint_at <= now:
            self._dialog_event(self.dialog, kind, value)
        elif self.panel:
            if value == "escape":
                self.panel = ""
        elif kind == "key":
            self._key(value, now)
        elif kind == "paste" and self.faults.spend("paste_drop"):
            self.last_input = now
        else:
            self.box.insert(value, pasted=kind == "paste")
            if self.box.stripped:
                self.notice = "Removed 1 invisible character \u00b7 review and press Enter to send"
            self.last_input = now
            if kind == "paste" and self.turn is not None:
                self._pasted(self.turn, now)

    def _pasted(self, turn: Turn, now: float) -> None:
        """A paste is in the box: a turn that waits for one goes on."""
        turn.pasted_at = turn.pasted_at or now
        if turn.awaits_paste:
            turn.awaits_paste, turn.wake = False, now

    def _dialog_event(self, dialog: Dialog, kind: str, value: str) -> None:
        if kind == "paste":
            return
        answer: int | None = None
        digit = kind == "text" and len(value) == 1 and value.isdigit() and dialog.numbered
        if digit and 1 <= int(value) <= len(dialog.options):
            answer = int(value) - 1
        elif value == "up":
            dialog.chosen = (dialog.chosen - 1) % len(dialog.options)
        elif value == "down":
            dialog.chosen = (dialog.chosen + 1) % len(dialog.options)
        elif kind == "key" and value == "enter":
            answer = dialog.chosen
        elif kind == "key" and value in ("escape", "ctrl-c"):
            answer = -1
        if answer is not None:
            dialog.done(answer)

    def _key(self, name: str, now: float) -> None:
        if name == "enter":
            self._enter(now)
        elif name == "newline":
            self.box.insert("\n", pasted=False)
        elif name == "escape":
            self._escape(now)
        elif name == "ctrl-c":
            if self.turn is not None:
                self.interrupt()
            elif now - self.exit_armed < EXIT_AGAIN_S:
                self.exit_code = 0
            else:
                self.box.clear()
                self.exit_armed, self.notice = now, "Press Ctrl-C again to exit"
        elif name == "up" and not self.box.text and self.pending:
            item = self.pending.pop()
            self.recorder.queue("remove", content=item["text"])
            self.box.put_back(item["text"])
        else:
            self.box.key(name)

    def _escape(self, now: float) -> None:
        if self.turn is not None:
            self.interrupt()
        elif self.box.text and now - self.escape_armed < EXIT_AGAIN_S:
            self.box.clear()
        else:
            self.escape_armed = now
            self.notice = "esc again to clear" if self.box.text else ""

    def _enter(self, now: float) -> None:
        since_ms = (now - self.last_input) * 1000
        if self.faults.spend("enter_drop") or since_ms < self.faults.number("enter_swallow_ms", 200):
            return
        if since_ms < self.faults.number("enter_newline_ms", 120):
            self.box.insert("\n", pasted=False)
            return
        box = self.box
        if not box.text.strip():
            return
        if box.text[: box.at].endswith("\\") and box.at == len(box.text):
            box.text = box.text[:-1] + "\n"
            return
        if box.stripped and COMMAND.match(box.text):
            box.stripped = False
            return
        self.notice = ""
        bash, shown = box.bash, box.text
        text = box.expanded(wrapped=not bash)
        box.clear()
        item: Record = {
            "text": text,
            "bash": bash,
            "shown": shown,
            "uuid": new_uuid(),
            "delivery": new_uuid(),
        }
        if self.turn is None:
            self._submit(item, "typed")
            return
        item["text"] = text.strip()
        self.recorder.queue("enqueue", content=item["text"])
        if "queue_drop" in self._faults_now():
            self.later(0.117, lambda: self.recorder.queue("remove", content=item["text"]))
            return
        self.pending.append(item)

    def _submit(self, item: Record, source: str) -> None:
        """An idle CLI takes a text: command, shell or prompt."""
        text = item["text"]
        match = None if item["bash"] or text.startswith("\n") else COMMAND.match(text)
        if match is not None and self.dialect == "claude-code":
            self._command(match.group(1), (match.group(2) or "").strip())
            return
        turn = Turn(text, "bash" if item["bash"] else source, self.recorder.parent)
        turn.faults = self.faults.with_prompt(text)
        self.history += [f"\u276f {line}" if not n else f"  {line}" for n, line in enumerate(item["shown"].split("\n"))]
        self.history.append("")
        if item["bash"]:
            self._bash(turn, text)
        self._begin(turn)

    def _begin(self, turn: Turn) -> None:
        self.turn = turn
        self.registry.put("busy")
        self.recorder.begin(turn)
        turn.work = self._play(turn)
        turn.wake = time.monotonic()

    # -- commands ------------------------------------------------------------------------------------------

    def _command(self, name: str, arguments: str) -> None:
        if name == "clear":
            self.session_id = new_uuid()
            self.recorder.reset()
            self.recorder.snapshot(new_uuid())
            self.recorder.local("clear", arguments, "")
            self.registry.put("idle")
            self.history = self.history[:4]
        elif name == "compact":
            prompt_id = new_uuid()
            self.registry.put("busy")
            self.recorder.header()
            self.recorder.compacted("manual", prompt_id)
            self.recorder.local("compact", arguments, "Compacted (ctrl+o to see full summary)", prompt_id=prompt_id)
            self.registry.put("idle")
        elif name in ("exit", "quit"):
            self.exit_code = 0
        elif name in ("cost", "help", "status", "config", "usage", "model"):
            self.panel = name
        elif not name:
            self.recorder.header()
            self.recorder.local("", "", "Commands are in the form `/command [args]`")
        else:
            self.history.append(f"  Unknown command: /{name}")
            self.recorder.inform(f"Unknown command: /{name}")
            if arguments:
                self.recorder.inform(f"Args from unknown skill: {arguments}")

    def _bash(self, turn: Turn, command: str) -> None:
        import subprocess  # noqa: PLC0415 - costs start time

        done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, check=False, cwd=self.cwd)
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        self.recorder.bash(turn, command, out.rstrip("\n"), err)

    # -- the turn ------------------------------------------------------------------------------------------

    def _steps(self, turn: Turn) -> list[Record]:
        names = re.findall(r"\[\[script:([^\]]+)\]\]", turn.prompt)
        if not names:
            unwrapped = (
                re.sub(r'\s*</?pasted_content id="\w+">\n?', "", turn.prompt) if "<pasted" in turn.prompt else ""
            )
            return inline_steps(unwrapped or turn.prompt)
        missing: list[Record] = [{"blocks": [{"type": "text", "text": f"no script named {names[-1]}"}]}]
        return self.scripts.get(names[-1]) or missing

    def _play(self, turn: Turn) -> Wait:
        """The model's part of a turn; ends when the turn has its terminal record."""
        steps = self._steps(turn)
        self._crash(turn, "before")
        if "auto_compact" in turn.faults:
            self.recorder.compacted("auto", turn.prompt_id)
        for number in range(int(turn.faults.number("unknown_records", 3))):
            self.recorder.meta("record-of-the-future", number=number, nested={"deep": [1, 2]})
        if "huge_line" in turn.faults:
            self.recorder.meta("huge-record", filler="x" * int(turn.faults.number("huge_line", 4_000_000)))
        index = 0
        vetoes = int(turn.faults.number("stop_hook_veto", 1))
        while True:
            step = steps[min(index, len(steps) - 1)]
            failed = yield from self._request(turn, step, index)
            if failed:
                return
            blocks = yield from self._stream(turn, step)
            reason = step.get("stop_reason") or (
                "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
            )
            index += 1
            if reason == "tool_use":
                uuids = self.recorder.message(turn, blocks, reason)
                turn.answered += 1
                yield from self._tools(turn, blocks, uuids)
            elif reason == "max_tokens" and index < len(steps) + 1:
                self.recorder.message(turn, blocks, reason)
                self.recorder.note(turn, "Output token limit hit. Resume directly.")
                steps = [
                    *steps[:index],
                    *(steps[index:] or [{"blocks": [{"type": "text", "text": " and the rest"}]}]),
                ]
            elif reason == "refusal":
                yield from self._refused(turn, blocks)
                return
            elif not blocks and reason == "end_turn":
                if turn.answered >= 0 and index == 1:
                    self.recorder.note(turn, "[Your previous response had no visible output. Please continue.]")
                    continue
                yield from self._finish(turn, [], reason)
                return
            elif vetoes > 0:
                vetoes -= 1
                self._show(blocks)
                self.recorder.message(turn, blocks, reason)
                self.recorder.hook_veto(turn)
                steps = [
                    *steps[:index],
                    {
                        "delay_s": 0.2,
                        "blocks": [{"type": "text", "text": "after the veto: " + last_text(blocks)}],
                    },
                ]
            else:
                yield from self._finish(turn, blocks, reason)
                return

    def _request(self, turn: Turn, step: Record, index: int) -> Generator[float, None, bool]:
        """Ask the model; True when the turn failed there."""
        turn.phase, turn.shown = "before", []
        turn.message_id = "msg_" + new_uuid().replace("-", "")[:16]
        error = step.get("error")
        times = int((error or {}).get("times") or 0)
        for attempt in (1, 2):
            self.recorder.request()
            yield float(step.get("delay_s", 0)) + 0.01
            key = (turn.prompt_id, index)
            self.attempts[key] = self.attempts.get(key, 0) + 1
            if error is None or (times and self.attempts[key] > times):
                return False
            if attempt == 1 and error["status"] != 400:
                yield float(error.get("retry_after_s") or RETRY_WAIT_S)
            else:
                break
        assert error is not None
        status = int(error["status"])
        text = f"API Error: {status} {error.get('message', 'scripted failure')}"
        self.history += [f"  \u23bf  {text}", ""]
        self.recorder.api_error(turn, status, text)
        return True

    def _stream(self, turn: Turn, step: Record) -> Generator[float, None, list[Record]]:
        """The answer comes in; returns its blocks, complete."""
        yield float(step.get("hang_s", 0))
        size, pause_s = int(step.get("chunk_chars", 200)), float(step.get("chunk_pause_s", 0))
        blocks: list[Record] = []
        for source in step.get("blocks", []):
            block = dict(source)
            yield float(block.pop("pause_s", 0) or 0)
            key = {"text": "text", "thinking": "thinking"}.get(block["type"], "")
            if not key:
                block.setdefault("id", "toolu_" + new_uuid().replace("-", "")[:16])
                block = {
                    "type": "tool_use",
                    "id": block["id"],
                    "name": block["name"],
                    "input": block.get("input", {}),
                }
                blocks.append(block)
                continue
            full = block[key]
            if key == "text" and "quote_ui" in turn.faults:
                full += "\n\u276f\u00a0quoted prompt\n  ? for shortcuts\n  esc to interrupt"
                full += "\n Do you want to proceed?\n \u276f 1. Yes"
                block[key] = full
            partial = {**block, key: ""}
            turn.shown.append(partial)
            for at in range(0, len(full), size):
                partial[key] = full[: at + size]
                turn.phase = "stream"
                if at + size < len(full):
                    yield pause_s
                self._crash(turn, "mid")
            blocks.append(block)
        yield float(step.get("stop_pause_s", 0))
        return blocks

    def _tools(self, turn: Turn, blocks: list[Record], uuids: list[str]) -> Wait:
        """Run the calls of a message, asking where it must; results come in the order of completion."""
        self._show(blocks)
        turn.shown = []
        calls = [(block, uuid) for block, uuid in zip(blocks, uuids) if block["type"] == "tool_use"]
        turn.open_tools = list(calls)
        running: list[tuple[Record, str, bool, Any]] = []
        for block, uuid in calls:
            asked = self._must_ask(turn, block)
            if asked:
                yield from self._ask(turn, block)
            turn.phase = "tool"
            running.append((block, uuid, asked, self._launch(turn, block)))
        turn.phase = "tool"
        yield 0.0
        self._crash(turn, "tool")
        results: list[tuple[Record, str, bool, Any]] = []
        while running:
            for call in list(running):
                if call[3] is None or call[3].poll() is not None:
                    running.remove(call)
                    results.append(call)
                    turn.open_tools = [pair for pair in turn.open_tools if pair[0] is not call[0]]
                    if not running:
                        self._absorb_before(turn)
                    text, error = self._tool_text(turn, call[0], call[3])
                    self.recorder.tool_result(turn, call[0], call[1], text, error=error, asked=call[2])
            if running:
                yield 0.01
        for item in [item for item in self.pending if item.get("absorbed")]:
            self.recorder.absorbed(item["text"], item)
            self.history += [f"\u276f {item['shown']}", ""]
            self.pending.remove(item)

    def _absorb_before(self, turn: Turn) -> None:
        del turn
        for item in self.pending:
            if not item["bash"] and not COMMAND.match(item["text"]):
                fields = {"commandUuid": item["uuid"], "deliveryId": item["delivery"]}
                self.recorder.queue("remove", content=item["text"], reason="absorbed_mid_turn", **fields)
                item["absorbed"] = True
            else:
                break

    def _must_ask(self, turn: Turn, block: Record) -> bool:
        if "ask" in turn.faults or "ask_after_paste" in turn.faults:
            return True
        if self.permission_mode in ("bypassPermissions", "dontAsk", "auto") or block["name"] in UNASKED_TOOLS:
            return False
        if block["name"] != "Bash":
            return self.permission_mode != "acceptEdits" and block["name"] not in self.allowed
        parts = re.split(r"&&|\|\||[;|\n]", str(block["input"].get("command", "")))
        words = [part.split()[0] for part in parts if part.split()]
        return any(word not in SAFE_COMMANDS and word not in self.allowed for word in words)

    def _ask(self, turn: Turn, block: Record) -> Wait:
        answers: list[int] = []
        command = str(block["input"].get("command", json.dumps(block["input"])))
        title = [f"{block['name']} command", "", *command.split("\n"), "", "Do you want to proceed?"]
        words = command.split()
        options = [
            "Yes",
            f"Yes, and don't ask again for {words[0] if words else ''} commands in {self.cwd}",
            "No",
        ]
        if "ask_after_paste" in turn.faults:
            yield from self._after_paste(turn)
        turn.phase = "dialog"
        self.registry.put("waiting", "permission prompt")
        dialog = Dialog(title, options, answers.append)
        lead_s = turn.faults.number("dialog_lead") / 1000 if "dialog_lead" in turn.faults else DIALOG_PAINT_S
        dialog.paint_at = time.monotonic() + lead_s
        self.dialog = dialog
        while not answers:
            yield 0.02
        self.dialog = None
        if answers[0] not in (0, 1):
            self.interrupt(by_dialog=True)
            yield 0.0
        if answers[0] == 1 and words:
            self.allowed.add(words[0])
        self.registry.put("busy")

    def _after_paste(self, turn: Turn) -> Wait:
        """Until so long after the turn's first paste as the fault says."""
        least, _, most = turn.faults.text("ask_after_paste").partition("-")
        after_s = float(least or 0) / 1000
        if most:
            after_s += (float(most) / 1000 - after_s) * int.from_bytes(os.urandom(4), "big") / 2**32
        if not turn.pasted_at:
            turn.awaits_paste = True
            yield float("inf")
        yield max(0.0, turn.pasted_at + after_s - time.monotonic())

    def _launch(self, turn: Turn, block: Record) -> subprocess.Popen[bytes] | None:
        if block["name"] != "Bash":
            return None
        import subprocess  # noqa: PLC0415 - costs start time
        import tempfile  # noqa: PLC0415

        sink = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = subprocess.Popen(
            ["/bin/bash", "-c", str(block["input"].get("command", ""))],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=self.cwd,
            start_new_session=True,
        )
        block["_sink"] = sink
        turn.processes.append(process)
        return process

    def _tool_text(self, turn: Turn, block: Record, process: Any) -> tuple[str, bool]:
        if process is None:
            if block["name"] == "Agent":
                turn.subagents += 1
                prompt, answer = str(block["input"].get("prompt", "")), "sub-agent answer"
                agent = self.recorder.subagent(prompt, answer, block["id"])
                self.later(max(0.3, turn.faults.number("subagent", 0.5)), lambda: self._notify(agent, block["id"]))
                return f"Async agent launched successfully.\nagentId: {agent}", False
            return f"{block['name']} done", False
        sink = block.pop("_sink")
        sink.seek(0)
        text = sink.read().decode("utf-8", "replace").rstrip("\n")
        sink.close()
        if process.returncode:
            return f"Exit code {process.returncode}\n{text}".rstrip("\n"), True
        return text or "(Bash completed with no output)", False

    def _refused(self, turn: Turn, blocks: list[Record]) -> Wait:
        self.recorder.message(turn, blocks, "refusal")
        self.recorder.inform("safeguards stopped the response above \u00b7 continuing once with that noted")
        self.recorder.note(turn, "Your response above was stopped by a safety classifier.", refusalRetry=True)
        yield 0.05
        turn.message_id = "msg_" + new_uuid().replace("-", "")[:16]
        self.recorder.message(turn, blocks, "refusal")
        self.recorder.chain(
            {
                "type": "system",
                "subtype": "model_refusal_no_fallback",
                "requestId": f"req_{turn.message_id[4:12]}",
                "content": "",
                "level": "warning",
                "isMeta": False,
            }
        )
        self.recorder.api_error(turn, 0, "API Error: safeguards flagged this message.", reason="refusal")

    def _finish(self, turn: Turn, blocks: list[Record], reason: str) -> Wait:
        """The last message and the closing record, as the faults will have it."""
        faults, recorder = turn.faults, self.recorder
        if self.pending:
            self._dequeue()
        self._show(blocks)
        self._crash(turn, "end")
        if "torn" in faults:
            parts, _, pause = faults.text("torn").partition(":")
            recorder.torn = (max(2, int(parts or 2)), float(pause or 200) / 1000)
        recorder.extra_s = faults.number("record_delay", 2)
        if recorder.extra_s:
            self.registry.put("idle")
        if "no_record" in faults:
            return
        recorder.message(turn, blocks, reason)
        recorder.extra_s += faults.number("end_delay", 1)
        if "no_turn_duration" not in faults:
            recorder.turn_end(turn)
        for _ in range(int(faults.number("dup_end", 1))):
            self._repeat_end(turn, blocks, reason)
        if "late_dup" in faults:
            end = getattr(recorder, "last_line", None)
            if end is not None:  # the same record again, to the letter: a new one would hang on the next turn's chain
                self.later(faults.number("late_dup", 1), lambda: recorder.raw(end))
            else:
                self.later(faults.number("late_dup", 1), lambda: self._repeat_end(turn, blocks, reason))
        recorder.torn, recorder.extra_s = None, 0.0
        yield 0.0
        self._crash(turn, "after")

    def _repeat_end(self, turn: Turn, blocks: list[Record], reason: str) -> None:
        if "no_turn_duration" in turn.faults:
            self.recorder.message(turn, blocks, reason)
        else:
            self.recorder.turn_end(turn)

    def _dequeue(self) -> None:
        """Say that the first waiting message leaves the queue; it runs when the turn is over."""
        for item in self.pending:
            if not item.get("dequeued"):
                item["dequeued"] = True
                self.recorder.queue("dequeue")
            return

    def _show(self, blocks: list[Record]) -> None:
        for block in blocks:
            if block["type"] == "text":
                self.history += [
                    ("\u25cf " if not n else "  ") + line for n, line in enumerate(block["text"][-4000:].split("\n"))
                ]
                self.history.append("")
            elif block["type"] == "tool_use":
                self.history += [
                    f"\u25cf {block['name']}",
                    f"  \u23bf  $ {block['input'].get('command', '')}",
                    "",
                ]
        del self.history[: max(0, len(self.history) - HISTORY_LINES_MAX)]

    def _turn_over(self, turn: Turn) -> None:
        """Back to the prompt, or on to what waits."""
        self.registry.put("idle")
        self.turn = None
        self.dialog = None
        self.history += [f"\u273b Worked for {int(time.monotonic() - turn.started)}s \u00b7 done", ""]
        if turn.faults.number("task_notification", 0.5):
            task = new_uuid()[:8]
            self.later(turn.faults.number("task_notification", 0.5), lambda: self._notify(task, ""))
        if "subagent" in turn.faults and not turn.subagents:
            agent = self.recorder.subagent(turn.prompt, "sub-agent answer", "")
            self.later(turn.faults.number("subagent", 0.5), lambda: self._notify(agent, ""))
        if self.dialect == "claude-code":
            self.recorder.trailer(turn)
        self._next_pending()

    def _next_pending(self) -> None:
        if self.turn is None and self.pending:
            self._dequeue()
            self._submit(self.pending.pop(0), "queued")
            if self.turn is None:
                self._next_pending()

    def _notify(self, task: str, tool: str) -> None:
        """A finished background task starts a turn of its own."""
        if self.turn is not None:
            self.later(0.2, lambda: self._notify(task, tool))
            return
        text = f"<task-notification>\n<task-id>{task}</task-id>\n<tool-use-id>{tool}</tool-use-id>\n"
        text += "<status>completed</status>\n"
        text += "<result>sub-agent answer</result>\n</task-notification>"
        self.recorder.queue("enqueue", content=text)
        self.recorder.queue("dequeue")
        turn = Turn(text, "system", self.recorder.parent)
        turn.faults = Faults([])
        self._begin(turn)
        turn.work = self._play_notified(turn)

    def _play_notified(self, turn: Turn) -> Wait:
        step: Record = {"blocks": [{"type": "text", "text": "noted the background task"}]}
        yield from self._request(turn, step, 0)
        blocks = yield from self._stream(turn, step)
        yield from self._finish(turn, blocks, "end_turn")

    def interrupt(self, *, by_dialog: bool = False) -> None:
        """Escape in a turn: it ends here, with the record that its phase has."""
        turn = self.turn
        if turn is None or ("ignore_escape" in turn.faults and not by_dialog):
            return
        if not by_dialog and turn.work is not None:
            turn.work.close()
        for process in turn.processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except OSError:
                    pass
                process.wait()
        self._dequeue()
        self.recorder.torn, self.recorder.extra_s = None, 0.0
        early = turn.phase == "before" and turn.answered == 0 and turn.source != "bash"
        if "interrupt_silent" not in turn.faults:
            self.recorder.interrupted(turn)
        if early and not self.box.text:
            self.box.put_back(turn.prompt)
        self.history += ["  \u23bf  Interrupted \u00b7 What should Claude do instead?", ""]
        self._turn_over(turn)

    # -- screen --------------------------------------------------------------------------------------------

    def _paint(self) -> None:
        now = time.monotonic()
        faults = self._faults_now()
        storm = self.turn is not None and "repaint" in faults
        if self.turn is not None and "frozen" in faults:
            return
        dialog_due = self.dialog is not None and self.painted_at < self.dialog.paint_at <= now
        if not (self.dirty or storm or dialog_due):
            return
        self.dirty, self.painted_at = False, now
        try:
            width, height = os.get_terminal_size(1)
        except OSError:
            width, height = 0, 0
        width, height = width or 80, height or 24
        bottom = self._bottom(width, now)
        body: list[str] = []
        for line in self._body():
            body += [line[at : at + width - 1] for at in range(0, len(line), width - 1)] or [""]
        room = max(0, height - len(bottom))
        body = body[-room:] if room else []
        rows = [*body, *[""] * (room - len(body)), *bottom][-height:]
        out = "\x1b[?25l\x1b[H" + "\r\n".join(row[: width - 1] + "\x1b[K" for row in rows) + "\x1b[J"
        write_all(out.encode("utf-8", "replace"))

    def _body(self) -> list[str]:
        if self.panel:
            return [f"  /{self.panel}", "", "  Esc to cancel"]
        if not self.ready and "paint_early" not in self.faults:
            return ["  Starting\u2026"]
        lines = list(self.history)
        turn = self.turn
        if turn is None:
            return lines
        for block in turn.shown:
            if block["type"] == "text":
                text = block["text"][-4000:]
                lines += [("\u25cf " if not n else "  ") + line for n, line in enumerate(text.split("\n"))]
        for item in self.pending:
            if "text" in item:
                lines += [f"\u276f {item['shown']}", "  \u23bf  Queued \u00b7 ctrl+x ctrl+s to send now", ""]
        if "idle_look" not in turn.faults:
            spin = "\u2722\u2733\u2736\u273b\u273d"[int(time.monotonic() * 8) % 5]
            waiting = turn.phase == "dialog"
            lines += ["  Waiting for permission\u2026" if waiting else f"{spin} Polishing\u2026", ""]
        return lines

    def _bottom(self, width: int, now: float) -> list[str]:
        rule = RULE * (width - 1)
        if self.dialog is not None and self.dialog.paint_at <= now:
            return [rule, *self.dialog.lines()]
        if self.panel or (not self.ready and "paint_early" not in self.faults):
            return []
        shown = self.box.text
        queued = any("text" in item for item in self.pending)
        if not shown and queued:
            shown = "Press up to edit queued messages"
        glyph = "!\u00a0" if self.box.bash else GLYPH
        rows = [(glyph if not n else "  ") + line for n, line in enumerate(shown.split("\n"))]
        rows = [row[at : at + width - 1] for row in rows for at in range(0, max(1, len(row)), width - 1)][-12:]
        busy = self.turn is not None and "idle_look" not in self.turn.faults
        footer = "  \u23f8 manual mode on"
        if not self.box.text:
            footer += " \u00b7 esc to interrupt" if busy else " \u00b7 ? for shortcuts"
        notice = [self.notice.rjust(width - 2)] if self.notice else [""]
        return [*notice, rule, *rows, rule, footer]


def last_text(blocks: list[Record]) -> str:
    """The last text of a message."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return texts[-1] if texts else ""


def startup_dialog(kind: str, cwd: str, answered: Callable[[bool], None]) -> Dialog:
    """The dialogs before the first prompt, as the real one lists them; the way in is never the default."""
    title, options, way_in = {
        "trust": (
            [
                "Accessing workspace:",
                "",
                cwd,
                "",
                "Quick safety check: Is this a project you created or one you trust?",
            ],
            ["No, exit", "Yes, I trust this folder"],
            1,
        ),
        "api_key": (
            ["Detected a custom API key in your environment", "", "Do you want to use this API key?"],
            ["Yes", "No (recommended)"],
            0,
        ),
    }.get(kind, (["A new version is available", "", "Update now?"], ["Not now", "Update and restart"], 0))
    return Dialog(
        title, options, lambda option: answered(option == way_in), chosen=1 - way_in, numbered=kind == "update"
    )


# -- terminal and options --------------------------------------------------------------------------

_SAVED: list[Any] = []


def write_all(raw: bytes) -> None:
    """All of it to the terminal."""
    while raw:
        try:
            raw = raw[os.write(1, raw) :]
        except OSError:
            return


def raw_terminal() -> None:
    """Raw mode and bracketed paste."""
    import termios  # noqa: PLC0415 - not everywhere
    import tty  # noqa: PLC0415

    try:
        _SAVED.append(termios.tcgetattr(0))
        tty.setraw(0)
    except termios.error:
        pass
    write_all(b"\x1b[?2004h\x1b[2J")


def restore_terminal() -> None:
    """As it was before."""
    import termios  # noqa: PLC0415

    write_all(b"\x1b[?2004l\x1b[?25h\r\n")
    if _SAVED:
        try:
            termios.tcsetattr(0, termios.TCSANOW, _SAVED[-1])
        except termios.error:
            pass


WITH_VALUE = frozenset(
    (
        "--session-id",
        "--resume",
        "-r",
        "--permission-mode",
        "--model",
        "--settings",
        "--dialect",
        "--fault",
        "--script",
        "--record",
        "--mcp-config",
        "--allowedTools",
        "--allowed-tools",
        "--disallowedTools",
        "--append-system-prompt",
        "--add-dir",
        "--effort",
        "--system-prompt",
    )
)


def parse(argv: list[str]) -> Record:
    """The options; unknown ones are ignored, as a newer or older CLI's would be."""
    given: dict[str, str] = {}
    faults = [word for word in os.environ.get("LASTWORD_SCRIPTED_FAULTS", "").split(";") if word]
    at = 0
    while at < len(argv):
        name, eq, value = argv[at].partition("=")
        if name in WITH_VALUE and not eq and at + 1 < len(argv):
            at += 1
            value = argv[at]
        if name == "--fault":
            faults.append(value)
        else:
            given[name] = value
        at += 1
    path = given.get("--script") or os.environ.get("LASTWORD_SCRIPTED_SCRIPT", "")
    scripts: dict[str, list[Record]] = {}
    if path:
        with open(path, encoding="utf-8") as source:
            scripts = json.load(source).get("scripts", {})
    return {
        "dialect": given.get("--dialect", "claude-code"),
        "session_id": given.get("--session-id", ""),
        "resume": given.get("--resume", given.get("-r", "")),
        "continue": "--continue" in given or "-c" in given,
        "version": "--version" in given or "-v" in given,
        "permission_mode": given.get("--permission-mode", "default"),
        "model": given.get("--model", "claude-opus-5-5"),
        "record": given.get("--record", ""),
        "scripts": scripts,
        "faults": faults,
    }


def refuse(message: str, code: int = 1) -> int:
    """One line to the person, and out."""
    sys.stderr.write(message + "\n")
    return code


def bind(options: Record) -> str:
    """Fix the session id; returns a complaint, or an empty string."""
    if options["session_id"] and not UUID_FORM.fullmatch(options["session_id"]):
        return "Error: Invalid session ID. Must be a valid UUID."
    if options["continue"] and not options["resume"]:
        slug = re.sub(r"[^A-Za-z0-9]", "-", os.getcwd())
        folder = os.path.join(os.environ.get("HOME", "/"), ".claude", "projects", slug)
        try:
            files = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jsonl")]
        except OSError:
            files = []
        if not files:
            return "No conversation found to continue"
        options["resume"] = os.path.basename(max(files, key=os.path.getmtime))[: -len(".jsonl")]
    fixed = options["resume"] or options["session_id"]
    options["session_id"] = fixed or new_uuid()
    return ""


def main(argv: list[str]) -> int:
    """Run the program; returns its exit code."""
    options = parse(argv)
    if options["version"]:
        sys.stdout.write(f"{VERSION} (Claude Code)\n")
        return 0
    faults = Faults(options["faults"])
    if "exit_at_start" in faults:
        code, _, message = faults.text("exit_at_start").partition(":")
        return refuse(message or "scripted failure at start", int(code or 1))
    complaint = bind(options)
    if complaint:
        return refuse(complaint)
    app = App(options)
    exists = os.path.exists(app.recorder.out.path)
    if options["resume"]:
        if not exists:
            return refuse(f"No conversation found with session ID: {options['resume']}")
        app.recorder.adopt()
    elif exists and options["dialect"] == "claude-code":
        return refuse(f"Error: Session ID {app.session_id} is already in use.")

    def leave(signum: int, frame: object) -> None:
        del frame
        app.exit_code = 128 + signum

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    signal.signal(signal.SIGWINCH, lambda *_: setattr(app, "dirty", True))
    raw_terminal()
    try:
        exit_code = app.run()
    finally:
        restore_terminal()
        app.registry.remove()
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
