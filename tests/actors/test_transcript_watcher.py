"""The reader on the real actor system: hints are merged, none is lost, and each is about one file."""

from __future__ import annotations

import threading

import msgspec
import pytest

from kit_system import WAIT_MAX_S, Do, Probe, until
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import (
    CliStatusSeen,
    EndpointGoneHint,
    FileChangedHint,
    RecordExhausted,
    SweepHint,
    UnknownRecord,
)
from lastword.actors.record_reader import PIECE_BYTES_MAX
from lastword.actors.system.ref import Ref
from lastword.actors.system.system import ActorSystem
from lastword.actors.transcript import (
    CaughtUp,
    FactsRead,
    FactsTaken,
    Follow,
    FollowStatus,
    TranscriptWatcherActor,
)
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import MemoryOracle, Record, Registry

RECORD = SourceSpec(kind="append-jsonl", path="/memory/s.jsonl", root="/memory")
STATUS = SourceSpec(kind="snapshot-json", path="/memory/1.json", root="/memory")


class World(MemoryWorld):
    """Counts reads, and holds one back while a test writes behind it."""

    def __init__(self):
        super().__init__()
        self.reads: list[str] = []
        self.hold = threading.Event()
        self.reached = threading.Event()
        self.hold.set()

    def read_from(self, path, offset, max_bytes, inode, device):
        self.reads.append(path)
        read = super().read_from(path, offset, max_bytes, inode, device)
        self.reached.set()
        assert self.hold.wait(WAIT_MAX_S)
        return read

    def read_small(self, path, max_bytes):
        self.reads.append(path)
        return super().read_small(path, max_bytes)

    def say(self, text):
        self.append(RECORD.path, msgspec.json.encode(Record(k="said", turn="t", text=text)) + b"\n")


class Parent(Probe):
    def __init__(self, log, world):
        super().__init__(log)
        self.watcher = self.spawn(TranscriptWatcherActor, world, world, name="watcher")


@pytest.fixture
def world():
    return World()


@pytest.fixture
def told(world):
    log: list = []
    with ActorSystem("watcher-test") as system:
        parent = system.spawn(Parent, log, world, name="parent")
        watcher = parent.ask(Do(lambda actor: actor.watcher), timeout_s=WAIT_MAX_S)
        watcher.tell(Follow(source=RECORD, oracle=lambda offset: MemoryOracle(RECORD, offset)))
        watcher.tell(FollowStatus(source=STATUS))
        until(lambda: STATUS.path in world.reads)
        assert system.settle(WAIT_MAX_S)
        yield system, log
        world.hold.set()


def said(log):
    return [fact.text for read in log if isinstance(read, FactsRead) for fact in read.facts if hasattr(fact, "text")]


@pytest.mark.contract("C40")
def test_what_is_written_while_it_reads_is_read_without_any_sweep(world, told):
    """The hint of the second write comes after the first one was taken: it must count."""
    _, log = told
    for n in range(200):
        world.hold.clear()
        world.reached.clear()
        world.say(f"a{n}")
        assert world.reached.wait(WAIT_MAX_S)
        world.say(f"b{n}")  # the reader has its bytes, and does not know of these
        world.hold.set()
        until(lambda n=n: f"b{n}" in said(log))
    assert said(log) == [f"{x}{n}" for n in range(200) for x in "ab"]


def test_a_burst_of_hints_is_one_look(world, told):
    system, log = told
    world.hold.clear()
    world.reached.clear()
    world.say("first")
    assert world.reached.wait(WAIT_MAX_S)
    before = len(world.reads)
    for n in range(100):
        world.say(str(n))
    world.hold.set()
    assert system.settle(WAIT_MAX_S)
    assert len(said(log)) == 101
    assert len(world.reads) - before <= 2


def test_lines_that_say_nothing_are_counted_each_and_told_once_a_piece(world, told):
    """A record may hold a million of them: what they cost the session is the number of pieces."""
    system, log = told
    watcher = system.find("watcher")
    assert watcher is not None
    world.append(RECORD.path, b"{}\n" * 400_000 + b"x\n" * 1000)
    world.say("behind them")
    until(lambda: (watcher.tell(FactsTaken()), said(log) == ["behind them"])[1], within_s=WAIT_MAX_S)
    unknown = [
        fact for read in log if isinstance(read, FactsRead) for fact in read.facts if isinstance(fact, UnknownRecord)
    ]
    assert sum(fact.times for fact in unknown) == 401_000
    assert len(unknown) <= 2 + 1_202_000 // PIECE_BYTES_MAX


def test_a_line_of_many_pieces_is_one_line(world, told):
    system, log = told
    text = "".join(map(str, range(PIECE_BYTES_MAX)))
    world.say(text)
    world.say("behind it")
    watcher = system.find("watcher")
    until(lambda: (watcher.tell(FactsTaken()), len(said(log)) == 2)[1], within_s=WAIT_MAX_S)
    assert said(log) == [text, "behind it"]


