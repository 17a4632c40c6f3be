"""The journal's one writer as an actor: a shell around :class:`lastword.actors.group_commit.GroupCommitter`.

Spawn it pinned, one per journal: it is the actor that may block on the disk. It decides nothing about turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import assert_never

from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import Event
from lastword.actors.core.ports import Journal, Recorded
from lastword.actors.group_commit import (
    Commit,
    CommitFailed,
    CommitStats,
    Committed,
    GroupCommitter,
    JournalCommand,
)
from lastword.actors.system.actor import Actor
from lastword.actors.system.envelope import Envelope, next_number
from lastword.actors.system.ref import Ref
from lastword.actors.system.tracing import CommitSpan

__all__ = ["Backlog", "Commit", "CommitFailed", "CommitStats", "Committed", "JournalActor", "JournalCommand"]


class _TryHeld:
    """The pause is over."""


class Backlog:
    """How far the writer is behind, for whoever admits. Read from any thread."""

    __slots__ = ("held", "writer")

    def __init__(self) -> None:
        self.held = 0
        self.writer: Ref | None = None

    def __call__(self) -> int:
        """Batches that are not durable: those in its mailbox, and those that it holds while the file fails."""
        return self.held + (self.writer.waiting() if self.writer is not None else 0)


class JournalActor(Actor):
    """Handles :class:`Commit`, tells Committed or CommitFailed. What it has taken is committed before it ends, unless
    the file fails to the end: ``on_left`` is told how many batches that is.

    Where it is traced each batch gets a span of its own, between the hop that brought it and the answer: a group is
    committed in the handling of its last message, which is not what caused the others.
    """

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[Sequence[Event]], None],
        *,
        before_record: Callable[[], None] | None = None,
        on_left: Callable[[int], None] | None = None,
        backlog: Backlog | None = None,
        stats: CommitStats | None = None,
    ) -> None:
        super().__init__()
        self._backlog = backlog or Backlog()
        self._backlog.writer = self.ref
        self.committer = GroupCommitter(
            journal,
            publish,
            self.clock.wall,
            sleep=self.system.pause,
            before_record=before_record,
            on_trouble=self._trouble,
            stats=stats,
        )
        self._on_left = on_left
        self._own: Envelope | None = None
        """The message in hand."""
        self._spans: dict[int, Envelope] | None = None
        """By the identity of a batch's command, of those that were brought while it was traced."""

    def receive(self, message: JournalCommand | _TryHeld) -> None:
        self._own = self.in_hand
        try:
            match message:
                case Commit():
                    if self.system.tracer is not None and self._own is not None:
                        self._trace(message, self._own)
                    self.committer.add(message, more_waiting=self.more_waiting())
                case _TryHeld():
                    self.committer.try_held()
                case _:
                    assert_never(message)
            self._backlog.held = self.committer.held
        finally:
            if self._spans is not None:
                self._after_answers()

    def stopped(self) -> None:
        self.committer.flush()
        if self.committer.held:
            self.committer.try_held()
        if self.committer.held and self._on_left is not None:
            self._on_left(self.committer.held)

    def _trace(self, commit: Commit, brought_by: Envelope) -> None:
        """Give the batch a span: what the file is asked to take, as if it were told."""
        if self._spans is None:
            self._spans = {}
            self.committer.on_record, self.committer.on_answer = self._recorded, self._answers
        cause = brought_by.number
        self._spans[id(commit)] = Envelope(None, None, None, brought_by.trace, cause, next_number(), perf_counter_ns())

    def _after_answers(self) -> None:
        self.tell_as(self._own)
        if not self._spans and self.system.tracer is None:
            self._spans = self.committer.on_record = self.committer.on_answer = None

    def _recorded(
        self, commits: Sequence[Commit], results: Sequence[Recorded | JournalError], began_ns: int, ended_ns: int
    ) -> None:
        spans = self._spans
        assert spans is not None
        for commit, result in zip(commits, results, strict=True):
            span = spans.get(id(commit))
            if span is None or not isinstance(result, Recorded):
                continue
            events = result.events
            self.note(
                CommitSpan(
                    span.number,
                    span.causation,
                    span.trace,
                    span.enqueued_ns,
                    began_ns,
                    ended_ns,
                    commit.batch.session_id,
                    events[0].seq if events else 0,
                    events[-1].seq if events else 0,
                )
            )

    def _answers(self, commit: Commit) -> None:
        """What is told now is caused by the commit of that batch."""
        assert self._spans is not None
        self.tell_as(self._spans.pop(id(commit), self._own))

    def _trouble(self, error: JournalError) -> None:
        """The file failed, and batches wait for it: they are tried again in a while, and it is counted."""
        self.system.dead_letters.record(f"held_{error.kind}", self.ref.name, error)
        wait_s = self.committer.try_again_in_s
        if wait_s is not None:
            self.after(wait_s, _TryHeld(), key="held")
