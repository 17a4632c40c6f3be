"""The files that a sub-agent leaves."""

# ruff: noqa: PTH103, PTH118, PTH123

from __future__ import annotations

import json
import os

from .identity import new_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .app import App
    from .steps import Record


def write_subagent(folder: str, app: App, prompt: str, answer: str, tool_id: str) -> str:
    """Write a sub-agent's own record, and what it is, into ``folder``; returns its id."""
    agent = "a" + new_uuid().replace("-", "")[:16]
    os.makedirs(folder, exist_ok=True)
    base: Record = {"isSidechain": True, "agentId": agent, **app.envelope()}
    message: Record = {
        "id": f"msg_{agent}",
        "type": "message",
        "role": "assistant",
        "model": app.model,
    }
    message.update(content=[{"type": "text", "text": answer}], stop_reason="end_turn", stop_sequence=None)
    first, second = new_uuid(), new_uuid()
    lines = (
        {
            "parentUuid": None,
            "type": "user",
            "message": {"role": "user", "content": prompt},
            "uuid": first,
            **base,
        },
        {
            "parentUuid": first,
            "type": "assistant",
            "message": message,
            "apiBlockIndex": 0,
            "uuid": second,
            **base,
        },
    )
    with open(os.path.join(folder, f"agent-{agent}.jsonl"), "w", encoding="utf-8") as sink:
        sink.writelines(json.dumps(line) + "\n" for line in lines)
    with open(os.path.join(folder, f"agent-{agent}.meta.json"), "w", encoding="utf-8") as sink:
        json.dump({"agentType": "general-purpose", "toolUseId": tool_id}, sink)
    return agent
