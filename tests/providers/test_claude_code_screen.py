"""What the input box and the dialogs of the real CLI look like, and what is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastword.actors.core.adapter import DialogOpen, NotReady, Ready, SignalView
from lastword.transports.providers.claude_code_screen import clear_draft_keys, signals
from lastword.transports.providers.drawn_choice import answer_keys

SCREENS = Path(__file__).parents[1] / "fixtures" / "claude_code" / "2.1.332" / "screens"


def view(name: str, **changes: object) -> SignalView:
    registry = json.loads((SCREENS / f"{name}.json").read_text())
    if registry is not None:
        registry |= changes
    return SignalView(
        screen=tuple((SCREENS / f"{name}.txt").read_text().split("\n")),
        title="",
        status=None if registry is None else json.dumps(registry).encode(),
        pid=0 if registry is None else registry["pid"],
    )


@pytest.mark.parametrize(
    ("name", "draft", "busy"),
    [
        ("idle_start", "", False),
        ("idle_after", "", False),
        ("busy", "", True),
        ("busy_draft", "queued text", True),
        ("busy_queued", "", True),
        ("draft_one", "hello", False),
        ("draft_multi", "a\nb\nc", False),
        ("draft_pasted", "[Pasted text #1 +19 lines]", False),
        ("draft_pasted_long", "[Pasted text #2]", False),
        ("escaped", "[[sleep:8]] early escape", False),
        ("cleared", "", False),
        ("slash_menu", "/help", False),
        ("bangmode", "[shell mode]", False),
        ("quoting", "", False),
    ],
)
def test_the_box_is_ready_and_shows_its_draft(name: str, draft: str, busy: bool) -> None:
    assert signals(view(name)) == Ready(draft=draft, busy=busy)


def test_a_wrapped_draft_keeps_its_words() -> None:
    signal = signals(view("draft_wrapped"))
    assert isinstance(signal, Ready)
    assert signal.draft.split() == ["word"] * 140


@pytest.mark.contract("C24")
def test_c24_a_suggestion_in_an_empty_box_is_no_draft() -> None:
    """After an authentication error the box of 2.1.332 shows a dim "Once fixed, resend your message"."""
    shown = view("idle_after")
    at = max(number for number, line in enumerate(shown.screen) if line.startswith("❯"))
    screen = (*shown.screen[:at], "❯\u00a0Once fixed, resend your message", *shown.screen[at + 1 :])
    assert signals(SignalView(screen=screen, title="", status=shown.status, pid=shown.pid)) == Ready()


@pytest.mark.contract("C25")
@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("permission", "permission", 4),
        ("write_perm", "permission", 3),
        ("trust", "trust", 2),
        ("help", "panel", 0),
    ],
)
def test_c25_a_dialog_is_told_with_its_question_and_options(name: str, kind: str, options: int) -> None:
    signal = signals(view(name))
    assert isinstance(signal, DialogOpen)
    assert signal.kind == kind
    assert len(signal.options) == options
    assert signal.question


def test_the_permission_dialogs_options_are_read_not_guessed() -> None:
    signal = signals(view("permission"))
    assert isinstance(signal, DialogOpen)
    assert signal.question.endswith("Do you want to proceed?")
    assert "touch xx" in signal.question
    assert signal.options[0] == "Yes"
    assert signal.options[-1] == "No"


@pytest.mark.contract("C25")
def test_c25_the_same_question_asked_again_is_another_dialog() -> None:
    first = signals(view("permission"))
    second = signals(view("permission", statusUpdatedAt=1796199999999))
    assert isinstance(first, DialogOpen)
    assert isinstance(second, DialogOpen)
    assert first.options == second.options
    assert first.key != second.key


@pytest.mark.contract("C25")
@pytest.mark.parametrize("name", ["idle_after", "draft_one", "busy"])
def test_c25_a_dialog_that_the_registry_announces_holds_the_keys_before_it_is_drawn(name: str) -> None:
    """The registry of 2.1.332 says ``waiting`` 0.4 s before the dialog is on the screen."""
    signal = signals(view(name, status="waiting", waitingFor="permission prompt"))
    assert isinstance(signal, NotReady)
    assert signal.perhaps is None


def test_a_dialog_that_only_the_screen_shows_is_at_most_perhaps_one() -> None:
    signal = signals(view("permission", status="busy", waitingFor=None))
    assert isinstance(signal, NotReady)
    assert signal.perhaps is not None


def test_another_process_registry_says_nothing() -> None:
    shown = view("busy")
    other = SignalView(screen=shown.screen, title="", status=shown.status, pid=shown.pid + 1)
    assert signals(other) == Ready(busy=True)  # by the footer of the screen itself


@pytest.mark.parametrize("status", [b"", b"{", b"[]", b"\xff\xfe", b'{"pid": "x"}', b'{"status": 3}'])
def test_an_unreadable_registry_leaves_the_screen(status: bytes) -> None:
    shown = view("idle_after")
    assert signals(SignalView(screen=shown.screen, title="", status=status, pid=1)) == Ready()


@pytest.mark.parametrize("screen", [(), ("",) * 50, ("garbage",) * 50, ("─" * 200,) * 50, ("❯",) * 3])
def test_no_screen_is_fatal_and_none_is_ready_by_mistake(screen: tuple[str, ...]) -> None:
    assert isinstance(signals(SignalView(screen=screen, title="", status=None, pid=1)), NotReady | DialogOpen)


def test_an_answer_is_seen_steps_of_the_cursor_and_then_enter() -> None:
    numbered = signals(view("permission"))
    trust = signals(view("trust"))
    assert isinstance(numbered, DialogOpen)
    assert isinstance(trust, DialogOpen)
    assert numbered.cursor == trust.cursor == 1
    assert answer_keys(numbered, 4) == ("Down",)
    assert answer_keys(numbered, 1) == ("Enter",)
    assert answer_keys(numbered, 5) == ()
    assert answer_keys(trust, 2) == ("Down",)
    moved = DialogOpen(key="k", question="q", options=trust.options, cursor=2)
    assert answer_keys(moved, 2) == ("Enter",)
    assert answer_keys(moved, 1) == ("Up",)
    unseen = DialogOpen(key="k", question="q", options=("a", "b"))
    assert answer_keys(unseen, 2) == ("2",)


MORE = SCREENS.parent / "more_screens"


@pytest.mark.contract("C25")
@pytest.mark.parametrize("name", sorted(path.stem for path in MORE.glob("*.txt")))
def test_c25_no_recorded_dialog_or_panel_is_taken_for_a_box_and_no_box_for_a_dialog(name: str) -> None:
    status = (MORE / f"{name}.json").read_bytes() if (MORE / f"{name}.json").exists() else None
    pid = json.loads(status)["pid"] if status and status.strip() != b"null" else 1
    signal = signals(
        SignalView(
            screen=tuple((MORE / f"{name}.txt").read_text().split("\n")),
            title="",
            status=status if status and status.strip() != b"null" else None,
            pid=pid,
        )
    )
    if name == "dialog_permission_digit2":  # the digit has closed it
        assert isinstance(signal, Ready), signal
    elif name.startswith(("dialog_", "panel_", "multi_")) or "permission" in name:
        assert isinstance(signal, DialogOpen), signal
    elif name.startswith(("draft_", "idle_", "busy_")):
        assert isinstance(signal, Ready), signal


def test_clearing_takes_two_keys_a_line() -> None:
    assert clear_draft_keys("one") == ("C-u",) * 3
    assert clear_draft_keys("a\nb\nc") == ("C-u",) * 7


DIALOGS = SCREENS.parent / "dialogs"


def recorded(name: str) -> SignalView:
    shot = json.loads((DIALOGS / f"{name}.json").read_text())
    status = json.dumps(shot["registry"]).encode() if shot["registry"] else None
    return SignalView(screen=tuple(shot["screen"]), title=shot["title"], status=status, pid=shot["pid"])


@pytest.mark.contract("C25")
@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("api_key", "login", ("Yes", "No (recommended)")),
        ("trust", "trust", ("No, exit", "Yes, I trust this folder")),
        ("bypass_permissions", "other", ("No, exit", "Yes, I accept")),
        (
            "mcp_one",
            "other",
            (
                "Use this MCP server",
                "Use this and all future MCP servers in this project",
                "Continue without using this MCP server",
            ),
        ),
        (
            "read_outside",
            "permission",
            (
                "Yes, and keep allowing any reads outside the working directories",
                "No, and block reads outside the working directories from now on",
                "No, and ask again next time",
                "Yes, but ask again next time",
            ),
        ),
        ("ask_question", "question", ("Red", "Blue", "Type something.", "Chat about this")),
        ("plan_exit", "permission", ("Yes, and switch to default (ask each time) for this session", "No")),
        ("auto_mode_unchecked", "other", ()),
    ],
)
def test_c25_a_recorded_dialog_has_its_kind_and_its_options_in_order(
    name: str, kind: str, options: tuple[str, ...]
) -> None:
    signal = signals(recorded(name))
    assert isinstance(signal, DialogOpen), signal
    assert (signal.kind, signal.options) == (kind, options)


@pytest.mark.contract("C25")
def test_c25_a_prompt_above_a_dialog_without_options_is_no_option_of_it() -> None:
    """Its "option" would have been answered with the dialog's Enter, which stays in auto mode."""
    signal = signals(recorded("auto_mode_unchecked"))
    assert isinstance(signal, DialogOpen), signal
    assert signal.question.startswith("Auto mode can't check actions in this session")
    assert answer_keys(signal, 1) == ()


@pytest.mark.contract("C24")
@pytest.mark.parametrize("name", ["no_key_start", "no_key_after_prompt", "after_plain_429"])
def test_c24_a_suggestion_is_no_draft_where_the_footer_has_no_shortcuts(name: str) -> None:
    assert signals(recorded(name)) == Ready()


@pytest.mark.contract("C22")
def test_c22_behind_a_usage_limit_the_box_takes_a_message() -> None:
    assert signals(recorded("after_usage_limit")) == Ready()
    assert signals(recorded("draft_usage_limit")) == Ready(draft="second message")
