"""Restart: from the start of a process to a host that has its sessions again, over the sessions on record.

Prepared: a journal with that many sessions, three settled turns in each. 100 of them are live: their CLI runs, a turn
was open when the host was killed, and half of these turns ended meanwhile. Measured, each in a process of its own:
imports, ``Runtime.open``, and until the fifty completions that were missed are committed. The CLIs are in-process, their
records on the disk; a real pane's process is looked up besides (a control client's answer for all of them).
Floor: another process that reads every session's row out of the same file.

Prints figures, asserts nothing. Usage: python bench/restart.py [--sessions 10,1000,10000] [--folder DIR] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import QUICK, show

LIVE_MAX = 100
TURNS = 3
GROUP = 200
ROUNDS = 1 if QUICK else 3
WAIT_S = 60.0


def native_of(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-000000000000"


def turn_of(number: int) -> str:
    return f"t_open{number:06d}"


def prepare(folder: Path, sessions: int) -> None:
    """The journal and the records, as a killed host leaves them."""
    from lastword.actors.core import events
    from lastword.actors.core.ids import MessageId, SessionId, TurnId
    from lastword.actors.core.outcome import Completion
    from lastword.actors.core.ports import Batch, MessageRow, SessionRow, TurnRow
    from lastword.runtime._journal import SqliteJournal

    records = folder / "records"
    records.mkdir(parents=True)
    journal = SqliteJournal.open(folder / "state", durability="process")
    live = min(LIVE_MAX, sessions)
    batches: list[Batch] = []
    for n in range(sessions):
        session_id = SessionId(f"s_{n:08d}")
        handle = json.dumps({"native_session_id": native_of(n), "pid": 1000 + n, "pid_start": n}) if n < live else "{}"
        row = SessionRow(
            session_id=session_id,
            provider="memory",
            transport="memory",
            cwd=str(folder),
            native_session=native_of(n),
            handle=handle,
            epoch=1,
            opened_at=1.0,
        )
        opened = events.SessionOpened(provider="memory", transport="memory", cwd="/", native_session_id=native_of(n))
        batches.append(Batch(session_id=session_id, session=row, drafts=(events.Draft(body=opened),)))
        for number in range(TURNS):
            turn_id, message_id = TurnId(f"t_{n:08d}_{number}"), MessageId(f"m_{n:08d}_{number}")
            message = MessageRow(
                message_id=message_id,
                session_id=session_id,
                text="a prompt " * 10,
                taken="started_turn",
                turn_id=turn_id,
                state="bound",
                accepted_at=1.0,
            )
            done = Completion(
                turn_id=turn_id,
                session_id=session_id,
                status="completed",
                source="transcript",
                provider="memory",
                transport="memory",
                answer="an answer " * 20,
            )
            turn = TurnRow(turn_id=turn_id, session_id=session_id, message_id=message_id, native_turn=f"n{n}-{number}")
            said = events.Draft(body=events.AssistantMessage(text="an answer " * 20), turn_id=turn_id)
            batches.append(Batch(session_id=session_id, accept=message, turns=(turn,), drafts=(said,), completion=done))
        if n < live:
            turn = TurnRow(
                turn_id=TurnId(turn_of(n)),
                session_id=session_id,
                message_id=None,
                state="running",
                native_turn=f"open{n}",
                accepted_at=2.0,
            )
            batches.append(Batch(session_id=session_id, turns=(turn,)))
            stamp = time.time() + 1
            lines = [{"k": "prompt", "turn": f"open{n}", "text": "x", "at": stamp}]
            if n % 2 == 0:
                lines.append({"k": "end", "turn": f"open{n}", "text": "y", "status": "completed", "at": stamp})
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (records / f"{native_of(n)}.jsonl").write_text(text)
        if len(batches) >= GROUP:
            journal.record(batches, 3.0)
            batches.clear()
    journal.record(batches, 3.0)
    journal.close()


def life(folder: Path, sessions: int) -> dict[str, float]:
    """The new host. Its own start of the interpreter is counted by who started it."""
    imports = time.perf_counter()
    from _disk_rig import DiskWorld

    from lastword import Runtime
    from lastword.runtime._edge import Edge
    from lastword.runtime.testing.memory import memory_edge
    from lastword.transports.files import LocalFiles
    from lastword.transports.memory import MemoryCli
    from lastword.transports.providers.memory import MemoryAdapter
    from lastword.transports.watch import FileWatcher

    imports = time.perf_counter() - imports
    root = str(folder / "records")
    world = DiskWorld(manual=True, root=root)
    live = min(LIVE_MAX, sessions)
    for n in range(live):  # what runs already: no part of the restart
        cli = MemoryCli(world, native_of(n), 1000 + n, name=f"s_{n:08d}-1")
        cli.pid_start = n
        world.clis[cli.native] = cli
        world.started.append(cli)
    watcher = FileWatcher()
    found = memory_edge(world)
    edge = Edge(
        transport=world,
        files=LocalFiles(),
        wakes=watcher,
        close=world.close,
        survivors=found.survivors,
        reattach=found.reattach,
    )
    cpu, began = time.process_time(), time.perf_counter()
    runtime = Runtime.open(folder / "state", edge=edge, adapters=(MemoryAdapter(root=root),))
    opened = time.perf_counter() - began
    ended = [turn_of(n) for n in range(0, live, 2)]
    while any(runtime.completion(turn) is None for turn in ended):
        if time.perf_counter() - began > WAIT_S:
            raise TimeoutError("a completion that was missed did not come")
        time.sleep(0.002)
    settled, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert all(runtime.completion(turn).status == "completed" for turn in ended)  # type: ignore[union-attr]
    began = time.perf_counter()
    rows = len(runtime.sessions())
    listed = time.perf_counter() - began
    assert rows == sessions
    return {
        "imports": imports,
        "open": opened,
        "settled": settled,
        "cpu": cpu,
        "listed": listed,
        "rss": _resident_mib(),
        "at": time.time(),
    }


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def floor(folder: Path) -> dict[str, float]:
    began = time.perf_counter()
    db = sqlite3.connect(folder / "state" / "journal.db")
    rows = db.execute("SELECT body, cursor FROM session ORDER BY ord").fetchall()
    return {"open": time.perf_counter() - began, "rows": float(len(rows)), "at": time.time()}


def child(part: str, folder: Path, sessions: int) -> dict[str, float]:
    began = time.time()
    command = [sys.executable, __file__, "--part", part, "--sessions", str(sessions), "--folder", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=WAIT_S * 2)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    figures["whole"] = figures["at"] - began
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", default="10,1000,10000")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--part", choices=["life", "floor"], help="inner use: each is a process of its own")
    args = parser.parse_args()
    if args.part:
        figures = life(Path(args.folder), int(args.sessions)) if args.part == "life" else floor(Path(args.folder))
        print(json.dumps(figures), flush=True)
        os._exit(0)  # as a host that is killed: nothing is closed
    rows: list[list[Any]] = []
    for sessions in map(int, args.sessions.split(",")):
        with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as name:
            base = Path(name)
            prepare(base / "made", sessions)
            lives, floors = [], []
            for number in range(ROUNDS):
                folder = base / str(number)
                shutil.copytree(base / "made", folder)
                floors.append(child("floor", folder, sessions))
                lives.append(child("life", folder, sessions))

        def median(key: str, of: list[dict[str, float]]) -> float:
            return statistics.median(each[key] for each in of)

        rows.append(
            [
                sessions,
                min(LIVE_MAX, sessions),
                *(median(key, lives) * 1e3 for key in ("imports", "open", "settled", "whole", "cpu", "listed")),
                median("rss", lives),
                median("open", floors) * 1e3,
                median("whole", floors) * 1e3,
            ]
        )
    show(
        "Restart, ms",
        ["sessions on record", "live", "imports", "`Runtime.open`", "all missed turns settled", "from the process's start",
         "CPU", "`sessions()`", "MiB", "floor: rows read", "floor: from the process's start"],
        rows,
        "`Runtime.open` and the settling are counted from the call of `open`; the process's start includes the interpreter.",
    )  # fmt: skip


if __name__ == "__main__":
    main()
