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

pytest.register_assert_rewrite("structured_promises", "pane_promises", "pi_promises", "acp_promises")

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
        "test_c51_sessions_in_one_directory_do_not_hear_each_other[qwen-8]",
        "test_c51_sessions_in_one_directory_do_not_hear_each_other[opencode-8]",
        "test_c20_ten_messages_at_once_each_end_in_exactly_one_completion[qwen]",
        "test_c20_ten_messages_at_once_each_end_in_exactly_one_completion[opencode]",
        "test_c08_an_agent_killed_mid_turn_loses_it_and_what_was_held_goes_to_the_next[gemini]",
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

CORE_TESTS = {
    "test_pi_tui": {
        "test_c02_a_plain_turn_completes_from_what_the_extension_records",
        "test_c04_text_before_a_tool_is_no_answer_and_each_tool_of_two_rounds_shows_once",
        "test_c20_a_message_while_busy_joins_the_run_which_ends_with_its_answer[[[tool:Bash:sleep 2]][[say:first answer]]]",
        "test_c03_an_error_that_the_cli_overcomes_itself_is_no_failure",
        "test_c07_an_interrupt_at_any_point_settles_once_as_cancelled[streaming]",
        "test_c07_an_interrupt_at_any_point_settles_once_as_cancelled[in_tool]",
        "test_c12_what_many_threads_send_ends_in_exactly_one_completion_each",
        "test_c17_the_answer_that_came_while_no_host_lived_is_recovered_and_the_pane_goes_on",
        "test_c19_a_follow_up_that_a_person_types_joins_the_turn_and_closes_none_of_ours",
        "test_c22_a_killed_cli_loses_its_turn_once_and_the_next_message_resumes_the_conversation",
        "test_c25_what_an_extension_asks_is_drawn_and_is_a_dialog_that_the_host_answers",
        "test_c24_an_interrupt_puts_nothing_of_ours_into_a_persons_draft",
        "test_c51_a_person_moves_pi_to_a_new_conversation_which_is_the_one_resumed",
    },
}
"""Of these modules no others are in every run: what the promises have in common with Pi over its protocol is proved there."""


def pytest_configure(config: pytest.Config) -> None:
    """The table at the end."""
    config.pluginmanager.register(Certification(), "certification")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left to the long run."""
    for item in items:
        module = item.path.stem
        names = {item.name, getattr(item, "originalname", "")}
        left_out = module in CORE_TESTS and not names & CORE_TESTS[module]
        if module in FULL_MODULES or left_out or names & FULL_TESTS.get(module, set()):
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
