"""The typing machine against a pane with bad manners: nothing twice, nothing mixed, nothing into a dialog."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pane_model import Manners, PaneModel

TEXTS = ("first", "second", "third", "fourth")
EXAMPLES = int(os.environ.get("LASTWORD_EXAMPLES", "400"))
END_S = 400.0
"""By then, whatever happens, every text has an end."""

moments = st.sampled_from([0.0, 0.001, 0.004, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 3.5, 8.0])
lengths = st.sampled_from([0.01, 0.1, 0.5, 2.0, 5.0, 14.0])
spans = st.lists(st.tuples(moments, lengths), max_size=2).map(tuple)


@st.composite
def manners(draw: st.DrawFn) -> Manners:
    return Manners(
        starts_after=draw(st.sampled_from([0.0, 0.3, 2.0])),
        swallowed_enters=draw(st.integers(0, 3)),
        lost_pastes=draw(st.integers(0, 4)),
        look_ages=tuple(draw(st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.4]), min_size=1, max_size=4))),
        latencies=tuple(draw(st.lists(st.sampled_from([0.001, 0.01, 0.1, 0.4]), min_size=1, max_size=4))),
        landing=tuple(draw(st.lists(st.sampled_from([0.0, 0.05, 0.5, 1.5]), min_size=1, max_size=3))),
        proof_after=draw(st.sampled_from([0.0, 0.01, 0.5, 4.0])),
        busy_for=draw(st.sampled_from([0.05, 1.0, 6.0])),
        puts_back=draw(st.booleans()),
        answers_dialogs=draw(st.booleans()),
        dialogs=draw(spans),
        drafts=draw(st.lists(st.tuples(moments, lengths, st.booleans()), max_size=2).map(tuple)),
        copy_modes=draw(spans),
    )


CALLS = ("withdraw", "interrupt", "nudge", "dialog", "draft")
calls = st.lists(
    st.tuples(st.integers(1, 60), st.sampled_from(CALLS), st.integers(0, len(TEXTS) - 1), lengths), max_size=5
)


def call(pane: PaneModel, what: str, number: int, length: float) -> None:
    match what:
        case "withdraw":
            pane.withdraw(TEXTS[number])
        case "interrupt":
            pane.interrupt(f"t{number}")
        case "nudge":
            pane.do(pane.core.nudge())
        case "dialog":
            pane.open_dialog(f"sudden {number}", length)
        case "draft":
            pane.begin_draft(length, takes_all=bool(number % 2))


@pytest.mark.contract("C24")
@pytest.mark.contract("C25")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    behaviour=manners(),
    deliveries=st.lists(moments, min_size=1, max_size=4),
    called=calls,
)
def test_c24_whatever_the_pane_does_each_text_is_submitted_once_or_proved_not_to_be(
    behaviour: Manners, deliveries: list[float], called: list[tuple[int, str, int, float]]
) -> None:
    pane = PaneModel(behaviour)
    pane.at(0.0, pane.open)
    for text, when in zip(TEXTS, sorted(deliveries), strict=False):
        pane.at(when, lambda text=text: pane.deliver(text))  # type: ignore[misc]
    for step, what, number, length in called:
        pane.before_step.setdefault(step, []).append(
            lambda what=what, number=number, length=length: call(pane, what, number, length)  # type: ignore[misc]
        )
    pane.run(END_S)
    pane.check()
