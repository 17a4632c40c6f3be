"""SessionActor: owns one conversation with one CLI, its queue and its children. Drives :mod:`core.session`.

Everything durable goes through the journal before anyone is told: a completion is told when it is committed. The actor
itself never blocks and never waits for another session. Its rooms, all on its own thread: ``admission`` (messages in),
``controls`` (what is no message), ``dialog_policy`` (dialogs without a person), ``session_cli`` (the CLI's life),
``session_turns`` (the turns' actors), ``session_messages`` (who waits for what), ``session_record`` (the way to the
journal), ``switching`` (another provider), ``rehydration``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, TypeAlias, assert_never

from lastword.actors import mouth, transcript, turn
from lastword.actors.admission import Admission
from lastword.actors.api import ApiActor
from lastword.actors.controls import Controls
from lastword.actors.core import events, reconcile
from lastword.actors.core import session as core
from lastword.actors.core import session_effects as asks
from lastword.actors.core import turn as turn_core
from lastword.actors.core import typing as typing_core
from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.errors import JournalError, LastwordError, RejectedError, SessionFailedError
from lastword.actors.core.facts import CliStatusSeen, RecordExhausted
from lastword.actors.core.fault import PartFailedError, fault_of
from lastword.actors.core.ids import ENTROPY_BYTES, MessageId, TurnId, mint_turn
from lastword.actors.core.outcome import Completion
from lastword.actors.core.pending import Pending
from lastword.actors.core.ports import MessageRow, SessionRow
from lastword.actors.core.snapshot import Snapshot
from lastword.actors.dialog_policy import PolicyRoom
from lastword.actors.journal import CommitFailed, Committed
from lastword.actors.outbox import Retry
from lastword.actors.pane import PaneActor
from lastword.actors.reconciler import Consulted
from lastword.actors.rehydration import rehydrate
from lastword.actors.replies import chain, resolve
from lastword.actors.session_cli import Cli
from lastword.actors.session_commands import (
    Abandon,
    CheckSettling,
    CheckStall,
    CloseSession,
    Control,
    GetSnapshot,
    MessageDeadline,
    PolicySaid,
    PolicyTimedOut,
    Rehydrate,
    SessionDeps,
    Start,
    Submit,
    SwitchTo,
)
from lastword.actors.session_messages import MessageBook, Rows
from lastword.actors.session_record import SessionRecord
from lastword.actors.session_turns import OpenTurns
from lastword.actors.stall_watch import StallWatch
from lastword.actors.stdio import StdioActor
from lastword.actors.switching import Switching
from lastword.actors.system.actor import Actor
from lastword.actors.system.flow import Flow
from lastword.actors.system.ref import Ref
from lastword.actors.system.supervision import ChildFailed
from lastword.actors.system.tracing import Bound

END_GRACE_S = 3.0
"""How long a CLI that ignores interrupts gets between the gentle signal and the hard one."""

READ_AHEAD_MAX = 64
"""Pieces of a session's record that are read and not committed, a large one counted as several (``flow.weight``):
beyond it the record waits in its file. So a session has about one large piece in line before the journal's writer."""


SessionCommand: TypeAlias = (
    Submit
    | Control
    | Abandon
    | MessageDeadline
    | CheckSettling
    | CheckStall
    | Consulted
    | PolicySaid
    | PolicyTimedOut
    | GetSnapshot
    | CloseSession
    | SwitchTo
    | Start
    | Rehydrate
    | Committed
    | CommitFailed
    | Retry
    | turn.TurnFinished
    | turn.WithdrawMessage
    | turn.InterruptTurn
    | turn.EndProvider
    | turn.LookAgain
    | transcript.FactsRead
    | transcript.CaughtUp
    | transcript.Looked
    | transcript.RecordUnread
    | mouth.MouthReport
    | ChildFailed
)


