"""Parts are stopped, go on, are killed, and leave children behind: turns end once, typing is not doubled, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from faults.pane_host import PaneHost, gone, process, soon, stat_of
from host_kit import WAIT_S, away
from kit_system import until
from lastword.actors.core.ports import Batch
from lastword.runtime._journal import SqliteJournal
from lastword.transports.process import listener
from lastword.transports.tmux import TmuxServer

pytestmark = pytest.mark.tmux
PAUSE_S = 0.8


@pytest.fixture
def host():
    with PaneHost() as made:
        yield made


def prompts(host: PaneHost, session, text: str) -> int:
    """How often the CLI has that text as a prompt on record."""
    lines = host.record(session).read_text().splitlines()
    return sum('"type":"user"' in line.replace(" ", "") and text in line for line in lines)


# --- stopped, and going on ------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C24")
@pytest.mark.parametrize("part", ["server", "server and cli"])
@pytest.mark.parametrize("when", ["before typing", "in the turn"])
def test_c24_a_part_that_stood_still_goes_on_and_nothing_is_typed_twice(host, part, when):
    session = host.session()
    assert host.run(session, "first [[say:one]]").answer == "one"
    parts = (
        [host.server] if part == "server" else [host.server, host.cli(session)]
    )  # tmux lets a lone CLI go on at once

    def stop() -> None:
        for each in parts:
            each.send(signal.SIGSTOP)

    if when == "in the turn":
        waiting = away(session.run, "second-text [[sleep:0.3]][[say:two]]")
        host.running(session, 2)
        stop()
    else:
        stop()
        waiting = away(session.run, "second-text [[say:two]]")
    time.sleep(PAUSE_S)
    assert type(host.runtime._edges.opened["tmux"].transport.server.liveness(0.1)).__name__ == "Unknown"
    assert session.snapshot().state != "gone"
    if len(parts) > 1 or when == "before typing":
        assert not waiting.done()
    for each in parts:
        each.send(signal.SIGCONT)
    assert waiting.result(WAIT_S).answer == "two"
    assert prompts(host, session, "second-text") == 1
    assert host.run(session, "third [[say:three]]").answer == "three"
    assert [done.answer for done in host.completed(session, 3)] == ["one", "two", "three"]


@pytest.mark.contract("C60")
@pytest.mark.parametrize("part", ["cli", "server"])
def test_c60_a_stopped_part_does_not_hold_up_the_end(part):
    host = PaneHost()
    with host:
        session = host.session()
        session.send("go [[sleep:30]]")
        host.running(session)
        (host.cli(session) if part == "cli" else host.server).send(signal.SIGSTOP)
        began = time.monotonic()
        report = host.runtime.close(grace_s=0.5)
        assert time.monotonic() - began < 10.0
        assert report.clean, report


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C22")
@pytest.mark.parametrize("part", ["cli", "server"])
def test_c02_a_killed_part_ends_the_turn_as_lost_at_once_and_the_session_goes_on(host, part):
    session = host.session()
    waiting = away(session.run, "go [[sleep:30]]")
    host.running(session)
    (host.cli(session) if part == "cli" else host.server).send(signal.SIGKILL)
    began = time.monotonic()
    assert waiting.result(WAIT_S).status == "lost"
    assert time.monotonic() - began < 5.0
    assert host.run(session, "again [[say:back]]").answer == "back"
    assert len(host.completed(session, 2)) == 2


@pytest.mark.contract("C60")
@pytest.mark.contract("C61")
@pytest.mark.parametrize("held", ["terminal", "pipe"])
def test_c60_a_tools_run_away_child_holds_up_nothing_and_goes_with_the_session(host, held):
    """Double fork, a session of its own, deaf to SIGHUP and SIGTERM, the terminal or the tool's own pipe held open."""
    note = host.kit.root / "pid"
    script = host.kit.root / "away.py"
    script.write_text(
        f"import os, signal, time\nos.closerange(0, {3 if held == 'terminal' else 0})\n"
        "try: os.open('/dev/tty', os.O_RDWR)\n"
        "except OSError: pass\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\n"
        f"open({str(note)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    session = host.session(permission_mode="bypassPermissions")
    waiting = away(session.run, f"go [[tool:Bash:{sys.executable} {script}]][[say:done]]")
    pid = int(soon(note))
    if held == "terminal":
        assert waiting.result(WAIT_S).answer == "done"
    assert stat_of(pid) == "S"
    began = time.monotonic()
    host.cli(session).send(signal.SIGKILL)
    assert waiting.result(WAIT_S).status == ("completed" if held == "terminal" else "lost")
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    gone(pid)
    assert time.monotonic() - began < 5.0
    assert host.run(session, "again [[say:back]]").answer == "back"


@pytest.mark.contract("C61")
def test_c61_what_forks_on_and_on_is_stopped_before_it_is_ended(host):
    note = host.kit.root / "forks"
    script = host.kit.root / "forks.py"
    script.write_text(
        "import os, signal, time\nos.closerange(0, 3)\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "for number in (signal.SIGHUP, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        f"open({str(note)!r}, 'w').write('on')\n"
        "until = time.time() + 20\n"
        "while time.time() < until:\n"
        "    time.sleep(0.004)\n"
        "    if os.fork(): os._exit(0)\n"
    )
    session = host.session(permission_mode="bypassPermissions")
    assert host.run(session, f"go [[tool:Bash:{sys.executable} {script}]][[say:done]]").answer == "done"
    soon(note)
    report = host.runtime.close(grace_s=0.3)
    assert report.clean, report
    assert host.strays() == []


# --- a server that is told to end and does not ------------------------------------------------------------------------


@pytest.mark.contract("C17")
def test_c17_a_server_that_waits_for_a_dead_hosts_client_is_ended_and_a_new_one_starts(tmp_path):
    """Control output that nobody will read keeps a tmux that was told to end: it listens and serves nobody."""
    name = f"lwleave-{os.getpid()}"
    first = TmuxServer(name)
    first.start()
    old = first.process
    client = subprocess.Popen(
        ["tmux", "-S", str(first.socket_path), "-C", "attach-session", "-t", "=hub"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        client.stdout.readline()
        first.detach()
        client.stdout.close()
        client.stdin.write(b"list-commands\nkill-server\n")
        client.stdin.flush()
        time.sleep(0.3)
        leaving = listener(first.socket_path)
        assert leaving == old, "tmux has ended by itself: this test proves nothing any more"
        asked = subprocess.run(
            ["tmux", "-S", str(first.socket_path), "list-sessions"], capture_output=True, text=True, check=False
        )
        assert "exited" in asked.stderr
        second = TmuxServer(name)
        second.start()
        assert not old.is_alive()
        assert second.process != old
        assert second.stop(0.0).survivors == ()
    finally:
        client.kill()
        client.wait()
        client.stdin.close()
        if old is not None:
            old.send(signal.SIGKILL)


# --- hygiene ----------------------------------------------------------------------------------------------------------

_HOST = r"""
import json, os, signal, sys, threading
from lastword import Runtime
from lastword.runtime.testing import SCRIPTED_CLI
root, how, env = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
runtime = Runtime.open(f"{root}/state", env=env, executables={"claude-code": (sys.executable, str(SCRIPTED_CLI))},
                       durability="process", serve_socket=True)
session = runtime.session("claude-code", cwd=f"{root}/work")
session.send("go [[sleep:0.5]][[say:the answer]]", message_id="m1")
log = iter(session.events())
while next(log).type != "turn_started": pass
if how in ("fork", "fork_close"):  # a child that ends as any process does must end nothing of its parent
    child = os.fork()
    if not child and how == "fork_close": runtime.close()
    if not child: sys.exit(0)
    cli = session.snapshot().handle.pid
    os.waitpid(child, 0)
    os.kill(cli, 0)
    while (event := next(log)).type != "unified_completion": pass
    print(event.body.completion.answer, flush=True)
    sys.exit(0)
print(session.session_id, flush=True)
if how == "exit": sys.exit(3)
if how == "raise": raise RuntimeError("the host's own trouble")
if how == "end": del runtime
else: os.kill(os.getpid(), getattr(signal, how)); signal.pause()
"""


def run_host(host: PaneHost, how: str) -> tuple[int, str]:
    argv = [sys.executable, "-c", _HOST, str(host.kit.root), how, json.dumps(host.kit.env)]
    (host.kit.root / "work").mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, env=env, cwd="/")
    return done.returncode, done.stdout.strip()


@pytest.fixture
def sealed():
    with PaneHost() as host:
        host.runtime.close()
        host.runtime = None
        yield host


@pytest.mark.contract("C61")
@pytest.mark.parametrize("how", ["exit", "raise", "end"])
def test_c61_a_host_that_ends_without_closing_leaves_nothing_and_its_turn_is_settled(sealed, how):
    status, session_id = run_host(sealed, how)
    assert status == {"exit": 3, "raise": 1, "end": 0}[how]
    assert sealed.strays() == []
    assert not sealed.socket.exists()
    assert sorted(path.name for path in sealed.state.iterdir()) == ["journal.db", "journal.lock"]
    session = sealed.open().session(session_id=session_id)
    (done,) = sealed.completed(session, 1)
    assert done.status == "cancelled"
    assert sealed.run(session, "more [[say:more]]").answer == "more"


@pytest.mark.contract("C61")
@pytest.mark.contract("C17")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_c17_a_host_that_a_signal_ended_loses_nothing_and_the_next_one_leaves_nothing(sealed, how):
    status, session_id = run_host(sealed, how)
    assert status == -getattr(signal, how)
    session = sealed.open().session(session_id=session_id)
    (done,) = sealed.completed(session, 1)
    assert (done.status, done.answer) == ("completed", "the answer")
    assert sealed.run(session, "more [[say:more]]").answer == "more"


@pytest.mark.contract("C61")
@pytest.mark.parametrize("how", ["fork", "fork_close"])
def test_c61_a_forked_child_of_the_host_ends_nothing(sealed, how):
    assert run_host(sealed, how) == (0, "the answer")
    assert sealed.strays() == []


@pytest.mark.contract("C17")
def test_c17_the_lock_ends_with_its_host_though_a_forked_child_lives(tmp_path):
    code = (
        "import os, sys, time\nfrom lastword.runtime._journal import SqliteJournal\n"
        "journal = SqliteJournal.open(sys.argv[1])\n"
        "if not os.fork(): time.sleep(60)\n"
        "print('held', flush=True)\ntime.sleep(60)\n"
    )
    from lastword import JournalError
    from lastword.runtime._journal import SqliteJournal

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "state")], stdout=subprocess.PIPE, env=env, start_new_session=True
    )
    try:
        holder.stdout.readline()
        child = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0])
        holder.send_signal(signal.SIGSTOP)  # it lives: refused, and named
        with pytest.raises(JournalError, match=str(holder.pid)) as caught:
            SqliteJournal.open(tmp_path / "state")
        assert caught.value.kind == "journal_locked"
        holder.kill()
        holder.wait()
        assert stat_of(child) in "SR"

        def taken() -> bool:
            try:
                SqliteJournal.open(tmp_path / "state").close()
            except JournalError as error:
                if error.kind != "journal_locked":
                    raise
                return False  # the child lets go as soon as it runs at all
            else:
                return True

        until(taken, within_s=WAIT_S)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()


