"""The agent loop: recorded before acted on, one turn at a time, each tool once, each turn one last word."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lastword.actors.core import typing_effects as reports
from lastword.actors.core.adapter import TypedText
from lastword.actors.core.agent import PAUSES_MAX, TOOLS_AT_ONCE, Agent, AgentEffect, Ask, HangUp, Record, RunTool
from lastword.actors.core.conversation import Answered, Call, Ended, Joined, Prompted, ToolEnded, told
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.service import Reply
from lastword.actors.core.tools import ToolResult

SAID = msgspec.Raw(b"[]")
OK = ToolResult(status="ok", text="done")


def job(name, turn_id=None):
    typed = TypedText(text=name, paste=name.encode(), rewritten=name)
    return reports.Job(message_id=MessageId(name), typed=typed, turn_id=TurnId(turn_id) if turn_id else None)


def reply(*ids, text="x", goes_on=False, error=None):
    calls = tuple(Call(id=each, name="t", arguments="{}") for each in ids)
    return Reply(response="r", content=SAID, text=text, calls=calls, goes_on=goes_on, error=error)


def numbers(effects, kind):
    return [each.number for each in effects if isinstance(each, kind)]


def opened(agent, name="a", turn_id="t"):
    """The turn's first request is under way; its number."""
    (record,) = agent.deliver(job(name, turn_id), 1.0)
    submitted, ask = agent.recorded(record.number, 1.0)
    assert submitted == reports.Submitted(message_id=MessageId(name), rewritten=())
    return ask.number


def test_nothing_is_asked_before_the_prompt_is_on_record():
    agent = Agent()
    (record,) = agent.deliver(job("a"), 1.0)
    assert record.lines == (Prompted(turn="a", message="a", text="a", at=1.0),)
    assert agent.deliver(job("a"), 1.0) == []  # twice is once
    assert agent.lines == []
    assert numbers(agent.recorded(record.number, 1.0), Ask)
    assert agent.deliver(job("a"), 1.0) == []
    assert Agent(agent.lines).deliver(job("a"), 2.0) == []  # nor in another life


def test_no_tool_runs_before_its_call_is_on_record_and_none_is_heard_before_its_result_is():
    agent = Agent()
    (record,) = agent.replied(opened(agent), reply("1", "2"), 2.0)
    effects = agent.recorded(record.number, 2.0)
    assert [each.call.key for each in effects if isinstance(each, RunTool)] == ["1", "2"]
    (second,) = agent.tool_ended("a", "2", OK, 3.0)
    (first,) = agent.tool_ended("a", "1", OK, 3.0)
    assert agent.tool_ended("a", "1", OK, 3.0) == []
    assert agent.recorded(second.number, 3.0) == []
    assert numbers(agent.recorded(first.number, 3.0), Ask)


def test_calls_that_a_service_names_alike_are_told_apart():
    agent = Agent()
    (record,) = agent.replied(opened(agent), reply("call_0", "call_0", ""), 2.0)
    keys = [each.call.key for each in agent.recorded(record.number, 2.0) if isinstance(each, RunTool)]
    assert keys == ["call_0", "call_0#2", "#2"]


def test_more_calls_than_may_run_at_once_wait_for_one():
    agent = Agent()
    ids = [f"c{number}" for number in range(TOOLS_AT_ONCE + 2)]
    (record,) = agent.replied(opened(agent), reply(*ids), 2.0)
    running = [each.call.key for each in agent.recorded(record.number, 2.0) if isinstance(each, RunTool)]
    assert running == ids[:TOOLS_AT_ONCE]
    done, more = agent.tool_ended("a", "c0", OK, 3.0)
    assert isinstance(done, Record)
    assert isinstance(more, RunTool)
    assert more.call.key == ids[TOOLS_AT_ONCE]


@pytest.mark.contract("C22")
def test_c22_what_is_queued_is_told_behind_tools_and_asked_with_once():
    agent = Agent()
    number = opened(agent)
    assert agent.deliver(job("b"), 2.0) == [reports.Queued(message_id=MessageId("b"))]
    assert agent.deliver(job("c"), 2.0) == [reports.Queued(message_id=MessageId("c"))]
    (record,) = agent.replied(number, reply("1"), 2.0)
    agent.recorded(record.number, 2.0)
    (ended,) = agent.tool_ended("a", "1", OK, 3.0)
    (joined,) = agent.recorded(ended.number, 3.0)
    assert [line.message for line in joined.lines] == ["b", "c"]
    effects = agent.recorded(joined.number, 3.0)
    assert [type(each) for each in effects] == [reports.Submitted, reports.Submitted, Ask]


