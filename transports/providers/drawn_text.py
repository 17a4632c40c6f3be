"""What is left for sure of a text that a terminal has drawn."""

from __future__ import annotations

import unicodedata

from lastword.actors.core.likeness import folded, without_unseen


def skeleton(text: str) -> str:
    """What is left of a text on a screen for sure: no white space (lines are wrapped), no emoji, no marks; an accented
    letter is its base letter, whether it was written as one character or as two.
    """
    if text.isascii():
        return "".join(text.split())
    kept = []
    for character in unicodedata.normalize("NFKD", without_unseen(text)):
        category = unicodedata.category(character)
        if (category[0] in "LNP" and category != "Lm") or (character.isascii() and not character.isspace()):
            kept.append(character)
    return "".join(kept)


def shows(draft: str, pasted: str) -> bool:
    """Whether a box that shows ``draft`` holds ``pasted`` and nothing else. A text without any letter is compared by
    its symbols: else every one of them would be every other.
    """
    bones = skeleton(pasted)
    return skeleton(draft) == bones and (bool(bones) or (folded(draft) == folded(pasted) != ""))


def seen(text: str) -> bool:
    """Whether a box that holds the text shows anything of it."""
    return any(unicodedata.category(character)[0] in "LNPS" for character in folded(text))
