"""Whether Claude Code's input box takes text, and what a dialog asks: its registry first, its screen as second opinion.

Only the bottom of the screen counts, so an answer that quotes the prompt, a rule or a dialog fools nothing. Nothing
here ends a turn. Source: Claude Code 2.1.332, tests/fixtures/claude_code/2.1.332/screens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, SignalView
from lastword.transports.providers.claude_code_records import RegistryFile

RULE_MIN = 20
"""Shortest line of box-drawing dashes that can be the edge of the input box or of a dialog."""
BELOW_BOX_MAX = 6
"""Lines with text that may stand below the box (footer, hints, menus)."""
DIALOG_LINES = 45
"""How far up from the bottom a dialog is looked for."""
EMPTY_BOX_HINTS = ("? for shortcuts", "esc to interrupt")
"""The footer shows one of these only while the box is empty; what the box shows then is the CLI's own suggestion."""
PROMPTS = ("❯", "!")

_OPTION = re.compile(r"^\s*(❯)?\s*(\d{1,2})\.\s+(.*\S)\s*$")
_PLAIN_OPTION = re.compile(r"^(\s*)(❯)\s+(.*\S)\s*$")
_FOOTER = re.compile(
    r"esc to (cancel|close|exit|go back)|enter to (confirm|select|continue)|press enter", re.IGNORECASE
)
_REGISTRY = msgspec.json.Decoder(RegistryFile)

Kind = Literal["trust", "permission", "login", "update", "rate_limit", "question", "panel", "other"]


def signals(view: SignalView) -> Signal:
    """Ready, a dialog, or neither yet."""
    registry = _registry(view)
    lines = [line.rstrip() for line in view.screen]
    while lines and not lines[-1]:
        lines.pop()
    box = _box(lines)
    if registry is not None and registry.status == "waiting":
        if box is not None:
            return NotReady(reason="the CLI says that a dialog is open and has not drawn it yet")
        stamp = f"{registry.status_updated_at or 0:.0f}"
        return _dialog(lines, registry.waiting_for or "", stamp) or _unread(registry, stamp)
    if box is not None:
        return Ready(draft=box, busy=_busy(registry, lines))
    dialog = _dialog(lines, "", "")
    if dialog is not None and registry is None:
        return dialog
    if dialog is not None:
        return NotReady(reason="the screen shows a dialog that the CLI's registry does not speak of", perhaps=dialog)
    return NotReady(reason=(lines[-1].strip()[:120] if lines else "an empty screen"))


def _registry(view: SignalView) -> RegistryFile | None:
    if view.status is None:
        return None
    try:
        registry = _REGISTRY.decode(view.status)
    except (msgspec.MsgspecError, UnicodeError, ValueError):
        return None
    return registry if not registry.pid or not view.pid or registry.pid == view.pid else None


def _busy(registry: RegistryFile | None, lines: Sequence[str]) -> bool:
    if registry is not None and registry.status:
        return registry.status == "busy"
    return any("esc to interrupt" in line for line in lines[-3:])


def _is_rule(line: str) -> bool:
    bare = line.strip()
    return len(bare) >= RULE_MIN and not bare.strip("─▔━") and not line.startswith(" ")


def _box(lines: Sequence[str]) -> str | None:
    """The draft in the input box at the bottom of the screen, None where there is no box."""
    below = 0
    end = len(lines) - 1
    while end >= 0 and not _is_rule(lines[end]):
        if lines[end].strip():
            below += 1
            if below > BELOW_BOX_MAX:
                return None
        end -= 1
    start = end - 1
    while start >= 0 and not _is_rule(lines[start]):
        start -= 1
    if start < 0 or start + 1 >= end:
        return None
    first, *rest = lines[start + 1 : end]
    if not first.startswith(PROMPTS):
        return None
    shell = first.startswith("!")
    draft = "\n".join([first[1:].lstrip("\u00a0 "), *(line.removeprefix("  ") for line in rest)])
    draft = draft.rstrip()
    if any(hint in line for line in lines[end + 1 :] for hint in EMPTY_BOX_HINTS):
        return ""
    return f"!{draft}" if shell else draft


