"""What a person gets wrong or lacks: one line that names kind and remedy, exit code 2, nothing left, nothing lost."""

import os
import sqlite3
import subprocess
import sys

import pytest

from command_kit import Place
from lastword import RejectedError, Runtime
from lastword.runtime import _door
from lastword.runtime._journal import SqliteJournal


def assert_refused(answer: tuple[int, str, str], kind: str, *words: str) -> None:
    code, out, err = answer
    assert (code, out) == (2, ""), (code, out, err)
    lines = [line for line in err.splitlines() if line.startswith("lastword: ")]
    assert len(lines) == 1, err
    assert f"({kind}). " in lines[0], lines
    for word in words:
        assert word in lines[0], lines
    assert "Traceback" not in err


@pytest.mark.contract("C21")
def test_c21_an_unknown_provider_is_refused_and_the_known_ones_are_named(place: Place) -> None:
    assert_refused(place.lastword("run", "--provider", "gemni", "hi"), "unknown_provider", "claude-code")
    assert_refused(place.lastword("read", "gemni", "x.jsonl", "--json"), "unknown_provider", "claude-code")


@pytest.mark.contract("C21")
def test_c21_a_missing_cli_is_refused_with_the_remedy(place: Place) -> None:
    (place.bin / "claude").unlink()
    assert_refused(place.lastword("run", "hi", env=bare(place)), "provider_unavailable", "not on PATH", "Install it")
    refused = place.lastword("run", "--rehearse", "hi", env=bare(place))
    assert_refused(refused, "provider_unavailable", "make live")
    place.assert_nothing_is_left()


def bare(place: Place) -> dict[str, str]:
    """The environment without the machine's own PATH, but with tmux."""
    return place.env | {"PATH": f"{place.bin}:/usr/bin:/bin"}


@pytest.mark.contract("C21")
def test_c21_a_cli_version_that_was_never_certified_needs_a_word(place: Place) -> None:
    place.program("claude", "#!/bin/sh\necho '9.9.9 (Claude Code)'\n")
    assert_refused(place.lastword("run", "hi"), "unsupported_cli_version", "9.9.9", "allow_uncertified")


@pytest.mark.contract("C21")
def test_c21_a_missing_tmux_is_refused_with_the_remedy(place: Place) -> None:
    refused = place.lastword("run", "hi", env=place.env | {"PATH": str(place.bin)})
    assert_refused(refused, "tmux_missing", "install tmux")
    assert not SqliteJournal.open(place.state, readonly=True).sessions()


@pytest.mark.contract("C21")
def test_c21_a_tmux_that_is_too_old_is_refused_with_the_remedy(place: Place) -> None:
    place.program("tmux", "#!/bin/sh\necho 'tmux 3.1c'\n")
    assert_refused(place.lastword("run", "hi"), "tmux_unsupported", "3.1c", "3.2 or newer")
    code, out, _ = place.lastword("doctor")
    assert (code, "tmux_unsupported" in out) == (1, True)


@pytest.mark.contract("C21")
def test_c21_a_state_folder_that_cannot_be_written_is_refused(place: Place) -> None:
    (place.root / "file").write_text("")
    state = str(place.root / "file" / "state")
    assert_refused(place.lastword("run", "--state", state, "hi"), "journal_unwritable", "state folder")
    code, out, _ = place.lastword("doctor", "--state", state)
    assert (code, "bad   state" in out) == (1, True)


@pytest.mark.contract("C21")
def test_c21_a_journal_of_a_newer_version_is_refused_and_left_as_it_is(place: Place) -> None:
    SqliteJournal.open(place.state).close()
    path = place.state / "journal.db"
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    db.close()
    before = path.read_bytes()
    for words in (("run", "hi"), ("sessions",), ("events", "s_x"), ("explain", "t_x"), ("send", "s_x", "hi")):
        assert_refused(place.lastword(*words), "journal_newer", "999", "Upgrade lastword")
    assert path.read_bytes() == before
    assert place.lastword("doctor")[0] == 1


@pytest.mark.contract("C21")
def test_c21_a_folder_that_is_gone_is_refused(place: Place) -> None:
    assert_refused(place.lastword("run", "--cwd", str(place.root / "gone"), "hi"), "cwd_unusable", "does not exist")
    place.assert_nothing_is_left()


@pytest.mark.contract("C21")
def test_c21_words_that_are_no_unicode_are_refused_and_told(place: Place) -> None:
    odd = os.fsdecode(b"w\xff")
    (place.root / odd).mkdir()
    assert_refused(place.lastword("run", "--cwd", str(place.root / odd), "hi"), "cwd_unusable")
    assert_refused(place.lastword("run", odd), "unsupported_text")
    assert_refused(place.lastword("run", "--model", odd, "hi"), "usage")
    assert_refused(place.lastword("run", "--session", odd, "hi"), "unknown_session")
    assert_refused(place.lastword("send", odd, "hi"), "unknown_session")
    assert_refused(place.lastword("events", odd), "unknown_session")
    assert_refused(place.lastword("explain", odd), "unknown_turn")
    assert_refused(place.lastword("read", "claude-code", odd), "file_unreadable")
    place.assert_nothing_is_left()


