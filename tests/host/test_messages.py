"""Messages: accepted, acknowledged, ordered, bound, refused; delivered once (C13, C19, C20, C21, C22)."""

from __future__ import annotations

import threading
from collections import Counter

import msgspec
import pytest

from host_kit import WAIT_S, HeldCommits, Rig, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import Answer, Command, Interrupt, LastwordError, RejectedError, UsageError, events
from lastword.actors.core import typing
from lastword.transports.providers.memory import MemoryAdapter, Record


def prompts(rig, session):
    """What the CLI really took as prompts, in order."""
    lines = rig.world.contents(rig.cli(session).path).splitlines()
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    return [record.text for record in records if record.k == "prompt"]


# --- C13: order ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("C13")
def test_c13_sends_from_many_threads_are_delivered_in_the_order_accepted(make):
    rig = make()
    session = rig.session()
    acks = []
    lock = threading.Lock()

    def send(name):
        for number in range(10):
            ack = session.send(f"{name}-{number}")
            with lock:
                acks.append(ack)

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    completed(rig, session, 60)
    accepted = [event.message_id for event in bodies(rig, session, events.MessageAccepted)]
    assert len(set(accepted)) == 60
    texts = {row.message_id: row.text for row in rig.runtime._journal.messages(session.session_id)}
    assert prompts(rig, session) == [texts[message_id] for message_id in accepted]
    assert {ack.message_id for ack in acks} == set(accepted)
    for name in "abcdef":
        own = [text for text in prompts(rig, session) if text.startswith(name)]
        assert own == [f"{name}-{number}" for number in range(10)]


@pytest.mark.contract("C13")
def test_c13_equal_texts_are_each_delivered(make):
    rig = make()
    session = rig.session()
    acks = [session.send("same") for _ in range(10)]
    done = completed(rig, session, 10)
    assert [one.message_id for one in done] == [ack.message_id for ack in acks]
    assert prompts(rig, session) == ["same"] * 10


@pytest.mark.contract("C13")
def test_c13_sends_before_the_cli_is_up_wait_and_keep_their_order(make):
    rig = make()
    rig.world.hold_opens = True
    session = rig.session()
    for number in range(5):
        session.send(f"{number}")
    rig.settle()
    assert not completions(rig, session)
    rig.world.held_opens[0]()
    completed(rig, session, 5)
    assert prompts(rig, session) == [str(number) for number in range(5)]


# --- C20: acknowledgement and binding --------------------------------------------------------------------------------


@pytest.mark.contract("C20")
def test_c20_an_idle_session_starts_a_turn_and_a_busy_one_leaves_it_pending(make):
    rig = make(manual=True)
    session = rig.session()
    first = session.send("first")
    cli = rig.running(session)
    second = session.send("second")
    assert (first.taken, first.transport, first.duplicate) == ("started_turn", "memory", False)
    assert first.turn_id is not None
    assert (second.taken, second.turn_id) == ("pending", None)
    assert second.seq > first.seq
    until(lambda: "message_queued" in kinds(rig, session))
    cli.finish("one")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    cli.finish("two")
    one, two = completed(rig, session, 2)
    assert (one.turn_id, one.message_id) == (first.turn_id, first.message_id)
    assert (two.message_id, two.answer) == (second.message_id, "two")
    assert two.turn_id != one.turn_id
    started = bodies(rig, session, events.TurnStarted)[1]
    assert (started.turn_id, started.message_id) == (two.turn_id, second.message_id)


@pytest.mark.contract("C20")
def test_c20_a_message_that_the_cli_absorbs_joins_the_running_turn_and_its_run_gets_that_completion(make):
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "first")
    cli = rig.running(session)
    second = away(session.run, "also this", queue=True)
    until(lambda: cli.queue)
    cli.join()
    until(lambda: "message_joined" in kinds(rig, session))
    cli.finish("both")
    one, two = first.result(WAIT_S), second.result(WAIT_S)
    assert one == two
    (joined,) = bodies(rig, session, events.MessageJoined)
    assert one.joined == (joined.message_id,)
    assert len(completions(rig, session)) == 1


