"""What is typed: into the box, into a dialog, or at the turn that runs."""

from __future__ import annotations

import time

from .box import Box
from .commands import COMMAND
from .identity import new_uuid
from .keys import Keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .app import App
    from .dialogs import Dialog
    from .steps import Record
    from .turn import Turn

EXIT_AGAIN_S = 0.8


class InputLine:
    """Takes what the terminal sends, as the real one takes it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.keys = Keys()
        self.box = Box()
        self.last_input = 0.0
        self.escape_armed = 0.0
        self.exit_armed = 0.0

    def event(self, event: tuple[str, str]) -> None:
        """One key, text or paste."""
        kind, value = event
        self.app.screen.dirty = True
        now = time.monotonic()
        if self.app.dialog is not None and self.app.dialog.paint_at <= now:
            self._dialog_event(self.app.dialog, kind, value)
        elif self.app.screen.panel:
            if value == "escape":
                self.app.screen.panel = ""
        elif kind == "key":
            self._key(value, now)
        elif kind == "paste" and self.app.faults.spend("paste_drop"):
            self.last_input = now
        else:
            self.box.insert(value, pasted=kind == "paste")
            if self.box.stripped:
                self.app.screen.notice = "Removed 1 invisible character \u00b7 review and press Enter to send"
            self.last_input = now
            if kind == "paste" and self.app.turn is not None:
                self._pasted(self.app.turn, now)

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
            if self.app.turn is not None:
                self.app.interrupt()
            elif now - self.exit_armed < EXIT_AGAIN_S:
                self.app.exit_code = 0
            else:
                self.box.clear()
                self.exit_armed, self.app.screen.notice = now, "Press Ctrl-C again to exit"
        elif name == "up" and not self.box.text and self.app.pending:
            item = self.app.pending.pop()
            self.app.recorder.queue("remove", content=item["text"])
            self.box.put_back(item["text"])
        else:
            self.box.key(name)

    def _escape(self, now: float) -> None:
        if self.app.turn is not None:
            self.app.interrupt()
        elif self.box.text and now - self.escape_armed < EXIT_AGAIN_S:
            self.box.clear()
        else:
            self.escape_armed = now
            self.app.screen.notice = "esc again to clear" if self.box.text else ""

    def _enter(self, now: float) -> None:
        since_ms = (now - self.last_input) * 1000
        if self.app.faults.spend("enter_drop") or since_ms < self.app.faults.number("enter_swallow_ms", 200):
            return
        if since_ms < self.app.faults.number("enter_newline_ms", 120):
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
        self.app.screen.notice = ""
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
        if self.app.turn is None:
            self.app.submit(item, "typed")
            return
        item["text"] = text.strip()
        self.app.recorder.queue("enqueue", content=item["text"])
        if "queue_drop" in self.app.faults_now():
            self.app.later(0.117, lambda: self.app.recorder.queue("remove", content=item["text"]))
            return
        self.app.pending.append(item)
