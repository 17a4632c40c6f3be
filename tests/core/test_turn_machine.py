"""Any order, duplicates and loss of messages: never two completions, never none once a terminal fact was readable."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lastword.actors.core import turn as core
from lastword.actors.core.facts import RecordExhausted, TurnClosed
from lastword.actors.core.outcome import Completion
from lastword.actors.core.turn import Now, TurnState, step
from lastword.actors.core.turn_bounds import INTERRUPT_GRACE_S, INTERRUPTS_MAX
from turn_samples import DONE, EVENTS, T0, a_turn

HARMLESS = [event for event in EVENTS if not isinstance(event, TurnClosed | RecordExhausted | core.TimerFired)]
TERMINAL = [event for event in EVENTS if isinstance(event, TurnClosed)]


class TurnLife(RuleBasedStateMachine):
    """The turn, its timers and a journal that inserts once or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = a_turn()
        self.clock = 0.0
        self.timers: dict[str, float] = {}
        self.offered: list[Completion] = []
        self.stored: Completion | None = None
        self.told: list[Completion] = []
        self.terminal_given = False

    def give(self, event: core.TurnEvent) -> None:
        was = self.turn.state
        self.turn, effects = step(self.turn, event, Now(mono_s=self.clock, wall_s=T0 + self.clock))
        if isinstance(event, TurnClosed) and was is not TurnState.SETTLED:
            self.terminal_given = True
        for effect in effects:
            match effect:
                case core.RecordCompletion():
                    self.offered.append(effect.completion)
                case core.SetTimer():
                    self.timers[effect.name] = self.clock + effect.delay_s
                case core.CancelTimer():
                    self.timers.pop(effect.name, None)
                case core.Finish():
                    self.told.append(effect.completion)
                case _:
                    pass

    @rule(event=st.sampled_from(HARMLESS))
    def anything(self, event: core.TurnEvent) -> None:
        self.give(event)

    @rule(event=st.sampled_from(TERMINAL), times=st.integers(1, 3))
    def a_terminal_record(self, event: core.TurnEvent, times: int) -> None:
        for _ in range(times):
            self.give(event)

    @rule()
    def the_cli_dies(self) -> None:
        self.give(RecordExhausted(exit_status=1))

    @rule(seconds=st.floats(0.0, 12.0))
    def time_passes(self, seconds: float) -> None:
        self.clock += seconds
        for name, due in sorted(self.timers.items(), key=lambda each: each[1]):
            if due <= self.clock and name in self.timers:
                del self.timers[name]
                self.give(core.TimerFired(name=name))

    @rule(works=st.booleans())
    def the_journal_answers(self, works: bool) -> None:
        if not self.offered or self.turn.state is not TurnState.SETTLING:
            return
        if not works:
            self.give(core.RecordingFailed())
            return
        won = self.stored is None
        if won:
            self.stored = self.offered[-1]
        self.give(core.CompletionRecorded(completion=self.stored, won=won))

    @invariant()
    def never_two_completions(self) -> None:
        assert len(self.told) <= 1
        assert len({(each.status, each.answer) for each in self.offered}) <= 1
        if self.told:
            assert self.told[0] == self.stored
            assert self.turn.state is TurnState.SETTLED

    @invariant()
    def never_none_once_a_terminal_fact_was_given(self) -> None:
        if self.terminal_given:
            assert self.turn.state in (TurnState.SETTLING, TurnState.SETTLED)

    def teardown(self) -> None:
        """A terminal record is readable, the journal works again: then there is exactly one completion."""
        self.give(DONE)
        for _ in range(4):
            if self.turn.state is TurnState.SETTLING:
                self.timers.setdefault("record_retry", self.clock)
                self.clock += 20
                self.time_passes(0.0)
                self.the_journal_answers(works=True)
        assert len(self.told) == 1


TestTurnLife = TurnLife.TestCase
TestTurnLife.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


def test_a_cancelled_turn_of_a_cli_that_answers_nothing_asks_for_its_end_within_a_bounded_time() -> None:
    life = TurnLife()
    for event in (core.Submitted(), EVENTS[1], core.Cancel()):
        life.give(event)
    for _ in range(12):
        life.give(core.InterruptPressed(at=T0 + life.clock))
        life.time_passes(5.0)
        if life.turn.ending:
            break
    assert life.turn.ending
    assert life.clock <= INTERRUPT_GRACE_S * (INTERRUPTS_MAX + 2)
    life.give(RecordExhausted())
    assert life.offered[-1].status == "cancelled"
