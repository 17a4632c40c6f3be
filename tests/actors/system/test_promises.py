"""The situations of test_pykka_defects.py, and more, on lastword's actors: on both dispatchers."""

from __future__ import annotations

import sys
import threading

import pykka
import pytest

from kit_system import Boom, Do, Gate, Probe, boom, until
from lastword.actors.core.errors import ActorError, UsageError
from lastword.actors.system.envelope import Reply
from lastword.actors.system.supervision import ChildFailed
from lastword.actors.system.system import ActorSystem


def test_a_raising_tell_is_told_to_the_parent(system):
    log: list[object] = []
    parent = system.spawn(Probe, log, name="parent")
    child = system.spawn(Probe, name="child", parent=parent)
    child.tell(Do(boom))
    failed = until(lambda: log and log[0])
    assert isinstance(failed, ChildFailed)
    assert (failed.ref, failed.epoch, type(failed.error), failed.message_type) == (child, 1, Boom, "Do")
    assert not failed.restarted
    assert not failed.quarantined
    assert not child.is_alive()
    assert system.dead_letters.counts() == {"failed": 1}


def test_a_failure_without_a_parent_is_noted(system):
    system.spawn(Probe, name="lone").tell(Do(boom))
    note = until(system.failures)[0]
    assert (note.name, note.error_type, note.message_type) == ("lone", "Boom", "Do")


def test_the_child_failed_hook_takes_precedence_over_receive(system):
    hooked: list[object] = []

    class Parent(Probe):
        def child_failed(self, failed):
            hooked.append(failed.ref.name)

    log: list[object] = []
    parent = system.spawn(Parent, log, name="parent")
    system.spawn(Probe, name="child", parent=parent).tell(Do(boom))
    until(lambda: hooked == ["child"])
    assert log == []


def test_the_name_is_free_when_child_failed_arrives(system):
    class Parent(Probe):
        def child_failed(self, failed):
            self.log.append(self.spawn(Probe, name=failed.ref.name).is_alive())

    log: list[object] = []
    parent = system.spawn(Parent, log, name="parent")
    system.spawn(Probe, name="child", parent=parent).tell(Do(boom))
    until(lambda: log == [True])


def test_tells_behind_a_stop_become_dead_letters_with_their_reason(system):
    log: list[object] = []
    gate = Gate()
    ref = system.spawn(Probe, log, name="a")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell("one")
    ref.stop()
    ref.tell("two")
    gate.open()
    until(lambda: not ref.is_alive())
    ref.tell("three")
    until(lambda: system.dead_letters.counts() == {"stopped": 2, "dead": 1})
    assert [(d.reason, d.recipient, d.message_type) for d in system.dead_letters.recent()] == [
        ("stopped", "a", "str"),
        ("stopped", "a", "str"),
        ("dead", "a", "str"),
    ]
    assert log == []


def test_messages_behind_a_failure_become_dead_letters(system):
    gate = Gate()
    ref = system.spawn(Probe, name="a")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(boom))
    ref.tell("behind")
    gate.open()
    until(lambda: system.dead_letters.counts() == {"failed": 1, "behind_failure": 1})


def test_a_stop_without_control_waits_for_what_is_queued(system):
    log: list[object] = []
    gate = Gate()
    ref = system.spawn(Probe, log, name="a")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell("one")
    ref.stop(control=False)
    ref.stop(control=False)
    ref.tell("behind")
    gate.open()
    until(lambda: not ref.is_alive())
    assert log == ["one"]
    until(lambda: system.dead_letters.counts() == {"stopped": 1})


def test_an_ask_queued_behind_a_stop_gets_actor_dead(system):
    gate = Gate()
    ref = system.spawn(Probe, name="a")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    errors: list[ActorError] = []

    def ask():
        with pytest.raises(ActorError) as caught:
            ref.ask("q", timeout_s=5)
        errors.append(caught.value)

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: ref._cell.mailbox.waiting() == 1)
    ref.stop()
    gate.open()
    asker.join(5)
    assert [e.kind for e in errors] == ["actor_dead"]
    with pytest.raises(ActorError) as caught:
        ref.ask("q", timeout_s=5)
    assert caught.value.kind == "actor_dead"


