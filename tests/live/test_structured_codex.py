"""The promises of the structured transport, on the real Codex app-server and a scripted model; and what is Codex's own.

Codex differs where it takes a message into its turn whenever that comes, answers with its last message alone, and ends
with the end of its stdin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import live_clis
import pytest

import structured_promises
from kit_system import until
from lastword import Answer, Interrupt, Session, events
from lastword.actors.core.talk import TalkEffect, Write
from lastword.actors.core.typing_effects import Job
from lastword.actors.stdio import StdioActor
from lastword.runtime.testing.script import Script, Step, StepError
from lastword.runtime.testing.wire import CONTEXT_OVERFLOW
from lastword.transports.providers.codex_talk import CodexTalk
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
        "test_c03_an_answer_that_ends_in_half_an_emoji_is_the_answer",
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
MCP_SERVER = Path(__file__).with_name("mcp_shout.py")
MCP = (
    "-c",
    f"mcp_servers.lab.command={json.dumps(sys.executable)}",
    "-c",
    f"mcp_servers.lab.args={json.dumps([str(MCP_SERVER)])}",
)


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


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All that is written to the CLI, in order."""
    lines: list[dict[str, Any]] = []
    write = StdioActor._write

    def noted(self: StdioActor, message: Write) -> None:
        lines.append(json.loads(message.data))
        write(self, message)

    monkeypatch.setattr(StdioActor, "_write", noted)
    return lines


