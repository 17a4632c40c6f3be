"""Hours of virtual time in one process: the real runtime on a simulated clock, with sessions that live for hours, turns of
seconds and some that are silent for most of an hour, dialogs, CLIs that die in a turn, deadlines, interrupts. Every
accepted turn is held against what its CLI did; memory, threads and descriptors must be flat (bench/_flat.py). Ends with 1
where they are not, or a turn is early, missing, double or wrong.
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

import msgspec
from _flat import COLUMNS, Sample, sample, verdict
from _report import show
from stress_soak import seconds

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


class Place:
    """One session after the other."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.session: Session = soak.runtime.session("memory")
        self.closes_at = soak.now + soak.random.uniform(*LIFE_S)
        self.next_at = soak.now + soak.random.uniform(*PAUSE_S)
        self.expected: dict[str, tuple[str, str]] = {}
        """Status and answer by turn."""
        self.text = 0
        self.turn_id: str | None = None
        self.kind = ""
        self.answer_at = self.interrupt_at = NEVER

    def go_on(self) -> None:
        """What is due now."""
        soak = self.soak
        if soak.now >= self.answer_at:
            dialog = self.session.snapshot().dialog
            if dialog is not None:
                self.answer_at = NEVER
                self.session.send(Answer(dialog.dialog_id, 1))
        if soak.now >= self.interrupt_at:
            self.interrupt_at = NEVER
            self.session.send(Interrupt())
        if self.turn_id is not None and self.session.snapshot().state in ("idle", "gone"):
            self.turn_id, self.answer_at, self.interrupt_at = None, NEVER, NEVER
            self.next_at = soak.now + soak.random.uniform(*PAUSE_S)
        if self.turn_id is None and soak.now >= self.closes_at:
            self.check()
            self.session.close()
            if all(each.kind != "dies" for each in soak.places):  # of one that died the next turn resumes the record
                soak.world.forget_ended()  # it keeps what was, for tests
            self.__init__(soak)  # type: ignore[misc]
        elif self.turn_id is None and soak.now >= self.next_at:
            self.text += 1
            self.ask(f"{self.session.session_id[-6:]}.{self.text}")

    def ask(self, text: str) -> None:
        soak, random = self.soak, self.soak.random
        kind = random.choices(("quick", "tool", "silent", "dies", "asks", "cut"), (60, 20, 3, 2, 5, 4))[0]
        spent = random.uniform(*(SILENT_S if kind == "silent" else QUICK_S))
        soak.plan[text] = (kind, spent)
        self.turn_id = self.session.send(text).turn_id
        assert self.turn_id is not None
        status = {"dies": "", "cut": "cancelled"}.get(kind, "completed")
        self.expected[self.turn_id] = (status, f"answer {text}" if status == "completed" else "")
        self.kind = kind
        if kind == "cut":
            self.interrupt_at = soak.now + spent / 2
        if kind == "asks":
            self.answer_at = soak.now + spent
        soak.turns += 1

    def check(self) -> None:
        """Each turn once, as its CLI had it."""
        found = self.soak.runtime._journal.completions(self.session.session_id)
        if sorted(done.turn_id for done in found) != sorted(self.expected):
            self.soak.wrong.append(f"{self.session.session_id}: {len(found)} completions of {len(self.expected)} turns")
        for done in found:
            status, answer = self.expected.get(done.turn_id, ("?", ""))
            fits = done.status in ("failed", "lost") if not status else done.status == status
            if not fits or (answer and done.answer != answer):
                self.soak.wrong.append(f"{done.turn_id}: {done.status} {done.answer!r}, not {status} {answer!r}")


class Soak:
    """``play`` runs it all."""

    def __init__(self, folder: Path, sessions: int, seed: int) -> None:
        self.random = Random(seed)
        self.simulation = Simulation(seed)
        self.world = MemoryWorld(clock=self.simulation.wall, manual=True)
        self.world.on_turn = self._begun
        self.runtime = Runtime.open(
            folder, edge=memory_edge(self.world), durability="process", simulation=self.simulation
        )
        self.plan: dict[str, tuple[str, float]] = {}
        self.turns = 0
        self.wrong: list[str] = []
        self.samples: list[Sample] = []
        self.places = [Place(self) for _ in range(sessions)]

    @property
    def now(self) -> float:
        return self.simulation.monotonic()

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

    def play(self, length_s: float) -> None:
        began, next_sample = self.now, 0.0
        while self.now - began < length_s:
            self.simulation.run_for(STEP_S)
            for place in self.places:
                place.go_on()
            if self.now - began >= next_sample:
                self.samples.append(sample(self.now - began, self.turns))
                _, turns, rss, blocks, _, _ = self.samples[-1]
                hours = (self.now - began) / 3600
                print(
                    f"  {hours:.2f} h, {turns} turns, RSS {rss:.1f} MiB, {blocks} blocks", file=sys.stderr, flush=True
                )
                next_sample += SAMPLE_S
        for place in self.places:
            place.closes_at = place.next_at = NEVER
        while any(place.turn_id for place in self.places) and self.now - began < length_s + 2 * SILENT_S[1]:
            self.simulation.run_for(STEP_S)
            for place in self.places:
                place.next_at = NEVER
                place.go_on()
        for place in self.places:
            place.check()
            if place.session.snapshot().state not in ("idle", "gone"):
                self.wrong.append(f"{place.session.session_id}: {place.kind} turn, and it is never idle again")
        self.runtime.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("length", type=seconds, help="8h, 90m (virtual)")
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lastword-virtual-") as name:
        soak = Soak(Path(name), args.sessions, args.seed)
        soak.play(args.length)
    rows, flat = verdict(soak.samples, args.length)
    for line in soak.wrong[:20]:
        print("  ", line)
    real_s = time.monotonic() - began
    note = (
        f"{args.length / 3600:g} h of virtual time in {real_s:.0f} s, {args.sessions} sessions at a time, "
        f"seed {args.seed}: {soak.turns} turns, {len(soak.wrong)} wrong."
    )
    show("Virtual soak", COLUMNS, rows, note)
    return int(bool(soak.wrong) or not flat)


if __name__ == "__main__":
    sys.exit(main())
