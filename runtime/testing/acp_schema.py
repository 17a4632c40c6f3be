"""Whether a conversation over the Agent Client Protocol keeps to the protocol's schema.

The judge is the ``agent-client-protocol`` package (the extra ``lastword[acp]``): its models are made from that schema.
It takes half a second to import, so it is loaded by the first question only. No running host needs it: what a host says
is held against it in lastword's own tests, what your agent says you may hold against it in yours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

OF_CLIENT = {
    "initialize": ("InitializeRequest", "InitializeResponse"),
    "session/new": ("NewSessionRequest", "NewSessionResponse"),
    "session/load": ("LoadSessionRequest", "LoadSessionResponse"),
    "session/resume": ("ResumeSessionRequest", "ResumeSessionResponse"),
    "session/set_mode": ("SetSessionModeRequest", "SetSessionModeResponse"),
    "session/set_config_option": ("SetSessionConfigOptionSelectRequest", "SetSessionConfigOptionResponse"),
    "session/prompt": ("PromptRequest", "PromptResponse"),
    "session/cancel": ("CancelNotification", ""),
}
"""Method -> model of its parameters, model of its result."""
OF_AGENT = {
    "session/update": ("SessionNotification", ""),
    "session/request_permission": ("RequestPermissionRequest", "RequestPermissionResponse"),
}


def faults_of(sent: Iterable[bytes], heard: Iterable[bytes]) -> list[str]:
    """What in the lines of a client and of its agent is against the schema; empty where nothing is.

    Extensions (a method that begins with ``_``, any other method that the schema does not name) are passed over.

    Raises:
        ModuleNotFoundError: the package is not installed: ``pip install lastword[acp]``.
    """
    from acp import schema  # noqa: PLC0415 - late: see above
    from pydantic import ValidationError  # noqa: PLC0415 - comes with it

    def against(name: str, value: Any, what: str) -> list[str]:
        if not name:
            return []
        try:
            getattr(schema, name).model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            return [f"{what}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"]
        return []

    found: list[str] = []
    sides = ([json.loads(line) for line in sent], [json.loads(line) for line in heard])
    for lines, others, own, of_other in ((*sides, OF_CLIENT, OF_AGENT), (*reversed(sides), OF_AGENT, OF_CLIENT)):
        asked = {json.dumps(line["id"]): line["method"] for line in others if "method" in line and "id" in line}
        for line in lines:
            if line.get("jsonrpc") != "2.0":
                found.append(f"no JSON-RPC 2.0: {str(line)[:80]}")
            elif "method" in line:
                found += against(own.get(line["method"], ("", ""))[0], line.get("params"), line["method"])
            elif "result" in line:
                method = asked.get(json.dumps(line["id"]), "")
                found += against(of_other.get(method, ("", ""))[1], line["result"], f"answer to {method}")
    return found


__all__ = ["faults_of"]