def texts(wire: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Method, text and expected turn of each message that was written."""
    return [
        (line["method"], line["params"]["input"][0]["text"], line["params"].get("expectedTurnId", ""))
        for line in wire
        if line.get("method") in ("turn/start", "turn/steer")
    ]


def asked(host: StdioHost) -> list[str]:
    """The prompt of each request that the model got."""
    return [request.prompt for request in host.kit.server.requests]


# --- the main job -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
def test_c03_codex_takes_no_answer_that_ends_in_half_an_emoji_and_fails_the_turn(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[half:cut here: ]] emoji", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("failed", None)
    assert done.error is not None
    assert session.run("[[say:on]] and now", deadline_s=WAIT_S).answer == "on"


def test_c03_the_last_message_is_the_answer_and_what_max_tokens_cuts_is_a_failure(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[say:First. ]][[say:Second.]] blocks", deadline_s=WAIT_S).answer == "Second."
    (rollout,) = (host.kit.home / ".codex" / "sessions").rglob("rollout-*.jsonl")
    records = [json.loads(line) for line in rollout.read_text(encoding="utf-8").splitlines()]
    ends = [each["payload"] for each in records if each["payload"].get("type") == "task_complete"]
    assert [end["last_agent_message"] for end in ends] == ["Second."]  # as Codex itself has it
    cut = session.run("[[say:part one, ]][[stop:max_tokens]][[say:part two]] long", deadline_s=WAIT_S)
    assert (cut.status, cut.answer) == ("failed", None)
    assert cut.error is not None
    assert (cut.error.kind, "max_output_tokens" in cut.error.message) == ("provider_error", True)


@pytest.mark.contract("C32")
def test_c32_commands_changes_of_files_and_calls_of_mcp_servers_each_show_once(
    hosts: Callable[..., StdioHost],
) -> None:
    session = hosts(*MCP, permission_mode="never").session()
    patch = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"
    calls = (
        "[[tool:Bash:exit 3]]",
        f"[[tool:Bash:apply_patch <<'EOP'\n{patch}\nEOP\n]]",
        '[[tool:mcp__lab/shout:{"text": "hi"}]]',
        '[[tool:mcp__lab/shout:{"text": "fail"}]]',
    )
    done = session.run("".join(calls) + "[[say:all done]] work", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "all done")
    started = [event.body for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    names = ["exec_command", "apply_patch", "mcp__lab__shout", "mcp__lab__shout"]
    assert [each.name for each in started] == names
    assert [each.call_id for each in finished] == [each.call_id for each in started]
    assert [(each.name, each.status) for each in finished] == list(
        zip(names, ["error", "ok", "ok", "error"], strict=True)
    )
    command, changed, spoken, failed = (json.loads(each.arguments) for each in started)
    assert command == {"command": "exit 3"}
    assert [change["kind"]["type"] for change in changed["changes"]] == ["add"]
    assert (spoken, failed) == ({"text": "hi"}, {"text": "fail"})
    assert [each.result for each in finished][2:] == ["HI", "FAIL"]


def test_run_rehearse_drives_the_real_codex_over_its_protocol(codex: tuple[str, ...]) -> None:
    words = ["run", "--rehearse", "--provider", "codex", "--transport", "structured", "[[say:rehearsed]]"]
    done = subprocess.run(
        [sys.executable, "-m", "lastword.runtime.command", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LASTWORD_CLI_CACHE": CACHE},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "rehearsed\n"), done.stderr
    assert "pane" not in done.stderr


# --- busy -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C20")
@pytest.mark.parametrize("busy", ["[[sleep:1]][[say:first answer]]", "[[tool:Bash:sleep 1]][[say:first answer]]"])
def test_c20_a_message_while_busy_is_steered_into_the_turn_which_ends_with_its_answer(
    host: StdioHost, wire: list[dict[str, Any]], busy: str
) -> None:
    session = host.session()
    first = session.send(f"{busy} work")
    native = seen(session, events.TurnStarted).body.native_turn_id
    if "tool" in busy:
        seen(session, events.ToolStarted)
    second = session.send("[[say:second answer]] also this")
    assert (second.taken, second.turn_id) == ("pending", None)
    seen(session, events.MessageQueued)
    joined = seen(session, events.MessageJoined)
    assert (joined.turn_id, joined.message_id) == (first.turn_id, second.message_id)
    (done,) = completed(session)
    assert (done.status, done.answer, done.joined) == ("completed", "second answer", (second.message_id,))
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(completions(session)) == 2
    assert texts(wire) == [
        ("turn/start", f"{busy} work", ""),
        ("turn/steer", "[[say:second answer]] also this", native),
        ("turn/start", "[[say:on]]", ""),
    ]


@pytest.mark.contract("C13")
def test_c13_equal_texts_are_told_apart_by_name(host: StdioHost) -> None:
    session = host.session()
    first = session.send("[[sleep:1]][[say:one]] same")
    seen(session, events.TurnStarted)
    twins = [session.send("same") for _ in range(2)]
    (done,) = completed(session)
    assert (done.message_id, done.joined) == (first.message_id, tuple(ack.message_id for ack in twins))


@pytest.mark.contract("C13")
@pytest.mark.contract("C24")
def test_c24_a_steer_that_comes_too_late_is_refused_and_starts_its_own_turn_once(
    host: StdioHost, wire: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the turn is heard only once the next text has been written."""
    late: list[bytes] = []
    heard, deliver = CodexTalk.heard, CodexTalk.deliver

    def deaf(self: CodexTalk, line: bytes) -> list[TalkEffect]:
        if b'"turn/completed"' in line:
            late.append(line)
            return []
        return heard(self, line)

    def then(self: CodexTalk, job: Job) -> list[TalkEffect]:
        effects = deliver(self, job)
        while late:
            effects += heard(self, late.pop())
        return effects

    monkeypatch.setattr(CodexTalk, "heard", deaf)
    monkeypatch.setattr(CodexTalk, "deliver", then)
    session = host.session()
    first = session.run("[[say:one]] a", deadline_s=WAIT_S)
    second = session.run("[[say:two]] b", deadline_s=WAIT_S)
    assert (second.status, second.answer, second.joined) == ("completed", "two", ())
    assert texts(wire) == [
        ("turn/start", "[[say:one]] a", ""),
        ("turn/steer", "[[say:two]] b", first.native_turn_id),
        ("turn/start", "[[say:two]] b", ""),
    ]
    assert asked(host) == ["[[say:one]] a", "[[say:two]] b"]
    assert len(of_type(session, events.MessageSubmitted)) == 2


@pytest.mark.contract("C13")
def test_c13_messages_at_the_very_end_of_turns_are_neither_lost_nor_doubled(host: StdioHost) -> None:
    """Each second one is sent the moment that the last word of the turn is heard, whose end is still to come."""
    session = host.session()
    acks = []
    for number in range(25):
        acks.append(session.send(f"[[say:{number}]] a{number}"))
        seen(session, events.AssistantMessage, acks[-1].seq)
        acks.append(session.send(f"[[say:{number}]] b{number}"))
    ends = lambda: sorted(m for done in completions(session) for m in (done.message_id, *done.joined) if m)  # noqa: E731
    until(lambda: len(ends()) == len(acks), within_s=WAIT_S)
    assert ends() == sorted(ack.message_id for ack in acks)
    assert max(Counter(asked(host)).values()) == 1


@pytest.mark.contract("C07")
def test_c07_what_an_interrupt_makes_codex_drop_runs_once_behind_it_in_order(
    host: StdioHost, wire: list[dict[str, Any]]
) -> None:
    """It accepts what is steered behind a tool and never speaks of it again once the turn is interrupted."""
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 20]] long")
    seen(session, events.ToolStarted)
    behind = [session.send(f"[[say:{word}]] {word}") for word in ("one", "two")]
    until(lambda: len(of_type(session, events.MessageQueued)) == 2, within_s=WAIT_S)
    session.send(Interrupt(turn_id=ack.turn_id))
    order = lambda: [m for done in completions(session)[1:] for m in (done.message_id, *done.joined)]  # noqa: E731
    until(lambda: len(order()) == 2, within_s=WAIT_S)
    assert order() == [each.message_id for each in behind]
    assert [done.status for done in completions(session)][:2] == ["cancelled", "completed"]
    assert [(how, text) for how, text, _ in texts(wire)][:4] == [
        ("turn/start", "[[tool:Bash:sleep 20]] long"),
        ("turn/steer", "[[say:one]] one"),
        ("turn/steer", "[[say:two]] two"),
        ("turn/start", "[[say:one]] one"),
    ]
    assert asked(host).count("[[say:two]] two") == 1


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
def test_c03_a_used_up_limit_says_when_it_ends_and_an_overflow_is_named(host: StdioHost) -> None:
    headers = {}
    for window, used, ends in (("primary", "100", "1900000000"), ("secondary", "20", "1900009999")):
        told = {"used-percent": used, "window-minutes": "300", "reset-at": ends}
        headers.update({f"x-codex-{window}-{word}": value for word, value in told.items()})
    limit = StepError(status=429, word="usage_limit_reached", headers=headers)
    overflow = StepError(status=400, word=CONTEXT_OVERFLOW)
    host.kit.server.script = Script(scripts={"limit": (Step(error=limit),), "overflow": (Step(error=overflow),)})
    session = host.session()
    limited = session.run("[[script:limit]]", deadline_s=WAIT_S).error
    assert limited is not None
    assert (limited.kind, limited.native_kind, limited.resets_at) == (
        "rate_limited",
        "usage_limit_exceeded",
        1_900_000_000,
    )
    overflown = session.run("[[script:overflow]]", deadline_s=WAIT_S).error
    assert overflown is not None
    assert overflown.kind == "context_overflow"


