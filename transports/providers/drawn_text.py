"""What is left for sure of a text that a terminal has drawn."""

from __future__ import annotations

import unicodedata


def skeleton(text: str) -> str:
    """What is left of a text on a screen for sure: no white space (lines are wrapped), no emoji, no combining marks."""
    if text.isascii():
        return "".join(text.split())
    kept = []
    for character in text:
        category = unicodedata.category(character)
        if (category[0] in "LNP" and category != "Lm") or (character.isascii() and not character.isspace()):
            kept.append(character)
    return unicodedata.normalize("NFC", "".join(kept))
