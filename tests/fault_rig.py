"""Turns with faults on scripted CLIs in real panes: the load of `make stress`, and of the cut of it in `make test`."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter

import msgspec

from lastword import Completion, Runtime, Session, events
from lastword.runtime.testing import SCRIPTED_CLI, Rehearsal

TURN_BOUND_S = 90.0

# fault in the prompt -> what the turn must end as
TURN_FAULTS: dict[str, str] = {
    "": "completed",
    "[[fault:idle_look]]": "completed",
    "[[fault:repaint=30]]": "completed",
    "[[fault:frozen]]": "completed",
    "[[fault:quote_ui]]": "completed",
    "[[fault:dup_end=2]]": "completed",
    "[[fault:late_dup=0.3]]": "completed",
    "[[fault:torn=5:20]]": "completed",
    "[[fault:end_delay=0.5]]": "completed",
    "[[fault:record_delay=0.6]]": "completed",
    "[[fault:huge_line=2000000]]": "completed",
    "[[fault:unknown_records=5]]": "completed",
    "[[fault:stop_hook_veto=1]]": "completed",
    "[[fault:auto_compact]]": "completed",
    "[[error:500]]": "failed",
    "[[error:429]]": "failed",
}
SLOW_FAULTS: dict[str, str] = {
    "[[fault:no_turn_duration]]": "completed",
    "[[fault:task_notification=0.3]]": "completed",
    "[[fault:crash=mid]]": "lost",
    "[[fault:crash=before]]": "lost",
    "[[fault:crash=after]]": "completed",
}
START_FAULTS = (
    (),
    ("--fault", "enter_drop=1"),
    ("--fault", "enter_swallow_ms=150"),
    ("--fault", "paste_drop=1"),
    ("--fault", "slow_start=1"),
    ("--fault", "enter_drop=2", "--fault", "paste_drop=1"),
    ("--fault", "registry_late=1"),
)


class Tally(msgspec.Struct, kw_only=True):
    """What came of the load."""

    turns: int = 0
    early: int = 0
    missing: int = 0
    double: int = 0
    wrong: list[str] = []
    statuses: dict[str, int] = {}
    latencies_ms: list[float] = []


def prompt_of(rng: random.Random, token: str, *, slow: bool) -> tuple[str, str]:
    """A prompt with a fault and how it must end."""
    faults = {**TURN_FAULTS, **SLOW_FAULTS} if slow else TURN_FAULTS
    fault = rng.choice(list(faults))
    shape = rng.choice(("", "[[say:not the end]][[tool:Bash:echo x]]", "[[sleep:0.1]]", "[[say:one ]][[say:two ]]"))
    if fault.startswith("[[error"):
        shape = ""
    say = "" if fault.startswith("[[error") else f"[[say:final {token}]]"
    return f"{shape}{say}{fault} {token}", faults[fault]


def load(sessions: int, turns_each: int, seed: int, *, slow: bool, say: bool = False) -> Tally:
    """Run it; every turn's completion is held against what its prompt asked for, and against the journal."""
    tally = Tally()
    lock = threading.Lock()
    with Rehearsal() as kit:
        runtime = Runtime.open(
            kit.root / "state",
            env=kit.env,
            executables={"claude-code": (sys.executable, str(SCRIPTED_CLI))},
            durability="process",
        )
        try:
            opened = [
                runtime.session("claude-code", cwd=kit.cwd, args=START_FAULTS[n % len(START_FAULTS)])
                for n in range(sessions)
            ]
            threads = [
                threading.Thread(
                    target=_drive, args=(session, n, turns_each, random.Random(seed * 1000 + n), tally, lock, slow, say)
                )
                for n, session in enumerate(opened)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for session in opened:
                _audit(runtime, session, tally)
        finally:
            runtime.close()
    return tally


def _drive(
    session: Session,
    number: int,
    turns: int,
    rng: random.Random,
    tally: Tally,
    lock: threading.Lock,
    slow: bool,
    say: bool,
) -> None:
    for turn in range(turns):
        token = f"tok-{number}-{turn}"
        prompt, wanted = prompt_of(rng, token, slow=slow)
        began = time.monotonic()
        try:
            done = session.run(prompt, deadline_s=TURN_BOUND_S, queue=True)
        except Exception as error:
            with lock:
                tally.turns += 1
                tally.missing += 1
                tally.wrong.append(f"{prompt}: {error!r}")
            continue
        with lock:
            tally.turns += 1
            tally.statuses[done.status] = tally.statuses.get(done.status, 0) + 1
            _judge(done, prompt, wanted, token, tally)
            if say and tally.turns % 50 == 0:
                print(f"{tally.turns} turns, {tally.statuses}, {len(tally.wrong)} wrong", flush=True)
            if done.times.terminal_seen_at and done.times.committed_at:
                tally.latencies_ms.append((done.times.committed_at - done.times.terminal_seen_at) * 1000)
        del began


def _judge(done: Completion, prompt: str, wanted: str, token: str, tally: Tally) -> None:
    if done.status != wanted:
        tally.wrong.append(
            f"{prompt}: {done.status} instead of {wanted} ({done.error}, {done.source}, {done.answer!r})"
        )
    elif done.status == "completed" and token not in (done.answer or ""):
        tally.early += 1
        tally.wrong.append(f"{prompt}: answer {done.answer!r}")


def _audit(runtime: Runtime, session: Session, tally: Tally) -> None:
    """The journal itself: one completion a turn, gapless, none of an accepted turn missing."""
    log = []
    after = 0
    while page := runtime._journal.events(session.session_id, after, 1000):
        log += page
        after = page[-1].seq
    if [event.seq for event in log] != list(range(1, len(log) + 1)):
        tally.wrong.append("seq has gaps")
    ends = Counter(event.turn_id for event in log if isinstance(event.body, events.CompletionReached))
    tally.double += sum(count - 1 for count in ends.values())
    for row in runtime._journal.turns(session.session_id):
        if row.turn_id not in ends:
            tally.missing += 1
            tally.wrong.append(f"turn {row.turn_id} ({row.origin}, {row.state}) has no completion")
