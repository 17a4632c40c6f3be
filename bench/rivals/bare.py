"""The floor in a terminal: a control client that pastes and presses Enter at once, and an inotify watch of the record.

No queue, no journal, no look at the screen, no turn: nothing that a host could rely on.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import _turns

WAIT_S = 90.0


def main() -> None:
    from lastword.transports.tmux import PaneHandle, TmuxServer
    from lastword.transports.watch import FileWatcher

    native = str(uuid.uuid4())
    folder = Path.home() / ".claude" / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", _turns.CWD)
    folder.mkdir(parents=True, exist_ok=True)
    record, offset = folder / f"{native}.jsonl", 0
    grew = threading.Event()
    watcher = FileWatcher(source="inotify")
    watcher.watch(record, folder, grew.set)
    server = TmuxServer(f"lwb-{os.getpid()}")
    server.start()
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        argv = [_turns.CLI, "--session-id", native, "--permission-mode", "bypassPermissions"]
        server.open_pane("bare", argv, cwd=_turns.CWD, env=dict(os.environ), on_opened=got.put)
        pane = got.get(timeout=WAIT_S)
        assert isinstance(pane, PaneHandle)
        end = time.monotonic() + WAIT_S
        while True:
            pane.look(got.put)
            if any("❯" in line for line in getattr(got.get(timeout=WAIT_S), "lines", ())):
                break
            if time.monotonic() > end:
                raise TimeoutError("the CLI does not come up")
            time.sleep(0.1)

        def ask(prompt: str) -> str:
            nonlocal offset
            pane.paste(prompt.encode(), got.put)
            pane.press("Enter", on_done=got.put)
            got.get(timeout=WAIT_S)
            got.get(timeout=WAIT_S)
            while True:
                grew.clear()
                data = b""
                if record.exists():
                    with record.open("rb") as file:
                        file.seek(offset)
                        data = file.read()
                data = data[: data.rfind(b"\n") + 1]
                offset += len(data)
                for line in data.splitlines():
                    entry = json.loads(line)
                    message = entry.get("message") or {}
                    if entry.get("type") == "assistant" and message.get("stop_reason") == "end_turn":
                        return "".join(part.get("text", "") for part in message["content"])
                if not grew.wait(WAIT_S):
                    raise TimeoutError("no end on record")

        _turns.ready("lastword")
        _turns.serve(ask)
    finally:
        server.stop(0.1)
        watcher.close()


if __name__ == "__main__":
    _turns.begin()
    main()
