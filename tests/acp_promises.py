"""What a session with an agent of the Agent Client Protocol promises: the same on the scripted agent and on real ones.

The modules that collect them give the fixture ``host``, a :class:`structured_kit.StdioHost`.
"""

from __future__ import annotations

import signal
import statistics
import time

import pytest

from kit_system import until
from lastword import Answer, Interrupt, RejectedError, Session, events
from structured_kit import (
    WAIT_S,
    StdioHost,
    as_told,
    child_of,
    completed,
    completion_of,
    completions,
    ended,
    of_type,
    seen,
    side_by_side,
)

LONG_S = 2 * WAIT_S


def patience_s(host: StdioHost) -> float:
    """For a resume: Gemini CLI would overwrite a conversation that is loaded in the minute of its making."""
    return 90.0 + WAIT_S if host.provider == "gemini" else WAIT_S


def choose(session: Session, *words: str, after: int = 0) -> int:
    """Answer the next dialog with the first option that reads so; its event's seq."""
    opened = seen(session, events.DialogOpened, after)
    number = next(n for n, text in enumerate(opened.body.options, 1) if text in words)
    assert session.send(Answer(opened.body.dialog_id, number)).taken == "applied"
    return int(opened.seq)


def allow(session: Session, after: int = 0) -> int:
    return choose(session, "Allow once", "Allow", after=after)


# --- the main job -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C03")
def test_c02_a_plain_turn_completes_with_the_answer_to_its_prompt(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("hello")
    assert (ack.taken, ack.transport) == ("started_turn", "structured")
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer, done.source) == ("completed", "echo: hello", "stream")
    assert (done.transport, done.provider) == ("structured", host.provider)
    assert done.cli_version
    assert done.native_session_id
    assert as_told(session) == [
        "session_opened",
        "message_accepted",
        "provider_started",
        "message_submitted",
        "turn_started",
        "assistant_message",
        "unified_completion",
    ]


@pytest.mark.contract("C03")
def test_c03_an_answer_that_ends_in_half_an_emoji_is_the_answer(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[half:cut here: ]] emoji", deadline_s=WAIT_S)
    wanted = "cut here: \N{REPLACEMENT CHARACTER}"
    assert (done.status, done.answer) == ("completed", wanted)
    assert [event.body.text for event in of_type(session, events.AssistantMessage)] == [wanted]


@pytest.mark.contract("C05")
@pytest.mark.contract("C15")
def test_c15_a_retained_follow_up_reuses_the_process_and_is_sent_at_once(host: StdioHost) -> None:
    session = host.session()
    assert session.run("first", deadline_s=WAIT_S).status == "completed"
    before = session.snapshot()
    sent, ends = [], []
    for number in range(5):
        done = session.run(f"number {number}", deadline_s=WAIT_S)
        assert (done.status, done.answer) == ("completed", f"echo: number {number}")
        assert done.times.submitted_at is not None
        assert done.times.accepted_at is not None
        assert done.times.committed_at is not None
        assert done.times.terminal_seen_at is not None
        sent.append(done.times.submitted_at - done.times.accepted_at)
        ends.append(done.times.committed_at - done.times.terminal_seen_at)
    assert session.snapshot().handle == before.handle
    assert len(of_type(session, events.ProviderStarted)) == 1
    figures = [statistics.median(each) * 1e3 for each in (sent, ends)]
    print("\n{}: sent {:.1f} ms, terminal record read -> committed {:.2f} ms".format(host.provider, *figures))
    assert statistics.median(sent) < 0.5
    assert statistics.median(ends) < 1.0


@pytest.mark.contract("C04")
@pytest.mark.contract("C25")
@pytest.mark.contract("C32")
def test_c25_two_tool_rounds_are_asked_for_and_their_text_is_no_answer(host: StdioHost) -> None:
    session = host.session()
    prompt = "[[say:Let me look.]][[tool:Bash:touch alpha]][[say:Once more.]][[tool:Bash:touch beta]][[say:both]] go"
    ack = session.send(prompt)
    opened = seen(session, events.DialogOpened)
    assert opened.body.kind == "permission"
    assert "touch alpha" in opened.body.question
    assert session.snapshot().state == "awaiting_user"
    assert not (host.kit.cwd / "alpha").exists()
    with pytest.raises(RejectedError) as unknown:
        session.send(Answer("d_other", 1))
    assert unknown.value.kind == "unknown_dialog"
    first = allow(session)
    allow(session, after=first)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "both")
    assert (host.kit.cwd / "alpha").exists()
    assert (host.kit.cwd / "beta").exists()
    assert [each.body.text for each in of_type(session, events.AssistantMessage)] == [
        "Let me look.",
        "Once more.",
        "both",
    ]
    started = [event.body for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    assert len(started) == len(finished) == 2
    assert ["alpha" in each.arguments for each in started] == [True, False]
    assert [each.status for each in finished] == ["ok", "ok"]
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host", "host"]
    assert len(completions(session)) == 1


@pytest.mark.contract("C25")
def test_c25_what_is_denied_does_not_run_and_the_session_goes_on(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch denied]][[say:went on]] two")
    choose(session, "Reject")
    assert completion_of(session, ack.turn_id).status in ("completed", "cancelled")
    assert not (host.kit.cwd / "denied").exists()
    assert [each.body.status for each in of_type(session, events.ToolFinished)] != ["ok"]
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


