"""The box that a text is typed into."""

from __future__ import annotations

import re
import unicodedata

from .identity import new_uuid

PASTE_LINES = 4
PASTE_UNITS = 801
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
INVISIBLE = re.compile(  # as Claude Code 2.1.332 was seen to take them out
    "[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff]"
)
ATTACHED = re.compile("[\u034f\u17b4\u17b5\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0000-\U000e007f]")
JOINING = re.compile("[\u0300-\u036f\u0600-\u074f\u0900-\u0dff\u1000-\u109f\u1780-\u17ff]")
SEPARATOR = re.compile("[\x0b\x0c\x85\u2028\u2029]")
ANSI = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|[@-Z\\\\-_a-z])")


def _pictured(character: str) -> bool:
    return character != "" and (unicodedata.category(character) in ("So", "Sk") or character in "\u203c\u2049\ufe0f")


def _attached(text: str, at: int) -> bool:
    """Whether what cannot be seen does something to what stands before it."""
    before, after, mark = text[at - 1 : at] if at else "", text[at + 1 : at + 2], text[at]
    if mark == "\u034f":
        return unicodedata.category(after or " ").startswith("M")
    if "\u17b4" <= mark <= "\u17b5":
        return "\u1780" <= before <= "\u17ff"
    if "\u180b" <= mark <= "\u180f":
        return "\u1820" <= before <= "\u18aa"
    if mark == "\u200d":
        return _pictured(before) or JOINING.match(before) is not None
    if mark == "\u200c":
        return "\u1820" <= before <= "\u18aa" or JOINING.match(before) is not None
    if mark in "\ufe0e\ufe0f":
        return _pictured(before) or (after == "\u20e3" and before in "0123456789#*")
    if mark >= "\U000e0000":
        flag = text[:at].rstrip("".join(map(chr, range(0xE0020, 0xE007F))))
        return mark != "\U000e0000" and flag.endswith("\U0001f3f4")
    return mark == "\ufe00" and before != "" and (unicodedata.category(before) == "Sm" or before in "\u1000\ua840")


def seen(text: str) -> str:
    """A text without what cannot be seen and does nothing."""
    text = INVISIBLE.sub("", CONTROL.sub("", text))
    return ATTACHED.sub(lambda found: found.group() if _attached(text, found.start()) else "", text)


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
        text = SEPARATOR.sub("\n", text)
        clean = seen(text)
        self.stripped = self.stripped or clean != text
        if not self.text and clean.startswith("!") and not self.bash:
            self.bash, clean = True, clean[1:]
        lines = clean.count("\n")
        units = len(clean.encode("utf-16-le", "surrogatepass")) // 2
        if (pasted or len(clean) > 1) and (lines + 1 >= PASTE_LINES or units >= PASTE_UNITS):
            self.count += 1
            mark = f"[Pasted text #{self.count}" + (f" +{lines} lines]" if lines else "]")
            self.pastes[mark], clean = clean, mark
        before = unicodedata.normalize("NFC", self.text[: self.at] + clean)
        self.text = unicodedata.normalize("NFC", before + self.text[self.at :])
        self.at = min(len(before), len(self.text))

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