def test_an_ask_gets_the_answer_or_what_the_handler_raised_and_the_actor_lives(system):
    ref = system.spawn(Probe, name="a")
    assert ref.ask("hello", timeout_s=5) == "hello"
    with pytest.raises(Boom):
        ref.ask(Do(boom), timeout_s=5)
    assert ref.ask("still here", timeout_s=5) == "still here"


def test_an_ask_ends_at_its_timeout(system):
    gate = Gate()
    ref = system.spawn(Probe, name="a")
    ref.tell(gate.hold())
    with pytest.raises(ActorError) as caught:
        ref.ask("q", timeout_s=0.02)
    assert caught.value.kind == "actor_timeout"
    gate.open()


@pytest.mark.parametrize("leave", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_base_exception_ends_one_actor_only(system, leave):
    def go(_actor):
        raise leave

    class Host(pykka.ThreadingActor):
        use_daemon_thread = True

        def on_receive(self, message):
            return message

    log: list[object] = []
    hosts_own = Host.start()
    parent = system.spawn(Probe, log, name="parent")
    bystander = system.spawn(Probe, name="bystander")
    culprit = system.spawn(Probe, name="culprit", parent=parent)
    culprit.tell(Do(go))
    failed = until(lambda: log and log[0])
    assert type(failed.error) is leave
    asked = system.spawn(Probe, name="asked", parent=parent)
    with pytest.raises(ActorError) as caught:
        asked.ask(Do(go), timeout_s=5)
    assert caught.value.kind == "actor_dead"
    assert bystander.ask("ok", timeout_s=5) == "ok"
    assert hosts_own.ask("ok", timeout=5) == "ok"
    hosts_own.stop()


def test_started_raising_is_told_and_leaves_no_silent_dead_ref(system):
    class Stillborn(Probe):
        def started(self):
            raise Boom

    log: list[object] = []
    parent = system.spawn(Probe, log, name="parent")
    ref = system.spawn(Stillborn, name="child", parent=parent)
    ref.try_tell("early")
    failed = until(lambda: log and log[0])
    assert (failed.message_type, type(failed.error)) == ("started", Boom)
    assert not ref.is_alive()
    until(lambda: sum(system.dead_letters.counts().values()) == 1)


def test_init_raising_comes_out_of_spawn_and_frees_the_name(system):
    class Unmade(Probe):
        def __init__(self):
            super().__init__()
            raise Boom

    with pytest.raises(Boom):
        system.spawn(Unmade, name="a")
    assert system.find("a") is None
    system.spawn(Probe, name="a")


def test_a_full_mailbox_refuses_with_a_typed_error(system):
    gate = Gate()
    ref = system.spawn(Probe, name="a", mailbox_max=3)
    ref.tell(gate.hold())
    gate.entered.wait(5)
    for n in range(3):
        ref.tell(n)
    with pytest.raises(ActorError) as caught:
        ref.tell("over")
    assert caught.value.kind == "mailbox_full"
    assert ref.try_tell("over") is False
    with pytest.raises(ActorError) as caught:
        ref.ask("over", timeout_s=5)
    assert caught.value.kind == "mailbox_full"
    ref.tell("control has room of its own", control=True)
    for n in range(2):
        ref.tell(n, control=True)
    with pytest.raises(ActorError):
        ref.tell("over", control=True)
    gate.open()
    assert until(lambda: ref.try_tell("room again"))


def test_messages_of_each_sender_keep_their_order_and_are_handled_one_at_a_time(system):
    each, inside, inside_max = 3000, 0, 0

    class Counting(Probe):
        def receive(self, message):
            nonlocal inside, inside_max
            inside += 1
            inside_max = max(inside, inside_max)
            self.log.append(message)
            inside -= 1

    log: list[tuple[int, int]] = []
    ref = system.spawn(Counting, log, name="a")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=lambda s=s: [ref.tell((s, n)) for n in range(each)]) for s in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        until(lambda: len(log) == 4 * each, within_s=20)
    finally:
        sys.setswitchinterval(interval)
    for s in range(4):
        assert [n for sender, n in log if sender == s] == list(range(each))
    assert inside_max == 1


