"""Subscriptions: every event once, in order, whatever the subscriber does; and nobody waits for it."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time

import pytest

from journal_samples import S1, S2, closing, commit, said, saying, session
from lastword.actors.core.errors import UsageError
from lastword.actors.core.events import AssistantDelta, Event
from lastword.actors.core.ports import Batch
from lastword.runtime._hub import LIVE_EVENTS_MAX, READ_EVENTS_MAX, RING_EVENTS_MAX, Hub
from lastword.runtime._journal import SqliteJournal

WAIT_S = 20.0


class CountingJournal:
    """Counts the reads."""

    def __init__(self, journal):
        self._journal, self.reads = journal, 0

    def __getattr__(self, name):
        return getattr(self._journal, name)

    def events(self, *args, **named):
        self.reads += 1
        return self._journal.events(*args, **named)


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal.open(tmp_path / "state", durability="process")
    yield journal
    journal.close()


@pytest.fixture
def hub(journal):
    hub = Hub(journal)
    yield hub
    hub.close()


def tell(journal, hub, batch):
    hub.publish(commit(journal, batch).events)


def drain(subscription) -> list[int]:
    seqs = []
    while (event := subscription.get(timeout_s=0)) is not None:
        seqs.append(event.seq)
    return seqs


@pytest.mark.contract("C30")
def test_c30_a_subscription_replays_after_its_seq_and_then_follows(journal, hub):
    tell(journal, hub, saying(5))
    subscription = hub.subscribe(S1, after=2)
    assert drain(subscription) == [3, 4, 5]
    tell(journal, hub, saying(2))
    assert drain(subscription) == [6, 7]
    assert subscription.after == 7


@pytest.mark.contract("C30")
def test_c30_the_stream_ends_after_session_closed_and_at_once_when_that_is_long_past(journal, hub):
    tell(journal, hub, Batch(session_id=S1, session=session(state="closed"), drafts=(said(), closing())))
    assert [event.seq for event in hub.subscribe(S1)] == [1, 2]
    late = hub.subscribe(S1, after=2)
    assert late.get(timeout_s=WAIT_S) is None
    assert late.ended
    assert hub.followed == 0


@pytest.mark.contract("C30")
def test_c30_no_event_of_another_session_is_seen(journal, hub):
    one, two = hub.subscribe(S1), hub.subscribe(S2)
    for result in journal.record([saying(2), saying(3, "s_2"), saying(1)], 1.0):
        hub.publish(result.events)
    mixed = [*commit(journal, saying(1)).events, *commit(journal, saying(1, "s_2")).events]
    hub.publish(mixed)
    assert drain(one) == [1, 2, 3, 4]
    assert drain(two) == [1, 2, 3, 4]


@pytest.mark.contract("C31")
def test_c31_a_slow_subscriber_loses_nothing_and_holds_up_nobody(journal, hub):
    slow, quick = hub.subscribe(S1), hub.subscribe(S1)
    assert slow.get(timeout_s=0) is None
    seen, total = [], 3 * READ_EVENTS_MAX + RING_EVENTS_MAX
    longest_s = 0.0
    for i in range(total):
        events = commit(journal, saying(1, start=i)).events
        began = time.perf_counter()
        hub.publish(events)
        longest_s = max(longest_s, time.perf_counter() - began)
        seen += drain(quick)
    assert seen == list(range(1, total + 1))
    assert longest_s < 1.0
    assert drain(slow) == list(range(1, total + 1))


@pytest.mark.contract("C31")
def test_c31_a_dead_subscriber_is_forgotten(journal, hub):
    subscription = hub.subscribe(S1)
    threading.Thread(target=lambda: hub.subscribe(S2)).start()
    assert hub.followed >= 1
    del subscription
    gc.collect()
    tell(journal, hub, saying(3))
    tell(journal, hub, saying(3, "s_2"))
    assert hub.followed == 0


def test_a_subscriber_that_keeps_up_never_reads_the_journal(journal):
    counting = CountingJournal(journal)
    hub = Hub(counting)
    subscription = hub.subscribe(S1)
    drain(subscription)
    for i in range(50):
        tell(journal, hub, saying(RING_EVENTS_MAX // 2, start=i))
        assert len(drain(subscription)) == RING_EVENTS_MAX // 2
    assert counting.reads == 0
    hub.close()


def test_a_session_that_nobody_follows_costs_nothing(journal, hub):
    tell(journal, hub, saying(3))
    assert hub.followed == 0
    with hub.subscribe(S1):
        assert hub.followed == 1
    assert hub.followed == 0


@pytest.mark.contract("C31")
def test_c31_events_that_were_never_published_are_found_by_the_slow_poll(journal):
    hub = Hub(journal, look_again_s=0.02)
    subscription = hub.subscribe(S1)
    assert subscription.get(timeout_s=0) is None
    commit(journal, saying(2))
    assert subscription.get(timeout_s=WAIT_S).seq == 1
    commit(journal, saying(1))
    hub.publish(commit(journal, saying(1)).events)  # a hole in what was published
    assert drain(subscription) == [2, 3, 4]
    hub.close()


@pytest.mark.contract("C31")
def test_c31_a_commit_between_the_look_and_the_wait_wakes(journal):
    """The narrowest gap: all is handed out, the subscriber is about to wait, and just then an event is published."""
    hub = Hub(journal, look_again_s=1_000.0)
    subscription = hub.subscribe(S1)
    assert subscription.get(timeout_s=0) is None
    take, published = subscription._take, []

    def take_then_publish():
        found = take()
        if not published:
            published.append(True)
            tell(journal, hub, saying())
        return found

    subscription._take = take_then_publish
    began = time.monotonic()
    event = subscription.get(timeout_s=5.0)
    assert event is not None
    assert event.seq == 1
    assert time.monotonic() - began < 2.5  # woken, not timed out
    hub.close()


@pytest.mark.contract("C31")
def test_c31_a_hole_in_what_was_published_is_no_hole_in_the_stream(journal, hub):
    subscription = hub.subscribe(S1)
    assert subscription.get(timeout_s=0) is None
    tell(journal, hub, saying(2))
    commit(journal, saying(2))
    tell(journal, hub, saying(2))
    assert drain(subscription) == [1, 2, 3, 4, 5, 6]


@pytest.mark.contract("C61")
def test_c61_closing_the_hub_ends_waiting_subscribers_and_leaves_no_thread(journal):
    hub = Hub(journal)
    before = threading.active_count()
    got: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: got.append([event.seq for event in hub.subscribe(S1)])) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    tell(journal, hub, saying(3))
    deadline = time.monotonic() + WAIT_S
    while hub.followed == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    hub.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert threading.active_count() == before
    assert all(seqs in ([1, 2, 3], []) for seqs in got)
    with pytest.raises(UsageError) as caught:
        hub.subscribe(S1)
    assert caught.value.kind == "runtime_closed"


def test_closing_a_subscription_wakes_the_thread_that_waits_in_it(journal, hub):
    subscription = hub.subscribe(S1)
    results = []
    thread = threading.Thread(target=lambda: results.append(subscription.get()))
    thread.start()
    subscription.close()
    thread.join(WAIT_S)
    assert results == [None]


def test_a_closed_journal_ends_a_subscription_quietly(tmp_path):
    journal = SqliteJournal.open(tmp_path)
    commit(journal, saying(3))
    hub = Hub(journal)
    subscription = hub.subscribe(S1)
    journal.close()
    assert list(subscription) == []
    assert subscription.ended
    hub.close()


@pytest.mark.contract("C31")
def test_c31_no_wake_up_is_lost_under_random_timing(journal):
    """Subscribers come and go while events are committed; each sees all of its own, in order, without the poll."""
    hub = Hub(journal, look_again_s=1_000.0)
    total, dice = 1500, random.Random(3)
    delays = [dice.choice((0, 0, 0, 0.0002, 0.001)) for _ in range(total)]
    problems: list[object] = []
    interval = sys.getswitchinterval()

    def follow(seed: int):
        mine, after = random.Random(seed), 0
        while after < total:
            subscription = hub.subscribe(S1, after=after)
            for _ in range(mine.randint(1, 200)):
                event = subscription.get(timeout_s=WAIT_S)
                if event is None or event.seq != after + 1:
                    problems.append((seed, after, event))
                    return
                after = event.seq
                if after == total:
                    break
                if mine.random() < 0.01:
                    time.sleep(0.003)
            if mine.random() < 0.5:
                subscription.close()

    threads = [threading.Thread(target=follow, args=(seed,)) for seed in range(6)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for i, delay_s in enumerate(delays):
            tell(journal, hub, saying(1, start=i))
            if delay_s:
                time.sleep(delay_s)
        for thread in threads:
            thread.join(WAIT_S)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    assert problems == []
    hub.close()
    gc.collect()
    assert hub.followed == 0


# --- events that are not on record ------------------------------------------------------------------------------------


def delta(text: str) -> Event:
    return Event(session_id=S1, seq=0, at=1.0, body=AssistantDelta(text=text))


def order_of(subscription) -> list[object]:
    told = []
    while (event := subscription.get(timeout_s=0)) is not None:
        told.append(event.body.text if event.ephemeral else event.seq)
    return told


@pytest.mark.contract("C30")
def test_c30_a_live_event_comes_where_it_happened_and_moves_no_place(journal, hub):
    with hub.subscribe(S1) as ours:
        tell(journal, hub, saying(1))
        hub.live(delta("a"))
        hub.live(delta("b"))
        tell(journal, hub, saying(2))
        hub.live(delta("c"))
        with hub.subscribe(S1, after=ours.after) as late:
            assert order_of(late) == [1, 2, 3]
        assert order_of(ours) == [1, "a", "b", 2, 3, "c"]
        assert ours.after == 3


@pytest.mark.contract("C31")
def test_c31_a_slow_subscriber_misses_live_events_at_most_and_no_other(journal, hub):
    with hub.subscribe(S1) as ours:
        for number in range(3):
            tell(journal, hub, saying(100))
            for _ in range(LIVE_EVENTS_MAX):
                hub.live(delta(f"{number}"))
        told = order_of(ours)
    assert [each for each in told if isinstance(each, int)] == list(range(1, 301))
    assert [each for each in told if isinstance(each, str)] == ["2"] * LIVE_EVENTS_MAX


def test_a_live_event_that_nobody_follows_costs_nothing(hub):
    hub.live(delta("x"))
    assert hub.followed == 0
