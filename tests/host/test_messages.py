"""Messages: accepted, acknowledged, ordered, bound; delivered once (C13, C17, C20)."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from host_kit import WAIT_S, Rig, away, bodies, completed, completions, kinds, prompts
from kit_system import until
from lastword import RejectedError, events
from lastword.actors.core import typing_bounds as bounds

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
            assert clock.monotonic() - began_s < bounds.RESOLVE_S + 3.0
            clock.advance(0.25)
            next_life.settle()
        assert clock.monotonic() - began_s > bounds.RESOLVE_S
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
