"""The file: permissions, the lock, schema versions, and every way in which a disk says no."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from journal_samples import S1, commit, said, saying, session
from kit_system import until
from lastword.actors.core.errors import JournalError
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.ports import Batch
from lastword.runtime import _journal_file
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._migrations import SCHEMA_VERSION

V1 = Path(__file__).parent.parent / "fixtures" / "journal_v1.sql"
OLD = SessionId("s_old")


def refusal(folder, **options) -> JournalError:
    with pytest.raises(JournalError) as caught:
        SqliteJournal.open(folder, **options)
    assert caught.value.remedy
    return caught.value


def file_of(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(folder / "journal.db", isolation_level=None)
    db.executescript(script)
    db.close()
    return folder


def schema(path: Path) -> set[tuple[str, str, str]]:
    db = sqlite3.connect(path)
    rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    db.close()
    return {(kind, name, " ".join(sql.split())) for kind, name, sql in rows}


# --- versions ------------------------------------------------------------------------------------------------


def test_an_older_file_is_brought_up_to_date_with_its_rows(tmp_path):
    folder = file_of(tmp_path / "state", V1.read_text())
    journal = SqliteJournal.open(folder)
    assert [event.seq for event in journal.turn_events(TurnId("t_old"))] == [1, 2]
    assert journal.completion(TurnId("t_old")).answer == "yes"
    assert [row.turn_id for row in journal.turns(OLD, unsettled=True)] == ["t_open"]
    assert journal.session(OLD).cursor.offset == 42
    assert commit(journal, Batch(session_id=OLD, drafts=(said(once="a:1"), said()))).last_seq == 3
    journal.close()
    SqliteJournal.open(folder).close()


def test_a_migrated_file_has_the_schema_of_a_new_one(tmp_path):
    SqliteJournal.open(file_of(tmp_path / "old", V1.read_text())).close()
    SqliteJournal.open(tmp_path / "new").close()
    assert schema(tmp_path / "old" / "journal.db") == schema(tmp_path / "new" / "journal.db")


def test_a_step_that_fails_half_way_leaves_the_old_version_whole(tmp_path, monkeypatch):
    folder = file_of(tmp_path / "state", V1.read_text())
    before = schema(folder / "journal.db")
    broken = [(2, "CREATE TABLE half (x); CREATE TABLE half (x);")]
    with monkeypatch.context() as patch:
        patch.setattr(_journal_file, "steps_from", lambda _: broken)
        refusal(folder)
    assert schema(folder / "journal.db") == before
    SqliteJournal.open(folder).close()


def test_a_newer_file_is_refused_and_left_alone(tmp_path):
    folder = tmp_path / "state"
    SqliteJournal.open(folder).close()
    file_of(folder, f"UPDATE meta SET value = '{SCHEMA_VERSION + 1}' WHERE key = 'schema_version'")
    content = (folder / "journal.db").read_bytes()
    for readonly in (False, True):
        assert refusal(folder, readonly=readonly).kind == "journal_newer"
    assert (folder / "journal.db").read_bytes() == content


# --- places that will not do ---------------------------------------------------------------------------------


def test_a_folder_below_a_regular_file_is_unwritable(tmp_path):
    (tmp_path / "plain").write_text("x")
    assert refusal(tmp_path / "plain" / "state").kind == "journal_unwritable"
    assert refusal(tmp_path / "plain").kind == "journal_unwritable"


def test_a_directory_in_the_place_of_the_file_is_unwritable(tmp_path):
    (tmp_path / "journal.db").mkdir()
    assert refusal(tmp_path).kind == "journal_unwritable"


def test_a_read_only_file_system_is_unwritable(tmp_path, monkeypatch):
    real = os.open

    def refusing(path, flags, *rest, **named):
        if str(path).endswith("journal.lock"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refusing)
    error = refusal(tmp_path / "state")
    assert error.kind == "journal_unwritable"
    assert "Read-only" in error.reason


def test_a_file_that_is_no_database_is_corrupt_and_the_lock_is_free_again(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"this is no database at all, but long enough to look at" * 100)
    for readonly in (False, True, False):
        assert refusal(tmp_path, readonly=readonly).kind == "journal_corrupt"
    assert b"no database" in (tmp_path / "journal.db").read_bytes()


def test_another_programs_database_is_refused(tmp_path):
    assert refusal(file_of(tmp_path, "CREATE TABLE theirs (x)")).kind == "journal_corrupt"


def test_a_damaged_page_is_told_as_corrupt(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    commit(journal, saying(500))
    journal.close()
    path = tmp_path / "journal.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))

    def read():
        journal = SqliteJournal.open(tmp_path)
        try:
            journal.events(S1)
        finally:
            journal.close()

    with pytest.raises(JournalError) as caught:
        read()
    assert caught.value.kind == "journal_corrupt"


def test_an_event_that_does_not_decode_is_told_as_corrupt(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    commit(journal, saying())
    journal.close()
    file_of(tmp_path, """UPDATE event SET body = '{"type":"of_the_future"}'""")
    journal = SqliteJournal.open(tmp_path)
    with pytest.raises(JournalError) as caught:
        journal.events(S1)
    assert caught.value.kind == "journal_corrupt"
    journal.close()


# --- one writer ----------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_the_holders_pid(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    script = (
        "import sys; from lastword.runtime._journal import SqliteJournal\n"
        "from lastword.actors.core.errors import JournalError\n"
        "try: SqliteJournal.open(sys.argv[1])\n"
        "except JournalError as error: print(error.kind, error.reason)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=20, check=True
    )
    assert run.stdout.startswith("journal_locked "), run.stderr
    assert f"process {os.getpid()}" in run.stdout
    assert refusal(tmp_path).kind == "journal_locked"
    journal.close()
    SqliteJournal.open(tmp_path).close()


def test_a_reader_of_another_process_reads_while_a_writer_writes_and_leaves_no_trace(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    commit(journal, Batch(session_id=S1, session=session(), drafts=(said("before"),)))
    lock = (tmp_path / "journal.lock").read_bytes()
    script = (
        "import sys; from lastword.runtime._journal import SqliteJournal\n"
        "journal = SqliteJournal.open(sys.argv[1], readonly=True)\n"
        "print(journal.last_seq('s_1'), flush=True); sys.stdin.readline()\n"
        "print(journal.last_seq('s_1'), flush=True); journal.close()\n"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert reader.stdout.readline() == "1\n"
        commit(journal, saying(4))
        out, _ = reader.communicate("\n", timeout=20)
    finally:
        reader.kill()
        reader.wait()
    assert out == "5\n"
    assert (tmp_path / "journal.lock").read_bytes() == lock
    journal.close()


def test_a_read_only_journal_cannot_record_and_makes_nothing(tmp_path):
    assert refusal(tmp_path / "none", readonly=True).kind == "journal_failed"
    assert not (tmp_path / "none").exists()
    SqliteJournal.open(tmp_path / "state").close()
    (tmp_path / "state" / "journal.lock").unlink()
    journal = SqliteJournal.open(tmp_path / "state", readonly=True)
    with pytest.raises(JournalError) as caught:
        journal.record([saying()], 1.0)
    assert caught.value.kind == "journal_unwritable"
    journal.close()
    assert not (tmp_path / "state" / "journal.lock").exists()


def test_an_older_file_is_not_migrated_by_a_reader(tmp_path):
    folder = file_of(tmp_path, V1.read_text())
    before = schema(folder / "journal.db")
    assert "version 1" in refusal(folder, readonly=True).reason
    assert schema(folder / "journal.db") == before


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.contract("C62")
def test_c62_folder_and_files_are_for_their_user_only_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        journal = SqliteJournal.open(tmp_path / "state")
        commit(journal, saying())
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert modes == dict.fromkeys(("journal.db", "journal.db-wal", "journal.db-shm", "journal.lock"), 0o600)
    journal.close()


@pytest.mark.contract("C61")
def test_c61_closing_leaves_no_descriptor_and_no_log_behind(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        journal = SqliteJournal.open(tmp_path)
        commit(journal, saying())
        assert journal.events(S1)
        journal.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.db", "journal.lock"]


# --- a disk that says no -------------------------------------------------------------------------------------


def test_a_full_disk_commits_nothing_of_the_group_and_later_commits_work(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    commit(journal, saying())
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone()
    group = [saying(1), Batch(session_id=S1, drafts=(said("x" * 200_000),)), saying(1)]
    with pytest.raises(JournalError) as caught:
        journal.record(group, 1.0)
    assert caught.value.kind == "journal_full"
    assert not caught.value.retryable
    assert journal.last_seq(S1) == 1
    journal._db.execute("PRAGMA max_page_count = 100000").fetchone()
    assert [result.last_seq for result in journal.record(group, 1.0)] == [2, 3, 4]
    assert [event.seq for event in journal.events(S1)] == [1, 2, 3, 4]
    journal.close()


_FILE_LIMIT_SCRIPT = """
import json, resource, sys
from journal_samples import S1, saying
from lastword.actors.core.errors import JournalError
from lastword.runtime._journal import SqliteJournal
journal = SqliteJournal.open(sys.argv[1])
acknowledged, failures = 0, 0
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for limit in (200_000, -1, 400_000, -1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if limit < 0 else limit, hard))
    for _ in range(60):
        try:
            acknowledged = journal.record([saying(3), saying(2)], 1.0)[-1].last_seq
        except JournalError as error:
            failures += 1
            assert error.kind in ("journal_full", "journal_failed"), error
            assert error.retryable
