"""What a session over a CLI's own protocol promises: the same tests on the scripted CLI and on the real one.

The modules that collect them give the fixture ``host``, a :class:`structured_kit.StdioHost`.
"""

from __future__ import annotations

import json
import signal
import statistics
import threading
import time

import pytest

from kit_system import until
from lastword import Answer, Interrupt, RejectedError, events
from lastword.transports.process import ProcessId, pid_start
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

# --- the main job -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C03")
def test_c02_a_plain_turn_completes_from_the_stream(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("hello")
    assert ack.taken == "started_turn"
    assert ack.transport == "structured"
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "echo: hello")
    assert (done.source, done.transport, done.provider) == ("stream", "structured", host.provider)
    assert done.cli_version == host.version
    assert done.evidence is not None
    assert done.evidence.source.startswith(str(host.state.resolve() / "streams"))
    assert as_told(session) == [
        "session_opened",
        "message_accepted",
        "provider_started",
        "message_submitted",
        "turn_started",
        "assistant_message",
        "unified_completion",
    ]


@pytest.mark.contract("C08")
@pytest.mark.contract("C15")
def test_c15_a_retained_follow_up_reuses_the_process_and_is_sent_at_once(host: StdioHost) -> None:
    session = host.session()
    first = session.run("first", deadline_s=WAIT_S)
    before = session.snapshot()
    assert (first.status, before.state, before.turn_id) == ("completed", "idle", None)
    acks, sent, ends = [], [], []
    for number in range(6):
        began = time.perf_counter()
        ack = session.send(f"number {number}")
        acks.append(time.perf_counter() - began)
        done = completion_of(session, ack.turn_id)
        assert (done.status, done.answer) == ("completed", f"echo: number {number}")
        assert done.times.submitted_at is not None
        assert done.times.accepted_at is not None
        assert done.times.committed_at is not None
        assert done.times.terminal_seen_at is not None
        sent.append(done.times.submitted_at - done.times.accepted_at)
        ends.append(done.times.committed_at - done.times.terminal_seen_at)
    assert session.snapshot().handle == before.handle
    assert len(of_type(session, events.ProviderStarted)) == 1
    figures = [statistics.median(each) * 1e3 for each in (acks, sent, ends)]
    print("\nack {:.1f} ms, sent {:.1f} ms, terminal record read -> committed {:.2f} ms".format(*figures))
    assert statistics.median(acks) < 0.5
    assert statistics.median(sent) < 0.5


