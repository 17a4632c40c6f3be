"""The journal's one writer as an actor: a shell around :class:`lastword.actors.group_commit.GroupCommitter`.

Spawn it pinned, one per journal: it is the actor that may block on the disk. It decides nothing about turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import Event
from lastword.actors.core.ports import Journal
from lastword.actors.group_commit import Commit, CommitFailed, CommitStats, Committed, GroupCommitter, JournalCommand
from lastword.actors.system.actor import Actor
from lastword.actors.system.ref import Ref

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
    """

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[Sequence[Event]], None],
        *,
        before_record: Callable[[], None] | None = None,
        on_left: Callable[[int], None] | None = None,
        backlog: Backlog | None = None,
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
        )
        self._on_left = on_left

    def receive(self, message: JournalCommand | _TryHeld) -> None:
        match message:
            case Commit():
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

    def _trouble(self, error: JournalError) -> None:
        """The file failed, and batches wait for it: they are tried again in a while, and it is counted."""
        self.system.dead_letters.record(f"held_{error.kind}", self.ref.name, error)
        wait_s = self.committer.try_again_in_s
        if wait_s is not None:
            self.after(wait_s, _TryHeld(), key="held")
