"""The host dies while the real CLI works, and comes back: every accepted turn still gets its one completion."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from chaos_rig import storm
from lastword import Runtime
from lastword.runtime.testing import Rehearsal

pytestmark = pytest.mark.live


@pytest.mark.contract("C17")
@pytest.mark.contract("C02")
def test_the_host_is_killed_again_and_again_and_nothing_is_lost_doubled_or_retyped(claude: Path) -> None:
    outcome = storm(
        rounds=int(os.environ.get("LASTWORD_ROUNDS", "20")), sessions=2, turns=36, seed=5, executable=[str(claude)]
    )
    assert outcome.faults == []
    assert outcome.rounds >= 20


@pytest.mark.contract("C17")
def test_a_turn_that_ended_while_no_host_lived_is_told_at_once(claude: Path, rehearsal: Rehearsal) -> None:
    import json
    import signal
    import subprocess
    import sys

    config = rehearsal.root / "host.json"
    config.write_text(
        json.dumps(
            {
                "state": str(rehearsal.root / "state"),
                "env": rehearsal.env,
                "executable": [str(claude)],
                "cwd": str(rehearsal.cwd),
                "args": ["--permission-mode", "default"],
                "sessions": 1,
                "turns": 1,
                "prompts": ["[[tool:Bash:sleep 20; echo done]][[say:final TOKEN]] TOKEN"],
                "skip": {},
            }
        )
    )
    host = subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[1] / "chaos_host.py"), str(config)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    host.stdout.readline()
    deadline = time.monotonic() + 60
    while not list(rehearsal.home.glob(".claude/projects/*/*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    while time.monotonic() < deadline:
        text = "".join(path.read_text() for path in rehearsal.home.glob(".claude/projects/*/*.jsonl"))
        if "turn_duration" in text:
            break
        time.sleep(0.1)
    began = time.monotonic()
    with Runtime.open(rehearsal.root / "state", env=rehearsal.env, executables={"claude-code": str(claude)}) as runtime:
        (row,) = runtime.sessions()
        (turn,) = runtime._journal.turns(row.session_id)
        while runtime.completion(turn.turn_id) is None and time.monotonic() < began + 30:
            time.sleep(0.005)
        took = time.monotonic() - began
        done = runtime.completion(turn.turn_id)
        assert done is not None
        assert done.status == "completed"
        assert done.answer == "final tok-0-0"
        assert done.times.native_ended_at is not None
        print(f"\ncompletion {took * 1e3:.0f} ms after the runtime began to open")
        assert took < 5.0
        again = runtime.session(session_id=row.session_id).run("and on", deadline_s=60)
        assert again.answer == "echo: and on"
