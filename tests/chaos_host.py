"""A host that is there to be killed: it opens the runtime, takes its sessions up again and goes on with its messages.

    python chaos_host.py CONFIG.json [KILL]

KILL ``before:N`` or ``after:N`` ends it with SIGKILL around the Nth transaction of its journal; without one somebody
else does. Some commits are done and yet answered by an error, as a failing disk does: what was offered is offered again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

from lastword import JournalError, Runtime
from lastword.runtime import _journal_batch
from lastword.runtime._journal import SqliteJournal

OFFERS_MAX = 50


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


def lose_acknowledgements(rng: random.Random, share: float) -> None:
    """Commit, and say that it failed."""
    record = SqliteJournal.record

    def lossy(self, batches, now_wall_s):
        done = record(self, batches, now_wall_s)
        if rng.random() < share:
            raise JournalError("journal_failed", "the acknowledgement was lost", retryable=True)
        return done

    SqliteJournal.record = lossy


def disable_insert_or_nothing() -> None:
    """Break the product on purpose, to see that the checker sees it: a second completion replaces the first."""
    insert, _ = _journal_batch._COMPLETE.split("ON CONFLICT")
    _journal_batch._COMPLETE = insert.replace("INSERT", "INSERT OR REPLACE", 1)


def main() -> None:
    config = json.loads(Path(sys.argv[1]).read_text())
    if len(sys.argv) > 2:
        arm(sys.argv[2])
    if config.get("sabotage"):
        disable_insert_or_nothing()
    runtime = Runtime.open(config["state"], env=config["env"], executables={"claude-code": config["executable"]})
    known = [row.session_id for row in runtime.sessions() if row.state == "open"]
    while len(known) < config["sessions"]:
        known.append(runtime.session("claude-code", cwd=config["cwd"], args=config["args"]).session_id)
    lose_acknowledgements(random.Random(os.getpid()), config.get("lost_acks", 0.0))
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
        for _ in range(OFFERS_MAX):
            try:
                session.run(prompt, message_id=f"m-{session_id}-{turn}", queue=True)
                break
            except JournalError:
                continue  # accepted or not, nobody knows: the same id again is no second delivery


if __name__ == "__main__":
    main()