@pytest.mark.contract("C60")
def test_c60_a_healthy_run_is_never_signalled(tmp_path):
    """The CLI's end of it: what a wrapper in its place was sent, by number, until the close."""
    note = tmp_path / "signals"
    with PaneHost() as host:
        host.runtime.close()
        wrapper = host.kit.root / "wrapper.py"
        from lastword.runtime.testing import SCRIPTED_CLI

        wrapper.write_text(
            "import os, runpy, signal, sys\n"
            f"note = os.open({str(note)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
            "real = signal.signal\n"
            "def noted(number, then):\n"
            "    def handler(got, frame):\n"
            "        os.write(note, f'{got}\\n'.encode())\n"
            "        if callable(then): then(got, frame)\n"
            "    return real(number, handler)\n"
            "signal.signal = noted\n"
            "for number in set(signal.valid_signals()) - {9, 19, 28, 17, 13}:\n"
            "    try: noted(number, None)\n"
            "    except (OSError, ValueError): pass\n"
            f"sys.argv[0] = {str(SCRIPTED_CLI)!r}\n"
            f"runpy.run_path({str(SCRIPTED_CLI)!r}, run_name='__main__')\n"
        )
        from lastword import Runtime

        host.runtime = Runtime.open(
            host.state, env=host.kit.env, executables={"claude-code": (sys.executable, str(wrapper))}
        )
        session = host.session()
        for number in range(3):
            text = f"go [[say:a]][[tool:Bash:echo x]][[say:answer {number}]]"
            assert host.run(session, text).answer.endswith(f"answer {number}")
        assert host.runtime._system.settle(WAIT_S)
        assert [line for line in note.read_text().split() if line != str(int(signal.SIGWINCH))] == []
        pid = host.cli(session).pid
        host.runtime.close()
        assert str(int(signal.SIGHUP)) in note.read_text().split(), "the wrapper notes nothing"
        gone(process(pid).pid)