def test_a_continued_answer_is_one_answer():
    agent = Agent()
    (part,) = agent.replied(opened(agent), reply(text="one, ", goes_on=True), 2.0)
    (ask,) = agent.recorded(part.number, 2.0)
    (last,) = agent.replied(ask.number, reply(text="two"), 3.0)
    assert [line.answer for line in last.lines] == ["one, two"]


@pytest.mark.contract("C04")
def test_c04_an_answer_that_cannot_stand_is_no_answer_and_its_calls_do_not_run():
    agent = Agent()
    error = TurnError(kind="refused")
    (record,) = agent.replied(opened(agent), reply("1", error=error), 2.0)
    said, ended = record.lines
    assert (said.answer, said.calls) == (None, ())
    assert ended == Ended(turn="a", status="failed", error=error, at=2.0)
    assert agent.recorded(record.number, 2.0) == []


@pytest.mark.contract("C07")
def test_c07_an_interrupt_means_that_turn_and_no_other():
    agent = Agent()
    number = opened(agent, "a", "t1")
    assert agent.interrupt(TurnId("t0"), "", 2.0) == [reports.NothingToInterrupt(turn_id=TurnId("t0"))]
    assert agent.interrupt(TurnId("t9"), "z", 2.0) == [reports.NothingToInterrupt(turn_id=TurnId("t9"))]
    pressed, hang_up, record = agent.interrupt(TurnId("t9"), "a", 2.0)
    assert (pressed, hang_up) == (reports.Interrupted(turn_id=TurnId("t9")), HangUp())
    assert record.lines == (Ended(turn="a", status="cancelled", at=2.0),)
    assert agent.replied(number, reply(), 3.0) == []  # too late
    assert agent.interrupt(TurnId("t1"), "", 3.0) == [reports.Interrupted(turn_id=TurnId("t1"))]


@pytest.mark.contract("C07")
def test_c07_an_answer_that_is_on_its_way_to_the_record_wins_over_the_interrupt():
    agent = Agent()
    (record,) = agent.replied(opened(agent), reply(), 2.0)
    assert agent.interrupt(TurnId("t"), "a", 2.0) == [reports.Interrupted(turn_id=TurnId("t"))]
    assert agent.recorded(record.number, 2.0) == []
    assert agent.turn == ""


def test_what_waits_is_taken_back_and_what_was_told_is_not():
    agent = Agent()
    opened(agent)
    agent.deliver(job("b"), 2.0)
    assert agent.withdraw(MessageId("a")) == []
    assert agent.withdraw(MessageId("b")) == [reports.WithdrawnReport(message_id=MessageId("b"))]
    assert agent.withdraw(MessageId("b")) == []