# --- busy -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C14")
@pytest.mark.contract("C22")
def test_c22_a_message_while_busy_is_held_and_becomes_its_own_turn(host: StdioHost) -> None:
    """Whatever a second prompt does to the agent: cancel the first, fail it, or mix the two answers."""
    session = host.session()
    first = session.send("[[sleep:2]][[say:one]] slow one")
    seen(session, events.MessageSubmitted)
    with pytest.raises(RejectedError) as refused:
        session.run("not now")
    assert refused.value.kind == "busy"
    second = session.send("[[say:two]] while it answers")
    assert (second.taken, second.turn_id) == ("pending", None)
    assert session.snapshot().waiting[-1] == second.message_id
    one, two = completed(session, 2)
    assert (one.turn_id, one.message_id, one.status, one.answer) == (
        first.turn_id,
        first.message_id,
        "completed",
        "one",
    )
    assert (two.message_id, two.status, two.answer) == (second.message_id, "completed", "two")
    submitted = {event.message_id: event.seq for event in of_type(session, events.MessageSubmitted)}
    first_end = next(e.seq for e in of_type(session, events.CompletionReached) if e.turn_id == one.turn_id)
    assert submitted[first.message_id] < first_end
    assert two.times.submitted_at is None or one.times.terminal_seen_at is not None


@pytest.mark.contract("C20")
def test_c20_ten_messages_at_once_each_end_in_exactly_one_completion(host: StdioHost) -> None:
    session = host.session()
    acks = [session.send(f"number {number}") for number in range(10)]
    until(lambda: len(completions(session)) == 10, within_s=LONG_S)
    done = completions(session)
    assert [each.message_id for each in done] == [ack.message_id for ack in acks]
    assert [each.answer for each in done] == [f"echo: number {number}" for number in range(10)]


@pytest.mark.contract("C13")
@pytest.mark.contract("C51")
@pytest.mark.parametrize("many", [2, 8])
def test_c51_sessions_in_one_directory_do_not_hear_each_other(host: StdioHost, many: int) -> None:
    side_by_side([host.session() for _ in range(many)], turns=2)


# --- errors and interrupts --------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
def test_c03_an_api_error_is_a_failed_turn_and_the_session_goes_on(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[error:400]] please", deadline_s=WAIT_S)
    assert done.status == "failed"
    assert done.error is not None
    # opencode tells no status of the model's service
    assert done.error.kind == ("provider_error" if host.provider == "opencode" else "invalid_request")
    assert "scripted failure" in done.error.message
    assert done.answer is None
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(of_type(session, events.ProviderStarted)) == 1


@pytest.mark.contract("C07")
@pytest.mark.parametrize("point", ["before_it_runs", "sent", "streaming", "in_tool", "dialog"])
def test_c07_an_interrupt_at_any_point_settles_once_as_cancelled(host: StdioHost, point: str) -> None:
    session = host.session()
    prompts = {
        "streaming": "[[chunk:5:0.2]][[size:2000]] long",
        "in_tool": "[[tool:Bash:touch begun && tail -f /dev/null]] long",
        "dialog": "[[tool:Bash:touch made-by-tool]] long",
    }
    if point != "before_it_runs":
        assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    ack = session.send(prompts.get(point, "[[sleep:20]] long"))
    match point:
        case "sent":
            seen(session, events.MessageSubmitted, ack.seq)
        case "streaming":
            seen(session, events.TurnStarted, ack.seq)
        case "in_tool":
            allow(session, after=ack.seq)
            until((host.kit.cwd / "begun").exists, within_s=WAIT_S)
        case "dialog":
            seen(session, events.DialogOpened, ack.seq)
    assert session.send(Interrupt(turn_id=ack.turn_id)).taken == "applied"
    session.send(Interrupt(turn_id=ack.turn_id))  # twice is once
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")
    assert sum(each.turn_id == ack.turn_id for each in completions(session)) == 1
    assert session.send(Interrupt()).taken == "nothing_to_do"
    after = session.run("[[say:after]]", deadline_s=WAIT_S)
    assert (after.status, after.answer) == ("completed", "after")
    assert len(of_type(session, events.ProviderStarted)) == 1  # it stopped when it was asked to
    assert session.snapshot().dialog is None
    assert not (host.kit.cwd / "made-by-tool").exists()


