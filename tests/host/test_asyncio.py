"""The asyncio twin: the same five, nothing blocks the loop, cancelling the awaiting task interrupts the turn (C12)."""

from __future__ import annotations

import asyncio
import time

import pytest

from host_kit import WAIT_S, Rig, completions, kinds
from kit_system import until
from lastword import AsyncRuntime, AsyncSession, Interrupt, RejectedError, UsageError, events
from lastword.runtime._edge import Edge
from lastword.transports.memory import MemoryWorld


def asyncly(main):
    """Run it on a loop of its own, with a bound."""

    async def bounded():
        async with asyncio.timeout(WAIT_S):
            return await main

    return asyncio.run(bounded())


async def when(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens on other threads
            await asyncio.sleep(0.002)


@pytest.mark.contract("C12")
def test_c12_the_twin_runs_sends_follows_and_closes(tmp_path):
    world = MemoryWorld()
    edge = Edge(transport=world, files=world, wakes=world, close=world.close)

    async def main():
        async with AsyncRuntime.open(tmp_path / "state", edge=edge, durability="process") as runtime:
            session = await runtime.session("memory")
            done = await session.run("one")
            assert (done.status, done.answer) == ("completed", "echo: one")
            ack = await session.send("two")
            seen = []
            async for event in session.events(after=ack.seq):
                seen.append(event.type)
                if isinstance(event.body, events.CompletionReached):
                    assert event.body.completion.answer == "echo: two"
                    assert await runtime.completion(event.turn_id) == event.body.completion
                    break
            assert seen[-1] == "unified_completion"
            assert (await session.snapshot()).session_id == session.session_id
            assert (await session.send(Interrupt())).taken == "nothing_to_do"
            found = await runtime.session(session_id=session.session_id)
            assert found.session_id == session.session_id
            assert (await runtime.run("memory", "once")).answer == "echo: once"
            following = asyncio.create_task(_all(session))
            await session.close()
            assert (await following)[-1].type == "session_closed"
            assert len(await runtime.sessions()) == 2

    asyncly(main())


async def _all(session):
    return [event async for event in session.events()]


def twin(session):
    return AsyncSession(session)


@pytest.mark.contract("C12")
def test_c12_cancelling_the_task_that_awaits_a_run_interrupts_its_turn_which_still_completes_once(make):
    rig = make(manual=True)
    session = rig.session()

    async def main():
        task = asyncio.create_task(twin(session).run("long work"))
        await when(lambda: "turn_started" in kinds(rig, session))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await when(lambda: completions(rig, session))

    asyncly(main())
    rig.settle()
    (done,) = completions(rig, session)
    assert (done.status, done.error.kind) == ("cancelled", "interrupted")


@pytest.mark.contract("C12")
def test_c12_cancelling_before_the_acknowledgement_interrupts_the_turn_too(make, caplog):
    rig = make(manual=True)
    session = rig.session()
    rig.ready(session)

    async def main():
        for number in range(20):
            task = asyncio.create_task(twin(session).run(f"{number}"))
            await asyncio.sleep(0)  # it has told the session, and has no answer yet
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await when(lambda: session.snapshot().state == "idle")
        rig.world.manual = False
        assert (await twin(session).run("not cancelled", queue=True)).status == "completed"

    asyncly(main())
    *cancelled, last = completions(rig, session)
    assert {done.status for done in cancelled} == {"cancelled"}
    assert last.answer == "echo: not cancelled"
    assert len(cancelled) + 1 == kinds(rig, session).count("message_accepted"), "a parked one was never accepted"
    assert not caplog.records


@pytest.mark.contract("C12")
def test_c12_cancelling_a_queued_run_leaves_the_running_turn_alone(make):
    rig = make(manual=True)
    session = rig.session()

    async def main():
        first = asyncio.create_task(twin(session).run("somebody else's"))
        await when(lambda: "turn_started" in kinds(rig, session))
        cli = rig.cli(session)
        second = asyncio.create_task(twin(session).run("mine", queue=True))
        await when(lambda: "message_queued" in kinds(rig, session))
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await asyncio.to_thread(rig.settle)
        assert "Escape" not in cli.keys
        cli.finish("undisturbed")
        assert (await first).answer == "undisturbed"
        await when(lambda: len(completions(rig, session)) == 2)

    asyncly(main())
    assert [done.status for done in completions(rig, session)] == ["completed", "cancelled"]


@pytest.mark.contract("C12")
def test_c12_a_timeout_around_run_is_a_cancellation_and_the_session_stays_usable(make):
    rig = make(manual=True)
    session = rig.session()
    rig.ready(session)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await twin(session).run("slow")
        await when(lambda: completions(rig, session))
        again = asyncio.create_task(twin(session).run("again"))
        await when(lambda: kinds(rig, session).count("turn_started") == 2)
        rig.cli(session).finish("ok")
        assert (await again).answer == "ok"

    asyncly(main())


@pytest.mark.contract("C12")
@pytest.mark.contract("C13")
def test_c12_many_tasks_on_one_loop_and_the_loop_is_never_blocked(make):
    rig = make()
    sessions = [twin(rig.session()) for _ in range(30)]
    late = []

    async def heart():
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            late.append(time.monotonic() - began)

    async def drive(number, session):
        return [(await session.run(f"{number}.{turn}")).answer for turn in range(5)]

    async def main():
        beating = asyncio.create_task(heart())
        done = await asyncio.gather(*(drive(number, session) for number, session in enumerate(sessions)))
        beating.cancel()
        return done

    done = asyncly(main())
    assert done == [[f"echo: {number}.{turn}" for turn in range(5)] for number in range(30)]
    assert max(late) < 1.0, max(late)


@pytest.mark.contract("C21")
def test_c21_the_twin_raises_the_same_errors(make):
    rig = make(manual=True)
    session = rig.session()

    async def main():
        for call, kind in [
            (lambda: twin(session).send(""), "empty_message"),
            (lambda: twin(session).send(7), "usage"),
            (lambda: twin(session).run("x", deadline_s=-1), "usage"),
        ]:
            with pytest.raises((RejectedError, UsageError)) as caught:
                await call()
            assert caught.value.kind == kind
        running = asyncio.create_task(twin(session).run("one"))
        await when(lambda: "turn_started" in kinds(rig, session))
        with pytest.raises(RejectedError) as caught:
            await twin(session).run("two")
        assert caught.value.kind == "busy"
        await twin(session).close()
        assert (await running).status == "cancelled"
        with pytest.raises(RejectedError) as caught:
            await twin(session).send("x")
        assert caught.value.kind == "session_closed"

    asyncly(main())


@pytest.mark.contract("C31")
def test_c31_a_task_that_stops_following_costs_nothing_and_resumes_where_it_was(make):
    rig = make()
    session = rig.session()

    async def main():
        seen = []

        async def follow(after, stop_at):
            async for event in twin(session).events(after=after):
                seen.append(event.seq)
                if event.seq >= stop_at:
                    return

        await asyncio.to_thread(session.run, "one")
        await follow(0, 4)
        waiting = asyncio.create_task(follow(seen[-1], 10_000))
        await asyncio.to_thread(session.run, "two")
        last = rig.events(session)[-1].seq
        await when(lambda: seen[-1] == last)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(session.run, "three")
        await follow(seen[-1], rig.events(session)[-1].seq)
        return seen

    assert asyncly(main()) == [event.seq for event in rig.events(session)]


def test_a_loop_that_ends_with_runs_under_way_leaves_a_runtime_that_works(tmp_path):
    with Rig(tmp_path, manual=True) as rig:
        session = rig.session()

        async def main():
            task = asyncio.create_task(twin(session).run("abandoned"))
            await when(lambda: "turn_started" in kinds(rig, session))
            return task

        asyncly(main())  # asyncio.run cancels what is left
        until(lambda: completions(rig, session))
        assert completions(rig, session)[0].status == "cancelled"
        rig.world.manual = False
        assert session.run("next").status == "completed"
