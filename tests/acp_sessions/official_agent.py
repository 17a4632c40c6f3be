"""An agent on the ``agent-client-protocol`` package, as its own quickstart writes one: ``acp.run_agent``, no more.

A program of its own. Its prompts say what it does: ``[say:TEXT]``, ``[sleep:S]``, ``[tool:NAME]``, ``[ask:NAME]``
(permission first), ``[close]`` (its stdout, and it lives on), ``[exit]``. Its conversations are kept in ``$HOME``.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import acp
from acp import schema

OPTIONS = [
    schema.PermissionOption(option_id="once", name="Allow once", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


class Official(acp.Agent):
    """One process's conversations."""

    def on_connect(self, conn: Any) -> None:
        self.client = conn
        self.stops: dict[str, asyncio.Event] = {}

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        can = schema.AgentCapabilities(load_session=True)
        who = schema.Implementation(name="official", version="1.0.0")
        return acp.InitializeResponse(protocol_version=protocol_version, agent_capabilities=can, agent_info=who)

    async def new_session(self, cwd: str, **_: Any) -> acp.NewSessionResponse:
        session_id = f"official-{uuid.uuid4()}"
        (Path.home() / session_id).touch()
        return acp.NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> acp.LoadSessionResponse:
        if not (Path.home() / session_id).exists():
            raise acp.RequestError.resource_not_found(session_id)
        return acp.LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.stops[session_id].set()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> acp.PromptResponse:
        stop = self.stops[session_id] = asyncio.Event()
        text = "".join(block.text for block in prompt)
        for word, argument in re.findall(r"\[(\w+):?([^\]]*)\]", text):
            if not await self.step(session_id, word, argument, stop):
                return acp.PromptResponse(stop_reason="cancelled")
        return acp.PromptResponse(stop_reason="end_turn")

    async def step(self, session_id: str, word: str, argument: str, stop: asyncio.Event) -> bool:
        """One word of a prompt; False where it was cancelled."""
        match word:
            case "say":
                await self.client.session_update(session_id, acp.update_agent_message_text(argument))
            case "sleep":
                try:
                    await asyncio.wait_for(stop.wait(), float(argument))
                except TimeoutError:
                    return True
                return False
            case "tool" | "ask":
                call = uuid.uuid4().hex
                start = acp.start_tool_call(call, argument, kind="execute", status="pending")
                await self.client.session_update(session_id, start)
                if word == "ask":
                    asked = schema.ToolCallUpdate(tool_call_id=call, title=argument)
                    answer = await self.client.request_permission(
                        session_id=session_id, tool_call=asked, options=OPTIONS
                    )
                    if answer.outcome.outcome == "cancelled":
                        return False
                    if answer.outcome.option_id != "once":
                        await self.client.session_update(session_id, acp.update_tool_call(call, status="failed"))
                        return True
                await self.client.session_update(session_id, acp.update_tool_call(call, status="completed"))
            case "close":
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                await stop.wait()
            case "exit":
                os._exit(3)
        return True


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("official 1.0.0")
    else:
        asyncio.run(acp.run_agent(Official()))
