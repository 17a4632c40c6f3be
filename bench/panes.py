"""Whole turns in real panes, on the scripted CLI: delivery, completion, turns per second.

Everything is real but the CLI's thinking: tmux, the pane, the CLI's process, its record and registry. The CLI stamps when
bytes reach its terminal and when it writes its records (:mod:`_stamped_cli`); ours is what remains. The floor of the
delivery, measured in the same run on another pane of the same CLI: the same text and the Enter, each as soon as possible,
by a bare control client; beside it the usual way, a tmux process for each command.

Prints figures, asserts nothing. Usage: python bench/panes.py [--turns 60] [--sessions 1,4,16] [--quick]
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from _report import QUICK, percentile, show

from lastword import Runtime, Session, events
from lastword.runtime.testing import Rehearsal
from lastword.transports.tmux import TmuxServer
from lastword.transports.tmux_pane import PaneHandle

CLI = (sys.executable, str(Path(__file__).with_name("_stamped_cli.py")))
START_S = 60.0
TURN_S = 20.0
PAUSE_S = 0.15
"""Between turns: the CLI has written its registry and drawn its prompt by then."""
FLOORS = 15 if QUICK else 40

HELD_S = 5.0
Stamps = dict[tuple[str, str], float]
Sent = dict[str, tuple[float, float]]
"""The mark of a prompt -> when it was sent, when that was acknowledged."""


class Place:
    """A sealed home, and the stamps of the CLIs in it."""

    def __init__(self, kit: Rehearsal) -> None:
        self.kit = kit
        self._file = kit.root / "stamps"
        self.env = {**kit.env, "LASTWORD_BENCH_STAMPS": str(self._file)}

    def stamps(self) -> Stamps:
        found: Stamps = {}
        for line in self._file.read_text().splitlines():
            at, what, mark = line.split(" ")
            found.setdefault((what, mark), float(at))
        return found

    def stamped(self, what: str, mark: str) -> float:
        """Once it is there."""
        end = time.monotonic() + TURN_S
        while (what, mark) not in (found := self.stamps()):
            if time.monotonic() > end:
                raise TimeoutError(f"no {what} of {mark}")
            time.sleep(0.01)
        return found[what, mark]


def ready(session: Session) -> None:
    end = time.monotonic() + START_S
    while session.snapshot().state != "idle":
        if time.monotonic() > end:
            raise TimeoutError(f"still {session.snapshot().state}")
        time.sleep(0.01)


def settled(place: Place, followers: list[Follower], sent: Sent, *wanted: str) -> tuple[Sent, Stamps, dict[str, float]]:
    """The turns of which all is known, the stamps, what was held. The CLI stamps just after it has written: wait for it."""
    end = time.monotonic() + HELD_S
    while True:
        held = {mark: at for follower in followers for mark, at in list(follower.held.items())}
        stamps = place.stamps()
        known = {
            mark: at for mark, at in sent.items() if mark in held and all((what, mark) in stamps for what in wanted)
        }
        if len(known) == len(sent) or time.monotonic() > end:
            return known, stamps, held
        time.sleep(0.05)


class Follower(threading.Thread):
    """When a subscriber held each completion: the mark of its prompt -> when."""

    def __init__(self, session: Session) -> None:
        super().__init__(daemon=True)
        self._events = session.events(after=session.snapshot().seq)
        self.held: dict[str, float] = {}
        self.wrong = 0
        self.start()

    def run(self) -> None:
        for event in self._events:
            if isinstance(event.body, events.CompletionReached):
                now, done = time.perf_counter(), event.body.completion
                mark = (done.answer or "").partition("<<")[2].partition(">>")[0]
                self.wrong += done.status != "completed" or not mark
                self.held.setdefault(mark, now)


def turns(session: Session, marks: Iterator[int], number: int, pause_s: float) -> Sent:
    """One turn after the other."""
    sent: Sent = {}
    for _ in range(number):
        mark = str(next(marks))
        began = time.perf_counter()
        turn = session.send(f"<<{mark}>> a prompt of the usual length, on one line")
        sent[mark] = began, time.perf_counter()
        for event in session.events(after=turn.seq):
            if isinstance(event.body, events.CompletionReached):
                break
        time.sleep(pause_s)
    return sent


def delivery(place: Place, number: int) -> None:
    marks = count(1)
    with Runtime.open(place.kit.root / "state", env=place.env, executables={"claude-code": CLI}) as runtime:
        session = runtime.session("claude-code", cwd=place.kit.cwd)
        ready(session)
        follower = Follower(session)
        turns(session, marks, 3, PAUSE_S)
        cpu = time.process_time()
        sent = turns(session, marks, number, PAUSE_S)
        cpu_ms = (time.process_time() - cpu) / number * 1e3
        known, stamps, held = settled(place, [follower], sent, "in", "enter", "prompt", "end")
    spans: dict[str, list[float]] = {}
    for mark, (began, acknowledged) in known.items():
        read, enter, prompt, end = (stamps[what, mark] for what in ("in", "enter", "prompt", "end"))
        for what, span in {
            "`send` -> acknowledged (committed)": acknowledged - began,
            "acknowledged -> text in the CLI's input": read - acknowledged,
            "`send` -> text in the CLI's input": read - began,
            "text -> Enter (seen to have landed between)": enter - read,
            "`send` -> Enter": enter - began,
            "Enter -> the CLI's own record of it (the CLI's)": prompt - enter,
            "`send` -> the CLI's own record of it": prompt - began,
            "terminal record -> completion held": held[mark] - end,
            "ours of a turn (all but Enter -> terminal record)": (enter - began) + (held[mark] - end),
        }.items():
            spans.setdefault(what, []).append(span * 1e3)
    floors = floor(place)
    rows: list[list[Any]] = [
        [what, len(spent), percentile(spent, 0.5), percentile(spent, 0.99)] for what, spent in spans.items()
    ]
    rows += [[what, len(spent), percentile(spent, 0.5), percentile(spent, 0.99)] for what, spent in floors.items()]
    show(
        "One session in a real pane, scripted CLI, `durability=power`, ms",
        ["span", "n", "p50", "p99"],
        rows,
        f"CPU of the host: {cpu_ms:.2f} ms a turn. Wrong or without their mark: {follower.wrong} of {len(held)}. "
        f"Not stamped in full, and left out: {len(sent) - len(known)}.",
    )


def floor(place: Place) -> dict[str, list[float]]:
    """The same keys by a bare control client, and by a process for each command."""
    server = TmuxServer(f"lwb-{os.getpid()}")
    server.start()
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    spans: dict[str, list[float]] = {}

    def note(what: str, began: float, at: float) -> None:
        spans.setdefault(what, []).append((at - began) * 1e3)

    try:
        argv = [*CLI, "--session-id", "00000000-0000-4000-8000-000000000001"]
        server.open_pane("bench", argv, cwd=str(place.kit.cwd), env=place.env, on_opened=got.put)
        pane = got.get(timeout=START_S)
        assert isinstance(pane, PaneHandle)
        end = time.monotonic() + START_S
        while not any("❯" in line for line in _screen(pane, got)):
            if time.monotonic() > end:
                raise TimeoutError("the CLI does not come up")
            time.sleep(0.05)

        def tmux(*words: str, data: bytes | None = None) -> None:
            words = ("tmux", "-S", str(server.socket_path), *words)
            subprocess.run(words, input=data, stdout=subprocess.DEVNULL, check=True)

        for number in range(FLOORS):
            for way, base in (("a bare control client", 1_000_000), ("a process a command", 2_000_000)):
                mark = str(base + number)
                text = f"<<{mark}>> a prompt of the usual length, on one line".encode()
                began = time.perf_counter()
                if base == 1_000_000:
                    pane.paste(text, got.put)
                else:
                    tmux("load-buffer", "-b", "b", "-", data=text)
                    tmux("paste-buffer", "-p", "-r", "-d", "-b", "b", "-t", pane.pane_id)
                note(f"{way}: paste -> text in the CLI's input", began, place.stamped("in", mark))
                if base == 1_000_000:
                    got.get(timeout=TURN_S)
                began = time.perf_counter()
                if base == 1_000_000:
                    pane.press("Enter", on_done=got.put)
                    got.get(timeout=TURN_S)
                else:
                    tmux("send-keys", "-t", pane.pane_id, "Enter")
                note(f"{way}: Enter -> read by the CLI", began, place.stamped("enter", mark))
                place.stamped("end", mark)
                time.sleep(PAUSE_S)
    finally:
        server.stop(0.1)
    return {f"floor, {what}": spent for what, spent in spans.items()}


def _screen(pane: PaneHandle, got: queue.SimpleQueue[Any]) -> list[str]:
    pane.look(got.put)
    return list(getattr(got.get(timeout=TURN_S), "lines", ()))


def throughput(place: Place, marks: Iterator[int], sessions: int, number: int) -> list[Any]:
    """All at once, each session turn after turn without a pause."""
    folder = place.kit.root / f"state{sessions}"
    with Runtime.open(folder, env=place.env, executables={"claude-code": CLI}) as runtime:
        began = time.perf_counter()
        opened = [runtime.session("claude-code", cwd=place.kit.cwd) for _ in range(sessions)]
        for session in opened:
            ready(session)
        started_s = time.perf_counter() - began
        followers = [Follower(session) for session in opened]
        sent: Sent = {}
        workers = [
            threading.Thread(target=lambda each=session: sent.update(turns(each, marks, number, 0.0)))
            for session in opened
        ]
        began, cpu = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        known, stamps, held = settled(place, followers, sent, "enter", "end")
        wrong = sum(follower.wrong for follower in followers)
    took = [(held[mark] - at) * 1e3 for mark, (at, _) in known.items()]
    clis = [(stamps["end", mark] - stamps["enter", mark]) * 1e3 for mark in known]
    ends = [(held[mark] - stamps["end", mark]) * 1e3 for mark in known]
    done = len(sent)
    return [
        sessions,
        done,
        done / wall_s,
        percentile(took, 0.5),
        percentile(clis, 0.5),
        percentile(took, 0.5) - percentile(clis, 0.5),
        percentile(ends, 0.5),
        percentile(ends, 0.99),
        cpu_s / done * 1e3,
        wrong,
        done - len(known),
        started_s * 1e3 / sessions,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=20 if QUICK else 60)
    parser.add_argument("--sessions", default="1,4" if QUICK else "1,4,16")
    args = parser.parse_args()
    with Rehearsal() as kit:
        place = Place(kit)
        delivery(place, args.turns)
        marks = count(10_000_000)  # one for all runs: the stamps of all stand in one file
        rows = [throughput(place, marks, sessions, args.turns // 4) for sessions in map(int, args.sessions.split(","))]
    show(
        "Turns per second in real panes, scripted CLI, one after the other in each session, `durability=power`",
        ["sessions", "turns", "turns/s", "turn p50 ms", "of it the CLI's own", "ours", "record -> held p50",
         "record -> held p99", "CPU ms/turn", "wrong", "not stamped", "start ms each"],
        rows,
        "The CLI's own: from the Enter that it read to its terminal record; it holds each record back by 100 ms.",
    )  # fmt: skip


if __name__ == "__main__":
    main()
