"""Subscriptions to a session's events: told after the commit, caught up from the journal (C09, C30, C31).

Theory of operation. Only a session that somebody follows has a *channel*: its head (the highest seq known to be
committed) and a bounded ring of the last events. :meth:`Hub.publish` moves the head, fills the ring and wakes; it runs
no code of a subscriber and waits for none. A subscription holds nothing but the last seq it handed out: where the
ring has the next event it takes it from there, else it reads the journal, on its own thread. So a slow one loses
nothing and holds up nobody, and a dead one costs nothing.

No wake-up can be lost: whoever subscribes makes the channel first and reads the head from the journal after that, and
waits only while, under the channel's lock, the head is not beyond its own seq. :data:`LOOK_AGAIN_S` is a slow poll
besides, for followers of a journal that another process writes, which nobody wakes.

Channels are per session, and so are their locks: sessions never wait for each other (C13). Events without a seq, which
are not on record, stand in a bounded queue of their own beside the ring, each behind the event that was the last one
when it came: a subscription hands it out when it is there. Who comes later never sees it, who is slow may miss some.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from itertools import islice
from typing import Final, Self, TypeVar

from lastword.actors.core.errors import JournalError, UsageError
from lastword.actors.core.events import CompletionReached, Event, SessionClosed
from lastword.actors.core.ids import SessionId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import Journal
from lastword.actors.system.envelope import next_number
from lastword.actors.system.tracing import RETURNED, Delivered, Tracer
from lastword.runtime._home import check_home

RING_EVENTS_MAX: Final = 128
"""Events of a followed session that are kept in memory for those who are nearly caught up."""

LIVE_EVENTS_MAX: Final = 256
"""Events without a seq that a followed session keeps for those who are nearly caught up."""

READ_EVENTS_MAX: Final = 200
"""Events that one catch-up read takes from the journal."""

LOOK_AGAIN_S: Final = 30.0
"""A waiting subscriber looks into the journal this often, unasked."""

ASYNC_READERS_MAX: Final = 2
"""Threads that read the journal for all asyncio subscribers; started when first wanted."""

_T = TypeVar("_T")


class _Next(Enum):
    READ = auto()
    """The journal has more than the ring."""
    CHECK = auto()
    """All that is known was handed out: look once whether the session is closed."""
    WAIT = auto()
    END = auto()


class _Channel:
    """What is known in memory of one followed session."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.lock = threading.Lock()
        self.head = 0
        self.ring: deque[Event] = deque(maxlen=RING_EVENTS_MAX)
        self.live: deque[tuple[int, int, Event]] = deque(maxlen=LIVE_EVENTS_MAX)
        """Number, seq of the event before it, the event."""
        self.lived = 0
        self.taps: list[weakref.ref[_Tap]] = []

    def add(self, events: Sequence[Event]) -> list[_Tap]:
        """Take over committed events; returns whom to wake."""
        with self.lock:
            for event in events:
                if event.seq <= self.head:
                    continue  # the head was read from the journal between the commit and this call
                if event.seq != self.head + 1:
                    self.ring.clear()  # the ring has no holes; what is missing is read from the journal
                self.ring.append(event)
                self.head = event.seq
            return self.listeners()

    def raise_head(self, seq: int) -> None:
        with self.lock:
            if seq > self.head:
                self.head = seq
                self.ring.clear()

    def add_live(self, event: Event) -> list[_Tap]:
        """Take one that is not on record; returns whom to wake."""
        with self.lock:
            self.lived += 1
            self.live.append((self.lived, self.head, event))
            return self.listeners()

    def listeners(self) -> list[_Tap]:
        """Those that still live; called with the lock held."""
        pairs = [(ref, tap) for ref, tap in ((ref, ref()) for ref in self.taps) if tap is not None]
        if len(pairs) < len(self.taps):
            self.taps = [ref for ref, _ in pairs]
        return [tap for _, tap in pairs]


def _trace(tracer: Tracer, event: Event) -> None:
    record = Delivered(next_number(), event.turn_id, event.type, event.session_id, event.seq, time.perf_counter_ns())
    if isinstance(event.body, CompletionReached):
        _stamp(record, event.body.completion)
    tracer.handled(record)


