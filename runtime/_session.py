"""Session: the whole surface of one conversation: run, send, events, snapshot, close (C10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from lastword.actors.admission import overloaded
from lastword.actors.core.delivery import Delivery, Sendable
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.events import Event
from lastword.actors.core.ids import SessionId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.snapshot import Snapshot
from lastword.actors.session import GetSnapshot, SwitchTo
from lastword.runtime._asking import Asking, sent
from lastword.runtime._counterpart import Counterpart
from lastword.runtime._requests import check_after, check_grace, command_of, run_of
from lastword.runtime._steps import Steps, blocked

if TYPE_CHECKING:
    from lastword.actors.system.ref import Ref
    from lastword.runtime._shared import Shared

SNAPSHOT_S = 5.0
CLOSE_S = 60.0
JOURNAL_S = 5.0
"""How long the journal may fail, beyond the grace of the CLI, before who waits for the end of a session is told so."""
CLI_END_S = 5.0
"""How long the end of a CLI that is left may take, before a failing journal is told as what is waited for."""
SWITCH_S = 60.0
"""How long the end of the CLI that is left and the commit may take."""

_T = TypeVar("_T")


class Session:
    """One durable conversation with one provider. Every method is safe from any thread of the process that opened the
    runtime; in one that was forked off it each raises ``UsageError`` ``forked``.

    Made by :meth:`lastword.Runtime.session`.
    """

    def __init__(
        self,
        shared: Shared,
        session_id: SessionId,
        ref: Ref | None,
        *,
        held: bool = False,
        on_closed: Callable[[Session], None] | None = None,
    ) -> None:
        self._counterpart = Counterpart(shared, session_id, ref, held=held)
        self._shared = shared
        self._on_closed = on_closed

    @property
    def session_id(self) -> SessionId:
        """The id by which the session is found again."""
        return self._counterpart.session_id

    def run(
        self,
        text: str,
        *,
        deadline_s: float | None = None,
        message_id: str | None = None,
        queue: bool = False,
    ) -> Completion:
        """Send a message and wait for the completion of the turn that it ends in.

        Args:
            text: the message.
            deadline_s: after so many seconds the turn is interrupted and settles ``cancelled``, ``kind="deadline"``: at
                once where the CLI stops. One that does not heed that within 10 s (structured) or 15 s (in a pane) is
                ended, which takes 4 s at most. None: no limit; a turn has no hidden clock.
            message_id: the host's own id; the same id again is delivered once: it waits for what the first one came
                to. An id whose message ended undelivered stays so: ``not_delivered``.
            queue: take the message also while a turn is active, instead of refusing it as ``busy``.

        Returns: how the turn ended, whatever the status: a failed turn is a value, not an exception.

        Raises:
            RejectedError: the message was not accepted (``busy``, ``empty_message``, ``unsupported_text``,
                ``session_closed``, …), or was accepted as pending and proved undelivered (``not_delivered``).
            JournalError: it could not be committed; nothing was delivered.
            KeyboardInterrupt: only at the second Ctrl-C; the first interrupts the turn and waits for its completion.
        """
        asking = Asking(self._counterpart, run_of(text, deadline_s, message_id, self._shared.fresh_id(), queue=queue))
        try:
            done = self._blocked(asking.completed())
        except KeyboardInterrupt:
            asking.abandon()
            done = self._blocked(asking.end())
        return self._shared.hub.returned(done)

    def send(self, what: Sendable, *, message_id: str | None = None, deadline_s: float | None = None) -> Delivery:
        """Submit a message, or an Interrupt, an Answer to a dialog, or a Command of the CLI's own.

        Returns as soon as the message is accepted and committed; what becomes of it is told by events. The same
        ``message_id`` again gives the first acknowledgement (``duplicate`` is set) and delivers nothing.

        Raises:
            RejectedError: not accepted; nothing was delivered. ``not_delivered``: that ``message_id`` was accepted
                before and ended in ``message_undelivered``.
            JournalError: it could not be committed; nothing was delivered.
        """
        command = command_of(what, message_id, deadline_s, self._shared.fresh_id())
        return self._blocked(sent(self._counterpart, command))

    def events(self, after: int = 0) -> Iterator[Event]:
        """The session's events from ``seq`` ``after`` + 1 on: first those on record, then live ones, without a gap.

        Ends when the session is closed or the runtime is. One thread at a time per iterator; a slow one loses nothing.

        Raises:
            UsageError: ``usage``: ``after`` is no ``seq``.
        """
        check_after(after)
        return self._shared.hub.subscribe(self.session_id, after)

    def snapshot(self) -> Snapshot:
        """What the session is now.

        Raises:
            ActorError: ``actor_timeout``: it did not answer within :data:`SNAPSHOT_S`.
            RejectedError: ``overloaded``: too many calls wait for it.
        """
        self._shared.check_here()
        ref = self._counterpart.ref
        if ref is None or not ref.is_alive():
            return self._shared.on_record.snapshot(self.session_id)
        calls_max = self._shared.limits.calls_max
        try:
            snapshot: Snapshot = ref.ask(GetSnapshot(), timeout_s=SNAPSHOT_S, waiting_max=calls_max)
        except LastwordError as error:
            if error.kind == "mailbox_full":
                raise overloaded(f"{calls_max} calls wait for this session") from error
            if error.kind != "actor_dead":
                raise
            return self._shared.on_record.snapshot(self.session_id)
        return snapshot

    def close(self, *, grace_s: float = 2.0) -> None:
        """End the CLI and close the conversation for good; a running turn settles ``cancelled``. Idempotent.

        Args:
            grace_s: between the gentle and the hard end of the CLI's process group, seconds.

        Raises:
            UsageError: ``usage``: that is no number of seconds; nothing was ended.
            JournalError: ``journal_full``, ``journal_unwritable``, …: the journal cannot take the session's end. Its
                CLI is ended and it takes nothing more; the end is written once the journal can be, and another
                ``close`` waits for that.
            RejectedError: ``timeout``: it did not end within :data:`CLOSE_S`.
        """
        self._shared.check_here()
        check_grace(grace_s)
        self._counterpart.check_held()
        reply = self._counterpart.ask_close(grace_s, forever=True)
        self._blocked(self._counterpart.closed(reply, bound_s=CLOSE_S, journal_s=grace_s + JOURNAL_S))
        if self._on_closed is not None:
            self._on_closed(self)

    # --- inside -------------------------------------------------------------------------------------------------

    def _switch(self, **wanted: Any) -> None:
        """Go on with another provider or model; returns once that is committed."""
        reply: Future[None] = Future()
        ref = self._counterpart.tell(SwitchTo(reply=reply, **wanted), reply)
        wait = self._counterpart.answer(reply, ref, bound_s=SWITCH_S, journal_s=CLI_END_S + JOURNAL_S)
        self._blocked(wait)

    def _blocked(self, steps: Steps[_T]) -> _T:
        return blocked(steps, self._shared.system)
