"""The turn machine: the only place that decides that a turn is over.

House rules
-----------
- Every state has one function in this file, and what several of them share stands in the ``turn_*`` modules beside it.
  Every legal edge stands in :data:`TURN_EDGES`; ``step`` asserts its result against them and a test compares
  declared with reachable edges.
- The machine reads no clock and does nothing: it answers with effects, which its actor carries out in order.
- A turn leaves ``SETTLING`` only when the journal says that a completion stands. Facts that come later change
  nothing; they are counted as late.

Theory of operation
-------------------
``ACCEPTED`` (committed, not typed yet) -> ``SUBMITTED`` (typed, Enter pressed) -> ``RUNNING`` (the provider's own
record shows the prompt) -> ``SETTLING`` (a terminal fact was taken; its completion is on its way to the journal)
-> ``SETTLED``. ``CANCELLING`` is entered by an interrupt or a deadline; the provider's own record still decides how
the turn ended, so a turn that completed just before the key arrived is ``completed``. Where an interrupt leaves no
record at all (Claude Code before any output), the CLI's own registry saying *idle* after our key, and nothing in
the record for a named time after that, settles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import msgspec

from lastword.actors.core import events
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    CompactionRecorded,
    ProviderRetrying,
    RecordExhausted,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
)
from lastword.actors.core.ports import RowState, TurnRow
from lastword.actors.core.turn_bounds import INTERRUPT_AGAIN_S, RECORD_RETRY_S
from lastword.actors.core.turn_cancelling import (
    arm_deadline,
    cancel,
    idle_behind_interrupt,
    moot,
    press,
    reread,
    resume_cancelling,
    timer_while_cancelling,
    timer_while_open,
)
from lastword.actors.core.turn_drafts import emit
from lastword.actors.core.turn_idle import (
    idle_behind_answer,
    idle_behind_prompt,
    note_status,
    reconcile,
    seek_end,
    sought_end,
)
from lastword.actors.core.turn_messages import (
    Adopted,
    Begin,
    Bound,
    Cancel,
    CancelReason,
    CancelTimer,
    CompletionRecorded,
    Effect,
    Emit,
    EndEndpoint,
    Finish,
    InterruptMoot,
    InterruptPressed,
    Joined,
    LookAgain,
    LookedAgain,
    Now,
    Persist,
    PressInterrupt,
    RecordCompletion,
    RecordingFailed,
    RecordLate,
    SetTimer,
    Step,
    Submitted,
    Superseded,
    TimerFired,
    TimerName,
    Tool,
    Turn,
    TurnEvent,
    TurnFact,
    TurnState,
    Undeliverable,
    Withdraw,
    Withdrawn,
)
from lastword.actors.core.turn_progress import join, progress, submit
from lastword.actors.core.turn_settling import close, ended, fail_delivery, lose, settle_cancelled

_A, _S, _R, _C = TurnState.ACCEPTED, TurnState.SUBMITTED, TurnState.RUNNING, TurnState.CANCELLING
_SETTLING, _SETTLED = TurnState.SETTLING, TurnState.SETTLED

TURN_EDGES: Mapping[TurnState, frozenset[TurnState]] = {
    _A: frozenset({_A, _S, _R, _C, _SETTLING}),
    _S: frozenset({_S, _R, _C, _SETTLING}),
    _R: frozenset({_R, _C, _SETTLING}),
    _C: frozenset({_C, _SETTLING}),
    _SETTLING: frozenset({_SETTLING, _SETTLED}),
    _SETTLED: frozenset({_SETTLED}),
}

_ROW_STATES: Mapping[TurnState, RowState] = {
    _A: "accepted",
    _S: "submitted",
    _R: "running",
    _C: "cancelling",
    _SETTLING: "cancelling",  # never written: the completion's own transaction makes the row "settled"
    _SETTLED: "settled",
}


def step(turn: Turn, event: TurnEvent, now: Now) -> Step:
    """Take one message; give the turn after it and what must be done, in order. Pure.

    Raises:
        AssertionError: a rule of this file broke one of its own declared edges.
    """
    match turn.state:
        case TurnState.ACCEPTED:
            after, effects = _accepted(turn, event, now)
        case TurnState.SUBMITTED:
            after, effects = _submitted(turn, event, now)
        case TurnState.RUNNING:
            after, effects = _running(turn, event, now)
        case TurnState.CANCELLING:
            after, effects = _cancelling(turn, event, now)
        case TurnState.SETTLING:
            after, effects = _settling(turn, event)
        case TurnState.SETTLED:
            after, effects = _settled(turn, event)
        case _:
            assert_never(turn.state)
    assert after.state in TURN_EDGES[turn.state], f"{turn.state} -> {after.state} is no declared edge"
    if after.state not in (_SETTLING, _SETTLED) and (
        after.state != turn.state or after.native_turn != turn.native_turn
    ):
        effects = (*effects, Persist(row=row_of(after)))
    return after, effects


# --- one function per state ---------------------------------------------------------------------------------


def _accepted(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, arm_deadline(turn, now)
        case Bound():
            return _bind(turn, event, now)
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted():
            return submit(turn, event, now, TurnState.SUBMITTED)
        case Joined():
            return join(turn, event)
        case Undeliverable():
            return fail_delivery(turn, event, now)
        case Cancel():
            return cancel(turn, event.reason)
        case Withdrawn():
            return turn, ()  # an answer to a withdrawal that this epoch did not ask for
        case TimerFired():
            return timer_while_open(turn, event)
        case TurnClosed():
            return close(turn, event, now)
        case RecordExhausted():
            return turn, ()  # nothing was typed: the session opens the conversation again and delivers
        case Superseded():
            return turn, ()  # nothing was typed: the message goes to the conversation that the CLI is in now
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return turn, (RecordLate(what="fact_before_binding"),)
        case CliStatusSeen():
            return note_status(turn, event), ()
        case CompactionRecorded() | InterruptPressed() | InterruptMoot() | LookedAgain():
            return turn, ()  # nothing runs for this turn yet
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _submitted(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, arm_deadline(turn, now)
        case Bound():
            return _bind(turn, event, now)
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted() | Withdrawn():
            return turn, ()  # said twice, or too late to withdraw
        case Joined():
            return join(turn, event)
        case Undeliverable():
            return fail_delivery(turn, event, now)
        case Cancel():
            return cancel(turn, event.reason)
        case TimerFired():
            return timer_while_open(turn, event)
        case TurnClosed():
            return close(turn, event, now)
        case RecordExhausted():
            return lose(turn, now, "provider_exited", ended(turn, event, "does not show the prompt"))
        case Superseded():
            why = event.why or "the CLI went to another conversation before the prompt was recorded"
            return lose(turn, now, "superseded", why)
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return turn, (RecordLate(what="fact_before_binding"),)
        case CliStatusSeen():
            return note_status(turn, event), ()
        case CompactionRecorded() | InterruptPressed() | InterruptMoot() | LookedAgain():
            return turn, ()  # hints at most: the record decides
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _running(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, arm_deadline(turn, now)
        case Bound():
            return _bind_again(turn, event), ()
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted():
            return submit(turn, event, now, TurnState.RUNNING)  # the record was faster than our own report
        case Joined():
            return join(turn, event)
        case Undeliverable() | Withdrawn():
            return turn, ()  # the record shows the prompt: that wins
        case Cancel():
            return cancel(turn, event.reason)
        case TimerFired(name="answer_grace"):
            return reconcile(turn, now)
        case TimerFired(name="record_gone"):
            return seek_end(turn)
        case LookedAgain():
            return sought_end(turn, event, now)
        case TimerFired():
            return timer_while_open(turn, event)
        case TurnClosed():
            return close(turn, event, now)
        case RecordExhausted():
            return lose(turn, now, "provider_exited", ended(turn, event, "holds no end of this turn"))
        case Superseded():
            return lose(turn, now, "superseded", "the CLI went to another conversation; this one has no end")
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return progress(turn, event)
        case CliStatusSeen():
            after = note_status(turn, event)
            return after, (*idle_behind_answer(after), *idle_behind_prompt(after))
        case CompactionRecorded() | InterruptPressed() | InterruptMoot():
            return turn, ()  # hints at most: the record decides
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _cancelling(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, resume_cancelling(turn, now)
        case Bound() if turn.native_turn == event.prompt.native_turn:
            return _bind_again(turn, event), ()
        case Bound():
            return _bind(turn, event, now)
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted():
            after, effects = submit(turn, event, now, TurnState.CANCELLING)
            if not turn.withdrawing:
                return after, effects
            after = msgspec.structs.replace(after, withdrawing=False)
            return after, (*effects, *press())  # it was typed before we could withdraw it: interrupt it
        case Withdrawn():
            if turn.native_turn:
                return turn, ()  # the record shows the prompt: that wins
            return settle_cancelled(turn, now, source="delivery")
        case Joined():
            return join(turn, event)
        case Undeliverable():
            return settle_cancelled(turn, now, source="delivery")
        case Cancel():
            return turn, ()  # already on its way
        case InterruptPressed():
            first = turn.interrupted_at if turn.interrupted_at is not None else event.at
            return msgspec.structs.replace(turn, interrupted_at=first, pressing_early=False), ()
        case InterruptMoot():
            return moot(turn, now)
        case LookedAgain():
            return reread(turn, now)
        case CliStatusSeen():
            return idle_behind_interrupt(note_status(turn, event), event)
        case TimerFired():
            return timer_while_cancelling(turn, event, now)
        case TurnClosed():
            return close(turn, event, now)
        case RecordExhausted():
            return settle_cancelled(turn, now, source="process_exit")
        case Superseded():
            return settle_cancelled(turn, now, source="interrupt")
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return progress(turn, event)
        case CompactionRecorded():
            return turn, ()  # no part of how the turn ends
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _settling(turn: Turn, event: TurnEvent) -> Step:
    assert turn.completion is not None
    match event:
        case CompletionRecorded():
            settled = msgspec.structs.replace(turn, state=TurnState.SETTLED, completion=event.completion)
            return settled, (Finish(completion=event.completion),)
        case RecordingFailed():
            return turn, (SetTimer(name="record_retry", delay_s=RECORD_RETRY_S),)
        case TimerFired(name="record_retry") | Begin():
            return turn, (RecordCompletion(completion=turn.completion),)
        case TurnClosed():
            return turn, (RecordLate(what="late_terminal"),)
        case _:
            return turn, _late(event)


def _settled(turn: Turn, event: TurnEvent) -> Step:
    match event:
        case TurnClosed():
            return turn, (RecordLate(what="late_terminal"),)
        case _:
            return turn, _late(event)


def _late(event: TurnEvent) -> tuple[Effect, ...]:
    """After the end only what says something new about the turn is worth counting; the rest has no meaning left."""
    match event:
        case AssistantSaid() | ToolStarted() | ToolFinished() | TurnContinued() | Bound() | Adopted() | Joined():
            return (RecordLate(what="late_fact"),)
        case Undeliverable() | RecordExhausted() | Superseded():
            return (RecordLate(what="late_loss"),)
        case _:
            return ()


# --- what the state functions share -----------------------------------------------------------------------------


def row_of(turn: Turn) -> TurnRow:
    """The turn's row in the journal; ``settled`` is written by the journal itself, with the completion."""
    return TurnRow(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        message_id=turn.message_id,
        origin=turn.origin,
        state=_ROW_STATES[turn.state],
        native_turn=turn.native_turn,
        parent_turn_id=turn.parent_turn_id,
        accepted_at=turn.accepted_at or 0.0,
        submitted_at=turn.submitted_at,
        bound_at=turn.bound_at,
        deadline_at=turn.deadline_at,
        epoch=turn.epoch,
    )