class SessionActor(Actor):
    """One session. Its public attributes are for its own rooms.

    Args:
        deps: the world.
        row: the session's row, as it is (or is being) committed.
        request: how its CLI is launched.
        cli_version: as the CLI printed it at the preflight.
    """

    def __init__(self, deps: SessionDeps, row: SessionRow, request: LaunchRequest, cli_version: str) -> None:
        super().__init__()
        self.flow = Flow(READ_AHEAD_MAX)
        self.record = SessionRecord(row, deps.journal, self.ref, self._retry_in, self.flow)
        self.book = MessageBook()
        self.turns = OpenTurns(self, deps.journal, self._certified, self.flow)
        self.admission = Admission(self)
        self.controls = Controls(self)
        self.policy = PolicyRoom(self)
        self.switching = Switching(self)
        self._watchers = 0
        self._reader_waits = False
        self._reads_held = 0
        """Pieces whose facts wait for a turn to settle."""
        self.configure(deps, request, cli_version, since=row.opened_at)
        self.last_completion: Completion | None = None
        self._closing: CloseSession | None = None
        self._closed_token: int | None = None
        self._settling_armed = False
        self._ending: dict[TurnId, float] = {}
        """Turns that were told their end, and when (monotonic)."""

    def _certified(self) -> tuple[str, ...] | None:
        """The versions of its CLI on which its adapter was seen to work; None: an API, which has no CLI."""
        adapter = self.deps.adapter
        return None if adapter.transport == "api" else adapter.certified_versions

    def configure(self, deps: SessionDeps, request: LaunchRequest, cli_version: str, *, since: float) -> None:
        """The rooms that know the provider, made for the row as it is. ``since``: what its record stamps before that is
        history.
        """
        row, adapter = self.record.row, deps.adapter
        self.deps = deps
        self.core = core.SessionCore(
            adapter.matches, self.new_turn_id, row.native_session, self._was_settled, adapter.key
        )
        self.core.cli_version = cli_version
        self.core.history_before = min(since, self.clock.wall()) - core.RECORD_SKEW_S
        self.cli = Cli(self, request)
        self.stalls = StallWatch(self)
        self.mouth = self._spawn_mouth()
        self.watcher = self._spawn_watcher()
        self._reader_waits = False

    def reconfigure(self, deps: SessionDeps, request: LaunchRequest, cli_version: str, *, since: float) -> None:
        """The same for another provider: nothing of the one before is listened to any more."""
        for room in (self.mouth, self.watcher):
            room.stop()
        self.stalls.end()
        self.configure(deps, request, cli_version, since=since)

    @property
    def closing(self) -> bool:
        """Whether it was asked to end."""
        return self._closing is not None

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def receive(self, message: SessionCommand) -> Any:
        match message:  # what every turn brings comes first
            case Committed():
                self._committed(message)
            case transcript.FactsRead():
                self._facts(message)
            case mouth.Opened() | mouth.OpenFailed() | mouth.Said() | mouth.Gone() | mouth.Closed():
                self.cli.heard(message)
            case turn.TurnFinished():
                self._turn_finished(message)
            case Submit():
                self.admission.submit(message)
            case Control():
                self.controls.take(message)
            case Abandon():
                self.admission.abandon(message.submit)
            case MessageDeadline():
                self.admission.deadline_passed(message.message_id)
            case CheckSettling():
                self._settling_armed = False
                self.put_right()
                self._watch_settling()
            case CheckStall():
                self.stalls.check()
            case Consulted():
                self.stalls.consulted(message)
            case PolicySaid():
                self.policy.said(message)
            case PolicyTimedOut():
                self.policy.timed_out(message)
            case GetSnapshot():
                return self._snapshot()
            case CloseSession():
                self._close(message)
            case SwitchTo():
                self.admission.switch(message)
            case Start():
                self.core.remembers_all = True  # it begins here
                self.cli.launch(message.reason)
            case Rehydrate():
                rehydrate(self, message)
            case CommitFailed():
                self.record.failed(message)
                self.admission.commit_failed(message)
            case Retry():
                self.record.again(message)
            case turn.WithdrawMessage():
                self._withdraw(message)
            case turn.InterruptTurn():
                self._interrupt(message)
            case turn.EndProvider():
                self._given_up()
                self.mouth.tell(mouth.Close(grace_s=END_GRACE_S))
            case turn.LookAgain():
                self.watcher.tell(transcript.Look(turn_id=message.turn_id))
            case transcript.Looked():
                self._looked(message)
            case transcript.RecordUnread():
                self.stalls.unread(message.path, message.reason)
                if self.turns.interrupted:  # it was given up before anybody knew that there is nothing to be read
                    self._given_up()
            case transcript.CaughtUp():
                self._caught_up(message)
            case ChildFailed():
                self._child_failed(message)
            case _:
                assert_never(message)
        return None

    def stopped(self) -> None:
        """Whoever still waits is told, not left waiting."""
        error: LastwordError = RejectedError("session_closed", "the session has ended")
        if (raised := self.failure) is not None:
            fault = fault_of(raised, self.ref.name, [row.text for row in self.book.rows.values()])
            error = SessionFailedError(fault.what)
        self.admission.refuse_all(error)
        self.book.give_up_all(error)
        self.controls.fail_all(error)
        self.switching.refuse(error)
        if self._closing is not None:
            resolve(self._closing.reply, None)

    def _committed(self, answer: Committed) -> None:
        batch = self.record.committed(answer)
        if batch is not None:
            if batch.session is not None:
                self.cli.recorded(batch.session.native_session)
            self.admission.committed(answer)
            self.controls.committed(answer.token)
            self.switching.committed(answer.token)
        if answer.token == self._closed_token:
            if self._closing is not None and self._closing.forever:
                self.cli.discard()
            self.stop()
            return
        self.maybe_ended()

    # --- delivery -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Hand every committed message that still waits to the pane, in order; start the CLI again if it is gone."""
        waiting = [
            pending
            for pending in self.core.pending.values()
            if pending.stage == "waiting" and pending.message_id in self.book.deliverable
        ]
        if not waiting:
            return
        if self.cli.state == "gone":
            self.cli.launch("resume")
        if not self.cli.caught_up:
            return  # nothing is typed before the record can prove that it was: it goes on then
        for pending in waiting:
            self.core.typing(pending.message_id)
            self.deliver(pending, uncertain=False)

    def deliver(self, pending: Pending, *, uncertain: bool) -> None:
        """Hand it to the pane; ``uncertain``: an earlier life may have typed it."""
        self.belongs_to(self.book.trace_of(pending.message_id))
        row = self.book.rows.get(pending.message_id)
        job = typing_core.Job(
            message_id=pending.message_id,
            typed=pending.typed,
            turn_id=pending.turn_id,
            uncertain=uncertain,
            entered=uncertain and row is not None and row.state == "submitted",
        )
        self.mouth.tell(mouth.Deliver(job=job))

    def _withdraw(self, message: turn.WithdrawMessage) -> None:
        if self.core.unwanted(message.message_id):
            self.apply(self.core.withdraw(message.message_id))
        else:
            self.mouth.tell(mouth.Withdraw(message_id=message.message_id))

    def _interrupt(self, message: turn.InterruptTurn) -> None:
        self.turns.interrupt(message.turn_id)
        self._given_up()
        if not self.closing:
            native = self.core.open.get(message.turn_id, "")
            self.mouth.tell(mouth.PressInterrupt(turn_id=message.turn_id, native_turn=native))

    def _given_up(self) -> None:
        if self.stalls.blind:
            self.watcher.tell(transcript.GivenUp())

    # --- turns ------------------------------------------------------------------------------------------------------

    def new_turn_id(self) -> TurnId:
        """One that was never given before."""
        return mint_turn(self.clock.wall(), self.deps.entropy(ENTROPY_BYTES))

    def _was_settled(self, native_turn: str) -> bool:
        row = self.record.row
        turn_id = self.deps.reader.settled_turn(row.session_id, native_turn)
        if turn_id is None or row.config_epoch == 1:
            return turn_id is not None
        done = self.deps.reader.completion(turn_id)  # another provider may have given a turn of its own that name
        return done is None or done.provider == row.provider

    def _turn_finished(self, finished: turn.TurnFinished) -> None:
        open_turn = self.turns.finished(finished)
        if open_turn is None:
            return
        self.last_completion = finished.completion
        self.record.reached(finished.seq)
        self.book.settled({*open_turn.messages, *finished.completion.joined}, finished.completion)
        self.apply(self.core.finished(finished.turn_id))
        self._go_on_reading()
        self._take_place()
        self.cli.tidy()
        self.admission.unpark()
        self.maybe_ended()

    def _child_failed(self, failed: ChildFailed) -> None:
        """A turn's actor is replaced; any other failure is the session's own."""
        if not self.turns.failed(failed):
            raise PartFailedError(failed.ref.name) from failed.error

    def put_right(self) -> None:
        """C40: put right what the journal and our own actors say differently, by ordinary means."""
        try:
            views = [self._view_of(turn_id) for turn_id in self.core.open]
        except JournalError:
            return
        waits = not self.record.acknowledged or self.deps.reader.failing or self.deps.reader.writing
        for repair in reconcile.reconcile(views, journal_waits=waits):
            match repair:
                case reconcile.FinishFromJournal():
                    open_turn = self.turns.get(repair.turn_id)
                    done = self.deps.reader.completion(repair.turn_id)
                    if open_turn is not None and done is not None:
                        epoch = open_turn.turn.epoch
                        self._turn_finished(turn.TurnFinished(turn_id=repair.turn_id, epoch=epoch, completion=done))
                        open_turn.ref.stop()
                case reconcile.ForgetTurn():
                    self.apply(self.core.finished(repair.turn_id))
                    self._go_on_reading()
                case reconcile.ReplaceActor():
                    if self.turns.replace(repair.turn_id):
                        del self._ending[repair.turn_id]
                        what = f"{repair.what}: {repair.turn_id}"  # not as an event of the turn: it may be over by now
                        body = events.InvariantViolated(what=what, repair="its actor was replaced under a new epoch")
                        self.record.send(drafts=(events.Draft(body=body),))
                case _:
                    assert_never(repair)

    def _view_of(self, turn_id: TurnId) -> reconcile.TurnView:
        return reconcile.TurnView(
            turn_id=turn_id,
            native_turn=self.core.open[turn_id],
            told_end=self.clock.monotonic() - self._ending.get(turn_id, inf) >= reconcile.SETTLE_GRACE_S - 0.001,
            has_actor=turn_id in self.turns,
            on_record=self.deps.reader.completion(turn_id) is not None,
        )

    def _watch_settling(self) -> None:
        now_s = self.clock.monotonic()
        self._ending = {turn_id: self._ending.get(turn_id, now_s) for turn_id in self.core.ending}
        if self._ending and not self._settling_armed:
            self._settling_armed = True
            self.after(reconcile.SETTLE_GRACE_S, CheckSettling(), key="settling")

    def _spawn_mouth(self) -> Ref:
        deps, row = self.deps, self.record.row
        which = f"#{row.config_epoch}" if row.config_epoch > 1 else ""
        if deps.transport.name == "api":
            loop = (deps.transport, deps.adapter, deps.files, deps.journal, row.session_id)
            return self.spawn(ApiActor, *loop, name=f"{row.session_id}/api{which}")
        if deps.streams is not None:
            parts = (deps.transport, deps.adapter, deps.files, deps.wakes)
            return self.spawn(StdioActor, *parts, name=f"{row.session_id}/stdio{which}")
        return self.spawn(PaneActor, deps.transport, deps.adapter, deps.files, name=f"{row.session_id}/pane{which}")

    def _spawn_watcher(self) -> Ref:
        self._watchers += 1
        name = f"{self.record.row.session_id}/transcript" + (f"#{self._watchers}" if self._watchers > 1 else "")
        self._reads_held = 0
        self.flow.forget(transcript.READ)
        deps = self.deps
        return self.spawn(transcript.TranscriptWatcherActor, deps.files, deps.wakes, self.flow, name=name)

    def renew_watcher(self) -> None:
        """The one that is there does not see what is on record: another reads it, from the last sure place."""
        self.watcher.stop()
        self.watcher = self._spawn_watcher()
        self._reader_waits = False
        self.stalls.unread("", "")  # this one has not looked yet
        self.cli.follow_again()

    # --- facts ------------------------------------------------------------------------------------------------------

    def _facts(self, read: transcript.FactsRead) -> None:
        self._reads_held += read.weight
        self._take_in(read)
        self._go_on_reading()
        self._take_place()

    def _take_in(self, read: transcript.FactsRead) -> None:
        if read.epoch <= self.record.row.config_floor:
            self.system.dead_letters.record("fact_of_former_provider", self.ref.name, read)
            return
        for fact in read.facts:
            if isinstance(fact, CliStatusSeen):
                self.mouth.tell(mouth.Nudge())
        facts = read.facts
        if read.epoch != self.cli.epoch:  # the end of a CLI that has a successor by now says nothing about that one
            facts = tuple(fact for fact in facts if not isinstance(fact, RecordExhausted))
        self.core.clock_seen(self.clock.wall() - self.clock.monotonic())
        self.stalls.note(facts, read.path, read.read_to)
        self._reader_waits = read.more
        self.apply(self.core.read(facts))
        self.record.read_to(read.cursor, facts=bool(read.facts))

    def _looked(self, looked: transcript.Looked) -> None:
        """All that was on record has been told; what waits here for a turn to settle says nothing about this one."""
        if looked.turn_id in self.turns:
            self.turns.tell(looked.turn_id, turn_core.LookedAgain(read=looked.read))

    def _go_on_reading(self) -> None:
        """The next piece of a long record, once this one is dealt with: no more than one is ever held here."""
        if self.core.backlog:
            return
        held, self._reads_held = self._reads_held, 0
        self.flow.give(transcript.READ, held)
        if self._reader_waits:
            self._reader_waits = False
            self.watcher.tell(transcript.FactsTaken())

    def _caught_up(self, caught_up: transcript.CaughtUp) -> None:
        for message_id in self.cli.reader_caught_up(caught_up):
            pending = self.core.pending.get(message_id)
            if pending is not None and pending.stage != "queued":
                self.deliver(pending, uncertain=True)
        self.dispatch()
        self.cli.tidy()

    def _take_place(self) -> None:
        self.record.take_place(quiet=not self.core.backlog and not any(self.core.open.values()))

    def apply(
        self, effects: Iterable[asks.SessionEffect], rows: Rows | None = None, drafts: Iterable[events.Draft] = ()
    ) -> None:
        """Carry out: first what goes to the journal, then what turns are told (their own batches come after). ``rows``
        and ``drafts`` go with it. The row of a message that owns an open turn is committed by that turn alone, with
        what it is told: so one batch is enough, and no newer row is overtaken by an older one.
        """
        drafts = list(drafts)
        rows = {} if rows is None else rows
        told: list[tuple[TurnId, list[turn_core.TurnEvent]]] = []
        begin: list[tuple[turn_core.Turn, asks.OpenTurn]] = []
        after: list[Callable[[], None]] = []
        moved: SessionRow | None = None
        for effect in effects:
            match effect:
                case asks.OpenTurn():
                    begin.append((self._turn_of(effect), effect))
                    if effect.message_id is not None:
                        self._trace_binding(effect.turn_id, effect.message_id)
                    self.book.bind(rows, effect.message_id, effect.turn_id, "bound")
                case asks.ToTurn():
                    if isinstance(effect.event, turn_core.Joined):
                        self._trace_binding(effect.turn_id, effect.event.message_id)
                        self.book.bind(rows, effect.event.message_id, effect.turn_id, "joined")
                    elif isinstance(effect.event, turn_core.Bound | turn_core.Adopted):
                        open_turn = self.turns.get(effect.turn_id)
                        if open_turn is not None:
                            self.book.bind(rows, open_turn.turn.message_id, effect.turn_id, "bound")
                    if told and told[-1][0] == effect.turn_id:
                        told[-1][1].append(effect.event)
                    else:
                        told.append((effect.turn_id, [effect.event]))
                case asks.Proved():
                    if effect.record:
                        self.book.told_by(rows, effect.message_id, effect.record)
                    after.append(_call(self.mouth.tell, mouth.Prove(message_id=effect.message_id)))
                    if effect.stage == "queued":
                        self.book.advance(rows, effect.message_id, "queued")
                        drafts.append(_queued_draft(effect))
                case asks.Undelivered():
                    drafts.append(self.book.undelivered(rows, effect.message_id, effect.reason))
                case asks.Rebound():
                    drafts.append(self.cli.rebound(effect))
                case asks.Moved():
                    moved = self.record.row
                case asks.Gone():
                    after.append(_call(self.cli.gone, effect))
                case asks.Count():
                    self.system.dead_letters.record(effect.what, self.ref.name, effect, effect.times)
                case _:
                    assert_never(effect)
        turn_rows = tuple(turn_core.row_of(state) for state, _ in begin)
        owned = self.turns.owned(rows)
        if drafts or rows or turn_rows or moved is not None:
            self.record.send(session=moved, drafts=tuple(drafts), messages=tuple(rows.values()), turns=turn_rows)
        for state, opened in begin:
            unwanted = (turn_core.Cancel(),) if opened.message_id in self.book.abandoned else ()
            self.turns.begin(state, (turn_core.Begin(), opened.bound, *unwanted))
        for turn_id, turn_events in told:
            self.turns.tell(turn_id, *turn_events, rows=owned.pop(turn_id, ()))
        for turn_id, own in owned.items():
            self.turns.tell(turn_id, rows=own)
        for action in after:
            action()
        self._watch_settling()
        self.stalls.follow()

    def _trace_binding(self, turn_id: TurnId, message_id: MessageId) -> None:
        if self.system.tracer is not None:
            self.note(Bound(turn_id, message_id))

    def _turn_of(self, opened: asks.OpenTurn) -> turn_core.Turn:
        message = self.book.rows.get(opened.message_id) if opened.message_id is not None else None
        return turn_core.Turn(
            turn_id=opened.turn_id,
            session_id=self.record.row.session_id,
            provider=self.record.row.provider,
            transport=self.deps.transport.name,
            message_id=opened.message_id,
            origin=opened.origin,
            native_turn=opened.bound.prompt.native_turn,
            native_session=self.core.native_session,
            cli_version=self.core.cli_version,
            accepted_at=message.accepted_at if message is not None else self.clock.wall(),
            deadline_at=self._deadline_of(message) if message is not None else None,
        )

    def _deadline_of(self, message: MessageRow) -> float | None:
        """In terms of the wall clock as it stands now, however it was set meanwhile."""
        mono_s = self.book.deadlines_mono.get(message.message_id)
        return message.deadline_at if mono_s is None else self.clock.wall() + mono_s - self.clock.monotonic()

    # --- the end ----------------------------------------------------------------------------------------------------

    def _close(self, close: CloseSession) -> None:
        if self._closing is not None:
            chain(self._closing.reply, close.reply)
            return
        self._closing = close
        self.policy.overtaken()
        for turn_id in self.turns:
            self.turns.tell(turn_id, turn_core.Cancel())
        if self.cli.state == "gone":
            for turn_id in self.turns:
                self.turns.tell(turn_id, turn_core.Withdrawn())
            self.maybe_ended()
        else:
            self.mouth.tell(mouth.Close(grace_s=close.grace_s))

    def maybe_ended(self) -> None:
        """Something came to its end: was it the last of it, the session closes or goes on with another provider."""
        self.maybe_closed()
        self.switching.go_on()

    def maybe_closed(self) -> None:
        """Once it was asked to end and nothing is open any more: have the end committed."""
        closing = self._closing
        if closing is None or self._closed_token is not None or not self.cli.exhausted:
            return
        if self.turns or self.admission.busy:
            return
        rows: Rows = {}
        why = "session_closed" if closing.forever else "runtime_closed"  # the session goes on with the next runtime
        drafts = [self.book.undelivered(rows, pending.message_id, why) for pending in self.core.pending.values()]
        self.core.pending.clear()
        if closing.forever:
            self.record.change(state="closed", closed_at=self.clock.wall())
            drafts.append(events.Draft(body=events.SessionClosed(reason="closed by the host")))
        self._closed_token = self.record.send(
            drafts=tuple(drafts), messages=tuple(rows.values()), session=self.record.row
        )

    # --- shared -----------------------------------------------------------------------------------------------------

    def _retry_in(self, delay_s: float, retry: Retry) -> None:
        self.after(delay_s, retry, key=("retry", retry.token))

    def _snapshot(self) -> Snapshot:
        row, state = self.record.row, self.cli.state
        running = self.core.interrupted_turn()
        if self.cli.dialog is not None:
            state = "awaiting_user"
        elif state == "idle" and not self.core.idle:
            state = "busy"
        if self.switching.active:
            state = "starting"
        if self.closing:
            state = "closed"
        return Snapshot(
            session_id=row.session_id,
            provider=row.provider,
            transport=self.deps.transport.name,
            cwd=row.cwd,
            state=state,
            seq=self.record.seq,
            turn_id=running,
            waiting=tuple(self.core.pending),
            dialog=self.cli.dialog,
            handle=self.cli.handle,
            cli_version=self.core.cli_version,
            last_completion=self.last_completion,
            waits_for=self.stalls.wait(),
            config_epoch=row.config_epoch,
        )


def _queued_draft(proved: asks.Proved) -> events.Draft:
    return events.Draft(
        body=events.MessageQueued(evidence=proved.evidence),
        message_id=proved.message_id,
        native_at=proved.evidence.native_at,
        once=f"queued:{proved.message_id}",
    )


def _call(function: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: function(argument)


__all__ = [
    "END_GRACE_S",
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
    "SwitchTo",
]
