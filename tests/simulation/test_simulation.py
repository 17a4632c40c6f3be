"""The whole runtime in a simulated world: more than 100,000 turns, drawn from seeds, held against what the CLIs did.

Everything runs in one thread on a virtual clock; the order of handlers, the delay of messages, lost and doubled hints,
failing commits, raising handlers, hosts dropped without a word, and all that a CLI and a person may do come from the
seed. A failure names its seed: ``LASTWORD_SIM_SEED=N make test`` plays that one alone, ``LASTWORD_SIM_SEEDS=A-B`` a range.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from simulation.checker import Account
from simulation.host import Run

SHARDS = 8
SEEDS_PER_SHARD = 56
TURNS_MIN = 100_000
AT_ONCE = max(1, min(4, os.cpu_count() or 1))

HAND_PICKED = {
    6: "a timer that was due a hair later span at one instant",
    7: "an interrupt came behind a final answer and an idle word, and made a completed turn a cancelled one",
    23: "the CLI said idle before its record showed the turn: nobody told the turn, which waited for ever",
    46: "a session's actor failed with a message's commit on its way: its successor did not know the message",
    86: "the same, with a message that had a turn",
    135: "the CLI merged a person's queued text with ours: ours waited for ever",
    194: "two lives of a failed session both told a tool",
    206: "every hint of a terminal record was lost within the re-read behind an interrupt",
    1078: "an actor that settled by a timer failed: the one after it was never ended",
    2061: "host and CLI both died within 0.2 s of an Enter that neither had put on record: it was entered once more",
    399: "a command of the CLI's own was left in the input box by a host that died, and held up everything",
}


def folder() -> Path:
    """In memory where there is such a place."""
    return Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


def play(seed: int) -> tuple[int, int, list[str]]:
    """The seed, how many turns it had, and every fault of it."""
    base = folder()
    try:
        with Run(seed, base / "state") as run:
            run.play()
            run.close()
            faults = run.faults + Account(base / "state" / "journal.db", run.world.truth, run.down, run.disk).check()
        db = sqlite3.connect(base / "state" / "journal.db")
        try:
            (turns,) = db.execute("SELECT count(*) FROM completion").fetchone()
        finally:
            db.close()
    except Exception as error:  # a crash of the run is a fault of that seed
        return seed, 0, [f"the run itself failed: {type(error).__name__}: {error}"]
    else:
        return seed, turns, faults
    finally:
        shutil.rmtree(base, ignore_errors=True)


def journal_of(seed: int) -> list[tuple]:
    """Every event of that seed's run."""
    base = folder()
    try:
        with Run(seed, base / "state", sessions=3, messages=15) as run:
            run.play()
        db = sqlite3.connect(base / "state" / "journal.db")
        try:
            rows = db.execute("SELECT session_id, seq, at, type, turn_id, body FROM event ORDER BY 1, 2").fetchall()
            return [(*row[:5], row[5].replace(str(base), "BASE")) for row in rows]
        finally:
            db.close()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def told(results: list[tuple[int, int, list[str]]]) -> list[str]:
    return [f"seed {seed}: {fault}" for seed, _, faults in results for fault in faults[:3]]


def chosen() -> range | None:
    """What the environment asks for instead."""
    if one := os.environ.get("LASTWORD_SIM_SEED"):
        return range(int(one), int(one) + 1)
    if many := os.environ.get("LASTWORD_SIM_SEEDS"):
        first, last = many.split("-")
        return range(int(first), int(last) + 1)
    return None


@pytest.mark.contract("C02")
@pytest.mark.contract("C13")
@pytest.mark.contract("C17")
@pytest.mark.contract("C20")
@pytest.mark.contract("C30")
@pytest.mark.contract("C40")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_c02_whatever_happens_every_turn_has_its_one_last_word(shard: int) -> None:
    seeds = chosen() or range(1000 + shard * SEEDS_PER_SHARD, 1000 + (shard + 1) * SEEDS_PER_SHARD)
    if chosen() is not None and shard:
        pytest.skip("the first shard plays the chosen seeds")
    with ProcessPoolExecutor(AT_ONCE, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(play, seeds, chunksize=4))
    assert told(results) == []
    turns = sum(count for _, count, _ in results)
    print(f"{turns} turns of {len(results)} seeds")
    if chosen() is None:
        assert turns >= TURNS_MIN / SHARDS


@pytest.mark.parametrize("seed", HAND_PICKED, ids=lambda seed: f"seed-{seed}")
def test_c02_a_seed_that_once_failed_fails_no_more(seed: int) -> None:
    assert told([play(seed)]) == [], HAND_PICKED[seed]


def test_the_same_seed_is_the_same_run_to_the_last_byte() -> None:
    assert journal_of(5) == journal_of(5)
    assert journal_of(5) != journal_of(6)
