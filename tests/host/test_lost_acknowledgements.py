"""A failing disk commits and says that it did not: nothing is lost, nothing told twice (C02, C09, C20)."""

from __future__ import annotations

import pytest

from host_kit import Rig, away, completions, kinds
from kit_system import until
from lastword import JournalError
from lastword.runtime._journal import SqliteJournal


def lose(monkeypatch: pytest.MonkeyPatch, when, *, times: int, retryable: bool) -> list[int]:
    """The first groups that have such a batch are committed and answered by an error."""
    left, lost = [times], []
    real = SqliteJournal.record

    def record(journal, batches, now):
        done = real(journal, batches, now)
        if left[0] and any(when(batch) for batch in batches):
            left[0] -= 1
            lost.append(len(batches))
            raise JournalError("journal_failed", "the acknowledgement was lost", retryable=retryable)
        return done

    monkeypatch.setattr(SqliteJournal, "record", record)
    return lost


@pytest.mark.contract("C20")
@pytest.mark.contract("C02")
@pytest.mark.parametrize("retryable", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_c20_a_message_whose_commit_was_done_unheard_is_accepted_and_delivered_once(
    make, monkeypatch, times, retryable
):
    rig: Rig = make()
    session = rig.session()
    cli = rig.ready(session)
    lost = lose(monkeypatch, lambda batch: batch.accept is not None, times=times, retryable=retryable)
    for number in range(3):
        try:
            done = session.run(f"go {number}", message_id=f"m-{number}")
        except JournalError:
            done = session.run(f"go {number}", message_id=f"m-{number}")
        assert done.answer == f"echo: go {number}"
    assert lost
    assert [done.answer for done in completions(rig, session)] == ["echo: go 0", "echo: go 1", "echo: go 2"]
    assert cli.keys.count("<paste>") == 3
    assert kinds(rig, session).count("message_accepted") == 3


@pytest.mark.contract("C02")
@pytest.mark.contract("C09")
@pytest.mark.parametrize("times", [1, 3])
def test_c02_a_completion_whose_commit_was_done_unheard_is_told_once(make, monkeypatch, clock, times):
    rig: Rig = make(clock=clock)
    session = rig.session()
    rig.ready(session)
    lose(monkeypatch, lambda batch: batch.completion is not None, times=times, retryable=True)
    waiting = away(session.run, "go")
    until(lambda: (clock.advance(1), waiting.done())[1])
    done = waiting.result()
    assert completions(rig, session) == [done]
    assert kinds(rig, session).count("unified_completion") == 1
    waiting = away(session.run, "and on")
    until(lambda: (clock.advance(1), waiting.done())[1])
    assert waiting.result().answer == "echo: and on"
