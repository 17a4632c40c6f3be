"""The CLI's own record is cut, moved, replaced, deleted, written anew or made unreadable: between turns, in the middle of
one, and while no host looks. Each turn ends once, with its own answer."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.pane_host import PaneHost
from host_kit import WAIT_S
from kit_system import until
from lastword import events

pytestmark = [pytest.mark.tmux, pytest.mark.contract("C02"), pytest.mark.contract("C17")]


@pytest.fixture(scope="module")
def host() -> Iterator[PaneHost]:
    with PaneHost() as made:
        yield made


def same_in_place(path: Path) -> None:
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


def other_in_place(path: Path) -> None:
    """As long as before and longer, other words: the size alone tells nothing."""
    data = path.read_bytes().replace(b'"first answer"', b'"FIRST ANSWER"').replace(b"first prompt", b"FIRST PROMPT")
    note = b'{"type":"note","text":"' + b"n" * 200 + b'"}\n'
    with path.open("r+b") as file:
        file.write(note + data)


def replaced(path: Path) -> None:
    new = path.with_suffix(".new")
    shutil.copy(path, new)
    new.rename(path)


def rotated(path: Path) -> None:
    data = path.read_bytes()
    path.rename(path.with_suffix(".1"))
    path.write_bytes(data)


def truncated(path: Path) -> None:
    os.truncate(path, 0)


def cut_short(path: Path) -> None:
    """The last record is gone half."""
    os.truncate(path, path.stat().st_size - 40)


def cut_in_half(path: Path) -> None:
    """In an earlier turn: what runs now is not in it any more."""
    os.truncate(path, path.stat().st_size // 2)


def cut_in_the_first(path: Path) -> None:
    """Within the first record of all: no whole line stands."""
    os.truncate(path, path.read_bytes().index(b"\n") - 20)


def deleted(path: Path) -> None:
    path.unlink()


def moved_aside(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def linked(path: Path) -> None:
    target = path.with_suffix(".target")
    path.rename(target)
    path.symlink_to(target)


FAULTS: tuple[Callable[[Path], None], ...] = (
    same_in_place,
    other_in_place,
    replaced,
    rotated,
    truncated,
    cut_short,
    cut_in_half,
    cut_in_the_first,
    deleted,
    moved_aside,
    linked,
)
EACH = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@EACH
def test_c02_between_two_turns(host, fault):
    session = host.session()
    assert host.run(session, "first prompt [[say:first answer]]").answer == "first answer"
    fault(host.record(session))
    done = host.run(session, "second [[say:second answer]]")
    assert (done.status, done.answer) == ("completed", "second answer")
    assert [each.answer for each in host.completed(session, 2)] == ["first answer", "second answer"]
    session.close()


@EACH
def test_c02_in_the_middle_of_a_turn(host, fault):
    session = host.session()
    assert host.run(session, "first prompt [[say:first answer]]").answer == "first answer"
    ack = session.send("second [[sleep:0.4]][[say:second answer]]")
    host.running(session, 2)
    fault(host.record(session))
    done = host.completed(session, 2)[1]
    assert (done.turn_id, done.status, done.answer) == (ack.turn_id, "completed", "second answer")
    assert host.run(session, "third [[say:third answer]]").answer == "third answer"
    assert len(host.completed(session, 3)) == 3
    session.close()


@pytest.mark.parametrize("blind", ["folder", "loop"])
def test_c02_a_record_that_cannot_be_looked_at_for_a_while_proves_nothing(host, blind):
    session = host.session()
    host.run(session, "first prompt [[say:first answer]]")
    session.send("second [[sleep:0.5]][[say:second answer]]")
    host.running(session, 2)
    path = host.record(session)
    aside = path.with_suffix(".aside")
    path.rename(aside)
    if blind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name)
    host.runtime._edges.opened["tmux"].wakes._sweep()
    assert host.runtime._system.settle(5.0)
    assert len(host.completions(session)) == 1
    (path.rmdir if blind == "folder" else path.unlink)()
    aside.rename(path)
    assert host.completed(session, 2)[1].answer == "second answer"
    assert host.run(session, "third [[say:third answer]]").answer == "third answer"
    session.close()


def unreadable(path: Path, how: str) -> None:
    path.rename(path.with_suffix(".aside"))
    if how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    else:
        path.symlink_to("/dev/null")


@pytest.mark.contract("C07")
@pytest.mark.contract("C42")
@pytest.mark.parametrize("how", ["folder", "loop", "no file"])
def test_c07_a_deadline_is_kept_though_the_record_cannot_be_read(how):
    """Where the CLI lives (it can write into what is no file), it is not ended for that; the scripted one dies of the
    others. Either way what is waited for is named, and the session goes on once its record is there again.
    """
    with PaneHost() as host:
        session = host.session()
        host.run(session, "first prompt [[say:first answer]]")
        path, cli = host.record(session), host.cli(session)
        sent = session.send("second [[sleep:3]][[tool:Bash:true]][[sleep:40]]", deadline_s=4.0)
        host.running(session, 2)
        unreadable(path, how)
        began = time.monotonic()
        told = until(
            lambda: [e for e in host.log(session) if isinstance(e.body, events.StallDiagnosed)], within_s=WAIT_S
        )
        assert [(each.turn_id, each.body.kind) for each in told] == [(sent.turn_id, "record")]
        assert path.name in told[0].body.waits_for
        assert "cannot be read" in told[0].body.waits_for
        waits = session.snapshot().waits_for
        assert waits is not None
        assert waits.kind == "record"
        done = host.completed(session, 2)[1]
        assert time.monotonic() - began < 15.0
        assert (done.turn_id, done.status, done.error.kind) == (sent.turn_id, "cancelled", "deadline")
        assert cli.is_alive() is (how == "no file")
        (path.rmdir if how == "folder" else path.unlink)()
        path.with_suffix(".aside").rename(path)
        assert host.run(session, "third [[say:third answer]]").answer == "third answer"


@EACH
def test_c02_in_the_first_turn_of_all(host, fault):
    session = host.session()
    ack = session.send("first [[sleep:0.4]][[say:first answer]]")
    host.running(session)
    fault(host.record(session))
    done = host.completed(session, 1)[0]
    assert (done.turn_id, done.status, done.answer) == (ack.turn_id, "completed", "first answer")
    assert host.run(session, "second [[say:second answer]]").answer == "second answer"
    assert len(host.completed(session, 2)) == 2
    session.close()


@pytest.mark.parametrize(
    "fault",
    [other_in_place, replaced, moved_aside, truncated, cut_short, cut_in_half, cut_in_the_first],
    ids=lambda fault: fault.__name__,
)
def test_c17_while_no_host_looks(fault):
    with PaneHost() as host:
        session = host.session()
        host.run(session, "first prompt [[say:first answer]]")
        sent = session.send("second [[sleep:0.6]][[say:second answer]]")
        host.running(session, 2)
        path = host.record(session)
        host.abandon()
        fault(path)
        host.open()
        session = host.again(session)
        done = host.completed(session, 2)[1]
        assert (done.turn_id, done.status, done.answer) == (sent.turn_id, "completed", "second answer")
        assert host.run(session, "third [[say:third answer]]").answer == "third answer"
