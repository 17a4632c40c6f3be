"""How a message gets into a session: admitted or refused, committed, acknowledged, taken back.

Everything durable goes through the journal before anyone is told: a caller has its acknowledgement when the message is
committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lastword.actors import mouth
from lastword.actors.core import events
from lastword.actors.core import turn as turn_core
from lastword.actors.core.adapter import Refused, TypedText
from lastword.actors.core.delivery import Delivery
from lastword.actors.core.errors import JournalError, LastwordError, RejectedError, UsageError
from lastword.actors.core.ids import ENTROPY_BYTES, MessageId, TurnId, mint_message
from lastword.actors.core.ports import MessageRow, TurnRow
from lastword.actors.journal import CommitFailed, Committed
from lastword.actors.replies import fail, resolve
from lastword.actors.session_commands import Control, MessageDeadline, Submit, SwitchTo
from lastword.actors.session_messages import undelivered
from lastword.actors.system.tracing import Bound

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor


def overloaded(reason: str, *, provider: str = "") -> RejectedError:
    """Nothing was accepted; it may be sent again as it is."""
    remedy = "Send it again a moment later, with the same message_id if it had one"
    return RejectedError("overloaded", reason, remedy=remedy, provider=provider)


class Accepting(msgspec.Struct, kw_only=True):
    """A message whose commit is on its way."""

    message_id: MessageId
    typed: TypedText
    turn_id: TurnId | None
    submit: Submit
    abandoned: bool = False


def delivery_of(row: MessageRow, *, duplicate: bool = False) -> Delivery:
    """The acknowledgement of a message whose transport is on record."""
    assert row.transport
    return Delivery(
        session_id=row.session_id,
        message_id=row.message_id,
        taken=row.taken,
        transport=row.transport,
        seq=row.accepted_seq,
        turn_id=row.turn_id if row.taken == "started_turn" else None,
        duplicate=duplicate,
    )


class Admission:
    """The door of one session. Runs on its actor's thread only."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._accepting: dict[int, Accepting] = {}
        self._parked: list[Submit | SwitchTo | Control] = []
        self._parked_by: dict[int, int] = {}
        """Where it is traced: which hop brought those."""
        self._twins: dict[MessageId, list[Submit]] = {}

    @property
    def busy(self) -> bool:
        """Whether a commit of a message is on its way."""
        return bool(self._accepting)

    def submit(self, submit: Submit) -> None:
        """Take a message, or refuse it with the reason."""
        session = self._session
        if session.closing:
            self._refuse(submit, RejectedError("session_closed", "the session is closed"))
            return
        if submit.message_id is not None:
            if any(accepting.message_id == submit.message_id for accepting in self._accepting.values()):
                self._wait_as_twin(submit, submit.message_id)
                return
            if self._answer_duplicate(submit, submit.message_id):
                return
        limits = session.deps.limits
        if self._parked or session.switching.active or self._settled_on_record():
            if (full := self._park(submit)) is not None:
                self._refuse(submit, full)
            elif session.system.tracer is not None and session.in_hand is not None:
                self._parked_by.setdefault(id(submit), session.in_hand.number)
            return
        provider = session.record.row.provider
        if not submit.text.strip():
            self._refuse(submit, RejectedError("empty_message", "the message has no text", provider=provider))
            return
        typed = self.escape(submit.text)
        if isinstance(typed, Refused):
            self._refuse(submit, RejectedError("unsupported_text", typed.reason, provider=provider))
            return
        admission = session.core.admit(run=submit.run, waiting_max=limits.waiting_max)
        if admission.refused is not None:
            self._refuse(submit, RejectedError(admission.refused, admission.reason, provider=provider))
            return
        if (behind := session.deps.behind()) >= limits.journal_behind_max:
            self._refuse(submit, overloaded(f"the journal is {behind} batches behind", provider=provider))
            return
        self._accept(submit, typed, starts_turn=admission.starts_turn)

    def switch(self, switch: SwitchTo) -> None:
        """It waits for what was sent before it, and what is sent after it waits for its end; refused while a turn is
        open, or a message or a command is on its way: what was accepted belongs to the provider that it was given to.
        """
        session = self._session
        if session.closing:
            fail(switch.reply, RejectedError("session_closed", "the session is closed"))
        elif not session.switching.active and (self._parked or self._settled_on_record()):
            if (full := self._park(switch)) is not None:
                fail(switch.reply, full)
        elif session.switching.active or self._accepting or not session.core.idle or session.controls.busy:
            reason = "a turn is being delivered or is active: the provider is changed between turns"
            fail(switch.reply, RejectedError("busy", reason, provider=session.record.row.provider))
        else:
            session.switching.begin(switch)

    def park(self, command: Control) -> bool:
        """Whether it waits here, and is taken again, because the host heard of the completion before we did."""
        if self._session.switching.active or not (self._parked or self._settled_on_record()):
            return False
        if (full := self._park(command)) is not None:
            fail(command.reply, full)
        return True

    def _park(self, waiting: Submit | SwitchTo | Control) -> RejectedError | None:
        """It came a moment too early: the session is as good as idle. The error where too many did."""
        if len(self._parked) >= (calls_max := self._session.deps.limits.calls_max):
            return overloaded(f"{calls_max} messages wait for the end of the turn before")
        self._parked.append(waiting)
        return None

    def unpark(self) -> None:
        """A turn is over, or the provider was changed: those that came a moment too early."""
        parked, self._parked = self._parked, []
        for waiting in parked:
            match waiting:
                case SwitchTo():
                    self.switch(waiting)
                case Control():
                    self._session.controls.take(waiting)
                case _:
                    self.submit(waiting)
        for gone in self._parked_by.keys() - {id(waiting) for waiting in self._parked}:
            del self._parked_by[gone]  # the next one may have the same id

    def escape(self, text: str) -> TypedText | Refused:
        """The adapter's rule; a text that it stumbles over is refused, and costs the session nothing."""
        try:
            return self._session.deps.adapter.escape(text)
        except Exception as error:
            return Refused(reason=f"the adapter cannot take this text: {type(error.__cause__ or error).__name__}")

    def refuse_all(self, error: LastwordError) -> None:
        """The session ends: whoever still waits at its door is told."""
        twins = [submit for waiting in self._twins.values() for submit in waiting]
        for waiting in [*self._parked, *twins, *(accepting.submit for accepting in self._accepting.values())]:
            if isinstance(waiting, SwitchTo | Control):
                fail(waiting.reply, error)
            else:
                self._refuse(waiting, error)

    def _settled_on_record(self) -> bool:
        """Whether all that is open has its completion on record already, and only our own notice is on its way."""
        core = self._session.core
        owned = all(pending.turn_id in core.open for pending in core.pending.values())
        if not owned or not core.open or self._accepting:
            return False  # a message that no turn owns still waits, whatever has ended
        return all(self.on_record(turn_id) for turn_id in core.open)

    def on_record(self, turn_id: TurnId) -> bool:
        """Whether its completion is: the host may know it before we do. False while the journal cannot be read."""
        try:
            return self._session.deps.reader.completion(turn_id) is not None
        except JournalError:
            return False

    def _accept(self, submit: Submit, typed: TypedText, *, starts_turn: bool) -> None:
        session = self._session
        session_id, now, mono_s = session.record.row.session_id, session.clock.wall(), session.clock.monotonic()
        message_id = submit.message_id or submit.fresh_id or mint_message(now, session.deps.entropy(ENTROPY_BYTES))
        turn_id = session.new_turn_id() if starts_turn else None
        session.belongs_to(turn_id or message_id)
        if (hop := self._parked_by.pop(id(submit), None)) is not None:
            session.note(Bound(turn_id or message_id, hop=hop))
        deadline_at = now + submit.deadline_s if submit.deadline_s is not None else None
        row = MessageRow(
            message_id=message_id,
            session_id=session_id,
            text=submit.text,
            taken="started_turn" if starts_turn else session.deps.waits_as,
            turn_id=turn_id,
            accepted_at=now,
            deadline_at=deadline_at,
            clock_s=now - mono_s,
            transport=session.deps.transport.name,
        )
        turn_row = TurnRow(
            turn_id=turn_id or TurnId(""),
            session_id=session_id,
            message_id=message_id,
            accepted_at=now,
            deadline_at=deadline_at,
        )
        accepted = events.Draft(
            body=events.MessageAccepted(taken=row.taken, transport=session.deps.transport.name, chars=len(submit.text)),
            turn_id=turn_id,
            message_id=message_id,
        )
        session.core.clock_seen(row.clock_s)
        session.core.accept(message_id, typed, turn_id, accepted_at=now)
        if submit.deadline_s is not None:
            session.book.deadlines_mono[message_id] = mono_s + submit.deadline_s
        session.book.rows[message_id] = row
        token = session.record.send(accept=row, turns=(turn_row,) if turn_id else (), drafts=(accepted,))
        self._accepting[token] = Accepting(message_id=message_id, typed=typed, turn_id=turn_id, submit=submit)

    # --- the same id again ------------------------------------------------------------------------------------------

    def _wait_as_twin(self, submit: Submit, message_id: MessageId) -> None:
        """It is answered as the first one is."""
        twins, most = self._twins.setdefault(message_id, []), self._session.deps.limits.calls_max
        if len(twins) >= most:
            self._refuse(submit, overloaded(f"{most} calls wait for the same message_id"))
        else:
            twins.append(submit)

    def _answer_duplicate(self, submit: Submit, message_id: MessageId) -> bool:
        """The same message id again: the first acknowledgement, no second delivery (C20); where the message ended
        undelivered, that is said instead.
        """
        try:
            row = self._session.deps.reader.message(message_id)
        except JournalError as error:
            self._refuse(submit, error)
            return True
        if row is None:
            return False
        self._give_existing(submit, row)
        return True

    def _give_existing(self, submit: Submit, row: MessageRow) -> None:
        session = self._session
        if row.session_id != session.record.row.session_id:
            self._refuse(submit, UsageError("usage", "that message_id belongs to another session"))
            return
        known = session.book.known(row)
        if known.state == "undelivered":
            self._refuse(submit, undelivered(known.reason))  # an acknowledgement would promise an end that was told
            return
        resolve(submit.reply, self._delivery(row, duplicate=True))
        if submit.outcome is None:
            return
        try:
            done = session.deps.reader.completion(known.turn_id) if known.turn_id is not None else None
        except JournalError as error:
            fail(submit.outcome, error)
            return
        if done is not None:
            resolve(submit.outcome, done)
        else:
            session.book.wait(row.message_id, submit.outcome)

    def _admit_twins(self, message_id: MessageId) -> None:
        """The first message with this id was committed, or was not: those that came meanwhile have their answer."""
        for submit in self._twins.pop(message_id, ()):
            self.submit(submit)

    def _delivery(self, row: MessageRow, *, duplicate: bool = False) -> Delivery:
        transport = row.transport or self._session.deps.transport.name
        return delivery_of(msgspec.structs.replace(row, transport=transport), duplicate=duplicate)

    def _refuse(self, submit: Submit, error: LastwordError) -> None:
        fail(submit.reply, error)
        if submit.outcome is not None:
            fail(submit.outcome, error)

    # --- committed, or not --------------------------------------------------------------------------------------------

    def committed(self, answer: Committed) -> None:
        """If that was the commit of a message: acknowledge it."""
        accepting = self._accepting.pop(answer.token, None)
        if accepting is not None:
            self._accepted(accepting, answer.recorded.existing, answer.recorded.last_seq)
            self._admit_twins(accepting.message_id)

    def commit_failed(self, answer: CommitFailed) -> None:
        """If that was the commit of a message: it was never accepted, unless it is on record after all."""
        accepting = self._accepting.pop(answer.token, None)
        if accepting is None:
            return
        row = self._committed_all_the_same(accepting)
        if row is not None:
            self._accepted(accepting, None, row.accepted_seq)
            self._admit_twins(accepting.message_id)
        else:
            self._session.core.refuse(accepting.message_id)
            self._session.book.drop(accepting.message_id)
            self._refuse(accepting.submit, answer.error)
            self._admit_twins(accepting.message_id)

    def _committed_all_the_same(self, accepting: Accepting) -> MessageRow | None:
        """A failing disk may commit and say that it did not: what is on record was accepted; its end is to come."""
        try:
            row = self._session.deps.reader.message(accepting.message_id)
        except JournalError:
            return None
        return row if row is not None and self._is_mine(row) else None

    def _is_mine(self, row: MessageRow) -> bool:
        """Whether that row is the one that was sent here, not another message with its id."""
        mine = self._session.book.rows[row.message_id]
        return (row.session_id, row.text, row.turn_id, row.accepted_at) == (
            mine.session_id,
            mine.text,
            mine.turn_id,
            mine.accepted_at,
        )

    def _accepted(self, accepting: Accepting, existing: MessageRow | None, accepted_seq: int) -> None:
        session, message_id = self._session, accepting.message_id
        if existing is not None and self._is_mine(existing):
            accepted_seq = existing.accepted_seq  # the journal was asked twice: the first time it was done unheard
        elif existing is not None:
            session.core.refuse(message_id)
            session.book.drop(message_id)
            self._give_existing(accepting.submit, existing)
            return
        row = msgspec.structs.replace(session.book.rows[message_id], accepted_seq=accepted_seq)
        session.book.rows[message_id] = row
        if accepting.submit.outcome is not None:
            session.book.wait(message_id, accepting.submit.outcome)
        resolve(accepting.submit.reply, self._delivery(row))
        if accepting.turn_id is not None:
            session.turns.begin(
                turn_core.Turn(
                    turn_id=accepting.turn_id,
                    session_id=row.session_id,
                    provider=session.record.row.provider,
                    transport=session.deps.transport.name,
                    message_id=message_id,
                    native_session=session.core.native_session,
                    cli_version=session.core.cli_version,
                    accepted_at=row.accepted_at,
                    deadline_at=row.deadline_at,
                ),
                (turn_core.Begin(),),
            )
            session.stalls.follow()
        self.arm_deadline(row)
        session.book.deliverable.add(message_id)
        if session.closing:
            self._take_back(message_id, accepting.turn_id)  # the close came between acceptance and commit
        elif accepting.abandoned:
            self._abandon_message(message_id)
            session.dispatch()
        else:
            session.dispatch()

    # --- deadlines and taking back ------------------------------------------------------------------------------------

    def arm_deadline(self, row: MessageRow) -> None:
        """A message that owns no turn yet brings its deadline along; one that starts a turn gives it to the turn."""
        if row.deadline_at is not None and row.turn_id is None:
            delay_s = max(0.0, row.deadline_at - self._session.clock.wall())
            self._session.after(delay_s, MessageDeadline(message_id=row.message_id), key=("deadline", row.message_id))

    def deadline_passed(self, message_id: MessageId) -> None:
        """It passed while the message owned no turn. Nothing of it was typed: it is taken back. The CLI has it, in its
        queue or in another message's turn: nobody else's turn is interrupted for it; who waits is told, and its end
        will be told by the events.
        """
        session = self._session
        row = session.book.rows.get(message_id)
        pending = session.core.pending.get(message_id)
        if row is None or (pending is None and row.state != "joined"):
            return
        if pending is not None and pending.stage in ("waiting", "typing"):
            self._abandon_message(message_id)
            return
        reason = "the deadline passed while the message waited in the CLI's queue or another message's turn"
        session.book.give_up(message_id, RejectedError("timeout", reason, provider=session.record.row.provider))

    def _take_back(self, message_id: MessageId, turn_id: TurnId | None) -> None:
        """It waits and was never typed: it ends here."""
        if turn_id is not None:
            self._session.turns.tell(turn_id, turn_core.Cancel())
        self._session.apply(self._session.core.withdraw(message_id))

    def abandon(self, submit: Submit) -> None:
        """Who waited for it no longer does."""
        if any(parked is submit for parked in self._parked):
            self._parked = [parked for parked in self._parked if parked is not submit]
            self._parked_by.pop(id(submit), None)
            self._refuse(submit, RejectedError("not_delivered", "it was taken back before it was accepted"))
            return
        for accepting in self._accepting.values():
            if accepting.submit is submit or accepting.message_id == submit.message_id:
                accepting.abandoned = True
                return
        if submit.reply.done() and not submit.reply.cancelled() and submit.reply.exception() is None:
            self._abandon_message(submit.reply.result().message_id)

    def _abandon_message(self, message_id: MessageId) -> None:
        session = self._session
        row = session.book.rows.get(message_id)
        pending = session.core.pending.get(message_id)
        if row is None:
            return  # it has ended
        if row.turn_id is not None:
            if row.turn_id in session.turns:
                session.turns.tell(row.turn_id, turn_core.Cancel())
        elif pending is not None and pending.stage == "waiting":
            self._take_back(message_id, None)
        elif pending is not None:
            session.book.abandoned.add(message_id)
            session.mouth.tell(mouth.Withdraw(message_id=message_id))
