"""A state folder that this user may not write, or not even read: readers say so on one line, and read what can be read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from command_kit import WAIT_S, Place
from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import Batch, SessionRow
from lastword.runtime._journal import SqliteJournal

CAPABILITIES = "-dac_override,-dac_read_search,-fowner"


def as_anybody(place: Place, *words: str) -> tuple[int, str, str]:
    """The command without root's right to every file."""
    argv = place.argv(*words)
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root, and no setpriv: every file can be read")
        argv = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}", *argv]
    done = subprocess.run(
        argv, env=place.env, cwd=place.cwd, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def filled(place: Place) -> Iterator[Place]:
    journal = SqliteJournal.open(place.state)
    row = SessionRow(
        session_id=SessionId("s_1"), provider="claude-code", transport="tmux", cwd=str(place.cwd), native_session="n"
    )
    journal.record([Batch(session_id=SessionId("s_1"), session=row)], 1.0)
    journal.close()
    yield place
    place.state.chmod(0o700)


READERS = (("sessions",), ("events", "s_1"), ("explain", "t_x"), ("send", "s_1", "hi"), ("top", "--once"))


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_a_folder_that_cannot_be_read_is_told_on_one_line(filled: Place, words: tuple[str, ...]) -> None:
    filled.state.chmod(0)
    _, out, err = as_anybody(filled, *words)
    assert "Traceback" not in err
    assert "Permission denied" in out + err
    assert "journal_failed" in out + err


def test_doctor_tells_of_a_folder_that_cannot_be_read(filled: Place) -> None:
    filled.state.chmod(0)
    code, out, err = as_anybody(filled, "doctor")
    assert (code, "Traceback" in err) == (1, False)
    assert "Permission denied" in out


def test_a_journal_that_was_closed_is_read_where_nothing_can_be_written(filled: Place) -> None:
    told = filled.lastword("sessions")[1]
    for left in ("journal.db-wal", "journal.db-shm"):
        (filled.state / left).unlink(missing_ok=True)
    filled.state.chmod(0o500)
    assert as_anybody(filled, "sessions")[:2] == (0, told)
    assert as_anybody(filled, "events", "s_1")[0] == 0
    assert sorted(path.name for path in filled.state.iterdir()) == ["journal.db", "journal.lock"]


def test_a_journal_whose_log_is_not_folded_in_is_not_read_without_it(filled: Place) -> None:
    (filled.state / "journal.db-shm").unlink(missing_ok=True)
    (filled.state / "journal.db-wal").write_bytes(b"a log")
    filled.state.chmod(0o500)
    code, out, err = as_anybody(filled, "sessions")
    assert (code, out) == (2, "")
    assert "its write-ahead log is not folded in" in err
    assert "copy the whole folder" in err
