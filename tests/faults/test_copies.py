"""Copies of a state folder, and folders that were moved: a CLI is taken, typed into and ended by one host (ADR 0020)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faults.pane_host import PaneHost
from host_kit import WAIT_S
from lastword import JournalError, RejectedError, Runtime
from lastword.runtime.testing import SCRIPTED_CLI
from lastword.transports.claims import Claims
from lastword.transports.process import ProcessId, pid_start

pytestmark = pytest.mark.tmux


@pytest.fixture
def host():
    with PaneHost() as made:
        yield made


def copied(host: PaneHost, name: str = "copy") -> Path:
    to = host.kit.root / name
    shutil.copytree(host.state, to, ignore=shutil.ignore_patterns("*.sock"))
    return to


def opened(host: PaneHost, state: Path) -> Runtime:
    """A second host, in that folder."""
    return Runtime.open(
        state,
        env=host.kit.env,
        executables={"claude-code": (sys.executable, str(SCRIPTED_CLI))},
        durability="process",
    )


def in_the_second_turn(host: PaneHost):
    session = host.session()
    assert host.run(session, "first [[say:one]]").answer == "one"
    session.send("second [[sleep:2]][[say:two]]")
    host.running(session, 2)
    return session, host.cli(session)


def sees_it_held(other: Runtime, session) -> None:
    found = other.session(session_id=session.session_id)
    for call in (lambda: found.send("never typed"), lambda: found.run("never typed"), found.close):
        with pytest.raises(RejectedError) as caught:
            call()
        assert caught.value.kind == "session_held"
    assert found.snapshot().state == "gone"
    assert other.completion(found.snapshot().last_completion.turn_id).answer == "one"


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c02_a_copy_of_a_living_hosts_folder_changes_nothing_for_that_host(host):
    session, cli = in_the_second_turn(host)
    copy = copied(host)
    with opened(host, copy) as other:
        sees_it_held(other, session)
    done = host.completed(session, 2)
    assert [(each.status, each.answer) for each in done] == [("completed", "one"), ("completed", "two")]
    assert host.run(session, "third [[say:three]]").answer == "three"
    assert host.cli(session) == cli
    session.close()  # that CLI has ended: the copy goes on with the conversation on record, in one of its own
    with opened(host, copy) as other:
        found = other.session(session_id=session.session_id)
        assert found.run("fourth [[say:four]]", queue=True, deadline_s=WAIT_S).answer == "four"


@pytest.mark.contract("C17")
def test_c17_a_copy_and_its_original_whose_host_died_the_first_to_open_has_the_cli(host):
    session, cli = in_the_second_turn(host)
    copy, original = copied(host), host.state
    later = host.session()  # the copy does not know of it
    assert host.run(later, "hello [[say:there]]").answer == "there"
    of_later = host.cli(later)
    host.abandon()
    host.state = copy
    host.open()
    again = host.again(session)
    with opened(host, original) as other:
        sees_it_held(other, session)
    assert [each.answer for each in host.completed(again, 2)] == ["one", "two"]
    assert host.cli(again) == cli
    host.runtime.close(grace_s=1.0)
    assert not cli.is_alive()
    assert of_later.is_alive()  # it was none of the copy's to end
    host.runtime, host.state = None, original
    host.open()
    assert host.run(host.again(later), "again [[say:still]]").answer == "still"
    assert host.cli(host.again(later)) == of_later


@pytest.mark.contract("C13")
@pytest.mark.contract("C17")
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_c13_a_folder_moved_away_from_its_living_host_and_a_new_host_at_the_old_path(host, dies):
    session, cli = in_the_second_turn(host)
    first, old, moved = host.runtime, host.state, host.kit.root / "moved"
    old.rename(moved)
    with opened(host, old) as second:
        assert second.sessions() == []
        fresh = second.session("claude-code", cwd=host.kit.cwd)
        assert fresh.run("mine [[say:mine]]", deadline_s=WAIT_S).answer == "mine"
        with pytest.raises(JournalError) as caught:
            first._journal.record([], 1.0)
        assert caught.value.kind == "journal_unwritable"
        assert str(moved) in caught.value.reason
        with pytest.raises(JournalError) as caught:
            opened(host, moved)
        assert caught.value.kind == "journal_locked"
        if dies:
            host.abandon()
            host.state = moved
            host.open()
            session = host.again(session)
            assert [each.answer for each in host.completed(session, 2)] == ["one", "two"]
        assert fresh.run("mine [[say:still mine]]", deadline_s=WAIT_S).answer == "still mine"
    assert cli.is_alive()
    if not dies:
        shutil.rmtree(old)
        moved.rename(old)
    assert host.run(session, "third [[say:three]]").answer == "three"
    assert host.cli(session) == cli
    if dies:
        host.runtime.close(grace_s=1.0)
        host.runtime = None


@pytest.mark.contract("C17")
def test_c17_a_new_host_where_a_dead_ones_folder_stood_leaves_the_clis_of_the_moved_one_alone(host):
    session, cli = in_the_second_turn(host)
    host.abandon()
    old, moved = host.state, host.kit.root / "moved"
    old.rename(moved)
    with opened(host, old) as second:
        fresh = second.session("claude-code", cwd=host.kit.cwd)
        assert fresh.run("mine [[say:mine]]", deadline_s=WAIT_S).answer == "mine"
        assert cli.is_alive()
        host.state = moved
        host.open()
        again = host.again(session)
        assert [each.answer for each in host.completed(again, 2)] == ["one", "two"]
        assert host.cli(again) == cli
    assert host.run(again, "third [[say:three]]").answer == "three"


def test_a_claim_is_one_hosts_until_that_has_died_however_it_died():
    code = (
        "import sys\nfrom lastword.transports.claims import Claims\nfrom lastword.transports.process import ProcessId\n"
        "claims = Claims()\nprint(claims.take(ProcessId(int(sys.argv[1]), int(sys.argv[2]))), flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(["sleep", "60"]) as held:
        process = ProcessId(held.pid, pid_start(held.pid) or 0)
        words = [sys.executable, "-c", code, str(process.pid), str(process.start)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as other:
            assert other.stdout.readline() == b"True\n"
            ours = Claims()
            assert not ours.take(process)
            other.kill()
            other.wait()
        assert ours.take(process)
        assert ours.take(process)
        assert not Claims().take(process)
        ours.drop(process)
        third = Claims()
        assert third.take(process)
        held.kill()
    assert ours.take(process)  # nobody's any more
    third.close()