def _bind(turn: Turn, event: Bound, now: Now) -> Step:
    prompt = event.prompt
    state = turn.state if turn.state is TurnState.CANCELLING else TurnState.RUNNING
    bound = msgspec.structs.replace(
        turn,
        state=state,
        native_turn=prompt.native_turn,
        native_session=event.native_session,
        cli_version=event.cli_version or turn.cli_version,
        bound_at=now.wall_s,
        native_started_at=prompt.evidence.native_at,
    )
    started = events.TurnStarted(
        origin=turn.origin,
        text=prompt.text if turn.origin != "host" else None,
        native_turn_id=prompt.native_turn,
        evidence=prompt.evidence,
    )
    effects: tuple[Effect, ...] = (emit(bound, started, "started", prompt.evidence),)
    if turn.withdrawing:  # it was typed after all, and its record came before the pane's own report
        bound = msgspec.structs.replace(bound, withdrawing=False)
        effects = (*effects, *press())
    elif turn.state is TurnState.CANCELLING and not turn.ending:
        effects = (*effects, SetTimer(name="interrupt_again", delay_s=INTERRUPT_AGAIN_S))
    return bound, effects


def _bind_again(turn: Turn, event: Bound) -> Turn:
    """The same record again, after a re-read: it fills in what a restart does not know."""
    return msgspec.structs.replace(
        turn,
        native_session=turn.native_session or event.native_session,
        cli_version=turn.cli_version or event.cli_version,
        native_started_at=turn.native_started_at or event.prompt.evidence.native_at,
    )