@pytest.mark.contract("C21")
def test_c21_a_policy_that_codex_does_not_know_is_told_in_its_words(host: StdioHost) -> None:
    done = host.session(permission_mode="whenever").run("hello", deadline_s=WAIT_S)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.kind == "launch_failed"
    assert "unknown variant `whenever`" in done.error.message


@pytest.mark.contract("C02")
def test_c02_a_thread_that_another_process_writes_is_not_taken_from_it(host: StdioHost, codex: tuple[str, ...]) -> None:
    session = host.session()
    assert session.run("[[say:before]]", deadline_s=WAIT_S).status == "completed"
    native = session.snapshot().handle.native_session_id
    host.close()
    calls = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "another", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "thread/resume", "params": {"threadId": native}},
    ]
    other = subprocess.Popen(
        [*codex, "app-server"], cwd=host.kit.cwd, env=host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(b"".join(json.dumps(call).encode() + b"\n" for call in calls))
        other.stdin.flush()
        until(lambda: other.stdout and json.loads(other.stdout.readline()).get("id") == 2, within_s=WAIT_S)
        host.open()
        again = host.again(session)
        done = again.run("[[say:no]]", deadline_s=WAIT_S)
        assert done.error is not None
        assert (done.status, done.error.kind) == ("failed", "launch_failed")
        assert "already has an active writer" in done.error.message
    finally:
        other.communicate(timeout=WAIT_S)
    assert again.run("[[say:after]]", deadline_s=WAIT_S).answer == "after"
    assert again.snapshot().handle.native_session_id == native


@pytest.mark.contract("C03")
def test_c03_a_stream_that_is_cut_for_good_is_a_failure_and_half_of_it_is_no_answer(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[say:half of it]][[cut]] cut", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("failed", None)
    assert done.error is not None
    assert done.error.kind == "provider_error"
    assert of_type(session, events.ProviderRetrying)
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


@pytest.mark.contract("C07")
def test_c07_an_endpoint_that_is_down_holds_the_turn_until_its_deadline(host: StdioHost) -> None:
    """Codex tries again for ever: no end of its own comes."""
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    host.kit.server.stop()
    for _ in range(2):
        done = session.run("nobody hears this", deadline_s=1.5)
        assert (done.status, done.source) == ("cancelled", "stream")
        assert done.error is not None
        assert done.error.kind == "deadline"
        assert session.snapshot().state == "idle"
    assert of_type(session, events.ProviderRetrying)
    assert len(of_type(session, events.ProviderStarted)) == 1


# --- dialogs ----------------------------------------------------------------------------------------------------------


def choose(session: Session, words: str, after: int = 0) -> Any:
    """Answer the next dialog with the option that reads so; its event."""
    opened = seen(session, events.DialogOpened, after)
    number = next(n for n, text in enumerate(opened.body.options, 1) if text == words)
    assert session.send(Answer(opened.body.dialog_id, number)).taken == "applied"
    return opened


@pytest.mark.contract("C25")
def test_c25_a_command_may_be_allowed_from_now_on_and_a_no_may_stop_the_turn(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch p1]][[tool:Bash:touch p1]][[say:done]] twice")
    choose(session, "Yes, and do not ask again for touch p1")
    assert completion_of(session, ack.turn_id).status == "completed"
    assert len(of_type(session, events.DialogOpened)) == 1
    stopped = session.send("[[tool:Bash:touch p2]][[say:done]] other")
    choose(session, "No, and stop the turn", stopped.seq)
    assert completion_of(session, stopped.turn_id).status == "cancelled"
    assert not (host.kit.cwd / "p2").exists()
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host", "host"]


