"""How a text gets into Claude Code's input box and what its record shows of it. Pure.

What the CLI rewrites is declared (``TypedText.notes``); what it would execute is pasted in a form that it does not;
what it would lose is refused. Source: Claude Code 2.1.332, docs/providers/claude_code.md.
"""

from __future__ import annotations

import re
import unicodedata

from lastword.actors.core.adapter import Refused, TypedText
from lastword.transports.providers.drawn_text import seen, shows

TEXT_CHARS_MAX = 2_000_000
PLACEHOLDER_LINES = 4
"""From so many lines on, or more than PLACEHOLDER_UNITS, the box shows a placeholder and the record a wrapper."""
PLACEHOLDER_UNITS = 800
"""In UTF-16 units: an emoji counts two."""

_WRAPPER = re.compile(r"\n*<pasted_content id=\"([^\"]*)\">\n(.*?)\n</pasted_content id=\"\1\">\n?", re.DOTALL)
_COMMAND = re.compile(r"\s*/[A-Za-z0-9:_-]*(?:\s|\Z)")
_EXIT_WORD = re.compile(r"\s*(?:exit|quit|:q!?|:wq!?)\s*\Z", re.IGNORECASE)
"""As a whole prompt these end the CLI instead of being asked."""
_PLACEHOLDER = re.compile(r"\[Pasted text #\d+(?: \+(\d+) lines?)?\]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f]")
_INVISIBLE = re.compile(  # removed wherever they stand
    "[\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_ATTACHED = re.compile(  # removed behind what they do nothing to; a keycap's selector stays
    "(?:\\A|(?<=[\x00-\xa8\xaa-\xad\xaf-\u02ff\u0370-\u058f\u05d0-\u05ff\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff"
    "\u3400-\u9fff\uac00-\ud7af]))(?!\ufe0f\u20e3)[\u17b4\u17b5\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f]"
)
_JOINER = re.compile("\u034f")  # kept before a mark only
_SURROGATE = re.compile("[\ud800-\udfff]")


def escape(text: str) -> TypedText | Refused:
    """Make a text ready to paste, or say why it cannot be sent."""
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    refused = _refusal(text, normal)
    if refused:
        return Refused(reason=refused)
    notes: list[str] = []
    if normal != text:
        notes.append("crlf")
    shown = normal
    for separator in "\x85\u2028\u2029":
        if separator in shown:
            shown = shown.replace(separator, "\n")
            notes.append("line_separator")
    if "\t" in shown:
        shown = shown.replace("\t", "    ")
        notes.append("tab")
    if "<pasted_content" in shown or "</pasted_content" in shown:
        shown = shown.replace("</pasted_content", "<\\/pasted_content").replace("<pasted_content", "<\\pasted_content")
        notes.append("pasted_content_tag")
    if shown != shown.strip():
        shown = shown.rstrip().lstrip("\n")
        notes.append("outer_blank")
    paste = normal.rstrip().lstrip("\n")
    if paste.endswith("\\"):
        paste += " "  # Enter behind a backslash would be a newline; the blank is not recorded
    if _COMMAND.match(paste) or _EXIT_WORD.match(paste):
        paste += "\n" * max(0, PLACEHOLDER_LINES - 1 - paste.count("\n"))  # a placeholder is never a command
    if not _behind_placeholder(_boxed(paste)) and not unicodedata.is_normalized("NFC", shown):
        shown = unicodedata.normalize("NFC", shown)  # the box composes what it shows; what a placeholder stands for not
        notes.append("nfc")
    return TypedText(text=text, paste=paste.encode(), rewritten=shown, notes=tuple(dict.fromkeys(notes)))


def _refusal(text: str, normal: str) -> str:
    if len(text) > TEXT_CHARS_MAX:
        return f"longer than {TEXT_CHARS_MAX} characters"
    if not text.strip():
        return "only blanks: the CLI would not submit it"
    if found := _CONTROL.search(normal):
        return f"the control character U+{ord(found.group()):04X} cannot be typed"
    if found := _SURROGATE.search(normal):
        return f"the lone surrogate U+{ord(found.group()):04X} is no text"
    if found := _INVISIBLE.search(normal) or _ATTACHED.search(normal):
        return f"the CLI removes the invisible character U+{ord(found.group()):04X}"
    for joiner in _JOINER.finditer(normal):
        if not unicodedata.category(normal[joiner.end() : joiner.end() + 1] or " ").startswith("M"):
            return "the CLI removes the invisible character U+034F"
    if not seen(normal):
        return "nothing of it would be seen in the CLI's input box"
    if normal.lstrip().startswith("!"):
        return "a text that begins with '!' would be run as a shell command by the CLI"
    return ""


def unwrap(recorded: str) -> str:
    """A recorded prompt without the CLI's own wrapping of what was pasted."""
    if "<pasted_content" not in recorded:
        return recorded
    return _WRAPPER.sub(lambda found: found.group(2), recorded)


def matches(typed: TypedText, recorded: str) -> bool:
    """Whether a recorded prompt is that text, the declared rewriting applied and outer blanks aside."""
    wanted = typed.rewritten.strip()
    return recorded.strip() == wanted or unwrap(recorded).strip() == wanted


def landed(typed: TypedText, draft: str) -> bool:
    """Whether the input box shows that text, or the placeholder for it."""
    pasted = _boxed(typed.paste.decode())
    if _behind_placeholder(pasted):
        found = _PLACEHOLDER.fullmatch(draft.strip())
        if found is not None:
            return found.group(1) is None or int(found.group(1)) == pasted.count("\n")
    return shows(draft, pasted)


def _boxed(paste: str) -> str:
    """What the box makes of a paste before it counts."""
    for separator in "\x85\u2028\u2029":
        paste = paste.replace(separator, "\n")
    return paste.replace("\t", "    ")


def _behind_placeholder(boxed: str) -> bool:
    units = len(boxed) + sum(character > "\uffff" for character in boxed[: PLACEHOLDER_UNITS + 1])
    return boxed.count("\n") + 1 >= PLACEHOLDER_LINES or units > PLACEHOLDER_UNITS
