"""Who runs an actor: a small shared pool, or a thread of its own. Actors do not know which.

A dispatcher only calls ``run_slice`` of whatever is scheduled. The pool takes from one run queue; an actor
with more mail than a batch goes to its back, so a flooded actor delays the others by one batch at most.
Nothing that blocks may run on the pool: pin it, or mark the region with ``blocking()``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Literal, Protocol

from lastword.actors.system.envelope import context

DispatcherName = Literal["pooled", "pinned"]

SPARE_THREADS_MAX = 64
"""Threads a pool may add while marked regions block its own; above that, blocking regions do starve it."""


class Runnable(Protocol):
    """What a dispatcher runs: one batch, then back to the queue or to rest, by its own decision."""

    def run_slice(self) -> None: ...


class Dispatcher(Protocol):
    """Runs what is scheduled, never the same thing on two threads at once (its mailbox sees to that)."""

    def schedule(self, runnable: Runnable, /) -> None: ...

    def release(self) -> None:
        """An actor of this dispatcher ended."""
        ...


class PooledDispatcher:
    """``workers`` daemon threads over one run queue, started at the first use."""

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        self._workers = workers
        self._queue: SimpleQueue[Runnable | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._blocked = 0
        self._made = 0
        self._closed = False
        self.schedule = self._queue.put

    def start(self) -> None:
        """Start the workers; does nothing the second time."""
        if self._made >= self._workers:
            return
        with self._lock:
            while self._made < self._workers and not self._closed:
                self._add_worker()

    def release(self) -> None:
        """Nothing to do: the workers are shared."""

    def stop(self, deadline_mono_s: float) -> list[str]:
        """End the workers and join them until the deadline; names of those still running."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        return join_all(threads, deadline_mono_s)

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """The calling worker will block: let a spare one run meanwhile."""
        with self._lock:
            self._blocked += 1
            short = len(self._threads) - self._blocked < self._workers
            if short and not self._closed and len(self._threads) < self._workers + SPARE_THREADS_MAX:
                self._add_worker()
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def _add_worker(self) -> None:
        self._made += 1
        thread = threading.Thread(target=self._work, name=f"{self._name}-pool-{self._made}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        context.pool = self
        take = self._queue.get
        while (runnable := take()) is not None:
            runnable.run_slice()
            del runnable  # an idle worker keeps nothing of the last actor
            if len(self._threads) - self._blocked > self._workers and self._retire():
                return
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _retire(self) -> bool:
        with self._lock:
            surplus = len(self._threads) - self._blocked > self._workers and not self._closed
            if surplus:
                self._threads.discard(threading.current_thread())
            return surplus


class PinnedDispatcher:
    """One daemon thread for one actor; it ends with the actor and then calls ``on_exit``."""

    def __init__(self, name: str, on_exit: Callable[[threading.Thread], None]) -> None:
        self._on_exit = on_exit
        self._queue: SimpleQueue[Runnable | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.schedule = self._queue.put

    def release(self) -> None:
        """The actor ended: so does the thread, once it is out of the handler."""
        self._queue.put(None)

    def _work(self) -> None:
        take = self._queue.get
        while (runnable := take()) is not None:
            runnable.run_slice()
            del runnable
        self._on_exit(threading.current_thread())


@contextlib.contextmanager
def blocking() -> Iterator[None]:
    """Mark a region of a handler that may block. On a pinned thread or a host's thread it does nothing."""
    pool = context.pool
    if pool is None:
        yield
    else:
        with pool.blocking():
            yield


def join_all(threads: list[threading.Thread], deadline_mono_s: float) -> list[str]:
    """Join until the deadline (``time.monotonic``: joins take real time); names of those still alive."""
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline_mono_s - time.monotonic()))
    return [thread.name for thread in threads if thread.is_alive()]