@pytest.mark.contract("C21")
def test_c21_an_empty_message_is_refused_before_anything_starts(place: Place) -> None:
    assert_refused(place.lastword("run", " \n\t"), "empty_message")
    assert_refused(place.lastword("run", "-", stdin=""), "empty_message")
    assert not place.state.exists()


def test_an_unreadable_file_is_refused(place: Place) -> None:
    for name in ("nope.jsonl", str(place.cwd)):
        assert_refused(place.lastword("read", "claude-code", name, "--json"), "file_unreadable")


def test_what_is_not_on_record_is_refused(place: Place) -> None:
    assert_refused(place.lastword("sessions"), "journal_failed", "no journal")
    SqliteJournal.open(place.state).close()
    assert_refused(place.lastword("events", "s_x"), "unknown_session", "lastword sessions")
    assert_refused(place.lastword("send", "s_x", "hi"), "unknown_session")
    assert_refused(place.lastword("explain", "t_x"), "unknown_turn")
    assert place.lastword("sessions", "--json")[1] == '{"host_lives":false,"sessions":[]}\n'


def test_a_name_with_control_characters_stays_on_one_clean_line(place: Place) -> None:
    answer = place.lastword("read", "co\x1b]2;x\x07\ndex", "f")
    assert_refused(answer, "unknown_provider")
    assert not {"\x1b", "\x07"} & set(answer[2])


@pytest.mark.parametrize("words", [(), ("nonsense",), ("run",), ("read", "claude-code"), ("send", "s_x")])
def test_a_wrong_call_exits_2(place: Place, words: tuple[str, ...]) -> None:
    code, out, _ = place.lastword(*words)
    assert (code, out) == (2, "") or (words == () and code in (0, 2))


def test_doctor_says_that_all_is_well(place: Place) -> None:
    code, out, err = place.lastword("doctor", "--json")
    assert (code, err) == (0, ""), out
    assert not place.state.exists()


def test_doctor_knows_that_a_models_api_is_enough_for_a_turn(place: Place) -> None:
    (place.bin / "claude").unlink()
    keyless = {name: value for name, value in bare(place).items() if not name.endswith("_API_KEY")}
    code, out, _ = place.lastword("doctor", env=keyless)
    assert code == 1, out
    assert "ANTHROPIC_API_KEY is not set" in out
    code, out, _ = place.lastword("doctor", env=keyless | {"ANTHROPIC_API_KEY": "a-key"})
    assert code == 0, out
    assert "ok    anthropic" in out
    assert "a-key" not in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--state", "", "hi"), "an empty path names no folder"),
        (("sessions", "--state", ""), "an empty path names no folder"),
        (("run", "--deadline", "nan", "hi"), "'nan' is no number of seconds"),
        (("run", "--deadline", "inf", "hi"), "'inf' is no number of seconds"),
        (("send", "--deadline", "-1", "s_x", "hi"), "'-1' is no number of seconds"),
        (("send", "s_x", "hi", "--turn", "t_x"), "--turn is for --interrupt"),
        (("send", "s_x", "--interrupt", "--deadline", "3"), "are for a TEXT"),
        (("events", "s_x", "--after", "99999999999999999999999"), "is not in the range"),
    ],
)
def test_an_option_that_means_nothing_is_refused(place: Place, words: tuple[str, ...], told: str) -> None:
    code, out, err = place.lastword(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert not (place.cwd / "journal.db").exists()


def test_a_mistyped_folder_is_not_made_for_a_session_that_is_to_go_on(place: Place) -> None:
    mistyped = place.root / "mistyped"
    assert_refused(place.lastword("run", "--session", "s_x", "--state", str(mistyped), "hi"), "journal_failed")
    assert not mistyped.exists()


def test_a_text_that_no_host_takes_is_refused_before_it_is_sent(place: Place) -> None:
    with Runtime.open(place.state, serve_socket=True):
        SESSION = "s_x"
        assert_refused(place.lastword("send", SESSION, "hi"), "unknown_session")
        with pytest.raises(RejectedError, match="too long") as refused:
            _door.ask(place.state, _door.Send(session=SESSION, text="x" * _door.LINE_BYTES_MAX))
        assert refused.value.kind == "unsupported_text"


def test_it_runs_as_a_module_too(place: Place) -> None:
    for name in ("lastword", "lastword.runtime.command"):
        done = subprocess.run(
            [sys.executable, "-m", name, "--version"], env=place.env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout.split()[0]) == (0, "lastword")
