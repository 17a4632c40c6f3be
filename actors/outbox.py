"""The way of one actor to the journal: batches out, acknowledgements in, nothing dropped.

While the file fails the journal keeps what was promised, in order; only a new message is refused, and its caller told.
A batch that was refused for itself is offered again, with growing pauses. Not thread-safe: lives in one actor.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from lastword.actors.core.ports import Batch
from lastword.actors.journal import Commit, CommitFailed, Committed
from lastword.actors.system.ref import Ref

RETRY_S = 1.0
"""First pause before a refused batch is offered again; bounded in rate, not in count: a commit that was promised is
kept. Each further one is twice as long, up to :data:`RETRY_MAX_S`."""
RETRY_MAX_S = 60.0


class Retry:
    """A timer's message: offer this batch again."""

    __slots__ = ("batch", "token")

    def __init__(self, token: int, batch: Batch) -> None:
        self.token = token
        self.batch = batch


class Outbox:
    """Sends batches and keeps those that are not acknowledged.

    Args:
        journal: the journal actor.
        me: who is answered.
        retry: arms a timer that brings a :class:`Retry` back to this actor.
    """

    def __init__(self, journal: Ref, me: Ref, retry: Callable[[float, Retry], None]) -> None:
        self._journal = journal
        self._me = me
        self._retry = retry
        self._tokens = count(1)
        self._open: dict[int, Batch] = {}
        self._refusals: dict[int, int] = {}

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
        self._open[token] = batch
        self._offer(token, batch)
        return token

    def committed(self, answer: Committed) -> Batch | None:
        """Note an answer; the batch that it is about (None where it was answered before)."""
        self._refusals.pop(answer.token, None)
        return self._open.pop(answer.token, None)

    def failed(self, answer: CommitFailed) -> Batch | None:
        """Note a failure. A batch with a new message is given up and returned: its sender must be told; any other
        is offered again after a pause.
        """
        batch = self._open.get(answer.token)
        if batch is None or batch.accept is not None:
            return self._open.pop(answer.token, None)
        refusals = self._refusals[answer.token] = self._refusals.get(answer.token, 0) + 1
        self._retry(min(RETRY_MAX_S, RETRY_S * 2 ** min(refusals - 1, 10)), Retry(answer.token, batch))
        return None

    def again(self, retry: Retry) -> None:
        """The pause is over."""
        if retry.token in self._open:
            self._offer(retry.token, retry.batch)

    def _offer(self, token: int, batch: Batch) -> None:
        self._journal.tell(Commit(batch=batch, reply_to=self._me, token=token, keep=batch.accept is None))
