"""Group commit: batches in, one transaction for many, then the subscribers, then the answers.

Order is the promise (C09): commit, then tell the hub, then answer who asked. Answers come in the order asked. While
further messages wait, batches are collected; so the group is as large as the disk is slow, and a lone batch waits for
nobody. It decides nothing about turns.

A failing disk ends nothing. A batch whose sender waits for the answer (a new message) gets :class:`CommitFailed` at
once; one that was promised (``keep``) is held here, before everything that comes later, and tried again with growing
pauses until it is durable: so nothing overtakes anything, and what a session did while the disk was full stands in the
journal in the order in which it happened. What a subscriber does can neither fail nor hold a commit: the hub only marks
and wakes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from lastword.actors.core.errors import JournalError, LastwordError
from lastword.actors.core.events import AssistantMessage, Draft, Event, StallDiagnosed, ToolFinished, ToolStarted
from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import Batch, Journal, Recorded

GROUP_MAX: Final = 256
"""Batches in one transaction."""

GROUP_CHARS_MAX: Final = 1_000_000
"""Characters of text in one transaction, about; a single larger batch goes alone."""

RETRY_PAUSES_S: Final = (0.05, 0.2, 0.75)
"""A group that failed for a passing reason is tried again after each of these; then it has failed."""

HOLD_PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Pauses between the tries while batches are held; the last one again and again. A new message tries at once."""

HELD_MAX: Final = 100_000
"""Batches held while the file fails; beyond it a batch is answered by its failure, and its sender offers it again."""

_BATCH_CHARS: Final = 500  # ids, tags and figures of one batch


class Answerable(Protocol):
    """Who is told the result: a ref, or anything else with its ``tell``."""

    def tell(self, message: object, *, control: bool = False) -> None: ...


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Record this. ``token`` comes back in the answer; without ``reply_to`` nobody is answered.

    ``keep``: hold it while the file fails, instead of answering the failure. ``chars``: about how much text it holds,
    where the sender has counted it (:func:`chars_of`).
    """

    batch: Batch
    reply_to: Answerable | None = None
    token: Any = None
    keep: bool = False
    chars: int = 0


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """It is durable."""

    token: Any
    recorded: Recorded


class CommitFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of the batch was recorded."""

    token: Any
    error: JournalError


OnRecord: TypeAlias = Callable[[Sequence[Commit], Sequence[Recorded | JournalError], int, int], None]
JournalCommand: TypeAlias = Commit
JournalAnswer: TypeAlias = Committed | CommitFailed


class CommitStats(msgspec.Struct):
    """What the writer has done so far; counts."""

    groups: int = 0
    batches: int = 0
    largest_group: int = 0
    retries: int = 0
    failed: int = 0
    held: int = 0
    hold_tries: int = 0
    publish_failures: int = 0
    answers_lost: int = 0


