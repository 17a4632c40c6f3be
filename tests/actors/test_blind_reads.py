"""A look at a changed record that fails proves nothing: what is told in the end is what a reader tells that always
could look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit_system import WAIT_MAX_S, Do, Probe
from lastword.actors import transcript
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import FileChangedHint, TurnClosed
from lastword.actors.core.ids import TurnId
from lastword.actors.core.world import FileRead, Missing, Unreadable
from lastword.actors.record_place import READ_BYTES_MAX
from lastword.actors.record_reader import PIECE_BYTES_MAX
from lastword.actors.system.clock import ManualClock
from lastword.actors.system.system import ActorSystem
from lastword.actors.transcript import FactsRead, FactsTaken, Follow, Look, Looked, TranscriptWatcherActor
from lastword.transports.files import LocalFiles
from lastword.transports.providers.claude_code_oracle import ClaudeOracle
from record_kit import NoWakes, turn
from volume_kit import NATIVE

pytestmark = [pytest.mark.contract("C02"), pytest.mark.contract("C03")]

NOT_NOW = Unreadable(reason="EIO: Input/output error")


class Faulty(LocalFiles):
    """Fails the looks that it is asked to; counts them all."""

    def __init__(self) -> None:
        self.looks = 0
        self.bytes = 0
        self.most = 1 << 30
        self.fails: Callable[[int, str], FileRead | None] = lambda number, path: None

    def read_from(self, path: str, offset: int, max_bytes: int, inode: int, device: int) -> FileRead:
        number, self.looks = self.looks, self.looks + 1
        read = self.fails(number, path) or super().read_from(path, offset, min(max_bytes, self.most), inode, device)
        self.bytes += len(getattr(read, "data", b""))
        return read


class Parent(Probe):
    def __init__(self, log: list[Any], files: Faulty) -> None:
        super().__init__(log)
        self.watcher = self.spawn(TranscriptWatcherActor, files, NoWakes(), name=f"{self.ref.name}-watcher")


class Reading:
    """The watcher on one real file behind faulty looks; it looks when it is told to."""

    def __init__(self, system: ActorSystem, path: Path, earlier: Path | None = None) -> None:
        self.path, self.system, self.files = path, system, Faulty()
        self.log: list[Any] = []
        self.oracles: list[int] = []
        parent = system.spawn(Parent, self.log, self.files, name=f"parent-{path.stem}")
        self.watcher = parent.ask(Do(lambda actor: actor.watcher), timeout_s=WAIT_MAX_S)
        source = SourceSpec(kind="append-jsonl", path=str(path), root=str(path.parent))

        def oracle(offset: int) -> ClaudeOracle:
            self.oracles.append(offset)
            return ClaudeOracle(source, NATIVE, offset)

        before = SourceSpec(kind="append-jsonl", path=str(earlier), root=str(path.parent))
        self.follow = Follow(source=source, oracle=oracle, earlier=(before,) if earlier is not None else ())
        if earlier is None:
            self.begin()

    def begin(self) -> None:
        self.watcher.tell(self.follow)
        self.look()

    def look(self) -> None:
        self.watcher.tell(FileChangedHint(path="record"))
        assert self.system.settle(WAIT_MAX_S)
        while self.log and isinstance(self.log[-1], FactsRead) and self.log[-1].more:
            self.watcher.tell(FactsTaken())
            assert self.system.settle(WAIT_MAX_S)

    @property
    def facts(self) -> list[Any]:
        return [fact for read in self.log if isinstance(read, FactsRead) for fact in read.facts]

    @property
    def ends(self) -> list[tuple[str, str, str | None]]:
        return [(fact.native_turn[:8], fact.status, fact.answer) for fact in self.facts if isinstance(fact, TurnClosed)]


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    with ActorSystem("blind-test") as made:
        yield made


FIRST, SECOND = turn(1), turn(2, tools=2)
BEFORE = b"".join([*FIRST, *SECOND[:3]])
REST = b"".join(SECOND[3:])
DONE = [("00000001", "completed", "answer 1"), ("00000002", "completed", "answer 2")]


def begun(system: ActorSystem, path: Path, second: bytes = b"".join(SECOND[:3])) -> Reading:
    """One turn is over, and the second one is open."""
    path.write_bytes(b"".join(FIRST))
    reading = Reading(system, path)
    with path.open("ab") as file:
        file.write(second)
    reading.look()
    return reading


def written(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.rename(path)


def rotated(path: Path) -> None:
    """The end went into the file before."""
    with path.open("ab") as file:
        file.write(REST)
    path.rename(path.with_suffix(".old"))
    path.write_bytes(b"".join(turn(3)))


def copied(path: Path) -> None:
    """Another file, begun otherwise, that holds the turn that is open."""
    written(path, b"".join([*turn(9), *SECOND]))


def forgotten(path: Path) -> None:
    """Another file that holds the turn's end only."""
    written(path, REST)


