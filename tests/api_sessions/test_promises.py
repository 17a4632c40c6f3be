"""What a session over a model's API promises, whichever vendor's."""

from __future__ import annotations

import gc
import inspect
import json
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from api_kit import ApiHost, listening
from kit_system import until
from lastword import Interrupt, RejectedError, events
from lastword.actors import session_cli
from lastword.actors.core.ports import Batch
from lastword.actors.transcript import TranscriptWatcherActor
from lastword.runtime.command import doctor
from lastword.runtime.command._progress import describe
from lastword.runtime.command._record import recorded_end
from structured_kit import (
    WAIT_S,
    as_told,
    completed,
    completion_of,
    completions,
    of_type,
    on_record,
    seen,
    side_by_side,
)

ENDS = "unified_completion"

one_vendor = pytest.mark.parametrize("provider", ["anthropic"])
"""For what is the same code whichever the vendor."""

# --- the main job -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C02")
@pytest.mark.contract("C03")
def test_c02_a_plain_turn_completes_from_its_record_in_the_journal(host: ApiHost) -> None:
    session = host.session()
    ack = session.send("hello")
    assert (ack.taken, ack.transport) == ("started_turn", "api")
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer, done.source, done.transport) == ("completed", "echo: hello", "stream", "api")
    assert done.evidence is not None
    assert done.evidence.source == f"journal:{session.snapshot().handle.native_session_id}"
    assert done.cli_version.startswith(f"{host.provider} ")
    assert not done.cli_uncertified  # there is no CLI: that it is emulated says the documentation, not each turn
    assert as_told(session) == [
        "session_opened",
        "message_accepted",
        "provider_started",
        "message_submitted",
        "turn_started",
        "assistant_message",
        "unified_completion",
    ]


def test_no_generator_of_an_sdk_is_left_half_way_for_the_collector(host: ApiHost) -> None:
    """It would end it on any thread, while the loop may still run it."""

    def left() -> list[str]:
        every = [each for each in gc.get_objects() if inspect.isasyncgen(each) and each.ag_frame is not None]
        return [each.__qualname__ for each in every if "site-packages" in each.ag_code.co_filename]

    session = host.session()
    gc.collect()
    gc.disable()
    try:
        for text in ("plain", "[[error:401]] refused", "[[hang:5]] stopped"):
            ack = session.send(text, deadline_s=WAIT_S if "hang" not in text else 0.5)
            completion_of(session, ack.turn_id)
        until(lambda: not left(), within_s=WAIT_S)
    finally:
        gc.enable()


@pytest.mark.contract("C08")
@pytest.mark.contract("C15")
@pytest.mark.contract("C16")
def test_c15_a_follow_up_goes_out_at_once_with_the_conversation_before_it(host: ApiHost) -> None:
    session = host.session()
    assert session.run("first", deadline_s=WAIT_S).status == "completed"
    sent, ends = [], []
    for number in range(5):
        done = session.run(f"number {number}", deadline_s=WAIT_S)
        assert done.answer == f"echo: number {number}"
        times = done.times
        assert times.submitted_at and times.accepted_at and times.committed_at and times.native_ended_at
        sent.append(times.submitted_at - times.accepted_at)
        ends.append(times.committed_at - times.native_ended_at)
    assert [request.messages for request in host.heard] == [1, 3, 5, 7, 9, 11]
    assert [request.prompt for request in host.heard[1:]] == [f"number {number}" for number in range(5)]
    figures = [statistics.median(each) * 1e3 for each in (sent, ends)]
    print("\nsent {:.1f} ms, answer whole -> completion committed {:.1f} ms".format(*figures))
    assert statistics.median(sent) < 0.5
    assert statistics.median(ends) < 0.5


