"""The writer on the real actor system, pinned; with a slow sync and with subscribers."""

from __future__ import annotations

import queue
import threading

import pytest

from journal_samples import S1, S2, saying
from lastword.actors.group_commit import Commit, Committed
from lastword.actors.journal import JournalActor
from lastword.actors.system.system import ActorSystem
from lastword.runtime._hub import Hub
from lastword.runtime._journal import SqliteJournal

WAIT_S = 20.0


class Inbox:
    """Whoever asked, on a host's thread."""

    def __init__(self):
        self.answers: queue.SimpleQueue = queue.SimpleQueue()

    def tell(self, message, *, control=False):
        self.answers.put(message)

    def take(self, count):
        return [self.answers.get(timeout=WAIT_S) for _ in range(count)]


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal.open(tmp_path / "state")
    yield journal
    journal.close()


@pytest.fixture
def system():
    with ActorSystem("journal-test") as system:
        yield system


def test_what_piles_up_during_a_slow_sync_is_one_transaction(journal, system):
    entered, release, inbox = threading.Event(), threading.Event(), Inbox()
    groups = []

    class Spy:
        def record(self, batches, now_wall_s):
            groups.append(len(batches))
            entered.set()
            assert release.wait(WAIT_S)
            return journal.record(batches, now_wall_s)

    ref = system.spawn(JournalActor, Spy(), lambda _: None, name="journal", dispatcher="pinned")
    ref.tell(Commit(batch=saying(), reply_to=inbox, token=0))
    assert entered.wait(WAIT_S)
    for token in range(1, 101):
        ref.tell(Commit(batch=saying(), reply_to=inbox, token=token))
    release.set()
    answers = inbox.take(101)
    assert [answer.token for answer in answers] == list(range(101))
    assert [answer.recorded.last_seq for answer in answers] == list(range(1, 102))
    assert groups == [1, 100]


@pytest.mark.contract("C09")
def test_c09_a_subscriber_is_told_only_what_another_reader_can_read_already(journal, system, tmp_path):
    hub, inbox = Hub(journal), Inbox()
    ref = system.spawn(JournalActor, journal, hub.publish, name="journal", dispatcher="pinned")
    subscription = hub.subscribe(S1)
    other = SqliteJournal.open(tmp_path / "state", readonly=True)
    for token in range(50):
        ref.tell(Commit(batch=saying(), reply_to=inbox, token=token))
    for seq in range(1, 51):
        event = subscription.get(timeout_s=WAIT_S)
        assert event.seq == seq
        assert other.last_seq(S1) >= seq
    assert all(isinstance(answer, Committed) for answer in inbox.take(50))
    other.close()
    hub.close()


@pytest.mark.contract("C31")
def test_c31_a_subscriber_that_never_reads_holds_up_no_commit(journal, system):
    hub, inbox = Hub(journal), Inbox()
    stuck = [hub.subscribe(S1) for _ in range(20)]
    ref = system.spawn(JournalActor, journal, hub.publish, name="journal", dispatcher="pinned")
    for i in range(300):
        ref.tell(Commit(batch=saying(2, "s_1" if i % 2 else "s_2"), reply_to=inbox, token=i))
    assert [answer.token for answer in inbox.take(300)] == list(range(300))
    assert journal.last_seq(S2) == 300
    for subscription in stuck:
        assert subscription.get(timeout_s=0).seq == 1
        subscription.close()
    hub.close()


def test_what_it_has_taken_is_committed_before_it_ends(journal):
    inbox = Inbox()
    with ActorSystem("journal-stop") as system:
        ref = system.spawn(JournalActor, journal, lambda _: None, name="journal", dispatcher="pinned")
        for token in range(50):
            ref.tell(Commit(batch=saying(), reply_to=inbox, token=token))
        ref.stop(control=False)
        assert len(inbox.take(50)) == 50
    assert journal.last_seq(S1) == 50
