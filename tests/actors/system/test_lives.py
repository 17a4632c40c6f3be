"""Death watch, restart and quarantine, families, collection: on both dispatchers."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref

import pytest

from kit_system import Boom, Do, Gate, Probe, boom, until
from lastword.actors.core.errors import ActorError
from lastword.actors.system.supervision import ChildFailed, Supervision, Terminated
from lastword.actors.system.system import ActorSystem

RESTART = Supervision(restart="restart", max_restarts=2, within_s=10.0)


def watching(system, target, log, *, times=1, name="watcher"):
    watcher = system.spawn(Probe, log, name=name)
    watcher.ask(Do(lambda a: [a.watch(target) for _ in range(times)] and None), timeout_s=5)
    return watcher


# death watch


@pytest.mark.parametrize(("end", "reason"), [("stop", "stopped"), ("boom", "failed")])
def test_a_watcher_is_told_exactly_once(system, end, reason):
    log: list[object] = []
    target = system.spawn(Probe, name="target")
    watcher = watching(system, target, log, times=3)
    target.stop() if end == "stop" else target.tell(Do(boom))
    until(lambda: log)
    assert system.settle(5)
    target.stop()
    watcher.ask(Do(lambda a: None), timeout_s=5)
    assert log == [Terminated(ref=target, reason=reason)]


@pytest.mark.parametrize(("end", "reason"), [("stop", "stopped"), ("boom", "failed")])
def test_a_watcher_of_the_already_dead_is_told_at_once(system, end, reason):
    log: list[object] = []
    target = system.spawn(Probe, name="target")
    target.stop() if end == "stop" else target.tell(Do(boom))
    until(lambda: system.find("target") is None)
    watching(system, target, log)
    until(lambda: log == [Terminated(ref=target, reason=reason)])


def test_terminated_comes_after_all_that_the_dead_one_had_told(system):
    log: list[object] = []
    watcher = system.spawn(Probe, log, name="watcher")
    target = system.spawn(Probe, name="target")
    watcher.ask(Do(lambda a: a.watch(target)), timeout_s=5)
    target.tell(Do(lambda a: ([watcher.tell(n) for n in range(100)], a.stop())))
    until(lambda: len(log) == 101)
    assert log == [*range(100), Terminated(ref=target, reason="stopped")]


def test_terminated_is_not_refused_by_a_full_mailbox(system):
    log: list[object] = []
    target = system.spawn(Probe, name="target")
    watcher = system.spawn(Probe, log, name="watcher", mailbox_max=1)
    watcher.ask(Do(lambda a: a.watch(target)), timeout_s=5)
    gate = Gate()
    watcher.tell(gate.hold())
    gate.entered.wait(5)
    watcher.tell("fills it")
    target.stop()
    until(lambda: system.find("target") is None)
    gate.open()
    until(lambda: log == ["fills it", Terminated(ref=target, reason="stopped")])


def test_an_unwatched_death_is_not_told(system):
    log: list[object] = []
    target = system.spawn(Probe, name="target")
    watcher = watching(system, target, log)
    watcher.ask(Do(lambda a: a.unwatch(target)), timeout_s=5)
    target.stop()
    assert system.settle(5)
    assert log == []


def test_watching_while_it_dies_never_gives_zero_or_two(system):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        logs = []
        for n in range(60):
            log: list[object] = []
            target = system.spawn(Probe, name=f"target{n}")
            watcher = system.spawn(Probe, log, name=f"watcher{n}")
            watcher.tell(Do(lambda a, t=target: a.watch(t)))
            target.stop()
            logs.append(log)
        until(lambda: all(logs))
        assert system.settle(5)
    finally:
        sys.setswitchinterval(interval)
    assert {len(log) for log in logs} == {1}


# restart and quarantine


def test_a_restarted_actor_is_new_under_the_same_ref_and_keeps_its_mail(system):
    made: list[Probe] = []
    seen: list[tuple[int, object]] = []

    class Phoenix(Probe):
        def __init__(self, word, *, more):
            super().__init__()
            made.append((word, more))

        def receive(self, message):
            if isinstance(message, Do):
                return super().receive(message)
            seen.append((self.incarnation, message))
            return None

    told: list[object] = []
    parent = system.spawn(Probe, told, name="parent")
    ref = system.spawn(Phoenix, "w", more=1, name="p", parent=parent, supervision=RESTART)
    gate = Gate()
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell("before")
    ref.tell(Do(boom))
    ref.tell("after")
    gate.open()
    until(lambda: seen == [(1, "before"), (2, "after")])
    assert made == [("w", 1), ("w", 1)]
    failed = until(lambda: told and told[0])
    assert (failed.ref, failed.epoch, failed.restarted, failed.quarantined) == (ref, 1, True, False)
    assert ref.is_alive()
    assert system.find("p") == ref
    assert system.dead_letters.counts() == {"failed": 1}


def test_failing_too_often_means_quarantine_told_once(system, clock):
    told: list[ChildFailed] = []
    log: list[object] = []
    parent = system.spawn(Probe, told, name="parent")
    ref = system.spawn(Probe, name="p", parent=parent, supervision=RESTART)
    watching(system, ref, log)
    for _ in range(3):
        ref.tell(Do(boom))
    until(lambda: len(told) == 3)
    assert [(f.epoch, f.restarted, f.quarantined) for f in told] == [
        (1, True, False),
        (2, True, False),
        (3, False, True),
    ]
    assert not ref.is_alive()
    until(lambda: log == [Terminated(ref=ref, reason="failed")])
    clock.advance(100)
    assert len(told) == 3


def test_restarts_long_enough_apart_do_not_add_up(system, clock):
    told: list[ChildFailed] = []
    parent = system.spawn(Probe, told, name="parent")
    ref = system.spawn(Probe, name="p", parent=parent, supervision=RESTART)
    for n in range(6):
        ref.tell(Do(boom))
        until(lambda n=n: len(told) == n + 1)
        clock.advance(RESTART.within_s)
    assert ref.is_alive()
    assert [f.quarantined for f in told] == [False] * 6


def test_an_init_that_keeps_failing_on_restart_ends_in_quarantine(system):
    born: list[int] = []

    class Once(Probe):
        def __init__(self):
            super().__init__()
            born.append(1)
            if len(born) > 1:
                raise Boom

    told: list[ChildFailed] = []
    parent = system.spawn(Probe, told, name="parent")
    ref = system.spawn(Once, name="p", parent=parent, supervision=RESTART)
    gate = Gate()
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(boom))
    ref.tell("queued")
    gate.open()
    until(lambda: len(told) == 3)
    assert [(f.message_type, f.quarantined) for f in told] == [
        ("Do", False),
        ("__init__", False),
        ("__init__", True),
    ]
    until(lambda: system.dead_letters.counts() == {"failed": 1, "behind_failure": 1})
    with pytest.raises(ActorError):
        ref.ask("x", timeout_s=5)


def test_a_restart_waits_for_the_old_children_so_that_names_and_writers_do_not_overlap(system):
    order: list[str] = []

    class Child(Probe):
        def stopped(self):
            order.append("old child ended")

    class Parent(Probe):
        def started(self):
            order.append("parent started")
            self.spawn(Child, name="child")

    ref = system.spawn(Parent, name="parent", supervision=RESTART)
    ref.ask("sync", timeout_s=5)
    gate = Gate()
    system.find("child").tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(boom))
    until(lambda: ref._cell.phase.name != "RUNNING")
    assert order == ["parent started"]
    gate.open()
    assert ref.ask("up again", timeout_s=5) == "up again"
    assert order == ["parent started", "old child ended", "parent started"]


def test_a_stuck_child_holds_up_its_parents_end_for_a_named_bound_only(system, clock):
    log: list[object] = []
    gate = Gate()
    parent = system.spawn(Probe, name="parent")
    child = system.spawn(Probe, name="child", parent=parent, dispatcher="pinned")
    watching(system, child, log)
    child.tell(gate.hold())
    gate.entered.wait(5)
    parent.stop()
    until(lambda: parent._cell.phase.name == "ENDING")
    assert not parent.is_alive()
    clock.advance(5.0, settle_s=0.01)
    until(lambda: system.find("parent") is None)
    until(lambda: log == [Terminated(ref=child, reason="killed")])
    gate.open()


def test_an_ended_parent_ends_its_children_first_and_takes_no_new_ones(system):
    order: list[str] = []

    class Ending(Probe):
        def stopped(self):
            order.append(self.ref.name)

    top = system.spawn(Ending, name="top")
    mid = system.spawn(Ending, name="mid", parent=top)
    system.spawn(Ending, name="leaf", parent=mid)
    top.stop()
    until(lambda: order == ["leaf", "mid", "top"])
    until(lambda: system.refs() == [])
    with pytest.raises(ActorError) as caught:
        system.spawn(Probe, name="late", parent=top)
    assert caught.value.kind == "actor_dead"


def test_a_stopped_hook_that_raises_is_a_failure_told_to_the_parent(system):
    class Messy(Probe):
        def stopped(self):
            raise Boom

    told: list[ChildFailed] = []
    parent = system.spawn(Probe, told, name="parent")
    system.spawn(Messy, name="m", parent=parent).stop()
    assert until(lambda: told and told[0]).message_type == "stopped"
    assert system.find("m") is None


# collection


def test_a_stopped_actor_is_collected_though_its_ref_and_its_letters_are_held(system):
    ref = system.spawn(Probe, name="a", supervision=RESTART)
    actor = weakref.ref(ref._cell.actor)
    ref.ask(Do(lambda a: a.after(1000, "never", key="k")), timeout_s=5)
    ref.tell("x")
    gc.collect()
    assert actor() is not None
    ref.stop()
    until(lambda: gc.collect() is not None and actor() is None)
    ref.tell("dead")
    assert actor() is None


def test_a_failed_and_a_restarted_incarnation_are_collected(system):
    ref = system.spawn(Probe, name="a", supervision=RESTART)
    first = weakref.ref(ref._cell.actor)
    ref.tell(Do(boom))
    until(lambda: gc.collect() is not None and first() is None)
    assert ref.ask("x", timeout_s=5) == "x"


def test_an_idle_actor_keeps_no_message_alive(system):
    class Big:
        pass

    class Forgetful(Probe):
        def receive(self, message):
            return None

    ref = system.spawn(Forgetful, name="a")
    big = Big()
    alive = weakref.ref(big)
    ref.tell(big)
    del big
    until(lambda: gc.collect() is not None and alive() is None)


# ask against stop


@pytest.mark.parametrize("end", ["stop", "boom", "exit"])
def test_no_ask_hangs_on_an_actor_that_ends(dispatcher, end):
    """Bounded at about half a second per case; each ask must end long before its own timeout."""

    def leave(_actor):
        raise SystemExit

    endings = {
        "stop": lambda r: r.stop(),
        "boom": lambda r: r.tell(Do(boom)),
        "exit": lambda r: r.tell(Do(leave)),
    }
    outcomes = {"answer": 0, "actor_dead": 0}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ActorSystem("race", dispatcher=dispatcher) as system:
            deadline = time.monotonic() + 0.5
            rounds = 0
            while time.monotonic() < deadline:
                rounds += 1
                ref = system.spawn(Probe, name=f"a{rounds}")

                def ask(ref=ref):
                    while True:  # until the end; the outer joins bound it
                        try:
                            ref.ask(1, timeout_s=5)
                            outcomes["answer"] += 1
                        except ActorError as error:
                            outcomes[error.kind] += 1  # a timeout is a KeyError here
                            return

                askers = [threading.Thread(target=ask) for _ in range(2)]
                for asker in askers:
                    asker.start()
                endings[end](ref)
                for asker in askers:
                    asker.join(10)
                    assert not asker.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert outcomes["actor_dead"] == 2 * rounds


def test_every_message_is_handled_or_a_dead_letter(dispatcher):
    """Tells racing a stop: none vanish."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ActorSystem("count", dispatcher=dispatcher) as system:
            log: list[int] = []
            sent = 0
            for n in range(40):
                ref = system.spawn(Probe, log, name=f"a{n}")
                threads = [threading.Thread(target=lambda r=ref: [r.tell(i) for i in range(30)]) for _ in range(2)]
                for thread in threads:
                    thread.start()
                ref.stop()
                for thread in threads:
                    thread.join(5)
                sent += 60
            assert system.settle(5)
            assert len(log) + sum(system.dead_letters.counts().values()) == sent
    finally:
        sys.setswitchinterval(interval)
