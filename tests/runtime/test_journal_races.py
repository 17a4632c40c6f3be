"""Exactly once and gapless, whoever comes at the same time; and against a model, whatever fails in between."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from journal_samples import S1, commit, completion, message, ok, said, saying, turn
from lastword.actors.core.errors import JournalError
from lastword.actors.core.ids import MessageId, SessionId, TurnId
from lastword.actors.core.ports import Batch, Recorded
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._journal_readers import READERS_MAX

WAIT_S = 20.0


def together(*calls) -> list[BaseException]:
    """Run the calls at the same time, each in a thread; what they raised."""
    start = threading.Barrier(len(calls))
    raised: list[BaseException] = []

    def run(call):
        start.wait(WAIT_S)
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    return raised


@pytest.mark.contract("C02")
def test_c02_eight_threads_racing_over_the_same_turns_give_each_turn_one_winner(tmp_path):
    journal = SqliteJournal.open(tmp_path, durability="process")
    turns, wins, lock = 100, Counter(), threading.Lock()

    def settle(who: int):
        for i in range(turns):
            if commit(journal, Batch(session_id=S1, completion=completion(f"t_{i}", answer=str(who)))).won:
                with lock:
                    wins[f"t_{i}"] += 1

    assert together(*[lambda who=who: settle(who) for who in range(8)]) == []
    assert wins == Counter({f"t_{i}": 1 for i in range(turns)})
    assert [event.seq for event in journal.events(S1)] == list(range(1, turns + 1))
    journal.close()


@pytest.mark.contract("C20")
def test_c20_racing_submissions_of_one_message_id_are_accepted_once(tmp_path):
    journal = SqliteJournal.open(tmp_path, durability="process")
    fresh, lock = Counter(), threading.Lock()

    def submit():
        for i in range(50):
            if commit(journal, Batch(session_id=S1, accept=message(f"m_{i}"), drafts=(said(),))).existing is None:
                with lock:
                    fresh[i] += 1

    assert together(*[submit] * 4) == []
    assert fresh == Counter(dict.fromkeys(range(50), 1))
    assert journal.last_seq(S1) == 50
    journal.close()


@pytest.mark.contract("C30")
def test_c30_readers_of_many_threads_see_only_whole_gapless_prefixes(tmp_path):
    journal = SqliteJournal.open(tmp_path, durability="process")
    done = threading.Event()

    def write():
        try:
            for i in range(300):
                commit(journal, saying(3, start=3 * i))
        finally:
            done.set()

    def read():
        while not done.is_set():
            seqs = [event.seq for event in journal.events(S1, limit=10_000)]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) % 3 == 0

    assert together(write, *[read] * (2 * READERS_MAX)) == []
    assert journal.last_seq(S1) == 900
    journal.close()


@pytest.mark.contract("C61")
def test_c61_closing_under_readers_ends_them_with_a_typed_error(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    commit(journal, saying(50))
    reading = threading.Event()

    def read():
        while True:
            journal.events(S1)
            reading.set()

    def close():
        assert reading.wait(WAIT_S)
        journal.close()

    raised = together(close, *[read] * 6)
    assert [getattr(error, "kind", error) for error in raised] == ["journal_closed"] * 6


class JournalMachine(RuleBasedStateMachine):
    """The journal against three dictionaries, with groups that fail at a random statement."""

    sessions = st.sampled_from(["s_a", "s_b"])
    keys = st.sampled_from(["", "", "k1", "k2", "k3"])
    batches = st.lists(
        st.tuples(
            sessions,
            st.lists(keys, max_size=3),
            st.none() | st.integers(0, 5),  # completion of that turn
            st.none() | st.integers(0, 5),  # acceptance of that message
            st.booleans(),  # spoiled by itself
        ),
        min_size=1,
        max_size=4,
    )

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.journal = SqliteJournal.open(self.folder.name, durability="process")
        self.events: dict[str, list[tuple[str, str]]] = {"s_a": [], "s_b": []}
        self.known: set[tuple[str, str]] = set()
        self.completions: dict[str, str] = {}
        self.messages: dict[str, int] = {}
        self.stamp = 0

    def build(self, plan) -> Batch:
        session_id, keys, turn_no, message_no, spoiled = plan
        self.stamp += 1
        drafts = [said(str(self.stamp), once=key) for key in keys]
        if spoiled:
            drafts.append(said("\ud800"))
        return Batch(
            session_id=SessionId(session_id),
            drafts=tuple(drafts),
            completion=None
            if turn_no is None
            else completion(f"t_{session_id}{turn_no}", session_id, answer=str(self.stamp)),
            turns=() if turn_no is None else (turn(f"t_{session_id}{turn_no}", session_id),),
            accept=None if message_no is None else message(f"m_{session_id}{message_no}", session_id),
        )

    def expect(self, batch: Batch, spoiled: bool) -> int | None:
        """Apply it to the model; the last seq, or None where it is refused."""
        session_id = batch.session_id
        accept, done = batch.accept, batch.completion
        if accept is not None and accept.message_id in self.messages:
            return len(self.events[session_id])
        if spoiled:
            return None
        for draft in batch.drafts:
            if draft.once and (session_id, draft.once) in self.known:
                continue
            if draft.once:
                self.known.add((session_id, draft.once))
            self.events[session_id].append(("assistant_message", draft.body.text))
        if done is not None and done.turn_id not in self.completions:
            self.completions[done.turn_id] = done.answer
            self.events[session_id].append(("unified_completion", done.answer))
        if accept is not None:
            self.messages[accept.message_id] = len(self.events[session_id])
        return len(self.events[session_id])

    @rule(plans=batches)
    def record(self, plans):
        batches = [self.build(plan) for plan in plans]
        results = self.journal.record(batches, 1.0)
        for plan, batch, result in zip(plans, batches, results, strict=True):
            expected = self.expect(batch, plan[4])
            assert (result.last_seq if isinstance(result, Recorded) else None) == expected

    @rule(plans=batches, statements=st.integers(0, 40))
    def record_on_a_failing_file(self, plans, statements):
        """The write fails after so many steps of the database machine: the group is there whole or not at all.

        Whole is possible too: an interrupt can hit the COMMIT when it is carried out, but not yet answered.
        """
        batches = [self.build((*plan[:4], False)) for plan in plans]
        left = [statements]

        def interrupt():
            left[0] -= 1
            return left[0] < 0

        size = self.size()
        self.journal.record([], 1.0)  # where even the rollback failed, the next commit makes a new connection
        db = self.journal._db
        db.set_progress_handler(interrupt, 10)
        try:
            results = self.journal.record(batches, 1.0)
        except JournalError:
            assert left[0] < 0
            if self.size() != size:
                for batch in batches:
                    self.expect(batch, spoiled=False)
        else:
            for batch, result in zip(batches, results, strict=True):
                assert ok(result).last_seq == self.expect(batch, spoiled=False)
        if self.journal._db is db:
            db.set_progress_handler(None, 0)

    def size(self) -> list[int]:
        found = [self.journal.last_seq(SessionId(session_id)) for session_id in self.events]
        return found + [len(self.journal.messages(SessionId(session_id))) for session_id in self.events]

    @rule()
    def reopen(self):
        self.journal.close()
        self.journal = SqliteJournal.open(self.folder.name, durability="process")

    @invariant()
    def agrees_with_the_model(self):
        for session_id, expected in self.events.items():
            events = self.journal.events(SessionId(session_id), limit=10_000)
            assert [event.seq for event in events] == list(range(1, len(expected) + 1))
            found = [(e.type, getattr(e.body, "text", None) or e.body.completion.answer) for e in events]
            assert found == expected
        for turn_id, answer in self.completions.items():
            assert self.journal.completion(TurnId(turn_id)).answer == answer
            assert self.journal.turn(TurnId(turn_id)).state == "settled"
        for message_id, seq in self.messages.items():
            assert self.journal.message(MessageId(message_id)).accepted_seq == seq

    def teardown(self):
        self.journal.close()
        self.folder.cleanup()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
