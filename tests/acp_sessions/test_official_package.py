"""A real agent on the official ``agent-client-protocol`` package, as most third parties write theirs: it takes a pipe for
its stdout and nothing else, and what it says is in the record all the same, whoever dies.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_promises import allow, choose
from kit_system import until
from lastword import Interrupt, events
from structured_kit import WAIT_S, StdioHost, child_of, completion_of, completions, of_type, seen

AGENT = (sys.executable, str(Path(__file__).with_name("official_agent.py")))
LONG_S = 2 * WAIT_S


@pytest.fixture
def official() -> Iterator[StdioHost]:
    with StdioHost(AGENT, provider="acp", permission_mode="") as made:
        yield made


@pytest.mark.contract("C02")
@pytest.mark.contract("C15")
def test_c02_plain_turns_complete_in_one_process(official: StdioHost) -> None:
    session = official.session()
    for text in ("one", "two \N{WHITE SMILING FACE}", "y" * 200_000):
        done = session.run(f"[say:{text}]", deadline_s=LONG_S)
        assert (done.status, done.answer, done.error) == ("completed", text, None)
    assert done.cli_version == "1.0.0"
    assert len(of_type(session, events.ProviderStarted)) == 1
    assert len(official.relays()) == 1
    session.close()
    assert official.strays() == []
    assert seen(session, events.SessionGone).body.exit_status == 0  # it ended by itself at the end of its stdin


@pytest.mark.contract("C25")
@pytest.mark.contract("C32")
def test_c32_tools_and_permissions(official: StdioHost) -> None:
    session = official.session()
    ack = session.send("[say:look][tool:ls][ask:rm a][ask:rm b][say:done]")
    first = allow(session)
    choose(session, "Reject", after=first)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "done")
    started = [event.body.call_id for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    assert started == [each.call_id for each in finished]
    assert [each.status for each in finished] == ["ok", "ok", "error"]


@pytest.mark.contract("C07")
def test_c07_a_cancel(official: StdioHost) -> None:
    session = official.session()
    ack = session.send("[say:a][sleep:60]")
    seen(session, events.TurnStarted)
    session.send(Interrupt())
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")
    assert done.error is not None
    assert "by the host" in done.error.message
    assert session.run("[say:on]", deadline_s=LONG_S).answer == "on"
    assert len(of_type(session, events.ProviderStarted)) == 1


@pytest.mark.contract("C17")
def test_c17_what_it_said_while_its_host_stood_still_is_recovered_after_the_hosts_death(official: StdioHost) -> None:
    """It ends with its stdin, as the package has it: so it has said all of it when the host is killed."""
    official.close()
    told = official.other_host(
        "[say:begun][tool:t][sleep:1][say:late]",
        wait_for="turn_started",
        frozen_until=lambda: official.said(b'"end_turn"'),
    )
    official.open()
    session = official.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.answer, done.source) == ("completed", "late", "stream")
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    assert session.run("[say:on]", deadline_s=LONG_S).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C17")
def test_c17_a_turn_in_which_its_host_is_killed_ends_once_and_the_session_goes_on(official: StdioHost) -> None:
    official.close()
    told = official.other_host("[say:begun][sleep:60]", wait_for="turn_started")
    official.open()
    session = official.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert done.status == "lost"
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    assert session.run("[say:on]", deadline_s=LONG_S).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C02")
@pytest.mark.parametrize("how", ["killed", "exits"])
def test_c02_an_agent_that_dies_in_the_turn_loses_it_once(official: StdioHost, how: str) -> None:
    session = official.session()
    assert session.run("[say:warm]", deadline_s=LONG_S).status == "completed"
    ack = session.send("[say:begun][exit]" if how == "exits" else "[say:begun][sleep:60]")
    seen(session, events.TurnStarted, ack.seq)
    if how == "killed":
        child_of(session).send(signal.SIGKILL)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    assert official.strays() == []
    assert session.run("[say:on]", deadline_s=LONG_S).answer == "on"
    assert len(completions(session)) == 3


@pytest.mark.contract("C02")
@pytest.mark.parametrize("whose", ["the agent's", "the relay's"])
def test_c02_an_agent_whose_stdout_has_come_to_its_end_is_ended_and_its_turn_is_lost(
    official: StdioHost, whose: str
) -> None:
    """Nothing that it does could be heard any more: no deadline is needed for that."""
    session = official.session()
    assert session.run("[say:warm]", deadline_s=LONG_S).status == "completed"
    child = child_of(session)
    ack = session.send("[say:begun][close]" if whose == "the agent's" else "[say:begun][sleep:600]")
    seen(session, events.TurnStarted, ack.seq)
    if whose == "the relay's":
        (relay,) = official.relays()
        relay.process.send(signal.SIGKILL)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    assert not child.is_alive()
    assert session.run("[say:on]", deadline_s=LONG_S).answer == "on"


@pytest.mark.contract("C61")
def test_c61_sessions_that_come_and_go_leave_no_descriptor(official: StdioHost) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def life() -> None:
        session = official.session()
        assert session.run("[say:x]", deadline_s=LONG_S).answer == "x"
        session.close()

    life()
    before = descriptors()
    for _ in range(4):
        life()
    until(lambda: descriptors() <= before, within_s=WAIT_S)
    assert official.strays() == []