@pytest.mark.contract("C25")
def test_c25_two_calls_at_once_are_asked_for_one_after_the_other(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch p1]][[also:Bash:touch p2]][[say:done]] both")
    first = choose(session, "Yes")
    second = choose(session, "No", first.seq)
    assert completion_of(session, ack.turn_id).answer == "done"
    asked_for = [event.body.question.rpartition(" ")[2] for event in (first, second)]
    assert sorted(asked_for) == ["p1", "p2"]
    assert [path.name for path in host.kit.cwd.iterdir()] == asked_for[:1]


@pytest.mark.contract("C25")
def test_c25_changes_of_files_and_calls_of_mcp_servers_are_asked_for(hosts: Callable[..., StdioHost]) -> None:
    host = hosts(*MCP)
    session = host.session()
    patch = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"
    changing = session.send(f"[[tool:Bash:apply_patch <<'EOP'\n{patch}\nEOP\n]][[say:done]] change")
    opened = choose(session, "Yes")
    assert (opened.body.kind, opened.body.question) == (
        "permission",
        f"May files be changed? {host.kit.cwd / 'made'}",
    )
    assert completion_of(session, changing.turn_id).status == "completed"
    assert (host.kit.cwd / "made").read_text() == "x\n"
    calling = session.send('[[tool:mcp__lab/shout:{"text": "hi"}]][[tool:mcp__lab/shout:{"text": "ho"}]][[say:done]] c')
    opened = choose(session, "Yes, for this session", calling.seq)
    assert 'run tool "shout"? {"text":"hi"}' in opened.body.question
    assert completion_of(session, calling.turn_id).status == "completed"
    assert [event.body.result for event in of_type(session, events.ToolFinished)][1:] == ["HI", "HO"]
    assert len(of_type(session, events.DialogOpened)) == 2


