"""kill -9 at any point: what was acknowledged is there, and what is there is a prefix without a gap."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest

from journal_samples import S1, S2
from lastword.actors.core.events import CompletionReached
from lastword.runtime._journal import SqliteJournal

ROUNDS = 15
ALL_ROUNDS_S = 25.0

_WRITER = """
import sys
from journal_samples import S1, S2, completion, said
from lastword.actors.core.ports import Batch
from lastword.runtime._journal import SqliteJournal
journal = SqliteJournal.open(sys.argv[1])
n = journal.last_seq(S1) // 3
while True:
    group = [
        Batch(session_id=S1, drafts=(said(f"{n}a"), said(f"{n}b")), completion=completion(f"t_{n}", answer=str(n))),
        Batch(session_id=S2, drafts=(said(str(n)),)),
    ]
    first, second = journal.record(group, 1.0)
    print(first.last_seq, second.last_seq, flush=True)
    n += 1
"""


@pytest.mark.contract("C09")
def test_c09_whatever_was_acknowledged_survives_kill_9_and_nothing_is_torn(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    dice, began, told = random.Random(7), time.monotonic(), (0, 0)
    for round_no in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            text=True,
        )
        try:
            head = writer.stdout.readline()  # it is up and writing: now any moment will do
            time.sleep(dice.uniform(0.0, 0.15))
        finally:
            writer.kill()
        out, errors = writer.communicate()
        lines = (head + out).splitlines()
        assert head, errors
        whole = [line for line in lines if len(line.split()) == 2]
        told = max([told, *(tuple(map(int, line.split())) for line in whole[:-1] or whole)])
        journal = SqliteJournal.open(tmp_path)  # the dead writer's lock is free at once
        try:
            first, second = (journal.events(session_id, limit=1_000_000) for session_id in (S1, S2))
            assert [event.seq for event in first] == list(range(1, len(first) + 1))
            assert [event.seq for event in second] == list(range(1, len(second) + 1))
            assert len(first) >= told[0]
            assert len(second) >= told[1]
            assert len(first) == 3 * len(second)  # a group is there whole or not at all
            bodies = [event.body for event in first if isinstance(event.body, CompletionReached)]
            assert [body.completion for body in bodies] == journal.completions(S1)
            assert [row.state for row in journal.turns(S1)] == ["settled"] * len(second)
        finally:
            journal.close()
        if round_no >= 4 and time.monotonic() - began > ALL_ROUNDS_S:
            break
    assert told[0] > ROUNDS
