"""The journal's commits against the floor of this very disk, measured in turn: 4 kB written and fdatasync.

Prints figures, asserts nothing. Usage: ``python bench/journal.py [folder-on-the-disk-to-measure]``
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from _report import QUICK, percentile, show

from lastword.actors.core.events import AssistantMessage, Draft
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import Batch, TurnRow
from lastword.runtime._journal import SqliteJournal

ROUNDS = 1 if QUICK else 3
ALONE = 400
GROUPS = 40
GROUP = 100


def batch(turn_no: int, session_no: int) -> Batch:
    """One turn's end: its row, one message, one completion."""
    session_id, turn_id = SessionId(f"s_{session_no:026d}"), TurnId(f"t_{turn_no:026d}")
    return Batch(
        session_id=session_id,
        turns=(TurnRow(turn_id=turn_id, session_id=session_id, message_id=None, state="running"),),
        drafts=(Draft(body=AssistantMessage(text="x" * 200), turn_id=turn_id, once=f"said:{turn_no}"),),
        completion=Completion(
            turn_id=turn_id,
            session_id=session_id,
            status="completed",
            source="transcript",
            provider="bench",
            transport="memory",
            answer="x" * 200,
        ),
    )


def floor(folder: Path) -> list[float]:
    spent = []
    fd = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for _ in range(ALONE):
        began = time.perf_counter()
        os.write(fd, b"x" * 4096)
        os.fdatasync(fd)
        spent.append(time.perf_counter() - began)
    os.close(fd)
    return spent


def commits(journal: SqliteJournal, start: int, groups: int, size: int) -> tuple[list[float], float]:
    """Seconds of each commit, and seconds of CPU per batch."""
    spent = []
    cpu_s = time.thread_time()
    for g in range(groups):
        group = [batch(start + g * size + i, i) for i in range(size)]
        began = time.perf_counter()
        journal.record(group, 1.0)
        spent.append(time.perf_counter() - began)
    return spent, (time.thread_time() - cpu_s) / (groups * size)


def row(round_no: int, name: str, spent: list[float], floor_p50_s: float, size: int, cpu_s: float) -> list[object]:
    p50_s = percentile(spent, 0.5)
    figures = [p50_s * 1e3, percentile(spent, 0.99) * 1e3, round(len(spent) * size / sum(spent)), p50_s / floor_p50_s]
    return [round_no + 1, name, *figures, cpu_s * 1e6]


def main() -> None:
    base = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else "."))
    rows: list[list[object]] = []
    try:
        for round_no in range(ROUNDS):
            folder = base / str(round_no)
            folder.mkdir()
            floors = floor(folder)
            floor_p50_s = percentile(floors, 0.5)
            rows.append(row(round_no, "floor: 4 kB + fdatasync", floors, floor_p50_s, 1, float("nan")))
            for durability in ("power", "process"):
                journal = SqliteJournal.open(folder / durability, durability=durability)
                alone, cpu_s = commits(journal, 0, ALONE, 1)
                rows.append(row(round_no, f"{durability}: 1 per commit", alone, floor_p50_s, 1, cpu_s))
                grouped, cpu_s = commits(journal, ALONE, GROUPS, GROUP)
                rows.append(row(round_no, f"{durability}: {GROUP} per commit", grouped, floor_p50_s, GROUP, cpu_s))
                journal.close()
    finally:
        shutil.rmtree(base)
    columns = ["round", "what", "commit p50 ms", "p99", "batches/s", "p50 to the floor", "CPU us/batch"]
    show("Journal commits, SQLite WAL, a turn's end in each batch", columns, rows)


if __name__ == "__main__":
    main()
