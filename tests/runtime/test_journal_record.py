"""What a commit means: exactly once, in order, all or nothing."""

from __future__ import annotations

import json
import sqlite3

import pytest

from journal_samples import S1, S2, commit, completion, message, ok, said, saying, session, turn
from lastword.actors.core.errors import JournalError
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.ports import Batch, Cursor, Journal, Lines, Recorded
from lastword.runtime._journal import SqliteJournal


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal.open(tmp_path / "state")
    yield journal
    journal.close()


def test_it_is_the_port(journal):
    port: Journal = journal
    assert port.sessions() == []


@pytest.mark.contract("C02")
def test_c02_the_first_completion_of_a_turn_stands_and_the_second_writes_nothing(journal):
    first = commit(journal, Batch(session_id=S1, completion=completion("t_1")), at=5.0)
    late = completion("t_1", status="failed")
    second = commit(journal, Batch(session_id=S1, completion=late, drafts=(said(),)), at=6.0)
    assert first.won
    assert first.completion is not None
    assert first.completion.times.committed_at == 5.0
    assert not second.won
    assert second.completion == first.completion == journal.completion(TurnId("t_1"))
    assert [event.type for event in journal.events(S1)] == ["unified_completion", "assistant_message"]
    assert [event.seq for event in journal.events(S1)] == [1, 2]


@pytest.mark.contract("C02")
def test_c02_two_completions_of_one_turn_in_one_group_have_one_winner(journal):
    both = [Batch(session_id=S1, completion=completion("t_1", answer=answer)) for answer in ("a", "b")]
    results = [ok(result) for result in journal.record(both, 5.0)]
    assert [result.won for result in results] == [True, False]
    assert results[1].completion is not None
    assert results[1].completion.answer == "a"
    assert journal.last_seq(S1) == 1


@pytest.mark.contract("C09")
def test_c09_row_and_event_hold_the_same_stamped_completion_and_the_turn_is_settled(journal):
    commit(journal, Batch(session_id=S1, turns=(turn("t_1", state="running", native_turn="n1"),)))
    done = completion("t_1", joined=(MessageId("m_2"),))
    recorded = commit(journal, Batch(session_id=S1, drafts=(said(),), completion=done), at=7.5)
    (_, event) = journal.events(S1)
    assert event == recorded.events[-1]
    assert event.body.completion == journal.completion(TurnId("t_1")) == recorded.completion
    assert event.body.completion.times.committed_at == event.at == 7.5
    row = journal.turn(TurnId("t_1"))
    assert (row.state, row.native_turn) == ("settled", "n1")
    assert journal.turns(S1, unsettled=True) == []


@pytest.mark.contract("C02")
def test_c02_a_settled_turn_never_opens_again(journal):
    commit(journal, Batch(session_id=S1, completion=completion("t_1")))
    commit(journal, Batch(session_id=S1, turns=(turn("t_1", state="running"),)))
    assert [row.state for row in journal.turns(S1)] == ["settled"]


@pytest.mark.contract("C20")
def test_c20_the_same_message_id_again_applies_nothing_of_its_batch(journal):
    batch = Batch(session_id=S1, session=session(), accept=message("m_1"), turns=(turn("t_1"),), drafts=(said(),))
    first = commit(journal, batch, at=3.0)
    again = Batch(
        session_id=S1,
        session=session(native_session="other"),
        accept=message("m_1", text="other"),
        turns=(turn("t_2"),),
        drafts=(said(),),
    )
    second = commit(journal, again, at=4.0)
    assert first.existing is None
    assert second.existing == journal.message(MessageId("m_1"))
    assert (second.existing.text, second.existing.accepted_at, second.existing.accepted_seq) == ("hello", 3.0, 1)
    assert second.events == ()
    assert second.last_seq == journal.last_seq(S1) == 1
    assert journal.turn(TurnId("t_2")) is None
    assert journal.session(S1).native_session == "n"


def test_accepted_seq_is_the_last_seq_after_the_batch_even_where_a_draft_was_known(journal):
    commit(journal, Batch(session_id=S1, drafts=(said(once="k"),)))
    commit(journal, Batch(session_id=S1, accept=message("m_1"), drafts=(said(once="k"), said())))
    assert journal.message(MessageId("m_1")).accepted_seq == journal.last_seq(S1) == 2
    commit(journal, Batch(session_id=S1, messages=(message("m_1", state="bound"),)))
    row = journal.message(MessageId("m_1"))
    assert (row.state, row.accepted_seq, row.accepted_at) == ("bound", 2, 100.0)


@pytest.mark.contract("C17")
def test_c17_a_replayed_draft_with_a_known_key_is_left_out_and_takes_no_number(journal):
    commit(journal, Batch(session_id=S1, drafts=(said("a", once="1"), said("b", once="2"))))
    replay = commit(journal, Batch(session_id=S1, drafts=(said("a", once="1"), said("c", once="3"), said("d"))))
    other = commit(journal, Batch(session_id=S2, drafts=(said("a", once="1"),)))
    assert [(event.seq, event.body.text) for event in replay.events] == [(3, "c"), (4, "d")]
    assert len(other.events) == 1
    assert [event.body.text for event in journal.events(S1)] == ["a", "b", "c", "d"]