@pytest.mark.contract("C07")
def test_c07_an_interrupt_leaves_what_is_held_behind_it_alone(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] long")
    seen(session, events.MessageSubmitted)
    behind = session.send("[[say:behind]] it")
    session.send(Interrupt(turn_id=ack.turn_id))
    one, two = completed(session, 2)
    assert (one.turn_id, one.status) == (ack.turn_id, "cancelled")
    assert (two.message_id, two.status, two.answer) == (behind.message_id, "completed", "behind")


@pytest.mark.contract("C07")
def test_c07_a_deadline_interrupts_and_is_told_as_a_deadline(host: StdioHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    done = session.run("[[sleep:30]] too long", deadline_s=1.5)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "deadline")
    assert session.run("[[say:next]]", deadline_s=WAIT_S).answer == "next"


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C08")
@pytest.mark.contract("C22")
def test_c08_an_agent_killed_mid_turn_loses_it_and_what_was_held_goes_to_the_next(host: StdioHost) -> None:
    session = host.session()
    assert session.run("before", deadline_s=WAIT_S).status == "completed"
    ack = session.send("[[sleep:20]] doomed")
    seen(session, events.MessageSubmitted, ack.seq)
    held = session.send("[[say:held]] behind it")
    child = child_of(session)
    child.send(signal.SIGKILL)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    until(lambda: len(completions(session)) == 3, within_s=patience_s(host))
    after = completions(session)[-1]
    assert (after.message_id, after.status, after.answer) == (held.message_id, "completed", "held")
    assert [event.body.reason for event in of_type(session, events.ProviderStarted)] == ["open", "resume"]
    assert after.native_session_id == completions(session)[0].native_session_id


@pytest.mark.contract("C04")
@pytest.mark.contract("C16")
@pytest.mark.contract("C17")
def test_c17_a_resumed_conversation_is_told_anew_and_none_of_it_is_an_answer(host: StdioHost) -> None:
    session = host.session()
    for number in range(3):
        assert session.run(f"old {number}", deadline_s=WAIT_S).status == "completed"
    native = session.snapshot().handle.native_session_id
    host.close()
    host.open()
    again = host.again(session)
    assert again.snapshot().state == "gone"
    done = again.run("[[say:new]]", deadline_s=patience_s(host))
    assert (done.status, done.answer, done.native_session_id) == ("completed", "new", native)
    assert again.run("after", deadline_s=WAIT_S).answer == "echo: after"
    said = [each.body.text for each in of_type(again, events.AssistantMessage)]
    assert said == ["echo: old 0", "echo: old 1", "echo: old 2", "new", "echo: after"]
    assert len(completions(again)) == 5


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_host_and_agent_killed_lose_the_turn_once_and_the_session_resumes(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:60]] long", wait_for="message_submitted")
    for stray in host.strays():
        stray.process.send(signal.SIGKILL)
    until(lambda: not host.strays(), within_s=WAIT_S)
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    assert session.run("[[say:on]]", deadline_s=patience_s(host)).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C60")
@pytest.mark.contract("C61")
def test_c61_after_the_close_nothing_of_a_session_is_left(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[say:x]] y", deadline_s=WAIT_S).status == "completed"
    child = child_of(session)
    session.close()
    assert ended(child)
    assert host.strays() == []
    assert host.streams == []
    assert seen(session, events.SessionGone).body.exit_status == 0  # it ended by itself at the end of its stdin


@pytest.mark.contract("C61")
def test_c61_a_close_mid_turn_settles_it_and_ends_the_agent_within_the_grace(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:60]] long")
    seen(session, events.MessageSubmitted)
    child = child_of(session)
    began = time.monotonic()
    session.close(grace_s=0.5)
    assert time.monotonic() - began < 10
    assert completion_of(session, ack.turn_id).status == "cancelled"
    assert ended(child)
    assert host.strays() == []
    assert host.streams == []
