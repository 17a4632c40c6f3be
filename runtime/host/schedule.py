"""Schedule: a sequence of turns on one session that advances on completions only (C43).

No step begins before the completion of the one before it is there; nothing else (an idle look, a time, a screen)
moves it on. After a step that did not complete it stops, unless told to go on; and it never goes on where the session
was closed, by its own clean-up or by anybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from lastword.actors.core.errors import LastwordError
from lastword.actors.core.outcome import Completion

StepText: TypeAlias = str | Callable[[Completion | None], str]
"""The text of a step, or what makes it out of the completion before (None for the first)."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the sequence.

    Attributes:
        on_failure: ``stop``, ``continue`` with the next step on the same session, or ``close`` the session.
    """

    text: StepText
    deadline_s: float | None = None
    on_failure: Literal["stop", "continue", "close"] = "stop"


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one step: its completion, or why there is none. Neither: it never began."""

    completion: Completion | None = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Completed."""
        return self.completion is not None and self.completion.status == "completed"


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True):
    """One result for every step, in order; ``session_closed``: no further step can run on that session."""

    steps: tuple[StepResult, ...]
    session_closed: bool = False

    @property
    def ok(self) -> bool:
        """Every step completed."""
        return all(step.ok for step in self.steps)

    @property
    def last(self) -> Completion | None:
        """The completion reached last."""
        return next((step.completion for step in reversed(self.steps) if step.completion is not None), None)


class Conversation(Protocol):
    """The part of a session that a schedule needs."""

    def run(self, text: str, *, deadline_s: float | None = None) -> Completion: ...

    def close(self) -> None: ...


class Schedule:
    """A sequence of turns. A value: it may be run on several sessions, also at the same time."""

    def __init__(self, steps: Sequence[Step | StepText]) -> None:
        self._steps = tuple(step if isinstance(step, Step) else Step(text=step) for step in steps)

    def run(self, session: Conversation, *, on_step: Callable[[StepResult], None] | None = None) -> ScheduleResult:
        """Run the steps on ``session``, on the calling thread.

        Args:
            session: where they run; one that nobody else drives meanwhile, or a step may be refused as ``busy``.
            on_step: told of each result before the next step begins.

        Returns: a result for every step; those after a stop are empty. A step that could not be sent, or whose text
            could not be made, is a result with its ``error``; nothing but KeyboardInterrupt and its like is raised.
        """
        results: list[StepResult] = []
        before: Completion | None = None
        closed = False
        for step in self._steps:
            result = self._one(session, step, before)
            results.append(result)
            before = result.completion or before
            if on_step is not None:
                on_step(result)
            if result.ok:
                continue
            closed = isinstance(result.error, LastwordError) and result.error.kind == "session_closed"
            if step.on_failure == "close" and not closed:
                session.close()
                closed = True
            if closed or step.on_failure != "continue":
                break
        missing = len(self._steps) - len(results)
        return ScheduleResult(steps=(*results, *(StepResult() for _ in range(missing))), session_closed=closed)

    @staticmethod
    def _one(session: Conversation, step: Step, before: Completion | None) -> StepResult:
        try:
            text = step.text if isinstance(step.text, str) else step.text(before)
            return StepResult(completion=session.run(text, deadline_s=step.deadline_s))
        except Exception as error:
            return StepResult(error=error)
