"""The turn machine: the only place that decides that a turn is over.

House rules
-----------
- Every transition stands in this file, and every legal edge in :data:`TURN_EDGES`; ``step`` asserts its result
  against them and a test compares declared with reachable edges.
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
from lastword.actors.core.outcome import Completion, ErrorKind, Evidence, Source, Status, Times, TurnError
from lastword.actors.core.ports import RowState, TurnRow
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

REREAD_S = 1.0
"""After the CLI says idle behind our interrupt: how long its record may still bring a terminal record (0.1 s seen)."""
INTERRUPT_GRACE_S = 5.0
"""How long one interrupt may take before the key is pressed again."""
INTERRUPT_AGAIN_S = 0.3
"""The record shows the turn's start behind our key, which the CLI may have had before it took the Enter: how long the
record may still show that it was interrupted (0.1 s seen), before the key is pressed again."""
INTERRUPTS_MAX = 3
"""After so many unanswered interrupts the CLI is ended; its session resumes with the next message (C07)."""
REQUESTS_MAX = 2
"""The same where it is asked to stop over a protocol: no key can be lost there, so one repeat is enough."""
MOOTS_MAX = 2
"""So many looks behind our interrupt, seconds apart, at an idle and empty input box: a prompt that is not on record
by then is believed absent."""
WITHDRAWALS_MAX = 3
"""After so many unanswered repeats of a withdrawal (the text lies behind a dialog) the CLI is ended as well."""
END_GRACE_S = 10.0
"""How long the end of the CLI, and its record read to the end, may take before it is asked for again."""
ANSWER_GRACE_S = 5.0
"""A final answer is on record and the CLI says idle since: how long its terminal record may still come (C40)."""
RECORD_GONE_S = 30.0
"""The CLI has been idle so long since after the prompt: its record is looked at once more, and where that was seen to
hold no end, none will come. Where it could not be looked at, after so long again."""
IDLE_SKEW_S = 0.05
"""How much earlier than its last message the CLI may stamp its own idle."""
RECORD_RETRY_S = 1.0
"""Pause before a completion that the journal could not take is offered again; it is never given up."""


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

_STATE_TIMERS: tuple[TimerName, ...] = (
    "reread",
    "interrupt_again",
    "interrupt_grace",
    "end_grace",
    "answer_grace",
    "record_gone",
)
_DISARM = tuple(CancelTimer(name=name) for name in (*_STATE_TIMERS, "deadline"))


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
            return turn, _arm_deadline(turn, now)
        case Bound():
            return _bind(turn, event, now)
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted():
            return _submit(turn, event, now, TurnState.SUBMITTED)
        case Joined():
            return _join(turn, event)
        case Undeliverable():
            return _fail_delivery(turn, event, now)
        case Cancel():
            return _cancel(turn, event.reason)
        case Withdrawn():
            return turn, ()  # an answer to a withdrawal that this epoch did not ask for
        case TimerFired():
            return _timer_while_open(turn, event)
        case TurnClosed():
            return _close(turn, event, now)
        case RecordExhausted():
            return turn, ()  # nothing was typed: the session opens the conversation again and delivers
        case Superseded():
            return turn, ()  # nothing was typed: the message goes to the conversation that the CLI is in now
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return turn, (RecordLate(what="fact_before_binding"),)
        case CliStatusSeen():
            return _note_status(turn, event), ()
        case CompactionRecorded() | InterruptPressed() | InterruptMoot() | LookedAgain():
            return turn, ()  # nothing runs for this turn yet
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _submitted(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, _arm_deadline(turn, now)
        case Bound():
            return _bind(turn, event, now)
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted() | Withdrawn():
            return turn, ()  # said twice, or too late to withdraw
        case Joined():
            return _join(turn, event)
        case Undeliverable():
            return _fail_delivery(turn, event, now)
        case Cancel():
            return _cancel(turn, event.reason)
        case TimerFired():
            return _timer_while_open(turn, event)
        case TurnClosed():
            return _close(turn, event, now)
        case RecordExhausted():
            return _lose(turn, now, "provider_exited", _ended(turn, event, "does not show the prompt"))
        case Superseded():
            why = event.why or "the CLI went to another conversation before the prompt was recorded"
            return _lose(turn, now, "superseded", why)
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return turn, (RecordLate(what="fact_before_binding"),)
        case CliStatusSeen():
            return _note_status(turn, event), ()
        case CompactionRecorded() | InterruptPressed() | InterruptMoot() | LookedAgain():
            return turn, ()  # hints at most: the record decides
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _running(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, _arm_deadline(turn, now)
        case Bound():
            return _bind_again(turn, event), ()
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted():
            return _submit(turn, event, now, TurnState.RUNNING)  # the record was faster than our own report
        case Joined():
            return _join(turn, event)
        case Undeliverable() | Withdrawn():
            return turn, ()  # the record shows the prompt: that wins
        case Cancel():
            return _cancel(turn, event.reason)
        case TimerFired(name="answer_grace"):
            return _reconcile(turn, now)
        case TimerFired(name="record_gone"):
            return _seek_end(turn)
        case LookedAgain():
            return _sought_end(turn, event, now)
        case TimerFired():
            return _timer_while_open(turn, event)
        case TurnClosed():
            return _close(turn, event, now)
        case RecordExhausted():
            return _lose(turn, now, "provider_exited", _ended(turn, event, "holds no end of this turn"))
        case Superseded():
            return _lose(turn, now, "superseded", "the CLI went to another conversation; this one has no end")
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return _progress(turn, event)
        case CliStatusSeen():
            after = _note_status(turn, event)
            return after, (*_idle_behind_answer(after), *_idle_behind_prompt(after))
        case CompactionRecorded() | InterruptPressed() | InterruptMoot():
            return turn, ()  # hints at most: the record decides
        case CompletionRecorded() | RecordingFailed():
            return turn, (RecordLate(what="record_without_completion"),)
        case _:
            assert_never(event)


def _cancelling(turn: Turn, event: TurnEvent, now: Now) -> Step:
    match event:
        case Begin():
            return turn, _resume_cancelling(turn, now)
        case Bound() if turn.native_turn == event.prompt.native_turn:
            return _bind_again(turn, event), ()
        case Bound():
            return _bind(turn, event, now)
        case Adopted():
            return _adopt(turn, event, now)
        case Submitted():
            after, effects = _submit(turn, event, now, TurnState.CANCELLING)
            if not turn.withdrawing:
                return after, effects
            after = msgspec.structs.replace(after, withdrawing=False)
            return after, (*effects, *_press())  # it was typed before we could withdraw it: interrupt it
        case Withdrawn():
            if turn.native_turn:
                return turn, ()  # the record shows the prompt: that wins
            return _settle_cancelled(turn, now, source="delivery")
        case Joined():
            return _join(turn, event)
        case Undeliverable():
            return _settle_cancelled(turn, now, source="delivery")
        case Cancel():
            return turn, ()  # already on its way
        case InterruptPressed():
            first = turn.interrupted_at if turn.interrupted_at is not None else event.at
            return msgspec.structs.replace(turn, interrupted_at=first, pressing_early=False), ()
        case InterruptMoot():
            return _moot(turn, now)
        case LookedAgain():
            return _reread(turn, now)
        case CliStatusSeen():
            return _idle_behind_interrupt(_note_status(turn, event), event)
        case TimerFired():
            return _timer_while_cancelling(turn, event, now)
        case TurnClosed():
            return _close(turn, event, now)
        case RecordExhausted():
            return _settle_cancelled(turn, now, source="process_exit")
        case Superseded():
            return _settle_cancelled(turn, now, source="interrupt")
        case AssistantSaid() | ToolStarted() | ToolFinished() | ProviderRetrying() | TurnContinued():
            return _progress(turn, event)
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


def _arm_deadline(turn: Turn, now: Now) -> tuple[Effect, ...]:
    if turn.deadline_at is None:
        return ()
    return (SetTimer(name="deadline", delay_s=max(0.0, turn.deadline_at - now.wall_s)),)


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
    effects: tuple[Effect, ...] = (_emit(bound, started, "started", prompt.evidence),)
    if turn.withdrawing:  # it was typed after all, and its record came before the pane's own report
        bound = msgspec.structs.replace(bound, withdrawing=False)
        effects = (*effects, *_press())
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
    effects: tuple[Effect, ...] = (_emit(moved, body, f"moved:{event.native_turn}", event.evidence),)
    if turn.withdrawing:  # it was typed after all
        effects = (*effects, *_press())
    return moved, effects


def _submit(turn: Turn, event: Submitted, now: Now, state: TurnState) -> Step:
    if turn.submitted_at is not None:
        return turn, ()
    after = msgspec.structs.replace(turn, state=state, submitted_at=now.wall_s)
    return after, (_emit(after, events.MessageSubmitted(rewritten=event.rewritten), "submitted", None),)


def _join(turn: Turn, event: Joined) -> Step:
    if event.message_id in turn.joined:
        return turn, ()
    after = msgspec.structs.replace(turn, joined=(*turn.joined, event.message_id))
    draft = events.Draft(
        body=events.MessageJoined(evidence=event.evidence),
        turn_id=turn.turn_id,
        message_id=event.message_id,
        native_at=event.evidence.native_at,
        once=f"joined:{event.message_id}",
    )
    return after, (Emit(draft=draft),)


def _progress(turn: Turn, event: AssistantSaid | ToolStarted | ToolFinished | ProviderRetrying | TurnContinued) -> Step:
    match event:
        case AssistantSaid():
            body = events.AssistantMessage(text=event.text, native_message_id=event.native_message)
            key = f"said:{event.native_message}:{event.evidence.offset}"
            standing = event if event.ends_by_itself else None
            after = msgspec.structs.replace(turn, standing=standing)
            watch = _idle_behind_answer(after) if after.state is TurnState.RUNNING else ()
            return after, (_emit(turn, body, key, event.evidence), *watch)
        case ToolStarted():
            tools = {**turn.tools, event.call_id: Tool(name=event.name, started_at=event.evidence.native_at)}
            after = msgspec.structs.replace(turn, tools=tools, standing=None)
            started = events.ToolStarted(call_id=event.call_id, name=event.name, arguments=event.arguments)
            return after, (_emit(turn, started, f"tool:{event.call_id}", event.evidence),)
        case ToolFinished():
            known = turn.tools.get(event.call_id)
            if known is None:
                return turn, (RecordLate(what="result_without_call"),)
            after = msgspec.structs.replace(
                turn, tools={key: tool for key, tool in turn.tools.items() if key != event.call_id}
            )
            ended = event.evidence.native_at
            duration = ended - known.started_at if ended is not None and known.started_at is not None else None
            finished = events.ToolFinished(
                call_id=event.call_id,
                name=known.name,
                status=event.status,
                result=event.result,
                duration_s=duration,
            )
            return after, (_emit(turn, finished, f"tool-end:{event.call_id}", event.evidence),)
        case ProviderRetrying():
            retrying = events.ProviderRetrying(message=event.message)
            return turn, (_emit(turn, retrying, f"retry:{event.evidence.offset}", event.evidence),)
        case TurnContinued():
            continued = turn.continued_by_hook + 1
            return msgspec.structs.replace(turn, continued_by_hook=continued, standing=None), ()
        case _:
            assert_never(event)


def _emit(turn: Turn, body: events.EventBody, key: str, evidence: Evidence | None) -> Emit:
    draft = events.Draft(
        body=body,
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        native_at=evidence.native_at if evidence is not None else None,
        once=f"{turn.turn_id}:{key}",
    )
    return Emit(draft=draft)


def _note_status(turn: Turn, event: CliStatusSeen) -> Turn:
    idle = event.status == "idle"
    return msgspec.structs.replace(
        turn, idle_since=event.updated_at if idle else None, seeking_end=idle and turn.seeking_end
    )


def _idle_behind_answer(turn: Turn) -> tuple[Effect, ...]:
    standing = turn.standing
    if standing is None or turn.idle_since is None:
        return (CancelTimer(name="answer_grace"),)
    if standing.evidence.native_at is not None and turn.idle_since < standing.evidence.native_at - IDLE_SKEW_S:
        return ()  # idle since before that answer: a word from before the turn
    return (SetTimer(name="answer_grace", delay_s=ANSWER_GRACE_S),)


def _idle_behind_prompt(turn: Turn) -> tuple[Effect, ...]:
    began = turn.native_started_at or turn.bound_at
    if turn.idle_since is None or began is None or turn.idle_since <= began:
        return (CancelTimer(name="record_gone"),)
    return (SetTimer(name="record_gone", delay_s=RECORD_GONE_S),)


def _seek_end(turn: Turn) -> Step:
    """Idle for long, and no end on record so far: have it looked at once more. The timer runs on, for that answer may
    be that nobody could look, or be lost with its reader.
    """
    if turn.idle_since is None or turn.standing is not None:
        return turn, ()
    again = SetTimer(name="record_gone", delay_s=RECORD_GONE_S)
    return msgspec.structs.replace(turn, seeking_end=True), (LookAgain(), again)


def _sought_end(turn: Turn, event: LookedAgain, now: Now) -> Step:
    """What stood there was told before this: had it been the turn's end, it would be settled."""
    if not turn.seeking_end:
        return turn, ()
    after = msgspec.structs.replace(turn, seeking_end=False)
    return _record_gone(after, now) if event.read else (after, ())


