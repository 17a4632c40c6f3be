"""Counterpart: the actor behind a session, as the host's side has it. One that fails is replaced by another."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from lastword.actors.admission import overloaded
from lastword.actors.core.errors import RejectedError, SessionFailedError
from lastword.actors.core.ids import SessionId
from lastword.actors.replies import resolve
from lastword.actors.session import Abandon, CloseSession, Control, Submit, SwitchTo
from lastword.runtime._steps import Steps, Until

if TYPE_CHECKING:
    from lastword.actors.system.ref import Ref
    from lastword.runtime._shared import Shared

LIVENESS_S = 1.0
"""How often a wait looks around, where it waits for more than an answer; and how long an actor's end may be ahead of
the answer that somebody gives in its place."""
LOOK_S = 15.0
"""How often a wait for an answer looks around: the answer and the actor's end wake it, so nothing depends on that."""

_T = TypeVar("_T")


class Counterpart:
    """Tells it, and waits for what it answers. Safe from any thread.

    Attributes:
        ref: the actor that is there now; None: there is none.
        fault: why the last one failed, where no other takes its place in this life; or "".
        held: the session's CLI lives and is not ours: it can be read here, and nothing else.
    """

    def __init__(self, shared: Shared, session_id: SessionId, ref: Ref | None, *, held: bool = False) -> None:
        self.shared = shared
        self.session_id = session_id
        self.ref = ref
        self.fault = ""
        self.held = held

    # --- telling it ----------------------------------------------------------------------------------------------

    def tell(self, command: Submit | Control | SwitchTo, reply: Future[Any]) -> Ref | None:
        """Whom it was told.

        Raises:
            UsageError: ``forked``.
            RejectedError: ``session_held``, ``overloaded``, ``session_closed``; nothing was told.
        """
        self.shared.check_here()
        self.check_held()
        calls_max = self.shared.limits.calls_max  # the rest of its mailbox is for its own actors
        ref = self.ref
        told = ref is not None and ref.try_tell(command, waiting_max=calls_max)
        if not told and not reply.done():
            if ref is not None and ref.is_alive():
                raise overloaded(f"{calls_max} calls wait for this session")
            raise self._ended(ref, "the session is closed")
        return ref

    def abandon(self, submission: Submit) -> None:
        """Nobody waits for it any more."""
        if self.ref is not None:
            self.ref.try_tell(Abandon(submit=submission))

    def ask_close(self, grace_s: float, *, forever: bool) -> Future[None] | None:
        """Have it end its CLI, and for ever the session; None where there is nothing to close."""
        reply: Future[None] = Future()
        close = CloseSession(reply=reply, forever=forever, grace_s=grace_s)
        return reply if self.ref is not None and self.ref.try_tell(close) else None

    def check_held(self) -> None:
        """Whether its CLI is ours.

        Raises:
            RejectedError: ``session_held``.
        """
        if self.held:
            raise RejectedError(
                "session_held",
                f"a CLI of the session {self.session_id} lives that this host does not hold: nothing was done",
                remedy="Use the host that holds it; once that CLI has ended, find the session again.",
            )

    # --- waiting for it ------------------------------------------------------------------------------------------

    def answer(
        self,
        future: Future[_T],
        ref: Ref | None = None,
        *,
        bound_s: float | None = None,
        sign: Future[Any] | None = None,
        journal_s: float | None = None,
    ) -> Steps[_T]:
        """What the future comes to; never hangs on an actor that has died.

        Args:
            future: set by the actor.
            ref: the one that was told; None: the one that is there now.
            bound_s: how long it may take, seconds; None: as long as it likes.
            sign: where this is done in time, there is no bound any more.
            journal_s: so long on a journal that fails, seconds; None: it does not matter.

        Raises:
            RejectedError: ``timeout``; ``session_closed``: it has ended (``SessionFailedError``: of a failure).
            JournalError: what the journal has failed of for ``journal_s``.
        """
        ref = ref or self.ref
        if future.done():
            return future.result()
        woken = _Woken()
        if ref is not None:
            ref.when_ended(woken)
        try:
            return (yield from self._answer(future, ref, woken, bound_s, sign, journal_s))
        finally:
            if ref is not None:
                ref.forget_end(woken)

    def _answer(
        self,
        future: Future[_T],
        ref: Ref | None,
        woken: _Woken,
        bound_s: float | None,
        sign: Future[Any] | None,
        journal_s: float | None,
    ) -> Steps[_T]:
        waited_s = failing_s = 0.0
        while True:
            if sign is not None and sign.done():
                bound_s = None
            alive = ref is not None and ref.is_alive()
            step_s = LOOK_S if alive and journal_s is None else LIVENESS_S
            if bound_s is not None:
                step_s = min(step_s, max(0.0, bound_s - waited_s))
            yield Until(woken.at(future), step_s)
            if future.done():
                return future.result()
            if woken.by_the_end():
                continue
            waited_s += step_s
            if not alive:
                raise self._ended(ref, "the session ended before it answered")
            trouble = self.shared.journal.trouble if journal_s is not None else None
            failing_s = failing_s + step_s if trouble is not None else 0.0
            if trouble is not None and journal_s is not None and failing_s >= journal_s:
                raise trouble
            if bound_s is not None and waited_s >= bound_s and (sign is None or not sign.done()):
                raise RejectedError("timeout", f"the session did not answer within {bound_s:g} s")

    def closed(self, reply: Future[None] | None, *, bound_s: float, journal_s: float | None = None) -> Steps[None]:
        """That it has ended: what :meth:`ask_close` gave. Raises as :meth:`answer`."""
        if reply is None:
            return
        try:
            yield from self.answer(reply, bound_s=bound_s, journal_s=journal_s)
        except RejectedError as error:
            if error.kind != "session_closed":
                raise

    def _ended(self, ref: Ref | None, reason: str) -> RejectedError:
        """Why that actor does not answer any more."""
        if ref is None or not ref.has_failed():
            return RejectedError("session_closed", reason)
        fault = self.fault or self.shared.faults.why(self.session_id) or reason
        remedy = "Repair what failed, and open the runtime again" if self.fault else ""
        return SessionFailedError(fault, remedy=remedy)

    # --- another in its place ------------------------------------------------------------------------------------

    def replaced(self, ref: Ref | None) -> None:
        """The actor failed, and that one has taken its place."""
        with self.shared.faults.moved:
            self.ref = ref
            self.shared.faults.moved.notify_all()

    def given_up(self, fault: str) -> None:
        """The actor failed too often: what was open has its last word on record, and no other takes its place."""
        with self.shared.faults.moved:
            self.fault = fault
            self.shared.faults.moved.notify_all()

    def follow(self, failed: Ref | None, bound_s: float) -> None:
        """Block until another has taken the place of that one, none will, or the runtime ends; ``bound_s`` at most."""
        shared, waited_s = self.shared, 0.0

        def moved() -> bool:
            return self.ref is not failed or bool(self.fault) or shared.ended()

        while not moved() and waited_s < bound_s:
            step_s = shared.system.wait_s(moved, LIVENESS_S)
            with shared.faults.moved:
                shared.faults.moved.wait_for(moved, step_s)
            waited_s += LIVENESS_S


class _Woken:
    """What one wait waits on: done with the answer, or once the actor has ended. Called at that end."""

    __slots__ = ("_ended", "_wake")

    def __init__(self) -> None:
        self._wake: Future[None] | None = None
        self._ended = False

    def __call__(self) -> None:
        self._ended = True
        if self._wake is not None:
            resolve(self._wake, None)

    def at(self, future: Future[Any]) -> Future[None]:
        """The same one until it was done."""
        if self._wake is None:
            wake: Future[None] = Future()
            self._wake = wake
            future.add_done_callback(lambda _: resolve(wake, None))
            if self._ended:  # it ended meanwhile
                resolve(wake, None)
        return self._wake

    def by_the_end(self) -> bool:
        """Whether the end woke it; once."""
        woken, self._ended = self._ended, False
        if woken:
            self._wake = None
        return woken
