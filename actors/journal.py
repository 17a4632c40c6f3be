"""The journal's one writer as an actor: a shell around :class:`lastword.actors.group_commit.GroupCommitter`.

Spawn it pinned, one per journal: it is the actor that may block on the disk. It decides nothing about turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from lastword.actors.core.events import Event
from lastword.actors.core.ports import Journal
from lastword.actors.group_commit import Commit, CommitFailed, CommitStats, Committed, GroupCommitter, JournalCommand
from lastword.actors.system.actor import Actor

__all__ = ["Commit", "CommitFailed", "CommitStats", "Committed", "JournalActor", "JournalCommand"]


class JournalActor(Actor):
    """Handles :class:`Commit`, tells Committed or CommitFailed. What it has taken is committed before it ends."""

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[Sequence[Event]], None],
        *,
        before_record: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.committer = GroupCommitter(journal, publish, self.clock.wall, before_record=before_record)

    def receive(self, message: JournalCommand) -> None:
        match message:
            case Commit():
                self.committer.add(message, more_waiting=self.more_waiting())
            case _:
                assert_never(message)

    def stopped(self) -> None:
        self.committer.flush()
