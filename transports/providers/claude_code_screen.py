"""May we type into Claude Code's pane? Read from its own registry file and, as second opinion, from its screen.

Pure. Decides only whether keys may be sent; never that a turn is over. Unsure means not ready: looking again costs
little, typing into a dialog approves a tool.

Screens: claude-code 2.1.332, ``tests/fixtures/claude_code/2.1.332/screens/``. The input box stands at the bottom
between two rules that begin in the first column (what an answer quotes is indented); under it a footer. A dialog
or panel takes the box's place. While the box is empty (whatever grey hint it shows) the footer offers
``? for shortcuts`` or ``esc to interrupt``. A box that begins with ``!`` is in shell mode.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, SignalView
from lastword.transports.providers.claude_code_records import RegistryFile as Registry
from lastword.transports.providers.claude_code_records import parse_registry
from lastword.transports.providers.drawn_choice import numbered

FOOTER_LINES_MAX = 12  # under the box: status line, shortcuts, a menu
QUESTION_CHARS_MAX = 4000
RULE_CHARS_MIN = 20

DialogKind = Literal["trust", "permission", "login", "update", "rate_limit", "question", "panel", "other"]

SHELL_MODE = "[shell mode] "  # what a draft begins with that the CLI would execute: equal to no text of ours
CHECKBOX = ("[ ]", "[✔]")  # what the options of a multiple choice begin with
SUBMIT = "Submit"  # its last row, which has no number

_EMPTY_BOX = ("? for shortcuts", "esc to interrupt")
_GREY_HINT = re.compile(  # for a footer without those marks: auto mode, a status line
    r"Press up to edit queued messages|Once fixed, resend your message|Resend your message to try again|"
    r'Try "[^"]*"'
)
_HINT = re.compile(r"\b(?:Esc|Enter|Tab/Arrow keys|↑/↓|←/→) to [a-z]+")
_CONTINUES = re.compile(r"\s*Continuing automatically\b")  # behind a usage limit, under a box that takes text
_OPTION = re.compile(r"^(?P<pad>\s*)(?P<cursor>❯ )?\s*(?P<number>\d{1,2})\. (?P<label>.*\S)")
_KINDS: tuple[tuple[DialogKind, re.Pattern[str]], ...] = (
    ("trust", re.compile(r"do you trust|you trust\?|trust this folder|Accessing workspace", re.IGNORECASE)),
    ("login", re.compile(r"API key|log ?in|sign in|authenticat", re.IGNORECASE)),
    ("rate_limit", re.compile(r"(?:usage|rate|session|weekly) limit|limit (?:reached|resets)", re.IGNORECASE)),
    ("permission", re.compile(r"Do you want to (?:proceed|create|make|edit|allow|overwrite|continue)", re.IGNORECASE)),
    ("update", re.compile(r"\b(?:update|upgrade|new version)\b", re.IGNORECASE)),
)


def signals(view: SignalView) -> Signal:
    """Whether the input box takes text, a dialog holds the keyboard, or neither can be said.

    The registry goes first; where there is none of this process, or it cannot be read, the screen has to do. Whatever
    is typed is seen to have landed before it is submitted.
    """
    registry = parse_registry(view.status) if view.status is not None else None
    if registry is not None and registry.pid not in {0, view.pid} and view.pid:
        registry = None
    lines = _bottom_trimmed(view.screen)
    draft = _draft(lines)
    waiting = registry is not None and registry.status == "waiting"
    stamp = f"{registry.status_updated_at or 0:.0f}" if registry is not None and waiting else ""
    if waiting and draft is not None:
        # 0.4 s before it is drawn: what is typed now would land in the box, and Enter would queue it
        return NotReady(reason="the CLI says that a dialog is open and has not drawn it yet")
    dialog = _dialog(lines, registry, stamp) if draft is None else None
    if dialog is not None and (waiting or registry is None):
        return dialog
    if dialog is not None:
        return NotReady(reason="the screen shows a dialog that the CLI's registry does not speak of", perhaps=dialog)
    if registry is not None and waiting:
        question = registry.waiting_for or "the CLI waits for an answer"
        unread = DialogOpen(
            key=_key(question, (), stamp), question=question, kind=_kind(question, registry, panel=False)
        )
        return NotReady(reason="the CLI says that a dialog is open, and the screen does not show it", perhaps=unread)
    if draft is None:
        return NotReady(reason=(lines[-1].strip()[:120] if lines else "an empty screen"))
    return Ready(draft=draft, busy=_busy(registry, lines))


def _busy(registry: Registry | None, lines: Sequence[str]) -> bool:
    if registry is not None and registry.status:
        return registry.status == "busy"
    return any("esc to interrupt" in line for line in lines[-3:])


def _bottom_trimmed(screen: Sequence[str]) -> list[str]:
    lines = [line.replace("\u00a0", " ").rstrip() for line in screen]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _is_rule(line: str) -> bool:
    return line.startswith("──") and line.count("─") >= RULE_CHARS_MIN


def _is_panel_top(line: str) -> bool:
    return line.startswith("▔▔") and line.count("▔") >= RULE_CHARS_MIN


# --- the input box -----------------------------------------------------------------------------------------------


def _draft(lines: Sequence[str]) -> str | None:
    """What stands in the input box at the bottom; None where there is no such box."""
    below = next((at for at in range(len(lines) - 1, -1, -1) if _is_rule(lines[at])), -1)
    if below < 0 or len(lines) - 1 - below > FOOTER_LINES_MAX:
        return None
    above = next((at for at in range(below - 1, -1, -1) if _is_rule(lines[at])), -1)
    if above < 0 or below - above < 2 or not _begins_box(lines[above + 1]):
        return None
    footer = lines[below + 1 :]
    if not footer or any(_HINT.search(line) and not _CONTINUES.match(line) for line in footer):
        return None
    box = lines[above + 1 : below]
    if box[0].startswith("!"):
        return (SHELL_MODE + "\n".join((box[0][2:], *(_unindented(line) for line in box[1:])))).rstrip()
    if any(mark in line for mark in _EMPTY_BOX for line in footer):
        return ""
    draft = "\n".join((box[0][2:], *(_unindented(line) for line in box[1:]))).rstrip()
    return "" if _GREY_HINT.fullmatch(draft) else draft


def _begins_box(line: str) -> bool:
    return line in {"❯", "!"} or line.startswith(("❯ ", "! "))


def _unindented(line: str) -> str:
    return line.removeprefix("  ")


# --- dialogs and panels ------------------------------------------------------------------------------------------


def _dialog(lines: Sequence[str], registry: Registry | None, stamp: str) -> DialogOpen | None:
    """The dialog or panel at the bottom of the screen."""
    waiting = registry is not None and registry.status == "waiting"
    hinted = bool(lines) and _HINT.search(lines[-1]) is not None
    if not hinted and not waiting:
        return None
    top = _top(lines)
    panel = top >= 0 and _is_panel_top(lines[top])
    end = len(lines)
    while end > top + 1 and (not lines[end - 1] or _HINT.search(lines[end - 1])):
        end -= 1
    region = lines[top + 1 : end]
    if not any(region):
        return None
    first, options, cursor = _numbered(region)
    if not options and not panel and hinted:  # without a hint a prompt of the conversation above would pass for one
        first, options, cursor = _unnumbered(region)
    if not options and not panel and not (waiting and hinted and top >= 0):
        return None
    body = [line.strip() for line in region[:first] if line.strip() and not _is_ornament(line)]
    question = "\n".join(body)[:QUESTION_CHARS_MAX]
    whole = "\n".join((question, *options))
    kind = _kind(whole, registry, panel=panel)
    told = body[0] if panel and body else question  # a panel's text goes on changing
    return DialogOpen(key=_key(told, options, stamp), question=question, options=options, cursor=cursor, kind=kind)


def _top(lines: Sequence[str]) -> int:
    """The rule over the dialog: the nearest one below which a choice begins; -1 where it is off the screen."""
    nearest = -1
    for at in range(len(lines) - 1, -1, -1):
        if _is_panel_top(lines[at]):
            return at
        if _is_rule(lines[at]):
            below = lines[at + 1 :] if nearest < 0 else [line for line in lines[at + 1 :] if not _is_prompt(line)]
            nearest = at if nearest < 0 else nearest
            if any(_starts_choice(line) for line in below):
                return at
    above = any(_starts_choice(line) and not _is_prompt(line) for line in lines)
    return -1 if above else nearest


def _starts_choice(line: str) -> bool:
    found = _OPTION.match(line)
    if found is not None:
        return int(found["number"]) == 1
    return line.lstrip().startswith("❯ ")


def _is_prompt(line: str) -> bool:
    """A prompt of the conversation: in the first column, and no numbered choice."""
    return line.startswith("❯ ") and _OPTION.match(line) is None


def _is_ornament(line: str) -> bool:
    return not line.strip("─╌▔ ")


def _numbered(region: Sequence[str]) -> tuple[int, tuple[str, ...], int]:
    """Index of the first option's line, the options, and where the cursor stands."""
    first, options, cursor = numbered(region, _OPTION)
    if options and options[0].startswith(CHECKBOX) and any(line.strip() == SUBMIT for line in region[first:]):
        options = (*options, SUBMIT)
    return first, options, cursor


