"""What a person, and an observer, sees."""

from __future__ import annotations

import os
import time

from .identity import VERSION
from .terminal import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .app import App
    from .steps import Record

HISTORY_LINES_MAX = 400
RULE = "\u2500"
GLYPH = "\u276f\u00a0"


class Screen:
    """The conversation so far, the running turn, and at the bottom the box or a dialog."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.history = [
            "",
            " \u2590\u259b\u2588\u2588\u2588\u259b\u2588   Claude Code v" + VERSION,
            f" {app.cwd}",
            "",
        ]
        self.notice = ""
        self.panel = ""
        self.dirty = True
        self.painted_at = 0.0

    def show(self, blocks: list[Record]) -> None:
        """Add a message of the model to what stands above."""
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

    def paint(self) -> None:
        """Paint what has changed."""
        now = time.monotonic()
        faults = self.app.faults_now()
        storm = self.app.turn is not None and "repaint" in faults
        if self.app.turn is not None and "frozen" in faults:
            return
        dialog_due = self.app.dialog is not None and self.painted_at < self.app.dialog.paint_at <= now
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
        if not self.app.ready and "paint_early" not in self.app.faults:
            return ["  Starting\u2026"]
        lines = list(self.history)
        turn = self.app.turn
        if turn is None:
            return lines
        for block in turn.shown:
            if block["type"] == "text":
                text = block["text"][-4000:]
                lines += [("\u25cf " if not n else "  ") + line for n, line in enumerate(text.split("\n"))]
        for item in self.app.pending:
            if "text" in item:
                lines += [f"\u276f {item['shown']}", "  \u23bf  Queued \u00b7 ctrl+x ctrl+s to send now", ""]
        if "idle_look" not in turn.faults:
            spin = "\u2722\u2733\u2736\u273b\u273d"[int(time.monotonic() * 8) % 5]
            waiting = turn.phase == "dialog"
            lines += ["  Waiting for permission\u2026" if waiting else f"{spin} Polishing\u2026", ""]
        return lines

    def _bottom(self, width: int, now: float) -> list[str]:
        rule = RULE * (width - 1)
        if self.app.dialog is not None and self.app.dialog.paint_at <= now:
            return [rule, *self.app.dialog.lines()]
        if self.panel or (not self.app.ready and "paint_early" not in self.app.faults):
            return []
        shown = self.app.input.box.text
        queued = any("text" in item for item in self.app.pending)
        if not shown and queued:
            shown = "Press up to edit queued messages"
        glyph = "!\u00a0" if self.app.input.box.bash else GLYPH
        rows = [(glyph if not n else "  ") + line for n, line in enumerate(shown.split("\n"))]
        rows = [row[at : at + width - 1] for row in rows for at in range(0, max(1, len(row)), width - 1)][-12:]
        busy = self.app.turn is not None and "idle_look" not in self.app.turn.faults
        footer = "  \u23f8 manual mode on"
        if not self.app.input.box.text:
            footer += " \u00b7 esc to interrupt" if busy else " \u00b7 ? for shortcuts"
        notice = [self.notice.rjust(width - 2)] if self.notice else [""]
        return [*notice, rule, *rows, rule, footer]
