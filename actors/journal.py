"""The journal's one writer as an actor: a shell around :class:`lastword.actors.group_commit.GroupCommitter`.

Spawn it pinned, one per journal: it is the actor that may block on the disk. It decides nothing about turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import assert_never

import msgspec

from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import Event
from lastword.actors.core.ports import Journal, Recorded
from lastword.actors.group_commit import (
    Answerable,
    Commit,
    CommitFailed,
    CommitStats,
    Committed,
    GroupCommitter,
    JournalCommand,
)
from lastword.actors.system.actor import Actor
from lastword.actors.system.envelope import next_number
from lastword.actors.system.ref import Link, Ref
from lastword.actors.system.tracing import CommitSpan, Record

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

    def receive(self, message: JournalCommand | _TryHeld) -> None:
        match message:
            case Commit():
                if self.system.tracer is not None:
                    message = self._marked(message)
                self.committer.add(message, more_waiting=self.more_waiting())
            case _TryHeld():
                self.committer.try_held()
            case _:
                assert_never(message)
        self._backlog.held = self.committer.held

    def stopped(self) -> None:
        self.committer.flush()
        if self.committer.held:
            self.committer.try_held()
        if self.committer.held and self._on_left is not None:
            self._on_left(self.committer.held)

    def _marked(self, commit: Commit) -> Commit:
        self.committer.on_record = self._recorded
        trace, cause = self.in_hand()
        mark = _Mark(commit.reply_to, self.note, trace, cause)
        return msgspec.structs.replace(commit, reply_to=mark)

    def _recorded(
        self, commits: Sequence[Commit], results: Sequence[Recorded | JournalError], began_ns: int, ended_ns: int
    ) -> None:
        if self.system.tracer is None:
            self.committer.on_record = None
        for commit, result in zip(commits, results, strict=True):
            mark = commit.reply_to
            if isinstance(mark, _Mark) and isinstance(result, Recorded):
                mark.recorded(commit.batch.session_id, result, began_ns, ended_ns)

    def _trouble(self, error: JournalError) -> None:
        """The file failed, and batches wait for it: they are tried again in a while, and it is counted."""
        self.system.dead_letters.record(f"held_{error.kind}", self.ref.name, error)
        wait_s = self.committer.try_again_in_s
        if wait_s is not None:
            self.after(wait_s, _TryHeld(), key="held")


class _Mark:
    """In the place of who is answered: knows which hop brought the batch, and gives it its span."""

    __slots__ = ("_cause", "_note", "_number", "_reply_to", "_taken_ns", "_trace")

    def __init__(
        self, reply_to: Answerable | None, note: Callable[[Record], None], trace: int | str, cause: int
    ) -> None:
        self._number = next_number()
        self._reply_to = Link(reply_to, trace, self._number) if isinstance(reply_to, Ref) else reply_to
        self._note = note
        self._trace = trace
        self._cause = cause
        self._taken_ns = perf_counter_ns()

    def tell(self, message: object, *, control: bool = False) -> None:
        """Answer, as caused by the commit."""
        if self._reply_to is not None:
            self._reply_to.tell(message, control=control)

    def recorded(self, session_id: str, recorded: Recorded, began_ns: int, ended_ns: int) -> None:
        """It is durable."""
        events = recorded.events
        self._note(
            CommitSpan(
                self._number,
                self._cause,
                self._trace if isinstance(self._trace, str) else None,
                self._taken_ns,
                began_ns,
                ended_ns,
                session_id,
                events[0].seq if events else 0,
                events[-1].seq if events else 0,
            )
        )
