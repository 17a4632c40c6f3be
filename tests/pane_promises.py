"""What a session over a CLI's own terminal program promises: the same tests on every real CLI that is driven in a pane.

The modules that collect them give the fixture ``host``, a :class:`pane_kit.PaneHost`.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time

import pytest

from kit_system import until
from lastword import Answer, Interrupt, events
from pane_kit import WAIT_S, PaneHost, keys, owners
from structured_kit import (
    as_told,
    child_of,
    completed,
    completion_of,
    completions,
    ended,
    of_type,
    on_record,
    seen,
    side_by_side,
)

# --- the main job -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C03")
def test_c02_a_plain_turn_completes_from_the_record(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("hello")
    assert (ack.taken, ack.transport) == ("started_turn", "tmux")
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer, done.source) == ("completed", "echo: hello", "transcript")
    assert (done.provider, done.transport, done.cli_version) == (host.ways.provider, "tmux", host.ways.version)
    assert done.native_session_id
    assert done.native_session_id == session.snapshot().handle.native_session_id
    assert done.evidence is not None
    assert done.native_session_id in done.evidence.source
    assert as_told(session) == [
        "session_opened",
        "message_accepted",
        "provider_started",
        "message_submitted",
        "turn_started",
        "assistant_message",
        "unified_completion",
    ]


@pytest.mark.contract("C04")
@pytest.mark.contract("C32")
def test_c04_text_before_a_tool_is_no_answer_and_each_tool_of_two_rounds_shows_once(host: PaneHost) -> None:
    session = host.session()
    prompt = "[[say:Let me look.]][[tool:Bash:echo al''pha]][[say:Once more.]][[tool:Bash:echo be''ta]][[say:Both.]] go"
    done = session.run(prompt, deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "Both.")
    started = [event.body.arguments for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    assert ["al''pha" in each for each in started] == [True, False]
    assert [each.status for each in finished] == ["ok", "ok"]
    assert ["alpha" in each.result for each in finished] == [True, False]
    assert "beta" in finished[1].result
    assert len({event.body.call_id for event in of_type(session, events.ToolStarted)}) == 2
    said = [event.body.text for event in of_type(session, events.AssistantMessage)]
    assert said == ["Let me look.", "Once more.", "Both."]
    assert len(completions(session)) == 1


@pytest.mark.contract("C08")
@pytest.mark.contract("C15")
@pytest.mark.contract("C20")
def test_c15_a_retained_follow_up_reuses_pane_and_process_and_is_typed_at_once(host: PaneHost) -> None:
    session = host.session()
    first = session.run("[[tool:Bash:echo one]][[say:first]] first", deadline_s=WAIT_S)
    before = session.snapshot()
    assert (first.status, before.state, before.turn_id) == ("completed", "idle", None)
    acks, typed = [], []
    for number in range(6):
        began = time.perf_counter()
        ack = session.send(f"number {number}")
        acks.append(time.perf_counter() - began)
        assert ack.taken == "started_turn"
        done = completion_of(session, ack.turn_id)
        assert (done.status, done.answer) == ("completed", f"echo: number {number}")
        assert done.times.submitted_at is not None
        assert done.times.accepted_at is not None
        typed.append(done.times.submitted_at - done.times.accepted_at)
        later = [event for event in on_record(session) if event.seq > ack.seq]
        kinds = [event.type for event in later]
        assert kinds == ["message_submitted", "turn_started", "assistant_message", "unified_completion"]
    assert session.snapshot().handle == before.handle
    assert len(of_type(session, events.ProviderStarted)) == 1
    print(f"\nack p50 {statistics.median(acks) * 1e3:.1f} ms, typed p50 {statistics.median(typed) * 1e3:.1f} ms")
    assert statistics.median(acks) < 0.5
    assert statistics.median(typed) < 1.0


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C13")
@pytest.mark.contract("C51")
@pytest.mark.parametrize(("count", "turns"), [(2, 8), (8, 3)])
def test_c51_sessions_in_one_directory_do_not_hear_each_other(host: PaneHost, count: int, turns: int) -> None:
    sessions = [host.session() for _ in range(count)]
    done = side_by_side(sessions, turns)
    for session, of_one in zip(sessions, done, strict=True):
        assert {each.native_session_id for each in of_one} == {session.snapshot().handle.native_session_id}
    assert len({each.native_session_id for of_one in done for each in of_one}) == count


@pytest.mark.contract("C12")
@pytest.mark.contract("C20")
def test_c12_what_many_threads_send_ends_in_exactly_one_completion_each(host: PaneHost) -> None:
    session = host.session()
    acks: list[str] = []
    lock = threading.Lock()

    def drive(which: int) -> None:
        for number in range(3):
            ack = session.send(f"thread {which} message {number}")
            with lock:
                acks.append(ack.message_id)

    threads = [threading.Thread(target=drive, args=(which,)) for which in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(acks) == 15
    until(lambda: sorted(owners(completions(session))) == sorted(acks), within_s=3 * WAIT_S)
    assert {each.status for each in completions(session)} == {"completed"}
    assert not of_type(session, events.MessageUndelivered)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C03")
@pytest.mark.parametrize("code", [400, 401, 429])
def test_c03_an_api_error_is_a_failed_turn_with_its_kind_and_the_session_goes_on(host: PaneHost, code: int) -> None:
    session = host.session()
    done = session.run(f"[[error:{code}]] please", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("failed", None)
    assert done.error is not None
    assert done.error.kind == host.ways.error_kinds[code]
    again = session.run("[[say:on]] and now", deadline_s=WAIT_S)
    assert (again.status, again.answer) == ("completed", "on")
    assert len(of_type(session, events.ProviderStarted)) == 1


@pytest.mark.contract("C03")
def test_c03_an_error_that_the_cli_overcomes_itself_is_no_failure(host: PaneHost) -> None:
    session = host.session()
    once = session.run("[[error:500:1]][[say:after it]] once", deadline_s=WAIT_S)
    assert (once.status, once.answer) == ("completed", "after it")
    cut = session.run("[[say:half of it]][[cut:1]] cut once", deadline_s=WAIT_S)
    assert (cut.status, cut.answer) == ("completed", "half of it")
    assert len(completions(session)) == 2


@pytest.mark.contract("C07")
def test_c07_an_endpoint_that_is_down_holds_the_turn_until_its_deadline(host: PaneHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    host.kit.server.stop()
    done = session.run("nobody hears this", deadline_s=4)
    assert done.status in ("cancelled", "failed")
    assert done.error is not None
    assert done.error.kind in ("deadline", "provider_error", "network")
    assert session.snapshot().state == "idle"


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
@pytest.mark.parametrize("point", ["before_typing", "typed", "no_output_yet", "streaming", "in_tool", "dialog"])
def test_c07_an_interrupt_at_any_point_settles_once_as_cancelled(host: PaneHost, point: str) -> None:
    session = host.session(asking=point == "dialog")
    prompts = {
        "streaming": "[[chunk:5:0.3]][[size:2000]] long",
        "in_tool": "[[tool:Bash:sleep 9; echo slept]] long",
        "dialog": host.ways.approval.format(file="made-by-tool"),
    }
    if point != "before_typing":
        assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    ack = session.send(prompts.get(point, "[[sleep:20]] long"))
    match point:
        case "typed":
            seen(session, events.MessageSubmitted, ack.seq)
        case "no_output_yet":
            seen(session, events.TurnStarted, ack.seq)
        case "streaming":
            seen(session, events.TurnStarted, ack.seq)
            time.sleep(1.0)  # a piece of it is out: nothing on record tells
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
    after = session.run("[[say:after]] the interrupt", deadline_s=WAIT_S)
    assert after.status == "completed"  # what it answers is the model's: it may be asked about both prompts at once
    assert completions(session)[-1] == after
    assert not (host.kit.cwd / "made-by-tool").exists()


@pytest.mark.contract("C07")
def test_c07_a_deadline_interrupts_and_is_told_as_a_deadline(host: PaneHost) -> None:
    session = host.session()
    done = session.run("[[sleep:30]] too long", deadline_s=2)
    assert done.status == "cancelled"
    assert done.error is not None
    assert done.error.kind == "deadline"
    assert session.run("next", deadline_s=WAIT_S).answer == "echo: next"


# --- a person, dialogs ------------------------------------------------------------------------------------------------


@pytest.mark.contract("C19")
def test_c19_what_a_person_types_in_the_pane_is_a_turn_of_theirs(host: PaneHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    keys(session, "-l", "typed by a person")
    time.sleep(0.3)  # a hand is slower; keys in one burst count as a paste for some CLIs
    keys(session, "Enter")
    _, theirs = completed(session, 2)
    assert (theirs.origin, theirs.message_id) == ("human_terminal", None)
    assert (theirs.status, theirs.answer) == ("completed", "echo: typed by a person")
    assert session.run("ours again", deadline_s=WAIT_S).answer == "echo: ours again"


@pytest.mark.contract("C24")
def test_c24_a_draft_of_a_persons_is_not_mixed_with_ours(host: PaneHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    keys(session, "-l", "their draft")
    time.sleep(0.3)
    ack = session.send("ours")
    stall = seen(session, events.StallDiagnosed, ack.seq)
    assert "draft" in stall.body.waits_for
    keys(session, "Enter")
    until(lambda: len(completions(session)) == 3, within_s=WAIT_S)
    answers = {each.message_id: each.answer for each in completions(session)[1:]}
    assert answers == {None: "echo: their draft", ack.message_id: "echo: ours"}


@pytest.mark.contract("C25")
def test_c25_an_approval_is_a_dialog_that_the_host_answers(host: PaneHost) -> None:
    session = host.session(asking=True)
    ack = session.send(host.ways.approval.format(file="allowed"))
    opened = seen(session, events.DialogOpened)
    assert opened.body.kind == "permission"
    assert "allowed" in opened.body.question
    assert session.snapshot().state == "awaiting_user"
    held = session.send("held back meanwhile")
    time.sleep(1.0)  # long enough for a paste and an Enter, which would approve
    assert not (host.kit.cwd / "allowed").exists()
    yes = next(n for n, option in enumerate(opened.body.options, 1) if option.lower().startswith("yes"))
    assert session.send(Answer(opened.body.dialog_id, yes)).taken == "applied"
    done = completion_of(session, ack.turn_id)
    assert done.status == "completed"
    assert (host.kit.cwd / "allowed").exists()
    until(lambda: held.message_id in owners(completions(session)), within_s=WAIT_S)
    assert [event.body.by for event in of_type(session, events.DialogClosed)] == ["host"]


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C22")
def test_c22_a_killed_cli_loses_its_turn_once_and_the_next_message_resumes_the_conversation(host: PaneHost) -> None:
    session = host.session()
    assert session.run("remember me", deadline_s=WAIT_S).status == "completed"
    old = session.snapshot().handle
    ack = session.send("[[sleep:30]] dies in it")
    seen(session, events.TurnStarted, ack.seq)
    os.kill(old.pid, signal.SIGKILL)
    lost = completion_of(session, ack.turn_id)
    assert (lost.status, lost.source) == ("lost", "process_exit")
    assert lost.error is not None
    assert lost.error.kind == "provider_exited"
    done = session.run("go on", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "echo: go on")
    new = session.snapshot().handle
    assert new.pid != old.pid
    assert new.native_session_id == old.native_session_id
    assert [event.body.reason for event in of_type(session, events.ProviderStarted)] == ["open", "resume"]
    assert len(completions(session)) == 3


@pytest.mark.contract("C22")
def test_c22_a_cli_that_died_before_its_first_turn_is_started_anew(host: PaneHost) -> None:
    session = host.session()
    until(lambda: session.snapshot().state == "idle" and session.snapshot().handle.pid, within_s=WAIT_S)
    child_of(session).send(signal.SIGKILL)
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    done = session.run("hello", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "echo: hello")
    assert done.native_session_id == session.snapshot().handle.native_session_id


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_the_answer_that_came_while_no_host_lived_is_recovered_and_the_pane_goes_on(host: PaneHost) -> None:
    host.close()
    told = host.other_host("[[sleep:1.5]][[say:meanwhile]] slow one", wait_for="turn_started")
    host.record_says_ended()
    began = time.monotonic()
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    took_s = time.monotonic() - began
    assert (done.status, done.answer) == ("completed", "meanwhile")
    print(f"\ncompletion {took_s * 1e3:.0f} ms after the runtime began to open")
    assert took_s < 5.0
    again = session.run("and on", deadline_s=WAIT_S)
    assert (again.status, again.answer) == ("completed", "echo: and on")
    assert session.snapshot().handle.pid == told["pid"]
    assert len(completions(session)) == 2


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_host_and_cli_killed_lose_the_turn_once_and_the_session_resumes(host: PaneHost) -> None:
    host.close()
    told = host.other_host("[[sleep:60]] long", wait_for="turn_started")
    os.kill(told["pid"], signal.SIGKILL)
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert done.status == "lost"
    after = session.run("go on", deadline_s=WAIT_S)
    assert (after.status, after.answer) == ("completed", "echo: go on")
    assert after.native_session_id == done.native_session_id


@pytest.mark.contract("C61")
def test_c61_nothing_is_left_behind(host: PaneHost) -> None:
    session = host.session()
    assert session.run("hello", deadline_s=WAIT_S).status == "completed"
    child = child_of(session)
    host.close()
    until(lambda: ended(child), within_s=WAIT_S)
    assert not [thread.name for thread in threading.enumerate() if "lastword" in thread.name]
