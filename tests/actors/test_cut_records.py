"""A record that is cut short in mid turn, anywhere: what is written behind the cut is of the turn that runs."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit_system import WAIT_MAX_S, Do, Probe
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import AssistantSaid, FileChangedHint, TurnClosed
from lastword.actors.core.ports import Cursor
from lastword.actors.core.transcript import LineMarks, Tail
from lastword.actors.system.system import ActorSystem
from lastword.actors.transcript import FactsRead, FactsTaken, Follow, TranscriptWatcherActor
from lastword.transports.files import LocalFiles
from lastword.transports.providers.claude_code_oracle import ClaudeOracle
from record_kit import NoWakes, turn
from volume_kit import NATIVE

pytestmark = [pytest.mark.contract("C02"), pytest.mark.contract("C04")]


class Parent(Probe):
    def __init__(self, log: list[Any], files: LocalFiles) -> None:
        super().__init__(log)
        self.watcher = self.spawn(TranscriptWatcherActor, files, NoWakes(), name=f"{self.ref.name}-watcher")


class Reading:
    """The watcher on one real file; it looks when it is told to."""

    def __init__(
        self, system: ActorSystem, path: Path, expected: tuple[str, ...] = (), cursor: Cursor | None = None
    ) -> None:
        self.path, self.system, self.log = path, system, []
        parent = system.spawn(Parent, self.log, LocalFiles(), name=f"parent-{path.stem}")
        self.watcher = parent.ask(Do(lambda actor: actor.watcher), timeout_s=WAIT_MAX_S)
        source = SourceSpec(kind="append-jsonl", path=str(path), root=str(path.parent))

        def oracle(offset: int) -> ClaudeOracle:
            made = ClaudeOracle(source, NATIVE, offset)
            made.expect(expected)
            return made

        self.watcher.tell(Follow(source=source, oracle=oracle, cursor=cursor))
        self.look()

    def look(self) -> None:
        self.watcher.tell(FileChangedHint(path="record"))
        assert self.system.settle(WAIT_MAX_S)
        while self.log and isinstance(self.log[-1], FactsRead) and self.log[-1].more:
            self.watcher.tell(FactsTaken())
            assert self.system.settle(WAIT_MAX_S)

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def facts(self, kind: type) -> list[Any]:
        return [
            fact for read in self.log if isinstance(read, FactsRead) for fact in read.facts if isinstance(fact, kind)
        ]


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    with ActorSystem("cut-test") as made:
        yield made


def ends(reading: Reading) -> dict[str, list[Any]]:
    """By native turn: how each was told to end, in order."""
    told: dict[str, list[Any]] = {}
    for fact in reading.facts(TurnClosed):
        told.setdefault(fact.native_turn[:8], []).append((fact.status, fact.answer))
    return told


def cuts(before: bytes) -> list[int]:
    """At record borders, beside them, and anywhere."""
    dice = random.Random(5)
    borders = [at + 1 for at, byte in enumerate(before) if byte == 10][:-1]
    beside = [at + step for at in borders for step in (-1, 0, 1)]
    return sorted({1, 40, *beside, *(dice.randrange(1, len(before)) for _ in range(20))})


@pytest.mark.parametrize("late", [False, True], ids=["seen at once", "seen with what follows"])
def test_c02_an_end_behind_any_cut_closes_the_turn_that_runs_and_no_other(system, tmp_path, late) -> None:
    third = turn(3)
    before = b"".join([*turn(1), *turn(2), *third[:2]])
    lost = []
    for number, at in enumerate(cuts(before)):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(before)
        reading = Reading(system, path)
        assert set(ends(reading)) == {"00000001", "00000002"}
        os.truncate(path, at)
        if not late:
            reading.look()
        reading.append(third[2])
        reading.append(b"".join(third[3:]))
        reading.look()
        told = ends(reading)
        assert all(each == ("completed", "answer 1") for each in told["00000001"]), at
        assert all(each == ("completed", "answer 2") for each in told["00000002"]), at
        assert set(told.get("00000003", [])) <= {("completed", "answer 3")}, at
        if not told.get("00000003"):
            lost.append(at)
        else:
            assert len(told["00000003"]) == 1
        reading.append(b"".join(turn(4)))
        reading.look()
        assert ends(reading)["00000004"] == [("completed", "answer 4")], at
    assert lost == []


@pytest.mark.parametrize("seen", ["the answer's start", "nothing"])
def test_c17_a_cut_while_no_host_lived_costs_only_what_nothing_tells_the_turn_of(system, tmp_path, seen) -> None:
    """The next host knows the turn by its prompt's name. What was written behind the cut is of that turn where it hangs
    on that prompt; where all that did is cut off too, nobody can say whose the rest is.
    """
    third = turn(3)
    head = len(b"".join([*turn(1), *turn(2)]))
    written = 1 if seen == "nothing" else 2
    before = b"".join([*turn(1), *turn(2), *third[:written]])
    native = json.loads(third[0])["uuid"]
    place = Cursor(path="", offset=head, inode=0, device=0)
    for number, at in enumerate([*cuts(before), 0, head, len(before)]):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(before)
        facts = path.stat()
        os.truncate(path, at)
        with path.open("ab") as file:
            file.write(b"".join(third[written:]))
        tail = Tail()
        tail.grew(before[:head])
        cursor = msgspec.structs.replace(place, path=str(path), inode=facts.st_ino, device=facts.st_dev, tail=tail.mark)
        told = ends(Reading(system, path, expected=(native,), cursor=cursor))
        end = told.get("00000003")  # of the others each is settled: nothing that is told of them counts any more
        if written == 1 or at >= head + len(third[0]) + len(third[1]) - 1:
            assert end == [("completed", "answer 3")], (at, told)
        else:
            assert end in (None, [("completed", "answer 3")]), (at, told)


def test_c02_a_cut_between_turns_costs_the_next_turn_nothing(system, tmp_path) -> None:
    """Its prompt may be glued to what is left of a record: the place of the cut is known, when it is seen in time."""
    before = b"".join([*turn(1), *turn(2)])
    for number, at in enumerate(cuts(before)):
        if at < len(turn(1)[0]):
            continue  # of so little nobody knows yet whether it is a new file
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(before)
        reading = Reading(system, path)
        os.truncate(path, at)
        reading.look()
        reading.append(b"".join(turn(3)))
        reading.look()
        assert ends(reading)["00000003"] == [("completed", "answer 3")], at


def test_c04_a_record_that_is_just_being_written_again_is_not_taken_for_a_cut(system, tmp_path) -> None:
    """The same bytes, seen when a part of them was there: earlier turns' ends are behind the place, and end nothing."""
    third = turn(3)
    before = b"".join([*(line for number in range(11, 21) for line in turn(number)), *turn(1), *turn(2), *third[:2]])
    dice = random.Random(9)
    for number, at in enumerate([*cuts(before)[::4], *(dice.randrange(400, len(before)) for _ in range(20))]):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(before)
        reading = Reading(system, path)
        reading.look()
        os.truncate(path, at)
        reading.look()
        reading.append(before[at:])
        reading.look()
        assert "00000003" not in ends(reading), at
        reading.append(b"".join(third[2:]))
        reading.look()
        assert set(ends(reading)["00000003"]) == {("completed", "answer 3")}, at


