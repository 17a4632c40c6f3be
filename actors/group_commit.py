"""Group commit: batches in, one transaction for many, then the subscribers, then the answers.

Order is the promise (C09): commit, then tell the hub, then answer who asked. Answers come in the order asked. While
further messages wait, batches are collected; so the group is as large as the disk is slow, and a lone batch waits for
nobody. It decides nothing about turns.

A failing disk ends nothing: each batch is answered by :class:`CommitFailed`, and the next group is tried afresh.
What a subscriber does can neither fail nor hold a commit: the hub only marks and wakes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from lastword.actors.core.errors import JournalError, LastwordError
from lastword.actors.core.events import AssistantMessage, Event, ToolFinished, ToolStarted
from lastword.actors.core.ports import Batch, Journal, Recorded

GROUP_MAX: Final = 256
"""Batches in one transaction."""

GROUP_CHARS_MAX: Final = 1_000_000
"""Characters of text in one transaction, about; a single larger batch goes alone."""

RETRY_PAUSES_S: Final = (0.05, 0.2, 0.75)
"""A group that failed for a passing reason is tried again after each of these; then it has failed."""

_BATCH_CHARS: Final = 500  # ids, tags and figures of one batch


class Answerable(Protocol):
    """Who is told the result: a ref, or anything else with its ``tell``."""

    def tell(self, message: object, *, control: bool = False) -> None: ...


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Record this. ``token`` comes back in the answer; without ``reply_to`` nobody is answered."""

    batch: Batch
    reply_to: Answerable | None = None
    token: Any = None


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """It is durable."""

    token: Any
    recorded: Recorded


class CommitFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of the batch was recorded."""

    token: Any
    error: JournalError


JournalCommand: TypeAlias = Commit
JournalAnswer: TypeAlias = Committed | CommitFailed


class CommitStats(msgspec.Struct):
    """What the writer has done so far; counts."""

    groups: int = 0
    batches: int = 0
    largest_group: int = 0
    retries: int = 0
    failed: int = 0
    publish_failures: int = 0
    answers_lost: int = 0


class GroupCommitter:
    """The logic of the writer, without an actor around it. One thread; no method raises.

    Args:
        publish: tells the subscribers; must not block. What it raises is counted and goes no further.
        now_wall_s: Unix seconds.
        before_record: runs before each transaction; a seam for tests (a slow or failing sync).
    """

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[Sequence[Event]], None],
        now_wall_s: Callable[[], float],
        *,
        sleep: Callable[[float], None] = time.sleep,
        before_record: Callable[[], None] | None = None,
    ) -> None:
        self.stats = CommitStats()
        self._journal = journal
        self._publish = publish
        self._now_wall_s = now_wall_s
        self._sleep = sleep
        self._before_record = before_record
        self._pending: list[Commit] = []
        self._chars = 0

    def add(self, commit: Commit, *, more_waiting: bool) -> None:
        """Take a batch; commit now unless more are waiting and the group has room."""
        chars = _chars_of(commit.batch)
        if self._pending and self._chars + chars > GROUP_CHARS_MAX:
            self.flush()
        self._pending.append(commit)
        self._chars += chars
        if not more_waiting or len(self._pending) >= GROUP_MAX or self._chars >= GROUP_CHARS_MAX:
            self.flush()

    def flush(self) -> None:
        """Commit what was collected: durable, then published, then answered."""
        commits, self._pending, self._chars = self._pending, [], 0
        if not commits:
            return
        self.stats.groups += 1
        self.stats.batches += len(commits)
        self.stats.largest_group = max(self.stats.largest_group, len(commits))
        results = self._record([commit.batch for commit in commits])
        for result in results:
            if isinstance(result, Recorded) and result.events:
                try:
                    self._publish(result.events)
                except Exception:  # a subscriber's trouble is not the journal's: it catches up from the file
                    self.stats.publish_failures += 1
        for commit, result in zip(commits, results, strict=True):
            self._answer(commit, result)

    def _record(self, batches: Sequence[Batch]) -> Sequence[Recorded | JournalError]:
        pauses = iter(RETRY_PAUSES_S)
        while True:
            try:
                if self._before_record is not None:
                    self._before_record()
                return self._journal.record(batches, self._now_wall_s())
            except JournalError as error:
                pause_s = next(pauses, None) if error.retryable else None
                if pause_s is None:
                    return [error] * len(batches)
                self.stats.retries += 1
                self._sleep(pause_s)
            except Exception as error:
                failed = JournalError("journal_failed", f"the journal raised {type(error).__name__}")
                failed.__cause__ = error
                return [failed] * len(batches)

    def _answer(self, commit: Commit, result: Recorded | JournalError) -> None:
        answer: JournalAnswer
        if isinstance(result, Recorded):
            answer = Committed(token=commit.token, recorded=result)
        else:
            self.stats.failed += 1
            answer = CommitFailed(token=commit.token, error=result)
        if commit.reply_to is None:
            return
        try:
            try:
                commit.reply_to.tell(answer)
            except LastwordError:  # its mailbox is full of others' messages: the answer goes by the control lane
                commit.reply_to.tell(answer, control=True)
        except Exception:
            self.stats.answers_lost += 1


def _chars_of(batch: Batch) -> int:
    """About how much text it holds."""
    chars = _BATCH_CHARS
    if batch.accept is not None:
        chars += len(batch.accept.text)
    for message in batch.messages:
        chars += len(message.text)
    if batch.completion is not None and batch.completion.answer is not None:
        chars += 2 * len(batch.completion.answer)  # it stands in the row and in the event
    for draft in batch.drafts:
        body = draft.body
        if isinstance(body, AssistantMessage):
            chars += len(body.text)
        elif isinstance(body, ToolFinished):
            chars += len(body.result)
        elif isinstance(body, ToolStarted):
            chars += len(body.arguments)
    return chars
