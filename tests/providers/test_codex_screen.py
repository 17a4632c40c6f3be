"""What Codex's recorded screens and titles say about typing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, Signal, SignalView
from lastword.transports.providers.codex_screen import SHELL_MODE, clear_draft_keys, signals, thread_prefix
from lastword.transports.providers.drawn_choice import answer_keys

SCREENS = Path(__file__).parents[1] / "fixtures" / "codex" / "0.171.0" / "screens"
TITLES = json.loads((SCREENS / "titles.json").read_text())
ID = "01a23750-b604-7141-93f4-2859c4b3af81"
READY, WORKING, ASKS = (f"{state} | {ID[:29]}..." for state in ("Ready", "⠏ Working", "[ ! ] Action Required"))


def lines_of(name: str) -> tuple[str, ...]:
    return tuple((SCREENS / f"{name}.txt").read_text().split("\n"))


def seen(name: str, title: str | None = None) -> Signal:
    return said(lines_of(name), TITLES.get(name, "") if title is None else title)


def said(lines: tuple[str, ...], title: str = READY) -> Signal:
    return signals(SignalView(screen=lines, title=title, status=None, pid=1))


def dialog(name: str, title: str | None = None) -> DialogOpen:
    signal = seen(name, title)
    assert isinstance(signal, DialogOpen), signal
    return signal


@pytest.mark.parametrize(
    "name",
    ["titled_idle", "idle", "answered", "failed", "interrupted", "declined", "key_help", "escape_armed"],
)
def test_an_idle_empty_box_takes_text(name: str) -> None:
    assert seen(name) == Ready(draft="", busy=False)


@pytest.mark.parametrize("name", ["running", "titled_running", "steer_waits"])
def test_a_busy_cli_takes_text_and_its_placeholder_is_no_draft(name: str) -> None:
    assert seen(name) == Ready(draft="", busy=True)


@pytest.mark.parametrize(
    ("name", "draft", "busy"),
    [
        ("draft_while_busy", "steered", True),
        ("draft_like_the_placeholder", "Ask Codex to do anything", False),
        ("draft_of_four_lines", "one\n\n  two\nthree", False),
        ("two_pastes", "[Pasted Content 1500 chars][Pasted Content 1500 chars] #2", False),
        ("slash_popup", "/st", False),
        ("mention_popup", "look @READ", False),
        ("shell_mode", f"{SHELL_MODE}echo hi", False),
    ],
)
def test_c24_a_draft_is_seen_as_it_stands(name: str, draft: str, busy: bool) -> None:
    assert seen(name) == Ready(draft=draft, busy=busy)


@pytest.mark.contract("C25")
def test_c25_an_approval_is_a_dialog_with_its_question_its_options_and_the_cursor() -> None:
    first, second = dialog("approval"), dialog("approval_second")
    assert first.kind == "permission"
    assert first.question.split("\n") == [
        "Would you like to run the following command?",
        "Environment: local",
        "Reason: May I touch it?",
        "$ touch /rehearsal/x",
    ]
    assert [option.split(",")[0] for option in first.options] == ["Yes", "Yes", "No"]
    assert (first.cursor, second.cursor) == (1, 2)
    assert first.key == second.key


@pytest.mark.contract("C25")
def test_c25_the_same_question_again_is_another_dialog_once_one_was_decided() -> None:
    lines = lines_of("approval")
    later = tuple("✔ You approved codex to run touch /rehearsal/x" if line == "" else line for line in lines[:5])
    again = said((*later, *lines[5:]), ASKS)
    assert isinstance(again, DialogOpen)
    assert again.question == dialog("approval").question
    assert again.key != dialog("approval").key


@pytest.mark.contract("C25")
def test_c25_the_title_goes_first_where_the_dialog_is_not_drawn_yet() -> None:
    assert isinstance(seen("titled_running", ASKS), NotReady)
    assert isinstance(seen("titled_idle", ASKS), NotReady)
    half = tuple(line for line in lines_of("approval") if not line.lstrip("› ").startswith(("1.", "2.", "3.", "Press")))
    assert isinstance(said(half, ASKS), NotReady)


@pytest.mark.contract("C25")
@pytest.mark.parametrize(
    ("name", "kind", "options", "cursor"),
    [
        ("hooks_review", "trust", 3, 1),
        ("login", "login", 3, 1),
        ("model_panel", "panel", 8, 1),
        ("permissions_panel", "panel", 4, 4),
        ("hooks_panel", "panel", 0, 0),
        ("open_elsewhere", "panel", 0, 0),
    ],
)
def test_c25_whatever_takes_the_place_of_the_box_is_a_dialog(name: str, kind: str, options: int, cursor: int) -> None:
    found = dialog(name)
    assert (found.kind, len(found.options), found.cursor) == (kind, options, cursor)
    assert found.question


@pytest.mark.contract("C25")
@pytest.mark.parametrize("name", ["approval", "hooks_review", "login", "model_panel", "open_elsewhere"])
@pytest.mark.parametrize("title", [READY, WORKING, "host", ""])
def test_c25_no_title_makes_a_dialog_a_box_that_takes_text(name: str, title: str) -> None:
    assert not isinstance(seen(name, title), Ready)


@pytest.mark.parametrize(
    "lines", [(), ("",), ("WARNING: proceeding",), ("› half", ""), ("", "  footer"), ("• x", "", "  y")]
)
def test_a_screen_that_shows_no_box_is_not_ready(lines: tuple[str, ...]) -> None:
    assert isinstance(said(lines), NotReady)


def test_what_an_answer_quotes_is_no_box() -> None:
    quoted = ("• It says:", "", "  › Ask Codex to do anything", "", "  model · /x", "  ? for shortcuts")
    assert isinstance(said(quoted), NotReady)


@pytest.mark.parametrize("title", ["", "host", "Ready", "hello | proj", f"Ready | {ID[:5]}", f"{ID}"])
@pytest.mark.contract("C51")
def test_c51_a_title_not_of_our_making_names_no_conversation(title: str) -> None:
    assert thread_prefix(title) == ""


@pytest.mark.contract("C51")
def test_c51_the_title_names_the_conversation_in_every_state() -> None:
    for title in (READY, WORKING, ASKS):
        assert thread_prefix(title) == ID[:29]
    assert thread_prefix(f"Ready | {ID[:31]}") == ID[:31]


def test_keys_step_to_the_option_and_empty_the_box() -> None:
    asked = dialog("approval")
    assert [answer_keys(asked, option) for option in (0, 1, 3, 4)] == [(), ("Enter",), ("Down",), ()]
    assert clear_draft_keys("a\nb").count("C-u") == 5
