"""What a noisy session may take before a quiet one's turn comes: bounds in messages and bytes, not in seconds (C13, C31)."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from host_kit import WAIT_S, HeldCommits, completed
from kit_system import Gate, Probe, until
from lastword import events
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.events import AssistantDelta, Event
from lastword.actors.system.system import ActorSystem
from lastword.actors.transcript import FactsRead, FactsTaken, Follow, TranscriptWatcherActor
from lastword.runtime._hub import LIVE_EVENTS_MAX, RING_EVENTS_MAX
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import MemoryOracle, Record

KIB = 1024
MESSAGES_MAX = 32
READ_MAX = 128 * KIB
"""Bytes of a noisy record that are read before the quiet one is, where all of them say something."""
READ_SILENT_MAX = MESSAGES_MAX * 65 * KIB
"""The same where none does (one endless line): then only the batch ends, and a KiB is read again each time."""
IN_LINE_MAX = 256 * KIB
"""Bytes of one session's record that are read and not committed."""


def line(text: str, turn: str = "t") -> bytes:
    return msgspec.json.encode(Record(k="said", turn=turn, text=text)) + b"\n"


@pytest.mark.contract("C13")
def test_c13_with_one_worker_a_quiet_actor_waits_for_one_batch_of_one_that_floods_itself():
    class Flood(Probe):
        def receive(self, message):
            if isinstance(message, int) and message < 2000:
                self.ref.tell(message + 1)
            return super().receive(message)

    log: list = []
    with ActorSystem("fair", workers=1) as system:
        flood, quiet = system.spawn(Flood, log, name="flood"), system.spawn(Probe, log, name="quiet")
        assert system.settle(WAIT_S)
        gate = Gate()
        flood.tell(gate.hold())
        assert gate.entered.wait(WAIT_S)
        flood.tell(0)
        quiet.tell("quiet")
        gate.open()
        until(lambda: len(log) == 2002, within_s=WAIT_S)
    assert log.index("quiet") <= MESSAGES_MAX


class Counted(MemoryWorld):
    """How many bytes of each file were read, and how many of the noisy one before the quiet one said something."""

    def __init__(self):
        super().__init__()
        self.read, self.before = Counter(), None

    def read_from(self, path, offset, max_bytes, inode, device):
        read = super().read_from(path, offset, max_bytes, inode, device)
        data = getattr(read, "data", b"")
        self.read[path] += len(data)
        if path == "/m/quiet.jsonl" and data and self.before is None:
            self.before = self.read["/m/noisy.jsonl"]
        return read


class Reading(Probe):
    """A session that takes at once what it is told."""

    def __init__(self, log, world, name):
        super().__init__(log)
        source = SourceSpec(kind="append-jsonl", path=f"/m/{name}.jsonl", root="/m")
        self.watcher = self.spawn(TranscriptWatcherActor, world, world, name=f"{name}-watcher")
        self.watcher.tell(Follow(source=source, oracle=lambda _: MemoryOracle(source, 0)))

    def receive(self, message):
        if isinstance(message, FactsRead) and message.more:
            self.watcher.tell(FactsTaken())
        return super().receive(message)


@pytest.mark.contract("C13")
@pytest.mark.parametrize(("noise", "most"), [(line("x" * 200), READ_MAX), (b"x" * 256, READ_SILENT_MAX)])
def test_c13_with_one_worker_a_quiet_record_is_read_after_so_many_bytes_of_a_noisy_one(noise, most):
    world = Counted()
    with ActorSystem("fair-reads", workers=1) as system:
        for name in ("noisy", "quiet"):
            world.append(f"/m/{name}.jsonl", b"")
            system.spawn(Reading, [], world, name, name=name)
        worker = system.spawn(Probe, name="worker")
        assert system.settle(WAIT_S)
        gate = Gate()
        worker.tell(gate.hold())
        assert gate.entered.wait(WAIT_S)
        world.append("/m/noisy.jsonl", noise * (2 * READ_SILENT_MAX // len(noise)))
        world.append("/m/quiet.jsonl", line("quiet"))
        gate.open()
        until(lambda: world.before is not None, within_s=WAIT_S)
        assert world.before <= most
        until(lambda: world.read["/m/noisy.jsonl"] >= 2 * READ_SILENT_MAX - len(noise), within_s=WAIT_S)


@pytest.mark.contract("C13")
@pytest.mark.contract("C31")
def test_c13_of_a_burst_no_more_than_a_few_pieces_stand_in_line_for_the_writer(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    session.send("go")
    until(lambda: cli.turn, within_s=WAIT_S)
    rig.settle()
    read_to = []
    real = type(rig.world).read_from

    def read_from(world, path, offset, *rest):
        read = real(world, path, offset, *rest)
        if path == cli.path and getattr(read, "data", b""):
            read_to.append(offset + len(read.data))
        return read

    monkeypatch.setattr(type(rig.world), "read_from", read_from)
    held = HeldCommits(
        monkeypatch, lambda batch: any(d.body.__class__ is events.AssistantMessage for d in batch.drafts)
    )
    begin, count = len(rig.world.contents(cli.path)), 2048
    rig.world.append(cli.path, b"".join(line(f"{number} ".ljust(KIB, "x"), cli.turn) for number in range(count)))
    held.wait()
    flow = session._counterpart.ref._cell.actor.flow
    until(lambda: flow._wake is not None, within_s=WAIT_S)
    assert max(read_to) - begin <= IN_LINE_MAX
    held.release()
    cli.finish("done")
    assert completed(rig, session)[0].answer == "done"
    told = rig.events(session)
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    texts = [event.body.text for event in told if isinstance(event.body, events.AssistantMessage)]
    assert [text.split(" ")[0] for text in texts] == [*map(str, range(count)), "done"]
    rig.settle()
    assert flow.under_way == 0, "what was taken was given"


@pytest.mark.contract("C30")
@pytest.mark.contract("C31")
def test_c31_a_slow_subscriber_under_a_flood_of_deltas_costs_a_bounded_buffer_and_misses_nothing_on_record(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    slow, stopped = session.events(), session.events()
    assert next(slow).seq == 1
    session.send("go")
    until(lambda: cli.turn, within_s=WAIT_S)
    rig.settle()
    hub = rig.runtime._hub
    spoken = 300
    for number in range(spoken):
        for piece in range(20):
            body = AssistantDelta(text=f"{number}.{piece}")
            hub.live(Event(session_id=session.session_id, seq=0, at=1.0, body=body))
        cli.say(f"said {number}")
    cli.finish("done")
    assert completed(rig, session)[0].answer == "done", "nobody waited for who does not read"
    rig.settle()
    channel = hub._channels[session.session_id]
    assert (len(channel.live), len(channel.ring)) == (LIVE_EVENTS_MAX, RING_EVENTS_MAX)
    last = rig.events(session)[-1].seq
    assert last > RING_EVENTS_MAX
    for subscription, begin in ((slow, 2), (stopped, 1)):
        seen = []
        while (event := subscription.get(timeout_s=0)) is not None:
            seen.append(event)
        assert [event.seq for event in seen if event.seq] == list(range(begin, last + 1))
        deltas = [event.body.text for event in seen if not event.seq]
        assert deltas == [f"{n // 20}.{n % 20}" for n in range(20 * spoken)][-LIVE_EVENTS_MAX:]