journal.close()
print(json.dumps([acknowledged, failures]))
"""


def test_a_write_that_the_kernel_refuses_loses_nothing_acknowledged(tmp_path):
    """A real refusal in the middle of the log: the file-size limit stands for the full disk."""
    run = subprocess.run(
        [sys.executable, "-c", _FILE_LIMIT_SCRIPT, tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stderr
    acknowledged, failures = json.loads(run.stdout)
    assert failures > 10
    journal = SqliteJournal.open(tmp_path)
    assert [event.seq for event in journal.events(S1, limit=10_000)] == list(range(1, acknowledged + 1))
    journal.close()


def test_a_busy_file_is_a_passing_failure(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    shell = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError) as caught:
        journal.record([saying()], 1.0)
    assert caught.value.retryable
    shell.execute("ROLLBACK")
    shell.close()
    assert commit(journal, saying()).last_seq == 1
    journal.close()


def test_the_schema_ships_with_the_package():
    assert resources.files("lastword.runtime").joinpath("_schema.sql").is_file()


# --- what stands at the paths is looked at once for each change of the folder ---------------------------------------


@pytest.fixture
def quickly_settled(monkeypatch):
    """Stamps are believed after 50 ms, which is longer than the tick of any file system's clock."""
    monkeypatch.setattr(_journal_file, "SETTLED_NS", 50_000_000)


