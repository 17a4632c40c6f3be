"""Admission, order and binding, against a CLI that uses what it is given in its own way."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_model import SessionModel

EXAMPLES = int(os.environ.get("LASTWORD_EXAMPLES", "500"))
ORIGINS = ("", "task_notification", "hook", "local_command", "resubmitted_steer")
OPS = (
    *("send", "deliver", "report", "take", "read", "finish") * 2,
    *("merge", "absorb", "drop", "lose", "prove_lost", "person", "say", "close", "die", "withdraw"),
)


def step(model: SessionModel, op: str, number: int) -> None:
    match op:
        case "send":
            model.send("abc"[number % 3])
        case "merge":
            model.take(2 + number % 2)
        case "person":
            model.person(("by hand", "a")[number % 2], ORIGINS[number % len(ORIGINS)])
        case "read":
            model.read(1 + number)
        case "finish":
            model.finish(number)
        case _:
            getattr(model, op)()


@pytest.mark.contract("C19")
@pytest.mark.contract("C20")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops=st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 9)), max_size=80))
def test_c20_every_message_ends_in_one_turn_or_undelivered_and_every_turn_ends_once(ops: list[tuple[str, int]]) -> None:
    model = SessionModel()
    for op, number in ops:
        step(model, op, number)
    model.settle()
    model.check()
