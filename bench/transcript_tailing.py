"""Reading a CLI's record: MB/s of each step, and what one new line costs. The floor is the file cut into lines.

Claude Code's record, in two shapes: turns of four tools with outputs of 24 kB each, and turns of one short answer.
Rounds take turns; the figures are medians. Prints figures, asserts nothing.
Usage: python bench/transcript_tailing.py [--mb 64] [--folder DIR] [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from _report import QUICK, percentile, show

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.transcript import LineFramer, LineMarks
from lastword.actors.record_reader import PIECE_BYTES_MAX
from lastword.actors.system.actor import Actor
from lastword.actors.system.system import ActorSystem
from lastword.actors.transcript import CaughtUp, FactsRead, FactsTaken, Follow, TranscriptWatcherActor
from lastword.transports.files import LocalFiles
from lastword.transports.providers.readers import READERS
from volume_kit import NATIVE, OLD, encoded, turn_lines

MB = 1_000_000
ROUNDS = 2 if QUICK else 5
LINES = 300 if QUICK else 2_000
WAIT_S = 120.0
MARK = b"0badc0de-0000-4000-8000-"


def write_record(path: Path, size: int, tools: int) -> int:
    """So many bytes of whole turns with ids of their own; how many lines."""
    template = encoded(turn_lines(prompt="Look at the files", answer="They are fine. " * 20, at=OLD, tools=tools))
    pieces = template.split(MARK)
    with path.open("wb", buffering=8 * MB) as file:
        written = number = 0
        while written < size:
            number += 1
            written += file.write(f"{number:08x}-0000-4000-8000-".encode().join(pieces))
    return number * template.count(b"\n")


def by_chunks(path: Path, take: Callable[[bytes], object]) -> None:
    files, offset = LocalFiles(), 0
    while data := files.read_from(str(path), offset, PIECE_BYTES_MAX, 0, 0).data:
        take(data)
        offset += len(data)


def split(path: Path) -> None:
    by_chunks(path, lambda data: data.split(b"\n"))


def framed(path: Path) -> None:
    by_chunks(path, LineFramer().feed)


def framed_and_marked(path: Path) -> None:
    framer, marks = LineFramer(), LineMarks()

    def take(data: bytes) -> None:
        framer.feed(data)
        marks.grew(data)

    by_chunks(path, take)


def json_loads(path: Path) -> None:
    framer = LineFramer()
    by_chunks(path, lambda data: [json.loads(line.data) for line in framer.feed(data)])


def oracle(path: Path) -> None:
    reader = READERS["claude-code"].oracle(source(path), NATIVE)
    by_chunks(path, lambda data: reader.feed(str(path), data))


def source(path: Path) -> SourceSpec:
    return SourceSpec(kind="append-jsonl", path=str(path), root=str(path.parent))


class Quiet:
    """No wake-ups: the file is all there."""

    def watch(self, path: str, root: str, on_change: Callable[[], None]) -> object:
        return self

    def unwatch(self, token: object) -> None:
        pass


class Taker(Actor):
    """In the place of the session: takes each piece."""

    def __init__(self, path: Path, done: threading.Event) -> None:
        super().__init__()
        self._done = done
        self._watcher = self.spawn(TranscriptWatcherActor, LocalFiles(), Quiet(), name="watcher")
        adapter = READERS["claude-code"]
        self._watcher.tell(Follow(source=source(path), oracle=lambda at: adapter.oracle(source(path), NATIVE, at)))

    def receive(self, message: object) -> None:
        if isinstance(message, CaughtUp):
            self._done.set()
        elif isinstance(message, FactsRead) and message.more:
            self._watcher.tell(FactsTaken())


def watcher_actor(path: Path) -> None:
    done = threading.Event()
    system = ActorSystem("bench")
    system.spawn(Taker, path, done, name="taker")
    assert done.wait(WAIT_S)
    system.shutdown(5.0)


STEPS: dict[str, Callable[[Path], None]] = {
    "floor: read and split": split,
    "LineFramer": framed,
    "LineFramer and LineMarks": framed_and_marked,
    "json.loads of every line": json_loads,
    "oracle (typed decoding, facts)": oracle,
    "the watcher's actor, all of it": watcher_actor,
}


def whole(folder: Path, mb: int) -> list[list[object]]:
    rows: list[list[object]] = []
    for what, tools in (("tools of 24 kB", 4), ("short turns", 0)):
        path = folder / f"{tools}.jsonl"
        lines = write_record(path, mb * MB, tools)
        size = path.stat().st_size
        took: dict[str, list[float]] = {step: [] for step in STEPS}
        for _ in range(ROUNDS):
            for step, run in STEPS.items():
                began = time.perf_counter()
                run(path)
                took[step].append(time.perf_counter() - began)
        floor_s = statistics.median(took["floor: read and split"])
        for step, spent in took.items():
            median_s = statistics.median(spent)
            figures = [size / MB / median_s, median_s / lines * 1e6, median_s / floor_s]
            rows.append([what, lines, step, *figures])
        path.unlink()
    return rows


def one_line(folder: Path) -> list[list[object]]:
    """A line is appended, read and decoded, as a wake-up has it done; the appending is not counted."""
    rows: list[list[object]] = []
    for what, text in (("400 B", "x" * 100), ("4 kB", "x" * 3_700), ("100 kB", "x" * 99_700)):
        path = folder / "live.jsonl"
        path.write_bytes(b"")
        line = encoded([turn_lines(prompt=text, answer="", at=OLD, tools=0)[0]])
        files, reader, offset = LocalFiles(), READERS["claude-code"].oracle(source(path), NATIVE), 0
        spent, floors = [], []
        for _ in range(LINES if len(line) < 50_000 else LINES // 10):
            with path.open("ab", buffering=0) as file:
                file.write(line)
            began = time.perf_counter()
            with path.open("rb", buffering=0) as file:
                file.seek(offset)
                file.read(PIECE_BYTES_MAX).split(b"\n")
            floors.append((time.perf_counter() - began) * 1e6)
            began = time.perf_counter()
            read = files.read_from(str(path), offset, PIECE_BYTES_MAX, 0, 0)
            reader.feed(str(path), read.data)
            spent.append((time.perf_counter() - began) * 1e6)
            offset += len(line)
        p50, floor_p50 = percentile(spent, 0.5), percentile(floors, 0.5)
        rows.append([what, len(spent), p50, percentile(spent, 0.99), floor_p50, p50 / floor_p50])
        path.unlink()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=16 if QUICK else 64)
    parser.add_argument("--folder", default=".")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix=".bench-") as name:
        rows = whole(Path(name), args.mb)
        lines = one_line(Path(name))
    show(
        f"A record of {args.mb} MB (in the page cache), Claude Code's",
        ["record", "lines", "step", "MB/s", "us a line", "x floor"],
        rows,
    )
    show(
        "One new line read and decoded, us",
        ["line", "n", "p50", "p99", "floor p50 (read, split)", "ratio"],
        lines,
    )


if __name__ == "__main__":
    main()
