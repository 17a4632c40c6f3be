"""How a text gets into Codex's input box and what its rollout shows of it. Pure.

Source: codex-cli 0.171.0, docs/providers/codex.md.
"""

from __future__ import annotations

import re

from lastword.actors.core.adapter import Refused, TypedText
from lastword.transports.providers.drawn_text import seen, shows

TEXT_CHARS_MAX = 1_000_000
PLACEHOLDER_CHARS = 1000
"""Of a longer paste the box shows a placeholder."""
SHOWN_LINES_MAX = 8
"""A text of more lines is made longer with blanks, which are stripped again: the box scrolls, and would show a part."""

_COMMAND = re.compile(r"/(?![^\s/]*/)")
"""``/word`` is a command; ``/path/to`` is text."""
_SHELL = "!"
_POPUP = re.compile(r"[@$]\S*\Z")
"""Behind such a word a list is open, and takes the Enter."""
_PLACEHOLDER = re.compile(r"\[Pasted Content (\d+) chars\](?: #\d+)?")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f]")
_DROPPED = "\x85"
"""Is not recorded."""
_MISDRAWN = ("\u2028", "\u2029")
"""The box shows them, and what stands behind them, wrong: a text with one is made longer, as one of many lines is."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def escape(text: str) -> TypedText | Refused:
    """Make a text ready to paste, or say why it cannot be sent."""
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = normal.strip()
    notes = [name for name, applies in (("crlf", normal != text), ("outer_blank", shown != normal)) if applies]
    paste = shown
    if _COMMAND.match(shown) or shown.startswith(_SHELL):
        paste = " " + paste  # a blank before it makes it text; it is not recorded
    if _POPUP.search(paste):
        paste += " "
    if paste.count("\n") >= SHOWN_LINES_MAX or any(separator in paste for separator in _MISDRAWN):
        paste = paste.ljust(PLACEHOLDER_CHARS + 1)
    refused = _refusal(text, shown, normal, len(paste))
    if refused:
        return Refused(reason=refused)
    return TypedText(text=text, paste=paste.encode(), rewritten=shown, notes=tuple(notes))


def _refusal(text: str, shown: str, normal: str, pasted_chars: int) -> str:
    if len(text) > TEXT_CHARS_MAX:
        return f"longer than {TEXT_CHARS_MAX} characters"
    if not shown:
        return "only blanks: the CLI would not submit it"
    if found := _CONTROL.search(normal):
        return f"the control character U+{ord(found.group()):04X} cannot be typed"
    if _DROPPED in shown:
        return "the CLI removes the character U+0085"
    if found := _SURROGATE.search(normal):
        return f"the lone surrogate U+{ord(found.group()):04X} is no text"
    if not seen(shown):
        return "nothing of it would be seen in the CLI's input box"
    if _COMMAND.match(shown) and pasted_chars > PLACEHOLDER_CHARS:
        return "a long text that begins with '/' and a word would be taken for a command by the CLI"
    return ""


def matches(typed: TypedText, recorded: str) -> bool:
    """Whether a recorded prompt is that text, outer blanks aside."""
    return recorded.strip() == typed.rewritten


def landed(typed: TypedText, draft: str) -> bool:
    """Whether the input box shows that text, or the placeholder for it."""
    pasted = typed.paste.decode()
    if len(pasted) > PLACEHOLDER_CHARS:
        found = _PLACEHOLDER.fullmatch(draft.strip())
        return found is not None and int(found.group(1)) == len(pasted)
    return shows(draft, pasted)
