"""Sessions never wait for each other: what is stuck, slow or flooded in one holds no completion of another (C05, C13)."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from host_kit import WAIT_S, Rig, away, completed, completions, kinds
from kit_system import until
from lastword import events
from lastword.runtime._journal import SqliteJournal
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import MemoryAdapter

FREE_S = 2.0
"""A completion that nobody holds up comes within this, also on a loaded machine; what is stuck here stays so longer."""


@pytest.fixture(params=["pooled", "pinned"])
def dispatcher(request):
    return request.param


def runs_freely(session, times=10):
    for number in range(times):
        began = time.monotonic()
        assert session.run(f"free {number}").answer == f"echo: free {number}"
        assert time.monotonic() - began < FREE_S


@pytest.mark.contract("C13")
def test_c13_two_sessions_that_complete_at_the_same_instant_both_complete(make, dispatcher):
    """Each session's host waits for the other's completion to show up: a lock between the two would never open."""
    rig = make(manual=True, dispatcher=dispatcher)
    one, two = rig.session(), rig.session()
    for round_number in range(10):
        waiting = [away(session.run, f"{round_number}") for session in (one, two)]
        clis = [rig.running(session) for session in (one, two)]
        barrier = threading.Barrier(2)

        def end(cli, answer, barrier=barrier):
            barrier.wait(WAIT_S)
            cli.finish(answer)

        ends = [away(end, cli, f"{cli.pid}") for cli in clis]
        assert [future.result(WAIT_S).answer for future in waiting] == [f"{cli.pid}" for cli in clis]
        for future in ends:
            future.result(WAIT_S)


@pytest.mark.contract("C13")
def test_c13_a_host_may_drive_b_from_a_subscriber_of_a_and_the_other_way_round(make, dispatcher):
    """A waits for B while B waits for A's event: whoever is told something may use every other session at once."""
    rig = make(dispatcher=dispatcher)
    one, two = rig.session(), rig.session()

    def relay(mine, other, times):
        told = []
        for event in mine.events():
            if isinstance(event.body, events.CompletionReached):
                told.append(event.body.completion.answer)
                assert other.run(f"{len(told)}", queue=True).status == "completed"
                if len(told) == times:
                    return told
        return told

    relays = [away(relay, one, two, 20), away(relay, two, one, 19)]
    one.send("0")
    for future, times in zip(relays, (20, 19), strict=True):
        assert len(future.result(WAIT_S)) == times


class StuckAdapter(MemoryAdapter):
    """Its oracle's handler is stuck on one word, as one of a third party might be."""

    name = "stuck"
    gate = threading.Event()
    entered = threading.Event()

    def matches(self, typed, recorded):
        if recorded == "stick":
            self.entered.set()
            assert self.gate.wait(WAIT_S)
        return super().matches(typed, recorded)


@pytest.mark.contract("C13")
def test_c13_a_stuck_handler_of_one_session_holds_no_other(make, dispatcher):
    StuckAdapter.gate.clear()
    StuckAdapter.entered.clear()
    rig = make(adapters=[StuckAdapter()], dispatcher=dispatcher)
    stuck = rig.runtime.session("stuck")
    free = rig.session()
    waiting = away(stuck.run, "stick")
    assert StuckAdapter.entered.wait(WAIT_S)
    try:
        runs_freely(free)
        assert not waiting.done()
    finally:
        StuckAdapter.gate.set()
    assert waiting.result(WAIT_S).answer == "echo: stick"


@pytest.mark.contract("C05")
@pytest.mark.contract("C31")
def test_c05_a_stuck_enrichment_holds_no_completion_of_its_own_session_nor_of_another(make):
    """What a host does on the events of a session (a title, a cost) is its own affair, on its own thread."""
    rig = make()
    enriched, free = rig.session(), rig.session()
    gate, entered = threading.Event(), threading.Event()

    def enrich():
        for event in enriched.events():
            if isinstance(event.body, events.CompletionReached):
                entered.set()
                assert gate.wait(WAIT_S)
                return event.seq
        return 0

    enrichment = away(enrich)
    enriched.run("first")
    assert entered.wait(WAIT_S)
    runs_freely(enriched)
    runs_freely(free)
    gate.set()
    assert enrichment.result(WAIT_S)