class GroupCommitter:
    """The logic of the writer, without an actor around it. One thread; no method raises.

    Args:
        publish: tells the subscribers; must not block. What it raises is counted and goes no further.
        now_wall_s: Unix seconds.
        before_record: runs before each transaction; a seam for tests (a slow or failing sync).
        on_trouble: told each time that the file fails while batches are held.
        on_record: told of each group that the file took, before anyone else is: its batches with their results, and
            the ``perf_counter_ns`` before and behind it. None: nothing is measured.
        on_answer: told of each batch before its answer is told.
        stats: where it counts what it does; one writes, others may read it at any time.
    """

    def __init__(
        self,
        journal: Journal,
        publish: Callable[[Sequence[Event]], None],
        now_wall_s: Callable[[], float],
        *,
        sleep: Callable[[float], None] = time.sleep,
        before_record: Callable[[], None] | None = None,
        on_trouble: Callable[[JournalError], None] | None = None,
        on_record: OnRecord | None = None,
        on_answer: Callable[[Commit], None] | None = None,
        stats: CommitStats | None = None,
    ) -> None:
        self.on_record = on_record
        self.on_answer = on_answer
        self.stats = stats if stats is not None else CommitStats()
        self._journal = journal
        self._publish = publish
        self._now_wall_s = now_wall_s
        self._sleep = sleep
        self._before_record = before_record
        self._on_trouble = on_trouble
        self._pending: list[Commit] = []
        self._chars = 0
        self._held: deque[Commit] = deque()
        self._held_since: dict[SessionId, float] = {}
        self._trouble: JournalError | None = None
        self._hold_tries = 0

    @property
    def held(self) -> int:
        """Batches that wait for the file."""
        return len(self._held)

    @property
    def try_again_in_s(self) -> float | None:
        """When :meth:`try_held` is due; None where nothing is held."""
        return HOLD_PAUSES_S[min(self._hold_tries, len(HOLD_PAUSES_S)) - 1] if self._held else None

    def add(self, commit: Commit, *, more_waiting: bool) -> None:
        """Take a batch; commit now unless more are waiting and the group has room."""
        chars = commit.chars or chars_of(commit.batch)
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
        self.stats.batches += len(commits)
        if not self._held:
            if not self._commit(commits, pauses=RETRY_PAUSES_S):
                self._failed_again()
            return
        for commit in commits:
            if commit.keep and len(self._held) >= HELD_MAX:
                assert self._trouble is not None
                self._answer(commit, self._trouble)
            else:
                self._hold(commit)
        if not all(commit.keep for commit in commits):
            self.try_held()  # somebody waits for an answer

    def try_held(self) -> None:
        """Try what is held once more, oldest first; stop at the first group that fails."""
        while self._held:
            group = [self._held.popleft() for _ in range(min(GROUP_MAX, len(self._held)))]
            rest, self._held = self._held, deque()
            committed = self._commit(group, pauses=())
            later = list(rest)
            if not committed:
                assert self._trouble is not None
                for commit in later:
                    if not commit.keep:
                        self._answer(commit, self._trouble)
                later = [commit for commit in later if commit.keep]
            self._held.extend(later)
            if not committed:
                self._failed_again()
                return
        self._tell_recovery()

    def _failed_again(self) -> None:
        if not self._held:
            self._journal.refused()
            return
        self._hold_tries += 1
        self.stats.hold_tries += 1
        if self._on_trouble is not None and self._trouble is not None:
            self._on_trouble(self._trouble)

    def _commit(self, commits: list[Commit], *, pauses: Sequence[float]) -> bool:
        """One group; False where the file failed, and what is to be kept was held."""
        self.stats.groups += 1
        self.stats.largest_group = max(self.stats.largest_group, len(commits))
        on_record = self.on_record
        began_ns = time.perf_counter_ns() if on_record is not None else 0
        results = self._record([commit.batch for commit in commits], pauses)
        if isinstance(results, JournalError):
            self._trouble = results
            for commit in commits:
                if commit.keep and results.kind != "journal_closed":
                    self._hold(commit)
                else:
                    self._answer(commit, results)
            return False
        if on_record is not None:
            on_record(commits, results, began_ns, time.perf_counter_ns())
        for result in results:
            if isinstance(result, Recorded) and result.events:
                try:
                    self._publish(result.events)
                except Exception:  # a subscriber's trouble is not the journal's: it catches up from the file
                    self.stats.publish_failures += 1
        for commit, result in zip(commits, results, strict=True):
            self._answer(commit, result)
        return True

    def _hold(self, commit: Commit) -> None:
        self._held.append(commit)
        self.stats.held = max(self.stats.held, len(self._held))
        self._held_since.setdefault(commit.batch.session_id, self._now_wall_s())

    def _tell_recovery(self) -> None:
        """All is durable: each session that waited has it on record how long, and why."""
        since, self._held_since, self._hold_tries = self._held_since, {}, 0
        trouble, self._trouble = self._trouble, None
        if trouble is None or not since:
            return
        now = self._now_wall_s()
        for session_id, began in since.items():
            waited_s = max(0.0, now - began)
            body = StallDiagnosed(
                waits_for="the journal's file", elapsed_s=waited_s, quiet_s=waited_s, evidence=trouble.reason
            )
            self._commit([Commit(batch=Batch(session_id=session_id, drafts=(Draft(body=body),)))], pauses=())

    def _record(
        self, batches: Sequence[Batch], pauses_s: Sequence[float]
    ) -> Sequence[Recorded | JournalError] | JournalError:
        """The result of each batch; or the failure of the file, which nothing of the group survived."""
        pauses = iter(pauses_s)
        while True:
            try:
                if self._before_record is not None:
                    self._before_record()
                return self._journal.record(batches, self._now_wall_s())
            except JournalError as error:
                pause_s = next(pauses, None) if error.retryable else None
                if pause_s is None:
                    return error
                self.stats.retries += 1
                self._sleep(pause_s)
            except Exception as error:
                failed = JournalError("journal_failed", f"the journal raised {type(error).__name__}")
                failed.__cause__ = error
                return [failed] * len(batches)

    def _answer(self, commit: Commit, result: Recorded | JournalError) -> None:
        answer: JournalAnswer
        if self.on_answer is not None:
            self.on_answer(commit)
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


def chars_of(batch: Batch) -> int:
    """About how much text it holds."""
    chars = _BATCH_CHARS
    if batch.accept is not None:
        chars += len(batch.accept.text)
    for message in batch.messages:
        chars += len(message.text)
    if batch.completion is not None and batch.completion.answer is not None:
        chars += 2 * len(batch.completion.answer)  # it stands in the row and in the event
    if batch.lines is not None:
        chars += sum(map(len, batch.lines.lines))
    for draft in batch.drafts:
        body = draft.body
        if isinstance(body, AssistantMessage):
            chars += len(body.text)
        elif isinstance(body, ToolFinished):
            chars += len(body.result)
        elif isinstance(body, ToolStarted):
            chars += len(body.arguments)
    return chars
