"""aimax: the terminal program in tmux. A turn ends with the first of the two signs that it has for it.

Its stream of the transcript's entries says ``end_turn`` (it looks each 0.2 s); its ``is_working()`` is asked each 50 ms,
once its send has returned, which takes 1.2 s. (Its documented end of a job needs the model to delete a file.)
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import _turns

SESSION = "bench"
LOOK_S = 0.05
NO_PROXY = {"useProxy": False, "forceNoProxy": True}


async def main() -> None:
    import aimax

    backend = aimax.get("tmux-claude-code")
    ended: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def on_entry(entry: dict[str, Any]) -> None:
        now = time.time()
        message = entry.get("message") or {}
        if entry.get("type") == "assistant" and message.get("stop_reason") == "end_turn":
            text = "".join(part.get("text", "") for part in message["content"])
            loop.call_soon_threadsafe(ended.put_nowait, (text, now))

    begun = False

    async def ask(prompt: str) -> tuple[str, float]:
        nonlocal begun
        if not begun:
            backend.get_agent_raw_thought_stream(SESSION, on_entry)
            await backend.create_new_session(
                {"sessionId": SESSION, "cwd": _turns.CWD, "initialPrompt": prompt, **NO_PROXY}
            )
            begun = True
        else:
            await backend.no_pause_current_and_queue_query_at_session({"sessionId": SESSION, "prompt": prompt})
        while ended.empty():
            if not backend.is_working(SESSION):
                at = time.time()
                text, streamed = await ended.get()
                return text, min(at, streamed)
            await asyncio.sleep(LOOK_S)
        return ended.get_nowait()

    _turns.ready("aimax")
    await _turns.serve_async(ask)
    await backend.terminate_session(SESSION)


if __name__ == "__main__":
    _turns.begin()
    asyncio.run(main())