@pytest.mark.contract("C04")
@pytest.mark.contract("C32")
def test_c32_each_tool_of_the_hosts_runs_once_and_text_before_it_is_no_answer(host: ApiHost) -> None:
    session = host.session()
    log = host.kit.root / "log"
    prompt = (
        f"[[say:Let me look.]][[tool:Bash:echo a >>{log}; echo alpha]][[also:Bash:echo b >>{log}; echo beta]]"
        f"[[say:Once more.]][[tool:Bash:echo c >>{log}; echo gamma]] tools"
    )
    done = session.run(prompt, deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", f"echo: {prompt}")
    started = {each.body.call_id: json.loads(each.body.arguments) for each in of_type(session, events.ToolStarted)}
    ended = [each.body for each in of_type(session, events.ToolFinished)]
    assert len(started) == 3
    assert {each.call_id for each in ended} == set(started)
    results = {each.call_id: (each.name, each.status, each.result) for each in ended}
    for call_id, word in zip(started, ("alpha", "beta", "gamma"), strict=True):
        assert word in started[call_id]["command"]
        assert results[call_id] == ("Bash", "ok", f"{word}\n")
    assert all(each.duration_s is not None for each in ended)
    assert sorted(log.read_text().split()) == ["a", "b", "c"]
    said = [each.body.text for each in of_type(session, events.AssistantMessage)]
    assert said == ["Let me look.", "Once more.", f"echo: {prompt}"]


@one_vendor
@pytest.mark.contract("C32")
def test_c32_what_a_tool_does_wrong_is_told_to_the_model_and_ends_nothing(host: ApiHost) -> None:
    session = host.session()
    prompt = (
        '[[tool:broken:{"what": "today"}]][[also:missing:{}]][[also:odd:{}]][[also:odd:{"fit": 1}]]'
        '[[also:large:{"size": 300000}]][[say:went on]] wrong'
    )
    done = session.run(prompt, deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "went on")
    ended = {(each.body.name, each.body.status): each.body.result for each in of_type(session, events.ToolFinished)}
    assert ended["broken", "error"] == "ValueError: not today"
    assert ended["missing", "error"] == "There is no tool called 'missing'."
    assert ended["odd", "error"].startswith("TypeError")
    assert json.loads(ended["odd", "ok"]) == {"list": [1, 2], "none": None}
    assert ended["large", "ok"].endswith("[cut by lastword]")
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"


@pytest.mark.contract("C30")
def test_c30_an_answer_is_streamed_to_who_listens_and_only_its_whole_is_on_record(host: ApiHost) -> None:
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    thread, told = listening(session, lambda event: event.type == ENDS)
    prompt = "[[chunk:4:0.02]][[say:Some words that come in pieces.]] go"
    done = session.run(prompt, deadline_s=WAIT_S)
    thread.join(WAIT_S)
    assert [event.type for event in told if event.ephemeral] == ["assistant_delta"] * sum(e.ephemeral for e in told)
    deltas = [event for event in told if event.ephemeral]
    assert len(deltas) > 3
    assert "".join(event.body.text for event in deltas) == done.answer == "Some words that come in pieces."
    assert {event.turn_id for event in deltas} == {done.turn_id}
    kinds = [event.type for event in told]
    assert kinds.index("turn_started") < kinds.index("assistant_delta")
    last = len(kinds) - 1 - kinds[::-1].index("assistant_delta")
    assert last < kinds.index("assistant_message") < kinds.index(ENDS)
    assert [event.seq for event in told if not event.ephemeral] == list(range(told[0].seq, told[-1].seq + 1))
    assert "assistant_delta" not in {event.type for event in on_record(session)}


@pytest.mark.contract("C30")
@pytest.mark.parametrize("held_max", [session_cli.STREAM_HELD_MAX, 3])
def test_c30_pieces_that_come_before_their_turns_record_was_read_wait_for_it_within_a_bound(
    host: ApiHost, monkeypatch: pytest.MonkeyPatch, held_max: int
) -> None:
    monkeypatch.setattr(session_cli, "STREAM_HELD_MAX", held_max)
    session = host.session()
    assert session.run("warm", deadline_s=WAIT_S).status == "completed"
    read, asked = TranscriptWatcherActor._read_once, len(host.heard)

    def slowly(watcher: TranscriptWatcherActor) -> bool:
        until(lambda: len(host.heard) > asked, within_s=WAIT_S)
        time.sleep(0.2)  # and the first pieces are here
        return read(watcher)

    thread, told = listening(session, lambda event: event.type == ENDS)
    monkeypatch.setattr(TranscriptWatcherActor, "_read_once", slowly)
    done = session.run("[[chunk:4:0.1]][[say:Some words that come in pieces.]] go", deadline_s=WAIT_S)
    thread.join(WAIT_S)
    deltas = [event.body.text for event in told if event.ephemeral]
    assert done.answer == "Some words that come in pieces."
    assert deltas[0].startswith("Some") == (held_max > 3)
    assert done.answer.endswith("".join(deltas))
    assert held_max == 3 or "".join(deltas) == done.answer


@pytest.mark.contract("C03")
def test_c03_an_empty_answer_is_completed_and_says_so(host: ApiHost) -> None:
    session = host.session()
    done = session.run("[[stop:end_turn]] nothing", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.empty) == ("completed", "", True)
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"


@one_vendor
@pytest.mark.contract("C24")
def test_c24_every_text_reaches_the_model_as_written(host: ApiHost) -> None:
    for text in (
        "/cost",
        "a\r\nb\tc",
        "bell \x07 nul \x00 end",
        "fam \U0001f468\u200d\U0001f469 e\u0301 \u6f22",
        "y" * 300_000,
    ):
        done = host.session().run(text, deadline_s=WAIT_S)
        assert done.status == "completed", done.error
        assert host.heard[-1].prompt == text


# --- busy -------------------------------------------------------------------------------------------------------------


@one_vendor
@pytest.mark.contract("C14")
@pytest.mark.contract("C20")
@pytest.mark.contract("C22")
def test_c22_a_message_while_the_model_answers_is_queued_and_becomes_a_turn_of_its_own(host: ApiHost) -> None:
    session = host.session()
    first = session.send("[[sleep:2]] slow one")
    seen(session, events.TurnStarted)
    with pytest.raises(RejectedError) as refused:
        session.run("not now")
    assert refused.value.kind == "busy"
    second = session.send("while it answers")
    assert (second.taken, second.turn_id, second.transport) == ("queued", None, "api")
    assert seen(session, events.MessageQueued).message_id == second.message_id
    one, two = completed(session, 2)
    assert (one.turn_id, one.message_id, one.joined) == (first.turn_id, first.message_id, ())
    assert (two.message_id, two.answer) == (second.message_id, "echo: while it answers")
    assert two.turn_id != one.turn_id


@pytest.mark.contract("C20")
@pytest.mark.contract("C22")
def test_c22_a_message_while_a_tool_runs_is_told_with_the_next_request_and_joins_the_turn(host: ApiHost) -> None:
    session = host.session()
    gate = host.kit.root / "gate"
    first = session.send(f"[[tool:Bash:until test -e {gate}; do sleep 0.01; done]][[say:both done]] work")
    seen(session, events.ToolStarted)
    others = [session.send(text) for text in ("also this", "and that")]
    seen(session, events.MessageQueued)
    gate.touch()
    (done,) = completed(session)
    assert (done.turn_id, done.status) == (first.turn_id, "completed")
    assert done.answer in ("both done", "echo: and that")  # the scripted model heeds what came last, or its script
    assert done.joined == tuple(ack.message_id for ack in others)
    joined = of_type(session, events.MessageJoined)
    assert [(each.turn_id, each.message_id) for each in joined] == [(first.turn_id, ack.message_id) for ack in others]
    kinds = [event.type for event in on_record(session)]
    assert kinds.index("message_queued") < kinds.index("tool_finished") < kinds.index("message_joined")


@one_vendor
@pytest.mark.contract("C12")
@pytest.mark.contract("C13")
def test_c12_messages_of_many_threads_each_end_in_exactly_one_completion_in_the_order_accepted(host: ApiHost) -> None:
    session = host.session()
    acks: list[tuple[int, str]] = []
    lock = threading.Lock()

    def drive(which: int) -> None:
        for number in range(4):
            ack = session.send(f"thread {which} message {number}")
            with lock:
                acks.append((ack.seq, ack.message_id))

    threads = [threading.Thread(target=drive, args=(which,)) for which in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    def ends() -> list[str]:
        return [m for done in completions(session) for m in (done.message_id, *done.joined) if m is not None]

    until(lambda: len(ends()) == 20, within_s=2 * WAIT_S)
    assert ends() == [message_id for _, message_id in sorted(acks)]
    until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)


@one_vendor
@pytest.mark.contract("C20")
def test_c20_the_same_message_id_again_is_delivered_once(host: ApiHost) -> None:
    session = host.session()
    first = session.send("once", message_id="mine")
    again = session.send("once", message_id="mine")
    assert (again.duplicate, again.turn_id) == (True, first.turn_id)
    assert completion_of(session, first.turn_id).answer == "echo: once"
    assert len(host.heard) == 1


@one_vendor
@pytest.mark.contract("C13")
def test_c13_eight_sessions_do_not_hear_each_other(host: ApiHost) -> None:
    done = side_by_side([host.session() for _ in range(8)], turns=3)
    assert len({each.turn_id for turns in done for each in turns}) == 24


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C07")
@pytest.mark.contract("C16")
@pytest.mark.parametrize(
    ("provider", "point"),
    [
        ("anthropic", "sent"),
        ("anthropic", "no_output_yet"),
        ("anthropic", "streaming"),
        ("openai", "streaming"),
        ("anthropic", "in_tool"),
        ("openai", "in_tool"),
        ("anthropic", "queued_behind"),
    ],
)
def test_c07_an_interrupt_at_any_point_settles_once_as_cancelled(host: ApiHost, point: str) -> None:
    session = host.session()
    prompts = {
        "streaming": "[[chunk:5:0.1]][[size:2000]] long",
        "in_tool": "[[tool:Bash:sleep 30]] long",
    }
    thread, _ = listening(session, lambda event: event.type in ("assistant_delta", ENDS, "session_gone"))
    ack = session.send(prompts.get(point, "[[sleep:20]] long"))
    behind = None
    match point:
        case "no_output_yet":
            until(lambda: host.heard, within_s=WAIT_S)
        case "streaming":
            thread.join(WAIT_S)
        case "in_tool":
            seen(session, events.ToolStarted, ack.seq)
        case "queued_behind":
            behind = session.send("[[say:behind]] it")
            seen(session, events.MessageQueued)
    assert session.send(Interrupt(turn_id=ack.turn_id)).taken == "applied"
    session.send(Interrupt(turn_id=ack.turn_id))  # twice is once
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")
    assert sum(each.turn_id == ack.turn_id for each in completions(session)) == 1
    if behind is not None:
        _, second = completed(session, 2)
        assert (second.message_id, second.answer) == (behind.message_id, "behind")
    until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)
    assert session.send(Interrupt()).taken == "nothing_to_do"
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"
    assert host.heard[-1].prompt == "after"
    assert host.heard[-1].answered == 0  # the cut turn has an end of its own: the model is not asked for it again
    assert {each.body.status for each in of_type(session, events.ToolFinished)} <= {"no_result"}
    thread.join(WAIT_S)


