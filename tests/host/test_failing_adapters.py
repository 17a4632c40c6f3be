"""What a third party's adapter raises: it is told, each accepted turn has its one last word, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from host_kit import WAIT_S, away, bodies, completed, completions, kinds
from kit_system import until
from lastword import AsyncSession, LastwordError, RejectedError, events
from lastword.actors import session as session_shell
from lastword.actors.core.fault import UNTOLD, PartFailedError, fault_of
from lastword.transports.providers.memory import MemoryAdapter, MemoryOracle

SECRET = "the very secret words of this prompt"


class BoomError(Exception):
    pass


def boom(*_, **__):
    raise BoomError(f"bug of the adapter, over {SECRET!r}")


def raising(where, only=1_000):
    """An adapter of which that method raises, the first so many times."""
    left = [only]

    def maybe(real):
        def call(*args, **named):
            if left[0] <= 0:
                return real(*args, **named)
            left[0] -= 1
            raise BoomError("bug of the adapter")

        return call

    class Raising(MemoryAdapter):
        name = "raising"

    if where.startswith("oracle."):
        part = where.removeprefix("oracle.")

        class Oracle(MemoryOracle):
            pass

        if part == "quiescent":
            Oracle.quiescent = property(maybe(MemoryOracle.quiescent.fget))
        else:
            setattr(Oracle, part, maybe(getattr(MemoryOracle, part)))
        Raising.oracle = lambda _, source, native_session, offset=0: Oracle(source, offset)
    else:
        setattr(Raising, where, maybe(getattr(MemoryAdapter, where)))
    return Raising()


LAUNCHING = ["launch", "transcript", "sources"]
LIVING = ["oracle.feed", "oracle.quiescent", "oracle", "status_file", "signals", "landed", "matches", "identify"]


@pytest.mark.contract("C02")
@pytest.mark.contract("C09")
@pytest.mark.parametrize("where", LIVING)
def test_c02_a_method_that_keeps_raising_leaves_no_accepted_turn_without_its_last_word(make, where):
    rig = make(adapters=[raising(where)])
    session = rig.runtime.session("raising")
    waiting = away(session.run, "go")
    refused = waiting.exception(WAIT_S)
    if refused is not None:  # it was not accepted: the session's actor had failed before it came
        assert (type(refused), refused.kind) == (RejectedError, "session_closed")
        assert "bug of the adapter" in refused.reason
    else:
        done = waiting.result()
        assert (done.status, done.error.kind) == ("lost", "adapter_failed")
        assert f"in {where}" in done.error.message
        assert "raised BoomError" in done.error.message
        assert "bug of the adapter" in done.error.message
    until(lambda: "session_gone" in kinds(rig, session), within_s=WAIT_S)
    accepted = bodies(rig, session, events.MessageAccepted)
    assert [done.message_id for done in completions(rig, session)] == [each.message_id for each in accepted]
    told = bodies(rig, session, events.InvariantViolated)
    assert len(told) == 4
    assert all(f"in {where}" in each.body.what and "bug of the adapter" in each.body.what for each in told)
    assert [each.body.repair for each in told][-1] == "given up after 4 failures"
    assert not rig.world.alive()
    until(lambda: session._counterpart.fault)
    with pytest.raises(RejectedError) as caught:
        session.run("again")
    assert caught.value.kind == "session_closed"
    assert f"in {where}" in caught.value.reason
    assert session.snapshot().state == "gone"
    assert rig.dead_letters().counts()["session_adapter_failed"] == 4


@pytest.mark.contract("C02")
@pytest.mark.parametrize("where", LAUNCHING)
def test_c02_a_start_over_which_the_adapter_raises_fails_what_waits_at_once(make, where):
    rig = make(adapters=[raising(where, 2)])
    session = rig.runtime.session("raising")
    done = session.run("go")
    assert (done.status, done.error.kind) == ("failed", "launch_failed")
    assert f"in {where}" in done.error.message
    assert "raised BoomError" in done.error.message
    assert "bug of the adapter" in done.error.message
    assert bodies(rig, session, events.InvariantViolated)
    assert session.run("now it starts").answer == "echo: now it starts"


@pytest.mark.contract("C02")
@pytest.mark.contract("C40")
@pytest.mark.parametrize("where", ["oracle.feed", "signals"])
def test_c40_one_failure_costs_the_accepted_turn_nothing_and_is_told(make, where):
    rig = make(adapters=[raising(where, 1)])
    session = rig.runtime.session("raising")
    ack = session.send("go")
    until(lambda: bodies(rig, session, events.InvariantViolated), within_s=WAIT_S)
    (done,) = completed(rig, session)
    assert (done.turn_id, done.status) == (ack.turn_id, "completed")
    (told,) = bodies(rig, session, events.InvariantViolated)
    assert told.body.repair == "another actor took its place"


@pytest.mark.contract("C11")
def test_c11_a_cli_whose_start_is_not_on_record_may_still_be_there_under_its_name(make):
    rig = make(adapters=[raising("status_file", 1)])
    session = rig.runtime.session("raising")
    failed = session._counterpart.ref
    until(lambda: session._counterpart.ref is not failed, within_s=WAIT_S)
    assert session.run("go").answer == "echo: go"
    assert rig.cli(session).name == f"{session.session_id}-3", "the first one was 2"


@pytest.mark.contract("C02")
def test_c02_run_goes_on_waiting_past_an_actor_that_failed(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    failed = session._counterpart.ref
    failed.tell(object())
    until(lambda: session._counterpart.ref is not failed, within_s=WAIT_S)
    cli.finish("done")
    done = waiting.result(WAIT_S)
    assert completions(rig, session) == [done]
    assert done.answer == "done"


@pytest.mark.contract("C02")
def test_c02_run_goes_on_waiting_past_an_actor_that_failed_for_asyncio_too(make):
    rig = make(manual=True)
    session = rig.session()

    async def both():
        waiting = asyncio.ensure_future(AsyncSession(session).run("go"))
        cli = await asyncio.to_thread(rig.running, session)
        failed = session._counterpart.ref
        failed.tell(object())
        await asyncio.to_thread(until, lambda: session._counterpart.ref is not failed)
        cli.finish("done")
        return await asyncio.wait_for(waiting, WAIT_S)

    assert asyncio.run(both()).answer == "done"


@pytest.mark.contract("C02")
def test_c02_an_actor_of_our_own_that_keeps_failing_is_internal(make, monkeypatch):
    def facts(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(session_shell.SessionActor, "_facts", facts)
    rig = make()
    session = rig.session()
    done = session.run("go")
    assert (done.status, done.error.kind) == ("lost", "internal")
    assert "ZeroDivisionError: ours" in done.error.message


@pytest.mark.contract("C20")
def test_c20_a_message_that_owns_no_turn_has_its_end_too(make):
    rig = make(manual=True)
    session = rig.session()
    first = session.send("go")
    rig.running(session)
    second = session.send("waits")
    for _ in range(4):
        failed = session._counterpart.ref
        until(failed.is_alive, within_s=WAIT_S)
        failed.tell(object())
        until(
            lambda failed=failed: session._counterpart.ref is not failed or session._counterpart.fault, within_s=WAIT_S
        )
    assert session._counterpart.fault
    assert [done.turn_id for done in completions(rig, session)] == [first.turn_id]
    ends = [m for done in completions(rig, session) for m in (done.message_id, *done.joined)]
    ends += [each.message_id for each in bodies(rig, session, events.MessageUndelivered)]
    assert ends == [first.message_id, second.message_id]


@pytest.mark.contract("C62")
def test_c62_what_is_told_of_a_failure_holds_no_text_of_a_prompt():
    try:
        boom()
    except BoomError as error:
        caught = error
    assert SECRET in fault_of(caught, "part").what
    told = fault_of(caught, "part", [f"please say {SECRET} now"]).what
    assert SECRET not in told
    assert UNTOLD in told
    assert "BoomError" in told
    assert "test_failing_adapters.py" in told
    around = PartFailedError("s_1/transcript")
    around.__cause__ = ValueError("odd")
    assert fault_of(around, "s_1").what == "s_1/transcript: ValueError: odd"


@pytest.mark.contract("C21")
def test_c21_what_the_adapter_raises_in_the_callers_own_call_is_typed(make):
    rig = make(adapters=[raising("new_native_session")])
    with pytest.raises(LastwordError) as caught:
        rig.runtime.session("raising")
    assert caught.value.kind == "adapter_failed"
    assert not rig.runtime.sessions()
