"""Tools that the model calls: asked for, run, answered."""

# ruff: noqa: B905

from __future__ import annotations

import json
import os
import re
import time

from .commands import COMMAND
from .dialogs import Dialog
from .words import SAFE_COMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

    from .app import App
    from .steps import Record, Wait
    from .turn import Turn

DIALOG_PAINT_S = 0.45
UNASKED_TOOLS = frozenset(("Read", "Glob", "Grep", "Agent", "TodoWrite"))


class Tools:
    """The calls of a message, and what is allowed without a question."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.allowed: set[str] = set()

    def run(self, turn: Turn, blocks: list[Record], uuids: list[str]) -> Wait:
        """Run the calls of a message, asking where it must; results come in the order of completion."""
        self.app.screen.show(blocks)
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
        self.app.crash(turn, "tool")
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
                    self.app.recorder.tool_result(turn, call[0], call[1], text, error=error, asked=call[2])
            if running:
                yield 0.01
        for item in [item for item in self.app.pending if item.get("absorbed")]:
            self.app.recorder.absorbed(item["text"], item)
            self.app.screen.history += [f"\u276f {item['shown']}", ""]
            self.app.pending.remove(item)

    def _absorb_before(self, turn: Turn) -> None:
        del turn
        for item in self.app.pending:
            if not item["bash"] and not COMMAND.match(item["text"]):
                fields = {"commandUuid": item["uuid"], "deliveryId": item["delivery"]}
                self.app.recorder.queue("remove", content=item["text"], reason="absorbed_mid_turn", **fields)
                item["absorbed"] = True
            else:
                break

    def _must_ask(self, turn: Turn, block: Record) -> bool:
        if "ask" in turn.faults or "ask_after_paste" in turn.faults:
            return True
        if self.app.permission_mode in ("bypassPermissions", "dontAsk", "auto") or block["name"] in UNASKED_TOOLS:
            return False
        if block["name"] != "Bash":
            return self.app.permission_mode != "acceptEdits" and block["name"] not in self.allowed
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
            f"Yes, and don't ask again for {words[0] if words else ''} commands in {self.app.cwd}",
            "No",
        ]
        if "ask_after_paste" in turn.faults:
            yield from self._after_paste(turn)
        turn.phase = "dialog"
        self.app.registry.put("waiting", "permission prompt")
        dialog = Dialog(title, options, answers.append)
        lead_s = turn.faults.number("dialog_lead") / 1000 if "dialog_lead" in turn.faults else DIALOG_PAINT_S
        dialog.paint_at = time.monotonic() + lead_s
        self.app.dialog = dialog
        while not answers:
            yield 0.02
        self.app.dialog = None
        if answers[0] not in (0, 1):
            self.app.interrupt(by_dialog=True)
            yield 0.0
        if answers[0] == 1 and words:
            self.allowed.add(words[0])
        self.app.registry.put("busy")

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
            cwd=self.app.cwd,
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
                agent = self.app.recorder.subagent(prompt, answer, block["id"])
                self.app.later(
                    max(0.3, turn.faults.number("subagent", 0.5)), lambda: self.app.notify(agent, block["id"])
                )
                return f"Async agent launched successfully.\nagentId: {agent}", False
            return f"{block['name']} done", False
        sink = block.pop("_sink")
        sink.seek(0)
        text = sink.read().decode("utf-8", "replace").rstrip("\n")
        sink.close()
        if process.returncode:
            return f"Exit code {process.returncode}\n{text}".rstrip("\n"), True
        return text or "(Bash completed with no output)", False
