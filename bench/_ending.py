"""The end of a run that a person or ``timeout`` asks for: SIGINT and SIGTERM are noted, never raised, so that what was
done is still held against the journal and reported. A second one ends the process at once, as ever.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

STOP_S = 60.0
"""How long the turns under way may take to end where the run is broken off."""


class Ending:
    """Entered in the main thread. ``wake`` is called by the signal's handler: it must be safe there."""

    def __init__(self) -> None:
        self.signum = 0
        self.wake: Callable[[], object] = lambda: None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._asked)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before)

    def _asked(self, signum: int, _: FrameType | None) -> None:
        self.signum = signum
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.wake()

    def __bool__(self) -> bool:
        """Whether it was asked for."""
        return self.signum != 0

    def mark(self, title: str) -> str:
        """The title of a report, which says so."""
        return (
            f"{title} (interrupted by {signal.Signals(self.signum).name}: of what was done by then)" if self else title
        )

    def code(self, red: bool) -> int:
        """What the process ends with."""
        return 128 + self.signum if self else int(red)


async def run_out(jobs: asyncio.Future[Any], ending: Ending, every_s: float, tick: Callable[[], object]) -> bool:
    """Wait for the jobs, or for the end that was asked for: then they are cancelled, and have :data:`STOP_S` to stop.
    ``tick`` is called each ``every_s`` seconds, and once behind the last. Whether all ran to their end; what one of
    them raised by itself is raised here.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    ending.wake = lambda: loop.call_soon_threadsafe(stop.set)
    stopped = asyncio.create_task(stop.wait())
    while not jobs.done() and not ending:
        await asyncio.wait({jobs, stopped}, timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
        tick()
    stopped.cancel()
    if jobs.done():
        await jobs
        return True
    jobs.cancel()
    await asyncio.wait({jobs}, timeout=STOP_S)
    if jobs.done() and not jobs.cancelled():
        jobs.exception()  # asyncio wants that to be seen
    return False