@pytest.mark.contract("C20")
def test_c20_messages_that_the_cli_merges_into_one_prompt_are_reported_as_joined(make):
    rig = make(manual=True)
    session = rig.session()
    session.send("first")
    cli = rig.running(session)
    acks = [session.send("alpha"), session.send("beta")]
    until(lambda: cli.queue == ["alpha", "beta"])
    cli.queue.clear()
    cli.finish("one")
    cli.start_turn("alpha\nbeta", queued=True)
    cli.finish("merged")
    done = completed(rig, session, 2)[1]
    assert done.message_id == acks[0].message_id
    assert done.joined == (acks[1].message_id,)
    assert done.answer == "merged"


@pytest.mark.contract("C20")
def test_c20_a_message_that_the_cli_drops_is_undelivered_once_with_the_reason(make):
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "first")
    cli = rig.running(session)
    second = away(session.run, "lost", queue=True)
    until(lambda: cli.queue)
    cli.drop("edited back")
    with pytest.raises(RejectedError, match=r"edited back|not_delivered"):
        second.result(WAIT_S)
    cli.finish("one")
    first.result(WAIT_S)
    (gone,) = bodies(rig, session, events.MessageUndelivered)
    assert gone.body.reason == "not_delivered"
    assert len(completions(rig, session)) == 1
    assert session.run("next", queue=True, deadline_s=0.0).status == "cancelled"  # the session is reusable


@pytest.mark.contract("C20")
def test_c20_every_accepted_message_ends_in_one_completion_or_one_undelivered(make):
    rig = make(manual=True)
    session = rig.session()
    acks = [session.send("m0")]
    cli = rig.running(session)
    acks += [session.send(f"m{number}") for number in range(1, 5)]
    until(lambda: len(cli.queue) == 4)
    cli.join()  # m1
    cli.drop()  # m2
    cli.finish("a")  # m3 starts
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    session.close()  # m3 cancelled, m4 undelivered
    ended = Counter()
    for done in completions(rig, session):
        ended.update([done.message_id, *done.joined])
    ended.update(event.message_id for event in bodies(rig, session, events.MessageUndelivered))
    assert ended == {ack.message_id: 1 for ack in acks}


# --- the same message id ---------------------------------------------------------------------------------------------


@pytest.mark.contract("C20")
def test_c20_the_same_message_id_gets_the_first_acknowledgement_and_no_second_delivery(make):
    rig = make()
    session = rig.session()
    first = session.send("hello", message_id="mine-1")
    again = session.send("hello", message_id="mine-1")
    completed(rig, session)
    settled = session.send("another text even", message_id="mine-1")
    for ack in (again, settled):
        assert ack == msgspec.structs.replace(first, duplicate=True)
    assert session.run("hello", message_id="mine-1") == completions(rig, session)[0]
    rig.settle()
    assert prompts(rig, session) == ["hello"]
    assert kinds(rig, session).count("message_accepted") == 1


@pytest.mark.contract("C20")
@pytest.mark.parametrize("run", [False, True])
def test_c20_the_same_message_id_from_many_threads_at_once_is_delivered_once(make, run):
    rig = make()
    session = rig.session()
    for round_number in range(8):
        barrier = threading.Barrier(8)

        def submit(barrier=barrier, key=f"id-{round_number}"):
            barrier.wait(WAIT_S)
            if run:
                return session.run(f"text {key}", message_id=key, queue=True)
            return session.send(f"text {key}", message_id=key)

        answers = [future.result(WAIT_S) for future in [away(submit) for _ in range(8)]]
        if run:
            assert len({answer.turn_id for answer in answers}) == 1
        else:
            assert len({answer.turn_id for answer in answers}) == 1
            assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 7
            completed(rig, session, round_number + 1)
    assert prompts(rig, session) == [f"text id-{number}" for number in range(8)]
    assert len(completions(rig, session)) == 8