class Loop(RuleBasedStateMachine):
    """Any order of deliveries, commits, answers, failures, tools, interrupts and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = Agent()
        self.names = 0
        self.at = 0.0
        self.commits: list[Record] = []
        self.asks: list[int] = []
        self.tools: list[RunTool] = []
        self.ran: list[tuple[str, str]] = []
        self.withdrawn: set[str] = set()
        self.delivered: list[str] = []

    def carry_out(self, effects: list[AgentEffect]) -> None:
        self.at += 1.0
        for effect in effects:
            match effect:
                case Record():
                    self.commits.append(effect)
                case Ask():
                    on_record = told(self.agent.lines)
                    assert type(on_record[-1]).__name__ in ("Human", "Result", "Model")
                    self.asks = [effect.number]
                case RunTool():
                    self.ran.append((effect.turn, effect.call.key))
                    self.tools.append(effect)
                case HangUp():
                    self.asks, self.tools = [], []
                case reports.WithdrawnReport():
                    self.withdrawn.add(effect.message_id)
                case _:
                    pass

    @rule()
    def deliver(self):
        self.names += 1
        name = f"m{self.names}"
        self.delivered.append(name)
        self.carry_out(self.agent.deliver(job(name), self.at))

    @precondition(lambda self: self.commits)
    @rule()
    def commit(self):
        self.carry_out(self.agent.recorded(self.commits.pop(0).number, self.at))

    @precondition(lambda self: self.asks)
    @rule(ids=st.lists(st.sampled_from(["x", "y", ""]), max_size=3), goes_on=st.booleans(), fails=st.integers(0, 5))
    def answer(self, ids, goes_on, fails):
        error = TurnError(kind="refused") if fails == 0 else None
        answered = reply(*ids, goes_on=goes_on and not ids, error=error)
        self.carry_out(self.agent.replied(self.asks.pop(), answered, self.at))

    @precondition(lambda self: self.asks)
    @rule()
    def fail(self):
        self.carry_out(self.agent.failed(self.asks.pop(), TurnError(kind="provider_error"), self.at))

    @precondition(lambda self: self.asks)
    @rule()
    def retry(self):
        self.carry_out(self.agent.retrying(self.asks[0], "again", self.at))

    @precondition(lambda self: self.tools)
    @rule(which=st.integers(0, 9))
    def tool_ends(self, which):
        run = self.tools.pop(which % len(self.tools))
        self.carry_out(self.agent.tool_ended(run.turn, run.call.key, OK, self.at))

    @rule(back=st.integers(0, 3))
    def interrupt(self, back):
        native = f"m{self.names - back}"
        self.carry_out(self.agent.interrupt(TurnId("t"), native, self.at))

    @rule(back=st.integers(0, 3))
    def withdraw(self, back):
        self.carry_out(self.agent.withdraw(MessageId(f"m{self.names - back}")))

    @precondition(lambda self: not self.commits)
    @rule()
    def killed(self):
        """Another life reads the record; what was not begun is delivered again, in order."""
        lines = list(self.agent.lines)
        self.agent = Agent(lines)
        self.asks, self.tools = [], []
        for name in self.delivered:
            if name not in self.withdrawn:
                self.carry_out(self.agent.deliver(job(name), self.at))

    def teardown(self):
        for _ in range(500):
            if self.commits:
                self.commit()
            elif self.tools:
                self.tool_ends(0)
            elif self.asks:
                self.carry_out(self.agent.replied(self.asks.pop(), reply(), self.at))
            else:
                break
        assert self.agent.turn == ""
        assert self.heard_of() == [name for name in self.delivered if name not in self.withdrawn]

    def heard_of(self) -> list[str]:
        return [line.message for line in self.agent.lines if isinstance(line, Prompted | Joined)]

    @invariant()
    def each_message_is_told_once_and_each_turn_has_one_last_word(self):
        lines = self.agent.lines
        heard = self.heard_of()
        assert len(heard) == len(set(heard))
        ends = [each.turn for each in lines if isinstance(each, Ended) or getattr(each, "answer", None) is not None]
        assert len(ends) == len(set(ends))
        for turn in ends:
            last = max(number for number, line in enumerate(lines) if line.turn == turn and _says(line))
            end = next(n for n, line in enumerate(lines) if line.turn == turn and _is_end(line))
            assert last <= end

    @invariant()
    def no_tool_runs_twice(self):
        assert len(self.ran) == len(set(self.ran))


def _is_end(line) -> bool:
    return isinstance(line, Ended) or (isinstance(line, Answered) and line.answer is not None)


def _says(line) -> bool:
    return not isinstance(line, ToolEnded)


TestLoop = Loop.TestCase
TestLoop.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_an_answer_that_is_paused_for_ever_is_asked_to_go_on_so_often_and_no_more():
    agent = Agent()
    number = opened(agent)
    for _ in range(PAUSES_MAX):
        (record,) = agent.replied(number, reply(goes_on=True), 2.0)
        (number,) = numbers(agent.recorded(record.number, 2.0), Ask)
    (record,) = agent.replied(number, msgspec.structs.replace(reply(goes_on=True), stop="pause_turn"), 3.0)
    ended = record.lines[-1]
    assert isinstance(ended, Ended)
    assert ended.error is not None
    assert (ended.status, ended.error.kind, ended.error.native_kind) == ("failed", "provider_error", "pause_turn")
    assert numbers(agent.recorded(record.number, 3.0), Ask) == []
    assert agent.turn == ""
