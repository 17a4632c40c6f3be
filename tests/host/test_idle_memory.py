"""An idle session holds no queue and no lock with a queue of its own: empty, each weighs as much as a screen of text."""

from __future__ import annotations

import gc
import threading
from collections import Counter, deque

from host_kit import Rig

SESSIONS = 20


def held() -> Counter[type]:
    gc.collect()
    return Counter(type(each) for each in gc.get_objects() if isinstance(each, deque | threading.Condition))


def test_an_idle_session_holds_no_deque_and_no_condition_before_its_first_turn_and_after_it(make):
    rig: Rig = make()
    assert rig.session().run("x").status == "completed"
    rig.settle()
    before = held()
    sessions = [rig.session() for _ in range(SESSIONS)]
    rig.settle()
    assert not more_for_each(before)
    for session in sessions:
        assert session.run("x").status == "completed"
    rig.settle()
    assert not more_for_each(before)


def more_for_each(before: Counter[type]) -> dict[str, int]:
    """The kinds of which there is about one more for each session."""
    return {kind.__name__: more for kind, more in (held() - before).items() if more >= SESSIONS // 2}
