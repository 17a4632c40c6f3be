"""What a CLI asks over its protocol: the questions that are open, of which one is told as a dialog at a time. Pure.

That one is gone is told before the next is seen: by itself, not with the write of the answer, whose own report comes
later than what stands behind it. Not thread-safe; owned by one talk.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.talk import TalkEffect, Write
from lastword.actors.core.typing_effects import AnswerResult, DialogGone, DialogSeen


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One dialog. ``choices``: what each of its options answers the request with, in the protocol's words."""

    request_id: Any
    dialog: DialogOpen
    choices: tuple[Any, ...]

    @property
    def dialog_id(self) -> str:
        return "d_" + hashlib.sha256(self.dialog.key.encode()).hexdigest()[:16]


Q = TypeVar("Q", bound=Question)


class OpenQuestions(Generic[Q]):
    """In the order in which they were asked."""

    def __init__(self) -> None:
        self._open: deque[Q] = deque()
        self._told = ""
        """The dialog that was told as seen, and not as gone."""

    def __iter__(self) -> Iterator[Q]:
        return iter(self._open)

    def holds(self, request_id: Any) -> bool:
        """Whether anything of that request is open."""
        return any(each.request_id == request_id for each in self._open)

    def ask(self, *questions: Q) -> list[TalkEffect]:
        """These are asked too."""
        self._open.extend(questions)
        return self._next()

    def take(self, dialog_id: str, option: int) -> Q | None:
        """The told one, if it is that one and has that option (from 1): it is to be answered, and then
        :meth:`answered`.
        """
        if dialog_id != self._told or not self._open or not 1 <= option <= len(self._open[0].choices):
            return None
        return self._open.popleft()

    def answered(self, question: Q, token: str) -> list[TalkEffect]:
        """It has its answer: it is gone, and the next one is seen."""
        self._told = ""
        return [DialogGone(dialog_id=question.dialog_id, answered=True, token=token), *self._next()]

    def drop(self, request_id: Any) -> list[TalkEffect]:
        """Nobody wants an answer to that request any more."""
        return self._keep(deque(each for each in self._open if each.request_id != request_id))

    def drop_all(self) -> list[TalkEffect]:
        """Nobody wants any answer any more."""
        return self._keep(deque())

    def _keep(self, left: deque[Q]) -> list[TalkEffect]:
        shown = next((each.dialog_id for each in self._open if each.dialog_id == self._told), "")
        self._open = left
        if not shown or any(each.dialog_id == shown for each in left):
            return []
        self._told = ""
        return [DialogGone(dialog_id=shown, answered=False), *self._next()]

    def _next(self) -> list[TalkEffect]:
        if self._told or not self._open:
            return []
        self._told = self._open[0].dialog_id
        return [DialogSeen(dialog_id=self._told, dialog=self._open[0].dialog)]


def reply(data: bytes, token: str) -> Write:
    """The write that answers, and what is told of it under that token."""
    done, lost = AnswerResult(token=token, applied=True), AnswerResult(token=token, applied=False)
    return Write(data=data, after=(done,), failed=(lost,))


__all__ = ["OpenQuestions", "Question", "reply"]