@pytest.mark.contract("C04")
@pytest.mark.contract("C32")
def test_c04_text_before_a_tool_is_no_answer_and_each_tool_shows_once(host: StdioHost) -> None:
    session = host.session()
    prompt = "[[say:Let me look.]][[tool:Bash:echo alpha]][[say:Once more.]][[tool:Bash:echo beta]] tools"
    done = session.run(prompt, deadline_s=WAIT_S)
    assert done.status == "completed"
    assert done.answer == f"echo: {prompt}"
    started = [event.body for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    assert [json.loads(each.arguments)["command"] for each in started] == ["echo alpha", "echo beta"]
    assert [(each.status, each.result.strip()) for each in finished] == [("ok", "alpha"), ("ok", "beta")]
    said = [event.body.text for event in of_type(session, events.AssistantMessage)]
    assert said == ["Let me look.", "Once more.", f"echo: {prompt}"]
    assert len(completions(session)) == 1


@pytest.mark.contract("C03")
def test_c03_an_answer_that_ends_in_half_an_emoji_is_the_answer(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[half:cut here: ]] emoji", deadline_s=WAIT_S)
    wanted = "cut here: \N{REPLACEMENT CHARACTER}"
    assert (done.status, done.answer) == ("completed", wanted)
    assert [event.body.text for event in of_type(session, events.AssistantMessage)] == [wanted]


@pytest.mark.contract("C03")
def test_c03_two_blocks_are_one_answer_and_a_cut_message_goes_on(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[say:First. ]][[say:Second.]] blocks", deadline_s=WAIT_S).answer == "First. Second."
    cut = session.run("[[say:part one, ]][[stop:max_tokens]][[say:part two]] long", deadline_s=WAIT_S)
    assert (cut.status, cut.answer) == ("completed", "part one, part two")


@pytest.mark.contract("C24")
@pytest.mark.parametrize(
    "text",
    [
        "/cost",
        "/compact now",
        " /cost",
        "exit",
        "!ls",
        "#note",
        "ends with \\",
        "a\r\nb\tc",
        "bell \x07 nul \x00 end",
        "fam \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301 \u6f22",
        "<pasted_content id=1>x</pasted_content>",
        "y" * 300_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_c24_every_text_reaches_the_model_as_written(host: StdioHost, text: str) -> None:
    done = host.session().run(text, deadline_s=WAIT_S)
    assert done.status == "completed", done.error
    assert done.answer is not None
    wanted = f"echo: {text.strip()}"
    assert done.answer == wanted or (len(text) > 2000 and done.answer.endswith("y" * 900))


# --- busy -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C14")
@pytest.mark.contract("C22")
def test_c22_a_message_while_the_model_answers_becomes_its_own_turn(host: StdioHost) -> None:
    session = host.session()
    first = session.send("[[sleep:1.5]] slow one")
    seen(session, events.TurnStarted)
    with pytest.raises(RejectedError) as refused:
        session.run("not now")
    assert refused.value.kind == "busy"
    second = session.send("while it answers")
    assert (second.taken, second.turn_id) == ("pending", None)
    seen(session, events.MessageQueued)
    one, two = completed(session, 2)
    assert (one.turn_id, one.message_id) == (first.turn_id, first.message_id)
    assert (two.message_id, two.answer) == (second.message_id, "echo: while it answers")
    assert two.turn_id != one.turn_id


@pytest.mark.contract("C20")
def test_c20_a_message_while_a_tool_runs_joins_that_turn(host: StdioHost) -> None:
    session = host.session()
    first = session.send("[[tool:Bash:sleep 2]][[say:both done]] work")
    seen(session, events.ToolStarted)
    second = session.send("also this")
    joined = seen(session, events.MessageJoined)
    assert (joined.turn_id, joined.message_id) == (first.turn_id, second.message_id)
    (done,) = completed(session)
    assert (done.status, done.answer, done.joined) == ("completed", "both done", (second.message_id,))


@pytest.mark.contract("C20")
def test_c20_ten_messages_at_once_each_end_in_exactly_one_completion(host: StdioHost) -> None:
    session = host.session()
    acks = [session.send(f"number {number}") for number in range(10)]

    def ends() -> dict[str, int]:
        found: dict[str, int] = {}
        for done in completions(session):
            for message_id in (done.message_id, *done.joined):
                if message_id is not None:
                    found[message_id] = found.get(message_id, 0) + 1
        return found

    until(lambda: len(ends()) == 10, within_s=WAIT_S)
    assert ends() == {ack.message_id: 1 for ack in acks}
    assert all(done.status == "completed" for done in completions(session))
    order = [message for done in completions(session) for message in (done.message_id, *done.joined)]
    assert order == [ack.message_id for ack in acks]


@pytest.mark.contract("C13")
def test_c13_equal_texts_are_told_apart_by_name(host: StdioHost) -> None:
    session = host.session()
    first = session.send("[[sleep:1]][[say:one]] same")
    seen(session, events.TurnStarted)
    twins = [session.send("same") for _ in range(2)]
    until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)
    done = completions(session)
    assert (done[0].message_id, done[0].joined) == (first.message_id, ())
    rest = [message for each in done[1:] for message in (each.message_id, *each.joined)]
    assert rest == [ack.message_id for ack in twins]


@pytest.mark.contract("C12")
def test_c12_many_threads_send_into_one_session(host: StdioHost) -> None:
    session = host.session()
    acks: list[str] = []
    lock = threading.Lock()

    def drive(which: int) -> None:
        for number in range(5):
            ack = session.send(f"thread {which} message {number}")
            with lock:
                acks.append(ack.message_id)

    threads = [threading.Thread(target=drive, args=(which,)) for which in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    def ended_ones() -> list[str]:
        return sorted(m for done in completions(session) for m in (done.message_id, *done.joined) if m is not None)

    until(lambda: ended_ones() == sorted(acks), within_s=2 * WAIT_S)
    assert len(acks) == 30


@pytest.mark.contract("C13")
@pytest.mark.contract("C51")
def test_c51_eight_sessions_in_one_directory_do_not_hear_each_other(host: StdioHost) -> None:
    done = side_by_side([host.session() for _ in range(8)], turns=3)
    assert len({each.turn_id for turns in done for each in turns}) == 24


@pytest.mark.contract("C19")
def test_c19_a_background_task_starts_a_turn_of_its_own_that_closes_none_of_ours(host: StdioHost) -> None:
    session = host.session()
    prompt = (
        "[[say:Delegating.]]"
        '[[tool:Agent:{"description": "d", "prompt": "sub do it", "subagent_type": "general-purpose"}]]'
        "[[say:parent answer]] go"
    )
    done = session.run(prompt, deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "parent answer")
    _, own = completed(session, 2)
    assert (own.origin, own.message_id, own.status) == ("task_notification", None, "completed")
    assert own.turn_id != done.turn_id
    assert session.run("after it", deadline_s=WAIT_S).answer == "echo: after it"


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
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
def test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on(
    host: StdioHost, directive: str, kind: str
) -> None:
    session = host.session()
    done = session.run(f"{directive} please", deadline_s=WAIT_S)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.kind == kind
    assert done.answer is None
    assert session.run("[[say:on]]", deadline_s=WAIT_S).status in ("completed", "failed")
    assert len(of_type(session, events.ProviderStarted)) == 1


@pytest.mark.contract("C03")
def test_c03_an_error_that_the_cli_overcomes_itself_is_no_failure(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[error:529:1]] once", deadline_s=WAIT_S).status == "completed"
    cut = session.run("[[say:half of it]][[cut:1]] cut once", deadline_s=WAIT_S)
    assert (cut.status, cut.answer) == ("completed", "half of it")
    assert of_type(session, events.ProviderRetrying)


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
@pytest.mark.parametrize("point", ["before_it_runs", "sent", "no_output_yet", "streaming", "in_tool", "dialog"])
def test_c07_an_interrupt_at_any_point_settles_once_as_cancelled(host: StdioHost, point: str) -> None:
    session = host.session()
    prompts = {
        "streaming": "[[chunk:5:0.3]][[size:2000]] long",
        "in_tool": "[[tool:Bash:sleep 9; echo slept]] long",
        "dialog": "[[tool:Bash:touch made-by-tool]] long",
    }
    if point != "before_it_runs":
        assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    ack = session.send(prompts.get(point, "[[sleep:20]] long"))
    match point:
        case "sent":
            seen(session, events.MessageSubmitted, ack.seq)
        case "no_output_yet":
            seen(session, events.TurnStarted, ack.seq)
        case "streaming":
            seen(session, events.TurnStarted, ack.seq)
            time.sleep(1.0)  # a piece of it is out: nothing tells
        case "in_tool":
            seen(session, events.ToolStarted, ack.seq)
        case "dialog":
            seen(session, events.DialogOpened, ack.seq)
    assert session.send(Interrupt(turn_id=ack.turn_id)).taken == "applied"
    session.send(Interrupt(turn_id=ack.turn_id))  # twice is once
    done = completion_of(session, ack.turn_id)
    assert done.status == "cancelled"
    assert done.error is not None
    assert done.error.kind == "interrupted"
    assert sum(each.turn_id == ack.turn_id for each in completions(session)) == 1
    assert session.send(Interrupt()).taken == "nothing_to_do"
    assert session.run("[[say:after]]", deadline_s=WAIT_S).status == "completed"
    assert session.snapshot().dialog is None


@pytest.mark.contract("C07")
def test_c07_an_interrupt_leaves_what_is_queued_behind_it_alone(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] long")
    seen(session, events.TurnStarted)
    behind = session.send("[[say:behind]] it")
    seen(session, events.MessageQueued)
    session.send(Interrupt(turn_id=ack.turn_id))
    one, two = completed(session, 2)
    assert (one.turn_id, one.status) == (ack.turn_id, "cancelled")
    assert (two.message_id, two.status, two.answer) == (behind.message_id, "completed", "behind")


@pytest.mark.contract("C07")
def test_c07_a_deadline_interrupts_and_is_told_as_a_deadline(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[sleep:30]] too long", deadline_s=1.5)
    assert done.status == "cancelled"
    assert done.error is not None
    assert done.error.kind == "deadline"
    assert session.run("[[say:next]]", deadline_s=WAIT_S).status == "completed"


# --- dialogs ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C25")
def test_c25_a_permission_is_a_dialog_that_the_host_answers(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch allowed]][[say:done]] one")
    opened = seen(session, events.DialogOpened)
    assert opened.body.kind == "permission"
    assert "touch allowed" in opened.body.question
    assert opened.body.options[0] == "Yes"
    assert opened.body.options[-1] == "No"
    assert session.snapshot().state == "awaiting_user"
    assert not (host.kit.cwd / "allowed").exists()
    with pytest.raises(RejectedError) as unknown:
        session.send(Answer("d_other", 1))
    assert unknown.value.kind == "unknown_dialog"
    assert session.send(Answer(opened.body.dialog_id, 1)).taken == "applied"
    assert completion_of(session, ack.turn_id).status == "completed"
    assert (host.kit.cwd / "allowed").exists()
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host"]

    denied = session.send("[[tool:Bash:touch denied]][[say:went on]] two")
    opened = seen(session, events.DialogOpened, denied.seq)
    session.send(Answer(opened.body.dialog_id, len(opened.body.options)))
    assert completion_of(session, denied.turn_id).answer == "went on"
    assert not (host.kit.cwd / "denied").exists()
    assert of_type(session, events.ToolFinished)[-1].body.status == "error"


@pytest.mark.contract("C25")
def test_c25_a_permission_may_be_given_for_what_follows_too(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:touch p1]][[also:Bash:touch p2]][[say:done]] both")
    opened = seen(session, events.DialogOpened)
    mode = next(n for n, text in enumerate(opened.body.options, 1) if "permission mode" in text)
    session.send(Answer(opened.body.dialog_id, mode))
    assert completion_of(session, ack.turn_id).status == "completed"
    assert (host.kit.cwd / "p2").exists()
    assert len(of_type(session, events.DialogOpened)) == 1


@pytest.mark.contract("C25")
def test_c25_a_question_of_the_models_is_a_dialog_with_its_options(host: StdioHost) -> None:
    session = host.session()
    asked = [
        {
            "question": text,
            "header": "H",
            "multiSelect": False,
            "options": [{"label": each, "description": "d"} for each in labels],
        }
        for text, labels in (("Which?", ("A", "B")), ("And how?", ("slow", "fast")))
    ]
    ack = session.send(f"[[tool:AskUserQuestion:{json.dumps({'questions': asked})}]][[say:thanks]] q")
    first = seen(session, events.DialogOpened)
    assert (first.body.kind, first.body.question, first.body.options[:2]) == ("question", "Which?", ("A", "B"))
    session.send(Answer(first.body.dialog_id, 2))
    second = seen(session, events.DialogOpened, first.seq)
    assert (second.body.question, second.body.options[:2]) == ("And how?", ("slow", "fast"))
    session.send(Answer(second.body.dialog_id, 1))
    assert completion_of(session, ack.turn_id).answer == "thanks"
    (finished,) = of_type(session, events.ToolFinished)
    assert "B" in finished.body.result
    assert "slow" in finished.body.result


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C08")
def test_c08_a_cli_killed_mid_turn_loses_the_turn_and_the_session_resumes(host: StdioHost) -> None:
    session = host.session()
    assert session.run("before", deadline_s=WAIT_S).status == "completed"
    ack = session.send("[[sleep:20]] doomed")
    seen(session, events.TurnStarted, ack.seq)
    child = child_of(session)
    child.send(signal.SIGKILL)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.source) == ("lost", "process_exit")
    assert done.error is not None
    assert done.error.kind == "provider_exited"
    after = session.run("[[say:back]]", deadline_s=WAIT_S)
    assert (after.status, after.answer) == ("completed", "back")
    assert [event.body.reason for event in of_type(session, events.ProviderStarted)] == ["open", "resume"]
    assert child_of(session) != child
    until(lambda: host.streams == sorted(host.streams)[-2:] and len(host.streams) == 2, within_s=WAIT_S)


