"""Turns of claude-agent-sdk on one warm client, for ``bench/rival_turns.py``; run with the rival's own interpreter.

``python agent_sdk.py CLI CWD TURNS`` prints one JSON list: when each prompt was given, when its end was in hand
(Unix seconds), and what the SDK said the answer was. Nothing here is durable: that is how the SDK is.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


async def main(cli: str, cwd: str, turns: int) -> list[dict[str, Any]]:
    import claude_agent_sdk as sdk

    options = sdk.ClaudeAgentOptions(cli_path=cli, cwd=cwd, permission_mode="bypassPermissions")
    told = []
    async with sdk.ClaudeSDKClient(options=options) as client:
        for number in range(turns):
            prompt = f"turn {number} of a rival"
            sent = time.time()
            await client.query(prompt)
            answer = ""
            async for message in client.receive_response():
                if isinstance(message, sdk.ResultMessage):
                    answer = message.result or ""
            told.append({"prompt": prompt, "sent": sent, "told": time.time(), "answer": answer})
    return told


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))), flush=True)
