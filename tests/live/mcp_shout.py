"""An MCP server over stdio with one tool: it shouts what it is given, or fails."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "shout",
    "description": "Say it louder.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "lab", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        text = str(params["arguments"].get("text"))
        return {"content": [{"type": "text", "text": text.upper()}], "isError": text == "fail"}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
