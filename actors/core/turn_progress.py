"""What happens to a turn while it goes on: typed, joined by further messages, answered piece by piece, using tools."""

from __future__ import annotations

from typing import assert_never

import msgspec

from lastword.actors.core import events
from lastword.actors.core.facts import AssistantSaid, ProviderRetrying, ToolFinished, ToolStarted, TurnContinued
from lastword.actors.core.turn_drafts import emit
from lastword.actors.core.turn_idle import idle_behind_answer
from lastword.actors.core.turn_messages import Emit, Joined, Now, RecordLate, Step, Submitted, Tool, Turn, TurnState


def submit(turn: Turn, event: Submitted, now: Now, state: TurnState) -> Step:
    if turn.submitted_at is not None:
        return turn, ()
    after = msgspec.structs.replace(turn, state=state, submitted_at=now.wall_s)
    return after, (emit(after, events.MessageSubmitted(rewritten=event.rewritten), "submitted", None),)


def join(turn: Turn, event: Joined) -> Step:
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


def progress(turn: Turn, event: AssistantSaid | ToolStarted | ToolFinished | ProviderRetrying | TurnContinued) -> Step:
    match event:
        case AssistantSaid():
            body = events.AssistantMessage(text=event.text, native_message_id=event.native_message)
            key = f"said:{event.native_message}:{event.evidence.offset}"
            standing = event if event.ends_by_itself else None
            after = msgspec.structs.replace(turn, standing=standing)
            watch = idle_behind_answer(after) if after.state is TurnState.RUNNING else ()
            return after, (emit(turn, body, key, event.evidence), *watch)
        case ToolStarted():
            tools = {**turn.tools, event.call_id: Tool(name=event.name, started_at=event.evidence.native_at)}
            after = msgspec.structs.replace(turn, tools=tools, standing=None)
            started = events.ToolStarted(call_id=event.call_id, name=event.name, arguments=event.arguments)
            return after, (emit(turn, started, f"tool:{event.call_id}", event.evidence),)
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
            return after, (emit(turn, finished, f"tool-end:{event.call_id}", event.evidence),)
        case ProviderRetrying():
            retrying = events.ProviderRetrying(message=event.message)
            return turn, (emit(turn, retrying, f"retry:{event.evidence.offset}", event.evidence),)
        case TurnContinued():
            continued = turn.continued_by_hook + 1
            return msgspec.structs.replace(turn, continued_by_hook=continued, standing=None), ()
        case _:
            assert_never(event)