def cut_in_the_turn(path: Path) -> None:
    os.truncate(path, len(BEFORE) - 30)
    with path.open("ab") as file:
        file.write(SECOND[2][-30:] + REST)


def cut_at_a_border(path: Path) -> None:
    """What was read ended in the middle of a line, which is written once more, whole, behind an empty one."""
    os.truncate(path, len(BEFORE))
    with path.open("ab") as file:
        file.write(b"\n" + REST)


def cut_before_the_turn(path: Path) -> None:
    os.truncate(path, len(b"".join(FIRST)) - 20)
    with path.open("ab") as file:
        file.write(b"\n" + REST)


def anew_in_place(path: Path) -> None:
    path.write_bytes(b"".join([*turn(8), *SECOND]))


CHANGES = pytest.mark.parametrize(
    "change",
    [rotated, copied, forgotten, cut_in_the_turn, cut_at_a_border, cut_before_the_turn, anew_in_place],
    ids=lambda change: change.__name__,
)


@CHANGES
@pytest.mark.parametrize("failure", [NOT_NOW, Missing()], ids=["unreadable", "missing"])
def test_c03_whichever_look_at_a_changed_record_fails_the_same_is_told(system, tmp_path, change, failure) -> None:
    def told(name: str, failing: int | None) -> tuple[list[Any], list[int], int]:
        path = tmp_path / f"{name}.jsonl"
        torn = SECOND[3][:50] if change is cut_at_a_border else b""
        reading = begun(system, path, b"".join(SECOND[:3]) + torn)
        change(path)
        first = reading.files.looks
        if failing is not None:
            reading.files.fails = lambda number, _: failure if number == first + failing else None
        for _ in range(3):
            reading.look()
        facts = [str(fact).replace(str(path), "") for fact in reading.facts]
        assert {"00000002"} <= {end[0] for end in reading.ends}, reading.ends
        return facts, reading.oracles, reading.files.looks - first

    expected, oracles, looks = told("whole", None)
    assert looks >= 3
    for failing in range(looks):
        facts, made, _ = told(f"{change.__name__}-{failing}", failing)
        assert (facts, made) == (expected, oracles), f"look {failing} of {looks} failed"


