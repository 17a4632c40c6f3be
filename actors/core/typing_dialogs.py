"""The dialog of a pane: what is open, what a host answers to it, and what became of the answer. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from lastword.actors.core.adapter import DialogOpen, NotReady, Signal
from lastword.actors.core.typing_bounds import ANSWER_AGAIN_S, ANSWER_STEPS_MAX, DRAWN_LOOK_S, PERHAPS_S, START_LOOK_S
from lastword.actors.core.typing_effects import (
    AnswerResult,
    DialogGone,
    DialogSeen,
    LookIn,
    PaneEffect,
    Press,
    TypingRules,
)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    dialog_id: str
    option: int
    steps: int = 0
    pressed_s: float | None = None
    stepped_s: float | None = None
    stepped_from: int = 0


def dialog_id(dialog: DialogOpen, epoch: int) -> str:
    """Identity of a dialog: its key within one process of the CLI."""
    return "d_" + hashlib.sha256(f"{epoch}\0{dialog.key}".encode()).hexdigest()[:16]


class Dialogs:
    """What the looks at one pane say of its dialog, and the one answer that is on its way.

    Args:
        rules: the adapter.
        epoch: of the CLI process in the pane.
    """

    def __init__(self, rules: TypingRules, epoch: int) -> None:
        self._rules = rules
        self._epoch = epoch
        self.open: tuple[str, DialogOpen] | None = None
        self._answered: str = ""
        self._answered_by: str = ""
        self._answer: _Answer | None = None
        self._perhaps_since: float | None = None
        self._drawing = ""

    # --- what is open -----------------------------------------------------------------------------------------

    def believe(self, signal: Signal, now_s: float) -> Signal:
        """A dialog that only the screen speaks of is believed once it stays."""
        perhaps = signal.perhaps if isinstance(signal, NotReady) else None
        if perhaps is None:
            self._perhaps_since = None
            return signal
        if self._perhaps_since is None:
            self._perhaps_since = now_s
        return perhaps if now_s - self._perhaps_since >= PERHAPS_S else signal

    def see(self, signal: Signal) -> list[PaneEffect]:
        """Tell the dialog that has opened, and that one has gone."""
        if isinstance(signal, NotReady):
            return []
        seen = (dialog_id(signal, self._epoch), signal) if isinstance(signal, DialogOpen) else None
        before = self.open
        if (seen and seen[0]) == (before and before[0]):
            self._drawing = ""
            return []
        if seen is not None and seen[0] != self._drawing:
            self._drawing = seen[0]  # perhaps half drawn: told once it is seen twice alike; nothing is typed meanwhile
            return [LookIn(DRAWN_LOOK_S)]
        self._drawing = ""
        self.open = seen
        effects: list[PaneEffect] = []
        if before is not None:
            ours = before[0] == self._answered
            effects.append(DialogGone(dialog_id=before[0], answered=ours, token=self._answered_by if ours else ""))
            self._answered = self._answered_by = ""
        if seen is not None:
            effects.append(DialogSeen(dialog_id=seen[0], dialog=seen[1]))
        return effects

    # --- the answer -------------------------------------------------------------------------------------------

    def answer(self, token: str, wanted_dialog: str, option: int) -> tuple[list[PaneEffect], bool]:
        """Take a host's answer, in the place of one that was not pressed yet; False where one is on its way."""
        before = self._answer
        if before is not None and before.dialog_id == wanted_dialog and before.pressed_s is not None:
            return [AnswerResult(token=token, applied=False)], False  # no dialog is answered twice
        self._answer = _Answer(token=token, dialog_id=wanted_dialog, option=option)
        return ([] if before is None else [AnswerResult(token=before.token, applied=False)]), True

    @property
    def answering(self) -> bool:
        """Whether an answer is on its way."""
        return self._answer is not None

    def not_pressed(self) -> None:
        """The guard dropped the key of the answer."""
        if self._answer is not None:
            self._answer = msgspec.structs.replace(self._answer, pressed_s=None, stepped_s=None)
            self._answered = self._answered_by = ""

    def answered_by_exit(self) -> list[PaneEffect]:
        """The CLI is gone: an answer that was pressed has been taken."""
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        return [AnswerResult(token=answer.token, applied=answer.pressed_s is not None)]

    def towards_the_answer(self, signal: Signal, now_s: float, *, interrupting: bool) -> list[PaneEffect]:
        """One seen step at a time; it is applied when the dialog is seen gone. An interrupt overtakes it."""
        wanted = self._answer
        if wanted is None:
            return []
        if isinstance(signal, NotReady) and wanted.pressed_s is None:
            return [LookIn(START_LOOK_S)]
        if not isinstance(signal, DialogOpen) or dialog_id(signal, self._epoch) != wanted.dialog_id:
            self._answer = None
            return [AnswerResult(token=wanted.token, applied=wanted.pressed_s is not None)]
        if wanted.pressed_s is not None and now_s - wanted.pressed_s < ANSWER_AGAIN_S:
            return [LookIn(START_LOOK_S)]
        if interrupting:  # no key is out that could still be taken: none follows
            self._answer = None
            self._answered = self._answered_by = ""
            return [AnswerResult(token=wanted.token, applied=False)]
        stepping = wanted.stepped_s is not None and signal.cursor == wanted.stepped_from
        if stepping and wanted.stepped_s is not None and now_s - wanted.stepped_s < ANSWER_AGAIN_S:
            return [LookIn(START_LOOK_S)]  # the step is on its way: a second one would go too far
        keys = self._rules.answer_keys(signal, wanted.option)
        if not keys or wanted.steps >= ANSWER_STEPS_MAX:
            self._answer = None
            return [AnswerResult(token=wanted.token, applied=False)]
        final = not signal.cursor or keys == ("Enter",)
        if final:
            self._answered, self._answered_by = wanted.dialog_id, wanted.token
        self._answer = _Answer(
            token=wanted.token,
            dialog_id=wanted.dialog_id,
            option=wanted.option,
            steps=wanted.steps + 1,
            pressed_s=now_s if final else None,
            stepped_s=None if final else now_s,
            stepped_from=signal.cursor,
        )
        return [
            Press(keys=keys, what="answer", guard="dialog", dialog_id=wanted.dialog_id, cursor=signal.cursor),
            LookIn(START_LOOK_S),
        ]
