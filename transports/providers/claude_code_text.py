"""How a text gets into Claude Code's input box and what its record shows of it. Pure.

What the CLI rewrites is declared (``TypedText.notes``); what it would execute is pasted in a form that it does not;
what it would lose is refused. Source: Claude Code 2.1.332, docs/providers/claude_code.md.
"""

from __future__ import annotations

import re

from lastword.actors.core.adapter import Refused, TypedText
from lastword.transports.providers.drawn_text import skeleton

TEXT_CHARS_MAX = 2_000_000
PLACEHOLDER_LINES = 4
"""From so many lines on, or more than PLACEHOLDER_CHARS, the box shows a placeholder and the record a wrapper."""
PLACEHOLDER_CHARS = 800

_WRAPPER = re.compile(r"\n*<pasted_content id=\"([^\"]*)\">\n(.*?)\n</pasted_content id=\"\1\">\n?", re.DOTALL)
_COMMAND = re.compile(r"\s*/[A-Za-z0-9:_-]*(?:\s|\Z)")
_EXIT_WORD = re.compile(r"\s*(?:exit|quit|:q!?|:wq!?)\s*\Z", re.IGNORECASE)
"""As a whole prompt these end the CLI instead of being asked."""
_PLACEHOLDER = re.compile(r"\[Pasted text #\d+(?: \+(\d+) lines?)?\]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f]")
_INVISIBLE = re.compile("[\u00ad\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
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
    if found := _INVISIBLE.search(normal):
        return f"the CLI removes the invisible character U+{ord(found.group()):04X}"
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
    pasted = typed.paste.decode()
    lines = pasted.count("\n") + 1
    if lines >= PLACEHOLDER_LINES or len(pasted) > PLACEHOLDER_CHARS:
        found = _PLACEHOLDER.fullmatch(draft.strip())
        if found is not None:
            return found.group(1) is None or int(found.group(1)) == lines - 1
    return skeleton(draft) == skeleton(pasted)
