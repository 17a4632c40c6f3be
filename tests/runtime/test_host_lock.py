"""One host per state folder, whatever is deleted, replaced or moved there while it lives, and however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastword import JournalError
from lastword.runtime._host_lock import LOCK_NAME, held
from lastword.runtime._journal import SqliteJournal

CODE = (
    "import sys, time\nfrom lastword.runtime._journal import SqliteJournal\n"
    "journal = SqliteJournal.open(sys.argv[1])\nprint('held', flush=True)\ntime.sleep(60)\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def host(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the folder."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", CODE, folder], stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def refused(folder: Path) -> JournalError:
    with pytest.raises(JournalError) as caught:
        SqliteJournal.open(folder)
    assert caught.value.kind == "journal_locked"
    return caught.value


def delete(folder: Path) -> None:
    (folder / LOCK_NAME).unlink()


def replace(folder: Path) -> None:
    (folder / "another").write_text("")
    (folder / "another").replace(folder / LOCK_NAME)


def delete_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.contract("C13")
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("harm", [delete, replace, delete_all])
def test_a_second_host_is_refused_while_the_first_lives_whatever_became_of_the_files_and_let_in_when_it_is_dead(
    folder: Path, host: subprocess.Popen[bytes], harm: Callable[[Path], None], stopped: bool
) -> None:
    if stopped:
        host.send_signal(signal.SIGSTOP)
    harm(folder)
    refused(folder)
    assert held(folder)
    assert not (folder / LOCK_NAME).exists() or (folder / LOCK_NAME).read_bytes() == b""  # the next look is no better
    refused(folder)
    host.kill()
    host.wait()
    assert not held(folder)
    SqliteJournal.open(folder).close()


def test_a_folder_that_was_moved_while_its_host_lives_is_held_where_it_is_now(
    folder: Path, host: subprocess.Popen[bytes]
) -> None:
    moved = folder.rename(folder.with_name("moved"))
    assert str(host.pid) in refused(moved).reason
    SqliteJournal.open(folder).close()  # another folder by now, and nobody's


def test_a_host_in_a_folder_behind_a_link_holds_it_under_every_name(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    link = folder.with_name("link")
    link.symlink_to(folder)
    journal = SqliteJournal.open(link)
    journal.record([], 1.0)
    refused(folder)
    refused(link)
    delete(folder)
    journal.record([], 2.0)
    assert (folder / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    journal.close()
    assert not held(folder)


def test_a_file_system_that_locks_no_folders_leaves_the_lock_file_as_the_fence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "as on NFS")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    journal = SqliteJournal.open(folder)
    journal.record([], 1.0)
    assert held(folder)
    assert str(os.getpid()) in refused(folder).reason
    journal.close()
    SqliteJournal.open(folder).close()


def test_whoever_looks_whether_a_folder_is_held_keeps_no_host_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteJournal.open(folder).close()
    looking = [os.open(path, os.O_RDONLY) for path in (folder, folder / LOCK_NAME)]
    for fd in looking:
        fcntl.flock(fd, fcntl.LOCK_SH)
    monkeypatch.setattr("lastword.runtime._host_lock.time.sleep", lambda _: os.close(looking.pop()))
    SqliteJournal.open(folder).close()
    assert looking == []