@pytest.mark.contract("C22")
def test_c22_what_was_not_begun_when_the_cli_died_has_its_end_too(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] doomed")
    seen(session, events.TurnStarted)
    queued = session.send("queued behind it")
    seen(session, events.MessageQueued)
    child_of(session).send(signal.SIGKILL)
    assert completion_of(session, ack.turn_id).status == "lost"
    undelivered = seen(session, events.MessageUndelivered)
    assert undelivered.message_id == queued.message_id
    assert session.run("[[say:back]]", deadline_s=WAIT_S).answer == "back"


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_the_answer_that_came_after_the_host_was_killed_is_recovered_from_the_stream(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:1.5]] slow one", wait_for="turn_started")
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.source, done.answer) == ("completed", "stream", "echo: [[sleep:1.5]] slow one")
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    again = session.run("[[say:on]] again", deadline_s=WAIT_S)
    assert (again.status, again.answer) == ("completed", "on")
    assert len(completions(session)) == 2


@pytest.mark.contract("C17")
def test_c17_an_orphan_finishes_what_it_was_told_and_what_comes_meanwhile_waits_for_the_next(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:3]] slow one", "second", wait_for="message_queued")
    host.open()
    session = host.again(told["session"])
    assert not ended(child_of(session))
    third = session.send("third")
    done = completed(session, 3)
    assert [each.status for each in done] == ["completed"] * 3
    assert [each.message_id for each in done] == [*told["messages"], third.message_id]
    assert done[2].answer == "echo: third"
    assert ended(_process(told["pid"]))


