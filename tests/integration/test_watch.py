"""Wake-ups: the kernel's in a moment, the sweep's in the end, and never none."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from integration.tmux_kit import open_descriptors
from kit_system import until
from lastword.actors.core.world import Wakes
from lastword.transports import watch_inotify
from lastword.transports.watch import FileWatcher

FAR_S = 60.0  # a sweep that never comes: what is seen is the source's own work
NEAR_S = 0.05


class Woken:
    def __init__(self) -> None:
        self.count = 0
        self.event = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()

    def expect(self, timeout_s: float = 2.0) -> None:
        assert self.event.wait(timeout_s), "not woken"
        self.event.clear()


def settle(woken: Woken) -> None:
    """Until what is under way has arrived: kinds of events differ in number, not in meaning."""
    quiet_since, last = time.monotonic(), woken.count
    while time.monotonic() - quiet_since < 0.05:
        if woken.count != last:
            quiet_since, last = time.monotonic(), woken.count
        time.sleep(0.005)
    woken.event.clear()


def append(path, text: str = "x\n") -> None:
    with path.open("a") as file:
        file.write(text)


def replace(path, text: str = "new\n") -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


@pytest.fixture(params=["inotify", "watchdog"])
def fast(request):
    watcher = FileWatcher(poll_s=FAR_S, source=request.param)
    yield watcher
    watcher.close()


@pytest.fixture
def inotify():
    watcher = FileWatcher(poll_s=FAR_S, source="inotify")
    yield watcher
    watcher.close()


@pytest.fixture(params=["inotify", "watchdog", "poll"])
def any_watcher(request):
    watcher = FileWatcher(poll_s=NEAR_S, source=request.param)
    yield watcher
    watcher.close()


def test_the_watcher_is_what_the_port_asks_for(fast):
    port: Wakes = fast
    assert port is fast


def test_an_append_wakes_at_once(fast, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("")
    woken = Woken()
    fast.watch(path, tmp_path, woken)
    assert fast.stats.unwatched == 0
    for _ in range(5):
        append(path)
        woken.expect()
        settle(woken)


def test_a_file_in_a_folder_made_this_moment_wakes_at_once(fast, tmp_path):
    path = tmp_path / "new" / "session.jsonl"
    woken = Woken()
    fast.watch(path, tmp_path, woken)
    path.parent.mkdir()
    path.write_text("first\n")
    woken.expect()
    settle(woken)
    append(path)
    woken.expect()


def test_a_neighbours_file_wakes_nobody(fast, tmp_path):
    woken = Woken()
    other = Woken()
    fast.watch(tmp_path / "mine", tmp_path, woken)
    fast.watch(tmp_path / "other", tmp_path, other)
    append(tmp_path / "other")
    append(tmp_path / "third")
    other.expect()
    settle(other)
    assert woken.count == 0


def test_a_root_that_does_not_exist_is_waited_for_level_by_level(inotify, tmp_path):
    path = tmp_path / "home" / ".claude" / "projects" / "x" / "s.jsonl"
    woken = Woken()
    inotify.watch(path, tmp_path / "home" / ".claude" / "projects", woken)
    assert inotify.stats.unwatched == 0
    for level in list(path.parents)[3::-1]:
        level.mkdir()
        time.sleep(0.005)
    woken.event.clear()
    append(path)
    woken.expect()
    settle(woken)
    append(path)
    woken.expect()


def test_a_replaced_a_removed_and_a_recreated_file_wake_at_once(inotify, tmp_path):
    path = tmp_path / "registry.json"
    path.write_text("old")
    woken = Woken()
    inotify.watch(path, tmp_path, woken)
    for change in (lambda: replace(path), path.unlink, lambda: append(path), lambda: os.truncate(path, 0)):
        change()
        woken.expect()
        settle(woken)


def test_a_folder_that_is_removed_and_made_again_is_watched_again(inotify, tmp_path):
    path = tmp_path / "p" / "s.jsonl"
    path.parent.mkdir()
    path.write_text("")
    woken = Woken()
    inotify.watch(path, tmp_path, woken)
    for _ in range(3):
        shutil.rmtree(path.parent)
        woken.expect()
        settle(woken)
        path.parent.mkdir()
        append(path)
        woken.expect()
        settle(woken)
        append(path)
        woken.expect()
        settle(woken)
        path.parent.rename(tmp_path / "elsewhere")
        woken.expect()
        settle(woken)
        shutil.copytree(tmp_path / "elsewhere", path.parent)
        shutil.rmtree(tmp_path / "elsewhere")
        woken.expect()
        settle(woken)


@pytest.mark.parametrize("change", ["append", "replace", "truncate", "remove", "same size"])
def test_every_change_is_seen_in_the_end_whatever_the_source(any_watcher, tmp_path, change):
    path = tmp_path / "root" / "deep" / "s.jsonl"
    woken = Woken()
    any_watcher.watch(path, tmp_path / "root", woken)
    path.parent.mkdir(parents=True)
    path.write_text("12345\n")
    woken.expect()
    settle(woken)
    match change:
        case "append":
            append(path)
        case "replace":
            replace(path)
        case "truncate":
            os.truncate(path, 2)
        case "remove":
            path.unlink()
        case "same size":
            path.write_text("54321\n")
    woken.expect()


def test_an_ancestor_that_was_renamed_is_noticed_by_the_sweep_and_watched_anew(tmp_path):
    watcher = FileWatcher(poll_s=0.1, source="inotify")
    try:
        path = tmp_path / "a" / "b" / "s"
        path.parent.mkdir(parents=True)
        woken = Woken()
        watcher.watch(path, tmp_path, woken)
        (tmp_path / "a").rename(tmp_path / "z")
        path.parent.mkdir(parents=True)
        append(path)
        woken.expect()
        source = watcher._source
        until(lambda: source._places[str(path)][0].identity == watch_inotify._identity(str(path.parent)))
    finally:
        watcher.close()


def test_an_exhausted_limit_only_makes_it_slower_and_is_counted(tmp_path, monkeypatch):
    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    real = watch_inotify._add_watch
    monkeypatch.setattr(watch_inotify, "_add_watch", refuse)
    watcher = FileWatcher(poll_s=NEAR_S, source="inotify")
    try:
        woken = Woken()
        watcher.watch(tmp_path / "s", tmp_path, woken)
        assert watcher.stats.unwatched == 1
        append(tmp_path / "s")
        woken.expect()
        assert watcher.stats.swept >= 1
        monkeypatch.setattr(watch_inotify, "_add_watch", real)
        until(lambda: watcher.stats.unwatched == 0)
    finally:
        watcher.close()


def test_an_overflow_is_counted_and_answered_by_a_sweep(tmp_path):
    watcher = FileWatcher(poll_s=FAR_S, source="inotify")
    try:
        woken = Woken()
        path = tmp_path / "s"
        watcher.watch(path, tmp_path, woken)
        source = watcher._source
        with source._lock:  # the reader waits here, so the kernel's queue runs over
            limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
            for n in range(limit // 2 + 50):
                fd = os.open(tmp_path / f"n{n % 2}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.write(fd, b"x")
                os.close(fd)
                (tmp_path / f"n{n % 2}").unlink()
            append(path)
        until(lambda: watcher.stats.lost > 0)
        woken.expect()
        until(lambda: watcher.stats.swept > 0)
    finally:
        watcher.close()


def test_after_unwatch_nothing_wakes_and_nothing_is_left(any_watcher, tmp_path):
    path = tmp_path / "s"
    first, second = Woken(), Woken()
    one = any_watcher.watch(path, tmp_path, first)
    two = any_watcher.watch(path, tmp_path, second)
    any_watcher.unwatch(one)
    any_watcher.unwatch(one)
    append(path)
    second.expect()
    any_watcher.unwatch(two)
    any_watcher.unwatch(object())
    settle(second)
    count = second.count
    append(path)
    time.sleep(4 * NEAR_S)
    assert (first.count, second.count) == (0, count)
    assert any_watcher.stats.watched == 0
    if any_watcher.stats.source == "inotify":
        assert any_watcher._source._folders == {}
        assert any_watcher._source._by_wd == {}


def test_watching_and_unwatching_under_traffic_never_locks_up(any_watcher, tmp_path):
    # watchdog calls handlers under the lock that scheduling takes: the first version of this hung here now and then.
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            append(tmp_path / f"d{n % 4}" / "s")
            n += 1

    for n in range(4):
        (tmp_path / f"d{n}").mkdir()
    done: list[int] = []

    def churn(n: int) -> None:
        for _ in range(60):
            root = tmp_path / f"d{n}"
            any_watcher.unwatch(any_watcher.watch(root / "s", root, lambda: any_watcher.stats))
        done.append(n)

    writer = threading.Thread(target=write, daemon=True)
    churners = [threading.Thread(target=churn, args=(n,), daemon=True) for n in range(4)]
    for thread in [writer, *churners]:
        thread.start()
    try:
        for thread in churners:
            thread.join(10)
        assert sorted(done) == [0, 1, 2, 3]
    finally:
        stop.set()
        writer.join(5)


def test_a_raising_callback_stops_neither_source_nor_sweep(any_watcher, tmp_path):
    woken = Woken()
    any_watcher.watch(tmp_path / "s", tmp_path, lambda: 1 / 0)
    any_watcher.watch(tmp_path / "s", tmp_path, woken)
    for _ in range(3):
        append(tmp_path / "s")
        woken.expect()
        settle(woken)


@pytest.mark.contract("C61")
@pytest.mark.parametrize("source", ["inotify", "watchdog", "poll"])
def test_c61_close_leaves_no_thread_and_no_descriptor(tmp_path, source):
    warm = FileWatcher(source=source)
    warm.watch(tmp_path / "s", tmp_path, lambda: None)
    warm.close()
    threads, fds = set(threading.enumerate()), open_descriptors()
    watcher = FileWatcher(source=source)
    for n in range(50):
        watcher.watch(tmp_path / f"d{n}" / "s", tmp_path, lambda: None)
    assert len(threading.enumerate()) - len(threads) <= 6, "threads grow with the number of files"
    watcher.close()
    watcher.close()
    until(lambda: set(threading.enumerate()) <= threads)
    until(lambda: open_descriptors() <= fds)


def test_a_close_under_traffic_writes_to_no_descriptor_that_its_thread_has_closed(monkeypatch, tmp_path):
    watcher = FileWatcher(poll_s=FAR_S, source="inotify")
    path = tmp_path / "a.jsonl"
    woken = Woken()
    watcher.watch(path, tmp_path, woken)
    append(path)
    woken.expect()
    thread = next(each for each in threading.enumerate() if each.name == "lastword-inotify")
    write = os.eventfd_write

    def after_its_thread_saw_the_mark(fd: int, value: int) -> None:
        append(path)
        thread.join(0.3)
        write(fd, value)

    monkeypatch.setattr("lastword.transports.watch_inotify.os.eventfd_write", after_its_thread_saw_the_mark)
    watcher.close()
    thread.join(10.0)
    assert not thread.is_alive()