@one_vendor
@pytest.mark.contract("C07")
def test_c07_a_queued_message_is_taken_back_by_its_deadline_before_the_model_hears_of_it(host: ApiHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] long")
    seen(session, events.TurnStarted)
    late = session.send("too late", deadline_s=0.2)
    assert seen(session, events.MessageUndelivered).message_id == late.message_id
    session.send(Interrupt(turn_id=ack.turn_id))
    assert completion_of(session, ack.turn_id).status == "cancelled"
    assert [request.prompt for request in host.heard if request.prompt == "too late"] == []


@one_vendor
@pytest.mark.contract("C07")
def test_c07_a_deadline_is_told_as_a_deadline(host: ApiHost) -> None:
    session = host.session()
    done = session.run("[[sleep:30]] too long", deadline_s=0.5)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "deadline")
    assert session.run("next", deadline_s=WAIT_S).answer == "echo: next"


# --- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C16")
@pytest.mark.contract("C17")
def test_c17_a_conversation_goes_on_after_the_runtime_was_opened_again(host: ApiHost) -> None:
    session = host.session()
    assert session.run("[[tool:Bash:echo x]] before", deadline_s=WAIT_S).status == "completed"
    host.close()
    host.open()
    again = host.again(session)
    assert again.snapshot().state == "gone"
    assert again.run("after", deadline_s=WAIT_S).answer == "echo: after"
    assert (host.heard[-1].messages, host.heard[-1].prompt) == (5, "after")
    assert len(completions(again)) == 2


