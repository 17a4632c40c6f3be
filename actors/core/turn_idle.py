"""What a CLI's word that it is idle proves of a turn without a terminal record: nothing by itself, and with what
stands on record (an answer, an end that nobody heard, no end at all) that the turn is over (C40).
"""

from __future__ import annotations

import msgspec

from lastword.actors.core import events
from lastword.actors.core.facts import CliStatusSeen
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.turn_bounds import ANSWER_GRACE_S, IDLE_SKEW_S, RECORD_GONE_S
from lastword.actors.core.turn_drafts import emit
from lastword.actors.core.turn_messages import CancelTimer, Effect, LookAgain, LookedAgain, Now, SetTimer, Step, Turn
from lastword.actors.core.turn_settling import settle


def note_status(turn: Turn, event: CliStatusSeen) -> Turn:
    idle = event.status == "idle"
    return msgspec.structs.replace(
        turn, idle_since=event.updated_at if idle else None, seeking_end=idle and turn.seeking_end
    )


def idle_behind_answer(turn: Turn) -> tuple[Effect, ...]:
    standing = turn.standing
    if standing is None or turn.idle_since is None:
        return (CancelTimer(name="answer_grace"),)
    if standing.evidence.native_at is not None and turn.idle_since < standing.evidence.native_at - IDLE_SKEW_S:
        return ()  # idle since before that answer: a word from before the turn
    return (SetTimer(name="answer_grace", delay_s=ANSWER_GRACE_S),)


def idle_behind_prompt(turn: Turn) -> tuple[Effect, ...]:
    began = turn.native_started_at or turn.bound_at
    if turn.idle_since is None or began is None or turn.idle_since <= began:
        return (CancelTimer(name="record_gone"),)
    return (SetTimer(name="record_gone", delay_s=RECORD_GONE_S),)


def seek_end(turn: Turn) -> Step:
    """Idle for long, and no end on record so far: have it looked at once more. The timer runs on, for that answer may
    be that nobody could look, or be lost with its reader.
    """
    if turn.idle_since is None or turn.standing is not None:
        return turn, ()
    again = SetTimer(name="record_gone", delay_s=RECORD_GONE_S)
    return msgspec.structs.replace(turn, seeking_end=True), (LookAgain(), again)


def sought_end(turn: Turn, event: LookedAgain, now: Now) -> Step:
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
    settled, effects = settle(turn, now, "lost", "reconciler", error=TurnError(kind="record_missing", message=what))
    return settled, (emit(turn, body, "record_gone", None), *effects)


def reconcile(turn: Turn, now: Now) -> Step:
    """C40: a final answer stands on record, the CLI's own registry says idle since, and no terminal record came."""
    standing = turn.standing
    if standing is None:
        return turn, ()
    what = "a final answer stands on record, the CLI is idle, and its terminal record did not come"
    body = events.InvariantViolated(what=what, repair="settled by the recorded answer")
    settled, effects = settle(turn, now, "completed", "reconciler", answer=standing.text, evidence=standing.evidence)
    return settled, (emit(turn, body, "answer_without_end", standing.evidence), *effects)


def answered(turn: Turn) -> bool:
    """The final answer stands on record and the CLI says idle behind it: whether our key came before or after, the turn
    was not cut off, whether its terminal record comes or not.
    """
    standing, idle = turn.standing, turn.idle_since
    if standing is None or idle is None:
        return False
    answered_at = standing.evidence.native_at
    return answered_at is None or idle >= answered_at - IDLE_SKEW_S
