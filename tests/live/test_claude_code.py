"""The real Claude Code in a real pane on a scripted model: what lastword promises, seen on it.

Nothing here reads the pane to decide anything; a person's part is played by tmux keys of its own.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lastword import Answer, Command, Completion, Event, Interrupt, RejectedError, Runtime, Session, events
from lastword.runtime.testing import Rehearsal

pytestmark = pytest.mark.live

WAIT_S = 60.0


def wait_for(condition: Callable[[], object], what: str, bound_s: float = WAIT_S) -> object:
    end = time.monotonic() + bound_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {bound_s} s: {what}")


def on_record(session: Session) -> list[Event]:
    """The events that are committed now."""
    journal = session._shared.journal
    return journal.events(session.session_id, 0, 10_000)


def of_type(session: Session, kind: type) -> list[Event]:
    return [event for event in on_record(session) if isinstance(event.body, kind)]


def completions(session: Session) -> list[Completion]:
    return [event.body.completion for event in of_type(session, events.CompletionReached)]


def await_event(session: Session, kind: type, after: int = 0) -> Event:
    found = wait_for(
        lambda: next((event for event in of_type(session, kind) if event.seq > after), None), kind.__name__
    )
    assert isinstance(found, Event)
    return found


@pytest.fixture
def session(runtime: Runtime, rehearsal: Rehearsal) -> Iterator[Session]:
    return runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default")


# --- the main job ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C15")
def test_three_turns_reuse_one_pane_and_process_and_are_typed_at_once(session: Session) -> None:
    first = session.run("first of three", deadline_s=WAIT_S)
    handle = session.snapshot().handle
    acks: list[float] = []
    typed: list[float] = []
    for number in range(2, 8):
        began = time.perf_counter()
        ack = session.send(f"number {number}")
        acks.append(time.perf_counter() - began)
        done = wait_for(
            lambda turn_id=ack.turn_id: next((each for each in completions(session) if each.turn_id == turn_id), None),
            "completion",
        )
        assert isinstance(done, Completion)
        assert done.status == "completed", done.error
        assert done.answer == f"echo: number {number}"
        assert done.times.submitted_at is not None
        assert done.times.accepted_at is not None
        typed.append(done.times.submitted_at - done.times.accepted_at)
    again = session.snapshot().handle
    assert first.answer == "echo: first of three"
    assert first.cli_version == "2.1.332"
    assert (again.pid, again.pid_start, again.pane) == (handle.pid, handle.pid_start, handle.pane)
    assert len(of_type(session, events.ProviderStarted)) == 1
    print(f"\nack p50 {statistics.median(acks) * 1e3:.1f} ms, typed p50 {statistics.median(typed) * 1e3:.1f} ms")
    assert statistics.median(acks) < 0.5
    assert statistics.median(typed) < 1.0


@pytest.mark.contract("C05")
def test_completion_gate_the_completion_follows_the_native_terminal_record(session: Session) -> None:
    delays = []
    for number in range(8):
        done = session.run(f"gate {number}", deadline_s=WAIT_S)
        assert done.times.committed_at is not None
        assert done.evidence is not None
        assert done.times.terminal_seen_at is not None
        delays.append(done.times.committed_at - done.times.terminal_seen_at)
        assert done.times.native_ended_at is not None
        assert done.times.committed_at - done.times.native_ended_at < 1.0
    print(f"\nrecord read -> committed p50 {statistics.median(delays) * 1e3:.2f} ms")


@pytest.mark.contract("C08")
@pytest.mark.contract("C20")
def test_ic11_proof_2_retained_window(session: Session) -> None:
    """A real first turn ends by itself; only then, pane alive and no turn active, a follow-up is sent."""
    first = session.run("[[tool:Bash:echo one]] first", deadline_s=WAIT_S)
    assert first.status == "completed"
    before = session.snapshot()
    assert before.state == "idle"
    assert before.turn_id is None
    assert Path(f"/proc/{before.handle.pid}").exists()

    ack = session.send("[[tool:Bash:echo two]] follow up")
    assert ack.transport == "tmux"
    assert ack.taken == "started_turn"
    assert ack.turn_id not in (None, first.turn_id)
    wait_for(lambda: len(completions(session)) == 2, "second completion")
    later = [event for event in on_record(session) if event.seq > ack.seq]
    assert [event.body.completion.turn_id for event in later if isinstance(event.body, events.CompletionReached)] == [
        ack.turn_id
    ]
    assert sum(isinstance(event.body, events.TurnStarted) for event in later) == 1
    assert sum(isinstance(event.body, events.MessageSubmitted) for event in later) == 1
    assert sum(isinstance(event.body, events.ToolStarted) for event in later) == 1
    assert sum(isinstance(event.body, events.ToolFinished) for event in later) == 1
    assert sum(isinstance(event.body, events.AssistantMessage) for event in later) == 1
    assert not any(isinstance(event.body, events.ProviderStarted | events.SessionOpened) for event in later)
    assert all(event.turn_id in (ack.turn_id, None) for event in later)
    after = session.snapshot()
    assert after.handle == before.handle
    assert after.state == "idle"
    assert session.run("third", deadline_s=WAIT_S).status == "completed"


@pytest.mark.contract("C13")
@pytest.mark.contract("C51")
def test_two_sessions_in_one_directory_twenty_turns_each_at_the_same_time(
    runtime: Runtime, rehearsal: Rehearsal
) -> None:
    sessions = [runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default") for _ in range(2)]
    done: dict[int, list[Completion]] = {0: [], 1: []}

    def drive(which: int) -> None:
        for number in range(20):
            done[which].append(sessions[which].run(f"session {which} turn {number}", deadline_s=WAIT_S))

    threads = [threading.Thread(target=drive, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    everything = done[0] + done[1]
    assert len({each.turn_id for each in everything}) == 40
    for which in (0, 1):
        assert [each.answer for each in done[which]] == [f"echo: session {which} turn {n}" for n in range(20)]
        assert completions(sessions[which]) == done[which]
        assert {each.native_session_id for each in done[which]} == {sessions[which].snapshot().handle.native_session_id}


# --- what a turn may do -----------------------------------------------------------------------------------------------


@pytest.mark.contract("C04")
@pytest.mark.contract("C32")
def test_text_before_a_tool_is_no_answer_and_each_tool_shows_once(session: Session) -> None:
    prompt = "[[say:Let me look.]][[tool:Bash:echo alpha; sleep 1]][[say:Once more.]][[tool:Bash:echo beta]] tools"
    done = session.run(prompt, deadline_s=WAIT_S)
    assert done.status == "completed"
    assert done.answer is not None
    assert done.answer.startswith("echo: ")
    started = [event.body for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    assert [json.loads(each.arguments)["command"] for each in started] == ["echo alpha; sleep 1", "echo beta"]
    assert [(each.status, each.result) for each in finished] == [("ok", "alpha"), ("ok", "beta")]
    assert finished[0].duration_s is not None
    assert finished[0].duration_s > 0.5
    assert len(of_type(session, events.CompletionReached)) == 1


@pytest.mark.parametrize(
    ("directive", "kind"),
    [
        ("[[error:400]]", "invalid_request"),
        ("[[error:401]]", "authentication"),
        ("[[error:429]]", "rate_limited"),
        ("[[error:500]]", "provider_error"),
        ("[[error:529]]", "overloaded"),
        ("[[say:I will not.]][[stop:refusal]]", "refused"),
    ],
)
@pytest.mark.contract("C03")
def test_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on(
    session: Session, directive: str, kind: str
) -> None:
    done = session.run(f"{directive} please", deadline_s=WAIT_S)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.kind == kind
    assert done.answer is None
    assert session.run("and now", deadline_s=WAIT_S).status in ("completed", "failed")


@pytest.mark.contract("C03")
def test_an_error_that_the_cli_overcomes_itself_is_no_failure(session: Session) -> None:
    assert session.run("[[error:529:1]] once", deadline_s=WAIT_S).status == "completed"
    cut = session.run("[[say:half of it]][[cut:1]] cut once", deadline_s=WAIT_S)
    assert cut.status == "completed", cut.error


@pytest.mark.contract("C03")
def test_a_message_cut_by_max_tokens_is_one_answer_with_its_continuation(session: Session) -> None:
    done = session.run("[[say:part one, ]][[stop:max_tokens]][[say:part two]] long", deadline_s=WAIT_S)
    assert done.status == "completed"
    assert done.answer == "part one, part two"


@pytest.mark.contract("C14")
@pytest.mark.contract("C22")
def test_a_message_while_the_model_answers_becomes_its_own_turn(session: Session) -> None:
    first = session.send("[[sleep:3]] slow one")
    await_event(session, events.TurnStarted)
    with pytest.raises(RejectedError) as refused:
        session.run("not now")
    assert refused.value.kind == "busy"
    second = session.send("while it answers")
    assert second.taken == "pending"
    assert second.turn_id is None
    wait_for(lambda: len(completions(session)) == 2, "two completions")
    one, two = completions(session)
    assert (one.turn_id, one.message_id) == (first.turn_id, first.message_id)
    assert two.message_id == second.message_id
    assert two.answer == "echo: while it answers"
    assert two.turn_id != one.turn_id


@pytest.mark.contract("C20")
def test_a_message_while_a_tool_runs_joins_that_turn(session: Session) -> None:
    first = session.send("[[tool:Bash:sleep 4]][[say:both done]] work")
    await_event(session, events.ToolStarted)
    second = session.send("also this")
    assert second.taken == "pending"
    joined = await_event(session, events.MessageJoined)
    assert joined.turn_id == first.turn_id
    assert joined.message_id == second.message_id
    wait_for(lambda: completions(session), "completion")
    (done,) = completions(session)
    assert done.joined == (second.message_id,)
    assert done.status == "completed"


@pytest.mark.contract("C19")
def test_a_background_task_starts_a_turn_of_its_own_that_closes_none_of_ours(session: Session) -> None:
    prompt = (
        "[[say:Delegating.]]"
        '[[tool:Agent:{"description": "d", "prompt": "sub do it", "subagent_type": "general-purpose"}]]'
        "[[say:parent answer]] go"
    )
    done = session.run(prompt, deadline_s=WAIT_S)
    assert done.status == "completed"
    assert done.background_pending == 1
    wait_for(lambda: len(completions(session)) == 2, "the task's own turn")
    _, own = completions(session)
    assert own.origin == "task_notification"
    assert own.message_id is None
    assert own.turn_id != done.turn_id
    assert session.run("after it", deadline_s=WAIT_S).answer == "echo: after it"


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before_typing", "typed", "no_output_yet", "streaming", "in_tool", "dialog"])
@pytest.mark.contract("C07")
def test_an_interrupt_at_any_point_settles_once_as_cancelled(session: Session, point: str) -> None:
    prompts = {
        "before_typing": "[[sleep:20]] long",
        "typed": "[[sleep:20]] long",
        "no_output_yet": "[[sleep:20]] long",
        "streaming": "[[chunk:5:0.3]][[size:2000]] long",
        "in_tool": "[[tool:Bash:sleep 9; echo slept]] long",
        "dialog": "[[tool:Bash:touch made-by-tool]] long",
    }
    if point != "before_typing":
        assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    ack = session.send(prompts[point])
    match point:
        case "typed":
            await_event(session, events.MessageSubmitted, ack.seq)
        case "no_output_yet":
            await_event(session, events.TurnStarted, ack.seq)
            time.sleep(0.5)
        case "streaming":
            await_event(session, events.TurnStarted, ack.seq)
            time.sleep(1.5)
        case "in_tool":
            await_event(session, events.ToolStarted, ack.seq)
            time.sleep(0.5)
        case "dialog":
            await_event(session, events.DialogOpened, ack.seq)
    assert session.send(Interrupt(turn_id=ack.turn_id)).taken == "applied"
    session.send(Interrupt(turn_id=ack.turn_id))  # twice is once
    wait_for(lambda: any(each.turn_id == ack.turn_id for each in completions(session)), "cancelled")
    mine = [each for each in completions(session) if each.turn_id == ack.turn_id]
    assert len(mine) == 1
    assert mine[0].status == "cancelled"
    assert mine[0].error is not None
    assert mine[0].error.kind == "interrupted"
    assert session.send(Interrupt()).taken == "nothing_to_do"
    assert session.run("after the interrupt", deadline_s=WAIT_S).answer is not None
    assert completions(session)[-1].status == "completed"


@pytest.mark.contract("C07")
def test_a_deadline_interrupts_and_is_told_as_a_deadline(session: Session) -> None:
    done = session.run("[[sleep:30]] too long", deadline_s=2)
    assert done.status == "cancelled"
    assert done.error is not None
    assert done.error.kind == "deadline"
    assert session.run("next", deadline_s=WAIT_S).answer == "echo: next"


# --- a person, dialogs, commands ----------------------------------------------------------------------------------------


def keys(session: Session, *words: str) -> None:
    attach = session.snapshot().handle.attach
    socket = attach[attach.index("-S") + 1]
    subprocess.run(["tmux", "-S", socket, "send-keys", "-t", session.snapshot().handle.pane, *words], check=True)


@pytest.mark.contract("C19")
def test_what_a_person_types_in_the_pane_is_a_turn_of_theirs(session: Session) -> None:
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    keys(session, "-l", "typed by a person")
    keys(session, "Enter")
    wait_for(lambda: len(completions(session)) == 2, "the person's turn")
    theirs = completions(session)[1]
    assert theirs.origin == "human_terminal"
    assert theirs.message_id is None
    assert theirs.answer == "echo: typed by a person"


@pytest.mark.contract("C24")
def test_a_persons_draft_is_not_mixed_with_ours(session: Session) -> None:
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    keys(session, "-l", "half a thought")
    time.sleep(0.5)
    ack = session.send("ours")
    await_event(session, events.StallDiagnosed, ack.seq)
    assert not [event for event in of_type(session, events.MessageSubmitted) if event.seq > ack.seq]
    keys(session, "C-u")
    wait_for(lambda: len(completions(session)) == 2, "ours, once the draft is gone")
    assert completions(session)[1].answer == "echo: ours"


@pytest.mark.contract("C25")
def test_a_permission_dialog_is_an_event_and_only_the_hosts_answer_is_typed(
    session: Session, rehearsal: Rehearsal
) -> None:
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    ack = session.send("[[tool:Bash:touch made-by-tool]][[say:done with it]] ask")
    opened = await_event(session, events.DialogOpened, ack.seq)
    assert isinstance(opened.body, events.DialogOpened)
    assert opened.body.kind == "permission"
    assert opened.body.options
    assert session.snapshot().state == "awaiting_user"
    session.send("held back meanwhile")
    time.sleep(1.5)
    assert not (rehearsal.cwd / "made-by-tool").exists()
    yes = next(n for n, option in enumerate(opened.body.options, 1) if option.lower().startswith("yes"))
    assert session.send(Answer(opened.body.dialog_id, yes)).taken == "applied"
    wait_for(lambda: completions(session)[1:], "completion")
    assert completions(session)[1].status == "completed"
    assert (rehearsal.cwd / "made-by-tool").exists()
    closed = await_event(session, events.DialogClosed, ack.seq)
    assert isinstance(closed.body, events.DialogClosed)
    assert closed.body.by == "host"


@pytest.mark.contract("C25")
def test_the_trust_dialog_holds_the_first_message_until_it_is_answered(
    open_runtime: Callable[..., Runtime], rehearsal: Rehearsal
) -> None:
    strange = rehearsal.root / "strange"
    strange.mkdir()
    session = open_runtime().session("claude-code", cwd=strange, permission_mode="default")
    ack = session.send("hello")
    opened = await_event(session, events.DialogOpened)
    assert isinstance(opened.body, events.DialogOpened)
    assert opened.body.kind == "trust"
    assert session.snapshot().state == "awaiting_user"
    yes = next(n for n, option in enumerate(opened.body.options, 1) if option.lower().startswith("yes"))
    session.send(Answer(opened.body.dialog_id, yes))
    wait_for(lambda: completions(session), "completion")
    (done,) = completions(session)
    assert done.turn_id == ack.turn_id
    assert done.answer == "echo: hello"


@pytest.mark.contract("C20")
def test_clear_goes_to_a_new_native_conversation_under_the_same_session(session: Session) -> None:
    before = session.run("before", deadline_s=WAIT_S)
    assert session.send(Command("/clear")).taken == "applied"
    rebound = await_event(session, events.SessionRebound)
    assert isinstance(rebound.body, events.SessionRebound)
    after = session.run("after", deadline_s=WAIT_S)
    assert after.answer is not None
    assert after.answer.endswith("after")
    assert after.native_session_id == rebound.body.native_session_id != before.native_session_id
    assert after.session_id == before.session_id


def test_compact_is_no_turn(session: Session) -> None:
    session.run("before", deadline_s=WAIT_S)
    assert session.send(Command("/compact")).taken == "applied"
    wait_for(lambda: session.snapshot().state == "idle", "idle again")
    after = session.run("after compact", deadline_s=WAIT_S)
    assert after.status == "completed"
    assert len(completions(session)) == 2


@pytest.mark.contract("C19")
def test_a_stop_hook_of_the_users_own_that_vetoes_continues_the_same_turn(
    runtime: Runtime, rehearsal: Rehearsal
) -> None:
    flag = rehearsal.root / "vetoed"
    script = rehearsal.root / "veto.sh"
    script.write_text(
        f'#!/bin/sh\n[ -e {flag} ] && exit 0\ntouch {flag}\necho \'{{"decision":"block","reason":"once more"}}\'\n'
    )
    script.chmod(0o755)
    folder = rehearsal.home / ".claude"
    folder.mkdir(exist_ok=True)
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": str(script)}]}]}}
    (folder / "settings.json").write_text(json.dumps(hook))
    before = (folder / "settings.json").read_bytes()
    session = runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default")
    done = session.run("[[say:first answer]][[next]][[say:second answer]] veto", deadline_s=WAIT_S)
    assert done.status == "completed"
    assert done.answer == "second answer"
    assert done.continued_by_hook == 1
    assert len(completions(session)) == 1
    assert (folder / "settings.json").read_bytes() == before


# --- texts ------------------------------------------------------------------------------------------------------------

TEXTS = {
    "one_byte": "x",
    "hundred_kb": "0123456789abcdef " * 6000,
    "four_thousand_lines": "\n".join(f"line {n}" for n in range(4000)),
    "three_lines": "a\nb\nc",
    "crlf": "one\r\ntwo\r\nthree",
    "tabs": "a\tb\tc",
    "emoji_zwj": "family 👨‍👩‍👧‍👦 and flag 🏳️‍🌈 done",
    "cjk": "你好，世界。日本語とハングル 한국어",
    "trailing_backslash": "ends with a backslash \\",
    "slash_word": "/notacommand with words",
    "slash_help": "/help",
    "exit_word": "exit",
    "exit_vi": ":wq!",
    "slash_path": "/tmp/file is a path",
    "bang": "!echo this is text, not a command",
    "hash": "# a heading",
    "at": "@someone look",
    "dash": "- a list item",
    "inner_slash": "see also /clear and /help",
    "quotes_the_ui": "❯ hello\n────────────────\nesc to interrupt\n? for shortcuts\nDo you want to proceed?\n❯ 1. Yes",
    "pasted_marker": "[Pasted text #1 +3 lines] is what the box shows",
    "tmux_formats": "#{pane_id} #S ; kill-server \\; $(id) `id` %1 ~",
    "long_line": "word " * 300,
    "leading_blanks": "   indented",
}


@pytest.mark.parametrize("name", list(TEXTS))
@pytest.mark.contract("C24")
def test_a_text_arrives_as_written_or_with_the_declared_rewriting(
    runtime: Runtime, rehearsal: Rehearsal, name: str
) -> None:
    session = runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default")
    text = TEXTS[name]
    try:
        done = session.run(text, deadline_s=WAIT_S)
    except RejectedError as refused:
        assert refused.kind == "unsupported_text"  # noqa: PT017 - refused before a key is pressed is the other answer
        assert name == "bang"
        assert not of_type(session, events.MessageSubmitted)
        return
    assert done.status == "completed", done.error
    adapter = runtime._providers.adapters["claude-code", "tmux"]
    typed = adapter.escape(text)
    request = [each for each in rehearsal.server.requests if each.prompt.strip()][-1]
    assert adapter.matches(typed, request.prompt) or typed.rewritten.strip() in request.prompt
    submitted = [event.body for event in of_type(session, events.MessageSubmitted)]
    assert len(submitted) == 1
    plain = text.replace("\r\n", "\n").replace("\t", "    ").strip()
    assert typed.rewritten.strip() == plain
    assert sum(isinstance(event.body, events.TurnStarted) for event in on_record(session)) == 1


@pytest.mark.parametrize("text", ["a\0b", "a\x1b[31mb", "   ", "\n\n", "a\x07b", "zero\u200bwidth"])
@pytest.mark.contract("C24")
def test_a_text_that_the_cli_would_execute_or_lose_is_refused_before_a_key_is_pressed(
    session: Session, text: str
) -> None:
    with pytest.raises(RejectedError) as refused:
        session.run(text)
    assert refused.value.kind in ("unsupported_text", "empty_message")
    assert session.run("still fine", deadline_s=WAIT_S).answer == "echo: still fine"
    assert not of_type(session, events.MessageUndelivered)


# --- death ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C22")
@pytest.mark.contract("C02")
def test_a_killed_cli_loses_its_turn_once_and_the_next_message_resumes_the_conversation(session: Session) -> None:
    assert session.run("remember me", deadline_s=WAIT_S).status == "completed"
    old = session.snapshot().handle
    ack = session.send("[[sleep:30]] dies in it")
    await_event(session, events.TurnStarted, ack.seq)
    os.kill(old.pid, signal.SIGKILL)
    wait_for(lambda: len(completions(session)) == 2, "lost")
    lost = completions(session)[1]
    assert lost.status == "lost"
    assert lost.error is not None
    assert lost.error.kind == "provider_exited"
    wait_for(lambda: session.snapshot().state == "gone", "gone")
    done = session.run("go on", deadline_s=WAIT_S)
    assert done.status == "completed"
    assert done.answer == "echo: go on"
    new = session.snapshot().handle
    assert new.pid != old.pid
    assert new.native_session_id == old.native_session_id
    assert len(completions(session)) == 3


@pytest.mark.contract("C61")
def test_nothing_is_left_behind(open_runtime: Callable[..., Runtime], rehearsal: Rehearsal) -> None:
    runtime = open_runtime()
    session = runtime.session("claude-code", cwd=rehearsal.cwd, permission_mode="default")
    assert session.run("hello", deadline_s=WAIT_S).status == "completed"
    pid = session.snapshot().handle.pid
    attach = session.snapshot().handle.attach
    socket = Path(attach[attach.index("-S") + 1])
    report = runtime.close()
    assert report.sessions_left == ()
    assert report.threads_left == ()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the CLI is gone")
    assert not socket.exists()
    assert not [thread.name for thread in threading.enumerate() if "lastword" in thread.name]
