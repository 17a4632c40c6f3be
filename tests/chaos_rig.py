"""Kill the host, start it again, compare with an independent checker: the load of `make chaos` and of its short cut.

The checker shares no code with the product: it reads the journal's file with plain SQL and the CLI's transcripts as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from lastword.runtime.testing import SCRIPTED_CLI, Rehearsal

PROMPTS = (
    "[[say:final TOKEN]] TOKEN",
    "[[sleep:0.2]][[say:final TOKEN]] TOKEN",
    "[[say:let me see]][[tool:Bash:echo x]][[say:final TOKEN]] TOKEN",
    "line one TOKEN\nline two\nline three\nline four [[say:final TOKEN]]",
    "[[say:final TOKEN]][[fault:end_delay=0.3]] TOKEN",
)
HOST = Path(__file__).with_name("chaos_host.py")
ROUND_BOUND_S = 120.0


class Outcome:
    """What the rounds came to."""

    def __init__(self) -> None:
        self.rounds = 0
        self.turns = 0
        self.faults: list[str] = []


def storm(
    *,
    rounds: int,
    sessions: int,
    turns: int,
    seed: int,
    executable: list[str] | None = None,
    say: bool = False,
    sabotage: bool = False,
    lost_acks: float = 0.02,
) -> Outcome:
    """Kill at journal boundaries and at random points until ``rounds`` are done, let it finish, check.

    ``lost_acks``: the share of commits that are done and answered by an error. ``sabotage``: insert-or-nothing is off.
    """
    rng = random.Random(seed)
    outcome = Outcome()
    with Rehearsal() as kit:
        real = executable is not None
        config = {
            "state": str(kit.root / "state"),
            "env": kit.env,
            "executable": executable or [sys.executable, str(SCRIPTED_CLI)],
            "cwd": str(kit.cwd),
            "args": [],
            "sessions": sessions,
            "turns": turns,
            "prompts": [prompt for prompt in PROMPTS if not (real and "fault" in prompt)],
            "skip": {},
            "sabotage": sabotage,
            "lost_acks": lost_acks,
        }
        path = kit.root / "chaos.json"
        finished = False
        try:
            while outcome.rounds < rounds and not finished:
                config["skip"] = settled_turns(kit.root / "state")
                path.write_text(json.dumps(config))
                finished = one_round(path, rng, outcome)
                if say and outcome.rounds % 25 == 0:
                    done = sum(map(len, settled_turns(kit.root / "state").values()))
                    print(f"round {outcome.rounds}, {done} turns settled", flush=True)
            if not finished:
                config["skip"] = settled_turns(kit.root / "state")
                path.write_text(json.dumps(config))
                last = subprocess.run(
                    [sys.executable, str(HOST), str(path)], timeout=900, capture_output=True, text=True, check=False
                )
                if last.returncode:
                    outcome.faults.append(f"the last host failed: {last.stderr[-2000:]}")
        finally:
            end_servers(kit.root / "state")
        outcome.turns += sessions * turns
        outcome.faults += check(kit.root / "state", kit.home, sessions, turns)
    return outcome


def one_round(path: Path, rng: random.Random, outcome: Outcome) -> bool:
    """One life of the host; whether it came to its end by itself."""
    outcome.rounds += 1
    kind = rng.random()
    kill = [f"{rng.choice(('before', 'after'))}:{rng.randint(1, 14)}"] if kind < 0.6 else []
    host = subprocess.Popen(
        [sys.executable, str(HOST), str(path), *kill], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    try:
        if not kill:
            host.stdout.readline()
            time.sleep(rng.random() * 0.8)
            host.send_signal(signal.SIGKILL)
        status = host.wait(ROUND_BOUND_S)
    except subprocess.TimeoutExpired:
        host.kill()
        host.wait()
        outcome.faults.append(f"a host hung in round {outcome.rounds}")
        return False
    finally:
        host.stdout.close()
        error = host.stderr.read() if host.stderr is not None else ""
        if host.stderr is not None:
            host.stderr.close()
    if status not in (0, -signal.SIGKILL):
        outcome.faults.append(f"a host failed in round {outcome.rounds}: {error[-1500:]}")
    return status == 0


def end_servers(state: Path) -> None:
    """Nothing of a killed host stays behind."""
    from lastword.runtime._edge import socket_name

    socket = socket_name(state)
    subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True, check=False)
    (Path("/tmp") / f"tmux-{os.getuid()}" / socket).unlink(missing_ok=True)


# --- the checker ------------------------------------------------------------------------------------------------


def journal(state: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{state / 'journal.db'}?mode=ro", uri=True)


def settled_turns(state: Path) -> dict[str, list[int]]:
    """Which of each session's messages are over: there is no need to send them again."""
    over: dict[str, list[int]] = {}
    if not (state / "journal.db").exists():
        return over
    with journal(state) as db:
        rows = db.execute(
            "SELECT message.message_id FROM message JOIN completion ON completion.turn_id = message.turn_id"
        ).fetchall()
    for (message_id,) in rows:
        _, session_id, turn = message_id.split("-")
        over.setdefault(session_id, []).append(int(turn))
    return over


