"""What a host asks that makes no sense is refused at the call, with a typed error, and ends nothing (C21)."""

from __future__ import annotations

import asyncio
import math
import threading
import time

import pytest

from host_kit import WAIT_S, away, bodies
from kit_system import until
from lastword import AsyncSession, JournalError, RejectedError, Runtime, UsageError, events
from lastword.actors.core.errors import JournalError as Refusal
from lastword.runtime import _session
from lastword.runtime._journal import SqliteJournal

pytestmark = [pytest.mark.contract("C21"), pytest.mark.filterwarnings("error")]


@pytest.mark.parametrize("after", [-1, 1.5, "x", None, True, 2**63, b"1"])
def test_c21_events_after_what_is_no_seq_is_refused_at_the_call(make, after):
    rig = make()
    session = rig.session()
    with pytest.raises(UsageError) as caught:
        session.events(after=after)
    assert caught.value.kind == "usage"

    async def twin():
        AsyncSession(session).events(after=after)

    with pytest.raises(UsageError):
        asyncio.run(twin())


@pytest.mark.parametrize("grace_s", ["x", math.nan, math.inf, -1, None, True])
def test_c21_a_grace_that_is_no_number_of_seconds_is_refused_and_ends_nothing(make, grace_s):
    rig = make()
    session = rig.session()
    assert session.run("one").answer == "echo: one"
    for close in (session.close, rig.runtime.close):
        with pytest.raises(UsageError) as caught:
            close(grace_s=grace_s)
        assert caught.value.kind == "usage"
    assert session.run("two").answer == "echo: two"
    session.close(grace_s=0)


@pytest.mark.parametrize("state", ["", "a\0b", 5, b"state", "\ud800"])
def test_c21_a_state_folder_that_is_no_path_is_refused(tmp_path, monkeypatch, state):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        Runtime.open(state)
    assert caught.value.kind == "usage"
    assert "state folder" in caught.value.reason
    assert not list(tmp_path.iterdir())


# --- the end of a session, and a journal that cannot be written --------------------------------------------------


@pytest.fixture
def disk(monkeypatch):
    """Full while it is set."""
    full = threading.Event()
    real = SqliteJournal._record

    def record(journal, *args):
        if full.is_set():
            raise Refusal("journal_full", "no space is left for the journal", remedy="Free space.")
        return real(journal, *args)

    monkeypatch.setattr(SqliteJournal, "_record", record)
    monkeypatch.setattr(_session, "JOURNAL_S", 1.0)
    return full


def test_c21_the_end_of_a_session_that_the_journal_cannot_take_is_told_so_and_is_not_lost(make, disk):
    rig = make(manual=True)
    session = rig.session()
    session.send("go", message_id="m1")
    cli = rig.running(session)
    disk.set()
    began = time.monotonic()
    with pytest.raises(JournalError) as caught:
        session.close(grace_s=0.1)
    assert time.monotonic() - began < _session.CLOSE_S / 2
    assert (caught.value.kind, caught.value.remedy) == ("journal_full", "Free space.")
    assert not cli.alive
    with pytest.raises(RejectedError) as refused:
        session.send("more")
    assert refused.value.kind == "session_closed"
    disk.clear()
    again = away(session.close)
    again.result(WAIT_S * 2)
    until(lambda: bodies(rig, session, events.SessionClosed), within_s=WAIT_S)
    (done,) = bodies(rig, session, events.CompletionReached)
    assert (done.body.completion.status, done.body.completion.message_id) == ("cancelled", "m1")


def test_c21_a_journal_that_fails_for_a_moment_is_waited_for_at_the_end_of_a_session(make, disk, monkeypatch):
    monkeypatch.setattr(_session, "JOURNAL_S", WAIT_S)
    rig = make()
    session = rig.session()
    session.run("one")
    disk.set()
    end = away(session.close, grace_s=0.1)
    until(lambda: rig.runtime._journal.failing, within_s=WAIT_S)
    disk.clear()
    assert end.result(WAIT_S * 2) is None
    assert bodies(rig, session, events.SessionClosed)
