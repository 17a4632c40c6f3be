"""A host that is there to be killed: it opens the runtime, takes its sessions up again and goes on with its messages.

    python chaos_host.py CONFIG.json [KILL]

KILL ``before:N`` or ``after:N`` ends it with SIGKILL around the Nth transaction of its journal; without one somebody
else does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from lastword import Runtime
from lastword.runtime._journal import SqliteJournal


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(kill: str) -> None:
    when, number = kill.split(":")
    record = SqliteJournal.record
    calls = 0

    def counted(self, batches, now_wall_s):
        nonlocal calls
        calls += 1
        if when == "before" and calls == int(number):
            die()
        done = record(self, batches, now_wall_s)
        if when == "after" and calls == int(number):
            die()
        return done

    SqliteJournal.record = counted


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    if len(sys.argv) > 2:
        arm(sys.argv[2])
    runtime = Runtime.open(config["state"], env=config["env"], executables={"claude-code": config["executable"]})
    known = [row.session_id for row in runtime.sessions() if row.state == "open"]
    while len(known) < config["sessions"]:
        known.append(runtime.session("claude-code", cwd=config["cwd"], args=config["args"]).session_id)
    print("ready", flush=True)
    threads = [
        threading.Thread(target=drive, args=(runtime, session_id, number, config))
        for number, session_id in enumerate(known[: config["sessions"]])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("done", flush=True)
    runtime.close()


def drive(runtime: Runtime, session_id: str, number: int, config: dict) -> None:
    session = runtime.session(session_id=session_id)
    for turn in range(config["turns"]):
        if turn in config["skip"].get(session_id, []):
            continue
        token = f"tok-{number}-{turn}"
        prompt = config["prompts"][(turn + number) % len(config["prompts"])].replace("TOKEN", token)
        session.run(prompt, message_id=f"m-{session_id}-{turn}", queue=True)


if __name__ == "__main__":
    main()
