"""What a turn tells: drafts of events, each once however often its record is read."""

from __future__ import annotations

from lastword.actors.core import events
from lastword.actors.core.outcome import Evidence
from lastword.actors.core.turn_messages import Emit, Tool, Turn


def emit(turn: Turn, body: events.EventBody, key: str, evidence: Evidence | None) -> Emit:
    draft = events.Draft(
        body=body,
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        native_at=evidence.native_at if evidence is not None else None,
        once=f"{turn.turn_id}:{key}",
    )
    return Emit(draft=draft)


def orphaned_tool(turn: Turn, call_id: str, tool: Tool) -> Emit:
    """A tool that began and whose end never came is closed with the turn: a start and an end, never one alone (C32)."""
    body = events.ToolFinished(call_id=call_id, name=tool.name, status="no_result")
    return emit(turn, body, f"tool-end:{call_id}", None)
