"""The promises of the structured transport, on the real Codex app-server and a scripted model; and what is Codex's own.

Codex differs where it takes a message into its turn whenever that comes, answers with its last message alone, and ends
with the end of its stdin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import live_clis
import pytest

import structured_promises
from structured_kit import StdioHost

OTHERWISE = frozenset(
    {
        "test_c03_two_blocks_are_one_answer_and_a_cut_message_goes_on",  # the last one is; what is cut is a failure
        "test_c22_a_message_while_the_model_answers_becomes_its_own_turn",  # it joins the turn
        "test_c20_a_message_while_a_tool_runs_joins_that_turn",  # as here, but it is answered apart, and last
        "test_c13_equal_texts_are_told_apart_by_name",
        "test_c19_a_background_task_starts_a_turn_of_its_own_that_closes_none_of_ours",  # it has none
        "test_c25_a_permission_may_be_given_for_what_follows_too",  # for the same command, not for a mode
        "test_c25_a_question_of_the_models_is_a_dialog_with_its_options",  # by a tool of another name
        "test_c17_the_answer_that_came_after_the_host_was_killed_is_recovered_from_the_stream",  # no host, no turn
        "test_c17_an_orphan_finishes_what_it_was_told_and_what_comes_meanwhile_waits_for_the_next",
        "test_c17_an_orphan_can_be_interrupted",
    }
)
"""Promises that Codex keeps in another way: each has its own below."""
_PROMISES = {name: test for name, test in vars(structured_promises).items() if name.startswith("test_")}
assert set(_PROMISES) > OTHERWISE
globals().update({name: test for name, test in _PROMISES.items() if name not in OTHERWISE})

pytestmark = pytest.mark.live
CACHE = os.environ.get("LASTWORD_CLI_CACHE", "")
RULES = "".join(f'prefix_rule(pattern=["{word}"], decision="allow")\n' for word in ("sleep", "echo"))
"""What runs unasked, where any other command is asked for."""


@pytest.fixture
def codex() -> tuple[str, ...]:
    if not CACHE or not live_clis.is_there(Path(CACHE), "codex"):
        pytest.skip("the pinned codex is not in the cache folder: make live")
    return live_clis.argv_of(Path(CACHE), "codex")


@pytest.fixture
def hosts(codex: tuple[str, ...]) -> Iterator[Callable[..., StdioHost]]:
    with ExitStack() as stack:

        def build(*args: str, **options: Any) -> StdioHost:
            wanted = {"provider": "codex", "version": "0.171.0", "permission_mode": "untrusted", **options}
            host = stack.enter_context(StdioHost(codex, args=args, **wanted))
            rules = host.kit.home / ".codex" / "rules"
            rules.mkdir()
            (rules / "default.rules").write_text(RULES, encoding="utf-8")
            return host

        yield build


@pytest.fixture
def host(hosts: Callable[..., StdioHost]) -> StdioHost:
    return hosts()