def _record_gone(turn: Turn, now: Now) -> Step:
    """The record was deleted, cut off or replaced under a running turn, and was seen to hold no end: that can be read
    nowhere (C03 ``lost``).
    """
    if turn.idle_since is None or turn.standing is not None:
        return turn, ()
    what = f"the CLI has been idle for {RECORD_GONE_S:g} s since the prompt and its record holds no end of the turn"
    body = events.InvariantViolated(what=what, repair="settled as lost")
    settled, effects = _settle(turn, now, "lost", "reconciler", error=TurnError(kind="record_missing", message=what))
    return settled, (_emit(turn, body, "record_gone", None), *effects)


def _reconcile(turn: Turn, now: Now) -> Step:
    """C40: a final answer stands on record, the CLI's own registry says idle since, and no terminal record came."""
    standing = turn.standing
    if standing is None:
        return turn, ()
    what = "a final answer stands on record, the CLI is idle, and its terminal record did not come"
    body = events.InvariantViolated(what=what, repair="settled by the recorded answer")
    settled, effects = _settle(turn, now, "completed", "reconciler", answer=standing.text, evidence=standing.evidence)
    return settled, (_emit(turn, body, "answer_without_end", standing.evidence), *effects)


# --- cancelling -----------------------------------------------------------------------------------------------