@pytest.mark.contract("C25")
def test_c25_questions_of_the_models_are_dialogs_with_their_options(hosts: Callable[..., StdioHost]) -> None:
    session = hosts("--enable", "default_mode_request_user_input").session()
    wanted = [
        {
            "id": name,
            "header": "H",
            "question": text,
            "options": [{"label": each, "description": "d"} for each in labels],
        }
        for name, text, labels in (("q1", "Which?", ("A", "B")), ("q2", "And how?", ("slow", "fast")))
    ]
    ack = session.send(f"[[tool:request_user_input:{json.dumps({'questions': wanted})}]][[say:thanks]] q")
    first = choose(session, "B")
    assert (first.body.kind, first.body.question) == ("question", "Which?")
    second = choose(session, "slow", first.seq)
    assert second.body.question == "And how?"
    assert completion_of(session, ack.turn_id).answer == "thanks"


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_codex_ends_with_its_host_and_every_message_has_one_end(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:60]] slow one", "second", wait_for="message_queued")
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.source) == ("lost", "process_exit")
    undelivered = seen(session, events.MessageUndelivered)
    assert undelivered.message_id == told["messages"][1]
    assert not host.strays()
    native = session.snapshot().handle.native_session_id
    after = session.run("[[say:on]] again", deadline_s=WAIT_S)
    assert (after.answer, after.native_session_id) == ("on", native)
    assert len(completions(session)) == 2


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_an_answer_that_came_while_its_host_stood_still_is_told_by_the_next(host: StdioHost) -> None:
    host.close()
    told = host.other_host(
        "[[sleep:0.5]][[say:here]] slow one",
        wait_for="turn_started",
        frozen_until=lambda: host.said(b'"turn/completed"'),
    )
    assert "unified_completion" not in told["kinds"]
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.source, done.answer) == ("completed", "stream", "here")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C51")
def test_c51_two_sessions_in_one_directory_that_say_the_same_each_hear_their_own(host: StdioHost) -> None:
    sessions = [host.session() for _ in range(2)]
    acks = [session.send("[[sleep:0.5]][[say:same]] same") for session in sessions]
    first = [completion_of(session, ack.turn_id) for session, ack in zip(sessions, acks, strict=True)]
    second = [session.run("[[say:again]] same", deadline_s=WAIT_S) for session in sessions]
    assert [done.answer for done in (*first, *second)] == ["same", "same", "again", "again"]
    assert [done.native_session_id for done in first] == [done.native_session_id for done in second]
    assert len({done.native_session_id for done in first}) == 2
    assert len({done.native_turn_id for done in (*first, *second)}) == 4
    assert [len(completions(session)) for session in sessions] == [2, 2]
    assert len(list((host.kit.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))) == 2


@pytest.mark.contract("C51")
def test_c51_the_thread_that_codex_names_is_resumed_and_its_history_goes_to_the_model(host: StdioHost) -> None:
    session = host.session()
    first = session.run("[[say:before]] one", deadline_s=WAIT_S)
    child = child_of(session)
    host.close()
    until(lambda: ended(child), within_s=WAIT_S)
    host.open()
    again = host.again(session)
    after = again.run("[[say:after]] two", deadline_s=WAIT_S)
    assert (after.answer, after.native_session_id) == ("after", first.native_session_id)
    (rollout,) = (host.kit.home / ".codex" / "sessions").rglob("rollout-*.jsonl")
    assert rollout.name.endswith(f"-{first.native_session_id}.jsonl")
    records = [json.loads(line)["payload"] for line in rollout.read_text(encoding="utf-8").splitlines()]
    said = [each["last_agent_message"] for each in records if each.get("type") == "task_complete"]
    assert said == ["before", "after"]


@pytest.mark.contract("C51")
def test_c51_a_thread_in_which_nothing_was_said_is_begun_anew(host: StdioHost) -> None:
    session = host.session()
    until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)
    native = session.snapshot().handle.native_session_id
    assert native
    host.close()
    host.open()
    again = host.again(session)
    done = again.run("[[say:first]]", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "first")
    assert done.native_session_id not in ("", native)


@pytest.mark.contract("C61")
def test_c61_a_tool_that_outlives_its_interrupted_turn_is_gone_after_the_close(host: StdioHost) -> None:
    """Codex leaves a command running whose turn was interrupted; its end is of no turn any more."""
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 60]] long")
    seen(session, events.ToolStarted)
    session.send(Interrupt(turn_id=ack.turn_id))
    assert completion_of(session, ack.turn_id).status == "cancelled"
    (finished,) = of_type(session, events.ToolFinished)
    assert finished.body.status == "no_result"
    assert len(host.strays()) > 1
    session.close()
    assert host.strays() == []
