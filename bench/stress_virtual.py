"""Hours of virtual time in one process: the real runtime on a simulated clock, with sessions that live for hours, turns of
seconds and some that are silent for most of an hour, dialogs, CLIs that die in a turn, deadlines, interrupts. Every
turn is held against what its CLI did, at its caller (``Runtime.completion`` of the acknowledged turn, once the session is idle), at
a subscriber (of up to 39 sessions at a time all have one) and in the journal (bench/_account.py); memory, threads and descriptors
must be flat (bench/_flat.py). Ends with 1 where they are not, or a turn is early, missing, double or wrong, or a call raises or a turn
never ends; a signal ends it with a report of what was done.
Usage: python bench/stress_virtual.py 8h [--sessions 30] [--seed 1]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from _account import KINDS, NOTE, Account, follows
from _arguments import count, length
from _ending import Ending
from _flat import COLUMNS, Sample, least_s, sample, told
from _report import show

from lastword import Answer, Interrupt, Runtime, Session
from lastword.actors.core.adapter import DialogOpen
from lastword.actors.system.simulation import Simulation
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryCli, MemoryWorld
from lastword.transports.providers.memory import Record

STEP_S = 5.0
SAMPLE_S = 300.0
LIFE_S = (1800.0, 3 * 3600.0)
"""How long a session lives before another takes its place."""
PAUSE_S = (1.0, 90.0)
QUICK_S = (0.5, 30.0)
SILENT_S = (600.0, 3000.0)
NEVER = float("inf")


LONGEST_S = 30 * 24 * 3600.0


class Place:
    """One session after the other."""

    def __init__(self, soak: Soak, number: int) -> None:
        self.soak, self.number = soak, number
        self.session: Session = soak.runtime.session("memory")
        self.closes_at = soak.now + soak.random.uniform(*LIFE_S)
        self.next_at = soak.now + soak.random.uniform(*PAUSE_S)
        self.heard = soak.account.follow(self.session.session_id) if follows(number, soak.sessions) else None
        self.events: Any = None
        self.texts: list[str] = []
        self.text = ""
        self.turn_id: str | None = None
        self.kind = ""
        self.answer_at = self.interrupt_at = NEVER

    def go_on(self) -> None:
        """What is due now; where the product refuses, that is counted, and the place stands still."""
        try:
            self._go_on()
        except Exception as error:
            self.closes_at = self.next_at = self.answer_at = self.interrupt_at = NEVER
            self.soak.account.fault("caller", "raised", f"{self.text}: {type(error).__name__}: {error}")

    def _go_on(self) -> None:
        soak = self.soak
        self.hear()
        if soak.now >= self.answer_at:
            dialog = self.session.snapshot().dialog
            if dialog is not None:
                self.answer_at = NEVER
                self.session.send(Answer(dialog.dialog_id, 1))
        if soak.now >= self.interrupt_at:
            self.interrupt_at = NEVER
            self.session.send(Interrupt())
        if self.turn_id is not None and self.session.snapshot().state in ("idle", "gone"):
            soak.account.returned(self.text, soak.runtime.completion(self.turn_id))
            self.leave()
            self.turn_id, self.answer_at, self.interrupt_at = None, NEVER, NEVER
            self.next_at = soak.now + soak.random.uniform(*PAUSE_S)
        if self.turn_id is None and soak.now >= self.closes_at:
            self.listen()
            self.session.close()
            self.check()
            if all(each.kind != "dies" for each in soak.places):  # of one that died the next turn resumes the record
                soak.world.forget_ended()  # it keeps what was, for tests
            self.__init__(soak, self.number)  # type: ignore[misc]
        elif self.turn_id is None and soak.now >= self.next_at:
            self.ask(f"{self.session.session_id}.{len(self.texts) + 1}")

    def ask(self, text: str) -> None:
        soak, random = self.soak, self.soak.random
        kind = random.choices(("quick", "tool", "silent", "dies", "asks", "cut"), (60, 20, 3, 2, 5, 4))[0]
        spent = random.uniform(*(SILENT_S if kind == "silent" else QUICK_S))
        soak.plan[text] = (kind, spent)
        soak.kinds[text] = kind
        self.kind, self.text = kind, text
        self.texts.append(text)
        soak.account.asked(text, self.session.session_id)
        self.listen()
        try:
            delivery = self.session.send(text)
        except Exception as error:
            soak.account.raised(text, error)
            self.next_at = soak.now + PAUSE_S[1]
            return
        soak.account.acknowledged(text, delivery)
        self.turn_id = delivery.turn_id
        if kind == "cut":
            self.interrupt_at = soak.now + spent / 2
        if kind == "asks":
            self.answer_at = soak.now + spent

    def listen(self) -> None:
        """Subscribe, from the last event that was heard on: for each turn anew, so that no ring of events fills."""
        if self.heard is not None and self.events is None:
            self.events = self.session.events(after=self.heard.seq)

    def leave(self) -> None:
        """Hear what there is, and be a subscriber no more."""
        self.hear()
        if self.events is not None:
            self.events.close()
            self.events = None

    def hear(self) -> None:
        """What its subscriber was told by now."""
        while self.events is not None and (event := self.events.get(0.0)) is not None:
            self.soak.account.heard(self.session.session_id, event)

    def check(self) -> None:
        """It is closed: each turn once, as its CLI had it, at all three places."""
        self.leave()
        self.soak.account.settle(self.session.session_id, interrupted=bool(self.soak.ending))
        for text in self.texts:
            self.soak.kinds.pop(text, None)


class Soak:
    """``play`` runs it all."""

    def __init__(self, folder: Path, sessions: int, seed: int, ending: Ending) -> None:
        self.sessions, self.ending = sessions, ending
        self.random = Random(seed)
        self.simulation = Simulation(seed)
        self.world = MemoryWorld(clock=self.simulation.wall, manual=True)
        self.world.on_turn = self._begun
        self.runtime = Runtime.open(
            folder, edge=memory_edge(self.world), durability="process", simulation=self.simulation
        )
        self.account = Account(folder / "journal.db", self.judge)
        self.plan: dict[str, tuple[str, float]] = {}
        self.kinds: dict[str, str] = {}
        """What happens in each turn that is not settled in the account."""
        self.samples: list[Sample] = []
        self.places = [Place(self, number) for number in range(sessions)]

    @property
    def now(self) -> float:
        return self.simulation.monotonic()

    def judge(self, text: str, status: str, answer: str | None) -> str:
        """For the account: what is wrong with this end of that turn."""
        kind = self.kinds[text]
        if kind == "dies":
            return "" if status in ("failed", "lost") and answer is None else "wrong"
        if kind == "cut":
            return "" if status == "cancelled" and answer is None else "wrong"
        return "" if (status, answer) == ("completed", f"answer {text}") else "wrong"

    def _begun(self, cli: MemoryCli, native: str) -> None:
        prompt = msgspec.json.decode(self.world.contents(cli.path).splitlines()[-1], type=Record)
        text = prompt.text
        kind, spent = self.plan.pop(text)
        cli.keys.clear()

        def later(delay_s: float, act: Callable[[], None]) -> None:
            self.simulation.after(delay_s, lambda: act() if cli.alive and cli.turn == native else None)

        def ended() -> None:
            if cli.dialog is not None:
                later(PAUSE_S[1], ended)  # it waits to be answered
            else:
                cli.finish(f"answer {text}")

        if kind == "tool":
            later(spent / 4, lambda: cli.tool(f"c{text}", "Bash"))
            later(spent / 2, lambda: cli.tool_end(f"c{text}", "done"))
        if kind == "asks":
            asked = DialogOpen(key=text, kind="permission", question="May I?", options=("Yes", "No"))
            later(spent / 2, lambda: cli.open_dialog(asked))
        if kind == "dies":
            later(spent, lambda: cli.exit(1))
        elif kind == "cut":
            later(10 * QUICK_S[1], ended)  # had it not been interrupted
        else:
            later(spent, ended)

    def play(self, length_s: float) -> float:
        """Returns how long it went, virtual seconds: less where it is broken off."""
        began, next_sample = self.now, 0.0
        while self.now - began < length_s and not self.ending:
            self.simulation.run_for(STEP_S)
            for place in self.places:
                place.go_on()
            if self.now - began >= next_sample:
                self.samples.append(sample(self.now - began, self.account.turns))
                _, turns, rss, blocks, _, _ = self.samples[-1]
                hours = (self.now - began) / 3600
                print(
                    f"  {hours:.2f} h, {turns} turns, RSS {rss:.1f} MiB, {blocks} blocks", file=sys.stderr, flush=True
                )
                next_sample += SAMPLE_S
        went_s = self.now - began
        while any(place.turn_id for place in self.places) and not self.ending:
            if self.now - began >= went_s + 2 * SILENT_S[1]:
                break
            self.simulation.run_for(STEP_S)
            for place in self.places:
                place.closes_at = place.next_at = NEVER
                place.go_on()
        for place in self.places:
            if place.turn_id and not self.ending:
                self.account.hung(place.text)
            place.listen()
        self.runtime.close()
        for place in self.places:
            place.check()
        self.account.close()
        return went_s


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("length", type=length(least_s(SAMPLE_S), LONGEST_S), help="8h, 90m (virtual)")
    parser.add_argument("--sessions", type=count(1_000), default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    began = time.monotonic()
    with Ending() as ending:
        with tempfile.TemporaryDirectory(prefix="lastword-virtual-") as name:
            soak = Soak(Path(name), args.sessions, args.seed, ending)
            went_s = soak.play(args.length)
        account = soak.account
        rows, flat, why = told(soak.samples, went_s)
        account.tell()
        found = ", ".join(f"{number} {kind}" for number, kind in zip(account.counts(), KINDS, strict=True))
        note = (
            f"{went_s / 3600:.4g} h of virtual time in {time.monotonic() - began:.0f} s, {args.sessions} sessions at a time, "
            f"seed {args.seed}: {account.turns} turns, {found}. {account.followed} sessions had a subscriber. {NOTE}{why}"
        )
        show(ending.mark("Virtual soak"), COLUMNS, rows, note)
    return ending.code(not account.clean or not flat)


if __name__ == "__main__":
    sys.exit(main())
