"""The ordered end of a system, its deadline and its report."""

from __future__ import annotations

import threading
import time

import pytest

from kit_system import Do, Gate, Probe, lastword_threads, until
from lastword.actors.core.errors import ActorError, UsageError
from lastword.actors.system.clock import ManualClock
from lastword.actors.system.supervision import Terminated
from lastword.actors.system.system import ActorSystem


def test_shutdown_stops_in_reverse_order_of_spawning_and_leaves_no_thread(dispatcher):
    order: list[str] = []

    class Ending(Probe):
        def stopped(self):
            order.append(self.ref.name)

    system = ActorSystem("down", dispatcher=dispatcher)
    top = system.spawn(Ending, name="top")
    system.spawn(Ending, name="other")
    system.spawn(Ending, name="child", parent=top)
    report = system.shutdown(2)
    assert order == ["child", "other", "top"]
    assert report.stopped == ("child", "other", "top")
    assert (report.abandoned, report.dropped, report.timers_cancelled, report.threads_left) == ((), {}, 0, ())
    assert lastword_threads("down") == []
    assert system.shutdown() is report


def test_what_was_queued_is_reported_by_actor_and_asks_are_answered(dispatcher):
    system = ActorSystem("drop", dispatcher=dispatcher, clock=ManualClock())
    gate = Gate()
    ref = system.spawn(Probe, name="busy")
    system.spawn(Probe, name="free")
    ref.ask(Do(lambda a: a.after(10, "x")), timeout_s=5)
    ref.tell(gate.hold())
    gate.entered.wait(5)
    for n in range(3):
        ref.tell(n)
    errors: list[str] = []

    def ask():
        with pytest.raises(ActorError) as caught:
            ref.ask("q", timeout_s=5)
        errors.append(caught.value.kind)

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: ref._cell.mailbox.waiting() == 4)
    reports: list[object] = []
    closer = threading.Thread(target=lambda: reports.append(system.shutdown(5)))
    closer.start()
    until(lambda: ref._cell.mailbox.waiting() == 5)  # the stop is queued too
    gate.open()
    closer.join(5)
    asker.join(5)
    assert reports[0].dropped == {"busy": 4}
    assert reports[0].timers_cancelled == 1
    assert errors == ["actor_dead"]
    assert system.dead_letters.counts() == {"stopped": 3}


def test_a_stuck_actor_is_abandoned_at_its_share_and_the_others_still_stop(dispatcher):
    system = ActorSystem("stuck", dispatcher=dispatcher)
    log: list[object] = []
    gate = Gate()
    first = system.spawn(Probe, name="first")
    stuck = system.spawn(Probe, log, name="stuck")
    first.ask(Do(lambda a: a.watch(stuck)), timeout_s=5)
    stuck.tell(gate.hold())
    gate.entered.wait(5)
    stuck.tell("queued")
    errors: list[str] = []

    def ask():
        with pytest.raises(ActorError) as caught:
            stuck.ask("q", timeout_s=5)
        errors.append(caught.value.kind)

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: stuck._cell.mailbox.waiting() == 2)
    began = time.monotonic()
    report = system.shutdown(0.4)
    assert time.monotonic() - began < 1.0
    assert report.stopped == ("first",)
    assert report.abandoned == ("stuck",)
    assert report.dropped == {"stuck": 2}
    assert len(report.threads_left) == 1
    asker.join(5)
    assert errors == ["actor_dead"]
    assert system.dead_letters.counts() == {"shutdown": 1}
    gate.open()
    until(lambda: lastword_threads("stuck") == [])
    assert log == []


def test_an_asker_whose_handler_is_abandoned_does_not_wait_on(dispatcher):
    system = ActorSystem("half", dispatcher=dispatcher)
    gate = Gate()
    ref = system.spawn(Probe, name="a")
    kinds: list[str] = []

    def ask():
        with pytest.raises(ActorError) as caught:
            ref.ask(gate.hold(), timeout_s=5)
        kinds.append(caught.value.kind)

    asker = threading.Thread(target=ask)
    asker.start()
    gate.entered.wait(5)
    system.shutdown(0.1)
    asker.join(2)
    assert kinds == ["actor_dead"]
    gate.open()
    until(lambda: lastword_threads("half") == [])


def test_an_abandoned_actor_is_terminated_as_killed(dispatcher):
    with ActorSystem("outer") as outer:
        log: list[object] = []
        watcher = outer.spawn(Probe, log, name="watcher")
        system = ActorSystem("inner", dispatcher=dispatcher)
        gate = Gate()
        ref = system.spawn(Probe, name="a")
        watcher.ask(Do(lambda a: a.watch(ref)), timeout_s=5)
        ref.tell(gate.hold())
        gate.entered.wait(5)
        system.shutdown(0.1)
        until(lambda: log == [Terminated(ref=ref, reason="killed")])
        gate.open()
        until(lambda: lastword_threads("inner") == [])


def test_after_shutdown_spawn_is_refused_and_tells_are_dead_letters(system):
    ref = system.spawn(Probe, name="a")
    system.shutdown()
    with pytest.raises(UsageError) as caught:
        system.spawn(Probe, name="b")
    assert caught.value.kind == "runtime_closed"
    ref.tell("late")
    assert system.dead_letters.counts() == {"dead": 1}


def test_an_actor_cannot_shut_its_own_system_down(system):
    ref = system.spawn(Probe, name="a")
    with pytest.raises(UsageError):
        ref.ask(Do(lambda a: a.system.shutdown()), timeout_s=5)


def test_a_pinned_thread_ends_with_its_actor(system):
    ref = system.spawn(Probe, name="p", dispatcher="pinned")
    assert ref.ask(Do(lambda _: threading.current_thread().name), timeout_s=5) == f"{system.name}-p"
    assert ref.ask(Do(lambda _: threading.current_thread().daemon), timeout_s=5)
    ref.stop()
    until(lambda: not [t for t in threading.enumerate() if t.name == f"{system.name}-p"])


def test_an_abandoned_actor_releases_what_it_holds_when_its_handler_comes_back(dispatcher):
    released: list[str] = []

    class Holding(Probe):
        def stopped(self):
            released.append(self.ref.name)

    system = ActorSystem("back", dispatcher=dispatcher)
    gate = Gate()
    system.spawn(Holding, name="a").tell(gate.hold())
    gate.entered.wait(5)
    assert system.shutdown(0.1).abandoned == ("a",)
    assert released == []
    gate.open()
    until(lambda: lastword_threads("back") == [])
    assert released == ["a"]