def test_c03_the_rest_of_a_moved_record_is_waited_for_while_it_cannot_be_read(system, tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    reading = begun(system, path)
    rotated(path)
    reading.files.fails = lambda _, read: NOT_NOW if read.endswith(".old") else None
    for _ in range(5):
        reading.look()
    assert reading.ends == DONE[:1]
    reading.watcher.tell(Look(turn_id=TurnId("t")))
    reading.look()
    assert [each.read for each in reading.log if isinstance(each, Looked)] == [False]
    reading.files.fails = lambda _, read: None
    reading.look()
    assert reading.ends == [*DONE, ("00000003", "completed", "answer 3")]


def test_c03_a_rest_that_never_can_be_read_does_not_hold_up_what_follows_and_is_no_proof(tmp_path) -> None:
    clock = ManualClock()
    with ActorSystem("blind-test", clock=clock) as system:
        path = tmp_path / "s.jsonl"
        reading = begun(system, path)
        rotated(path)
        path.write_bytes(turn(3)[0])
        reading.files.fails = lambda _, read: NOT_NOW if read.endswith(".old") else None
        for _ in range(2 * transcript.FINAL_READS_MAX):
            reading.look()  # hints of the new file: however many there are, they give nothing up
        assert system.dead_letters.counts() == {}
        clock.advance(transcript.FINAL_READS_MAX * transcript.UNREADABLE_RETRY_S + 1)
        reading.look()
        assert system.dead_letters.counts()["record_rest_unread"] == 1
        assert any(getattr(fact, "text", "") == "prompt 3" for fact in reading.facts)
        reading.watcher.tell(Look(turn_id=TurnId("t")))
        assert system.settle(WAIT_MAX_S)
        assert [each.read for each in reading.log if isinstance(each, Looked)] == [False]


def test_c04_an_opening_that_lies_across_several_short_reads_is_found(system, tmp_path) -> None:
    long = turn(2)
    long[0] = long[0].replace(b"prompt 2", b"prompt 2 " + b"".join(b"%06d " % number for number in range(900)))
    path = tmp_path / "s.jsonl"
    reading = begun(system, path, b"".join(long[:2]))
    written(path, b"".join([*turn(9), *long]))
    reading.files.most = 1500
    reading.look()
    assert reading.oracles == [0, 0], "it is known to hold the turn: read anew, not on"


def test_c04_an_opening_of_which_only_some_bytes_were_read_is_not_found_in_any_record(system, tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(FIRST))
    reading = Reading(system, path)
    for data in (SECOND[0][:5], SECOND[0][5:] + b"".join(SECOND[1:3])):
        with path.open("ab") as file:
            file.write(data)
        reading.look()
    written(path, REST)
    reading.look()
    assert reading.ends == DONE


@pytest.mark.parametrize("change", ["rest", "opening"])
def test_c13_a_long_record_that_was_moved_or_replaced_is_read_in_slices(system, tmp_path, monkeypatch, change) -> None:
    path = tmp_path / "s.jsonl"
    reading = begun(system, path)
    long = b'{"type":"none","x":"%s"}\n' % (b"x" * 1000) * 8000
    if change == "rest":
        with path.open("ab") as file:
            file.write(long + REST)
        path.rename(path.with_suffix(".old"))
        path.write_bytes(b"".join(turn(3)))
    else:
        written(path, long + REST)
    real, handled = TranscriptWatcherActor.receive, []

    def receive(actor: TranscriptWatcherActor, message: Any) -> None:
        before = reading.files.bytes
        real(actor, message)
        handled.append(reading.files.bytes - before)

    monkeypatch.setattr(TranscriptWatcherActor, "receive", receive)
    reading.look()
    assert reading.ends[: len(DONE)] == DONE
    assert max(handled) < 3 * (PIECE_BYTES_MAX if change == "rest" else READ_BYTES_MAX)


@pytest.mark.contract("C13")
def test_c03_what_precedes_a_record_is_read_in_slices_and_waited_for_while_it_cannot_be_read(
    system, tmp_path, monkeypatch
) -> None:
    """Nothing of the record is told without what stands before it."""
    path, sent = tmp_path / "s.jsonl", tmp_path / "sent.jsonl"
    sent.write_bytes(b'{"type":"none","x":"%s"}\n' % (b"x" * 1000) * 5000)
    path.write_bytes(b"".join(FIRST))
    reading = Reading(system, path, earlier=sent)
    reading.files.fails = lambda _, read: NOT_NOW if read == str(sent) else None
    real, handled = TranscriptWatcherActor.receive, []

    def receive(actor: TranscriptWatcherActor, message: Any) -> None:
        before = reading.files.bytes
        real(actor, message)
        handled.append(reading.files.bytes - before)

    reading.begin()
    for _ in range(3):
        reading.look()
    assert reading.facts == []
    monkeypatch.setattr(TranscriptWatcherActor, "receive", receive)
    reading.files.fails = lambda _, read: None
    reading.look()
    assert reading.ends == DONE[:1]
    assert sum(handled) > 4 * PIECE_BYTES_MAX
    assert max(handled) < 3 * PIECE_BYTES_MAX
