"""Life and death of the server and its panes: what is told, what is left."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from integration.tmux_kit import ECHO_TUI, Echo, answer, close, open_descriptors
from kit_system import until
from lastword.actors.core.errors import ProviderError, RejectedError, TransportError, TransportTimeoutError, UsageError
from lastword.actors.core.world import Transport
from lastword.transports import tmux as edge
from lastword.transports import tmux_setup
from lastword.transports.process import ExitWatcher, ProcessId, pid_start
from lastword.transports.tmux import Alive, Gone, PaneHandle, Pressed, Refused, TmuxServer, Unknown, find_tmux
from lastword.transports.tmux_control import Command, ControlClient, Reply, quote
from lastword.transports.tmux_find import PANE_MARK

pytestmark = pytest.mark.tmux


def open_pane(server: TmuxServer, name: str, argv: list[str], cwd: str = "/", env: dict[str, str] | None = None):
    got: queue.Queue[PaneHandle | TransportError] = queue.Queue()
    server.open_pane(name, argv, cwd=cwd, env=env or {}, on_opened=got.put)
    return got.get(timeout=5)


# --- opening --------------------------------------------------------------------------------------------------------


def test_the_server_is_a_transport_by_the_port(server):
    port: Transport = server
    assert port.name == "tmux"


def test_the_pane_is_the_program_with_its_exact_argv_cwd_and_environment(tmp_path):
    base = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        "ODD": "a\nb;c $HOME #{pid}",
    }
    server = TmuxServer(f"lwe-{os.getpid()}", env={**base, "TMUX": "x", "TMUX_PANE": "%7"}, tmpdir=tmp_path)
    cwd = tmp_path / 'it\'s a "dir"; #{pid} #(id) $HOME ~ %H \\ ü'
    cwd.mkdir()
    extra = {
        "ECHO_LOG": str(tmp_path / "log"),
        "ECHO_META": str(tmp_path / "meta"),
        "LW_X": 'it\'s "q" \\ ; `a`\n\t#S é',
        "EMPTY": "",
    }
    odd = [
        "",
        "a b",
        ";",
        "x;",
        "\\;",
        "'",
        '"',
        "$HOME",
        "${HOME}",
        "~",
        "#{pane_id}",
        "#(id)",
        "%H",
        "a\nb",
        "\t",
        "{",
        "}",
        "-x",
        "--",
        "é\u200d",
        "\\",
        "`id`",
        "\x1b[31m",
        "a\udcffb",
    ]
    try:
        server.start()
        pane = open_pane(server, "exact", [sys.executable, ECHO_TUI, *odd], str(cwd), extra)
        assert isinstance(pane, PaneHandle)
        import json

        meta = json.loads(until(lambda: (tmp_path / "meta").exists() and (tmp_path / "meta").read_text()))
        assert [bytes.fromhex(a) for a in meta["argv"][1:]] == [os.fsencode(a) for a in odd]
        assert meta["cwd"] == str(cwd)
        assert meta["pid"] == pane.pid
        assert pane.pid_start == pid_start(pane.pid)
        by_tmux = {"TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "PWD"}
        assert {k: v for k, v in meta["env"].items() if k not in by_tmux and not k.startswith("LC_")} == {
            **base,
            **extra,
            PANE_MARK: "exact",
        }
        assert meta["env"]["TMUX_PANE"] == pane.pane_id
        assert meta["env"]["PWD"] == str(cwd)
    finally:
        server.stop(0.1)
    assert not server.socket_path.exists()


def test_a_program_of_one_word_is_executed_without_a_shell_around_it(server):
    pane = open_pane(server, "oneword", ["cat"])
    assert isinstance(pane, PaneHandle)
    until(lambda: Path(f"/proc/{pane.pid}/comm").read_text() == "cat\n")
    close(pane, 0.1)


@pytest.mark.parametrize(
    ("name", "argv", "cwd", "error_class", "kind"),
    [
        ("cwd", ["cat", "-"], "/nonexistent", UsageError, "cwd_unusable"),
        ("cwd", ["cat", "-"], "relative", UsageError, "cwd_unusable"),
        ("none", ["/nonexistent/claude", "-"], "/", ProviderError, "launch_failed"),
        ("none", ["no-such-program-anywhere"], "/", ProviderError, "launch_failed"),
        ("a.b", ["cat"], "/", UsageError, "usage"),
        ("nul", ["cat", "\0"], "/", RejectedError, "unsupported_text"),
        ("hub", ["cat"], "/", UsageError, "usage"),
    ],
)
def test_c21_what_cannot_be_opened_is_a_typed_error(server, name, argv, cwd, error_class, kind):
    error = open_pane(server, name, argv, cwd)
    assert isinstance(error, error_class)
    assert error.kind == kind


def test_a_name_is_taken_once(server):
    first = open_pane(server, "twice", ["cat"])
    second = open_pane(server, "twice", ["cat"])
    assert isinstance(first, PaneHandle)
    assert isinstance(second, TransportError)
    assert "duplicate" in second.reason
    close(first, 0)


def test_no_tmux_and_an_old_tmux_are_two_typed_errors_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError) as missing:
        find_tmux()
    assert missing.value.kind == "tmux_missing"
    fake = tmp_path / "tmux"
    fake.write_text("#!/bin/sh\necho tmux 3.1c\n")
    fake.chmod(0o755)
    with pytest.raises(TransportError) as old:
        find_tmux()
    assert old.value.kind == "tmux_unsupported"
    assert missing.value.remedy
    assert old.value.remedy


# --- looking and pressing -------------------------------------------------------------------------------------------


def test_a_look_gives_screen_title_cursor_and_modes_and_is_not_fooled_by_its_own_protocol(server, tmp_path):
    painted = "%end 1 2 1\r\n%error 1 2 1\r\n%exit\r\n\r\n  ❯ 漢字 👍 é\r\n".encode()
    (tmp_path / "screen").write_bytes(painted)
    echo = Echo(server, tmp_path, "look", ECHO_SCREEN=str(tmp_path / "screen"), ECHO_TITLE="✳ a, title; #{pane_id} %H")

    def seen():
        screen = answer(echo.pane.look)
        return screen if screen.lines[4].strip() else None

    screen = until(seen)
    assert screen.lines[:6] == ("%end 1 2 1", "%error 1 2 1", "%exit", "", "  ❯ 漢字 👍 é", "")
    assert len(screen.lines) == 50
    assert screen.title == "✳ a, title; #{pane_id} %H"
    assert screen.cursor == (0, 5)
    assert (screen.in_copy_mode, screen.alternate, screen.dead) == (False, False, False)
    close(echo.pane, 0)


@pytest.mark.contract("C24")
def test_c24_a_person_in_copy_mode_is_reported_and_never_pressed_into(server, tmp_path):
    echo = Echo(server, tmp_path, "copy")
    pane = echo.pane
    assert server.control.call(f"copy-mode -t {pane.pane_id}".encode(), 5).ok
    assert answer(pane.look).in_copy_mode
    error = answer(pane.press, "Enter", key="on_done")
    assert isinstance(error, TransportError)
    assert "copy mode" in error.reason
    assert isinstance(answer(pane.paste, b"text"), TransportError)
    asked: list[object] = []
    result = answer(pane.look_then_press, lambda screen: not asked.append(screen), "Enter", key="on_done")
    assert isinstance(result, Refused)
    assert answer(pane.look).in_copy_mode, "the person was thrown out of copy mode"
    assert server.control.call(f"send-keys -t {pane.pane_id} -X cancel".encode(), 5).ok
    assert answer(pane.press, "C-u", "Enter", "Escape", ";", "'", '"', "\\", key="on_done") is None
    assert echo.take(b"\x15\r\x1b;'\"\\") == b"\x15\r\x1b;'\"\\"
    close(pane, 0)


@pytest.mark.contract("C25")
def test_c25_a_press_goes_out_only_if_the_check_agrees_with_what_is_seen(server, tmp_path):
    (tmp_path / "screen").write_bytes(b"Do you want to proceed?")
    echo = Echo(server, tmp_path, "check", ECHO_SCREEN=str(tmp_path / "screen"))
    pane = echo.pane
    until(lambda: answer(pane.look).lines[0])

    def no_dialog(screen) -> bool:
        return "Do you want" not in screen.lines[0]

    assert isinstance(answer(pane.look_then_press, no_dialog, "Enter", key="on_done"), Refused)
    assert isinstance(answer(pane.look_then_press, lambda _: 1 / 0, "Enter", key="on_done"), TransportError)
    assert isinstance(answer(pane.look_then_press, lambda s: not no_dialog(s), "1", key="on_done"), Pressed)
    assert echo.take(b"1") == b"1"
    close(pane, 0)


@pytest.mark.parametrize("key", ["Entr", "enter", "", "F13", "hello", "C-", "-Enter"])
def test_a_word_that_is_no_key_is_refused_before_it_is_typed_as_text(server, key):
    pane = server.adopt("%99999", 1, 1, "nobody")
    with pytest.raises(UsageError):
        pane.press(key, on_done=lambda _: None)
    server.forget(pane)


# --- ends -----------------------------------------------------------------------------------------------------------


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


# --- the server -----------------------------------------------------------------------------------------------------


def test_replies_find_their_own_callbacks_from_eight_threads(server):
    bad: list[object] = []
    count = [0] * 8
    finished = threading.Event()

    def run(thread: int) -> None:
        for n in range(250):
            text = f"{thread}-{n}"
            if n % 5 == 0:
                server.control.submit(
                    f"no-such-command {text}".encode(), lambda r, t=text: check(thread, r, not r.ok, t)
                )
            elif n % 7 == 0:
                line = f"if-shell -F 1 'display-message -p {text}' 'display-message -p no'"
                server.control.submit(
                    line.encode(), lambda r, t=text: check(thread, r, r.lines == (t.encode(),), t), replies=2
                )
            else:
                server.control.submit(
                    f"display-message -p {text}".encode(),
                    lambda r, t=text: check(thread, r, r.lines == (t.encode(),), t),
                )

    def check(thread: int, reply: Reply, good: bool, text: str) -> None:
        count[thread] += 1
        if not good:
            bad.append((text, reply))
        if sum(count) == 2000:
            finished.set()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    assert finished.wait(20)
    assert not bad
    assert count == [250] * 8
    assert server.control.unmatched == 0


def test_a_command_that_fails_before_its_second_reply_leaves_the_next_ones_in_step(server):
    failed: queue.Queue[Reply] = queue.Queue()
    server.control.submit(b"if-shell -F", failed.put, replies=2)
    assert server.control.call(b"display-message -p next", 5).lines == (b"next",)
    assert not failed.get(timeout=1).ok


def test_a_raising_callback_does_not_stop_the_reader(server):
    server.control.submit(b"display-message -p x", lambda _: 1 / 0)
    assert server.control.call(b"display-message -p y", 5).lines == (b"y",)


@pytest.mark.parametrize("line", [b"", b"  ", b"display-message -p a\nkill-server"])
def test_a_command_that_would_detach_or_smuggle_another_is_refused(server, line):
    with pytest.raises(UsageError):
        server.control.submit(line, lambda _: None)


def test_quote_is_exact_for_any_bytes(server):
    data = bytes(range(1, 256))
    assert server.control.call(b"set-environment -g LW_Q " + quote(data), 5).ok
    assert server.control.call(b"set-environment -gu LW_Q", 5).ok
    assert server.control.call(b"set-buffer -b q -- " + quote(data), 5).ok
    assert server.control.call(b"display-message -p '#{buffer_size}'", 5).ok
    assert server.control.call(b"list-buffers -F '#{buffer_size}'", 5).lines == (b"255",)
    assert server.control.call(b"delete-buffer -b q", 5).ok


def test_e38_a_killed_server_is_gone_within_50_ms_and_every_waiting_command_is_answered_once(own_server):
    gone = threading.Event()
    seen: list[float] = []
    own_server.on_gone = lambda: (seen.append(time.monotonic()), gone.set())
    pane = open_pane(own_server, "victim", ["sleep", "1000"])
    answers: list[list[Reply]] = [[] for _ in range(300)]
    assert own_server.process is not None
    os.kill(own_server.process.pid, signal.SIGSTOP)
    for slot in answers:
        own_server.control.submit(b"display-message -p x", slot.append)
    began = time.monotonic()
    os.kill(own_server.process.pid, signal.SIGKILL)
    assert gone.wait(5)
    late: list[Reply] = []
    own_server.control.submit(b"display-message -p x", late.append)
    assert seen[0] - began < 0.25, "generous for a loaded machine; 50 ms is what a quiet one shows"
    assert all(len(slot) == 1 and slot[0] == Reply(ok=False, lines=(b"server gone",)) for slot in answers)
    assert late == [Reply(ok=False, lines=(b"server gone",))]
    assert isinstance(own_server.liveness(), Gone)
    assert isinstance(answer(pane.look), TransportError)
    assert isinstance(answer(pane.paste, b"x"), TransportError)
    close(pane, 0.1)
    report = own_server.stop(0.1)
    assert report.server == "already_gone"
    assert not own_server.socket_path.exists()


@pytest.mark.contract("C61")
def test_e35_a_stopped_server_is_unknown_within_its_bound_and_stop_still_ends_it(own_server, tmp_path):
    echo = Echo(own_server, tmp_path, "frozen")
    process = own_server.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert isinstance(own_server.liveness(0.2), Unknown)
    assert time.monotonic() - began < 1
    with pytest.raises(TransportTimeoutError):
        own_server.control.call(b"display-message -p x", 0.1)
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: isinstance(own_server.liveness(), Alive))
    assert own_server.control.call(b"display-message -p y", 5).lines == (b"y",), "late replies were taken for this one"
    os.kill(process.pid, signal.SIGSTOP)
    report = own_server.stop(0.1)
    assert report.server == "killed"
    assert report.survivors == ()
    assert not process.is_alive()
    assert not echo.pane.process.is_alive()
    assert not own_server.socket_path.exists()


def test_a_stopped_server_never_blocks_a_caller(own_server, tmp_path):
    echo = Echo(own_server, tmp_path, "slow")
    process = own_server.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    errors: list[object] = []
    began = time.monotonic()
    for _ in range(5):
        echo.pane.paste(b"y" * 1_000_000, errors.append)
    assert time.monotonic() - began < 2
    assert not errors
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: len(errors) == 5, within_s=10)
    assert set(errors) == {None}
    expected = (b"\x1b[200~" + b"y" * 1_000_000 + b"\x1b[201~") * 5
    assert echo.take(expected) == expected


@pytest.mark.contract("C61")
def test_c61_stop_leaves_no_process_thread_socket_or_descriptor(tmp_path):
    threads_before = set(threading.enumerate())
    fds_before = open_descriptors()
    server = TmuxServer(f"lws-{os.getpid()}", tmpdir=tmp_path)
    server.start()
    process = server.process
    client = server.control._process.pid
    echoes = [Echo(server, tmp_path, f"e{n}", ECHO_CHILD="1") for n in range(3)]
    report = server.stop(1.0)
    assert report.server == "ended"
    assert report.survivors == ()
    assert process is not None
    assert not process.is_alive()
    assert pid_start(client) is None
    for echo in echoes:
        assert not echo.pane.process.is_alive()
        assert (
            pid_start(echo.meta["child"]) is None
            or not ProcessId(echo.meta["child"], pid_start(echo.meta["child"])).is_alive()
        )
    assert list((tmp_path / f"tmux-{os.getuid()}").iterdir()) == []
    assert server.stop(1.0).server == "already_gone"
    until(lambda: set(threading.enumerate()) <= threads_before)
    assert open_descriptors() <= fds_before


@pytest.mark.contract("C17")
@pytest.mark.contract("C62")
def test_c17_a_detached_server_is_found_again_with_its_panes_and_no_text_in_its_buffers_and_messages(tmp_path):
    first = TmuxServer(f"lwd-{os.getpid()}", tmpdir=tmp_path)
    first.start()
    echo = Echo(first, tmp_path, "stays")
    assert first.control.call(b"set-option -s message-limit 1000", 5).ok  # as an older version of us left it
    assert first.control.call(b"set-buffer -b left -- secret", 5).ok
    assert "secret" in first.control.call(b"show-messages", 5).text
    first.detach()
    second = TmuxServer(f"lwd-{os.getpid()}", tmpdir=tmp_path)
    try:
        second.start()
        assert second.adopted
        assert second.process == first.process
        (row,) = answer(second.panes)
        assert (row.pane_id, row.pid, row.name, row.dead) == (echo.pane.pane_id, echo.pane.pid, "stays", False)
        pane = second.adopt(row.pane_id, row.pid, echo.pane.pid_start, row.name)
        assert pane.process.is_alive()
        assert answer(pane.paste, b"hello again") is None
        assert echo.take(b"\x1b[200~hello again\x1b[201~") == b"\x1b[200~hello again\x1b[201~"
        assert second.control.call(b"list-buffers", 5).lines == ()
        messages = second.control.call(b"show-messages", 5).text
        assert not any(word in messages for word in ("secret", "hello"))
    finally:
        second.stop(0.1)
    assert not echo.pane.process.is_alive()


def test_c34_a_foreign_server_on_the_socket_is_left_alone(tmp_path):
    server = TmuxServer("foreign", tmpdir=tmp_path)
    server.socket_path.parent.mkdir(mode=0o700)
    tmux = ["tmux", "-S", str(server.socket_path), "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "-s", "person", "sleep 1000"], check=True, env=server._env)
    try:
        with pytest.raises(TransportError) as refused:
            server.start()
        assert "another tmux server" in refused.value.reason
        server.stop(0.1)
        assert subprocess.run([*tmux, "has-session", "-t", "person"], check=False).returncode == 0
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def test_a_detached_control_client_comes_back_and_nothing_is_called_gone(own_server):
    told: list[int] = []
    own_server.on_gone = lambda: told.append(1)
    before = own_server.control
    own_server.control.submit(b"detach-client", lambda _: None)
    until(lambda: own_server.control is not before and isinstance(own_server.liveness(), Alive))
    assert not told
    assert isinstance(before, ControlClient)


def test_a_control_client_that_ends_again_and_again_comes_back_each_time(own_server, monkeypatch):
    monkeypatch.setattr(edge, "REATTACH_PAUSE_S", 0.3)
    for _ in range(edge.REATTACH_MAX + 3):
        before = own_server.control
        before.submit(b"detach-client", lambda _: None)
        until(lambda before=before: own_server.control is not before and isinstance(own_server.liveness(), Alive))


def test_a_screen_that_is_gone_when_it_is_captured_holds_up_no_other_command(server):
    """Its height was known, and the refusal has one line."""
    answers: list[Reply] = []
    server.submit_all(Command(b"capture-pane -p -t %4000000", answers.append, height=lambda: 50))
    assert server.control.call(b"display-message -p next", 5).lines == (b"next",)
    assert [answer.ok for answer in answers] == [False]


def test_e35_a_lost_control_client_alone_is_unknown_and_never_gone(own_server):
    own_server._reattached = edge.REATTACH_MAX
    told: list[int] = []
    own_server.on_gone = lambda: told.append(1)
    control = own_server.control
    control.submit(b"detach-client", lambda _: None)
    until(lambda: control.gone)
    assert isinstance(own_server.liveness(), Unknown)
    assert not told
    assert own_server.stop(0.1).server == "killed"  # nobody left to ask it


def test_the_clipboard_and_pass_through_are_closed_to_a_program(server):
    assert server.control.call(b"show-options -sv set-clipboard", 5).lines == (b"off",)
    assert server.control.call(b"show-options -gwv allow-passthrough", 5).lines == (b"off",)
    assert server.control.call(b"show-options -gv history-limit", 5).lines == (str(tmux_setup.HISTORY_LINES).encode(),)


def test_a_flooding_pane_costs_the_others_little(server, tmp_path):
    flood = open_pane(server, "flood", ["yes", "a flood of output"])
    echo = Echo(server, tmp_path, "calm")
    waits = []
    for _ in range(50):
        began = time.perf_counter()
        answer(echo.pane.look)
        waits.append(time.perf_counter() - began)
    assert sorted(waits)[25] < 0.1
    close(flood, 0)
    close(echo.pane, 0)
