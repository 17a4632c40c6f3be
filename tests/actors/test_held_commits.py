"""While the journal's file fails: what was promised is held in order, a new message is refused, the tries are few."""

from __future__ import annotations

import pytest

from journal_samples import S1, completion, said
from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import StallDiagnosed
from lastword.actors.core.ports import Batch, Recorded
from lastword.actors.group_commit import GROUP_MAX, HOLD_PAUSES_S, Commit, CommitFailed, Committed, GroupCommitter


class Disk:
    """A journal whose file is full until told otherwise; keeps what it took, in order."""

    def __init__(self) -> None:
        self.full = True
        self.tries = 0
        self.taken: list[Batch] = []

    def refused(self):
        pass

    def record(self, batches, now_wall_s):
        self.tries += 1
        if self.full:
            raise JournalError("journal_full", "no space is left")
        self.taken += batches
        return [Recorded(last_seq=len(self.taken)) for _ in batches]


class Sender:
    def __init__(self) -> None:
        self.answers = []

    def tell(self, message, *, control=False):
        self.answers.append(message)


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def sender():
    return Sender()


@pytest.fixture
def wall():
    return [100.0]


@pytest.fixture
def committer(disk, wall):
    return GroupCommitter(disk, lambda events: None, lambda: wall[0], sleep=lambda _: pytest.fail("no pause"))


def kept(sender, token):
    return Commit(batch=Batch(session_id=S1, drafts=(said(str(token)),)), reply_to=sender, token=token, keep=True)


def new_message(sender, token):
    return Commit(batch=Batch(session_id=S1), reply_to=sender, token=token)


@pytest.mark.contract("C02")
@pytest.mark.contract("C30")
def test_c30_what_was_promised_while_the_disk_was_full_is_committed_in_its_order(committer, disk, sender, wall):
    for token in range(3):
        committer.add(kept(sender, token), more_waiting=False)
    done = Commit(batch=Batch(session_id=S1, completion=completion("t_1")), reply_to=sender, token=3, keep=True)
    committer.add(done, more_waiting=False)
    assert sender.answers == []
    disk.full, wall[0] = False, 107.0
    committer.add(kept(sender, 4), more_waiting=False)  # what comes later does not overtake
    assert disk.taken == []
    committer.try_held()
    assert [answer.token for answer in sender.answers] == [0, 1, 2, 3, 4]
    assert all(isinstance(answer, Committed) for answer in sender.answers)
    *batches, told = disk.taken
    assert [batch.completion is not None for batch in batches] == [False, False, False, True, False]
    (draft,) = told.drafts
    assert isinstance(draft.body, StallDiagnosed)
    assert (draft.body.waits_for, draft.body.elapsed_s) == ("the journal's file", 7.0)


@pytest.mark.contract("C21")
def test_c21_a_new_message_is_refused_at_once_and_tries_the_disk_for_all(committer, disk, sender):
    committer.add(kept(sender, 0), more_waiting=False)
    committer.add(new_message(sender, 1), more_waiting=False)
    (refused,) = sender.answers
    assert isinstance(refused, CommitFailed)
    assert (refused.token, refused.error.kind) == (1, "journal_full")
    assert committer.held == 1
    disk.full = False
    committer.add(new_message(sender, 2), more_waiting=False)
    assert [answer.token for answer in sender.answers[1:]] == [0, 2]
    assert committer.held == 0


def test_the_tries_grow_rarer_and_what_is_held_beyond_one_group_keeps_its_order(committer, disk, sender):
    count = GROUP_MAX * 2 + 10
    for token in range(count):
        committer.add(kept(sender, token), more_waiting=False)
    assert disk.tries == 1, "what is held is not tried again for each newcomer"
    pauses = []
    for _ in range(len(HOLD_PAUSES_S) + 2):
        pauses.append(committer.try_again_in_s)
        committer.try_held()
    assert pauses == [*HOLD_PAUSES_S, HOLD_PAUSES_S[-1], HOLD_PAUSES_S[-1]]
    disk.full = False
    committer.try_held()
    assert [answer.token for answer in sender.answers] == list(range(count))
    assert committer.try_again_in_s is None


def test_a_closed_journal_holds_nothing_back(sender):
    class Closed:
        def refused(self):
            pass

        def record(self, batches, now_wall_s):
            raise JournalError("journal_closed", "the journal is closed")

    committer = GroupCommitter(Closed(), lambda events: None, lambda: 1.0)
    committer.add(kept(sender, 0), more_waiting=False)
    (answer,) = sender.answers
    assert answer.error.kind == "journal_closed"
