"""The texts of ours that an input box may show, and the check that a guarded press makes of what it shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from lastword.actors.core.adapter import DialogOpen, Ready, Signal, TypedText
from lastword.actors.core.typing_bounds import OURS_MAX
from lastword.actors.core.typing_dialogs import dialog_id
from lastword.actors.core.typing_effects import Press, TypingRules


class Ours:
    """The last texts that were typed into one pane; what they left in its box is ours to clear."""

    def __init__(self, rules: TypingRules) -> None:
        self._rules = rules
        self._texts: list[TypedText] = []

    def extend(self, texts: Iterable[TypedText]) -> None:
        """What an earlier life left."""
        self._texts = [*self._texts, *texts][-OURS_MAX:]

    def remember(self, typed: TypedText) -> None:
        """That text is or was in the box."""
        if typed not in self._texts:
            self.extend([typed])

    def pasted(self, typed: TypedText, times: int) -> None:
        """It was pasted so often by now: a CLI that stalled may show all of that at once."""
        repeated = msgspec.structs.replace(
            typed, text=typed.text * times, paste=typed.paste * times, rewritten=typed.rewritten * times
        )
        self.remember(repeated)
        self.remember(typed)

    def shown_by(self, draft: str) -> bool:
        """Whether the box shows one of them, and nothing else."""
        return bool(draft) and any(self._rules.landed(text, draft) for text in self._texts)

    def guard(self, press: Press, current: TypedText | None, epoch: int) -> Callable[[Signal], bool]:
        """The check that a guarded press makes on the last look before it; pure and short.

        Args:
            press: what is guarded.
            current: the text that is being delivered.
            epoch: of the CLI process.
        """
        rules = self._rules
        ours = (*self._texts, current) if current is not None else tuple(self._texts)

        def holds(signal: Signal) -> bool:
            match press.guard:
                case "landed":
                    return current is not None and isinstance(signal, Ready) and rules.landed(current, signal.draft)
                case "ours":
                    return isinstance(signal, Ready) and any(rules.landed(text, signal.draft) for text in ours)
                case "dialog":
                    same = isinstance(signal, DialogOpen) and dialog_id(signal, epoch) == press.dialog_id
                    return same and isinstance(signal, DialogOpen) and signal.cursor == press.cursor
                case "":
                    return True
                case _:
                    assert_never(press.guard)

        return holds
