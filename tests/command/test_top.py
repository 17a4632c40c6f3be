"""``lastword top`` in a real terminal, and without one."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from host_kit import Rig
from journal_samples import session
from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import Batch
from lastword.runtime._journal import SqliteJournal
from lastword.runtime.command import _terminal as terminal
from top_kit import SOURCES, WAIT_S, Host, Pane, until

TOP = [sys.executable, "-m", "lastword.runtime.command", "top"]
ENV = {**os.environ, "PYTHONPATH": SOURCES}


@pytest.fixture
def rig(tmp_path):
    with Rig(tmp_path, serve_socket=True) as made:
        yield made


@pytest.fixture
def recorded(tmp_path):
    """A state folder with two open sessions on record, and no host."""
    with Rig(tmp_path) as rig:
        for _ in range(2):
            rig.session().run("a secret prompt")
    return tmp_path / "state"


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*TOP, *words], env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


# --- without a terminal -------------------------------------------------------------------------------------------------


def test_once_prints_one_table_of_the_living_host_without_a_terminal(rig):
    names = [rig.session() for _ in range(3)]
    names[1].run("a secret prompt")
    code, text, errors = run("--once", "--sort", "name", "--state", str(rig.state))
    assert (code, errors) == (0, "")
    assert f"host {os.getpid()}" in text
    assert "3 sessions" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("s_")]
    assert [row[0] for row in rows] == sorted(each.session_id for each in names)
    assert [row[-1] for row in rows if row[0] == names[1].session_id] == ["1"]
    assert "secret" not in text
    assert "\x1b" not in text


def test_json_is_one_object_and_lines_bounds_it(rig):
    for _ in range(3):
        rig.ready(rig.session())
    code, text, _ = run("--json", "--lines", "2", "--state", str(rig.state))
    told = json.loads(text)
    assert code == 0
    assert told["host"] == {"state": "serves", "pid": os.getpid()}
    assert (told["live"], told["sessions"]["idle"], len(told["lines"])) == (True, 3, 2)


def test_without_a_host_the_journal_is_shown_and_called_so(recorded):
    before = (recorded / "journal.db").read_bytes()
    code, text, _ = run("--once", "--state", str(recorded))
    assert code == 0
    assert "no live host: this is what the journal says" in " ".join(text.split())
    assert len([line for line in text.splitlines() if line.startswith("s_")]) == 2
    code, text, _ = run("--json", "--state", str(recorded))
    told = json.loads(text)
    assert told["host"] == {"state": "none", "pid": None}
    assert (told["live"], told["pid"], told["completions"], told["dead_letters"]) == (False, None, 2, None)
    assert [line["turns"] for line in told["lines"]] == [1, 1]
    assert (recorded / "journal.db").read_bytes() == before


def test_a_host_without_a_socket_is_named_and_the_journal_shown(tmp_path):
    with Rig(tmp_path) as rig:
        rig.session().run("x")
        told = json.loads(run("--json", "--state", str(rig.state))[1])
    assert told["host"] == {"state": "alone", "pid": os.getpid()}
    assert (told["live"], told["completions"]) == (False, 1)


@pytest.mark.parametrize("form", [(), ("--once",), ("--json",)])
def test_what_cannot_be_shown_is_refused_on_one_line(tmp_path, form):
    code, text, errors = run(*form, "--state", str(tmp_path))
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert ("journal_failed" if form else "there is no terminal") in errors


@pytest.mark.parametrize("words", [("--interval", "nan"), ("--interval", "0"), ("--lines", "-1"), ("--sort", "x")])
def test_what_makes_no_sense_is_refused(words):
    code, text, errors = run("--once", *words)
    assert (code, text) == (2, "")
    assert words[0] in errors


def test_the_command_is_listed():
    done = subprocess.run([*TOP[:-1], "--help"], env=ENV, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert "top" in [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]


# --- in a pane ------------------------------------------------------------------------------------------------------------


def test_q_ends_it_and_the_terminal_is_as_it_was(rig, tmp_path):
    rig.session().run("x")
    with Pane(tmp_path, "--state", str(rig.state)) as pane:
        text = pane.shows("SESSION", "1-1 of 1", "q quit")
        assert f"host {os.getpid()}" in text
        assert "memory/memory" in text
        assert pane.flags() == ["1", "0", "0"]
        pane.press("q")
        pane.ended(0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGQUIT, 131)]
)
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(rig, tmp_path, number, code):
    rig.session()
    with Pane(tmp_path, "--state", str(rig.state)) as pane:
        pane.shows("1-1 of 1")
        os.kill(pane.pid, number)
        pane.ended(code)


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(rig, tmp_path):
    rig.session()
    with Pane(tmp_path, "--state", str(rig.state), jobs=True) as pane:
        pane.shows("1-1 of 1")
        pane.press("C-z")
        pane.shows("stopped=")
        assert pane.flags() == ["0", "1", "1"]
        pane.press("Enter")
        pane.shows("1-1 of 1")
        assert pane.flags() == ["1", "0", "0"]
        pane.press("q")
        pane.ended(0)


def test_once_it_goes_on_the_terminal_is_taken_again_whatever_became_of_it(rig, tmp_path):
    rig.session()
    with Pane(tmp_path, "--state", str(rig.state)) as pane:
        pane.shows("1-1 of 1")
        pane.tmux("send-keys", "-R")
        until(lambda: pane.flags()[2] == "1", pane.flags)
        os.kill(pane.pid, signal.SIGCONT)
        pane.shows("1-1 of 1", "lastword top")
        until(lambda: pane.flags() == ["1", "0", "0"], pane.flags)
        pane.press("q")
        pane.ended(0)


def test_an_error_in_it_leaves_the_terminal_as_it_was(tmp_path, recorded):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "from lastword.runtime.command import _top_lines\n"
        "real, calls = _top_lines.frame, []\n"
        "def frame(*args, **named):\n"
        "    calls.append(1)\n"
        "    return real(*args, **named) if len(calls) < 3 else 1 / 0\n"
        "_top_lines.frame = frame\n"
    )
    with Pane(tmp_path, "--state", str(recorded), extra_path=broken) as pane:
        assert "ZeroDivisionError" in pane.ended(1)


def test_the_host_dies_and_another_one_comes_while_it_runs(tmp_path):
    state = tmp_path / "state"
    with Host(state) as host, Pane(tmp_path, "--state", str(state)) as pane:
        pane.shows(f"host {host.pid}", "3 sessions", "3 idle", "1-3 of 3")
        host.kill()
        text = pane.shows("no live host: this is what the journal says", "1-3 of 3", "3 completions")
        assert f"host {host.pid}" not in text
        with Host(state) as later:
            pane.shows(f"host {later.pid}", "6 sessions", "1-6 of 6")
        pane.shows("no live host", "1-6 of 6")
        pane.press("q")
        pane.ended(0)


def test_a_stopped_host_holds_up_neither_keys_nor_the_end(tmp_path):
    state = tmp_path / "state"
    with Host(state) as host, Pane(tmp_path, "--state", str(state)) as pane:
        pane.shows(f"host {host.pid}", "1-3 of 3 by state")
        os.kill(host.pid, signal.SIGSTOP)
        pane.press("n")
        pane.shows("by name")
        pane.shows(f"(process {host.pid}), which is stopped", "this is what the journal says", "1-3 of 3")
        os.kill(host.pid, signal.SIGCONT)
        pane.shows(f"host {host.pid}", "1-3 of 3")
        pane.press("q")
        pane.ended(0)


@pytest.mark.parametrize("width", [40, 20])
def test_a_narrow_terminal_shows_what_matters_most_and_nothing_wraps(rig, tmp_path, width):
    sessions = [rig.session() for _ in range(3)]
    for each in sessions:
        rig.ready(each)
    with Pane(tmp_path, "--state", str(rig.state), "--sort", "name", width=width, height=24) as pane:
        text = pane.shows("SESSION", "idle", "1-3 of 3")
        rows = [line for line in text.splitlines() if line.startswith("s_")]
        names = sorted(each.session_id for each in sessions)
        for row, name in zip(rows, names, strict=True):
            assert row.split()[0].removeprefix("s_…") == name[-len(row.split()[0].removeprefix("s_…")) :]
        assert all(len(line) <= width for line in text.splitlines())
        assert ("TURNS" in text) == (width == 40)


def test_it_follows_the_terminals_size(rig, tmp_path):
    for _ in range(30):
        rig.session()
    with Pane(tmp_path, "--state", str(rig.state)) as pane:

        def rows() -> int:
            return len([line for line in pane.text().splitlines() if line.startswith("s_")])

        until(lambda: rows() > 20, pane.text)
        pane.tmux("resize-window", "-x", "60", "-y", "12")
        until(lambda: 2 < rows() < 10, pane.text)
        pane.shows(f"1-{rows()} of 30", "SESSION")
        pane.tmux("resize-window", "-x", "10", "-y", "3")
        pane.shows("lastword")
        pane.tmux("resize-window", "-x", "150", "-y", "40")
        pane.shows("1-30 of 30", "P99")
        pane.press("q")
        pane.ended(0)


def test_no_control_character_of_a_record_reaches_the_pane(tmp_path):
    state = tmp_path / "state"
    evil = "s_\x1b]2;stolen\x07\x1b[2J\x1b[?1049l\u202e\x9b31m\r\nend"
    journal = SqliteJournal.open(state)
    row = session(evil, opened_at=1.0)
    journal.record([Batch(session_id=SessionId(evil), session=row)], 1.0)
    journal.close()
    with Pane(tmp_path, "--state", str(state)) as pane:
        text = pane.shows("␛]2;stolen␇", "1-1 of 1")
        assert "end" in text
        assert pane.tmux("display-message", "-p", "#{alternate_on}").strip() == "1"
        assert "stolen" not in pane.tmux("display-message", "-p", "#{pane_title}")
        pane.press("q")
        pane.ended(0)


def test_a_thousand_sessions_are_scrolled_and_sorted(rig, tmp_path):
    names = sorted(rig.session().session_id for _ in range(1000))
    with Pane(tmp_path, "--state", str(rig.state), "--sort", "name") as pane:
        pane.shows("1000 sessions", "1-26 of 1000", names[0], names[25])
        pane.press("PageDown")
        pane.shows("26-51 of 1000", names[50])
        pane.press("End")
        pane.shows("975-1000 of 1000", names[-1])
        pane.press("Up", "Up", "k")
        text = pane.shows("972-997 of 1000", names[971])
        assert names[-1] not in text
        pane.press("Home")
        pane.shows("1-26 of 1000", names[0])
        pane.press("a")
        pane.shows("1-26 of 1000 by age")
        pane.press("q")
        pane.ended(0)


def test_the_ones_that_a_person_must_look_at_come_first(tmp_path):
    with Rig(tmp_path, serve_socket=True, manual=True) as rig:
        sessions = [rig.session() for _ in range(3)]
        for each in sessions:
            rig.ready(each)
        sessions[1].send("x")
        rig.running(sessions[1])
        with Pane(tmp_path, "--state", str(rig.state)) as pane:
            text = pane.shows("1 busy", "2 idle", "1 open turns")
            rows = [line.split() for line in text.splitlines() if line.startswith("s_")]
            assert rows[0][0] == sessions[1].session_id
            assert "busy" in rows[0]


# --- a terminal that takes nothing ---------------------------------------------------------------------------------------


def test_a_terminal_that_takes_nothing_holds_up_no_signal(recorded):
    """Nobody reads the other end: once its buffer is full, a write that waits would wait for ever."""
    outer, inner = pty.openpty()
    try:
        process = subprocess.Popen(
            [*TOP, "--interval", "0.2", "--state", str(recorded)],
            env={**ENV, "TERM": "xterm-256color"},
            stdin=inner,
            stdout=inner,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            assert os.read(outer, 1)  # it draws
            filled = 0
            inner_fd = os.open(os.ttyname(inner), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
            until_s = time.monotonic() + WAIT_S
            while filled < 2 and time.monotonic() < until_s:
                try:
                    os.write(inner_fd, b" " * 4096)
                    filled = 0
                except BlockingIOError:
                    filled += 1
                    time.sleep(0.3)
            os.close(inner_fd)
            process.terminate()
            assert process.wait(WAIT_S) == -signal.SIGTERM
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(outer)
        os.close(inner)


def test_a_terminal_that_goes_away_ends_it(recorded):
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [*TOP, "--interval", "0.2", "--state", str(recorded)],
        env={**ENV, "TERM": "xterm-256color"},
        stdin=inner,
        stdout=inner,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        os.close(inner)
        assert os.read(outer, 1)
        os.close(outer)
        assert process.wait(WAIT_S) == -signal.SIGHUP
    finally:
        process.kill()
        process.wait()


def test_keys_come_in_pieces_and_strange_ones_say_nothing():
    one = terminal.Terminal.__new__(terminal.Terminal)
    one._typed = bytearray()

    def typed(data: bytes) -> list[str]:
        one._typed += data
        return one.pressed()

    assert typed(b"ab") == ["a", "b"]
    assert typed(b"\x1b[A\x1bOB\x1b[5~\x1b[1~q") == ["up", "down", "page_up", "home", "q"]
    assert typed(b"\x1b[") == []
    assert typed(b"B") == ["down"]
    assert typed(b"\x1b[200~\x1b[<0;1;1M\x1b[99;5~") == []
    assert typed(b"\x1b") == []
    assert typed(b"q") == ["q"]
    assert len(typed(b"x" * 5000)) == terminal.KEYS_MAX
    assert typed(b"\x1b[" + b"1" * 5000) == []
    assert len(one._typed) <= 16
