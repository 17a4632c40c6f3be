"""Whether two texts are the same but for what a terminal program may make of one on its way. Pure.

A CLI composes accents (NFC), maps compatibility characters, drops what has no width, wraps and indents. None of that
makes it another text; any letter, digit, mark or symbol more or less does.
"""

from __future__ import annotations

import difflib
import re
import unicodedata

UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that a program may drop without anybody seeing it (Unicode's default ignorables and format characters),
as the inside of a character class."""

ALIKE_MIN = 0.6
"""Of the characters of two texts, so many in the same order make them one text that was changed on its way."""
COMPARED_MAX = 300
"""Characters of each text that are compared for that."""
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,60}\]")
_UNSEEN = re.compile(f"[\x00-\x1f\x7f-\x9f{UNSEEN}]")


def without_unseen(text: str) -> str:
    """The text without control characters and those that nobody sees."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub("", text)


def folded(text: str) -> str:
    """What is left of a text whatever a terminal program does to it: no white space, nothing unseen, NFKC."""
    solid = without_unseen("".join(text.split()))
    return solid if solid.isascii() else "".join(without_unseen(unicodedata.normalize("NFKC", solid)).split())


def perhaps(draft: str, pasted: str) -> bool:
    """Whether a draft may be what a CLI made of that paste: most of its characters, or a placeholder for it. Never
    enough to press Enter on.
    """
    if _PLACEHOLDER.fullmatch(draft.strip()):
        return True
    shown, wanted = folded(draft), folded(pasted)
    if not shown or not 0.5 <= len(shown) / max(1, len(wanted)) <= 2:
        return False
    pair = difflib.SequenceMatcher(None, shown[:COMPARED_MAX], wanted[:COMPARED_MAX], autojunk=False)
    return pair.ratio() >= ALIKE_MIN


__all__ = ["UNSEEN", "folded", "perhaps", "without_unseen"]