def test_control_messages_pass_queued_ones_and_keep_their_own_order(system):
    log: list[object] = []
    gate = Gate()
    ref = system.spawn(Probe, log, name="a")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    for n in range(3):
        ref.tell(n)
    ref.tell("c1", control=True)
    ref.tell("c2", control=True)
    gate.open()
    until(lambda: len(log) == 5)
    assert log == ["c1", "c2", 0, 1, 2]


def test_a_flooded_actor_delays_another_by_a_batch_at_most():
    with ActorSystem("fair", workers=1, batch=10) as system:
        log: list[str] = []
        gate = Gate()
        flooded = system.spawn(Probe, log, name="flooded")
        quiet = system.spawn(Probe, log, name="quiet")
        flooded.tell(gate.hold())
        gate.entered.wait(5)
        for _ in range(1000):
            flooded.tell("f")
        quiet.tell("q")
        gate.open()
        until(lambda: len(log) == 1001)
        assert log.index("q") <= 20


def test_an_actor_knows_its_ref_parent_sender_and_system(system):
    seen: dict[str, object] = {}

    def look(actor):
        seen.update(ref=actor.ref, parent=actor.parent, sender=actor.sender, system=actor.system, n=actor.incarnation)

    parent = system.spawn(Probe, name="parent")
    child = parent.ask(Do(lambda a: a.spawn(Probe, name="child")), timeout_s=5)
    parent.tell(Do(lambda a: child.tell(Do(look))))
    until(lambda: len(seen) == 5)
    assert seen == {"ref": child, "parent": parent, "sender": parent, "system": system, "n": 1}
    assert child == system.find("child")
    assert {child: 1}[system.find("child")] == 1
    assert child != parent
    assert system.refs() == [parent, child]


def test_more_waiting_lets_a_writer_commit_once_for_many(system):
    commits: list[int] = []

    class Writer(Probe):
        def receive(self, message):
            if isinstance(message, Do):
                return super().receive(message)
            self.log.append(message)
            if not self.more_waiting():
                commits.append(len(self.log))
            return None

    gate = Gate()
    ref = system.spawn(Writer, name="w")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    for n in range(20):
        ref.tell(n)
    gate.open()
    until(lambda: commits)
    assert commits == [20]


def test_stopped_runs_once_at_a_stop_and_at_a_failure(system):
    ends: list[str] = []

    class Ending(Probe):
        def stopped(self):
            ends.append(self.ref.name)

    system.spawn(Ending, name="s").stop()
    until(lambda: ends == ["s"])
    system.spawn(Ending, name="f").tell(Do(boom))
    until(lambda: ends == ["s", "f"])
    system.spawn(Ending, name="self").tell(Do(lambda a: a.stop()))
    until(lambda: ends == ["s", "f", "self"])


def test_a_stop_of_oneself_comes_after_the_message_in_hand_and_before_the_next(system):
    log: list[object] = []
    gate = Gate()
    ref = system.spawn(Probe, log, name="a")
    ref.tell(gate.hold())
    gate.entered.wait(5)
    ref.tell(Do(lambda a: (a.stop(), a.log.append("in hand"))))
    ref.tell("next")
    gate.open()
    until(lambda: system.dead_letters.counts() == {"stopped": 1})
    assert log == ["in hand"]


def test_names_are_unique_among_the_living(system):
    ref = system.spawn(Probe, name="a")
    with pytest.raises(UsageError):
        system.spawn(Probe, name="a")
    ref.stop()
    until(lambda: system.find("a") is None)
    again = system.spawn(Probe, name="a")
    assert again != ref
    assert again.ask("x", timeout_s=5) == "x"


def test_an_actor_is_made_by_spawn_only():
    with pytest.raises(UsageError):
        Probe.start()


def test_nothing_is_listed_in_the_registry_of_pykka(system):
    before = pykka.ActorRegistry.get_all()
    ref = system.spawn(Probe, name="a")
    ref.ask("x", timeout_s=5)
    assert pykka.ActorRegistry.get_all() == before
    pykka.ActorRegistry.stop_all(timeout=2)
    assert ref.ask("x", timeout_s=5) == "x"


