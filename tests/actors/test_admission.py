"""The moment between a turn's completion on record and the session's own notice of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lastword.actors.admission import Admission
from lastword.actors.core.adapter import TypedText
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.session import SessionCore

T1, T2 = TurnId("t_1"), TurnId("t_2")


def admission(core: SessionCore, *settled: TurnId) -> Admission:
    reader = SimpleNamespace(completion=lambda turn_id: "done" if turn_id in settled else None)
    return Admission(cast("Any", SimpleNamespace(core=core, deps=SimpleNamespace(reader=reader))))


def core_with(*messages: tuple[str, TurnId | None]) -> SessionCore:
    core = SessionCore(lambda *_: False, lambda: T2, "native")
    for name, turn_id in messages:
        core.accept(MessageId(name), TypedText(text=name, paste=b"", rewritten=name), turn_id)
    return core


@pytest.mark.contract("C14")
def test_c14_a_turn_that_ended_before_it_was_bound_is_over_for_who_has_heard_its_completion() -> None:
    core = core_with(("m_1", T1))
    assert admission(core, T1)._settled_on_record()
    assert not admission(core)._settled_on_record()


@pytest.mark.contract("C14")
def test_c14_a_message_that_waits_behind_it_keeps_the_session_busy() -> None:
    assert not admission(core_with(("m_1", T1), ("m_2", None)), T1)._settled_on_record()