def _stamp(record: Delivered, completion: Completion) -> None:
    record.delivered_at, times = time.time(), completion.times
    record.accepted_at = times.accepted_at
    record.terminal_seen_at, record.committed_at = times.terminal_seen_at, times.committed_at


class Hub:
    """Tells subscribers what was committed. ``publish`` is for the journal's writer; the rest for any thread.

    Args:
        on_delivered: called with each completion that is handed out, on the subscriber's thread; must return at once.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        look_again_s: float = LOOK_AGAIN_S,
        on_delivered: Callable[[Completion], None] | None = None,
    ) -> None:
        self._journal = journal
        self._on_delivered = on_delivered
        self._look_again_s = look_again_s
        self._channels: dict[SessionId, _Channel] = {}
        self._channels_lock = threading.Lock()  # for adding and removing channels only
        self._forgotten: deque[SessionId] = deque()  # sessions of subscriptions that were garbage-collected
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._pid = os.getpid()
        self.tracer: Tracer | None = None
        """Told of each event that a subscriber has taken."""

    def check_home(self) -> None:
        """Refuse to serve a process that was forked off this one: nobody would ever wake it."""
        check_home(self._pid)

    def publish(self, events: Sequence[Event]) -> None:
        """Make committed events known, in the order committed. Never blocks on a subscriber, never raises for one."""
        if self._forgotten:
            self._sweep()
        start = 0
        while start < len(events):
            session_id = events[start].session_id
            stop = start + 1
            while stop < len(events) and events[stop].session_id == session_id:
                stop += 1
            channel = self._channels.get(session_id)
            if channel is not None:
                for tap in channel.add(events[start:stop]):
                    tap.wake()
            start = stop

    def live(self, event: Event) -> None:
        """Make an event known that is not on record. From any thread; never blocks on a subscriber."""
        channel = self._channels.get(event.session_id)
        if channel is not None:
            for tap in channel.add_live(event):
                tap.wake()

    def subscribe(self, session_id: SessionId, after: int = 0) -> Subscription:
        """Follow a session from the event after seq ``after``: an iterator for one thread at a time.

        It ends after the session's ``session_closed`` event, or when the hub closes.

        Raises:
            JournalError: the journal cannot be read.
            UsageError: ``runtime_closed``: the hub is closed.
        """
        self.check_home()
        tap = Subscription(self, session_id, after)
        self._attach(tap)
        return tap

    def async_subscribe(self, session_id: SessionId, after: int = 0) -> AsyncSubscription:
        """The same for asyncio, on the running loop; an async iterator for one task at a time.

        Reads the journal on threads of the hub, never on the loop; cancelling the task that waits loses no event.
        """
        self.check_home()
        tap = AsyncSubscription(self, session_id, after, asyncio.get_running_loop())
        self._attach(tap, look=False)
        return tap

    def returned(self, completion: Completion) -> Completion:
        """It is handed to a caller that waited for it alone: so it is counted and traced; and given back."""
        if self._on_delivered is not None:
            self._on_delivered(completion)
        if self.tracer is not None:
            now_ns = time.perf_counter_ns()
            record = Delivered(next_number(), completion.turn_id, RETURNED, completion.session_id, 0, now_ns)
            _stamp(record, completion)
            self.tracer.handled(record)
        return completion

    def close(self) -> None:
        """End every subscription; those that wait are woken. Idempotent."""
        with self._channels_lock:
            self._closed = True
            channels = list(self._channels.values())
            pool, self._pool = self._pool, None
        for channel in channels:
            with channel.lock:
                taps = channel.listeners()
            for tap in taps:
                tap.wake()
        if pool is not None:
            pool.shutdown(wait=True)  # reads are short; cancelling one would cancel the task that waits for it

    @property
    def followed(self) -> int:
        """How many sessions have a channel now."""
        self._sweep()
        return len(self._channels)

    def _attach(self, tap: _Tap, *, look: bool = True) -> None:
        self._sweep()
        with self._channels_lock:
            if self._closed:
                raise UsageError("runtime_closed", "the runtime is closed")
            channel = self._channels.get(tap.session_id)
            if channel is None:
                channel = self._channels[tap.session_id] = _Channel(tap.session_id)
            with channel.lock:
                channel.taps.append(weakref.ref(tap, tap.forgotten(self._forgotten)))
            tap.channel = channel
            tap.lived = channel.lived
        if look:  # after the channel is there, so that every later commit is published into it
            tap.look()

    def _detach(self, tap: _Tap) -> None:
        with self._channels_lock:
            with tap.channel.lock:
                tap.channel.taps = [ref for ref in tap.channel.taps if ref() not in (None, tap)]
                empty = not tap.channel.taps
            if empty and self._channels.get(tap.session_id) is tap.channel:
                del self._channels[tap.session_id]

    def _sweep(self) -> None:
        """Drop the channels that nobody follows any more."""
        while self._forgotten:
            try:
                session_id = self._forgotten.popleft()
            except IndexError:
                return
            with self._channels_lock:
                channel = self._channels.get(session_id)
                if channel is None:
                    continue
                with channel.lock:
                    empty = not channel.listeners()
                if empty:
                    del self._channels[session_id]

    def _executor(self) -> ThreadPoolExecutor:
        with self._channels_lock:
            if self._closed:
                raise JournalError("journal_closed", "the runtime is closed")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(ASYNC_READERS_MAX, thread_name_prefix="lastword-hub")
            return self._pool


class _Tap:
    """What both kinds of subscription share: the place in the stream, and where its next event is."""

    channel: _Channel

    def __init__(self, hub: Hub, session_id: SessionId, after: int) -> None:
        self._hub = hub
        self._journal = hub._journal  # noqa: SLF001 - one noun in three classes
        self.session_id = session_id
        self.after = after
        self._ready: deque[Event] = deque()
        self.lived = 0
        """Number of the last live event that is not for us any more."""
        self._checked = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """Nothing more will come."""
        return self._ended

    def wake(self) -> None:
        """The channel moved. Called by the publisher: returns at once."""
        raise NotImplementedError

    def look(self) -> None:
        """Read the head from the journal."""
        self.channel.raise_head(self._journal.last_seq(self.session_id))

    def forgotten(self, into: deque[SessionId]) -> _Forgotten:
        return _Forgotten(self.session_id, into)

    def _take(self) -> Event | _Next:
        """The next event that is at hand, or what is to be done for it."""
        if self._ended:
            return _Next.END
        live = self._take_live()
        if live is not None:
            return live
        if not self._ready:
            with self.channel.lock:
                if self.channel.head > self.after:
                    ring = self.channel.ring
                    if not ring or ring[0].seq > self.after + 1:
                        return _Next.READ
                    skip = self.after + 1 - ring[0].seq
                    self._ready.extend(islice(ring, skip, None))
        if not self._ready:
            if self._hub._closed:  # noqa: SLF001
                self._finish()
                return _Next.END
            return _Next.WAIT if self._checked else _Next.CHECK
        event = self._ready.popleft()
        self.after = event.seq
        body = event.body
        if isinstance(body, CompletionReached):
            if self._hub._on_delivered is not None:  # noqa: SLF001
                self._hub._on_delivered(body.completion)  # noqa: SLF001
        elif isinstance(body, SessionClosed):
            self._finish()
        return event

    def _take_live(self) -> Event | None:
        """The next one without a seq, if it is its turn."""
        channel = self.channel
        if channel.lived == self.lived:
            return None
        with channel.lock:
            for number, behind, event in channel.live:
                if number > self.lived:
                    if behind > self.after:
                        return None
                    self.lived = number
                    return event
        return None

    def _read(self) -> list[Event]:
        events = self._journal.events(self.session_id, self.after, READ_EVENTS_MAX)
        if not events or events[0].seq != self.after + 1:
            raise JournalError("journal_corrupt", f"session {self.session_id} has no event {self.after + 1}")
        return events

    def _is_over(self) -> bool:
        """Whether the session was closed and its last event handed out: then no event will ever wake us."""
        row = self._journal.session(self.session_id)
        if row is None or row.state != "closed":
            return False
        self.look()
        return self.channel.head <= self.after

    def _finish(self) -> None:
        if not self._ended:
            self._ended = True
            self._hub._detach(self)  # noqa: SLF001


class _Forgotten:
    """Called by the garbage collector, perhaps in the middle of anything: takes no lock."""

    def __init__(self, session_id: SessionId, into: deque[SessionId]) -> None:
        self._session_id = session_id
        self._into = into

    def __call__(self, _: weakref.ref[_Tap]) -> None:
        self._into.append(self._session_id)


class Subscription(_Tap):
    """An iterator over a session's events that waits for the next one. For one thread at a time.

    ``after`` is the seq of the last event it gave: where to resume.
    """

    def __init__(self, hub: Hub, session_id: SessionId, after: int) -> None:
        super().__init__(hub, session_id, after)
        self._woken = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def get(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None when none came within ``timeout_s`` (None: no bound), or at the end (``ended``).

        Raises:
            JournalError: the journal cannot be read. The place is kept: call again to try again.
        """
        self._hub.check_home()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._woken.clear()  # before looking: what comes after the look sets it again
            found = self._take()
            if isinstance(found, Event):
                if self._hub.tracer is not None and found.seq:
                    _trace(self._hub.tracer, found)
                return found
            try:
                if found is _Next.READ:
                    self._ready.extend(self._read())
                    continue
                if found is _Next.CHECK:
                    self._checked = True
                    if self._is_over():
                        self._finish()
                    continue
                if found is _Next.END:
                    return None
                bound = self._hub._look_again_s  # noqa: SLF001
                left = bound if deadline is None else min(bound, deadline - time.monotonic())
                if left <= 0:
                    return None
                if not self._woken.wait(left) and left == bound:
                    self.look()
                    self._checked = False
            except JournalError as error:
                if error.kind != "journal_closed":
                    raise
                self._finish()

    def close(self) -> None:
        """Stop following. Idempotent; from any thread: a ``get`` under way returns None."""
        self._finish()
        self._woken.set()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.get()
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncSubscription(_Tap):
    """An async iterator over a session's events. For one task at a time, on the loop it was made on.

    ``after`` is the seq of the last event it gave: where to resume. A cancelled wait loses nothing.
    """

    def __init__(self, hub: Hub, session_id: SessionId, after: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(hub, session_id, after)
        self._loop = loop
        self._woken = asyncio.Event()
        self._told = False  # a wake-up is on its way to the loop; a second one is not needed
        self._looked = False

    def wake(self) -> None:
        if self._told:
            return
        self._told = True
        try:
            self._loop.call_soon_threadsafe(self._on_loop)
        except RuntimeError:  # the loop is closed, and with it whoever waited
            self._finish()

    def _on_loop(self) -> None:
        self._told = False
        self._woken.set()

    async def get(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None when none came within ``timeout_s`` (None: no bound), or at the end (``ended``).

        Raises:
            JournalError: the journal cannot be read. The place is kept: call again to try again.
        """
        self._hub.check_home()
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            self._woken.clear()
            try:
                if not self._looked:
                    await self._off_loop(self.look)
                    self._looked = True
                found = self._take()
                if isinstance(found, Event):
                    if self._hub.tracer is not None and found.seq:
                        _trace(self._hub.tracer, found)
                    return found
                if found is _Next.READ:
                    self._ready.extend(await self._off_loop(self._read))
                    continue
                if found is _Next.CHECK:
                    if await self._off_loop(self._is_over):
                        self._finish()
                    self._checked = True
                    continue
                if found is _Next.END:
                    return None
                bound = self._hub._look_again_s  # noqa: SLF001
                left = bound if deadline is None else min(bound, deadline - self._loop.time())
                if left <= 0:
                    return None
                try:
                    async with asyncio.timeout(left):
                        await self._woken.wait()
                except TimeoutError:
                    if left == bound:
                        self._looked = self._checked = False
            except JournalError as error:
                if error.kind != "journal_closed":
                    raise
                self._finish()

    async def aclose(self) -> None:
        """Stop following. Idempotent."""
        self._finish()
        self._woken.set()

    async def _off_loop(self, call: Callable[[], _T]) -> _T:
        executor = self._hub._executor()  # noqa: SLF001
        try:
            future = self._loop.run_in_executor(executor, call)
        except RuntimeError as error:  # shut down between the two lines
            raise JournalError("journal_closed", "the runtime is closed") from error
        return await future

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