def test_a_pykka_ref_of_ours_asks_tells_and_stops(system):
    log: list[object] = []
    ref = system.spawn(Probe, log, name="a")
    pykka_ref = ref.ask(Do(lambda a: a.actor_ref), timeout_s=5)
    assert pykka_ref.ask("x", timeout=5) == "x"
    pykka_ref.tell("y")
    with pytest.raises(Boom):
        pykka_ref.ask(Do(boom), timeout=5)
    with pytest.raises(UsageError):
        pykka_ref.proxy().log.get(timeout=5)
    assert pykka_ref.stop(timeout=5)
    assert log == ["x", "y"]
    assert not ref.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        pykka_ref.ask("x", timeout=5)


def test_two_systems_share_nothing(dispatcher):
    with ActorSystem("one", dispatcher=dispatcher) as one, ActorSystem("two", dispatcher=dispatcher) as two:
        first = one.spawn(Probe, name="same")
        log: list[object] = []
        second = two.spawn(Probe, log, name="same")
        assert first != second
        with pytest.raises(UsageError):
            two.spawn(Probe, name="child", parent=first)
        first.tell(Do(lambda _: second.tell("across")))
        until(lambda: log == ["across"])
        one.shutdown()
        assert second.ask("alive", timeout_s=5) == "alive"
        second.tell(Do(lambda _: first.tell("too late")))
        until(lambda: one.dead_letters.counts() == {"dead": 1})
        assert two.dead_letters.counts() == {}


def test_blocking_regions_do_not_starve_the_pool():
    from lastword.actors.system.dispatcher import blocking

    with ActorSystem("spare", workers=1) as system:
        gate = Gate()

        def block(actor):
            with blocking():
                gate._wait(actor)

        slow = [system.spawn(Probe, name=f"slow{n}") for n in range(3)]
        for ref in slow:
            ref.tell(Do(block))
        assert system.spawn(Probe, name="quick").ask("x", timeout_s=5) == "x"
        gate.open()
        for ref in slow:
            ref.ask("x", timeout_s=5)
        until(lambda: len(system._pool._threads) <= 1 or not [r.ask("x", timeout_s=5) for r in slow])


def test_asks_nested_deeper_than_the_pool_do_not_deadlock():
    class Link(Probe):
        def __init__(self, next_link):
            super().__init__()
            self.next_link = next_link

        def receive(self, message):
            return 1 + (self.next_link.ask(message, timeout_s=5) if self.next_link else 0)

    with ActorSystem("deep", workers=1) as system:
        ref = None
        for n in range(12):
            ref = system.spawn(Link, ref, name=f"link{n}")
        assert ref.ask("depth", timeout_s=5) == 12


def test_idle_pooled_actors_have_no_thread_and_a_message_to_each_is_enough():
    with ActorSystem("idle", workers=2) as system:
        refs = [system.spawn(Probe, name=f"a{n}") for n in range(500)]
        before = threading.active_count()
        assert [ref.ask(n, timeout_s=5) for n, ref in enumerate(refs)] == list(range(500))
        assert threading.active_count() == before
        assert len([t for t in threading.enumerate() if t.name.startswith("idle")]) == 2


def test_the_first_settlement_of_an_ask_wins():
    reply = Reply()
    reply.fail(Boom())
    reply.set("too late")
    with pytest.raises(Boom):
        reply.wait(0)
    reply = Reply()
    reply.set("first")
    reply.set("second")
    reply.fail(Boom())
    assert reply.wait(0) == "first"


def test_a_context_is_of_the_handler_only(system):
    """Between messages an actor has no sender and no trace, and a tell from outside has no sender."""
    senders: list[object] = []
    ref = system.spawn(Probe, name="a")
    actor = ref._cell.actor
    ref.ask(Do(lambda a: senders.append((a.sender, bool(a.trace_id)))), timeout_s=5)
    assert system.settle(5)
    assert senders == [(None, True)]
    assert (actor.sender, actor.trace_id) == (None, "")


def test_bad_bounds_are_refused():
    for wrong in ({"workers": 0}, {"batch": 0}, {"mailbox_max": 0}):
        with pytest.raises(UsageError):
            ActorSystem("bad", **wrong)