def looks(journal: SqliteJournal, monkeypatch) -> list[int]:
    """A list that grows with each look at the files."""
    seen: list[int] = []
    look = journal._file.identity
    monkeypatch.setattr(journal._file, "identity", lambda: seen.append(1) or look())
    return seen


def test_c09_the_files_are_looked_at_again_only_where_the_folder_changed(tmp_path, monkeypatch, quickly_settled):
    journal = SqliteJournal.open(tmp_path / "state")
    until(journal._file.stamp)
    seen = looks(journal, monkeypatch)
    for n in range(3):
        commit(journal, saying(start=n))
    assert len(seen) == 1
    (tmp_path / "state" / "another").touch()
    commit(journal, saying(start=3))
    assert len(seen) == 2, "a folder that has just changed is no proof of anything"
    journal.close()


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "journal.lock"])
def test_c09_a_file_deleted_long_after_the_last_look_is_put_back(tmp_path, quickly_settled, name):
    journal = SqliteJournal.open(tmp_path / "state")
    until(journal._file.stamp)
    commit(journal, saying())
    (tmp_path / "state" / name).unlink()
    until(journal._file.stamp)  # the folder is quiet again, and is not the one that was looked through
    commit(journal, saying(start=1))
    reader = SqliteJournal.open(tmp_path / "state", readonly=True)
    assert len(reader.events(S1)) == 2
    reader.close()
    assert refusal(tmp_path / "state").kind == "journal_locked"
    journal.close()


def test_c09_a_look_that_found_another_file_is_not_taken_for_a_good_one(tmp_path, quickly_settled):
    journal = SqliteJournal.open(tmp_path / "state")
    commit(journal, saying())
    path = tmp_path / "state" / "journal.db"
    path.rename(tmp_path / "mine.db")
    path.write_text("a person's notes")
    until(journal._file.stamp)
    for _ in range(2):
        with pytest.raises(JournalError, match="another file was put in the place"):
            journal.record([saying(start=1)], 101.0)
        until(journal._file.stamp)
    path.unlink()
    (tmp_path / "mine.db").rename(path)
    commit(journal, saying(start=1))
    assert len(journal.events(S1)) == 2
    journal.close()


def test_a_folder_that_was_moved_away_is_no_longer_the_one_that_was_looked_through(tmp_path, quickly_settled):
    journal = SqliteJournal.open(tmp_path / "state")
    until(journal._file.stamp)
    commit(journal, saying())
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    assert journal._file.stamp() is None
    with pytest.raises(JournalError):
        journal.record([saying(start=1)], 101.0)
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    commit(journal, saying(start=1))
    journal.close()


@pytest.mark.parametrize("name", ["journal.db", "journal.lock", "journal.db-wal", "journal.db-shm"])
def test_c62_a_file_of_the_journal_that_is_a_link_is_refused_and_where_it_leads_nothing_is_made(tmp_path, name):
    folder, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    folder.mkdir(mode=0o700)
    elsewhere.mkdir(mode=0o700)
    (folder / name).symlink_to(elsewhere / "file")
    error = refusal(folder)
    assert error.kind == "journal_unsafe"
    assert name in error.reason
    assert "symbolic link" in error.reason
    assert list(elsewhere.iterdir()) == []
    (folder / name).unlink()
    SqliteJournal.open(folder).close()


def test_c21_a_state_folder_that_is_a_link_to_nowhere_is_told_as_that(tmp_path):
    (tmp_path / "state").symlink_to(tmp_path / "gone")
    error = refusal(tmp_path / "state")
    assert error.kind == "journal_unwritable"
    assert "a link to a place that does not exist" in error.reason


def test_c21_chmod_is_advised_only_where_the_folder_is_ones_own(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    assert "chmod 700" in refusal(folder).remedy
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    error = refusal(folder)
    assert error.kind == "journal_unsafe"
    assert error.remedy == "Choose a state folder of your own."
