"""Ends of programs and their panes: what is told, what is left."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import time
from pathlib import Path

import pytest

from integration.tmux_kit import Echo, answer, close, open_pane
from kit_system import until
from lastword.actors.core.errors import TransportError
from lastword.transports.process import ExitWatcher, ProcessId, pid_start
from lastword.transports.tmux import Alive

pytestmark = pytest.mark.tmux


def test_c60_a_programs_end_is_told_with_its_status_and_its_last_words_stay(server):
    pane = open_pane(server, "dies", ["sh", "-c", "echo last words; read x; exit 3"])
    statuses: queue.Queue[int | None] = queue.Queue()
    server.watch_exit(pane, statuses.put)
    until(lambda: answer(pane.look).lines[0] == "last words")
    assert answer(pane.press, "Enter", key="on_done") is None
    assert statuses.get(timeout=5) == 3
    screen = until(lambda: (s := answer(pane.look)).dead and s)
    assert screen.exit_status == 3
    assert screen.lines[0] == "last words"
    assert not pane.process.is_alive()
    for verb, args in ((pane.press, {"key": "on_done"}), (pane.paste, {})):
        error = answer(verb, b"x" if verb == pane.paste else "Enter", **args)
        assert isinstance(error, TransportError), "keys for a dead pane were reported as pressed"
    assert isinstance(server.liveness(), Alive), "a paste into a dead pane took the server along"
    server.watch_exit(pane, statuses.put)
    assert statuses.get(timeout=5) == 3, "the already dead are told at once"
    close(pane, 0)
    assert isinstance(answer(pane.look), TransportError)


def test_c60_a_signal_is_a_negative_status_even_right_after_the_fork(server):
    # tmux 3.3a misses some SIGCHLDs of children killed this early; under load one in four, until it was poked.
    for n in range(10):
        pane = open_pane(server, f"killed{n}", ["sleep", "1000"])
        os.kill(pane.pid, signal.SIGKILL)
        statuses: queue.Queue[int | None] = queue.Queue()
        server.watch_exit(pane, statuses.put)
        assert statuses.get(timeout=5) == -9
        close(pane, 0)


@pytest.mark.contract("C61")
def test_c61_close_ends_a_stubborn_program_and_its_run_away_child_and_nobody_else(server, tmp_path):
    other = open_pane(server, "bystander", ["sleep", "1000"])
    echo = Echo(server, tmp_path, "stubborn", ECHO_STUBBORN="1", ECHO_CHILD="1")
    child = ProcessId(echo.meta["child"], pid_start(echo.meta["child"]) or 0)
    assert child.is_alive()
    done: queue.Queue[None] = queue.Queue()
    began = time.monotonic()
    echo.pane.close(0.2, lambda: done.put(None))
    echo.pane.close(0.2, lambda: done.put(None))
    done.get(timeout=5)
    done.get(timeout=5)
    assert time.monotonic() - began < 3
    assert echo.pane.ended.killed == (echo.pane.pid, child.pid)  # it inherited the deaf ear
    assert echo.pane.ended.survivors == ()
    assert not echo.pane.process.is_alive()
    assert not child.is_alive()
    assert other.process.is_alive()
    assert echo.pane.pane_id not in {row.pane_id for row in answer(server.panes)}
    close(echo.pane, 0.2)  # joins what is over
    close(other, 0)


@pytest.mark.contract("C61")
def test_c61_an_orphan_that_lost_parent_and_session_is_found_by_its_environment(server, tmp_path):
    script = "setsid sh -c 'sleep 1000 & echo $! > " + str(tmp_path / "pid") + "' ; exec sleep 1000"
    pane = open_pane(server, "orphan", ["sh", "-c", script])
    orphan_pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    until(lambda: Path(f"/proc/{orphan_pid}/stat").read_text().split()[3] != str(pane.pid))
    orphan = ProcessId(orphan_pid, pid_start(orphan_pid) or 0)
    assert orphan.is_alive()
    close(pane, 0.3)
    assert not orphan.is_alive()


def test_e33_a_reused_pid_is_another_process_and_is_never_signalled():
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        impostor = ProcessId(sleeper.pid, (pid_start(sleeper.pid) or 0) - 1)
        assert not impostor.is_alive()
        assert not impostor.send(signal.SIGKILL)
        assert not impostor.send_group(signal.SIGKILL)
        assert ProcessId(sleeper.pid, pid_start(sleeper.pid) or 0).is_alive()
        watcher = ExitWatcher()
        told: queue.Queue[int] = queue.Queue()
        watcher.watch(sleeper.pid, told.put, start=impostor.start)
        assert told.get(timeout=2) == sleeper.pid
        watcher.close()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_the_exit_watcher_tells_each_end_once_and_survives_a_raising_callback():
    watcher = ExitWatcher()
    told: queue.Queue[int] = queue.Queue()
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(4)]
    dead = subprocess.Popen(["true"])
    dead.wait()
    try:
        watcher.watch(dead.pid, told.put)
        assert told.get(timeout=2) == dead.pid
        watcher.watch(sleepers[0].pid, lambda _: 1 / 0)
        watcher.watch(sleepers[1].pid, told.put)
        unwatched = watcher.watch(sleepers[2].pid, told.put)
        watcher.unwatch(unwatched)
        for sleeper in sleepers[:3]:
            sleeper.kill()  # a zombie, not waited for, has ended all the same
        assert told.get(timeout=2) == sleepers[1].pid
        watcher.watch(sleepers[3].pid, told.put)
        sleepers[3].kill()
        assert told.get(timeout=2) == sleepers[3].pid
        assert told.empty()
    finally:
        watcher.close()
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
