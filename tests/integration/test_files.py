"""Reading: missing, unreadable, replaced and cut short are different answers, and no descriptor stays open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from integration.tmux_kit import open_descriptors
from lastword.actors.core.world import Bytes, Files, Missing, Rewritten, Unreadable
from lastword.transports.files import FileSource, LocalFiles, find, open_files, read_from, read_small
from lastword.transports.process import pid_start


def test_bytes_come_with_the_identity_of_their_file(tmp_path):
    files: Files = LocalFiles()
    path = tmp_path / "s"
    path.write_bytes(b"0123456789")
    facts = path.stat()
    assert files.read_from(str(path), 3, 4, 0, 0) == Bytes(
        data=b"3456", offset=3, size=10, inode=facts.st_ino, device=facts.st_dev
    )
    assert files.read_from(str(path), 10, 4, facts.st_ino, facts.st_dev) == Bytes(
        data=b"", offset=10, size=10, inode=facts.st_ino, device=facts.st_dev
    )


def test_e_could_not_look_is_not_missing(tmp_path):
    assert read_from(str(tmp_path / "none"), 0, 10) == Missing()
    (tmp_path / "file").write_bytes(b"")
    assert read_from(str(tmp_path / "file" / "below"), 0, 10) == Missing()
    assert isinstance(read_from(str(tmp_path), 0, 10), Unreadable)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert isinstance(read_from(str(tmp_path / "loop"), 0, 10), Unreadable)
    os.mkfifo(tmp_path / "fifo")
    assert isinstance(read_from(str(tmp_path / "fifo"), 0, 10), Unreadable), "a fifo must not block"


@pytest.mark.contract("C03")
def test_c03_a_file_whose_file_system_is_away_is_not_missing(tmp_path):
    """Its folder is gone, and what stands above it is not of the device that the file was on."""
    folder = tmp_path / "mount" / "folder"
    folder.mkdir(parents=True)
    path = folder / "s"
    path.write_bytes(b"x")
    facts = path.stat()
    above = tmp_path.stat().st_dev
    path.unlink()
    for device in (above, above + 1):
        assert read_from(str(path), 0, 10, facts.st_ino, device) == Missing(), "its folder is there: it was deleted"
    folder.rmdir()
    assert read_from(str(path), 0, 10, facts.st_ino, above) == Missing()
    assert isinstance(read_from(str(path), 0, 10, facts.st_ino, above + 1), Unreadable)
    assert read_from(str(path), 0, 10) == Missing(), "it was never seen"


def test_f41_a_replaced_and_a_truncated_file_are_told_before_any_byte(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"0123456789")
    source = FileSource(str(path))
    assert isinstance(source.read_from(0, 100), Bytes)
    os.truncate(path, 4)
    cut = source.read_from(10, 100)
    assert isinstance(cut, Rewritten)
    assert cut.reason == "truncated"
    (tmp_path / "new").write_bytes(b"abcdefghijklmnop")
    (tmp_path / "new").rename(path)
    swapped = source.read_from(10, 100)
    assert isinstance(swapped, Rewritten)
    assert swapped.reason == "replaced"
    source.rebind(swapped)
    read = source.read_from(10, 100)
    assert isinstance(read, Bytes)
    assert read.data == b"klmnop"


def test_an_idle_source_holds_no_descriptor(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"x")
    before = open_descriptors()
    sources = [FileSource(str(path)) for _ in range(50)]
    assert all(isinstance(source.read_from(0, 1), Bytes) for source in sources)
    assert open_descriptors() == before


def test_a_small_file_is_whole_or_none(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"12345")
    assert read_small(str(path), 5) == b"12345"
    assert read_small(str(path), 4) is None
    assert read_small(str(tmp_path / "none"), 4) is None


@pytest.mark.contract("C51")
def test_c51_the_one_file_of_that_name_is_found_and_two_are_none(tmp_path):
    folder = tmp_path / "2026" / "12"
    folder.mkdir(parents=True)
    assert find(str(tmp_path), "-a.jsonl") == ""
    (folder / "rollout-a.jsonl").write_text("x")
    (folder / "rollout-b.jsonl").write_text("x")
    assert find(str(tmp_path), "-a.jsonl") == str(folder / "rollout-a.jsonl")
    (tmp_path / "other-a.jsonl").write_text("x")
    assert find(str(tmp_path), "-a.jsonl") == ""
    assert find(str(tmp_path / "missing"), "-a.jsonl") == ""


@pytest.mark.contract("C51")
def test_c51_what_a_process_behind_a_wrapper_holds_open_is_seen_and_no_strangers_is(tmp_path):
    held = tmp_path / "held.lock"
    ours = "import sys,time; f=open(sys.argv[1],'w'); print('open',flush=True); time.sleep(60)"
    inner = [sys.executable, "-c", ours, str(held)]
    outer = f"import subprocess; subprocess.run({inner!r})"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, start_new_session=True) as wrapper:
        try:
            assert wrapper.stdout is not None
            assert wrapper.stdout.readline() == b"open\n"
            start = pid_start(wrapper.pid)
            assert start is not None
            assert str(held) in open_files(wrapper.pid, start)
            assert open_files(wrapper.pid, start + 1) == ()  # that number names another process by now
        finally:
            os.killpg(wrapper.pid, signal.SIGKILL)
    assert open_files(wrapper.pid, start) == ()
