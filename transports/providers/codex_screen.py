"""May we type into Codex's pane? Read from its screen and from its title, which we have it write. Pure.

Decides only whether keys may be sent; never that a turn is over. Unsure means not ready: looking again costs little,
and Enter in an approval dialog approves.

Screens: codex-cli 0.171.0, ``tests/fixtures/codex/0.171.0/screens/``. The input box stands at the bottom: a first line
that begins with ``›`` (``!`` in shell mode) in the first column, further ones indented, a blank line, and one or two
footer lines. A dialog or panel takes its place, and ends with a line of keys. The title is ``STATE | ID``, by
:data:`TITLE_ITEMS`: ``Ready``, ``⠏ Working``, ``[ ! ] Action Required``; the id is cut short.

Recorded: command approval, hooks review, the panels of ``/hooks``, ``/model`` and ``/permissions``, login, a
conversation that is open elsewhere, popups, key help, shell mode. Not seen, and read by analogy: folder trust, update,
rate limit, approval of a patch or of a server's tool, a question of the model's. What has no line of keys is not ready.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, SignalView
from lastword.transports.providers.drawn_choice import numbered

TITLE_ITEMS = ("activity", "run-state", "thread-id")
"""What ``tui.terminal_title`` is set to."""
PLACEHOLDER = "Ask Codex to do anything"
SHELL_MODE = "[shell mode] "
"""What a draft begins with that the CLI would execute: equal to no text of ours."""
QUESTION_CHARS_MAX = 4000
FOOTER_LINES_MAX = 3

DialogKind = Literal["trust", "permission", "login", "update", "rate_limit", "question", "panel", "other"]

_TITLE = re.compile(r"^(?P<state>.*\S) \| (?P<id>[0-9a-f]{8}-[0-9a-f-]{4,27})(?:\.\.\.|…)?$")
_ASKS = "Action Required"
_IDLE = "Ready"
_WORKING = re.compile(r"[•◦] Working \(.*esc to interrupt\)")
_EMPTY_BOX = re.compile(r"  (?:← for agents · )?\? for shortcuts")
_HINT = re.compile(r"  \S")
_QUEUES = "  tab to queue message"
_KEYS = re.compile(r"  +Press enter |.*\S · esc [a-z]+$|   ?(?:r retry|enter resume)\b| +\^o comfortable view")
_OPTION = re.compile(r"^(?P<cursor>[›>] )?\s*(?P<number>\d{1,2})\. (?P<label>.*\S)")
_DECIDED = ("✔ You approved", "✗ You canceled", "✗ You did not approve")
_KINDS: tuple[tuple[DialogKind, re.Pattern[str]], ...] = (
    ("trust", re.compile(r"do you trust|trust (?:this|the) (?:folder|directory)|Hooks need review", re.IGNORECASE)),
    ("login", re.compile(r"API key|log ?in|sign in|authenticat", re.IGNORECASE)),
    ("permission", re.compile(r"Would you like to (?:run|make|grant|allow)|needs your approval", re.IGNORECASE)),
    ("rate_limit", re.compile(r"(?:usage|rate|session|weekly) limit|limit (?:reached|resets)", re.IGNORECASE)),
    ("update", re.compile(r"\bupdate (?:available|now)|new version\b", re.IGNORECASE)),
)


def signals(view: SignalView) -> Signal:
    """Whether the input box takes text, a dialog holds the keyboard, or neither can be said."""
    lines = [line.replace("\u00a0", " ").rstrip() for line in view.screen]
    while lines and not lines[-1]:
        lines.pop()
    state = _state(view.title)
    asks = _ASKS in state or _ASKS in view.title
    draft = _draft(lines)
    if draft is not None and asks:
        return NotReady(reason="the CLI says that it waits for an answer, and has not drawn the dialog yet")
    if draft is not None:
        busy = state != _IDLE if state else any(_WORKING.match(line) for line in lines)
        return Ready(draft=draft, busy=busy)
    return _dialog(lines, asks=asks) or NotReady(reason=(lines[-1].strip()[:120] if lines else "an empty screen"))


def thread_prefix(title: str) -> str:
    """The beginning of the id of the conversation that it shows; "" where the title is not of our making."""
    found = _TITLE.match(title)
    return found["id"].rstrip("-") if found is not None else ""


def _state(title: str) -> str:
    found = _TITLE.match(title)
    return found["state"] if found is not None else ""


# --- the input box -----------------------------------------------------------------------------------------------


def _draft(lines: Sequence[str]) -> str | None:
    """What stands in the input box at the bottom; None where there is no such box."""
    end = len(lines)
    while end and lines[end - 1]:
        end -= 1
    footer = lines[end:]
    if not end or not 1 <= len(footer) <= FOOTER_LINES_MAX or any(_in_first_column(line) for line in footer):
        return None
    if _KEYS.match(footer[0]):
        return None
    top = next((at for at in range(end - 1, -1, -1) if _in_first_column(lines[at])), -1)
    if top < 0 or not (lines[top] in {"›", "!"} or lines[top].startswith(("› ", "! "))):
        return None
    draft = "\n".join((lines[top][2:], *(line.removeprefix("  ") for line in lines[top + 1 : end]))).rstrip()
    if lines[top].startswith("!"):
        return SHELL_MODE + draft
    if _EMPTY_BOX.match(footer[-1]):
        return ""
    hinted = len(footer) > 1 and _HINT.match(footer[-1]) is not None and not footer[-1].startswith(_QUEUES)
    return "" if draft == PLACEHOLDER and hinted else draft


def _in_first_column(line: str) -> bool:
    return bool(line) and not line[0].isspace()


# --- dialogs and panels ------------------------------------------------------------------------------------------


def _dialog(lines: Sequence[str], *, asks: bool) -> DialogOpen | None:
    """The dialog or panel at the bottom of the screen."""
    if not lines or not (_KEYS.match(lines[-1]) or asks):
        return None
    region = lines[_top(lines) :]
    end = len(region)
    while end and (not region[end - 1] or _KEYS.match(region[end - 1])):
        end -= 1
    region = region[:end]
    choice = numbered(region, _OPTION)
    body = [line.strip() for line in region[: choice.first] if line.strip() and not _is_art(line)]
    question = "\n".join(body)[:QUESTION_CHARS_MAX] or lines[-1].strip()
    if asks and not choice.options and not _KEYS.match(lines[-1]):
        return None  # half drawn
    whole = "\n".join((question, *choice.options))
    kind = next((kind for kind, shape in _KINDS if shape.search(whole)), "panel" if not asks else "other")
    decided = sum(line.startswith(_DECIDED) for line in lines)
    told = "\x1f".join((str(decided), question, *choice.options))
    key = hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:16]
    return DialogOpen(key=key, question=question, options=choice.options, cursor=choice.cursor, kind=kind)


def _top(lines: Sequence[str]) -> int:
    """Where it begins: behind the last entry of the conversation, each of which begins in the first column."""
    entries = (at for at in range(len(lines) - 1, -1, -1) if _in_first_column(lines[at]) and not _of_choice(lines[at]))
    last = next(entries, -1)
    at = last + 1
    while last >= 0 and at < len(lines) and lines[at]:  # the rest of that entry
        at += 1
    return at if at < len(lines) else last + 1


def _of_choice(line: str) -> bool:
    return _OPTION.match(line) is not None or line in {"↑", "↓"}


def _is_art(line: str) -> bool:
    return not line.strip("─╌ ") or any("\u2800" <= character <= "\u28ff" for character in line)


# --- keys --------------------------------------------------------------------------------------------------------


def clear_draft_keys(draft: str) -> tuple[str, ...]:
    """C-u deletes to the start of a line and, there, the line break; C-k what stands behind the cursor."""
    rows = draft.count("\n") + 1
    return ("C-u",) * (2 * rows + 1) + ("C-k",) * (2 * rows)