def _process(pid: int) -> ProcessId:
    return ProcessId(pid, pid_start(pid) or 0)


@pytest.mark.contract("C17")
def test_c17_an_orphan_can_be_interrupted(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:60]] long", wait_for="turn_started")
    host.open()
    session = host.again(told["session"])
    session.send(Interrupt(turn_id=told["turns"][0]))
    assert completion_of(session, told["turns"][0]).status == "cancelled"
    after = session.run("[[say:on]]", deadline_s=WAIT_S)
    assert after.answer == "on", after.error


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_host_and_cli_killed_lose_the_turn_once_and_the_session_resumes(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:60]] long", wait_for="turn_started")
    for stray in host.strays():
        stray.process.send(signal.SIGKILL)
    until(lambda: not host.strays(), within_s=WAIT_S)
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C60")
@pytest.mark.contract("C61")
def test_c61_after_the_close_nothing_of_a_session_is_left(host: StdioHost) -> None:
    session = host.session()
    assert session.run("[[tool:Bash:echo x]] y", deadline_s=WAIT_S).status == "completed"
    child = child_of(session)
    assert host.watched() > 0
    session.close()
    assert ended(child)
    assert host.strays() == []
    assert host.streams == []
    until(lambda: host.watched() == 0, within_s=WAIT_S)
    gone = seen(session, events.SessionGone)
    assert gone.body.exit_status == 0  # it was not signalled: it ended by itself at the end of its stdin


@pytest.mark.contract("C61")
def test_c61_a_close_mid_turn_settles_it_and_ends_the_cli_within_the_grace(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 9; echo slept]] long")
    seen(session, events.ToolStarted)
    child = child_of(session)
    began = time.monotonic()
    session.close(grace_s=0.5)
    assert time.monotonic() - began < 10
    done = completion_of(session, ack.turn_id)
    assert done.status == "cancelled"
    assert ended(child)
    assert host.strays() == []
    assert host.streams == []


@pytest.mark.contract("C17")
def test_c17_a_runtime_that_is_closed_and_opened_again_goes_on_in_the_conversation(host: StdioHost) -> None:
    session = host.session()
    assert session.run("before", deadline_s=WAIT_S).status == "completed"
    host.close()
    host.open()
    again = host.again(session)
    assert again.snapshot().state == "gone"
    assert again.run("after", deadline_s=WAIT_S).answer == "echo: after"
    assert len(completions(again)) == 2
