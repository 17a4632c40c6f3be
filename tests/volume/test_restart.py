"""A restart costs what is open, not what is over: a session of very many settled turns."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from host_kit import Rig, completed
from journal_samples import completion, turn
from kit_system import until
from lastword.actors.core import events
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.ports import Batch, MessageRow
from lastword.runtime._journal import SqliteJournal
from lastword.transports.memory import MemoryWorld

GROUP = 500
ROWS_MAX = 40
"""Rows that taking over one session may read, whatever its past."""


def fill(state: Path, session_id: str, turns: int) -> None:
    """Settle that many turns on record, each with its message and a few events."""
    journal = SqliteJournal.open(state, durability="process")
    for start in range(0, turns, GROUP):
        batches = []
        for number in range(start, min(turns, start + GROUP)):
            turn_id = TurnId(f"t_{number:08d}")
            message = MessageRow(
                message_id=f"m_{number:08d}",
                session_id=SessionId(session_id),
                text=f"prompt {number}",
                taken="started_turn",
                turn_id=turn_id,
                state="bound",
                accepted_at=1.0,
            )
            told = (events.Draft(body=events.AssistantMessage(text=f"answer {number}"), turn_id=turn_id),)
            batches.append(
                Batch(
                    session_id=SessionId(session_id),
                    accept=message,
                    turns=(turn(turn_id, session_id, native_turn=f"native-{number}", state="running"),),
                    drafts=told,
                    completion=completion(turn_id, session_id, f"answer {number}"),
                )
            )
        journal.record(batches, 1.0)
    journal.close()


class Counted:
    """How many rows the journal handed out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        real = SqliteJournal._rows

        def rows(journal, query, values=()):
            found = real(journal, query, values)
            self.rows += len(found)
            return found

        monkeypatch.setattr(SqliteJournal, "_rows", rows)


def left_open(folder: Path, turns: int) -> tuple[MemoryWorld, str]:
    """A host that ended with one turn running in a session of so many settled ones."""
    with Rig(folder, manual=True) as rig:
        session_id = rig.session().session_id
    fill(rig.state, session_id, turns)
    journal = SqliteJournal.open(rig.state, durability="process")
    row = journal.session(SessionId(session_id))
    running = turn("t_running", session_id, native_turn="native-running", state="running")
    journal.record([Batch(session_id=row.session_id, turns=(running,))], 2.0)
    journal.close()
    return rig.world, session_id


@pytest.mark.contract("C17")
@pytest.mark.parametrize("turns", [10, 10_000])
def test_c17_taking_over_a_session_reads_what_is_open_and_not_its_past(tmp_path, monkeypatch, turns):
    world, session_id = left_open(tmp_path, turns)
    counted = Counted(monkeypatch)
    with Rig(tmp_path, world=world) as rig:
        opened = counted.rows
        session = rig.runtime.session(session_id=session_id)
        (*_, done) = completed(rig, session, turns + 1)
        assert (done.turn_id, done.status) == ("t_running", "lost")
        until(lambda: session.snapshot().last_completion.turn_id == "t_running")
    assert opened <= ROWS_MAX


@pytest.mark.contract("C17")
def test_c17_a_record_that_is_read_from_its_start_again_opens_no_turn_that_was_settled(tmp_path):
    """Not even one that lies further back than what is remembered."""
    world, session_id = left_open(tmp_path, 3_000)
    native = SqliteJournal.open(tmp_path / "state", readonly=True)
    path = f"{world.root}/{native.session(SessionId(session_id)).native_session}.jsonl"
    native.close()
    lines = [
        f'{{"k":"{kind}","turn":"native-{number}","text":"x","status":"completed","at":{time.time()}}}\n'
        for number in range(3_000)
        for kind in ("prompt", "said", "end")
    ]
    world.append(path, "".join(lines).encode())
    with Rig(tmp_path, world=world) as rig:
        session = rig.runtime.session(session_id=session_id)
        completed(rig, session, 3_001)
        rig.settle()
        assert rig.runtime._journal.turn_count(SessionId(session_id)) == 3_001
        assert rig.dead_letters().counts()["late_terminal"] == 3_000


def test_what_is_open_and_what_a_native_turn_was_are_found_by_index(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    from lastword.runtime import _journal as module

    queries = {
        module._OPEN_MESSAGES: ("s",),
        module._SETTLED: ("s", "n"),
        module._LAST_COMPLETION: ("s",),
        module._WITH_WORK: (),
        module._LAST_SEQ: ("s",),
        "SELECT body FROM turn WHERE session_id = ? AND state <> 'settled' ORDER BY ord": ("s",),
    }
    with journal._readers.lend() as db:
        for query, values in queries.items():
            steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", values)]
            bad = [
                step
                for step in steps
                if step.startswith("SCAN")
                and "turn_open" not in step
                and "message_loose" not in step
                and "(" not in step
            ]
            assert not bad, (query, steps)
            assert not any("message_by_session" in step or "turn_by_session" in step for step in steps), (query, steps)
    journal.close()
