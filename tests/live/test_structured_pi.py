"""The promises of the structured transport, on the real Pi and a scripted model; and what is Pi's own.

Pi differs where it takes a message into its run whenever that comes, asks through extensions only, and ends with the
end of its stdin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import live_clis
import pytest

import pi_promises
import structured_promises
from kit_system import until
from lastword import Answer, Interrupt, events
from structured_kit import (
    WAIT_S,
    StdioHost,
    child_of,
    completed,
    completion_of,
    completions,
    ended,
    of_type,
    seen,
)

OTHERWISE = frozenset(
    {
        "test_c03_two_blocks_are_one_answer_and_a_cut_message_goes_on",  # what max_tokens cuts stays cut
        "test_c22_a_message_while_the_model_answers_becomes_its_own_turn",  # it joins the run
        "test_c20_a_message_while_a_tool_runs_joins_that_turn",  # as here, but it is answered apart, and last
        "test_c13_equal_texts_are_told_apart_by_name",
        "test_c19_a_background_task_starts_a_turn_of_its_own_that_closes_none_of_ours",
        "test_c25_a_permission_is_a_dialog_that_the_host_answers",  # it has no permissions: extensions ask
        "test_c25_a_permission_may_be_given_for_what_follows_too",
        "test_c25_a_question_of_the_models_is_a_dialog_with_its_options",
        "test_c17_the_answer_that_came_after_the_host_was_killed_is_recovered_from_the_stream",  # no host, no run
        "test_c17_an_orphan_finishes_what_it_was_told_and_what_comes_meanwhile_waits_for_the_next",
        "test_c17_an_orphan_can_be_interrupted",
    }
)
"""Promises that Pi keeps in another way: each has its own below."""
_PROMISES = {name: test for name, test in vars(structured_promises).items() if name.startswith("test_")}
assert set(_PROMISES) > OTHERWISE
globals().update({name: test for name, test in _PROMISES.items() if name not in OTHERWISE})

test_c20_a_message_while_busy_joins_the_run_which_ends_with_its_answer = (
    pi_promises.test_c20_a_message_while_busy_joins_the_run_which_ends_with_its_answer
)
test_c13_equal_texts_are_told_apart_by_name = pi_promises.test_c13_equal_texts_are_told_apart_by_name

pytestmark = pytest.mark.live
CACHE = os.environ.get("LASTWORD_CLI_CACHE", "")
EXTENSION = Path(__file__).with_name("pi_extension.ts")
ARGS = ("--offline", "--no-approve", "-e", str(EXTENSION))


@pytest.fixture
def pi() -> tuple[str, ...]:
    if not CACHE or not live_clis.is_there(Path(CACHE), "pi"):
        pytest.skip("the pinned pi is not in the cache folder: make live")
    return live_clis.argv_of(Path(CACHE), "pi")


@pytest.fixture
def host(pi: tuple[str, ...]) -> Iterator[StdioHost]:
    with StdioHost(pi, provider="pi", version="1.6.0", args=ARGS) as made:
        yield made


# --- the main job -----------------------------------------------------------------------------------------------------


def test_c03_two_blocks_are_one_answer_and_what_max_tokens_cuts_is_told_as_it_is(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[say:First. ]][[say:Second.]] blocks", deadline_s=WAIT_S).answer == "First. Second."
    cut = session.run("[[say:part one, ]][[stop:max_tokens]][[say:part two]] long", deadline_s=WAIT_S)
    assert (cut.status, cut.answer) == ("completed", "part one, ")


@pytest.mark.contract("C24")
@pytest.mark.parametrize("text", ["/greet you", "/llama", "/mcp"])
def test_c24_what_pi_would_execute_or_expand_reaches_the_model(host: StdioHost, text: str) -> None:
    prompts = host.kit.home / ".pi" / "agent" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "greet.md").write_text("Greet them.\n", encoding="utf-8")
    session = host.session()
    done = session.run(text, deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", f"echo: {text}")
    (submitted,) = of_type(session, events.MessageSubmitted)
    assert submitted.body.rewritten == ("leading_blank",)


def test_run_rehearse_drives_the_real_pi_over_its_protocol(pi: tuple[str, ...]) -> None:
    words = ["run", "--rehearse", "--provider", "pi", "--transport", "structured", "[[say:rehearsed]]"]
    done = subprocess.run(
        [sys.executable, "-m", "lastword.runtime.command", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LASTWORD_CLI_CACHE": CACHE},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "rehearsed\n"), done.stderr


# --- busy -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C20")
def test_c20_ten_messages_at_once_to_an_idle_pi_are_all_taken(host: StdioHost) -> None:
    """It answers each of several prompts with "started" and loses all but one: they must not reach it at once."""
    session = host.session()
    assert session.run("[[say:warm]]", deadline_s=WAIT_S).status == "completed"
    acks = [session.send(f"number {number}") for number in range(10)]
    order = lambda: [m for done in completions(session)[1:] for m in (done.message_id, *done.joined)]  # noqa: E731
    until(lambda: len(order()) == 10, within_s=WAIT_S)
    assert order() == [ack.message_id for ack in acks]


@pytest.mark.contract("C13")
def test_c13_messages_at_the_very_end_of_runs_are_neither_lost_nor_doubled(host: StdioHost) -> None:
    """Each second one is sent the moment that the last word of the run is heard, whose end is still to come."""
    session = host.session()
    acks = []
    for number in range(25):
        acks.append(session.send(f"[[say:{number}]] a"))
        seen(session, events.AssistantMessage, acks[-1].seq)
        acks.append(session.send(f"[[say:{number}]] b"))
    ends = lambda: sorted(m for done in completions(session) for m in (done.message_id, *done.joined) if m)  # noqa: E731
    until(lambda: len(ends()) == len(acks), within_s=WAIT_S)
    assert ends() == sorted(ack.message_id for ack in acks)


@pytest.mark.contract("C19")
def test_c19_a_run_that_an_extension_begins_is_a_turn_of_its_own(pi: tuple[str, ...]) -> None:
    with StdioHost(pi, provider="pi", version="1.6.0", args=ARGS, env={"LASTWORD_TEST_ALONE": "1"}) as host:
        session = host.session()
        done = session.run("[[say:ours]]", deadline_s=WAIT_S)
        assert (done.status, done.answer) == ("completed", "ours")
        _, own = completed(session, 2)
        assert (own.origin, own.message_id, own.status, own.answer) == (
            "task_notification",
            None,
            "completed",
            "by itself",
        )
        assert session.run("[[say:after it]]", deadline_s=WAIT_S).answer == "after it"
        assert len(completions(session)) == 3


# --- errors and interrupts --------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
def test_c07_an_interrupt_while_pi_waits_to_try_again_is_a_cancellation(host: StdioHost) -> None:
    settings = host.kit.home / ".pi" / "agent" / "settings.json"
    kept = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps({**kept, "retry": {"baseDelayMs": 60_000, "maxRetries": 3}}), encoding="utf-8")
    session = host.session()
    ack = session.send("[[error:529]] busy")
    seen(session, events.ProviderRetrying)
    assert completions(session) == []
    session.send(Interrupt(turn_id=ack.turn_id))
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


@pytest.mark.contract("C07")
def test_c07_an_interrupt_behind_a_question_takes_it_away_and_keeps_the_process(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch never]] long")
    seen(session, events.DialogOpened)
    session.send(Interrupt(turn_id=ack.turn_id))
    assert completion_of(session, ack.turn_id).status == "cancelled"
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["elsewhere"]
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(of_type(session, events.ProviderStarted)) == 1


@pytest.mark.contract("C03")
def test_c03_pi_without_a_model_fails_the_turn_with_its_reason(host: StdioHost) -> None:
    agent = host.kit.home / ".pi" / "agent"
    (agent / "models.json").write_text("{}", encoding="utf-8")
    (agent / "settings.json").write_text("{}", encoding="utf-8")
    session = host.session()
    done = session.run("hello", deadline_s=WAIT_S)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.kind == "not_delivered"
    assert "model" in done.error.message.lower()


# --- dialogs ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C25")
def test_c25_an_extensions_question_is_a_dialog_that_the_host_answers(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch allowed]][[say:done]] one")
    opened = seen(session, events.DialogOpened)
    assert (opened.body.kind, opened.body.options) == ("question", ("Yes", "No"))
    assert opened.body.question == "May it run?\ntouch allowed"
    assert session.snapshot().state == "awaiting_user"
    assert not (host.kit.cwd / "allowed").exists()
    assert session.send(Answer(opened.body.dialog_id, 1)).taken == "applied"
    assert completion_of(session, ack.turn_id).status == "completed"
    assert (host.kit.cwd / "allowed").exists()
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host"]

    denied = session.send("[[tool:Bash:touch denied]][[say:went on]] two")
    opened = seen(session, events.DialogOpened, denied.seq)
    session.send(Answer(opened.body.dialog_id, 2))
    assert completion_of(session, denied.turn_id).answer == "went on"
    assert not (host.kit.cwd / "denied").exists()
    assert of_type(session, events.ToolFinished)[-1].body.status == "error"


@pytest.mark.contract("C25")
def test_c25_a_choice_and_a_question_that_runs_out_of_time(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:choose]][[say:thanks]] q")
    opened = seen(session, events.DialogOpened)
    assert (opened.body.question, opened.body.options) == ("Which?", ("A", "B", "Cancel"))
    session.send(Answer(opened.body.dialog_id, 2))
    assert completion_of(session, ack.turn_id).answer == "thanks"
    (finished,) = of_type(session, events.ToolFinished)
    assert finished.body.result == "chosen B\n"

    late = session.send("[[tool:Bash:wait]][[say:went on]] r")
    seen(session, events.DialogOpened, late.seq)
    assert completion_of(session, late.turn_id).answer == "went on"
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host", "elsewhere"]
    assert session.snapshot().dialog is None


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_pi_ends_with_its_host_and_every_message_has_one_end(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:60]] slow one", "second", wait_for="message_queued")
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.source) == ("lost", "process_exit")
    undelivered = seen(session, events.MessageUndelivered)
    assert undelivered.message_id == told["messages"][1]
    assert not host.strays()
    assert session.run("[[say:on]] again", deadline_s=WAIT_S).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C51")
def test_c51_the_conversation_stands_where_pi_looks_for_it_and_is_resumed(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[say:before]]", deadline_s=WAIT_S).status == "completed"
    (file,) = (host.kit.home / ".pi" / "agent" / "sessions").glob("*/*.jsonl")
    assert file.name == f"lastword_{session.snapshot().handle.native_session_id}.jsonl"
    child = child_of(session)
    host.close()
    until(lambda: ended(child), within_s=WAIT_S)
    host.open()
    again = host.again(session)
    assert again.run("[[say:after]]", deadline_s=WAIT_S).answer == "after"
    assert len(list(file.parent.iterdir())) == 1
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    said = [line["message"]["content"] for line in lines if line.get("message", {}).get("role") == "assistant"]
    assert [blocks[0]["text"] for blocks in said] == ["before", "after"]