def _press() -> tuple[Effect, ...]:
    return (PressInterrupt(), SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S))


def _cancel(turn: Turn, reason: CancelReason) -> Step:
    if turn.state is TurnState.ACCEPTED and turn.message_id is not None:
        after = msgspec.structs.replace(turn, state=TurnState.CANCELLING, cancel=reason, withdrawing=True)
        wait = SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S)
        return after, (Withdraw(message_id=turn.message_id), wait)
    return msgspec.structs.replace(turn, state=TurnState.CANCELLING, cancel=reason), _press()


def _resume_cancelling(turn: Turn, now: Now) -> tuple[Effect, ...]:
    """A restarted actor of a turn that was being cancelled: ask again, nothing is decided by having asked before."""
    if turn.withdrawing and turn.message_id is not None:
        wait = SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S)
        return (Withdraw(message_id=turn.message_id), wait)
    return (*_arm_deadline(turn, now), *_press())


def _moot(turn: Turn, now: Now) -> Step:
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
        return _settle_cancelled(after, now, source="delivery")
    return after, ()


def _idle_behind_interrupt(turn: Turn, event: CliStatusSeen) -> Step:
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


def _timer_while_open(turn: Turn, event: TimerFired) -> Step:
    match event.name:
        case "deadline":
            return _cancel(turn, "deadline")
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


