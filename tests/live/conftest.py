"""The pinned real CLIs, from the cache folder of `make live`; each test gets a sealed home and a scripted model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastword import Runtime
from lastword.runtime.testing import Rehearsal

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import live_clis

from live.certification import Certification

pytest.register_assert_rewrite("structured_promises", "pane_promises", "acp_promises")

CACHE = os.environ.get("LASTWORD_CLI_CACHE", "")
CLAUDE = live_clis.executable_of(Path(CACHE), "claude-code") if CACHE else Path("/nonexistent")
if CLAUDE.exists():
    os.environ.setdefault("LASTWORD_CLAUDE_BIN", str(CLAUDE))


FULL_MODULES = {"test_claude_code_pane"}
"""``make live FULL=1`` alone: Claude Code keeps the promises of its own module in every run."""
FULL_TESTS = {
    "test_acp": {
        "test_c15_a_retained_follow_up_reuses_the_process_and_is_sent_at_once",
        "test_c25_what_is_denied_does_not_run_and_the_session_goes_on",
        "test_c07_an_interrupt_leaves_what_is_held_behind_it_alone",
        "test_c07_a_deadline_interrupts_and_is_told_as_a_deadline",
        "test_c17_host_and_agent_killed_lose_the_turn_once_and_the_session_resumes",
        "test_c17_a_resumed_conversation_is_told_anew_and_none_of_it_is_an_answer",
        "test_c61_after_the_close_nothing_of_a_session_is_left",
    },
    "test_structured_codex": {
        "test_c24_every_text_reaches_the_model_as_written",
        "test_c02_a_thread_that_another_process_writes_is_not_taken_from_it",
        "test_c17_a_runtime_that_is_closed_and_opened_again_goes_on_in_the_conversation",
        "test_c22_what_was_not_begun_when_the_cli_died_has_its_end_too",
        "test_c25_two_calls_at_once_are_asked_for_one_after_the_other",
        "test_c51_a_thread_in_which_nothing_was_said_is_begun_anew",
        "test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on[[[error:500]]-provider_error]",
        "test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on[[[error:529]]-overloaded]",
        "test_c07_a_deadline_interrupts_and_is_told_as_a_deadline",
        "test_c13_equal_texts_are_told_apart_by_name",
        "test_c13_messages_at_the_very_end_of_turns_are_neither_lost_nor_doubled",
        "test_c21_a_policy_that_codex_does_not_know_is_told_in_its_words",
        "test_c61_a_tool_that_outlives_its_interrupted_turn_is_gone_after_the_close",
    },
}
"""Three agents over one protocol, each slow to start: what one talk does for all is proved without these too; so is of
Codex what is one value more of a thing that is shown anyway.
"""


def pytest_configure(config: pytest.Config) -> None:
    """The table at the end."""
    config.pluginmanager.register(Certification(), "certification")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left to the long run."""
    for item in items:
        module = item.path.stem
        names = {item.name, getattr(item, "originalname", "")}
        if module in FULL_MODULES or names & FULL_TESTS.get(module, set()):
            item.add_marker("full")


@pytest.fixture
def claude() -> Path:
    if not CLAUDE.exists():
        pytest.skip("the pinned Claude Code is not in the cache folder: make live")
    return CLAUDE


@pytest.fixture
def rehearsal(claude: Path) -> Iterator[Rehearsal]:
    with Rehearsal() as kit:
        yield kit


@pytest.fixture
def open_runtime(claude: Path, rehearsal: Rehearsal) -> Iterator[Callable[..., Runtime]]:
    opened: list[Runtime] = []

    def start(**options: object) -> Runtime:
        options.setdefault("env", rehearsal.env)
        runtime = Runtime.open(rehearsal.root / "state", executables={"claude-code": str(claude)}, **options)
        opened.append(runtime)
        return runtime

    yield start
    for runtime in opened:
        runtime.close()


@pytest.fixture
def runtime(open_runtime: Callable[..., Runtime]) -> Runtime:
    return open_runtime()