@one_vendor
@pytest.mark.contract("C02")
@pytest.mark.contract("C16")
@pytest.mark.contract("C17")
def test_c17_a_turn_whose_host_was_killed_mid_request_is_lost_once_and_what_waited_is_delivered(host: ApiHost) -> None:
    host.close()
    told = host.other_host("[[sleep:30]] slow one", "second", wait_for="message_queued", and_then=lambda: host.heard)
    host.open()
    session = host.again(told["session"])
    one, two = completed(session, 2)
    assert (one.turn_id, one.status, one.error.kind if one.error else "") == (
        told["turns"][0],
        "lost",
        "provider_exited",
    )
    assert one.error is not None
    assert "the host" in one.error.message
    assert "CLI" not in one.error.message
    assert (two.message_id, two.status, two.answer) == (told["messages"][1], "completed", "echo: second")
    assert [request.prompt for request in host.heard] == ["[[sleep:30]] slow one", "second"]
    assert session.run("third", deadline_s=WAIT_S).answer == "echo: third"
    assert host.heard[-1].messages == 5  # the lost prompt and what is said of it, the second and its answer, the third
    assert len(completions(session)) == 3


@one_vendor
@pytest.mark.contract("C17")
@pytest.mark.contract("C32")
def test_c32_a_tool_that_ran_when_its_host_was_killed_is_closed_and_never_run_again(host: ApiHost) -> None:
    log = host.kit.root / "log"
    host.close()
    told = host.other_host(
        f"[[tool:Bash:echo ran >>{log}; sleep 1]] work", wait_for="tool_started", and_then=log.exists
    )
    host.open()
    session = host.again(told["session"])
    (done,) = completed(session)
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    assert [each.body.status for each in of_type(session, events.ToolFinished)] == ["no_result"]
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"
    assert host.heard[-1].prompt == "after"
    assert log.read_text().split() == ["ran"]
    assert len(of_type(session, events.ToolStarted)) == 1


