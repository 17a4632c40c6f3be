"""Panes: opened with exactly what was asked for, looked at, pressed into."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from integration.tmux_kit import ECHO_TUI, Echo, answer, close, open_pane
from kit_system import until
from lastword.actors.core.errors import ProviderError, RejectedError, TransportError, UsageError
from lastword.actors.core.world import Transport
from lastword.transports.process import pid_start
from lastword.transports.tmux import TmuxServer
from lastword.transports.tmux_find import PANE_MARK
from lastword.transports.tmux_pane import PaneHandle, Pressed, Refused
from lastword.transports.tmux_setup import find_tmux

pytestmark = pytest.mark.tmux


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