def _timer_while_cancelling(turn: Turn, event: TimerFired, now: Now) -> Step:
    match event.name:
        case "deadline":
            if turn.cancel == "deadline":
                return turn, ()
            return msgspec.structs.replace(turn, cancel="deadline"), ()
        case "reread":
            return msgspec.structs.replace(turn, rereading=True), (LookAgain(),)
        case "answer_grace":
            return _reconcile(turn, now) if _answered(turn) else (turn, ())
        case "interrupt_again":
            if turn.withdrawing or turn.ending or turn.reread_armed:
                return turn, ()  # the CLI says idle behind our key: there is nothing to interrupt
            return msgspec.structs.replace(turn, pressing_early=True), _press()
        case "interrupt_grace":
            if turn.withdrawing and turn.message_id is not None and turn.withdrawals < WITHDRAWALS_MAX:
                after = msgspec.structs.replace(turn, withdrawals=turn.withdrawals + 1)
                wait = SetTimer(name="interrupt_grace", delay_s=INTERRUPT_GRACE_S)
                return after, (Withdraw(message_id=turn.message_id), wait)
            asked_max = REQUESTS_MAX if turn.transport == "structured" else INTERRUPTS_MAX
            if not turn.withdrawing and turn.presses < asked_max - 1:
                return msgspec.structs.replace(turn, presses=turn.presses + 1), _press()
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


def _reread(turn: Turn, now: Now) -> Step:
    """Nothing more is on record, and the CLI is idle behind our key."""
    if not turn.rereading:
        return turn, ()  # it went on meanwhile, or was not asked for in this epoch
    return _reconcile(turn, now) if _answered(turn) else _settle_cancelled(turn, now, source="interrupt")


def _answered(turn: Turn) -> bool:
    """The final answer stands on record and the CLI says idle behind it: whether our key came before or after, the turn
    was not cut off, whether its terminal record comes or not.
    """
    standing, idle = turn.standing, turn.idle_since
    if standing is None or idle is None:
        return False
    answered_at = standing.evidence.native_at
    return answered_at is None or idle >= answered_at - IDLE_SKEW_S


# --- settling ---------------------------------------------------------------------------------------------------