def _dialog(lines: Sequence[str], waiting_for: str, stamp: str) -> DialogOpen | None:
    """A dialog at the bottom of the screen."""
    bottom = list(lines[-DIALOG_LINES:])
    edge = next((n for n in range(len(bottom) - 1, -1, -1) if _is_rule(bottom[n])), -1)
    bottom = bottom[edge + 1 :]
    footer = next((n for n in range(len(bottom) - 1, max(-1, len(bottom) - 6), -1) if _FOOTER.search(bottom[n])), None)
    if footer is None:
        return None
    numbered = _numbered(bottom[:footer])
    if numbered is not None:
        at, options = numbered
        return _made(bottom[:at], options, None, waiting_for, stamp)
    plain = _plain(bottom[:footer])
    if plain is not None:
        at, options, cursor = plain
        return _made(bottom[:at], options, cursor, waiting_for, stamp)
    if waiting_for:
        return _made(bottom[:footer], (), None, waiting_for, stamp)
    return None


def _numbered(bottom: Sequence[str]) -> tuple[int, tuple[str, ...]] | None:
    """The last run of options 1, 2, 3 …, with the cursor on one of them; lines between them describe them."""
    for start in range(len(bottom) - 1, -1, -1):
        first = _OPTION.match(bottom[start])
        if first is None or first.group(2) != "1":
            continue
        options: list[str] = []
        cursor = False
        for line in bottom[start:]:
            found = _OPTION.match(line)
            if found is not None and int(found.group(2)) == len(options) + 1:
                options.append(found.group(3))
                cursor = cursor or found.group(1) is not None
        return (start, tuple(options)) if cursor else None
    return None


def _plain(bottom: Sequence[str]) -> tuple[int, tuple[str, ...], int] | None:
    """Options without numbers: the line with the cursor and its neighbours of the same indent."""
    for at in range(len(bottom) - 1, -1, -1):
        found = _PLAIN_OPTION.match(bottom[at])
        if found is None:
            continue
        indent = len(found.group(1)) + 2
        start, end = at, at + 1
        while start > 0 and _indent(bottom[start - 1]) == indent:
            start -= 1
        while end < len(bottom) and _indent(bottom[end]) == indent:
            end += 1
        options = tuple(line.replace("❯", " ", 1).strip() for line in bottom[start:end])
        return start, options, at - start
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else -1


def _made(
    above: Sequence[str], options: tuple[str, ...], cursor: int | None, waiting_for: str, stamp: str
) -> DialogOpen:
    text: list[str] = []
    for line in reversed(above):
        if line.strip() and not line.strip().strip("─╌▔━"):
            if text:
                break
            continue
        if line.strip():
            text.append(line.strip())
        if len(text) >= 12:
            break
    text.reverse()
    question = "\n".join(text) or waiting_for
    key = "|".join((stamp, waiting_for, question, *options))
    return DialogOpen(key=key, question=question, options=options, kind=_kind(question, waiting_for), cursor=cursor)


def _kind(question: str, waiting_for: str) -> Kind:
    lowered = question.lower()
    if "permission" in waiting_for or "do you want to" in lowered:
        return "permission"
    if "trust" in lowered:
        return "trust"
    if "api key" in lowered or "log in" in lowered or "login" in lowered or "sign in" in lowered:
        return "login"
    if "limit" in lowered and ("reset" in lowered or "usage" in lowered or "rate" in lowered):
        return "rate_limit"
    if "update" in lowered and "version" in lowered:
        return "update"
    if "question" in waiting_for or "input" in waiting_for or question.rstrip().endswith("?"):
        return "question"
    return "panel" if "dialog" in waiting_for else "other"


def _unread(registry: RegistryFile, stamp: str) -> DialogOpen:
    asked = registry.waiting_for or "the CLI waits for a person"
    return DialogOpen(key=f"{stamp}|{asked}", question=asked, kind=_kind("", asked))


def clear_draft_keys(draft: str) -> tuple[str, ...]:
    """C-u deletes to the start of a line of the box and, there, the line break: twice for each line shown."""
    return ("C-u",) * (2 * (draft.count("\n") + 1) + 1)


def answer_keys(dialog: DialogOpen, option: int) -> tuple[str, ...]:
    """The next keys towards that option: its digit, which selects and confirms at once; or, without numbers, one step
    of the cursor, and Enter once it is there.
    """
    if not 1 <= option <= len(dialog.options):
        return ()
    if dialog.cursor is None:
        return (str(option),)
    if dialog.cursor == option - 1:
        return ("Enter",)
    return ("Down",) if dialog.cursor < option - 1 else ("Up",)
