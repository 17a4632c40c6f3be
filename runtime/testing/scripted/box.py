"""The box that a text is typed into."""

from __future__ import annotations

import re

from .identity import new_uuid

PASTE_LINES = 4
PASTE_CHARS = 801
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u200c\u200e\u200f"
    "\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
)
ANSI = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|[@-Z\\\\-_a-z])")


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