def _close(turn: Turn, event: TurnClosed, now: Now) -> Step:
    error = event.error
    if event.status == "cancelled":
        error = TurnError(kind=turn.cancel or "interrupted", message=f"{_who(turn)}, by the provider's own record")
    elif event.status == "lost" and error is None:
        error = TurnError(kind="superseded", message="a later turn began without this one's end")
    elif event.status == "failed" and error is None:
        error = TurnError(kind="provider_error")
    return _settle(
        turn,
        now,
        event.status,
        _record_of(turn),
        answer=event.answer if event.status == "completed" else None,
        error=error,
        evidence=event.evidence,
        background_pending=event.background_pending,
    )


def _who(turn: Turn) -> str:
    """Who cancelled it; where it was not us, the record does not tell."""
    match turn.cancel:
        case "deadline":
            return "interrupted as the host's deadline passed"
        case "interrupted":
            return "interrupted by the host"
        case None:
            return "interrupted, though not by the host"
        case _:
            assert_never(turn.cancel)


def _record_of(turn: Turn) -> Source:
    """What the provider's own record is, over that transport: its file, or what it said to us."""
    return "stream" if turn.transport in ("structured", "api") else "transcript"


def _fail_delivery(turn: Turn, event: Undeliverable, now: Now) -> Step:
    return _settle(turn, now, "failed", "delivery", error=TurnError(kind=event.kind, message=event.reason))


def _ended(turn: Turn, exhausted: RecordExhausted, record: str) -> str:
    who = "the host that asked the model" if turn.transport == "api" else "the CLI"
    if exhausted.unread:
        return f"{who} ended and its record could not be read, for as long as that was tried: {exhausted.unread}"
    return f"{who} ended and its record {record}"


def _lose(turn: Turn, now: Now, kind: ErrorKind, message: str) -> Step:
    source: Source = "process_exit" if kind == "provider_exited" else _record_of(turn)
    return _settle(turn, now, "lost", source, error=TurnError(kind=kind, message=message))


def _settle_cancelled(turn: Turn, now: Now, *, source: Source) -> Step:
    kind: ErrorKind = turn.cancel or "interrupted"
    message = "the host's deadline passed" if kind == "deadline" else "cancelled by the host"
    return _settle(turn, now, "cancelled", source, error=TurnError(kind=kind, message=message))


def _settle(
    turn: Turn,
    now: Now,
    status: Status,
    source: Source,
    *,
    answer: str | None = None,
    error: TurnError | None = None,
    evidence: Evidence | None = None,
    background_pending: int = 0,
) -> Step:
    if status == "completed" and answer is None:
        answer = ""
    completion = Completion(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        status=status,
        source=source,
        provider=turn.provider,
        transport=turn.transport,
        answer=answer,
        empty=status == "completed" and not answer,
        error=error if status != "completed" else None,
        message_id=turn.message_id,
        joined=turn.joined,
        origin=turn.origin,
        parent_turn_id=turn.parent_turn_id,
        native_turn_id=turn.native_turn,
        native_session_id=turn.native_session,
        cli_version=turn.cli_version,
        cli_uncertified=turn.certified is not None and turn.cli_version not in turn.certified,
        background_pending=background_pending,
        continued_by_hook=turn.continued_by_hook,
        evidence=evidence,
        times=Times(
            accepted_at=turn.accepted_at,
            submitted_at=turn.submitted_at,
            bound_at=turn.bound_at,
            terminal_seen_at=now.wall_s,
            native_started_at=turn.native_started_at,
            native_ended_at=evidence.native_at if evidence is not None else None,
        ),
    )
    after = msgspec.structs.replace(turn, state=TurnState.SETTLING, completion=completion)
    orphans = tuple(_orphaned_tool(turn, call_id, tool) for call_id, tool in turn.tools.items())
    return after, (*orphans, RecordCompletion(completion=completion), *_DISARM)


def _orphaned_tool(turn: Turn, call_id: str, tool: Tool) -> Emit:
    """A tool that began and whose end never came is closed with the turn: a start and an end, never one alone (C32)."""
    body = events.ToolFinished(call_id=call_id, name=tool.name, status="no_result")
    return _emit(turn, body, f"tool-end:{call_id}", None)


__all__ = [
    "ANSWER_GRACE_S",
    "END_GRACE_S",
    "IDLE_SKEW_S",
    "INTERRUPTS_MAX",
    "INTERRUPT_AGAIN_S",
    "INTERRUPT_GRACE_S",
    "MOOTS_MAX",
    "RECORD_GONE_S",
    "RECORD_RETRY_S",
    "REQUESTS_MAX",
    "REREAD_S",
    "TURN_EDGES",
    "WITHDRAWALS_MAX",
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
