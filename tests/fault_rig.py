"""Turns with faults on scripted CLIs in real panes: the load of `make stress`, and of the cut of it in `make test`."""

from __future__ import annotations

import importlib
import random
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from lastword import Runtime, Session
from lastword.runtime.testing import SCRIPTED_CLI, Rehearsal

BENCH = Path(__file__).parents[1] / "bench"
TURN_BOUND_S = 90.0
CALL_BOUND_S = TURN_BOUND_S + 60.0
"""A call of ``run`` with that deadline must have returned by then."""

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

    account: Any
    """``bench/_account.py``: what is wrong, of all that was asked for."""
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    latencies_ms: list[float] = []

    @property
    def turns(self) -> int:
        return int(self.account.turns)

    @property
    def wrong(self) -> list[str]:
        """What is wrong, of any kind: the first few."""
        return list(self.account.lines)


def of_bench(name: str) -> Any:
    """A module of bench/, which is no package and not on the path of the tests."""
    sys.path.append(str(BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))


def prompt_of(rng: random.Random, token: str, *, slow: bool) -> tuple[str, str]:
    """A prompt with a fault and how it must end."""
    faults = {**TURN_FAULTS, **SLOW_FAULTS} if slow else TURN_FAULTS
    fault = rng.choice(list(faults))
    shape = rng.choice(("", "[[say:not the end]][[tool:Bash:echo x]]", "[[sleep:0.1]]", "[[say:one ]][[say:two ]]"))
    if fault.startswith("[[error"):
        shape = ""
    say = "" if fault.startswith("[[error") else f"[[say:final {token}]]"
    return f"{shape}{say}{fault} {token}", faults[fault]


class Load:
    """Prompts and how each must end, by its text."""

    def __init__(self, seed: int, *, slow: bool) -> None:
        self.seed, self.slow = seed, slow
        self.wanted: dict[str, tuple[str, str]] = {}
        """Status and token."""

    def prompt(self, rng: random.Random, number: int, turn: int) -> str:
        token = f"tok-{number}-{turn}"
        text, status = prompt_of(rng, token, slow=self.slow)
        self.wanted[text] = (status, token)
        return text

    def judge(self, text: str, status: str, answer: str | None) -> str:
        """For the account: what is wrong with this end of that prompt."""
        wanted, token = self.wanted[text]
        if status != wanted:
            return "wrong"
        if status != "completed":
            return "wrong" if answer is not None else ""
        return "" if re.search(rf"{token}(?!\d)", answer or "") else "early"


def load(sessions: int, turns_each: int, seed: int, *, slow: bool, say: bool = False, ending: Any = None) -> Tally:
    """Run it; each turn is held against what its prompt asked for, at its caller, at a subscriber and in the journal.

    Args:
        ending: of ``bench/_ending.py``: once it is asked for, what runs is broken off, and the rest is held against.
    """
    account_of, listeners_of = of_bench("_account"), of_bench("_listeners")
    plan = Load(seed, slow=slow)
    done: SimpleQueue[str] = SimpleQueue()
    if ending is not None:
        ending.wake = lambda: done.put("ending")
    with Rehearsal() as kit:
        runtime = Runtime.open(
            kit.root / "state",
            env=kit.env,
            executables={"claude-code": (sys.executable, str(SCRIPTED_CLI))},
            durability="process",
        )
        try:
            tally = Tally(account=account_of.Account(kit.root / "state" / "journal.db", plan.judge, uninvited=True))
            listeners = listeners_of.Listeners(tally.account)
            workers = []
            for n in range(sessions):
                if ending:
                    break
                session = runtime.session("claude-code", cwd=kit.cwd, args=START_FAULTS[n % len(START_FAULTS)])
                if account_of.follows(n, sessions):
                    listeners.follow(session)
                driver = _Driver(session, n, turns_each, plan, tally, say, done)
                workers.append(threading.Thread(target=driver.drive, daemon=True))
            for thread in workers:
                thread.start()
            for _ in workers:  # each comes to its end: its calls have a bound
                if _next(done) == "ending":
                    tally.account.broken_off = True
                    break
            listeners.caught_up()
        finally:
            runtime.close()
        listeners.ended()
        tally.account.settle(interrupted=bool(ending))
        tally.account.close()
    return tally


def _next(done: SimpleQueue[str]) -> str:
    """A signal that the kernel gives to another thread does not wake this one, and its handler runs here alone."""
    while True:
        try:
            return done.get(timeout=0.2)
        except Empty:
            pass


class _Driver(msgspec.Struct):
    """The host of one session: one turn after the other, each call with a bound."""

    session: Session
    number: int
    turns: int
    plan: Load
    tally: Tally
    say: bool
    done: SimpleQueue[str]

    def drive(self) -> None:
        rng = random.Random(self.plan.seed * 1000 + self.number)
        try:
            for turn in range(self.turns):
                if self.tally.account.broken_off:
                    break
                prompt = self.plan.prompt(rng, self.number, turn)
                self.tally.account.asked(prompt, self.session.session_id)
                call = threading.Thread(target=self._run, args=(prompt,), daemon=True)
                call.start()
                call.join(CALL_BOUND_S)
                if call.is_alive():
                    self.tally.account.hung(prompt)
                    break  # it has an open turn: what is asked after it says nothing more
        finally:
            self.done.put("driver")

    def _run(self, prompt: str) -> None:
        tally = self.tally
        try:
            done = self.session.run(prompt, deadline_s=TURN_BOUND_S, queue=True)
            tally.account.returned(prompt, done)
        except Exception as error:
            tally.account.raised(prompt, error)
            return
        if done is None:
            return
        tally.statuses[done.status] += 1
        if self.say and (count := tally.statuses.total()) % 50 == 0:
            print(f"{count} turns, {dict(tally.statuses)}, {len(tally.wrong)} wrong", flush=True)
        if done.times.terminal_seen_at and done.times.committed_at:
            tally.latencies_ms.append((done.times.committed_at - done.times.terminal_seen_at) * 1000)
