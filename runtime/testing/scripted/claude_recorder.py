"""The record in Claude Code's dialect."""

# ruff: noqa: B905, PTH118, PTH123

from __future__ import annotations

import json
import os
import re
import time

from .identity import new_uuid, stamp
from .record_file import FLUSH_S, Out, stringify
from .subagent import write_subagent
from .words import API_WORDS, REJECTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .app import App
    from .steps import Record
    from .turn import Turn

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
CAVEAT = (
    "<local-command-caveat>The command below was run directly in Claude Code, not sent to you as a request, "
    "and its output goes straight to the user. It's recorded here as context for later messages."
    "</local-command-caveat>"
)
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
        folder = os.path.join(self.out.path[: -len(".jsonl")], "subagents")
        return write_subagent(folder, self.app, prompt, answer, tool_id)