def test_c04_a_record_that_was_written_anew_is_not_taken_for_a_cut(system, tmp_path) -> None:
    """The same file, shorter, without the turn that runs, and with earlier records in other places."""
    third = turn(3)
    one, two = turn(1), turn(2)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join([*one, *two, *third[:2]]))
    reading = Reading(system, path)
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(b"".join([*one[:2], *two[:1], *two[3:], *one[3:]]))
    reading.look()
    told = ends(reading)
    assert all(each == ("completed", "answer 2") for each in told["00000002"])
    assert [each for each in told.get("00000003", []) if each[0] != "lost"] == []
    assert "answer 3" not in {fact.text for fact in reading.facts(AssistantSaid)}


def test_c04_ends_of_long_ago_that_stand_behind_the_place_are_not_of_the_turn_that_runs(system, tmp_path) -> None:
    """The file was written anew without its middle: those lines were read before."""
    old = {number: turn(number) for number in range(11, 21)}
    third = turn(3)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join([*(line for lines in old.values() for line in lines), *third[:2]]))
    reading = Reading(system, path)
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(b"".join([*old[11], *old[13][3:], *old[14][3:]]))
    reading.look()
    assert "00000003" not in ends(reading)


def test_the_marks_of_a_record_of_any_length_are_bounded_and_a_cut_is_found_in_few_looks() -> None:
    marks, data, looks = LineMarks(), bytearray(), 0

    def read(offset: int, length: int) -> bytes:
        nonlocal looks
        looks += 1
        return bytes(data[offset : offset + length])

    for number in range(60_000):
        line = b'{"n":%d,"x":"%s"}\n' % (number, b"x" * (number % 50))
        data += line
        marks.grew(line)
    assert marks.held_bytes < 400_000
    whole = len(data)
    for cut in (whole - 3, whole - 100_000, whole - 400_000):
        known = LineMarks()
        known.grew(bytes(data))
        looks = 0
        del data[cut:]
        assert known.cut(read) == cut
        assert looks < 40
        data += b'{"new":1}\n'
        assert known.length == cut
    assert marks.cut(lambda offset, length: b"") is None
