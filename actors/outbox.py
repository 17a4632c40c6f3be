"""The way of one actor to the journal: batches out, acknowledgements in, nothing dropped.

While the file fails the journal keeps what was promised, in order; only a new message is refused, and its caller told.
A batch that was refused for itself is offered again, with growing pauses. Where the journal's mailbox is full, what is
sent waits here in its order, and nothing overtakes it. Not thread-safe: lives in one actor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count

from lastword.actors.core.ports import Batch
from lastword.actors.group_commit import chars_of
from lastword.actors.journal import Commit, CommitFailed, Committed
from lastword.actors.system.flow import Flow, weight
from lastword.actors.system.ref import Ref

RETRY_S = 1.0
"""First pause before a refused batch is offered again; bounded in rate, not in count: a commit that was promised is
kept. Each further one is twice as long, up to :data:`RETRY_MAX_S`."""
RETRY_MAX_S = 60.0
FULL_PAUSE_S = 0.25
"""Where the journal's mailbox was full: before what waits is offered again."""


class Retry:
    """A timer's message: offer this batch again."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token


class Outbox:
    """Sends batches and keeps those that are not acknowledged.

    Args:
        journal: the journal actor.
        me: who is answered.
        retry: arms a timer that brings a :class:`Retry` back to this actor.
        flow: counts what is not acknowledged, by its weight, as the share ``share``.
    """

    def __init__(
        self,
        journal: Ref,
        me: Ref,
        retry: Callable[[float, Retry], None],
        flow: Flow | None = None,
        share: Hashable = "",
    ) -> None:
        self._journal = journal
        self._me = me
        self._retry = retry
        self._tokens = count(1)
        self._open: dict[int, Commit] = {}
        self._refusals: dict[int, int] = {}
        self._unsent: list[int] = []
        """The journal's mailbox was full: these wait, oldest first."""
        self._flow = flow
        self._share = share

    @property
    def empty(self) -> bool:
        """Whether everything that was sent is durable."""
        return not self._open

    @property
    def failing(self) -> bool:
        """Whether something that was sent could not be committed yet."""
        return bool(self._refusals)

    def send(self, batch: Batch) -> int:
        """Offer a batch; the token comes back with the answer."""
        token = next(self._tokens)
        chars = chars_of(batch)
        commit = Commit(batch=batch, reply_to=self._me, token=token, keep=batch.accept is None, chars=chars)
        self._open[token] = commit
        if self._flow is not None:
            self._flow.take(self._share, weight(chars))
        self._offer(commit)
        return token

    def committed(self, answer: Committed) -> Batch | None:
        """Note an answer; the batch that it is about (None where it was answered before)."""
        self._refusals.pop(answer.token, None)
        return self._done(answer.token)

    def failed(self, answer: CommitFailed) -> Batch | None:
        """Note a failure. A batch with a new message is given up and returned: its sender must be told; any other
        is offered again after a pause.
        """
        commit = self._open.get(answer.token)
        if commit is None or not commit.keep:
            return self._done(answer.token)
        refusals = self._refusals[answer.token] = self._refusals.get(answer.token, 0) + 1
        self._retry(min(RETRY_MAX_S, RETRY_S * 2 ** min(refusals - 1, 10)), Retry(answer.token))
        return None

    def again(self, retry: Retry) -> None:
        """The pause is over."""
        if self._unsent and self._unsent[0] == retry.token:
            while self._unsent and self._told(self._open[self._unsent[0]]):
                self._unsent.pop(0)
            self._wait_for_room()
        elif retry.token in self._open:
            self._offer(self._open[retry.token])

    def _done(self, token: int) -> Batch | None:
        commit = self._open.pop(token, None)
        if commit is None:
            return None
        if self._flow is not None:
            self._flow.give(self._share, weight(commit.chars))
        return commit.batch

    def _offer(self, commit: Commit) -> None:
        if self._unsent:
            self._unsent.append(commit.token)
        elif not self._told(commit):
            self._unsent.append(commit.token)
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        if self._unsent:
            self._retry(FULL_PAUSE_S, Retry(self._unsent[0]))

    def _told(self, commit: Commit) -> bool:
        """Whether the journal has it; one that has ended takes nothing any more, and the next life finds it anew."""
        return self._journal.try_tell(commit) or not self._journal.is_alive()