@pytest.mark.contract("C20")
def test_c20_run_with_the_id_of_a_running_message_waits_for_that_turn(make):
    """Also without queue=True: it is no second message, so the session is not busy for it."""
    rig = make(manual=True)
    session = rig.session()
    first = away(session.run, "go", message_id="m")
    cli = rig.running(session)
    second = away(session.run, "go", message_id="m")
    rig.settle()
    cli.finish("once")
    assert first.result(WAIT_S) == second.result(WAIT_S)
    assert prompts(rig, session) == ["go"]


@pytest.mark.contract("C20")
def test_c20_run_with_the_id_of_an_undelivered_message_fails_the_same_way(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    session.send("first")
    cli = rig.running(session)
    session.send("lost", message_id="m")
    until(lambda: cli.queue)
    held = HeldCommits(monkeypatch, lambda batch: any(row.state == "undelivered" for row in batch.messages))
    cli.drop()
    held.wait()
    for _ in range(2):  # before and after its end is on record
        with pytest.raises(RejectedError) as caught:
            away(session.run, "lost", message_id="m").result(WAIT_S)
        assert caught.value.kind == "not_delivered"
        held.release()
        rig.settle()
    cli.finish("one")


def _pending(rig, session, _cli):
    """Nothing more: it waits in the CLI's queue."""
    return


def _joined(rig, session, cli):
    cli.join()
    until(lambda: bodies(rig, session, events.MessageJoined), within_s=WAIT_S)
    return cli


def _completed(rig, session, cli):
    cli.finish("first's answer")
    until(lambda: cli.turn, within_s=WAIT_S)
    cli.finish("mine's answer")
    completed(rig, session, 2)


def _joined_and_completed(rig, session, cli):
    _joined(rig, session, cli).finish("mine's answer")
    completed(rig, session, 1)


def _undelivered(rig, session, cli):
    cli.drop("removed by the CLI")
    until(lambda: bodies(rig, session, events.MessageUndelivered), within_s=WAIT_S)


@pytest.mark.contract("C20")
@pytest.mark.parametrize("restart", [False, True], ids=["same_host", "next_host"])
@pytest.mark.parametrize("run", [False, True], ids=["send", "run"])
@pytest.mark.parametrize(
    ("state", "told"),
    [
        (_pending, "waits"),
        (_joined, "waits"),
        (_completed, "answer"),
        (_joined_and_completed, "answer"),
        (_undelivered, "not_delivered"),
    ],
)
def test_c20_the_same_id_again_tells_what_became_of_the_first_in_every_state(tmp_path, state, told, run, restart):
    with Rig(tmp_path, manual=True) as first_life:
        session = first_life.session()
        session.send("first")
        cli = first_life.running(session)
        first = session.send("mine", message_id="m")
        assert first.taken == "pending"
        until(lambda: cli.queue, within_s=WAIT_S)
        state(first_life, session, cli)
        if not restart:
            _check_again(first_life, session, cli, first, told, run=run)
            return
        first_life.abandon()
    with Rig(tmp_path, manual=True, world=first_life.world) as next_life:
        found = next_life.runtime.session(session_id=session.session_id)
        _check_again(next_life, found, cli, first, told, run=run)


def _check_again(rig, session, cli, first, told, *, run):
    before = kinds(rig, session).count("message_accepted")
    if told == "not_delivered":
        for call in (session.run, session.send):
            with pytest.raises(RejectedError) as caught:
                away(call, "mine", message_id="m").result(WAIT_S)
            assert caught.value.kind == "not_delivered"
            (event,) = bodies(rig, session, events.MessageUndelivered)
            assert event.body.reason in caught.value.reason
            assert caught.value.remedy
    elif not run:
        assert session.send("mine", message_id="m") == msgspec.structs.replace(first, duplicate=True)
    else:
        again = away(session.run, "mine", message_id="m")
        if told == "waits":
            rig.settle()
            assert not again.done()
            while not again.done() and cli.turn:
                cli.finish("mine's answer")
                rig.settle()
        assert again.result(WAIT_S).answer == "mine's answer"
    rig.settle()
    assert kinds(rig, session).count("message_accepted") == before
    assert len(prompts(rig, session)) <= 2


@pytest.mark.contract("C20")
def test_c20_a_message_id_of_another_session_is_refused(make):
    rig = make()
    one, two = rig.session(), rig.session()
    one.run("x", message_id="m")
    with pytest.raises(UsageError) as caught:
        two.send("x", message_id="m")
    assert caught.value.kind == "usage"
    assert two.run("fine").answer == "echo: fine"


@pytest.mark.contract("C20")
def test_c20_the_same_id_in_two_sessions_at_once_is_accepted_by_one_and_hurts_neither(make):
    rig = make()
    sessions = [rig.session(), rig.session()]
    for number in range(10):
        barrier = threading.Barrier(2)

        def submit(session, barrier=barrier, key=f"m{number}"):
            barrier.wait(WAIT_S)
            return session.run("x", message_id=key)

        ends = [away(submit, session) for session in sessions]
        errors = [future.exception(WAIT_S) for future in ends]
        assert sorted(str(getattr(error, "kind", "")) for error in errors) == ["", "usage"]
    for session in sessions:
        until(lambda session=session: session.snapshot().state == "idle")
        assert session.run("still fine").status == "completed"


# --- what an earlier life left ---------------------------------------------------------------------------------------


@pytest.mark.contract("C13")
@pytest.mark.contract("C17")
def test_c17_messages_that_were_never_typed_wait_once_for_the_proof_and_not_one_after_the_other(tmp_path, clock):
    texts = [f"text {number}" for number in range(5)]
    with Rig(tmp_path, clock=clock) as first_life:
        session = first_life.session()
        first_life.ready(session)
        cli = first_life.cli(session)
        cli.starting = True
        for text in texts:
            session.send(text)
        first_life.abandon()
    cli.starting = False
    with Rig(tmp_path, clock=clock, world=first_life.world) as next_life:
        began_s = clock.monotonic()
        while len(completions(next_life, session)) < len(texts):
            assert clock.monotonic() - began_s < typing.RESOLVE_S + 3.0
            clock.advance(0.25)
            next_life.settle()
        assert clock.monotonic() - began_s > typing.RESOLVE_S
        assert prompts(next_life, next_life.runtime.session(session_id=session.session_id)) == texts


@pytest.mark.contract("C17")
@pytest.mark.contract("C20")
@pytest.mark.parametrize("ended", [False, True])
def test_c20_a_queued_record_that_a_next_life_reads_again_is_not_taken_for_a_later_message_of_that_text(
    tmp_path, clock, ended
):
    with Rig(tmp_path, manual=True, clock=clock) as first_life:
        session = first_life.session()
        session.send("first")
        first_life.settle()
        cli = first_life.running(session)
        session.send("alike")
        first_life.settle()
        assert cli.queue == ["alike"]
        cli.starting = True  # it takes nothing more
        session.send("alike")
        first_life.settle()
        if ended:
            cli.finish("answer 0")
            cli.finish("answer 1")
            first_life.settle()
            assert len(completions(first_life, session)) == 2
        first_life.abandon()
    cli.starting = False
    with Rig(tmp_path, manual=True, clock=clock, world=first_life.world) as next_life:
        next_life.settle()
        assert [type(event.body).__name__ for event in next_life.events(session)].count("MessageQueued") == 1
        for number in range(2 if ended else 0, 3):
            for _ in range(40):
                clock.advance(0.25)
                next_life.settle()
            cli.finish(f"answer {number}")
        assert [done.answer for done in completed(next_life, session, 3)] == ["answer 0", "answer 1", "answer 2"]


# --- C21: refusals ----------------------------------------------------------------------------------------------------


def refused(call):
    with pytest.raises(LastwordError) as caught:
        call()
    error = caught.value
    assert error.reason
    return type(error), error.kind


@pytest.mark.contract("C21")
def test_c21_each_bad_input_is_a_typed_error_and_costs_the_session_nothing(make):
    rig = make()
    session = rig.session()
    cases = [
        (lambda: session.send(""), (RejectedError, "empty_message")),
        (lambda: session.send(" \n\t "), (RejectedError, "empty_message")),
        (lambda: session.run(""), (RejectedError, "empty_message")),
        (lambda: session.send("a\0b"), (RejectedError, "unsupported_text")),
        (lambda: session.send("half \ud800 pair"), (RejectedError, "unsupported_text")),
        (lambda: session.send("x" * 2_000_000), (RejectedError, "unsupported_text")),
        (lambda: session.send(b"bytes"), (UsageError, "usage")),
        (lambda: session.send(None), (UsageError, "usage")),
        (lambda: session.run(17), (UsageError, "usage")),
        (lambda: session.run("x", deadline_s=-1), (UsageError, "usage")),
        (lambda: session.send("x", deadline_s=float("nan")), (UsageError, "usage")),
        (lambda: session.send("x", deadline_s=float("inf")), (UsageError, "usage")),
        (lambda: session.send("x", deadline_s="soon"), (UsageError, "usage")),
        (lambda: session.send("x", message_id=""), (UsageError, "usage")),
        (lambda: session.send("x", message_id="y" * 1000), (UsageError, "usage")),
        (lambda: session.send("x", message_id=5), (UsageError, "usage")),
        (lambda: session.send("x", message_id="a\nb"), (UsageError, "usage")),
        (lambda: session.send(Answer("nope", 1)), (RejectedError, "unknown_dialog")),
        (lambda: session.send(Answer("nope", "1")), (UsageError, "usage")),
        (lambda: session.send(Answer(None, 1)), (UsageError, "usage")),
        (lambda: session.send(Interrupt(turn_id=["x"])), (UsageError, "usage")),
        (lambda: session.send(Command("/compact")), (UsageError, "unsupported_capability")),
        (lambda: session.send(Command("")), (UsageError, "unsupported_capability")),
        (lambda: session.send(Command(3)), (UsageError, "usage")),
        (lambda: rig.runtime.session("nobody"), (UsageError, "unknown_provider")),
        (rig.runtime.session, (UsageError, "usage")),
        (lambda: rig.runtime.session(session_id="s_unknown"), (UsageError, "unknown_session")),
        (lambda: rig.runtime.session("memory", cwd="/nowhere/at/all"), (UsageError, "cwd_unusable")),
        (lambda: rig.runtime.session("memory", cwd="\udcff"), (UsageError, "cwd_unusable")),
        (lambda: rig.runtime.session("memory", model="\ud83d"), (UsageError, "usage")),
        (lambda: rig.runtime.session("memory", permission_mode="\ud83d"), (UsageError, "usage")),
        (lambda: rig.runtime.session("memory", args=("--x", "\ud83d")), (UsageError, "usage")),
        (lambda: rig.runtime.session("memory", args=("--x", b"y")), (UsageError, "usage")),
        (lambda: rig.runtime.session("\ud83d"), (UsageError, "unknown_provider")),
        (lambda: rig.runtime.session(session_id="\ud83d"), (UsageError, "unknown_session")),
        (lambda: rig.runtime.session("memory", transport="api"), (UsageError, "unsupported_capability")),
    ]
    for call, expected in cases:
        assert refused(call) == expected
    assert session.run("still well").answer == "echo: still well"
    assert kinds(rig, session).count("message_accepted") == 1
    assert session.send(Interrupt(turn_id="t_unknown")).taken == "nothing_to_do"


@pytest.mark.contract("C21")
def test_c21_an_adapter_that_raises_on_a_text_refuses_the_text_not_the_session(make):
    class Stumbling(MemoryAdapter):
        name = "stumbling"

        def escape(self, text):
            if "trip" in text:
                raise ZeroDivisionError(text)
            return super().escape(text)

    rig = make(adapters=[Stumbling()])
    session = rig.runtime.session("stumbling")
    kind = refused(lambda: session.send("trip over this secret"))
    assert kind == (RejectedError, "unsupported_text")
    assert session.run("walk").status == "completed"


@pytest.mark.contract("C21")
def test_c21_a_closed_session_and_a_closed_runtime_say_so(make):
    rig = make()
    session, other = rig.session(), rig.session()
    session.close()
    assert refused(lambda: session.send("x")) == (RejectedError, "session_closed")
    assert refused(lambda: session.run("x")) == (RejectedError, "session_closed")
    assert refused(lambda: session.send(Interrupt())) == (RejectedError, "session_closed")
    rig.runtime.close()
    assert refused(lambda: other.send("x")) == (RejectedError, "session_closed")
    assert refused(lambda: rig.runtime.session("memory")) == (UsageError, "runtime_closed")


@pytest.mark.contract("C21")
def test_c21_a_missing_or_uncertified_cli_is_refused_before_anything_is_made(make, tmp_path):
    class Missing(MemoryAdapter):
        name, executables = "missing", ("no-such-cli-anywhere",)

    class Old(MemoryAdapter):
        name, certified_versions = "old", ("99",)

    rig = make(adapters=[Missing(), Old()])
    assert refused(lambda: rig.runtime.session("missing"))[1] == "provider_unavailable"
    assert refused(lambda: rig.runtime.session("old"))[1] == "unsupported_cli_version"
    assert not rig.runtime.sessions()
    assert not rig.world.opened


@pytest.mark.contract("C21")
def test_c21_a_thousand_waiting_messages_are_the_bound(make):
    rig = make(manual=True)
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    session.send("first")
    taken = 1

    def fill():
        nonlocal taken
        for number in range(2000):
            session.send(f"{number}")
            taken += 1

    assert refused(fill) == (RejectedError, "overloaded")
    assert taken == 1000


# --- C19: turns of others ---------------------------------------------------------------------------------------------


@pytest.mark.contract("C19")
@pytest.mark.parametrize(
    ("origin", "told"), [("", "human_terminal"), ("task_notification", "task_notification"), ("hook", "hook")]
)
def test_c19_a_turn_that_nobody_sent_has_its_own_id_origin_and_one_completion(make, origin, told):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.start_turn("typed by a person", origin=origin)
    until(lambda: "turn_started" in kinds(rig, session))
    assert session.snapshot().state == "busy"
    cli.finish("for the person")
    (done,) = completed(rig, session)
    assert (done.origin, done.message_id, done.answer) == (told, None, "for the person")
    (started,) = bodies(rig, session, events.TurnStarted)
    assert (started.turn_id, started.body.origin, started.body.text) == (done.turn_id, told, "typed by a person")


@pytest.mark.contract("C19")
def test_c19_a_foreign_turn_never_closes_one_of_ours(make):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.start_turn("theirs")
    until(lambda: "turn_started" in kinds(rig, session))
    waiting = away(session.run, "ours", queue=True)
    until(lambda: cli.queue == ["ours"])
    cli.finish("their answer")
    until(lambda: kinds(rig, session).count("turn_started") == 2)
    assert not waiting.done()
    cli.finish("our answer")
    assert waiting.result(WAIT_S).answer == "our answer"
    assert [done.origin for done in completions(rig, session)] == ["human_terminal", "host"]


@pytest.mark.contract("C19")
def test_c19_a_person_who_types_the_same_words_as_a_background_notification_is_kept_apart(make):
    """A notification's turn is never bound to a message, whatever its text."""
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    cli.hold_records = True
    session.send("same words")
    until(lambda: cli.turn)
    native = cli.turn
    cli._kept.clear()
    cli.hold_records = False
    cli.write(Record(k="prompt", turn="n1", text="same words", origin="task_notification"))
    cli.write(Record(k="end", turn="n1", status="completed", text="of the task"))
    cli.write(Record(k="prompt", turn=native, text="same words"))
    cli.write(Record(k="end", turn=native, status="completed", text="of the message"))
    done = completed(rig, session, 2)
    assert [(one.origin, one.answer) for one in done] == [
        ("task_notification", "of the task"),
        ("host", "of the message"),
    ]


# --- C22: a CLI that is gone ------------------------------------------------------------------------------------------


@pytest.mark.contract("C22")
def test_c22_a_message_for_a_cli_that_is_gone_resumes_its_conversation(make):
    rig = make()
    session = rig.session()
    session.run("one")
    before = rig.cli(session)
    before.exit(1)
    until(lambda: session.snapshot().state == "gone")
    assert kinds(rig, session)[-1] == "session_gone"
    done = session.run("two")
    assert (done.status, done.answer) == ("completed", "echo: two")
    assert [argv[-2:] for argv in rig.world.opened] == [("--session", before.native), ("--resume", before.native)]
    assert rig.cli(session).pid != before.pid
    started = bodies(rig, session, events.ProviderStarted)
    assert [event.body.reason for event in started] == ["open", "resume"]
    assert prompts(rig, session) == ["one", "two"]


@pytest.mark.contract("C22")
def test_c22_without_a_transcript_the_conversation_is_started_not_resumed(make):
    rig = make()
    session = rig.session()
    rig.ready(session).exit(0)
    until(lambda: session.snapshot().state == "gone")
    assert session.run("one").answer == "echo: one"
    assert [argv[-2] for argv in rig.world.opened] == ["--session", "--session"]


@pytest.mark.contract("C22")
def test_c22_what_was_not_typed_when_the_cli_died_is_delivered_to_the_next(make):
    rig = make()
    starts = []

    def start(cli):
        cli.starting = not starts
        starts.append(cli)

    rig.world.on_start = start
    session = rig.session()
    acks = [session.send("a"), session.send("b")]
    until(lambda: starts)
    rig.settle()
    starts[0].exit(1)
    done = completed(rig, session, 2)
    assert [one.message_id for one in done] == [ack.message_id for ack in acks]
    assert {one.status for one in done} == {"completed"}
    assert prompts(rig, session) == ["a", "b"]


@pytest.mark.contract("C08")
@pytest.mark.contract("C22")
def test_c08_a_cli_that_dies_mid_turn_loses_the_turn_not_the_session(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    pending = session.send("behind it")
    until(lambda: cli.queue)
    cli.exit(137)
    done = waiting.result(WAIT_S)
    assert (done.status, done.error.kind, done.source) == ("lost", "provider_exited", "process_exit")
    until(lambda: "message_undelivered" in kinds(rig, session))
    (gone,) = bodies(rig, session, events.MessageUndelivered)
    assert (gone.message_id, gone.body.reason) == (pending.message_id, "provider_exited")
    again = away(session.run, "again", queue=True)
    rig.running(session).finish("back")
    assert again.result(WAIT_S).answer == "back"


@pytest.mark.contract("C03")
def test_c03_a_terminal_record_written_just_before_the_death_wins_over_the_death(make):
    rig = make(manual=True, wake=False)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.cli(session)
    until(lambda: cli.turn)
    cli.finish("finished in time")
    cli.exit(0)
    assert waiting.result(WAIT_S).answer == "finished in time"
    rig.settle()
    assert len(completions(rig, session)) == 1