def _adopt(turn: Turn, event: Adopted, now: Now) -> Step:
    state = turn.state if turn.state is TurnState.CANCELLING else TurnState.RUNNING
    moved = msgspec.structs.replace(
        turn, state=state, native_turn=event.native_turn, bound_at=now.wall_s, withdrawing=False
    )
    body = events.MessageMoved(from_turn_id=event.from_turn_id, evidence=event.evidence)
    effects: tuple[Effect, ...] = (emit(moved, body, f"moved:{event.native_turn}", event.evidence),)
    if turn.withdrawing:  # it was typed after all
        effects = (*effects, *press())
    return moved, effects


__all__ = [
    "TURN_EDGES",
    "Adopted",
    "Begin",
    "Bound",
    "Cancel",
    "CancelReason",
    "CancelTimer",
    "CompletionRecorded",
    "Effect",
    "Emit",
    "EndEndpoint",
    "Finish",
    "InterruptMoot",
    "InterruptPressed",
    "Joined",
    "LookAgain",
    "LookedAgain",
    "Now",
    "Persist",
    "PressInterrupt",
    "RecordCompletion",
    "RecordLate",
    "RecordingFailed",
    "SetTimer",
    "Step",
    "Submitted",
    "Superseded",
    "TimerFired",
    "TimerName",
    "Tool",
    "Turn",
    "TurnEvent",
    "TurnFact",
    "TurnState",
    "Undeliverable",
    "Withdraw",
    "Withdrawn",
    "row_of",
    "step",
]
