"""Session: the whole surface of one conversation: run, send, events, snapshot, close (C10). Twins for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lastword.actors.admission import delivery_of, overloaded
from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt, Sendable
from lastword.actors.core.errors import LastwordError, RejectedError, SessionFailedError, UsageError
from lastword.actors.core.events import Event
from lastword.actors.core.ids import MessageId, SessionId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.snapshot import Handle, Snapshot
from lastword.actors.session import Abandon, CloseSession, Control, GetSnapshot, Submit, SwitchTo

if TYPE_CHECKING:
    from lastword.actors.system.ref import Ref
    from lastword.runtime._shared import Shared

ACK_S = 30.0
"""How long an acknowledgement may take (it waits for the journal's commit only)."""
SNAPSHOT_S = 5.0
CLOSE_S = 60.0
JOURNAL_S = 5.0
"""How long the journal may fail, beyond the grace of the CLI, before who waits for the end of a session is told so."""
CLI_END_S = 5.0
"""How long the end of a CLI that is left may take, before a failing journal is told as what is waited for."""
SWITCH_S = 60.0
"""How long the end of the CLI that is left and the commit may take."""
TEXT_BYTES_MAX = 1024 * 1024
"""Of one message, UTF-8; a longer one is refused: put it into a file and name the file."""
SEQ_MAX = 2**63 - 1
ID_CHARS_MAX = 200
"""Of a ``message_id`` that the host brings."""
REPLACED_S = 30.0
"""How long another actor may take to stand in for one that failed, or its turns to get their last word."""
LIVENESS_S = 1.0
"""While waiting for a completion: how often it is checked that the session's actor still lives."""

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
        self._shared = shared
        self._on_closed = on_closed
        self._session_id = session_id
        self._ref = ref
        self._fault = ""
        """Why its actor failed, and no other takes its place in this life."""
        self._held = held
        """Its CLI lives and is not ours: it can be read here, and nothing else."""

    @property
    def session_id(self) -> SessionId:
        """The id by which the session is found again."""
        return self._session_id

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
        outcome: Future[Completion] = Future()
        fresh = self._fresh_id
        submission = _submission(text, deadline_s, message_id, fresh, run=not queue, reply=Future(), outcome=outcome)
        current = [submission]
        try:
            done = self._asked(submission, current)
        except KeyboardInterrupt:
            self._abandon(current[0])
            assert current[0].outcome is not None
            done = self._wait(current[0].outcome)
        assert isinstance(done, Completion)
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
        command = _command(what, message_id, deadline_s, self._fresh_id)
        if isinstance(command, Control):
            return self._wait(command.reply, ACK_S, ref=self._tell(command, command.reply))
        ack = self._asked(command, [command])
        assert isinstance(ack, Delivery)
        return ack if message_id is not None or not ack.duplicate else msgspec.structs.replace(ack, duplicate=False)

    def events(self, after: int = 0) -> Iterator[Event]:
        """The session's events from ``seq`` ``after`` + 1 on: first those on record, then live ones, without a gap.

        Ends when the session is closed or the runtime is. One thread at a time per iterator; a slow one loses nothing.

        Raises:
            UsageError: ``usage``: ``after`` is no ``seq``.
        """
        check_after(after)
        return self._shared.hub.subscribe(self._session_id, after)

    def snapshot(self) -> Snapshot:
        """What the session is now.

        Raises:
            ActorError: ``actor_timeout``: it did not answer within :data:`SNAPSHOT_S`.
            RejectedError: ``overloaded``: too many calls wait for it.
        """
        self._shared.check_here()
        if self._ref is None or not self._ref.is_alive():
            return self._shared.on_record.snapshot(self._session_id)
        calls_max = self._shared.limits.calls_max
        try:
            snapshot: Snapshot = self._ref.ask(GetSnapshot(), timeout_s=SNAPSHOT_S, waiting_max=calls_max)
        except LastwordError as error:
            if error.kind == "mailbox_full":
                raise overloaded(f"{calls_max} calls wait for this session") from error
            if error.kind != "actor_dead":
                raise
            return self._shared.on_record.snapshot(self._session_id)
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
        if self._held:
            raise _held_error(self._session_id)
        self._close(grace_s, forever=True)

    # --- inside -------------------------------------------------------------------------------------------------

    def _close(self, grace_s: float, *, forever: bool) -> None:
        self._await_close(self._ask_close(grace_s, forever=forever), CLOSE_S, journal_s=grace_s + JOURNAL_S)
        if forever and self._ref is not None and self._on_closed is not None:
            self._on_closed(self)

    def _ask_close(self, grace_s: float, *, forever: bool) -> Future[None] | None:
        """None where there is nothing to close."""
        reply: Future[None] = Future()
        close = CloseSession(reply=reply, forever=forever, grace_s=grace_s)
        return reply if self._ref is not None and self._ref.try_tell(close) else None

    def _await_close(self, reply: Future[None] | None, bound_s: float, *, journal_s: float | None = None) -> None:
        if reply is None:
            return
        try:
            self._wait(reply, bound_s, journal_s=journal_s)
        except RejectedError as error:
            if error.kind != "session_closed":
                raise

    def _switch(self, **wanted: Any) -> None:
        """Go on with another provider or model; returns once that is committed."""
        reply: Future[None] = Future()
        ref = self._tell(SwitchTo(reply=reply, **wanted), reply)
        self._wait(reply, SWITCH_S, ref=ref, journal_s=CLI_END_S + JOURNAL_S)

    def _replaced(self, ref: Ref | None) -> None:
        """Its actor failed, and that one has taken its place."""
        with self._shared.faults.moved:
            self._ref = ref
            self._shared.faults.moved.notify_all()

    def _given_up(self, fault: str) -> None:
        """Its actor failed too often: what was open has its last word on record, and no other takes its place."""
        with self._shared.faults.moved:
            self._fault = fault
            self._shared.faults.moved.notify_all()

    def _asked(self, submission: Submit, current: list[Submit]) -> Completion | Delivery:
        """Tell it, and wait for what was asked for, also past an actor that failed: who takes its place is asked the
        same, under the same name, so nothing is delivered twice. ``current``: the one that was told last.
        """
        while True:
            current[:] = [submission]
            ref = self._ref
            try:
                ref = self._tell(submission, submission.reply)
                if submission.outcome is None:
                    return self._wait(submission.reply, ACK_S, ref=ref)
                return self._wait(submission.outcome, ACK_S, submission.reply, ref)
            except SessionFailedError as error:
                anew = self._after_failure(submission, ref, error)
                if not isinstance(anew, Submit):
                    return anew
                submission = anew

    def _after_failure(
        self, submission: Submit, ref: Ref | None, error: SessionFailedError
    ) -> Completion | Delivery | Submit:
        """What that actor left of the message: what it came to, where nobody takes its place; else the same question.
        Blocks for :data:`REPLACED_S` at most.

        Raises:
            SessionFailedError: it was not accepted, and nobody takes its place.
        """
        waited, shared = 0.0, self._shared

        def moved() -> bool:
            return self._ref is not ref or bool(self._fault) or shared.ended()

        while not moved() and waited < REPLACED_S:
            step = shared.system.wait_s(moved, LIVENESS_S)
            with self._shared.faults.moved:
                self._shared.faults.moved.wait_for(moved, step)
            waited += LIVENESS_S
        message_id = submission.message_id or submission.fresh_id
        assert message_id is not None
        if self._ref is ref or shared.ended():
            row = shared.on_record.message(message_id)
            if row is None:
                raise error
            if submission.outcome is None:
                return delivery_of(row)
            done = shared.on_record.completion(row.turn_id) if row.turn_id is not None else None
            if done is None:
                raise error
            return done
        outcome: Future[Completion] | None = Future() if submission.outcome is not None else None
        return msgspec.structs.replace(submission, message_id=message_id, reply=Future(), outcome=outcome)

    def _tell(self, command: Submit | Control | SwitchTo, reply: Future[Any]) -> Ref | None:
        """Whom it was told."""
        self._shared.check_here()
        calls_max = self._shared.limits.calls_max  # the rest of its mailbox is for its own actors
        if self._held:
            raise _held_error(self._session_id)
        ref = self._ref
        told = ref is not None and ref.try_tell(command, waiting_max=calls_max)
        if not told and not reply.done():
            if ref is not None and ref.is_alive():
                raise overloaded(f"{calls_max} calls wait for this session")
            raise self._ended(ref, "the session is closed")
        return ref

    @property
    def _fresh_id(self) -> MessageId:
        return self._shared.fresh_id()

    def _ended(self, ref: Ref | None, reason: str) -> RejectedError:
        """Why that actor does not answer any more."""
        if ref is None or not ref.has_failed():
            return RejectedError("session_closed", reason)
        fault = self._fault or self._shared.faults.why(self._session_id) or reason
        remedy = "Repair what failed, and open the runtime again" if self._fault else ""
        return SessionFailedError(fault, remedy=remedy)

    def _abandon(self, submission: Submit) -> None:
        """Nobody waits for it any more."""
        if self._ref is not None:
            self._ref.try_tell(Abandon(submit=submission))

    def _wait(
        self,
        future: Future[_T],
        bound_s: float | None = None,
        sign: Future[Any] | None = None,
        ref: Ref | None = None,
        *,
        journal_s: float | None = None,
    ) -> _T:
        """Wait without ever hanging on an actor that has died: the one that was told. The bound ends where the ``sign``
        came in time. ``journal_s``: so long on a journal that fails.
        """
        waited = failing = 0.0
        ref = ref or self._ref
        while True:
            if sign is not None and sign.done():
                bound_s = None
            step = LIVENESS_S if bound_s is None else min(LIVENESS_S, max(0.0, bound_s - waited))
            alive = ref is not None and ref.is_alive()
            try:
                return future.result(timeout=self._shared.system.wait_s(future.done, step))
            except concurrent.futures.TimeoutError:
                if future.done():
                    continue
                waited += step
                if not alive:
                    raise self._ended(ref, "the session ended before it answered") from None
                trouble = self._shared.journal.trouble if journal_s is not None else None
                failing = failing + step if trouble is not None else 0.0
                if trouble is not None and journal_s is not None and failing >= journal_s:
                    raise trouble from None
                if _overdue(bound_s, waited, sign):
                    raise RejectedError("timeout", f"the session did not answer within {bound_s:g} s") from None


class AsyncSession:
    """The same five for asyncio: nothing here blocks the loop. Safe from any task."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session_id(self) -> SessionId:
        """The id by which the session is found again."""
        return self._session.session_id

    async def run(
        self,
        text: str,
        *,
        deadline_s: float | None = None,
        message_id: str | None = None,
        queue: bool = False,
    ) -> Completion:
        """As :meth:`Session.run`. Cancelling the task that awaits it interrupts the turn, which still gets its one
        completion, told by the events.
        """
        outcome: Future[Completion] = Future()
        session = self._session
        fresh = session._fresh_id  # noqa: SLF001
        submission = _submission(text, deadline_s, message_id, fresh, run=not queue, reply=Future(), outcome=outcome)
        current = [submission]
        try:
            done = await self._asked(submission, current)
        except asyncio.CancelledError:
            session._abandon(current[0])  # noqa: SLF001
            raise
        assert isinstance(done, Completion)
        return session._shared.hub.returned(done)  # noqa: SLF001

    async def send(self, what: Sendable, *, message_id: str | None = None, deadline_s: float | None = None) -> Delivery:
        """As :meth:`Session.send`."""
        command = _command(what, message_id, deadline_s, self._session._fresh_id)  # noqa: SLF001
        if isinstance(command, Control):
            ref = self._session._tell(command, command.reply)  # noqa: SLF001
            return await self._wait(command.reply, ACK_S, ref=ref)
        ack = await self._asked(command, [command])
        assert isinstance(ack, Delivery)
        return ack if message_id is not None or not ack.duplicate else msgspec.structs.replace(ack, duplicate=False)

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """As :meth:`Session.events`; call it on a running loop."""
        check_after(after)
        return self._session._shared.hub.async_subscribe(self.session_id, after)  # noqa: SLF001

    async def snapshot(self) -> Snapshot:
        """As :meth:`Session.snapshot`."""
        self._session._shared.check_here()  # noqa: SLF001
        return await asyncio.to_thread(self._session.snapshot)

    async def close(self, *, grace_s: float = 2.0) -> None:
        """As :meth:`Session.close`."""
        self._session._shared.check_here()  # noqa: SLF001
        await asyncio.to_thread(self._session.close, grace_s=grace_s)

    async def _asked(self, submission: Submit, current: list[Submit]) -> Completion | Delivery:
        session = self._session
        while True:
            current[:] = [submission]
            ref = session._ref  # noqa: SLF001
            try:
                ref = session._tell(submission, submission.reply)  # noqa: SLF001
                if submission.outcome is None:
                    return await self._wait(submission.reply, ACK_S, ref=ref)
                return await self._wait(submission.outcome, ACK_S, submission.reply, ref)
            except SessionFailedError as error:
                anew = await asyncio.to_thread(session._after_failure, submission, ref, error)  # noqa: SLF001
                if not isinstance(anew, Submit):
                    return anew
                submission = anew

    async def _wait(
        self,
        future: Future[_T],
        bound_s: float | None = None,
        sign: Future[Any] | None = None,
        ref: Ref | None = None,
    ) -> _T:
        waiting: asyncio.Future[Any] = asyncio.wrap_future(future)
        waiting.add_done_callback(_seen)
        waited = 0.0
        ref = ref or self._session._ref  # noqa: SLF001
        while True:
            if sign is not None and sign.done():
                bound_s = None
            step = LIVENESS_S if bound_s is None else min(LIVENESS_S, max(0.0, bound_s - waited))
            alive = ref is not None and ref.is_alive()
            done, _ = await asyncio.wait({waiting}, timeout=step)
            if done:
                result: _T = waiting.result()
                return result
            waited += step
            if not alive:
                raise self._session._ended(ref, "the session ended before it answered")  # noqa: SLF001
            if _overdue(bound_s, waited, sign):
                raise RejectedError("timeout", f"the session did not answer within {bound_s:g} s")


def _overdue(bound_s: float | None, waited_s: float, sign: Future[Any] | None) -> bool:
    """Whether the bound ran out, and the sign that ends it did not come at the last moment."""
    return bound_s is not None and waited_s >= bound_s and (sign is None or not sign.done())


def _held_error(session_id: SessionId) -> RejectedError:
    return RejectedError(
        "session_held",
        f"a CLI of the session {session_id} lives that this host does not hold: nothing was done",
        remedy="Use the host that holds it; once that CLI has ended, find the session again.",
    )


def _seen(future: asyncio.Future[Any]) -> None:
    """A task that was cancelled never fetches what became of its wait: asyncio need not complain of that."""
    if not future.cancelled():
        future.exception()


# --- what a host may ask, checked before it reaches an actor ------------------------------------------------------


def check_grace(grace_s: object) -> None:
    """Whether that is a number of seconds.

    Raises:
        UsageError: ``usage``: it is not.
    """
    if not isinstance(grace_s, int | float) or isinstance(grace_s, bool) or not 0.0 <= grace_s < math.inf:
        raise UsageError("usage", f"grace_s is a number of seconds from 0 on, not {_shown(grace_s)}")


def check_after(after: object) -> None:
    """Whether that is the ``seq`` of an event, or 0.

    Raises:
        UsageError: ``usage``: it is not.
    """
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after <= SEQ_MAX:
        raise UsageError("usage", f"after is the seq of an event, an int from 0 on, not {_shown(after)}")


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def _command(what: Sendable, message_id: str | None, deadline_s: float | None, fresh_id: MessageId) -> Submit | Control:
    reply: Future[Delivery] = Future()
    match what:
        case Interrupt():
            if what.turn_id is not None:
                _check_id("turn_id", what.turn_id)
        case Answer():
            _check_id("dialog_id", what.dialog_id)
            if not isinstance(what.option, int) or isinstance(what.option, bool):
                raise UsageError("usage", f"an option is an int counted from 1, not {type(what.option).__name__}")
        case Command():
            _check_text(what.text)
        case _:
            return _submission(what, deadline_s, message_id, fresh_id, run=False, reply=reply, outcome=None)
    return Control(what=what, reply=reply)


def _submission(
    text: str,
    deadline_s: float | None,
    message_id: str | None,
    fresh_id: MessageId,
    *,
    run: bool,
    reply: Future[Delivery],
    outcome: Future[Completion] | None,
) -> Submit:
    _check_text(text)
    _check_deadline(deadline_s)
    if message_id is not None:
        _check_id("message_id", message_id)
    return Submit(
        text=text,
        reply=reply,
        message_id=MessageId(message_id) if message_id is not None else None,
        fresh_id=fresh_id,
        run=run,
        deadline_s=deadline_s,
        outcome=outcome,
    )


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UsageError("usage", f"a message is a str, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        reason = "the text is no Unicode: it holds half of a surrogate pair, or bytes that are no UTF-8"
        raise RejectedError("unsupported_text", reason, remedy="Replace them") from None
    if size > TEXT_BYTES_MAX:
        reason = f"the text has {size} bytes, at most {TEXT_BYTES_MAX} can be sent"
        raise RejectedError("unsupported_text", reason, remedy="Put it into a file and name the file")


def _check_deadline(deadline_s: object) -> None:
    if deadline_s is None:
        return
    if not isinstance(deadline_s, int | float) or isinstance(deadline_s, bool):
        raise UsageError("usage", f"deadline_s is a number of seconds, not {type(deadline_s).__name__}")
    if not math.isfinite(deadline_s) or deadline_s < 0:
        raise UsageError("usage", "deadline_s must be finite and not negative")


def _check_id(what: str, given: object) -> None:
    if not isinstance(given, str) or not 0 < len(given) <= ID_CHARS_MAX or not given.isprintable():
        raise UsageError("usage", f"a {what} is a printable str of 1 to {ID_CHARS_MAX} characters")


__all__ = ["AsyncSession", "Handle", "Session"]
