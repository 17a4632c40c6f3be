"""Group commit: one transaction for many; commit, then publish, then answer; and nothing can break the writer."""

from __future__ import annotations

import pytest

from journal_samples import S1, commit, completion, said, saying
from lastword.actors.core.errors import ActorError, JournalError
from lastword.actors.core.ports import Batch, Recorded
from lastword.actors.group_commit import (
    GROUP_CHARS_MAX,
    GROUP_MAX,
    RETRY_PAUSES_S,
    Commit,
    CommitFailed,
    Committed,
    GroupCommitter,
)
from lastword.runtime._journal import SqliteJournal


class Told:
    """Whoever asked; writes what it is told into the common log."""

    def __init__(self, log):
        self.log = log

    def tell(self, message, *, control=False):
        self.log.append(message)


class StubJournal:
    """Answers as told: a list of what each call does."""

    def __init__(self, *calls):
        self.calls, self.groups = list(calls), []

    def refused(self):
        pass

    def record(self, batches, now_wall_s):
        self.groups.append(len(batches))
        call = self.calls.pop(0) if self.calls else None
        if isinstance(call, BaseException):
            raise call
        return [Recorded(last_seq=1) for _ in batches]


def passing() -> JournalError:
    return JournalError("journal_failed", "busy", retryable=True)


def full() -> JournalError:
    return JournalError("journal_failed", "no space")


@pytest.fixture
def log():
    return []


def committer(journal, log, **options):
    return GroupCommitter(journal, lambda events: log.append(("published", len(events))), lambda: 1.0, **options)


@pytest.mark.contract("C09")
def test_c09_durable_then_published_then_answered_in_the_order_asked(tmp_path, log):
    journal = SqliteJournal.open(tmp_path)
    seen_at_publish = []
    writer = GroupCommitter(
        journal, lambda events: (seen_at_publish.append(journal.last_seq(S1)), log.append("published")), lambda: 1.0
    )
    for token in range(4):
        done = Batch(session_id=S1, completion=completion(f"t_{token}"))
        writer.add(Commit(batch=done, reply_to=Told(log), token=token), more_waiting=token < 3)
    assert log[:4] == ["published"] * 4
    assert seen_at_publish == [4] * 4
    assert [answer.token for answer in log[4:]] == [0, 1, 2, 3]
    assert all(isinstance(answer, Committed) and answer.recorded.won for answer in log[4:])
    assert writer.stats.groups == 1
    journal.close()


def test_a_lone_batch_waits_for_nobody_and_a_group_is_bounded(log):
    journal = StubJournal()
    writer = committer(journal, log)
    writer.add(Commit(batch=saying()), more_waiting=False)
    for _ in range(GROUP_MAX + 10):
        writer.add(Commit(batch=saying()), more_waiting=True)
    large = Batch(session_id=S1, drafts=(said("x" * (GROUP_CHARS_MAX // 2)),))
    for _ in range(3):
        writer.add(Commit(batch=large), more_waiting=True)
    writer.flush()
    writer.flush()
    assert journal.groups == [1, GROUP_MAX, 11, 1, 1]


def test_a_bad_batch_fails_alone(tmp_path, log):
    journal = SqliteJournal.open(tmp_path)
    writer = committer(journal, log)
    bad = Batch(session_id=S1, drafts=(said("\ud800"),))
    for token, batch in enumerate((saying(), bad, saying())):
        writer.add(Commit(batch=batch, reply_to=Told(log), token=token), more_waiting=token < 2)
    answers = [entry for entry in log if not isinstance(entry, tuple)]
    assert [type(answer) for answer in answers] == [Committed, CommitFailed, Committed]
    assert journal.last_seq(S1) == 2
    journal.close()


def test_a_passing_failure_is_tried_again_a_bounded_number_of_times(log):
    slept = []
    once = StubJournal(passing(), passing())
    writer = committer(once, log, sleep=slept.append)
    writer.add(Commit(batch=saying(), reply_to=Told(log), token=1), more_waiting=False)
    assert isinstance(log[-1], Committed)
    assert slept == list(RETRY_PAUSES_S[:2])

    always = StubJournal(*[passing() for _ in range(10)])
    writer = committer(always, log, sleep=slept.append)
    writer.add(Commit(batch=saying(), reply_to=Told(log), token=2), more_waiting=False)
    assert isinstance(log[-1], CommitFailed)
    assert len(always.groups) == len(RETRY_PAUSES_S) + 1
    assert sum(RETRY_PAUSES_S) <= 1.0


def test_a_full_disk_answers_at_once_and_the_next_group_is_tried_afresh(log):
    journal = StubJournal(full(), full())
    writer = committer(journal, log, sleep=lambda _: pytest.fail("no pause for a full disk"))
    for token in range(3):
        writer.add(Commit(batch=saying(), reply_to=Told(log), token=token), more_waiting=False)
    assert [type(answer) for answer in log] == [CommitFailed, CommitFailed, Committed]


@pytest.mark.contract("C31")
def test_c31_whatever_a_subscriber_or_an_asker_raises_the_writer_goes_on(tmp_path, log):
    journal = SqliteJournal.open(tmp_path)

    def publish(_):
        raise RuntimeError("a subscriber's trouble")

    class Gone:
        def tell(self, message, *, control=False):
            raise RuntimeError("gone")

    writer = GroupCommitter(journal, publish, lambda: 1.0)
    writer.add(Commit(batch=saying(), reply_to=Gone()), more_waiting=True)
    writer.add(Commit(batch=saying(), reply_to=Told(log), token="after"), more_waiting=False)
    assert log[-1].token == "after"
    assert (writer.stats.publish_failures, writer.stats.answers_lost) == (2, 1)
    assert commit(journal, saying()).last_seq == 3
    journal.close()


def test_an_answer_to_a_full_mailbox_goes_by_the_control_lane(log):
    class Full(Told):
        def tell(self, message, *, control=False):
            if not control:
                raise ActorError("mailbox_full", "full")
            super().tell(message)

    writer = committer(StubJournal(), log)
    writer.add(Commit(batch=saying(), reply_to=Full(log), token=1), more_waiting=False)
    assert isinstance(log[-1], Committed)
    assert writer.stats.answers_lost == 0


def test_a_bug_in_the_journal_is_an_answer_not_a_death(log):
    writer = committer(StubJournal(MemoryError()), log)
    writer.add(Commit(batch=saying(), reply_to=Told(log), token=1), more_waiting=False)
    assert isinstance(log[-1], CommitFailed)
    assert log[-1].error.kind == "journal_failed"