# --- killed between a start and its commit ----------------------------------------------------------------------------


@pytest.mark.contract("C17")
@pytest.mark.contract("C02")
@pytest.mark.parametrize("work", ["a turn that runs", "nothing"])
def test_c17_a_cli_whose_start_was_never_committed_is_found_by_its_newer_epoch(host, work):
    """The host died after it started the next CLI and before the journal had it: its pane has the name of that start,
    and a number greater than the one on record. It is taken over, with the turn in it, and no name is used twice.
    """
    session = host.session()
    assert host.run(session, "first [[say:one]]").answer == "one"
    if work != "nothing":
        session.send("second [[sleep:1]][[say:two]]")
        host.running(session, 2)
    row = host.runtime._journal.session(session.session_id)
    host.abandon()
    forget_start(host.state, row)
    host.open()
    again = host.again(session)
    if work != "nothing":
        assert host.completed(again, 2)[1].answer == "two"
    assert host.run(again, "third [[say:three]]").answer == "three"


def forget_start(state, row) -> None:
    """As if the commit of its last start had not been made."""
    journal = SqliteJournal.open(state, durability="process")
    try:
        before = msgspec.structs.replace(row, epoch=row.epoch - 1, handle=json.dumps({"pid": 1, "pid_start": 1}))
        (recorded,) = journal.record([Batch(session_id=row.session_id, session=before)], time.time())
        assert recorded.last_seq
    finally:
        journal.close()
