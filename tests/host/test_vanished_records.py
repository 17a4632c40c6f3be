"""A turn whose record is away: lost only where somebody looked and saw that no end can come (C03)."""

from __future__ import annotations

import pytest

from host_kit import WAIT_S, away, completions
from kit_system import until
from lastword import Interrupt
from lastword.actors import transcript
from lastword.actors.core.turn_bounds import RECORD_GONE_S
from lastword.actors.core.world import Missing, Unreadable
from lastword.transports.memory import MemoryWorld

LONG_S = 4 * RECORD_GONE_S
GIVEN_UP_S = transcript.BLIND_READS_MAX * transcript.UNREADABLE_RETRY_S + 2

pytestmark = [pytest.mark.contract("C02"), pytest.mark.contract("C03")]


class Away(MemoryWorld):
    """Its record is not there, or cannot be looked at."""

    answer: Missing | Unreadable | None = None

    def read_from(self, path, offset, max_bytes, inode, device):
        return self.answer or super().read_from(path, offset, max_bytes, inode, device)


def running(make, clock):
    """A turn that runs."""
    rig = make(world=Away(manual=True, clock=clock.wall), clock=clock)
    session = rig.session()
    waiting = away(session.run, "go")
    return rig, session, waiting, rig.running(session)


def idle_behind_the_prompt(make, clock, answer):
    """A turn that runs; its CLI ended it where nobody can read, and says idle."""
    rig, session, waiting, cli = running(make, clock)
    clock.advance(1)
    rig.world.answer = answer
    cli.finish("the answer")
    rig.settle()
    return rig, session, waiting


def pass_the_time(rig, clock, seconds):
    for _ in range(int(seconds)):
        clock.advance(1)
        rig.settle()


def test_c03_a_record_that_cannot_be_read_proves_nothing_however_long_the_cli_is_idle(make, clock):
    rig, session, waiting = idle_behind_the_prompt(make, clock, Unreadable(reason="EIO: Input/output error"))
    pass_the_time(rig, clock, LONG_S)
    assert completions(rig, session) == []
    wait = session.snapshot().waits_for
    assert wait is not None
    assert wait.kind == "record"
    rig.world.answer = None
    pass_the_time(rig, clock, 5)
    done = waiting.result(WAIT_S)
    assert (done.status, done.answer, done.source) == ("completed", "the answer", "transcript")
    assert completions(rig, session) == [done]


def test_c03_a_record_that_was_deleted_is_looked_for_once_more_and_then_the_turn_is_lost(make, clock):
    rig, session, waiting = idle_behind_the_prompt(make, clock, Missing())
    pass_the_time(rig, clock, RECORD_GONE_S - 2)
    assert completions(rig, session) == []
    pass_the_time(rig, clock, 10)
    done = waiting.result(WAIT_S)
    assert (done.status, done.error.kind, done.source) == ("lost", "record_missing", "reconciler")
    assert completions(rig, session) == [done]


def test_c03_a_record_that_is_found_deleted_after_it_could_not_be_read_is_lost_then(make, clock):
    rig, session, waiting = idle_behind_the_prompt(make, clock, Unreadable(reason="EACCES: Permission denied"))
    pass_the_time(rig, clock, LONG_S)
    assert completions(rig, session) == []
    rig.world.answer = Missing()
    pass_the_time(rig, clock, RECORD_GONE_S + 10)
    assert waiting.result(WAIT_S).status == "lost"


def test_c03_a_record_that_cannot_be_read_of_a_cli_that_is_gone_is_waited_for_a_minute_and_told_as_unread(make, clock):
    rig, session, waiting, cli = running(make, clock)
    rig.world.answer = Unreadable(reason="EISDIR: Is a directory")
    cli.exit(1)
    pass_the_time(rig, clock, transcript.FINAL_READS_MAX * transcript.UNREADABLE_RETRY_S - 5)
    assert completions(rig, session) == []
    assert session.snapshot().waits_for.kind == "record"
    pass_the_time(rig, clock, 20)
    done = waiting.result(WAIT_S)
    assert (done.status, done.error.kind, done.source) == ("lost", "provider_exited", "process_exit")
    assert "could not be read" in done.error.message
    assert "EISDIR" in done.error.message
    rig.world.answer = None
    again = away(session.run, "next")
    until(lambda: moved_on(rig, clock, len(rig.world.opened) == 2))
    until(lambda: moved_on(rig, clock, bool(rig.cli(session).turn)))
    rig.cli(session).finish("ok")
    pass_the_time(rig, clock, 5)
    assert again.result(WAIT_S).answer == "ok"


def moved_on(rig, clock, reached):
    pass_the_time(rig, clock, 1)
    return reached


@pytest.mark.contract("C07")
@pytest.mark.parametrize("asked_s", [0, 5], ids=["before it is known to be unreadable", "while it is waited for"])
def test_c07_who_does_not_want_to_wait_for_an_unreadable_record_gives_the_turn_up_and_has_its_end_at_once(
    make, clock, asked_s
):
    rig, session, waiting, cli = running(make, clock)
    rig.world.answer = Unreadable(reason="EIO: Input/output error")
    cli.exit(1)
    pass_the_time(rig, clock, asked_s)
    session.send(Interrupt())
    pass_the_time(rig, clock, GIVEN_UP_S)
    done = waiting.result(WAIT_S)
    assert (done.status, done.error.kind) == ("cancelled", "interrupted")
    assert completions(rig, session) == [done]
