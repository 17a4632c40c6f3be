"""Life and death of the server: its commands, its end, what another host finds of it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time

import pytest

from integration.tmux_kit import Echo, answer, close, open_descriptors, open_pane
from kit_system import until
from lastword.actors.core.errors import TransportError, TransportTimeoutError, UsageError
from lastword.transports import tmux as edge
from lastword.transports import tmux_setup
from lastword.transports.process import ProcessId, pid_start
from lastword.transports.tmux import Alive, Gone, TmuxServer, Unknown
from lastword.transports.tmux_control import Command, ControlClient, Reply, quote

pytestmark = pytest.mark.tmux


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
