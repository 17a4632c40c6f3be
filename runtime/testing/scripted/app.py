"""The program: one event loop."""

# ruff: noqa: PTH109

from __future__ import annotations

import os
import select
import signal
import time

from .claude_recorder import ClaudeRecorder
from .commands import COMMAND, command, shell
from .dialogs import startup_dialog
from .faults import Faults
from .identity import VERSION, new_uuid
from .input_line import InputLine
from .plain_recorder import PlainRecorder
from .player import Player
from .registry import Registry
from .screen import Screen
from .terminal import restore_terminal
from .tools import Tools
from .turn import Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .dialogs import Dialog
    from .steps import Record


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
        self.dialog: Dialog | None = None
        self.pending: list[Record] = []
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.timer_count = 0
        self.recorder = ClaudeRecorder(self) if self.dialect == "claude-code" else PlainRecorder(self)
        self.registry = Registry(self)
        self.input = InputLine(self)
        self.screen = Screen(self)
        self.player = Player(self)
        self.tools = Tools(self)
        self.ready = False
        self.exit_code: int | None = None
        self.wake_fd, wake = os.pipe()  # a signal must end the wait for keys
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def envelope(self) -> Record:
        """The fields that every line of the conversation carries."""
        common = {"userType": "external", "entrypoint": "cli", "cwd": self.cwd, "sessionId": self.session_id}
        return {**common, "version": VERSION, "gitBranch": "HEAD"}

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something after a while."""
        self.timer_count += 1
        self.timers.append((time.monotonic() + delay_s, self.timer_count, act))
        self.timers.sort(key=lambda timer: timer[:2])

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
        self.screen.dirty = True
        self._next_startup()

    def _next_startup(self) -> None:
        while self.pending and "dialog" in self.pending[-1]:
            kind = self.pending.pop()["dialog"]
            self.dialog = startup_dialog(kind, self.cwd, self._startup_answer)
            self.screen.dirty = True
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
            self.screen.paint()
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
                    for event in self.input.keys.feed(raw):
                        self.input.event(event)
            now = time.monotonic()
            if self.input.keys.escape_due <= now:
                for event in self.input.keys.lone_escape():
                    self.input.event(event)
            while self.timers and self.timers[0][0] <= now:
                self.timers.pop(0)[2]()
            if self.turn is not None and self.turn.wake <= now:
                self._advance(self.turn)
            self.recorder.out.flush()
        self.recorder.out.flush(everything=True)
        return self.exit_code

    def _due(self) -> float:
        due = min(self.recorder.out.due_at(), self.input.keys.escape_due)
        if self.timers:
            due = min(due, self.timers[0][0])
        if self.turn is not None:
            due = min(due, self.turn.wake)
            if self.faults_now().number("repaint", 60):
                due = min(due, self.screen.painted_at + 1 / self.faults_now().number("repaint", 60))
        if self.dialog is not None and self.dialog.paint_at > time.monotonic():
            due = min(due, self.dialog.paint_at)
        return due

    def faults_now(self) -> Faults:
        """Those of the turn that runs, else those of the program."""
        return self.turn.faults if self.turn is not None else self.faults

    def _advance(self, turn: Turn) -> None:
        assert turn.work is not None
        self.screen.dirty = True
        try:
            wait_s = next(turn.work)
        except StopIteration:
            if self.turn is turn:
                self._turn_over(turn)
            return
        turn.wake = time.monotonic() + wait_s

    def crash(self, turn: Turn, place: str) -> None:
        """Die here, if the fault says so."""
        where, _, code = turn.faults.text("crash").partition(":")
        if "crash" not in turn.faults or where != place:
            return
        self.recorder.out.flush(everything=True)
        if not code:
            os.kill(os.getpid(), signal.SIGKILL)
        restore_terminal()
        os._exit(int(code))

    def submit(self, item: Record, source: str) -> None:
        """An idle CLI takes a text: command, shell or prompt."""
        text = item["text"]
        match = None if item["bash"] or text.startswith("\n") else COMMAND.match(text)
        if match is not None and self.dialect == "claude-code":
            command(self, match.group(1), (match.group(2) or "").strip())
            return
        turn = Turn(text, "bash" if item["bash"] else source, self.recorder.parent)
        turn.faults = self.faults.with_prompt(text)
        lines = item["shown"].split("\n")
        self.screen.history += [f"\u276f {line}" if not n else f"  {line}" for n, line in enumerate(lines)]
        self.screen.history.append("")
        if item["bash"]:
            shell(self, turn, text)
        self._begin(turn)

    def _begin(self, turn: Turn) -> None:
        self.turn = turn
        self.registry.put("busy")
        self.recorder.begin(turn)
        turn.work = self.player.play(turn)
        turn.wake = time.monotonic()

    def dequeue(self) -> None:
        """Say that the first waiting message leaves the queue; it runs when the turn is over."""
        for item in self.pending:
            if not item.get("dequeued"):
                item["dequeued"] = True
                self.recorder.queue("dequeue")
            return

    def _turn_over(self, turn: Turn) -> None:
        """Back to the prompt, or on to what waits."""
        self.registry.put("idle")
        self.turn = None
        self.dialog = None
        self.screen.history += [f"\u273b Worked for {int(time.monotonic() - turn.started)}s \u00b7 done", ""]
        if turn.faults.number("task_notification", 0.5):
            task = new_uuid()[:8]
            self.later(turn.faults.number("task_notification", 0.5), lambda: self.notify(task, ""))
        if "subagent" in turn.faults and not turn.subagents:
            agent = self.recorder.subagent(turn.prompt, "sub-agent answer", "")
            self.later(turn.faults.number("subagent", 0.5), lambda: self.notify(agent, ""))
        if self.dialect == "claude-code":
            self.recorder.trailer(turn)
        self._next_pending()

    def _next_pending(self) -> None:
        if self.turn is None and self.pending:
            self.dequeue()
            self.submit(self.pending.pop(0), "queued")
            if self.turn is None:
                self._next_pending()

    def notify(self, task: str, tool: str) -> None:
        """A finished background task starts a turn of its own."""
        if self.turn is not None:
            self.later(0.2, lambda: self.notify(task, tool))
            return
        text = f"<task-notification>\n<task-id>{task}</task-id>\n<tool-use-id>{tool}</tool-use-id>\n"
        text += "<status>completed</status>\n"
        text += "<result>sub-agent answer</result>\n</task-notification>"
        self.recorder.queue("enqueue", content=text)
        self.recorder.queue("dequeue")
        turn = Turn(text, "system", self.recorder.parent)
        turn.faults = Faults([])
        self._begin(turn)
        turn.work = self.player.play_notified(turn)

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
        self.dequeue()
        self.recorder.torn, self.recorder.extra_s = None, 0.0
        early = turn.phase == "before" and turn.answered == 0 and turn.source != "bash"
        if "interrupt_silent" not in turn.faults:
            self.recorder.interrupted(turn)
        if early and not self.input.box.text:
            self.input.box.put_back(turn.prompt)
        self.screen.history += ["  \u23bf  Interrupted \u00b7 What should Claude do instead?", ""]
        self._turn_over(turn)