def test_a_bad_batch_takes_no_other_of_its_group_with_it(journal):
    crossing = Batch(session_id=S1, completion=completion("t_9", session_id="s_2"), drafts=(said(),))
    unencodable = Batch(session_id=S1, drafts=(said("fine"), said("\ud800")))
    homeless = Batch(session_id=S1, drafts=(said(),), cursor=Cursor(path="/t", offset=1))
    group = [saying(2), crossing, unencodable, homeless, saying(1), Batch(session_id=S1, completion=completion("t_1"))]
    results = journal.record(group, 1.0)
    assert [isinstance(result, Recorded) for result in results] == [True, False, False, False, True, True]
    assert [event.seq for event in journal.events(S1)] == [1, 2, 3, 4]
    assert journal.completion(TurnId("t_9")) is None


@pytest.mark.contract("C62")
def test_c62_a_refusal_tells_no_text_of_the_batch(journal):
    (alone,) = journal.record([Batch(session_id=S1, drafts=(said("fine"), said("secret\ud800")))], 1.0)
    assert isinstance(alone, JournalError)
    assert "secret" not in str(alone)
    assert journal.last_seq(S1) == 0
    assert commit(journal, saying()).last_seq == 1


def test_cursor_and_session_row_do_not_wipe_each_other(journal):
    commit(journal, Batch(session_id=S1, session=session()))
    place = Cursor(path="/t.jsonl", offset=99, inode=3, device=4)
    commit(journal, Batch(session_id=S1, cursor=place))
    commit(journal, Batch(session_id=S1, session=session(state="closed", closed_at=2.0)))
    assert journal.session(S1) == session(state="closed", closed_at=2.0, cursor=place)
    assert journal.sessions() == [journal.session(S1)]


def test_open_messages_are_those_still_owed_an_end(journal):
    rows = (
        message("m_1", state="bound", turn_id=TurnId("t_1")),
        message("m_2", state="joined", turn_id=TurnId("t_2")),
        message("m_3", state="undelivered"),
        message("m_4", state="bound", turn_id=TurnId("t_2")),
        message("m_5"),
    )
    for row in rows:
        commit(journal, Batch(session_id=S1, accept=row))
    commit(journal, Batch(session_id=S1, completion=completion("t_1"), turns=(turn("t_1"), turn("t_2"))))
    assert [row.message_id for row in journal.messages(S1)] == ["m_1", "m_2", "m_3", "m_4", "m_5"]
    assert [row.message_id for row in journal.open_messages(S1)] == ["m_2", "m_4", "m_5"]


def test_events_are_read_by_seq_with_a_limit_and_by_turn(journal):
    drafts = tuple(said(str(i), turn_id="t_1" if i % 2 else None) for i in range(10))
    commit(journal, Batch(session_id=S1, drafts=drafts, completion=completion("t_1")))
    assert [event.seq for event in journal.events(S1, after=3, limit=4)] == [4, 5, 6, 7]
    assert [event.seq for event in journal.turn_events(TurnId("t_1"))] == [2, 4, 6, 8, 10, 11]
    assert journal.completions(S1) == [journal.completion(TurnId("t_1"))]


def test_any_sqlite_tool_can_read_the_bodies(journal):
    commit(journal, Batch(session_id=S1, session=session(), completion=completion("t_1", answer="42 ✓")))
    db = sqlite3.connect(journal.path)
    (body,) = db.execute("SELECT body FROM completion WHERE turn_id = 't_1'").fetchone()
    db.close()
    assert json.loads(body)["answer"] == "42 ✓"


def test_a_closed_journal_says_so(journal):
    journal.close()
    journal.close()
    for call in (lambda: journal.record([saying()], 1.0), lambda: journal.events(S1), journal.sessions):
        with pytest.raises(JournalError) as caught:
            call()
        assert caught.value.kind == "journal_closed"


def test_what_was_recorded_is_there_after_reopening(tmp_path):
    for start in range(3):
        journal = SqliteJournal.open(tmp_path / "state")
        commit(journal, saying(2, start=start * 2))
        journal.close()
    journal = SqliteJournal.open(tmp_path / "state")
    assert [event.body.text for event in journal.events(S1)] == ["0", "1", "2", "3", "4", "5"]
    journal.close()


# --- the record of conversations that have no file --------------------------------------------------------------------


def lines(*texts: str, conversation: str = "conv_1") -> Batch:
    return Batch(session_id=S1, lines=Lines(conversation=conversation, lines=tuple(text.encode() for text in texts)))


def test_lines_are_read_like_a_file_from_any_offset_and_in_any_piece(journal):
    commit(journal, lines("one", "zwei \u00e4"))
    commit(journal, lines("", conversation="conv_2"))
    commit(journal, lines("three"))
    whole = "one\nzwei \u00e4\nthree\n".encode()
    assert journal.lines("conv_1", 0, 1000) == (whole, len(whole))
    assert journal.lines("conv_2", 0, 1000) == (b"\n", 1)
    assert journal.lines("conv_3", 0, 1000) == (b"", 0)
    for offset in range(len(whole) + 2):
        for size in (1, 3, 9, 100):
            assert journal.lines("conv_1", offset, size) == (whole[offset : offset + size], len(whole))


@pytest.mark.contract("C09")
def test_c09_lines_are_committed_with_their_batch_or_not_at_all(journal):
    bad = lines("two\nlines")
    good, refused = lines("good"), journal.record([lines("first"), bad, lines("last")], 1.0)[1]
    assert isinstance(refused, JournalError)
    commit(journal, good)
    assert journal.lines("conv_1", 0, 100)[0] == b"first\nlast\ngood\n"
