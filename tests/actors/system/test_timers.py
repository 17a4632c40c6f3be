"""Timers on the hand-moved clock and on the real one."""

from __future__ import annotations

import threading
import time

import pytest

from kit_system import Do, Gate, Probe, boom, until
from lastword.actors.core.errors import ActorError
from lastword.actors.system import timers as timers_module
from lastword.actors.system.clock import ManualClock
from lastword.actors.system.supervision import Supervision
from lastword.actors.system.system import ActorSystem


def set_timers(ref, *calls):
    """Each call is (delay_s, message, key)."""
    ref.ask(Do(lambda a: [a.after(d, m, k) for d, m, k in calls] and None), timeout_s=5)


def test_timers_fire_in_order_of_their_due_time_then_of_their_setting(system, clock):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a")
    set_timers(ref, (3, "c", None), (1, "a", None), (2, "b1", None), (2, "b2", None))
    clock.advance(0.999)
    assert log == []
    clock.advance(1.001)
    assert log == ["a", "b1", "b2"]
    clock.advance(10)
    assert log == ["a", "b1", "b2", "c"]


def test_a_timer_set_by_a_timers_handler_is_seen_in_the_same_advance(system, clock):
    at: list[float] = []

    class Ticking(Probe):
        def receive(self, message):
            if isinstance(message, Do):
                return super().receive(message)
            at.append(self.clock.monotonic())
            self.after(1.0, "tick", key="tick")
            return None

    ref = system.spawn(Ticking, name="a")
    began = clock.monotonic()
    set_timers(ref, (1, "tick", "tick"))
    clock.advance(5)
    assert [t - began for t in at] == [1, 2, 3, 4, 5]


def test_the_same_key_replaces(system, clock):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a")
    set_timers(ref, (1, "old", "k"), (2, "new", "k"))
    clock.advance(5)
    assert log == ["new"]


def test_a_cancelled_timer_cannot_arrive_even_when_already_queued(system, clock):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a")
    set_timers(ref, (1, "stale", "k"))
    gate = Gate()
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(lambda a: a.log.append(a.cancel_timer("k"))))
    clock.advance(2, settle_s=0.01)
    assert ref._cell.mailbox.waiting() == 2
    gate.open()
    assert system.settle(5)
    assert log == [True]
    assert ref.ask(Do(lambda a: a.cancel_timer("k")), timeout_s=5) is False


def test_a_replaced_timer_cannot_arrive_even_when_already_queued(system, clock):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a")
    set_timers(ref, (1, "stale", "k"))
    gate = Gate()
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(lambda a: a.after(1, "fresh", "k")))
    clock.advance(2, settle_s=0.01)
    gate.open()
    assert system.settle(5)
    assert log == []
    clock.advance(1)
    assert log == ["fresh"]


@pytest.mark.parametrize("end", ["stop", "boom"])
def test_timers_end_with_their_actor(system, clock, end):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a")
    set_timers(ref, (1, "never", None), (2, "never", "k"))
    ref.stop() if end == "stop" else ref.tell(Do(boom))
    until(lambda: system.find("a") is None)
    assert system.timers.live() == 0
    clock.advance(5)
    assert log == []


def test_timers_of_one_incarnation_do_not_reach_the_next(system, clock):
    log: list[object] = []
    policy = Supervision(restart="restart")
    ref = system.spawn(Probe, log, name="a", supervision=policy)
    set_timers(ref, (1, "stale", "queued"), (50, "stale", "set"))
    gate = Gate()
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(boom))
    clock.advance(2, settle_s=0.01)
    gate.open()
    assert ref.ask("up", timeout_s=5) == "up"
    clock.advance(100)
    assert log == ["up"]


def test_a_timer_is_not_refused_by_a_full_mailbox(system, clock):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a", mailbox_max=1)
    set_timers(ref, (1, "due", None))
    gate = Gate()
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell("fills it")
    clock.advance(1, settle_s=0.01)
    gate.open()
    until(lambda: log == ["fills it", "due"])


def test_the_number_of_timers_is_bounded(system, monkeypatch):
    monkeypatch.setattr(timers_module, "TIMERS_MAX", 3)
    ref = system.spawn(Probe, name="a")
    with pytest.raises(ActorError) as caught:
        set_timers(ref, *[(1, n, None) for n in range(4)])
    assert caught.value.kind == "timers_full"


def test_cancelled_timers_do_not_pile_up_in_the_heap(system):
    ref = system.spawn(Probe, name="a")
    set_timers(ref, *[(1000 + n, n, "k") for n in range(5000)])
    assert system.timers.live() == 1
    assert len(system.timers._heap) <= 2 * timers_module.SWEEP_MIN


def test_a_manual_clock_needs_no_thread_and_does_not_go_back(system, clock):
    ref = system.spawn(Probe, name="a")
    set_timers(ref, (1, "x", None))
    assert not [t for t in threading.enumerate() if t.name == f"{system.name}-timers"]
    wall = clock.wall()
    clock.advance(2.5)
    assert clock.wall() == wall + 2.5
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_one_manual_clock_drives_several_systems_in_order(dispatcher):
    clock = ManualClock()
    log: list[object] = []
    with (
        ActorSystem("c1", clock=clock, dispatcher=dispatcher) as one,
        ActorSystem("c2", clock=clock, dispatcher=dispatcher) as two,
    ):
        set_timers(one.spawn(Probe, log, name="a"), (1, "one@1", None), (3, "one@3", None))
        set_timers(two.spawn(Probe, log, name="a"), (2, "two@2", None))
        clock.advance(5)
        assert log == ["one@1", "two@2", "one@3"]


def test_on_the_real_clock_one_thread_fires_all_and_an_earlier_one_overtakes(dispatcher):
    with ActorSystem("real", dispatcher=dispatcher) as system:
        log: list[object] = []
        ref = system.spawn(Probe, log, name="a")
        began = time.monotonic()
        set_timers(ref, (30, "late", None), (0.06, "b", None))
        set_timers(ref, (0.02, "a", None), (0, "now", None))
        until(lambda: log == ["now", "a", "b"])
        assert time.monotonic() - began >= 0.06
        assert len([t for t in threading.enumerate() if t.name == "real-timers"]) == 1
        report = system.shutdown()
        assert report.timers_cancelled == 1
        assert not [t for t in threading.enumerate() if t.name.startswith("real")]
