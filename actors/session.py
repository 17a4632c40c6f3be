"""SessionActor: owns one conversation with one CLI, its queue and its children. Drives :mod:`core.session`.

Everything durable goes through the journal before anyone is told: a caller has its acknowledgement when the message
is committed, and a completion is told when it is. The actor itself never blocks and never waits for another session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeAlias, assert_never

import msgspec

from lastword.actors import pane, transcript, turn
from lastword.actors.core import events
from lastword.actors.core import session as core
from lastword.actors.core import turn as turn_core
from lastword.actors.core import typing as typing_core
from lastword.actors.core.adapter import LaunchRequest, Refused, SourceSpec, TypedText
from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt
from lastword.actors.core.errors import JournalError, LastwordError, RejectedError
from lastword.actors.core.facts import CliStatusSeen, EndpointGoneHint, RecordExhausted
from lastword.actors.core.ids import (
    ENTROPY_BYTES,
    MessageId,
    TurnId,
    mint_message,
    mint_turn,
)
from lastword.actors.core.outcome import Completion, Origin
from lastword.actors.core.ports import Batch, Cursor, MessageRow, SessionRow, TurnRow
from lastword.actors.core.snapshot import Dialog, Handle, SessionState, Snapshot
from lastword.actors.core.world import Bytes
from lastword.actors.journal import CommitFailed, Committed
from lastword.actors.outbox import Outbox, Retry
from lastword.actors.session_commands import (
    Abandon,
    CheckSettling,
    CloseSession,
    Control,
    GetSnapshot,
    MessageDeadline,
    Rehydrate,
    SessionDeps,
    Start,
    Submit,
)
from lastword.actors.system.actor import Actor
from lastword.actors.system.ref import Ref
from lastword.actors.system.supervision import ChildFailed

STARTS_MAX = 2
"""Starts of a CLI that ended before its input box was ready, in a row, before waiting messages fail."""
TURN_RESTARTS_MAX = 3
UNDELIVERED_KEPT_MAX = 256
"""Undelivered messages whose fate is remembered here, until the journal's own row surely tells it."""
SETTLE_GRACE_S = 5.0
"""How long a turn that was told its end may take to settle before its actor is looked after (C40)."""
END_GRACE_S = 3.0
"""How long a CLI that ignores interrupts gets between the gentle signal and the hard one."""


SessionCommand: TypeAlias = (
    Submit
    | Control
    | Abandon
    | MessageDeadline
    | CheckSettling
    | GetSnapshot
    | CloseSession
    | Start
    | Rehydrate
    | Committed
    | CommitFailed
    | Retry
    | turn.TurnFinished
    | turn.WithdrawMessage
    | turn.InterruptTurn
    | turn.EndProvider
    | transcript.FactsRead
    | pane.PaneOpened
    | pane.PaneOpenFailed
    | pane.PaneReport
    | pane.PaneGone
    | pane.PaneClosed
    | ChildFailed
)


class _OpenTurn(msgspec.Struct, kw_only=True):
    """What the session keeps of an open turn, enough to replace its actor (new epoch) after a failure."""

    turn: turn_core.Turn
    ref: Ref
    told: list[turn_core.TurnEvent]
    messages: list[MessageId]


class _Accepting(msgspec.Struct, kw_only=True):
    """A message whose commit is on its way."""

    message_id: MessageId
    typed: TypedText
    turn_id: TurnId | None
    submit: Submit
    abandoned: bool = False


