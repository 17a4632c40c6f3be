"""What is too much is refused at the door, typed, with nothing accepted; what was accepted is never dropped (C21)."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from host_kit import WAIT_S, HeldCommits, away, completed, completions
from kit_system import Gate, until
from lastword import Limits, RejectedError, UsageError, events
from lastword.actors.core.ports import Batch
from lastword.actors.outbox import Outbox, Retry
from lastword.actors.session import READ_AHEAD_MAX, SessionActor
from lastword.actors.session_commands import Submit
from lastword.actors.system.flow import Flow
from lastword.runtime._hub import RING_EVENTS_MAX
from lastword.transports.providers.memory import Record


def outcomes(calls: list[Future]) -> tuple[list, list]:
    """What the calls gave, and the errors that they raised."""
    errors = [call.exception(WAIT_S) for call in calls]
    return [call.result() for call in calls if call.exception() is None], [error for error in errors if error]


@pytest.mark.contract("C21")
def test_c21_while_the_journal_is_far_behind_a_message_is_refused_and_nothing_accepted_is_lost(make, monkeypatch):
    rig = make(limits=Limits(journal_behind_max=8))
    sessions = [rig.session() for _ in range(24)]
    for session in sessions:
        rig.ready(session)
    held = HeldCommits(monkeypatch, lambda batch: batch.accept is not None)
    calls = [away(sessions[0].send, "first", message_id="m0")]
    held.wait()  # the disk takes its time; what comes now queues behind it
    for number, session in enumerate(sessions[1:], 1):
        before = rig.runtime._behind()
        calls.append(away(session.send, "text", message_id=f"m{number}"))
        until(lambda call=calls[-1], before=before: call.done() or rig.runtime._behind() > before, within_s=WAIT_S)
    refused = [n for n, call in enumerate(calls) if call.done()]
    assert refused == list(range(9, 24)), "as many as the bound wait, and the one that is being written"
    assert {calls[n].exception().kind for n in refused} == {"overloaded"}
    with pytest.raises(RejectedError) as error:
        rig.session()
    assert error.value.kind == "overloaded"
    held.release()
    given, _ = outcomes(calls)
    assert len(given) == 9
    for number in refused:  # the same id again: it was never accepted
        rig.settle()
        assert not sessions[number].send("text", message_id=f"m{number}").duplicate
    for session in sessions:
        assert len(completed(rig, session)) == 1


@pytest.mark.contract("C21")
def test_c21_calls_that_a_session_has_no_time_for_are_refused_and_leave_room_for_its_own_actors(make):
    rig = make(limits=Limits(calls_max=5))
    session, gate = rig.session(), Gate()
    rig.ready(session)
    rig.settle()
    ref = session._counterpart.ref
    actor = ref._cell.actor
    assert isinstance(actor, SessionActor)
    receive = actor.receive

    def stands(message):
        if isinstance(message, Submit) and message.message_id == "m0":
            gate._wait(None)
        return receive(message)

    actor.receive = stands
    calls = [away(session.send, "0", message_id="m0")]
    assert gate.entered.wait(WAIT_S)
    for number in range(1, 20):
        waiting = ref.waiting()
        calls.append(away(session.send, "text", message_id=f"m{number}"))
        until(lambda call=calls[-1], w=waiting: call.done() or ref.waiting() > w, within_s=WAIT_S)
    until(lambda: sum(not call.done() for call in calls) <= 6, within_s=WAIT_S)
    waits = [call for call in calls if not call.done()]
    its_own = ref.waiting() - len(waits[1:])  # a tick of its own that came meanwhile has its place too
    assert len(waits) >= 6 - its_own
    with pytest.raises(RejectedError) as error:
        session.snapshot()
    assert error.value.kind == "overloaded"
    gate.open()
    given, errors = outcomes(calls)
    assert (len(given), {error.kind for error in errors}) == (len(waits), {"overloaded"})
    completed(rig, session, len(waits))
    rig.settle()
    assert len(completions(rig, session)) == len(waits)


@pytest.mark.contract("C21")
def test_c21_a_session_with_a_cli_that_stands_takes_its_limit_and_delivers_all_of_it(make):
    rig = make(limits=Limits(waiting_max=20))
    rig.world.on_start = lambda cli: setattr(cli, "starting", True)
    session = rig.session()
    given, errors = outcomes([away(session.send, f"n{n}") for n in range(60)])
    assert (len(given), {error.kind for error in errors}) == (20, {"overloaded"})
    rig.cli(session).starting = False
    completed(rig, session, 20)
    rig.settle()
    assert len(completions(rig, session)) == 20


@pytest.mark.contract("C30")
@pytest.mark.contract("C31")
def test_c31_a_record_that_floods_waits_in_its_file_while_the_disk_is_slow_and_a_late_subscriber_has_all(
    make, monkeypatch
):
    rig = make(manual=True)
    session = rig.session()
    cli = rig.ready(session)
    followed = session.events()
    session.send("go")
    until(lambda: cli.turn, within_s=WAIT_S)
    rig.settle()
    held = HeldCommits(
        monkeypatch, lambda batch: any(d.body.__class__ is events.AssistantMessage for d in batch.drafts)
    )
    cli.say("0")
    held.wait()
    flow = session._counterpart.ref._cell.actor.flow
    count = READ_AHEAD_MAX * 3
    for number in range(1, count):
        cli.write(Record(k="said", turn=cli.turn, text=str(number)))
        rig.runtime._system.settle(0.01)  # one hint a piece; the writer stands all the while
    until(lambda: flow._wake is not None, within_s=WAIT_S)
    assert flow.under_way <= READ_AHEAD_MAX + 2
    cli.finish("done")
    held.release()
    assert completed(rig, session)[0].answer == "done"
    last = rig.events(session)[-1].seq
    assert last > RING_EVENTS_MAX
    seen = [next(followed) for _ in range(last)]
    assert [event.seq for event in seen] == list(range(1, last + 1))
    texts = [event.body.text for event in seen if isinstance(event.body, events.AssistantMessage)]
    assert texts == [*map(str, range(count)), "done"]


def test_what_is_sent_to_a_full_journal_waits_in_its_order():
    class Full:
        room, taken = 1, []

        def try_tell(self, commit):
            if self.room:
                self.room -= 1
                self.taken.append(commit.token)
                return True
            return False

        def is_alive(self):
            return True

    journal, timers, flow = Full(), [], Flow(3)
    outbox = Outbox(journal, None, lambda _, retry: timers.append(retry), flow, "mine")
    for _ in range(4):
        outbox.send(Batch(session_id="s"))
    assert (journal.taken, flow.under_way, flow.room(lambda: None)) == ([1], 4, False)
    journal.room = 2
    outbox.again(timers.pop())
    outbox.send(Batch(session_id="s"))
    assert journal.taken == [1, 2, 3], "what is sent later does not overtake"
    journal.room = 5
    (retry,) = timers
    assert isinstance(retry, Retry)
    outbox.again(retry)
    assert journal.taken == [1, 2, 3, 4, 5]


def test_a_limit_is_a_count(make):
    with pytest.raises(UsageError, match="are a Limits"):
        make(limits={"calls_max": 5})
    with pytest.raises(UsageError):
        make(limits=Limits(waiting_max=0))
