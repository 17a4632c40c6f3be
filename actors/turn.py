"""TurnActor: drives :mod:`lastword.actors.core.turn` for one turn and carries out its effects, in order.

It takes one terminal fact, has it committed, tells its session, and stops. It decides nothing itself.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias, assert_never

import msgspec

from lastword.actors.core import events
from lastword.actors.core import turn as core
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import Batch, TurnRow
from lastword.actors.journal import CommitFailed, Committed
from lastword.actors.outbox import Outbox, Retry
from lastword.actors.system.actor import Actor
from lastword.actors.system.flow import Flow
from lastword.actors.system.ref import Ref


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Events for the turn, in order; handled as one, so that they are committed together."""

    TRACED_BY: ClassVar[str] = "events"

    turn_id: TurnId
    events: tuple[core.TurnEvent, ...]


class TurnTimer(msgspec.Struct, frozen=True, kw_only=True):
    """One of the turn's own timers ran out."""

    turn_id: TurnId
    name: core.TimerName


TurnCommand: TypeAlias = Tell | TurnTimer | Committed | CommitFailed | Retry


class TurnFinished(msgspec.Struct, frozen=True, kw_only=True):
    """To the session: the completion that stands is committed; ``seq`` is the session's last one then."""

    turn_id: TurnId
    epoch: int
    completion: Completion
    seq: int = 0


class WithdrawMessage(msgspec.Struct, frozen=True, kw_only=True):
    """To the session, for the pane: forget the message if it was not typed."""

    turn_id: TurnId
    message_id: MessageId


class InterruptTurn(msgspec.Struct, frozen=True, kw_only=True):
    """To the session, for the pane: press the interrupt key."""

    turn_id: TurnId


class EndProvider(msgspec.Struct, frozen=True, kw_only=True):
    """To the session, for the pane: the CLI ignores interrupts, end it."""

    turn_id: TurnId


class LookAgain(msgspec.Struct, frozen=True, kw_only=True):
    """To the session, for the watcher: read the record to its end and say so."""

    turn_id: TurnId


class TurnActor(Actor):
    """One turn.

    Args:
        journal: the journal actor.
        turn: what is known of it; its row is committed already, or is in the batch before this actor's first.
        flow: counts what it was told and has not dealt with, as the turn's share.
    """

    def __init__(self, journal: Ref, turn: core.Turn, flow: Flow) -> None:
        super().__init__()
        self.lives_in(turn.turn_id)
        self._turn = turn
        self._journal = journal
        self._flow = flow
        self._outbox = Outbox(journal, self.ref, self._retry_in, flow, turn.turn_id)
        self._finished = False
        self._seq = 0

    def receive(self, message: TurnCommand) -> None:
        match message:
            case Tell():
                self._step(*message.events)
                self._flow.give(self._turn.turn_id)
            case TurnTimer():
                self._step(core.TimerFired(name=message.name))
            case Committed():
                self._committed(message)
            case CommitFailed():
                self._failed(message)
            case Retry():
                self._outbox.again(message)
            case _:
                assert_never(message)
        if self._finished and self._outbox.empty:
            self.stop()

    def _retry_in(self, delay_s: float, retry: Retry) -> None:
        self.after(delay_s, retry, key=("retry", retry.token))

    def _committed(self, answer: Committed) -> None:
        batch = self._outbox.committed(answer)
        self._seq = max(self._seq, answer.recorded.last_seq)
        if batch is None or batch.completion is None:
            return
        standing = answer.recorded.completion or batch.completion
        self._step(core.CompletionRecorded(completion=standing, won=answer.recorded.won))

    def _failed(self, answer: CommitFailed) -> None:
        self._outbox.failed(answer)

    def _step(self, *incoming: core.TurnEvent) -> None:
        now = core.Now(mono_s=self.clock.monotonic(), wall_s=self.clock.wall())
        drafts: list[events.Draft] = []
        row: TurnRow | None = None
        completion: Completion | None = None
        told: list[core.Effect] = []
        for event in incoming:
            self._turn, effects = core.step(self._turn, event, now)
            for effect in effects:
                match effect:
                    case core.Emit():
                        drafts.append(effect.draft)
                    case core.Persist():
                        row = effect.row
                    case core.RecordCompletion():
                        completion = effect.completion
                    case _:
                        told.append(effect)
        if drafts or row is not None or completion is not None:
            self._outbox.send(
                Batch(
                    session_id=self._turn.session_id,
                    turns=(row,) if row is not None else (),
                    drafts=tuple(drafts),
                    completion=completion,
                )
            )
        for effect in told:
            self._carry_out(effect)

    def _carry_out(self, effect: core.Effect) -> None:
        turn_id, session = self._turn.turn_id, self.parent
        assert session is not None
        match effect:
            case core.Withdraw():
                session.tell(WithdrawMessage(turn_id=turn_id, message_id=effect.message_id))
            case core.PressInterrupt():
                session.tell(InterruptTurn(turn_id=turn_id))
            case core.EndEndpoint():
                session.tell(EndProvider(turn_id=turn_id))
            case core.LookAgain():
                session.tell(LookAgain(turn_id=turn_id))
            case core.SetTimer():
                self.after(effect.delay_s, TurnTimer(turn_id=turn_id, name=effect.name), key=effect.name)
            case core.CancelTimer():
                self.cancel_timer(effect.name)
            case core.RecordLate():
                self.system.dead_letters.record(effect.what, self.ref.name, effect)
            case core.Finish():
                finished = TurnFinished(
                    turn_id=turn_id, epoch=self._turn.epoch, completion=effect.completion, seq=self._seq
                )
                session.tell(finished)
                self._finished = True
            case core.Emit() | core.Persist() | core.RecordCompletion():
                raise AssertionError(effect)
            case _:
                assert_never(effect)