def check(state: Path, home: Path, sessions: int, turns: int) -> list[str]:
    """Accepted turns = completions, one each, right answer, no prompt typed twice, gapless seq."""
    faults: list[str] = []
    db = journal(state)
    seqs: dict[str, list[int]] = {}
    told: Counter[str] = Counter()
    answers: dict[str, dict] = {}
    for session_id, seq, body in db.execute("SELECT session_id, seq, body FROM event ORDER BY session_id, seq"):
        seqs.setdefault(session_id, []).append(seq)
        event = json.loads(body)
        if event["type"] == "unified_completion":
            done = event["completion"]
            told[done["turn_id"]] += 1
            answers[done["turn_id"]] = done
    for session_id, numbers in seqs.items():
        if numbers != list(range(1, len(numbers) + 1)):
            faults.append(f"{session_id}: seq has gaps or repeats")
    faults += [f"turn {turn_id}: {count} completions told" for turn_id, count in told.items() if count != 1]
    stored = {turn_id for (turn_id,) in db.execute("SELECT turn_id FROM completion")}
    if stored != set(told):
        faults.append(f"completions stored and told differ: {stored ^ set(told)}")
    rows = [json.loads(body) for (body,) in db.execute("SELECT body FROM message")]
    accepted = {row["message_id"] for row in rows}
    if len(rows) != sessions * turns:
        faults.append(f"{len(rows)} messages accepted, {sessions * turns} sent")
    for row in rows:
        done = answers.get(row.get("turn_id") or "")
        if done is None:
            faults.append(f"{row['message_id']}: accepted and without an end")
            continue
        token = next(word for word in row["text"].replace("]]", " ").split() if word.startswith("tok-"))
        if done["status"] != "completed" or token not in (done.get("answer") or ""):
            faults.append(f"{row['message_id']}: {done['status']} {done.get('answer')!r} {done.get('error')}")
    foreign = [turn_id for turn_id, done in answers.items() if done.get("message_id") not in accepted]
    if foreign:
        faults.append(f"{len(foreign)} turns of nobody's")
    typed: Counter[str] = Counter()
    for transcript in home.glob(".claude/projects/*/*.jsonl"):
        for line in transcript.read_text().splitlines():
            record = json.loads(line)
            if record.get("type") == "user" and record.get("promptSource") in ("typed", "queued"):
                words = str(record["message"]["content"]).replace("]]", " ").split()
                typed[next(word for word in words if word.startswith("tok-"))] += 1
    faults += [f"{token} was submitted {count} times" for token, count in typed.items() if count != 1]
    if len(typed) != sessions * turns:
        faults.append(f"{len(typed)} prompts on record, {sessions * turns} sent")
    db.close()
    return faults
