"""A turn that is to end before it is through: the interrupt, how often it is tried, and what proves that it has come to
nothing more. The provider's own record still decides how the turn ended.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from lastword.actors.core.facts import CliStatusSeen
from lastword.actors.core.turn_bounds import (
    END_GRACE_S,
    INTERRUPT_GRACE_S,
    INTERRUPTS_MAX,
    MOOTS_MAX,
    REQUESTS_MAX,
    REREAD_S,
    WITHDRAWALS_MAX,
)
from lastword.actors.core.turn_idle import answered, reconcile
from lastword.actors.core.turn_messages import (
    CancelReason,
    CancelTimer,
    Effect,
    EndEndpoint,
    LookAgain,
    Now,
    PressInterrupt,
    SetTimer,
    Step,
    TimerFired,
    Turn,
    TurnState,
    Withdraw,
)
from lastword.actors.core.turn_settling import settle_cancelled


def arm_deadline(turn: Turn, now: Now) -> tuple[Effect, ...]:
    if turn.deadline_at is None:
        return ()
    return (SetTimer(name="deadline", delay_s=max(0.0, turn.deadline_at - now.wall_s)),)


def press() -> tuple[Effect, ...]:
    return (PressInterrupt(), SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S))


def cancel(turn: Turn, reason: CancelReason) -> Step:
    if turn.state is TurnState.ACCEPTED and turn.message_id is not None:
        after = msgspec.structs.replace(turn, state=TurnState.CANCELLING, cancel=reason, withdrawing=True)
        wait = SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S)
        return after, (Withdraw(message_id=turn.message_id), wait)
    return msgspec.structs.replace(turn, state=TurnState.CANCELLING, cancel=reason), press()


def resume_cancelling(turn: Turn, now: Now) -> tuple[Effect, ...]:
    """A restarted actor of a turn that was being cancelled: ask again, nothing is decided by having asked before."""
    if turn.withdrawing and turn.message_id is not None:
        wait = SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S)
        return (Withdraw(message_id=turn.message_id), wait)
    return (*arm_deadline(turn, now), *press())


def moot(turn: Turn, now: Now) -> Step:
    """The input box is idle and empty. A prompt that is on record needs only the re-read; one that is not may still
    be on its way through the CLI, so it is believed absent only after several looks, seconds apart.
    """
    if turn.withdrawing or turn.ending:
        return turn, ()
    if turn.pressing_early:  # the screen may not show yet that it runs: that proves nothing so soon
        return msgspec.structs.replace(turn, pressing_early=False), ()
    after = msgspec.structs.replace(turn, moots=turn.moots + 1)
    if turn.native_turn:
        return after, (SetTimer(name="reread", delay_s=REREAD_S),)
    if after.moots >= MOOTS_MAX:
        return settle_cancelled(after, now, source="delivery")
    return after, ()


def idle_behind_interrupt(turn: Turn, event: CliStatusSeen) -> Step:
    if turn.withdrawing or turn.interrupted_at is None:
        return turn, ()
    if event.status == "idle" and event.updated_at >= turn.interrupted_at:
        if turn.reread_armed:
            return turn, ()  # said again: the re-read runs already, and is not put off
        return msgspec.structs.replace(turn, reread_armed=True), (SetTimer(name="reread", delay_s=REREAD_S),)
    if event.status != "idle" and turn.reread_armed:
        after = msgspec.structs.replace(turn, reread_armed=False, rereading=False)
        return after, (CancelTimer(name="reread"),)
    return turn, ()


def timer_while_open(turn: Turn, event: TimerFired) -> Step:
    match event.name:
        case "deadline":
            return cancel(turn, "deadline")
        case (
            "reread"
            | "interrupt_again"
            | "interrupt_grace"
            | "end_grace"
            | "record_retry"
            | "answer_grace"
            | "record_gone"
        ):
            return turn, ()  # stale: its state is over
        case _:
            assert_never(event.name)


def timer_while_cancelling(turn: Turn, event: TimerFired, now: Now) -> Step:
    match event.name:
        case "deadline":
            if turn.cancel == "deadline":
                return turn, ()
            return msgspec.structs.replace(turn, cancel="deadline"), ()
        case "reread":
            return msgspec.structs.replace(turn, rereading=True), (LookAgain(),)
        case "answer_grace":
            return reconcile(turn, now) if answered(turn) else (turn, ())
        case "interrupt_again":
            if turn.withdrawing or turn.ending or turn.reread_armed:
                return turn, ()  # the CLI says idle behind our key: there is nothing to interrupt
            return msgspec.structs.replace(turn, pressing_early=True), press()
        case "interrupt_grace":
            if turn.withdrawing and turn.message_id is not None and turn.withdrawals < WITHDRAWALS_MAX:
                after = msgspec.structs.replace(turn, withdrawals=turn.withdrawals + 1)
                wait = SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S)
                return after, (Withdraw(message_id=turn.message_id), wait)
            asked_max = REQUESTS_MAX if turn.transport == "structured" else INTERRUPTS_MAX
            if not turn.withdrawing and turn.presses < asked_max - 1:
                return msgspec.structs.replace(turn, presses=turn.presses + 1), press()
            return msgspec.structs.replace(turn, ending=True), (
                EndEndpoint(),
                SetTimer(name="end_grace", delay_s=END_GRACE_S),
            )
        case "end_grace":
            return turn, (EndEndpoint(), SetTimer(name="end_grace", delay_s=END_GRACE_S))
        case "record_retry" | "record_gone":
            return turn, ()
        case _:
            assert_never(event.name)


def reread(turn: Turn, now: Now) -> Step:
    """Nothing more is on record, and the CLI is idle behind our key."""
    if not turn.rereading:
        return turn, ()  # it went on meanwhile, or was not asked for in this epoch
    return reconcile(turn, now) if answered(turn) else settle_cancelled(turn, now, source="interrupt")