def _unnumbered(region: Sequence[str]) -> tuple[int, tuple[str, ...], int]:
    """A list without numbers: the block of lines around the cursor."""
    at = next((at for at in range(len(region) - 1, -1, -1) if region[at].lstrip().startswith("❯ ")), -1)
    if at < 0:
        return len(region), (), 0
    column = region[at].index("❯") + 2
    first, last = at, at
    while first > 0 and _in_column(region[first - 1], column):
        first -= 1
    while last + 1 < len(region) and _in_column(region[last + 1], column):
        last += 1
    return first, tuple(line[column:].strip() for line in region[first : last + 1]), at - first + 1


def _in_column(line: str, column: int) -> bool:
    return len(line) > column and not line[:column].strip() and line[column] != " "


def _kind(text: str, registry: Registry | None, *, panel: bool) -> DialogKind:
    waiting_for = registry.waiting_for if registry is not None and registry.status == "waiting" else ""
    if waiting_for == "permission prompt":
        return "permission"  # leaving plan mode is asked in a panel's frame
    if panel:
        return "panel"
    if waiting_for == "input needed":
        return "question"
    return next((kind for kind, shape in _KINDS if shape.search(text)), "other")


def _key(question: str, options: Sequence[str], stamp: str) -> str:
    told = "\x1f".join((stamp, question, *options))
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:16]


# --- keys --------------------------------------------------------------------------------------------------------


def clear_draft_keys(draft: str) -> tuple[str, ...]:
    """C-u deletes to the start of a line of the box and, there, the line break: twice for each line shown."""
    return ("C-u",) * (2 * (draft.count("\n") + 1) + 1)
