"""What plain pykka does, shown on plain pykka. Each test is the reason for one in test_promises.py.

When one of these fails, pykka has changed: read it again, and docs/adr/0002 with it.
"""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
import threading

import pykka
import pytest

from kit_system import until
from lastword.actors.core.errors import UsageError
from lastword.actors.system import pykka_contract


class Plain(pykka.ThreadingActor):
    use_daemon_thread = True

    def __init__(self, log=None):
        super().__init__()
        self.log = log if log is not None else []

    def on_receive(self, message):
        if callable(message):
            return message()
        self.log.append(message)
        return message


@pytest.fixture(autouse=True)
def quiet_pykka():
    logging.getLogger("pykka").setLevel(logging.CRITICAL + 1)
    yield
    pykka.ActorRegistry.stop_all(timeout=2)
    logging.getLogger("pykka").setLevel(logging.NOTSET)


def test_pykka_a_raising_tell_kills_the_actor_and_nobody_is_told():
    ref = Plain.start()
    ref.tell(lambda: 1 / 0)
    until(lambda: not ref.is_alive())
    with pytest.raises(pykka.ActorDeadError):
        ref.tell("next")  # the first that anyone hears of it


def test_pykka_tells_behind_a_stop_vanish():
    log: list[str] = []
    gate, entered = threading.Event(), threading.Event()
    ref = Plain.start(log)
    ref.tell(lambda: (entered.set(), gate.wait(5)))
    entered.wait(5)
    stopped = ref.stop(block=False)
    ref.tell("lost")
    gate.set()
    assert stopped.get(timeout=5)
    assert log == []


def test_pykka_start_may_hand_out_a_dead_ref():
    class Stillborn(Plain):
        def on_start(self):
            raise RuntimeError

    ref = Stillborn.start()  # no exception here
    until(lambda: not ref.is_alive())


def test_pykka_an_ask_that_races_a_stop_hangs():
    """The interleaving made certain: the liveness check passes, then the actor ends and drains, then the put happens."""
    ref = Plain.start()
    is_alive = ref.is_alive

    def alive_then_stopped():
        alive = is_alive()
        ref.is_alive = is_alive
        ref.stop(timeout=5)
        until(lambda: not any(t.name.startswith("Plain-") and t.is_alive() for t in threading.enumerate()))
        return alive

    ref.is_alive = alive_then_stopped
    future = ref.ask("question", block=False)
    with pytest.raises(pykka.Timeout):
        future.get(timeout=0.2)  # without a timeout this waits for ever


def test_pykka_a_base_exception_in_one_actor_stops_all_in_the_process():
    bystander, culprit = Plain.start(), Plain.start()

    def leave():
        raise SystemExit

    culprit.tell(leave)
    until(lambda: not bystander.is_alive())


def test_pykka_an_inbox_takes_without_bound():
    gate = threading.Event()
    ref = Plain.start()
    ref.tell(lambda: gate.wait(5))
    for n in range(20_000):
        ref.tell(n)
    assert ref.actor_inbox.qsize() >= 19_999
    gate.set()


def test_pykka_has_one_thread_an_actor_and_one_registry_a_process():
    before = threading.active_count()
    refs = [Plain.start() for _ in range(5)]
    assert threading.active_count() == before + 5
    assert set(refs) <= set(pykka.ActorRegistry.get_all())


# the detail that the dispatchers lean on


def test_the_pykka_loop_gets_from_the_inbox_outside_of_its_try():
    tree = ast.parse(textwrap.dedent(inspect.getsource(pykka.Actor._actor_loop_running)))
    (loop,) = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    assert ast.unparse(loop.test) == "not self.actor_stopped.is_set()"
    assert ast.unparse(loop.body[0]) == "envelope = self.actor_inbox.get()"
    assert isinstance(loop.body[1], ast.Try)
    assert len(loop.body) == 2


def test_the_check_passes_on_the_pykka_installed():
    pykka_contract._verified.clear()
    pykka_contract.verify_pykka()
    assert pykka_contract._verified.is_set()


def test_the_check_fails_loudly_on_a_loop_with_get_inside_the_try(monkeypatch):
    def changed(self):
        while not self.actor_stopped.is_set():
            try:
                envelope = self.actor_inbox.get()
                self._handle_receive(envelope.message)
            except BaseException:
                self._stop()
                return

    monkeypatch.setattr(pykka.Actor, "_actor_loop_running", changed)
    pykka_contract._verified.clear()
    with pytest.raises(UsageError, match="not the one"):
        pykka_contract.verify_pykka()