@pytest.mark.contract("C17")
def test_the_next_piece_is_not_even_read_until_the_session_has_taken_this_one(world, told):
    """Whatever wakes it meanwhile: of a record of any length no more than one piece is held."""
    system, log = told
    watcher = system.find("watcher")
    assert system.settle(WAIT_MAX_S)
    world.reads.clear()
    line = msgspec.json.encode(Record(k="said", turn="t", text="y" * 1000)) + b"\n"
    world.append(RECORD.path, line * (4 * PIECE_BYTES_MAX // len(line)))
    for pieces in (1, 2, 3):
        until(lambda pieces=pieces: len(told_of(log)) == pieces, within_s=WAIT_MAX_S)
        for hint in (SweepHint(), FileChangedHint(path="record"), SweepHint()):
            watcher.tell(hint)
        assert system.settle(WAIT_MAX_S)
        assert (len(told_of(log)), world.reads.count(RECORD.path)) == (pieces, pieces)
        watcher.tell(FactsTaken())
    until(lambda: (watcher.tell(FactsTaken()), len(said(log)) == 4 * PIECE_BYTES_MAX // len(line))[1])


def told_of(log):
    return [read for read in log if isinstance(read, FactsRead) and read.facts]


def test_a_change_of_the_record_does_not_wait_for_a_look_at_the_registry(world, told):
    system, log = told
    world.reads.clear()
    world.say("x")
    until(lambda: said(log) == ["x"])
    assert system.settle(WAIT_MAX_S)
    assert STATUS.path not in world.reads


def test_what_the_record_says_comes_before_what_the_registry_says_after_it(world, told):
    system, log = told
    world.wake = False
    world.say("x")
    world.wake = True
    world.replace(STATUS.path, msgspec.json.encode(Registry(status="idle", updated_at=1.0, session="n")))
    assert system.settle(WAIT_MAX_S)
    facts = [fact for read in log if isinstance(read, FactsRead) for fact in read.facts]
    assert [type(fact) is CliStatusSeen for fact in facts] == [False, True]


def test_a_hint_that_is_handled_before_its_teller_returns_stops_no_later_one(world, told, monkeypatch):
    system, log = told
    tell = Ref.try_tell

    def slowly(ref, message, *, control=False):
        taken = tell(ref, message, control=control)
        if ref.name == "watcher":
            assert system.settle(WAIT_MAX_S)
        return taken

    monkeypatch.setattr(Ref, "try_tell", slowly)
    for n in range(3):
        world.say(str(n))
        assert system.settle(WAIT_MAX_S)
    assert said(log) == ["0", "1", "2"]


@pytest.mark.contract("C51")
def test_c51_a_record_whose_name_the_cli_chooses_is_the_one_with_that_end_and_no_other(world):
    """Not the newest, not the only one: the one of that name, as soon as it is there, wherever below the root."""
    log: list = []
    source = SourceSpec(kind="append-jsonl", path="", root="/memory", suffix="-mine.jsonl")

    def line(text):
        return msgspec.json.encode(Record(k="said", turn="t", text=text)) + b"\n"

    with ActorSystem("watcher-find") as system:
        parent = system.spawn(Parent, log, world, name="parent")
        watcher = parent.ask(Do(lambda actor: actor.watcher), timeout_s=WAIT_MAX_S)
        world.append("/memory/b/2-other.jsonl", line("not ours"))
        watcher.tell(Follow(source=source, oracle=lambda offset: MemoryOracle(source, offset)))
        until(lambda: any(isinstance(each, CaughtUp) for each in log))
        world.append("/memory/a/1-mine.jsonl", line("ours"))
        world.append("/memory/c/3-other.jsonl", line("newer, and not ours"))
        until(lambda: said(log))
        world.append("/memory/a/1-mine.jsonl", line("more"))
        until(lambda: len(said(log)) == 2)
    assert said(log) == ["ours", "more"]
    assert {each.path for each in log if isinstance(each, FactsRead)} == {"/memory/a/1-mine.jsonl"}


@pytest.mark.contract("C02")
def test_c02_a_record_that_never_began_is_read_to_its_end_once_the_cli_is_gone(world):
    log: list = []
    source = SourceSpec(kind="append-jsonl", path="", root="/memory", suffix="-mine.jsonl")
    with ActorSystem("watcher-none") as system:
        parent = system.spawn(Parent, log, world, name="parent")
        watcher = parent.ask(Do(lambda actor: actor.watcher), timeout_s=WAIT_MAX_S)
        watcher.tell(Follow(source=source, oracle=lambda offset: MemoryOracle(source, offset)))
        watcher.tell(EndpointGoneHint(exit_status=1))
        until(lambda: [fact for each in log if isinstance(each, FactsRead) for fact in each.facts])
    facts = [fact for each in log if isinstance(each, FactsRead) for fact in each.facts]
    assert facts == [RecordExhausted(exit_status=1)]