@one_vendor
@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_a_final_answer_on_record_whose_host_was_killed_before_its_completion_is_that_completion(
    host: ApiHost,
) -> None:
    """The record is written, and its host dies before anybody read it."""
    session = host.session()
    assert session.run("before", deadline_s=WAIT_S).status == "completed"
    asked = len(host.heard)
    native = session.snapshot().handle.native_session_id
    assert host.runtime is not None
    host.runtime._edges.opened["api"].transport._wrote = lambda _: None  # type: ignore[attr-defined]
    ack = session.send("unread")
    journal = host.runtime._journal
    until(lambda: b'"answer":"echo: unread"' in journal.lines(native, 0, 10**6)[0], within_s=WAIT_S)
    assert completions(session)[1:] == []
    host.runtime._system.shutdown(5.0)  # as a kill: nobody says goodbye to the record
    host.runtime._closed = True
    row = journal.turn(ack.turn_id)
    found = recorded_end(journal, journal.session(session.session_id), row)
    assert found is not None  # what `lastword explain` says of it without any host
    assert (found.status, found.answer) == ("completed", "echo: unread")
    journal.close()
    host.runtime._hub.close()
    for edge in host.runtime._edges.opened.values():
        edge.close(0.0)
    host.runtime = None
    host.open()
    again = host.again(session)
    done = completion_of(again, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "echo: unread")
    assert len(host.heard) == asked + 1
    assert len(completions(again)) == 2


# --- ends -------------------------------------------------------------------------------------------------------------


@one_vendor
@pytest.mark.contract("C61")
def test_c61_a_close_mid_turn_settles_it_and_hangs_up(host: ApiHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 30]] long")
    seen(session, events.ToolStarted)
    began = time.monotonic()
    session.close(grace_s=0.5)
    assert time.monotonic() - began < 5
    assert completion_of(session, ack.turn_id).status == "cancelled"
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("lastword-tool")], within_s=WAIT_S)
    assert [event.type for event in on_record(session)][-4:] == [
        "session_gone",
        "tool_finished",
        ENDS,
        "session_closed",
    ]


@one_vendor
@pytest.mark.contract("C02")
@pytest.mark.contract("C61")
def test_c61_a_close_waits_for_what_is_on_its_way_to_the_record(host: ApiHost) -> None:
    assert host.runtime is not None
    journal, gate, held = host.runtime._journal, threading.Event(), threading.Event()
    record = journal.record

    def slow(batches: Sequence[Batch], now_wall_s: float) -> Any:
        if any(batch.lines is not None and b'"answer":"' in batch.lines.lines[-1] for batch in batches):
            held.set()
            gate.wait(WAIT_S)
        return record(batches, now_wall_s)

    journal.record = slow  # type: ignore[method-assign]
    session = host.session()
    ack = session.send("hello")
    assert held.wait(WAIT_S)
    closing = threading.Thread(target=session.close)
    closing.start()
    until(lambda: session.snapshot().state == "closed", within_s=WAIT_S)
    gate.set()
    closing.join(WAIT_S)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "echo: hello")


@one_vendor
@pytest.mark.contract("C61")
def test_c61_a_runtime_that_closes_while_the_model_answers_hangs_up(host: ApiHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:30]] long")
    until(lambda: host.heard, within_s=WAIT_S)
    host.close()
    host.open()
    assert completion_of(host.again(session), ack.turn_id).status == "cancelled"


@pytest.mark.contract("C53")
def test_c53_that_a_service_is_emulated_is_told_once_and_in_one_way(
    host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = host.session()
    assert session.run("hello", deadline_s=WAIT_S).status == "completed"
    (event,) = [event for event in on_record(session) if event.type == ENDS]
    assert "certified" not in describe(event)
    marked = msgspec.structs.replace(event.body.completion, cli_uncertified=True)
    text = describe(msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, completion=marked)))
    assert f"{host.provider} {host.provider}" not in text
    assert f"; {marked.cli_version} was never certified" in text
    for name, value in host.env.items():
        monkeypatch.setenv(name, value)
    (found,) = [check.found for check in doctor._services() if check.name == host.provider]
    assert found.startswith(marked.cli_version)
    assert "emulated" in found
