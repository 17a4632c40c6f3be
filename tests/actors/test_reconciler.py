"""The second reader: whatever a record is full of, the end of a turn in it is told; it is read in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from kit_system import WAIT_MAX_S, Do, Probe
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import TurnClosed
from lastword.actors.core.reconcile import unobserved
from lastword.actors.core.world import FileRead, Unreadable
from lastword.actors.reconciler import FACTS_MAX, PIECE_BYTES, Consult, Consulted, ReconcilerActor
from lastword.actors.system.system import ActorSystem
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import MemoryOracle, Record

RECORD = SourceSpec(kind="append-jsonl", path="/memory/s.jsonl", root="/memory")
SENT = SourceSpec(kind="append-jsonl", path="/memory/sent.jsonl", root="/memory")

pytestmark = [pytest.mark.contract("C42")]


class World(MemoryWorld):
    """Counts bytes, and fails the looks that it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.blind = ""

    def read_from(self, path: str, offset: int, max_bytes: int, inode: int, device: int) -> FileRead:
        if path == self.blind:
            return Unreadable(reason="EIO: Input/output error")
        read = super().read_from(path, offset, max_bytes, inode, device)
        self.bytes += len(getattr(read, "data", b""))
        return read


class Parent(Probe):
    def __init__(self, log: list[Any], world: World) -> None:
        super().__init__(log)
        self.reconciler = self.spawn(ReconcilerActor, world, name="reconciler")


Look = Callable[..., Consulted]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def look(world: World) -> Iterator[Look]:
    """Have the record looked into, by a reader that has heard of it up to there."""
    log: list[Any] = []
    with ActorSystem("reconciler-test") as system:
        parent = system.spawn(Parent, log, world, name="parent")
        reconciler = parent.ask(Do(lambda actor: actor.reconciler), timeout_s=WAIT_MAX_S)

        def consult(observed_to: int, *natives: str, earlier: tuple[SourceSpec, ...] = ()) -> Consulted:
            before = len(log)
            reconciler.tell(
                Consult(
                    source=RECORD,
                    oracle=lambda offset: MemoryOracle(RECORD, offset),
                    cursor=None,
                    observed_to=observed_to,
                    natives=frozenset(natives),
                    earlier=earlier,
                )
            )
            assert system.settle(WAIT_MAX_S)
            (answer,) = log[before:]
            return answer

        yield consult


def line(**fields: Any) -> bytes:
    return msgspec.json.encode(Record(**fields)) + b"\n"


def end(turn: str, answer: str) -> bytes:
    return line(k="end", turn=turn, text=answer, status="completed")


def ends(found: Consulted) -> list[tuple[str, str | None]]:
    return [(fact.native_turn, fact.answer) for fact in found.facts if isinstance(fact, TurnClosed)]


FLOODS = {
    "unknown records": lambda number: b"x%d\n" % number,
    "what was said": lambda number: line(k="said", turn="t", text=str(number)),
    "ends of other turns": lambda number: end(f"other{number}", str(number)),
}


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("bound", [True, False])
def test_c42_a_flood_of_records_does_not_hide_the_end_of_the_turn_that_is_open(world, look, flood, bound) -> None:
    world.append(RECORD.path, line(k="prompt", turn="t", text="go"))
    observed_to = len(world.contents(RECORD.path))
    world.append(RECORD.path, b"".join(FLOODS[flood](number) for number in range(FACTS_MAX + 10)))
    world.append(RECORD.path, end("t", "the answer"))
    natives = frozenset({"t"} if bound else {""})
    found = look(observed_to, *natives)
    assert ("t", "the answer") in ends(found)
    assert len(found.facts) <= FACTS_MAX + 1
    behind = unobserved(found.facts, observed_to, natives)
    assert behind is not None
    assert behind.ends[-1].answer == "the answer"
    world.append(RECORD.path, b"x\n")
    again = look(observed_to, *natives)
    assert ("t", "the answer") in ends(again)
    assert unobserved(again.facts, observed_to, natives).offset > behind.offset, "it tells of what stands there last"


def test_c42_a_record_that_did_not_change_is_asked_anew_for_another_turn(world, look) -> None:
    world.append(RECORD.path, line(k="prompt", turn="t", text="go") + end("t", "one") + end("u", "two") + b"x\n")
    assert ends(look(1, "t")) == [("t", "one")]
    reads = world.bytes
    assert ends(look(1, "t")) == [("t", "one")]
    assert world.bytes - reads <= 1, "it is known"
    assert ends(look(1, "u")) == [("u", "two")]


@pytest.mark.contract("C13")
def test_c13_what_precedes_a_record_is_read_in_slices_too_and_a_failed_look_is_told(world, look, monkeypatch) -> None:
    world.append(SENT.path, b'{"k":"none"}\n' * (6 * PIECE_BYTES // 13))
    world.append(RECORD.path, line(k="prompt", turn="t", text="go") + end("t", "one"))
    real, handled = ReconcilerActor.receive, []

    def receive(actor: ReconcilerActor, message: Any) -> None:
        before = world.bytes
        real(actor, message)
        handled.append(world.bytes - before)

    monkeypatch.setattr(ReconcilerActor, "receive", receive)
    assert ends(look(1, "t", earlier=(SENT,))) == [("t", "one")]
    assert sum(handled) > 5 * PIECE_BYTES
    assert max(handled) <= 2 * PIECE_BYTES
    world.append(RECORD.path, b"x\n")
    world.blind = SENT.path
    assert look(1, "t", earlier=(SENT,)) == Consulted(path=RECORD.path, unread="EIO: Input/output error")
