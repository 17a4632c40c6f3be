"""The tmux socket is gone or stands elsewhere while CLIs live: none is told as gone, doubled, or left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.pane_host import PaneHost, process
from host_kit import WAIT_S, away
from kit_system import until
from lastword.transports.process import ProcessId, children, command_line
from lastword.transports.tmux_find import Lodger, living_home

pytestmark = pytest.mark.tmux


@pytest.fixture
def host():
    with PaneHost() as made:
        yield made


def prompts(host: PaneHost, session) -> list[str]:
    """Texts that any of its CLIs took, in the order of the record; a second CLI has a record or a start of its own."""
    lines = [
        line for path in host.kit.home.glob(".claude/projects/*/*.jsonl") for line in path.read_text().splitlines()
    ]
    return [text for line in lines for text in ("first", "second", "third") if '"user"' in line and text in line]


def clis(host: PaneHost) -> list[int]:
    return [pid for pid in host.strays() if b"scripted_cli" in command_line(pid)]


def in_the_second_turn(host: PaneHost):
    session = host.session()
    assert host.run(session, "first [[say:one]]").answer == "one"
    session.send("second [[sleep:1.5]][[say:two]]")
    host.running(session, 2)
    return session, host.cli(session), host.server


def control_client(server: ProcessId, socket: Path) -> int:
    """Its control client: a child of this process that speaks to that socket."""
    found = [pid for pid in children(os.getpid()) if os.fsencode(socket) in command_line(pid)]
    assert len(found) == 1, found
    return found[0]


def move_in(host: PaneHost) -> None:
    """From here on its sockets stand in a folder of its own."""
    host.runtime.close()
    host.tmux = host.kit.root / "x"
    host.tmux.mkdir()
    host.kit.env["TMUX_TMPDIR"] = str(host.tmux)
    host.open()


def lose(host: PaneHost, how: str) -> None:
    """Between two hosts the socket goes out of the next one's sight."""
    if how == "folder removed":
        host.socket.unlink()
        host.socket.parent.rmdir()
    elif how == "removed":
        host.socket.unlink()
    elif how == "elsewhere":
        del host.kit.env["TMUX_TMPDIR"]
        host.tmux = Path("/tmp")
    else:
        host.state.rename(host.kit.root / "moved")
        host.state = host.kit.root / "moved"


@pytest.mark.contract("C17")
@pytest.mark.contract("C02")
@pytest.mark.parametrize("how", ["removed", "folder removed", "elsewhere", "state moved"])
def test_c17_a_cli_whose_socket_is_out_of_sight_is_taken_over_and_nothing_is_left(how):
    host = PaneHost()
    with host:
        if how in ("elsewhere", "folder removed"):
            move_in(host)
        session, cli, server = in_the_second_turn(host)
        home = host.socket
        host.abandon()
        lose(host, how)
        host.open()
        again = host.again(session)
        done = host.completed(again, 2)
        assert [(each.status, each.answer) for each in done] == [("completed", "one"), ("completed", "two")]
        assert (host.cli(again), host.server) == (cli, server)
        assert host.run(again, "third [[say:three]]").answer == "three"
        assert clis(host) == [cli.pid]
        assert prompts(host, again) == ["first", "second", "third"]
        assert again.snapshot().handle.attach[2] == str(home)
        report = host.runtime.close(grace_s=1.0)
        assert report.clean, report
        assert not server.is_alive()
        assert not home.exists()
        assert host.strays() == []


@pytest.mark.contract("C17")
@pytest.mark.contract("C61")
def test_c17_a_cli_that_can_be_reached_no_more_is_ended_before_it_is_told_gone(host):
    """A file stands where the socket's folder was: tmux cannot make it anew."""
    move_in(host)
    session, cli, server = in_the_second_turn(host)
    host.abandon()
    lose(host, "folder removed")
    host.socket.parent.write_text("")
    lose(host, "elsewhere")
    host.open()
    assert not cli.is_alive()
    assert not server.is_alive()
    again = host.again(session)
    assert host.completed(again, 2)[1].status == "lost"
    assert host.run(again, "third [[say:three]]").answer == "three"
    assert len(clis(host)) == 1


@pytest.mark.contract("C17")
@pytest.mark.contract("C61")
def test_c17_a_cli_that_outlived_its_server_is_ended_with_what_it_left(tmp_path):
    """Deaf to the hangup, its parent no tmux; a child of it in a session of its own."""
    socket = tmp_path / "tmux-0" / "lastword-x"
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "one, two = os.pipe()\n"
        "if not os.fork():\n    os.setsid()\n    child = os.fork()\n"
        "    if child: os.write(two, str(child).encode()); os._exit(0)\n    time.sleep(60)\n"
        "print(os.read(one, 9).decode(), flush=True)\ntime.sleep(60)\n"
    )
    env = {**os.environ, "TMUX": f"{socket},1,3"}
    cli = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, start_new_session=True)
    child = process(int(cli.stdout.readline()))
    try:
        assert living_home([Lodger(process(cli.pid), socket)], socket) is None
        assert cli.wait(WAIT_S) == -signal.SIGTERM
        assert not child.is_alive()
    finally:
        child.send(signal.SIGKILL)
        cli.kill()
        cli.wait()
        cli.stdout.close()


# --- while the host runs ----------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C61")
def test_c02_a_removed_socket_and_a_dead_control_client_leave_the_session_at_work(host):
    session, cli, server = in_the_second_turn(host)
    client = control_client(server, host.socket)
    host.socket.unlink()
    os.kill(client, signal.SIGKILL)
    assert host.completed(session, 2)[1].answer == "two"
    assert away(session.run, "third [[say:three]]").result(WAIT_S).answer == "three"
    assert (host.cli(session), host.server) == (cli, server)
    assert clis(host) == [cli.pid]
    assert host.socket.exists()


@pytest.mark.contract("C02")
@pytest.mark.contract("C61")
def test_c02_a_server_that_can_be_reached_no_more_is_ended_and_the_next_message_finds_a_new_one(host):
    move_in(host)
    session, cli, server = in_the_second_turn(host)
    client = control_client(server, host.socket)
    lose(host, "folder removed")
    host.socket.parent.write_text("")  # it cannot make its socket anew
    os.kill(client, signal.SIGKILL)
    until(lambda: not server.is_alive() and not cli.is_alive(), within_s=WAIT_S)
    assert host.completed(session, 2)[1].status == "lost"
    host.socket.parent.unlink()
    assert away(session.run, "third [[say:three]]").result(WAIT_S).answer == "three"
    assert host.server != server
