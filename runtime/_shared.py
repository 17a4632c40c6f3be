"""Shared: what all sessions of one runtime have in common."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from lastword.actors.core.errors import UsageError
from lastword.actors.core.ids import ENTROPY_BYTES, MessageId, mint_message
from lastword.actors.core.limits import Limits
from lastword.actors.core.ports import Batch, Recorded
from lastword.actors.journal import Backlog, Commit, CommitFailed, Committed
from lastword.actors.system.ref import Ref
from lastword.actors.system.system import ActorSystem
from lastword.runtime._faults import Faults
from lastword.runtime._home import check_home
from lastword.runtime._hub import Hub
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._numbers import Numbers
from lastword.runtime._on_record import OnRecord

COMMIT_S = 30.0


class Shared(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Made once, by the runtime. Safe from any thread.

    Attributes:
        pid: of the process that all of it lives in.
        ended: whether the runtime is closed, or being closed.
        writer: the journal's one writer.
        behind: how many batches wait for it.
        on_record: the journal, as a host is told of it.
        entropy: so many random bytes.
    """

    pid: int
    ended: Callable[[], bool]
    system: ActorSystem
    journal: SqliteJournal
    on_record: OnRecord
    writer: Ref
    behind: Backlog
    hub: Hub
    numbers: Numbers
    faults: Faults
    limits: Limits
    entropy: Callable[[int], bytes]

    def check_here(self) -> None:
        """Whether this is the process that the runtime lives in.

        Raises:
            UsageError: ``forked``.
        """
        check_home(self.pid)

    def check_open(self) -> None:
        """Whether the runtime still takes calls.

        Raises:
            UsageError: ``runtime_closed``.
        """
        if self.ended():
            raise UsageError("runtime_closed", "the runtime is closed")

    def fresh_id(self) -> MessageId:
        """For a message to which the host gave none."""
        return mint_message(self.system.clock.wall(), self.entropy(ENTROPY_BYTES))

    def commit(self, batch: Batch) -> Recorded:
        """Have it written, and wait for that: :data:`COMMIT_S` at most.

        Raises:
            JournalError: it could not be committed.
            TimeoutError: it is not yet.
        """
        answer: Future[Recorded] = Future()
        self.writer.tell(Commit(batch=batch, reply_to=_Reply(answer)))
        return answer.result(timeout=self.system.wait_s(answer.done, COMMIT_S))


class _Reply:
    """Takes the journal actor's answer for a thread that waits."""

    def __init__(self, future: Future[Recorded]) -> None:
        self._future = future

    def tell(self, message: object, *, control: bool = False) -> None:  # noqa: ARG002
        match message:
            case Committed():
                self._future.set_result(message.recorded)
            case CommitFailed():
                self._future.set_exception(message.error)
            case _:
                raise AssertionError(message)