class SessionActor(Actor):
    """One session.

    Args:
        deps: the world.
        row: the session's row, as it is (or is being) committed.
        request: how its CLI is launched.
        cli_version: as the CLI printed it at the preflight.
    """

    def __init__(self, deps: SessionDeps, row: SessionRow, request: LaunchRequest, cli_version: str) -> None:
        super().__init__()
        self._deps = deps
        self._row = row
        self._request = request
        self._core = core.SessionCore(deps.adapter.matches, self._new_turn_id, row.native_session)
        self._core.cli_version = cli_version
        self._outbox = Outbox(deps.journal, self.ref, self._retry_in)
        self._pane = self.spawn(pane.PaneActor, deps.transport, deps.adapter, deps.files, name=f"{row.session_id}/pane")
        self._watcher = self.spawn(
            transcript.TranscriptWatcherActor, deps.files, deps.wakes, name=f"{row.session_id}/transcript"
        )
        self._turns: dict[TurnId, _OpenTurn] = {}
        self._messages: dict[MessageId, MessageRow] = {}
        self._accepting: dict[int, _Accepting] = {}
        self._parked: list[Submit] = []
        self._twins: dict[MessageId, list[Submit]] = {}
        self._abandoned: set[MessageId] = set()
        self._undelivered_rows: dict[MessageId, MessageRow] = {}
        self._deliverable: set[MessageId] = set()
        self._outcomes: dict[MessageId, list[Future[Completion]]] = {}
        self._controls: dict[str, Future[Delivery]] = {}
        self._state: SessionState = "starting"
        self._launch_reason = "open"
        self._pane_epoch = row.epoch
        self._last_at = row.opened_at
        self._failed_starts = 0
        self._dialog: Dialog | None = None
        self._handle = Handle(native_session_id=row.native_session)
        self._last_completion: Completion | None = None
        self._last_gone: pane.PaneGone | None = None
        self._seq = 0
        self._cursor: Cursor | None = None
        self._cursor_next: Cursor | None = None
        self._cursor_saved: Cursor | None = row.cursor
        self._status_source: SourceSpec | None = None
        self._closing: CloseSession | None = None
        self._pane_live = False
        self._exhausted = False
        self._closed_token: int | None = None

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def receive(self, message: SessionCommand) -> Any:
        match message:
            case Submit():
                self._submit(message)
            case Control():
                self._control(message)
            case Abandon():
                self._abandon(message.submit)
            case MessageDeadline():
                self._message_deadline(message.message_id)
            case CheckSettling():
                self._check_settling()
            case GetSnapshot():
                return self._snapshot()
            case CloseSession():
                self._close(message)
            case Start():
                self._launch(message.reason)
            case Rehydrate():
                self._rehydrate(message)
            case Committed():
                self._committed(message)
            case CommitFailed():
                self._commit_failed(message)
            case Retry():
                self._outbox.again(message)
            case turn.TurnFinished():
                self._turn_finished(message)
            case turn.WithdrawMessage():
                self._withdraw(message)
            case turn.InterruptTurn():
                self._interrupt(message)
            case turn.EndProvider():
                self._pane.tell(pane.Close(grace_s=END_GRACE_S))
            case transcript.FactsRead():
                self._facts(message)
            case pane.PaneOpened():
                self._pane_opened(message)
            case pane.PaneOpenFailed():
                self._pane_open_failed(message)
            case pane.PaneReport():
                if message.epoch == self._pane_epoch:
                    self._pane_report(message.report, message.at)
            case pane.PaneGone():
                self._pane_gone(message)
            case pane.PaneClosed():
                self._pane_closed(message)
            case ChildFailed():
                self._child_failed(message)
            case _:
                assert_never(message)
        return None

    def stopped(self) -> None:
        """Whoever still waits is told, not left waiting."""
        error = RejectedError("session_closed", "the session has ended")
        twins = [submit for waiting in self._twins.values() for submit in waiting]
        for submit in [*self._parked, *twins, *(accepting.submit for accepting in self._accepting.values())]:
            self._refuse(submit, error)
        for waiting in self._outcomes.values():
            for outcome in waiting:
                _fail(outcome, error)
        for control in self._controls.values():
            _fail(control, error)
        if self._closing is not None:
            _resolve(self._closing.reply, None)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _submit(self, submit: Submit) -> None:
        if self._closing is not None:
            self._refuse(submit, RejectedError("session_closed", "the session is closed"))
            return
        if submit.message_id is not None:
            if any(accepting.message_id == submit.message_id for accepting in self._accepting.values()):
                self._twins.setdefault(submit.message_id, []).append(submit)  # answered as the first one is
                return
            if self._answer_duplicate(submit, submit.message_id):
                return
        if not submit.text.strip():
            self._refuse(submit, RejectedError("empty_message", "the message has no text", provider=self._row.provider))
            return
        typed = self._escape(submit.text)
        if isinstance(typed, Refused):
            refused = RejectedError("unsupported_text", typed.reason, provider=self._row.provider)
            self._refuse(submit, refused)
            return
        if self._parked or self._settled_on_record():
            self._parked.append(submit)  # the host heard of the completion before we did: it is as good as idle
            return
        admission = self._core.admit(run=submit.run)
        if admission.refused is not None:
            self._refuse(submit, RejectedError(admission.refused, admission.reason, provider=self._row.provider))
            return
        self._accept(submit, typed, starts_turn=admission.starts_turn)

    def _escape(self, text: str) -> TypedText | Refused:
        """The adapter's rule; a text that it stumbles over is refused, and costs the session nothing."""
        try:
            return self._deps.adapter.escape(text)
        except Exception as error:
            return Refused(reason=f"the adapter cannot take this text: {type(error).__name__}")

    def _settled_on_record(self) -> bool:
        """Whether all that is open has its completion on record already, and only our own notice is on its way."""
        if self._core.pending or not self._core.open or self._accepting:
            return False
        try:
            return all(self._deps.reader.completion(turn_id) is not None for turn_id in self._core.open)
        except JournalError:
            return False

    def _accept(self, submit: Submit, typed: TypedText, *, starts_turn: bool) -> None:
        now = self.clock.wall()
        message_id = submit.message_id or mint_message(now, self._deps.entropy(ENTROPY_BYTES))
        turn_id = self._new_turn_id() if starts_turn else None
        deadline_at = now + submit.deadline_s if submit.deadline_s is not None else None
        row = MessageRow(
            message_id=message_id,
            session_id=self._row.session_id,
            text=submit.text,
            taken="started_turn" if starts_turn else "pending",
            turn_id=turn_id,
            accepted_at=now,
            deadline_at=deadline_at,
        )
        turn_row = TurnRow(
            turn_id=turn_id or TurnId(""),
            session_id=self._row.session_id,
            message_id=message_id,
            accepted_at=now,
            deadline_at=deadline_at,
        )
        accepted = events.Draft(
            body=events.MessageAccepted(taken=row.taken, transport=self._deps.transport.name, chars=len(submit.text)),
            turn_id=turn_id,
            message_id=message_id,
        )
        self._core.accept(message_id, typed, turn_id, accepted_at=now)
        self._messages[message_id] = row
        token = self._send(accept=row, turns=(turn_row,) if turn_id else (), drafts=(accepted,))
        self._accepting[token] = _Accepting(message_id=message_id, typed=typed, turn_id=turn_id, submit=submit)

    def _answer_duplicate(self, submit: Submit, message_id: MessageId) -> bool:
        """The same message id again: the first acknowledgement, no second delivery (C20)."""
        try:
            row = self._deps.reader.message(message_id)
        except JournalError as error:
            self._refuse(submit, error)
            return True
        if row is None:
            return False
        self._give_existing(submit, row)
        return True

    def _give_existing(self, submit: Submit, row: MessageRow) -> None:
        if row.session_id != self._row.session_id:
            self._refuse(submit, RejectedError("usage", "that message_id belongs to another session"))
            return
        _resolve(submit.reply, self._delivery(row, duplicate=True))
        if submit.outcome is None:
            return
        known = self._messages.get(row.message_id) or self._undelivered_rows.get(row.message_id) or row
        try:
            done = self._deps.reader.completion(known.turn_id) if known.turn_id is not None else None
        except JournalError as error:
            _fail(submit.outcome, error)
            return
        if done is not None:
            _resolve(submit.outcome, done)
        elif known.state == "undelivered":
            _fail(submit.outcome, RejectedError("not_delivered", "the message was not delivered"))
        else:
            self._outcomes.setdefault(row.message_id, []).append(submit.outcome)

    def _delivery(self, row: MessageRow, *, duplicate: bool = False) -> Delivery:
        return Delivery(
            session_id=row.session_id,
            message_id=row.message_id,
            taken=row.taken,
            transport=self._deps.transport.name,
            seq=row.accepted_seq,
            turn_id=row.turn_id if row.taken == "started_turn" else None,
            duplicate=duplicate,
        )

    def _refuse(self, submit: Submit, error: LastwordError) -> None:
        _fail(submit.reply, error)
        if submit.outcome is not None:
            _fail(submit.outcome, error)

    def _committed(self, answer: Committed) -> None:
        batch = self._outbox.committed(answer)
        self._seq = max(self._seq, answer.recorded.last_seq)
        accepting = self._accepting.pop(answer.token, None)
        if accepting is not None and batch is not None:
            self._accepted(accepting, answer)
            self._admit_twins(accepting.message_id)
        if answer.token == self._closed_token:
            self.stop()
            return
        self._maybe_closed()

    def _accepted(self, accepting: _Accepting, answer: Committed) -> None:
        existing = answer.recorded.existing
        if existing is not None:
            self._core.refuse(accepting.message_id)
            self._messages.pop(accepting.message_id, None)
            self._give_existing(accepting.submit, existing)
            return
        row = msgspec.structs.replace(self._messages[accepting.message_id], accepted_seq=answer.recorded.last_seq)
        self._messages[accepting.message_id] = row
        if accepting.submit.outcome is not None:
            self._outcomes.setdefault(row.message_id, []).append(accepting.submit.outcome)
        _resolve(accepting.submit.reply, self._delivery(row))
        if accepting.turn_id is not None:
            self._spawn_turn(
                turn_core.Turn(
                    turn_id=accepting.turn_id,
                    session_id=row.session_id,
                    provider=self._row.provider,
                    transport=self._deps.transport.name,
                    message_id=row.message_id,
                    native_session=self._core.native_session,
                    cli_version=self._core.cli_version,
                    accepted_at=row.accepted_at,
                    deadline_at=row.deadline_at,
                ),
                (turn_core.Begin(),),
            )
        self._arm_message_deadline(row)
        self._deliverable.add(row.message_id)
        if self._closing is not None:
            self._take_back(row.message_id, accepting.turn_id)  # the close came between acceptance and commit
        elif accepting.abandoned:
            self._abandon_message(row.message_id)
            self._dispatch()
        else:
            self._dispatch()

    def _arm_message_deadline(self, row: MessageRow) -> None:
        """A message that owns no turn yet brings its deadline along; one that starts a turn gives it to the turn."""
        if row.deadline_at is not None and row.turn_id is None:
            delay_s = max(0.0, row.deadline_at - self.clock.wall())
            self.after(delay_s, MessageDeadline(message_id=row.message_id), key=("deadline", row.message_id))

    def _message_deadline(self, message_id: MessageId) -> None:
        """It passed while the message owned no turn. Nothing of it was typed: it is taken back. The CLI has it, in its
        queue or in another message's turn: nobody else's turn is interrupted for it; who waits is told, and its end
        will be told by the events.
        """
        row = self._messages.get(message_id)
        pending = self._core.pending.get(message_id)
        if row is None or (pending is None and row.state != "joined"):
            return
        if pending is not None and pending.stage in ("waiting", "typing"):
            self._abandon_message(message_id)
            return
        reason = "the deadline passed while the message waited in the CLI's queue or another message's turn"
        for outcome in self._outcomes.pop(message_id, ()):
            _fail(outcome, RejectedError("timeout", reason, provider=self._row.provider))

    def _take_back(self, message_id: MessageId, turn_id: TurnId | None) -> None:
        """It waits and was never typed: it ends here."""
        if turn_id is not None:
            self._tell_turn(turn_id, (turn_core.Cancel(),))
        self._apply(self._core.withdraw(message_id))

    def _admit_twins(self, message_id: MessageId) -> None:
        """The first message with this id was committed, or was not: those that came meanwhile have their answer."""
        for submit in self._twins.pop(message_id, ()):
            self._submit(submit)

    def _commit_failed(self, answer: CommitFailed) -> None:
        self._outbox.failed(answer)
        accepting = self._accepting.pop(answer.token, None)
        if accepting is not None:
            self._core.refuse(accepting.message_id)
            self._messages.pop(accepting.message_id, None)
            self._refuse(accepting.submit, answer.error)
            self._admit_twins(accepting.message_id)

    def _dispatch(self) -> None:
        """Hand every committed message that still waits to the pane, in order; start the CLI again if it is gone."""
        waiting = [
            pending
            for pending in self._core.pending.values()
            if pending.stage == "waiting" and pending.message_id in self._deliverable
        ]
        if not waiting:
            return
        if self._state == "gone":
            self._launch("resume")
        for pending in waiting:
            self._core.typing(pending.message_id)
            self._deliver(pending, uncertain=False)

    def _deliver(self, pending: core.Pending, *, uncertain: bool) -> None:
        job = typing_core.Job(
            message_id=pending.message_id, typed=pending.typed, turn_id=pending.turn_id, uncertain=uncertain
        )
        self._pane.tell(pane.Deliver(job=job))

    # --- controls ---------------------------------------------------------------------------------------------------

    def _control(self, control: Control) -> None:
        if self._closing is not None:
            _fail(control.reply, RejectedError("session_closed", "the session is closed"))
            return
        match control.what:
            case Interrupt():
                self._control_interrupt(control, control.what)
            case Answer():
                self._control_answer(control, control.what)
            case Command():
                self._control_command(control, control.what)
            case _:
                assert_never(control.what)

    def _control_interrupt(self, control: Control, interrupt: Interrupt) -> None:
        wanted = interrupt.turn_id or self._core.interrupted_turn()
        if wanted is None or wanted not in self._turns or self._core.settling(wanted):
            _resolve(control.reply, self._applied(None, applied=False))
            return
        self._tell_turn(wanted, (turn_core.Cancel(),))
        _resolve(control.reply, self._applied(wanted, applied=True))

    def _abandon(self, submit: Submit) -> None:
        if any(parked is submit for parked in self._parked):
            self._parked = [parked for parked in self._parked if parked is not submit]
            self._refuse(submit, RejectedError("not_delivered", "it was taken back before it was accepted"))
            return
        message_id = submit.message_id
        for accepting in self._accepting.values():
            if accepting.submit is submit or accepting.message_id == message_id:
                accepting.abandoned = True
                return
        if submit.reply.done() and not submit.reply.cancelled() and submit.reply.exception() is None:
            self._abandon_message(submit.reply.result().message_id)

    def _abandon_message(self, message_id: MessageId) -> None:
        row = self._messages.get(message_id)
        pending = self._core.pending.get(message_id)
        if row is None:
            return  # it has ended
        if row.turn_id is not None:
            if row.turn_id in self._turns:
                self._tell_turn(row.turn_id, (turn_core.Cancel(),))
        elif pending is not None and pending.stage == "waiting":
            self._take_back(message_id, None)
        elif pending is not None:
            self._abandoned.add(message_id)  # should it still become a turn, that turn is interrupted at once
            self._pane.tell(pane.Withdraw(message_id=message_id))

    def _control_answer(self, control: Control, answer: Answer) -> None:
        dialog = self._dialog
        if dialog is None or dialog.dialog_id != answer.dialog_id:
            _fail(control.reply, RejectedError("unknown_dialog", "no such dialog is open"))
            return
        if answer.option < 1 or (dialog.options and answer.option > len(dialog.options)):
            reason = f"the dialog has {len(dialog.options)} options, counted from 1"
            _fail(control.reply, RejectedError("usage", reason))
            return
        token = mint_message(self.clock.wall(), self._deps.entropy(ENTROPY_BYTES))
        self._controls[token] = control.reply
        self._pane.tell(pane.AnswerDialog(token=token, dialog_id=answer.dialog_id, option=answer.option))

    def _control_command(self, control: Control, command: Command) -> None:
        needed = {"/clear": "clear", "/compact": "compact"}.get(command.text.split()[0] if command.text.split() else "")
        if needed is None or needed not in self._deps.adapter.capabilities:
            reason = f"{command.text!r} is not a command that this provider declares"
            error = RejectedError("unsupported_capability", reason, provider=self._row.provider)
            _fail(control.reply, error)
            return
        if not self._core.idle:
            _fail(control.reply, RejectedError("busy", "a turn is being delivered or is active"))
            return
        if self._state == "gone":
            self._launch("resume")
        now = self.clock.wall()
        token = mint_message(now, self._deps.entropy(ENTROPY_BYTES))
        self._controls[token] = control.reply
        text = command.text.strip()
        typed = TypedText(text=text, paste=text.encode(), rewritten=text)
        job = typing_core.Job(message_id=token, typed=typed, proved_by_record=False)
        self._pane.tell(pane.Deliver(job=job))

    def _applied(self, turn_id: TurnId | None, *, applied: bool, token: str = "") -> Delivery:
        message_id = token or mint_message(self.clock.wall(), self._deps.entropy(ENTROPY_BYTES))
        return Delivery(
            session_id=self._row.session_id,
            message_id=MessageId(message_id),
            taken="applied" if applied else "nothing_to_do",
            transport=self._deps.transport.name,
            seq=self._seq,
            turn_id=turn_id,
        )

    # --- turns ------------------------------------------------------------------------------------------------------

    def _new_turn_id(self) -> TurnId:
        return mint_turn(self.clock.wall(), self._deps.entropy(ENTROPY_BYTES))

    def _spawn_turn(self, state: turn_core.Turn, first: tuple[turn_core.TurnEvent, ...]) -> None:
        ref = self.spawn(
            turn.TurnActor,
            self._deps.journal,
            state,
            name=f"{self._row.session_id}/{state.turn_id}#{state.epoch}",
        )
        messages = [state.message_id] if state.message_id is not None else []
        self._turns[state.turn_id] = _OpenTurn(turn=state, ref=ref, told=list(first), messages=messages)
        ref.tell(turn.Tell(turn_id=state.turn_id, events=first))

    def _tell_turn(self, turn_id: TurnId, told: tuple[turn_core.TurnEvent, ...]) -> None:
        open_turn = self._turns.get(turn_id)
        if open_turn is None:
            self.system.dead_letters.record("turn_not_open", self.ref.name, told[0])
            return
        open_turn.told.extend(event for event in told if not isinstance(event, CliStatusSeen))
        open_turn.ref.tell(turn.Tell(turn_id=turn_id, events=told))

    def _turn_finished(self, finished: turn.TurnFinished) -> None:
        open_turn = self._turns.get(finished.turn_id)
        if open_turn is None or open_turn.turn.epoch != finished.epoch:
            return  # of an epoch that is over; the journal lets only one completion stand anyway
        del self._turns[finished.turn_id]
        completion = finished.completion
        self._last_completion = completion
        self._seq = max(self._seq, finished.seq)
        for message_id in {*open_turn.messages, *completion.joined}:
            self._abandoned.discard(message_id)
            self._messages.pop(message_id, None)
            self._deliverable.discard(message_id)
            for outcome in self._outcomes.pop(message_id, ()):
                _resolve(outcome, completion)
        self._apply(self._core.finished(finished.turn_id))
        self._take_cursor()
        parked, self._parked = self._parked, []
        for submit in parked:
            self._submit(submit)
        self._maybe_closed()

    def _withdraw(self, message: turn.WithdrawMessage) -> None:
        if self._core.unwanted(message.message_id):
            self._apply(self._core.withdraw(message.message_id))
        else:
            self._pane.tell(pane.Withdraw(message_id=message.message_id))

    def _interrupt(self, message: turn.InterruptTurn) -> None:
        if self._closing is None:
            self._pane.tell(pane.PressInterrupt(turn_id=message.turn_id))

    def _child_failed(self, failed: ChildFailed) -> None:
        """A turn's actor failed: a new epoch takes its place and is told again all that the old one was told."""
        for turn_id, open_turn in self._turns.items():
            if open_turn.ref != failed.ref:
                continue
            epoch = open_turn.turn.epoch + 1
            self.system.dead_letters.record("turn_actor_failed", self.ref.name, failed)
            if epoch > TURN_RESTARTS_MAX:
                raise RuntimeError(f"turn actor failed {TURN_RESTARTS_MAX} times") from failed.error
            self._replace_turn(turn_id, open_turn)
            return
        raise RuntimeError(f"{failed.ref.name} failed") from failed.error

    # --- facts ------------------------------------------------------------------------------------------------------

    def _facts(self, read: transcript.FactsRead) -> None:
        for fact in read.facts:
            if isinstance(fact, CliStatusSeen):
                self._pane.tell(pane.Nudge())
        facts = read.facts
        if read.epoch != self._pane_epoch:  # the end of a CLI that has a successor by now says nothing about that one
            facts = tuple(fact for fact in facts if not isinstance(fact, RecordExhausted))
        self._apply(self._core.read(facts))
        self._cursor_next = read.cursor or (self._cursor_next if not read.facts else None)
        self._take_cursor()

    def _take_cursor(self) -> None:
        """Reading may resume there once all that was read before is settled and committed."""
        if self._cursor_next is not None and not self._core.backlog and not any(self._core.open.values()):
            self._cursor, self._cursor_next = self._cursor_next, None

    def _apply(self, effects: Iterable[core.SessionEffect]) -> None:
        """Carry out: first what goes to the journal, then what turns are told (their own batches come after)."""
        drafts: list[events.Draft] = []
        rows: dict[MessageId, MessageRow] = {}
        turn_rows: list[TurnRow] = []
        told: list[tuple[TurnId, list[turn_core.TurnEvent]]] = []
        spawn: list[tuple[turn_core.Turn, core.OpenTurn]] = []
        after: list[Callable[[], None]] = []
        for effect in effects:
            match effect:
                case core.OpenTurn():
                    state = self._turn_of(effect)
                    turn_rows.append(turn_core.row_of(state))
                    spawn.append((state, effect))
                    self._bind_message(rows, effect.message_id, effect.turn_id, "bound")
                case core.ToTurn():
                    if isinstance(effect.event, turn_core.Joined):
                        self._bind_message(rows, effect.event.message_id, effect.turn_id, "joined")
                    elif isinstance(effect.event, turn_core.Bound | turn_core.Adopted):
                        open_turn = self._turns.get(effect.turn_id)
                        if open_turn is not None:
                            self._bind_message(rows, open_turn.turn.message_id, effect.turn_id, "bound")
                    if told and told[-1][0] == effect.turn_id:
                        told[-1][1].append(effect.event)
                    else:
                        told.append((effect.turn_id, [effect.event]))
                case core.Proved():
                    after.append(_call(self._pane.tell, pane.Prove(message_id=effect.message_id)))
                    if effect.stage == "queued":
                        self._set_state(rows, effect.message_id, "queued")
                        drafts.append(self._queued_draft(effect))
                case core.Undelivered():
                    drafts.append(self._undelivered(rows, effect.message_id, effect.reason))
                case core.Rebound():
                    drafts.append(self._rebound(effect))
                case core.Gone():
                    after.append(_call(self._gone, effect))
                case core.Count():
                    self.system.dead_letters.record(effect.what, self.ref.name, effect)
                case _:
                    assert_never(effect)
        if drafts or rows or turn_rows:
            self._send(drafts=tuple(drafts), messages=tuple(rows.values()), turns=tuple(turn_rows))
        for state, opened in spawn:
            first: tuple[turn_core.TurnEvent, ...] = (turn_core.Begin(), opened.bound)
            if opened.message_id in self._abandoned:
                first = (*first, turn_core.Cancel())
            self._spawn_turn(state, first)
        for turn_id, turn_events in told:
            self._tell_turn(turn_id, tuple(turn_events))
        for action in after:
            action()
        if self._core.ending:
            self.after(SETTLE_GRACE_S, CheckSettling(), key="settling")

    def _check_settling(self) -> None:
        """C40: a turn was told its end and is not settled. Its actor is stuck or gone: the journal is asked first, then
        a new epoch takes its place and is told the same again; the old one is fenced off by its epoch.
        """
        for turn_id in self._core.ending:
            open_turn = self._turns.get(turn_id)
            try:
                done = self._deps.reader.completion(turn_id)
            except JournalError:
                continue
            if open_turn is None:
                self._apply(self._core.finished(turn_id))
            elif done is not None:
                self._turn_finished(turn.TurnFinished(turn_id=turn_id, epoch=open_turn.turn.epoch, completion=done))
            elif open_turn.turn.epoch <= TURN_RESTARTS_MAX and turn_id not in self._waiting_for_disk():
                body = events.InvariantViolated(
                    what=f"a turn was told its end {SETTLE_GRACE_S:g} s ago and is not settled",
                    repair="its actor was replaced under a new epoch",
                )
                self._send(drafts=(events.Draft(body=body, turn_id=turn_id),))
                open_turn.ref.stop()
                self._replace_turn(turn_id, open_turn)
        if self._core.ending:
            self.after(SETTLE_GRACE_S, CheckSettling(), key="settling")

    def _waiting_for_disk(self) -> frozenset[TurnId]:
        """While our own batches are not acknowledged, a turn may wait for the same disk: nothing else is stuck."""
        return frozenset() if self._outbox.empty else self._core.ending

    def _replace_turn(self, turn_id: TurnId, open_turn: _OpenTurn) -> None:
        again = msgspec.structs.replace(open_turn.turn, epoch=open_turn.turn.epoch + 1)
        self._spawn_turn(again, tuple(open_turn.told))
        self._turns[turn_id].messages = open_turn.messages

    def _turn_of(self, opened: core.OpenTurn) -> turn_core.Turn:
        message = self._messages.get(opened.message_id) if opened.message_id is not None else None
        origin: Origin = opened.origin
        return turn_core.Turn(
            turn_id=opened.turn_id,
            session_id=self._row.session_id,
            provider=self._row.provider,
            transport=self._deps.transport.name,
            message_id=opened.message_id,
            origin=origin,
            native_turn=opened.bound.prompt.native_turn,
            native_session=self._core.native_session,
            cli_version=self._core.cli_version,
            accepted_at=message.accepted_at if message is not None else self.clock.wall(),
            deadline_at=message.deadline_at if message is not None else None,
        )

    def _bind_message(
        self, rows: dict[MessageId, MessageRow], message_id: MessageId | None, turn_id: TurnId, state: Any
    ) -> None:
        row = self._messages.get(message_id) if message_id is not None else None
        if row is None:
            return
        row = msgspec.structs.replace(row, turn_id=turn_id, state=state)
        self._messages[row.message_id] = rows[row.message_id] = row

    def _set_state(self, rows: dict[MessageId, MessageRow], message_id: MessageId, state: Any) -> None:
        row = self._messages.get(message_id)
        if row is not None:
            self._messages[message_id] = rows[message_id] = msgspec.structs.replace(row, state=state)

    def _queued_draft(self, proved: core.Proved) -> events.Draft:
        return events.Draft(
            body=events.MessageQueued(evidence=proved.evidence),
            message_id=proved.message_id,
            native_at=proved.evidence.native_at,
            once=f"queued:{proved.message_id}",
        )

    def _undelivered(self, rows: dict[MessageId, MessageRow], message_id: MessageId, reason: str) -> events.Draft:
        self._set_state(rows, message_id, "undelivered")
        row = self._messages.pop(message_id, None)
        if row is not None:
            self._undelivered_rows[message_id] = row
            if len(self._undelivered_rows) > UNDELIVERED_KEPT_MAX:
                del self._undelivered_rows[next(iter(self._undelivered_rows))]
        self._abandoned.discard(message_id)
        self._deliverable.discard(message_id)
        for outcome in self._outcomes.pop(message_id, ()):
            _fail(outcome, RejectedError("not_delivered", f"the message was not delivered: {reason}"))
        return events.Draft(
            body=events.MessageUndelivered(reason=reason), message_id=message_id, once=f"undelivered:{message_id}"
        )

    # --- the CLI ----------------------------------------------------------------------------------------------------

    def _launch(self, reason: str) -> None:
        source = self._transcript()
        probe = self._deps.files.read_from(source.path, 0, 1, 0, 0)
        resume = isinstance(probe, Bytes) and probe.size > 0
        request = msgspec.structs.replace(self._request, native_session=self._core.native_session, resume=resume)
        self._pane_epoch += 1
        self._state = "starting"
        self._exhausted = False
        self._pane_live = True
        self._launch_reason = reason
        self._follow()
        self._pane.tell(
            pane.Open(
                name=f"{self._row.session_id}-{self._pane_epoch}",  # the one before may not be gone from tmux yet
                recipe=self._deps.adapter.launch(request),
                request=request,
                epoch=self._pane_epoch,
            )
        )

    # --- an earlier life --------------------------------------------------------------------------------------------

    def _rehydrate(self, known: Rehydrate) -> None:
        """Go on from the journal and the record: nothing is typed again on a guess, nothing is settled by memory."""
        self._seq = known.seq
        self._last_completion = known.last_completion
        self._pane_epoch = known.epoch
        self._last_at = known.last_at
        for native, turn_id in known.settled:
            self._core.known_native(native, turn_id, settled=True)
        if known.dormant:
            self._state = "gone"
            self._exhausted = True
            return
        self._messages.update({row.message_id: row for row in (*known.messages, *known.joined)})
        for row in known.turns:
            self._restore_turn(row, known.joined)
        for message in known.messages:
            if message.message_id not in self._core.pending and message.turn_id is None:
                self._restore_message(message, None)
        self._follow()
        if known.endpoint is None:
            self._pane_live = True  # until its record is read to the end, which the next message brings about
            self._pane_gone(
                pane.PaneGone(
                    epoch=self._pane_epoch,
                    exit_status=None,
                    in_progress=None,
                    pressed=False,
                    was_ready=True,
                    last_screen="",
                )
            )
            return
        self._pane_live = True
        self._launch_reason = "attach"
        request = msgspec.structs.replace(self._request, native_session=self._core.native_session, resume=True)
        self._pane.tell(pane.Attach(endpoint=known.endpoint, request=request, epoch=self._pane_epoch))
        for pending in list(self._core.pending.values()):
            if pending.stage != "queued":
                self._deliver(pending, uncertain=True)

    def _restore_turn(self, row: TurnRow, joined: tuple[MessageRow, ...]) -> None:
        message = self._messages.get(row.message_id) if row.message_id is not None else None
        if row.native_turn:
            self._core.known_native(row.native_turn, row.turn_id, settled=False)
        elif message is not None:
            self._restore_message(message, row.turn_id)
        state = turn_core.TurnState(row.state)
        typed = message is not None and message.state in ("submitted", "queued")
        if typed and state is turn_core.TurnState.ACCEPTED:
            state = turn_core.TurnState.SUBMITTED  # the message's row was ahead of the turn's own
        cancelling = state is turn_core.TurnState.CANCELLING
        self._spawn_turn(
            turn_core.Turn(
                turn_id=row.turn_id,
                session_id=row.session_id,
                provider=self._row.provider,
                transport=self._deps.transport.name,
                message_id=row.message_id,
                origin=row.origin,
                parent_turn_id=row.parent_turn_id,
                epoch=row.epoch,
                state=state,
                native_turn=row.native_turn,
                native_session=self._core.native_session,
                cli_version=self._core.cli_version,
                accepted_at=row.accepted_at,
                submitted_at=row.submitted_at,
                bound_at=row.bound_at,
                deadline_at=row.deadline_at,
                joined=tuple(each.message_id for each in joined if each.turn_id == row.turn_id),
                cancel="interrupted" if cancelling else None,
                withdrawing=cancelling and not row.native_turn and row.submitted_at is None,
            ),
            (turn_core.Begin(),),
        )

    def _restore_message(self, row: MessageRow, turn_id: TurnId | None) -> None:
        typed = self._escape(row.text)
        if isinstance(typed, Refused):  # by a newer adapter: the record can still bind it, nothing will type it
            typed = TypedText(text=row.text, paste=row.text.encode(), rewritten=row.text)
        stage: core.Stage = {"queued": "queued", "submitted": "submitted"}.get(row.state, "typing")  # type: ignore[assignment]
        self._core.restore(row.message_id, typed, turn_id, stage, accepted_at=row.accepted_at)
        self._deliverable.add(row.message_id)

    def _follow(self) -> None:
        source, adapter, native = self._transcript(), self._deps.adapter, self._core.native_session
        self._watcher.tell(
            transcript.Follow(
                source=source,
                oracle=lambda offset: adapter.oracle(source, native, offset),
                cursor=self._row.cursor,
                epoch=self._pane_epoch,
            )
        )

    def _transcript(self) -> SourceSpec:
        request = msgspec.structs.replace(self._request, native_session=self._core.native_session)
        return self._deps.adapter.transcript(request)

    def _rebound(self, rebound: core.Rebound) -> events.Draft:
        self._row = msgspec.structs.replace(self._row, native_session=rebound.native_session, cursor=None)
        self._handle = msgspec.structs.replace(self._handle, native_session_id=rebound.native_session)
        self._cursor = self._cursor_next = self._cursor_saved = None
        self._core.history_before = self.clock.wall() - core.RECORD_SKEW_S if rebound.in_contact else self._last_at
        adapter, native, source = self._deps.adapter, rebound.native_session, self._transcript()
        self._watcher.tell(
            transcript.Follow(
                source=source,
                oracle=lambda offset: adapter.oracle(source, native, offset),
                epoch=self._pane_epoch,
            )
        )
        return events.Draft(
            body=events.SessionRebound(native_session_id=rebound.native_session, previous=rebound.previous)
        )

    def _pane_opened(self, opened: pane.PaneOpened) -> None:
        if opened.epoch != self._pane_epoch:
            return
        self._handle = Handle(
            native_session_id=self._core.native_session,
            pane=opened.pane_id,
            pid=opened.pid,
            pid_start=opened.pid_start,
            attach=opened.attach,
        )
        self._row = msgspec.structs.replace(
            self._row, handle=msgspec.json.encode(self._handle).decode(), epoch=self._pane_epoch
        )
        started = events.ProviderStarted(
            pid=opened.pid,
            pane=opened.pane_id,
            reason=self._launch_reason,
            cli_version=self._core.cli_version,
        )
        if self._launch_reason == "attach":
            self._send(session=self._row)  # the CLI was started before: nothing was rebuilt
        else:
            self._send(drafts=(events.Draft(body=started),), session=self._row)
        self._status_source = self._deps.adapter.status_file(self._request, opened.pid)
        self._watcher.tell(transcript.FollowStatus(source=self._status_source))

    def _pane_open_failed(self, failed: pane.PaneOpenFailed) -> None:
        if failed.epoch != self._pane_epoch:
            return
        self._pane_live = False
        self._state = "gone"
        self._exhausted = True
        self._fail_waiting(failed.error.reason)
        self._maybe_closed()

    def _fail_waiting(self, reason: str) -> None:
        for pending in list(self._core.pending.values()):
            if pending.message_id in self._deliverable:  # one whose commit is on its way has no turn to be told yet
                self._apply(self._core.undeliverable(pending.message_id, "launch_failed", reason))
        for token in list(self._controls):
            _fail(self._controls.pop(token), RejectedError("launch_failed", reason, provider=self._row.provider))

    def _pane_report(self, report: typing_core.PaneEffect, at: float) -> None:
        match report:
            case typing_core.Submitted():
                self._submitted(report)
            case typing_core.WithdrawnReport():
                self._apply(self._core.withdraw(report.message_id))
            case typing_core.NotDelivered():
                if report.message_id in self._controls:
                    error = RejectedError("not_delivered", report.reason, provider=self._row.provider)
                    _fail(self._controls.pop(report.message_id), error)
                self._apply(self._core.undeliverable(report.message_id, report.kind, report.reason))
            case typing_core.Delivered():
                control = self._controls.pop(report.message_id, None)
                if control is not None:
                    _resolve(control, self._applied(None, applied=True, token=report.message_id))
            case typing_core.Interrupted():
                self._tell_turn(report.turn_id, (turn_core.InterruptPressed(at=at),))
            case typing_core.NothingToInterrupt():
                self._tell_turn(report.turn_id, (turn_core.InterruptMoot(),))
            case typing_core.DialogSeen():
                self._dialog_seen(report)
            case typing_core.DialogGone():
                self._dialog_gone(report)
            case typing_core.AnswerResult():
                control = self._controls.pop(report.token, None)
                if control is not None and report.applied:
                    _resolve(control, self._applied(None, applied=True, token=report.token))
                elif control is not None:
                    _fail(control, RejectedError("unknown_dialog", "that dialog is not open any more"))
            case typing_core.BecameReady():
                self._failed_starts = 0
                if self._state == "starting":
                    self._state = "idle"
            case typing_core.Held():
                self._held(report)
            case typing_core.Look() | typing_core.LookIn() | typing_core.Paste() | typing_core.Press():
                raise AssertionError(report)
            case _:
                assert_never(report)

    def _submitted(self, report: typing_core.Submitted) -> None:
        pending = self._core.pending.get(report.message_id)
        rows: dict[MessageId, MessageRow] = {}
        if pending is not None:
            self._set_state(rows, report.message_id, "submitted")
        drafts: tuple[events.Draft, ...] = ()
        if pending is not None and pending.turn_id is None:
            body = events.MessageSubmitted(rewritten=report.rewritten)
            draft = events.Draft(body=body, message_id=report.message_id, once=f"submitted:{report.message_id}")
            drafts = (draft,)
        if rows or drafts:
            self._send(messages=tuple(rows.values()), drafts=drafts)
        owner = self._messages.get(report.message_id)
        effects = self._core.submitted(report.message_id, report.rewritten)
        if not effects and owner is not None and owner.turn_id is not None and owner.taken == "started_turn":
            # the record was read before this report came: the turn wants its stamp all the same
            effects = [core.ToTurn(turn_id=owner.turn_id, event=turn_core.Submitted(rewritten=report.rewritten))]
        self._apply(effects)

    def _dialog_seen(self, seen: typing_core.DialogSeen) -> None:
        dialog = seen.dialog
        self._dialog = Dialog(
            dialog_id=seen.dialog_id, kind=dialog.kind, question=dialog.question, options=dialog.options
        )
        body = events.DialogOpened(
            dialog_id=seen.dialog_id, kind=dialog.kind, question=dialog.question, options=dialog.options
        )
        self._send(drafts=(events.Draft(body=body, turn_id=self._running_turn()),))

    def _dialog_gone(self, gone: typing_core.DialogGone) -> None:
        self._dialog = None
        body = events.DialogClosed(dialog_id=gone.dialog_id, by="host" if gone.answered else "elsewhere")
        self._send(drafts=(events.Draft(body=body, turn_id=self._running_turn()),))

    def _held(self, held: typing_core.Held) -> None:
        if held.reason == "dialog":
            return  # the dialog's own event says it
        what = {
            "draft": "a person's draft in the input box",
            "copy_mode": "the attached person's copy mode",
        }[held.reason]
        body = events.StallDiagnosed(waits_for=what, elapsed_s=0.0, quiet_s=0.0, evidence="seen in the pane")
        self._send(drafts=(events.Draft(body=body, turn_id=self._running_turn()),))

    def _running_turn(self) -> TurnId | None:
        return self._core.interrupted_turn()

    def _pane_gone(self, gone: pane.PaneGone) -> None:
        if gone.epoch != self._pane_epoch or not self._pane_live:
            return
        self._pane_live = False
        self._last_gone = gone
        self._handle = Handle(native_session_id=self._core.native_session)
        if self._dialog is not None:
            self._dialog_gone(typing_core.DialogGone(dialog_id=self._dialog.dialog_id, answered=False))
        self._watcher.tell(transcript.FollowStatus(source=None))
        self._watcher.tell(EndpointGoneHint(exit_status=gone.exit_status))

    def _pane_closed(self, closed: pane.PaneClosed) -> None:
        if closed.epoch == self._pane_epoch and self._pane_live:  # it never opened: nobody else will report its end
            self._pane_live = False
            self._watcher.tell(EndpointGoneHint())

    def _gone(self, gone: core.Gone) -> None:
        """The CLI is gone and its record was read to the end."""
        self._state = "gone"
        self._exhausted = True
        last = self._last_gone
        reason = "closed" if self._closing is not None else "provider_exited"
        body = events.SessionGone(reason=reason, exit_status=gone.exit_status)
        self._row = msgspec.structs.replace(self._row, handle="{}")
        self._send(drafts=(events.Draft(body=body),), session=self._row)
        for token in list(self._controls):
            error = RejectedError("not_delivered", "the CLI ended", provider=self._row.provider)
            _fail(self._controls.pop(token), error)
        if self._closing is not None:
            self._maybe_closed()
            return
        if last is not None and not last.was_ready:
            self._failed_starts += 1
        if self._failed_starts >= STARTS_MAX:
            self._failed_starts = 0
            shown = last.last_screen if last is not None else ""
            status = f" with status {gone.exit_status}" if gone.exit_status is not None else ""
            self._fail_waiting(f"the CLI ended{status} before it was ready" + (f": {shown}" if shown else ""))
        else:
            self._dispatch()

    # --- the end ----------------------------------------------------------------------------------------------------

    def _close(self, close: CloseSession) -> None:
        if self._closing is not None:
            _chain(self._closing.reply, close.reply)
            return
        self._closing = close
        for turn_id in list(self._turns):
            self._tell_turn(turn_id, (turn_core.Cancel(),))
        if self._state == "gone":
            for turn_id in list(self._turns):
                self._tell_turn(turn_id, (turn_core.Withdrawn(),))
            self._maybe_closed()
        else:
            self._pane.tell(pane.Close(grace_s=close.grace_s))

    def _maybe_closed(self) -> None:
        closing = self._closing
        if closing is None or self._closed_token is not None or not self._exhausted:
            return
        if self._turns or self._accepting:
            return
        rows: dict[MessageId, MessageRow] = {}
        drafts = [
            self._undelivered(rows, message_id, "session_closed")
            for message_id in [pending.message_id for pending in self._core.pending.values()]
        ]
        self._core.pending.clear()
        now = self.clock.wall()
        if closing.forever:
            self._row = msgspec.structs.replace(self._row, state="closed", closed_at=now)
            drafts.append(events.Draft(body=events.SessionClosed(reason="closed by the host")))
        self._closed_token = self._send(drafts=tuple(drafts), messages=tuple(rows.values()), session=self._row)

    # --- shared -----------------------------------------------------------------------------------------------------

    def _send(
        self,
        *,
        session: SessionRow | None = None,
        accept: MessageRow | None = None,
        messages: tuple[MessageRow, ...] = (),
        turns: tuple[TurnRow, ...] = (),
        drafts: tuple[events.Draft, ...] = (),
    ) -> int:
        cursor = self._cursor if self._cursor != self._cursor_saved else None
        if cursor is not None:
            self._cursor_saved = cursor
            self._row = msgspec.structs.replace(self._row, cursor=cursor)
        return self._outbox.send(
            Batch(
                session_id=self._row.session_id,
                session=session,
                accept=accept,
                messages=messages,
                turns=turns,
                drafts=drafts,
                cursor=cursor,
            )
        )

    def _retry_in(self, delay_s: float, retry: Retry) -> None:
        self.after(delay_s, retry, key=("retry", retry.token))

    def _snapshot(self) -> Snapshot:
        state = self._state
        if self._dialog is not None:
            state = "awaiting_user"
        elif state == "idle" and not self._core.idle:
            state = "busy"
        if self._closing is not None:
            state = "closed"
        return Snapshot(
            session_id=self._row.session_id,
            provider=self._row.provider,
            transport=self._deps.transport.name,
            cwd=self._row.cwd,
            state=state,
            seq=self._seq,
            turn_id=self._running_turn(),
            waiting=tuple(self._core.pending),
            dialog=self._dialog,
            handle=self._handle,
            cli_version=self._core.cli_version,
            last_completion=self._last_completion,
        )


def _resolve(future: Future[Any], value: Any) -> None:
    """Set a result, unless the waiter gave up."""
    if future.set_running_or_notify_cancel() if not future.done() else False:
        future.set_result(value)


def _fail(future: Future[Any], error: BaseException) -> None:
    if future.set_running_or_notify_cancel() if not future.done() else False:
        future.set_exception(error)


def _chain(first: Future[None], second: Future[None]) -> None:
    first.add_done_callback(lambda _: _resolve(second, None))


def _call(function: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: function(argument)


__all__ = [
    "END_GRACE_S",
    "SETTLE_GRACE_S",
    "STARTS_MAX",
    "TURN_RESTARTS_MAX",
    "UNDELIVERED_KEPT_MAX",
    "Abandon",
    "CheckSettling",
    "CloseSession",
    "Control",
    "GetSnapshot",
    "MessageDeadline",
    "Rehydrate",
    "SessionActor",
    "SessionCommand",
    "SessionDeps",
    "Start",
    "Submit",
]