@pytest.mark.contract("C13")
def test_c13_a_slow_disk_sync_is_shared_by_all_not_paid_one_after_the_other(make, monkeypatch):
    """With a sync of 50 ms, 20 sessions at once need a few syncs, not 20 times a few."""
    sync_s = 0.05
    real = SqliteJournal.record

    def slow(self, batches, now):
        time.sleep(sync_s)
        return real(self, batches, now)

    rig = make()
    sessions = [rig.session() for _ in range(20)]
    for session in sessions:
        rig.ready(session)
    monkeypatch.setattr(SqliteJournal, "record", slow)
    began = time.monotonic()
    running = [away(session.run, "at once") for session in sessions]
    for future in running:
        assert future.result(WAIT_S).status == "completed"
    assert time.monotonic() - began < 20 * sync_s, "each session waited for the syncs of the others"


@pytest.mark.contract("C13")
def test_c13_a_disk_that_is_stuck_on_one_commit_holds_no_reader(make, monkeypatch):
    """Snapshots, events on record and completions of the past are there while the writer waits for its disk."""
    rig = make()
    session, other = rig.session(), rig.session()
    done = session.run("before")
    gate, entered = threading.Event(), threading.Event()
    real = SqliteJournal.record

    def stuck(self, batches, now):
        entered.set()
        assert gate.wait(WAIT_S)
        return real(self, batches, now)

    monkeypatch.setattr(SqliteJournal, "record", stuck)
    waiting = away(session.run, "during")
    assert entered.wait(WAIT_S)
    began = time.monotonic()
    assert rig.runtime.completion(done.turn_id) == done
    assert session.snapshot().last_completion == done
    assert other.snapshot().session_id == other.session_id
    assert next(session.events()).seq == 1
    assert time.monotonic() - began < FREE_S
    assert not waiting.done()
    gate.set()
    assert waiting.result(WAIT_S).status == "completed"


@pytest.mark.contract("C13")
def test_c13_a_flooded_pane_of_one_session_holds_no_other(make, dispatcher):
    rig = make(manual=True, dispatcher=dispatcher)
    flooded = rig.session()
    flooded.send("flood")
    cli = rig.running(flooded)
    rig.world.manual = False
    free = rig.session()
    stop = threading.Event()

    def flood():
        number = 0
        while not stop.is_set() and number < 20_000:
            number += 1
            cli.say(f"line {number} " + "x" * 500)
            if number % 50 == 0:
                cli.write_status("busy")
                time.sleep(0.001)
        return number

    flooding = away(flood)
    try:
        until(lambda: len(rig.events(flooded)) > 100, within_s=WAIT_S)
        runs_freely(free)
    finally:
        stop.set()
    said = flooding.result(WAIT_S)
    cli.finish("end of flood")
    assert completed(rig, flooded)[0].answer == "end of flood"
    assert kinds(rig, flooded).count("assistant_message") == said + 1


@pytest.mark.contract("C02")
@pytest.mark.contract("C13")
def test_c02_a_hundred_sessions_of_five_turns_at_once_give_500_completions_with_their_own_answers(make):
    rig = make()
    sessions = [rig.session() for _ in range(100)]
    began = time.monotonic()

    def drive(number, session):
        return [session.run(f"{number}/{turn}") for turn in range(5)]

    running = [away(drive, number, session) for number, session in enumerate(sessions)]
    done = [future.result(60) for future in running]
    for number, own in enumerate(done):
        assert [one.answer for one in own] == [f"echo: {number}/{turn}" for turn in range(5)]
    ids = Counter(one.turn_id for own in done for one in own)
    assert len(ids) == 500
    for session, own in zip(sessions, done, strict=True):
        assert completions(rig, session) == own
        assert [event.seq for event in rig.events(session)] == list(range(1, len(rig.events(session)) + 1))
    assert time.monotonic() - began < 30


@pytest.mark.contract("C13")
def test_c13_a_session_whose_files_cannot_be_read_holds_no_other(tmp_path):
    class HalfBlind(MemoryWorld):
        blind = ""

        def read_from(self, path, *args):
            if path == self.blind:
                from lastword.actors.core.world import Unreadable

                return Unreadable(reason="I/O error")
            return super().read_from(path, *args)

    world = HalfBlind()
    with Rig(tmp_path, world=world) as rig:
        blind, free = rig.session(), rig.session()
        path = rig.ready(blind).path
        world.blind = path
        waiting = away(blind.run, "unseen")
        runs_freely(free)
        assert not waiting.done()
        world.blind = ""
        world.sweep()
        assert waiting.result(WAIT_S).answer == "echo: unseen"
