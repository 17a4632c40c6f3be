"""The asyncio twin: woken from the writer's thread, reads off the loop, and a cancelled wait loses nothing."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from journal_samples import S1, closing, commit, said, saying, session
from lastword.actors.core.ports import Batch
from lastword.runtime._hub import READ_EVENTS_MAX, Hub
from lastword.runtime._journal import SqliteJournal

WAIT_S = 20.0


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal.open(tmp_path / "state", durability="process")
    yield journal
    journal.close()


@pytest.fixture
def hub(journal):
    hub = Hub(journal, look_again_s=1_000.0)
    yield hub
    hub.close()


def writing(journal, hub, total: int, delays: list[float]) -> threading.Thread:
    def write():
        for i in range(total):
            hub.publish(commit(journal, saying(1, start=i)).events)
            if delays[i % len(delays)]:
                time.sleep(delays[i % len(delays)])

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.contract("C31")
def test_c31_async_subscribers_of_a_busy_session_see_every_event_once(journal, hub):
    total = 800

    async def follow(seed: int) -> list[int]:
        dice, seqs = random.Random(seed), []
        async with hub.async_subscribe(S1) as events, asyncio.timeout(WAIT_S):
            async for event in events:
                seqs.append(event.seq)
                if event.seq == total:
                    break
                if dice.random() < 0.02:
                    await asyncio.sleep(dice.choice((0, 0.002)))
        return seqs

    async def main() -> list[list[int]]:
        thread = writing(journal, hub, total, [0, 0, 0.0005, 0])
        try:
            return await asyncio.gather(*[follow(seed) for seed in range(5)])
        finally:
            await asyncio.to_thread(thread.join, WAIT_S)

    assert asyncio.run(main()) == [list(range(1, total + 1))] * 5
    assert hub.followed == 0


@pytest.mark.contract("C31")
def test_c31_a_cancelled_wait_loses_no_event(journal, hub):
    total = 400

    async def main() -> list[int]:
        dice, seqs = random.Random(11), []
        thread = writing(journal, hub, total, [0, 0.0007, 0.002, 0])
        events = hub.async_subscribe(S1)
        deadline = time.monotonic() + WAIT_S
        while (not seqs or seqs[-1] < total) and time.monotonic() < deadline:
            try:
                async with asyncio.timeout(dice.choice((0, 0.0005, 0.001, 0.01))):
                    event = await anext(events)
            except TimeoutError:
                continue
            seqs.append(event.seq)
        await asyncio.to_thread(thread.join, WAIT_S)
        await events.aclose()
        return seqs

    assert asyncio.run(main()) == list(range(1, total + 1))


def test_the_async_stream_ends_after_session_closed(journal, hub):
    commit(journal, saying(READ_EVENTS_MAX + 5))

    async def main() -> tuple[int, bool]:
        events = hub.async_subscribe(S1)
        asyncio.get_running_loop().call_later(
            0.02,
            lambda: hub.publish(
                commit(journal, Batch(session_id=S1, session=session(state="closed"), drafts=(closing(),))).events
            ),
        )
        count = 0
        async for _ in events:
            count += 1
        again = hub.async_subscribe(S1, after=count)
        return count, await again.get(WAIT_S) is None and again.ended

    assert asyncio.run(main()) == (READ_EVENTS_MAX + 6, True)


@pytest.mark.contract("C31")
def test_c31_a_slow_disk_read_does_not_hold_up_the_loop(journal):
    commit(journal, saying(3))
    release = threading.Event()

    class SlowJournal:
        def __getattr__(self, name):
            return getattr(journal, name)

        def events(self, *args):
            assert release.wait(WAIT_S)
            return journal.events(*args)

    hub = Hub(SlowJournal())

    async def main() -> list[int]:
        events = hub.async_subscribe(S1)
        first = asyncio.ensure_future(anext(events))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not first.done()
        release.set()
        return [(await first).seq, (await anext(events)).seq]

    assert asyncio.run(main()) == [1, 2]
    hub.close()


@pytest.mark.contract("C61")
def test_c61_closing_the_hub_ends_async_subscribers_and_its_threads(journal):
    hub = Hub(journal)
    before = threading.active_count()

    async def main() -> list[int]:
        events = hub.async_subscribe(S1)

        async def collect() -> list[int]:
            return [event.seq async for event in events]

        task = asyncio.ensure_future(collect())
        hub.publish(commit(journal, saying(2)).events)
        while events.after < 2:  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.001)
        hub.close()
        async with asyncio.timeout(WAIT_S):
            return await task

    assert asyncio.run(main()) == [1, 2]
    assert threading.active_count() == before


@pytest.mark.contract("C31")
def test_c31_a_subscriber_whose_loop_is_gone_hurts_nobody(journal, hub):
    async def subscribe():
        events = hub.async_subscribe(S1)
        assert await events.get(0) is None
        return events

    left = asyncio.run(subscribe())
    hub.publish(commit(journal, Batch(session_id=S1, drafts=(said(),))).events)
    assert left.ended
    assert hub.followed == 0
