"""Codex's launch recipe, and by what its conversation is known."""

from __future__ import annotations

import pytest

from lastword.actors.core.adapter import LaunchRequest
from lastword.transports.providers.codex import CodexAdapter

ONE, OTHER = "01a23750-b604-7141-93f4-2859c4b3af81", "01a23750-d226-7301-b7dc-8346a0b1c2d3"
HOME = "/h/.codex"
ADAPTER = CodexAdapter()


def request(native: str = "", *, resume: bool = False, **env: str) -> LaunchRequest:
    return LaunchRequest(
        native_session=native,
        cwd="/w",
        executable=("codex",),
        env={"HOME": "/h", **env},
        resume=resume,
        model="m",
        permission_mode="never",
        extra_args=("--search",),
    )


def lock(native: str, home: str = HOME) -> str:
    return f"{home}/thread-writer-locks/{native}.lock"


def rollout(native: str) -> str:
    return f"{HOME}/sessions/2026/12/02/rollout-2026-12-02T15-12-46-{native}.jsonl"


def identified(title: str, *held: str, **env: str) -> str:
    return ADAPTER.identify(request(**env), title, lambda: held)


@pytest.mark.contract("C51")
def test_c51_the_conversation_is_the_one_that_our_process_has_locked_and_shows() -> None:
    shown = f"Ready | {ONE[:29]}..."
    assert identified(shown, lock(ONE)) == ONE
    assert identified(shown, "/dev/null", lock(OTHER), rollout(OTHER), lock(ONE)) == ONE
    assert identified(f"⠏ Working | {OTHER[:29]}...", lock(ONE), lock(OTHER)) == OTHER


@pytest.mark.contract("C51")
@pytest.mark.parametrize(
    ("title", "held"),
    [
        ("host", (lock(ONE),)),
        ("", (lock(ONE),)),
        (f"Ready | {ONE[:29]}...", ()),
        (f"Ready | {ONE[:29]}...", (lock(OTHER),)),
        (f"Ready | {ONE[:29]}...", (rollout(ONE),)),
        (f"Ready | {ONE[:29]}...", (lock(ONE, "/elsewhere"),)),
        (f"Ready | {ONE[:8]}-b604-7141...", (lock(ONE), lock(f"{ONE[:18]}-0000-000000000000"))),
    ],
)
def test_c51_it_is_not_known_while_lock_and_title_do_not_name_one(title: str, held: tuple[str, ...]) -> None:
    assert identified(title, *held) == ""


def test_c51_nothing_is_asked_of_the_process_before_the_title_names_one() -> None:
    def open_files() -> list[str]:
        raise AssertionError("asked")

    assert ADAPTER.identify(request(), "host", open_files) == ""


def test_the_recipe_keeps_the_server_out_and_has_the_title_written() -> None:
    argv = ADAPTER.launch(request()).argv
    assert argv[:2] == ("codex", "--no-daemon")
    assert 'tui.terminal_title=["activity", "run-state", "thread-id"]' in argv
    assert argv[-5:] == ("--ask-for-approval", "never", "--model", "m", "--search")
    assert ADAPTER.launch(request(ONE, resume=True)).argv[-2:] == ("resume", ONE)


def test_its_record_is_the_rollout_that_ends_with_its_name_wherever_it_stands() -> None:
    source = ADAPTER.transcript(request(ONE))
    assert (source.path, source.root, source.suffix) == ("", f"{HOME}/sessions", f"-{ONE}.jsonl")
    assert source.found(rollout(ONE)).root == f"{HOME}/sessions/2026/12/02"
    assert ADAPTER.transcript(request(ONE, CODEX_HOME="/c/")).root == "/c/sessions"
    assert ADAPTER.transcript(request()).suffix == ""  # no name: no file is anybody's
    assert ADAPTER.parse_version("codex-cli 0.171.0\n") == "0.171.0"
