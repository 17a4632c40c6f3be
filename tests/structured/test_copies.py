"""Copies of a state folder, and folders that were moved: whose is a child behind a pipe (ADR 0020)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lastword import RejectedError, Runtime, events
from structured_kit import WAIT_S, StdioHost, child_of, completion_of, completions, seen


def opened(host: StdioHost, state: Path) -> Runtime:
    return Runtime.open(state, env=host.env, executables={host.provider: host.argv}, durability="process")


def copied(host: StdioHost) -> Path:
    to = host.kit.root / "copy"
    shutil.copytree(host.state, to, ignore=shutil.ignore_patterns("*.sock"))
    return to


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
@pytest.mark.parametrize("swapped", [False, True], ids=["beside it", "in its place"])
def test_c02_a_copy_of_a_living_hosts_folder_leaves_its_child_alone(host: StdioHost, swapped: bool) -> None:
    session = host.session()
    session.run("first [[say:one]]", deadline_s=WAIT_S)
    ack = session.send("second [[sleep:2]][[say:two]]")
    seen(session, events.TurnStarted, after=ack.seq)
    child, state, aside = child_of(session), host.state, host.kit.root / "aside"
    copy = copied(host)
    if swapped:
        state.rename(aside)
        copy.rename(state)
        copy = state
    with opened(host, copy) as other:
        found = other.session(session_id=session.session_id)
        with pytest.raises(RejectedError) as caught:
            found.send("never said")
        assert caught.value.kind == "session_held"
        assert found.snapshot().state == "gone"
    if swapped:
        shutil.rmtree(state)
        aside.rename(state)
    assert completion_of(session, ack.turn_id).answer == "two"
    assert [done.answer for done in completions(session)] == ["one", "two"]
    assert child.is_alive()
    assert session.run("third [[say:three]]", deadline_s=WAIT_S).answer == "three"
    assert child_of(session) == child


@pytest.mark.contract("C17")
def test_c17_a_child_is_found_by_its_folder_wherever_that_was_moved(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:1.5]][[say:meanwhile]] slow one", wait_for="turn_started")
    moved = host.state.rename(host.kit.root / "moved")
    with opened(host, moved) as other:
        session = other.session(session_id=told["session"])
        done = completion_of(session, told["turns"][0])
        assert (done.status, done.answer) == ("completed", "meanwhile")
        assert session.run("next [[say:next]]", deadline_s=WAIT_S).answer == "next"
