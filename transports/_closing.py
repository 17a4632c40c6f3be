"""The end of one endpoint: begun once, on a thread of its own, and told to everyone who asked for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lastword.transports._guard import guarded
from lastword.transports.process import Ended


class Closing:
    """Thread-safe; nothing blocks.

    Args:
        end: ends the endpoint within the grace that it is given (seconds); may block, may raise.
        forget: the owner lets go of the endpoint; called behind the end, before it is told.
    """

    def __init__(self, end: Callable[[float], Ended], forget: Callable[[], None]) -> None:
        self._end = end
        self._forget = forget
        self._lock = threading.Lock()
        self._begun = False
        self._on_done: list[Callable[[], None]] = []
        self.ended: Ended | None = None
        """What it took, once it is over."""

    def begin(self, grace_s: float, on_done: Callable[[], None] | None = None) -> None:
        """End it; a later call joins the first, and one with a shorter grace does not hurry it."""
        with self._lock:
            over = self.ended is not None
            if not over and on_done is not None:
                self._on_done.append(on_done)
            start = not self._begun
            self._begun = True
        if over:
            if on_done is not None:
                guarded(on_done)
        elif start:
            threading.Thread(target=self._run, args=(grace_s,), name="lastword-close", daemon=True).start()

    def _run(self, grace_s: float) -> None:
        ended = Ended()
        try:
            ended = self._end(grace_s)
        finally:
            with self._lock:
                self.ended = ended
                waiting, self._on_done = self._on_done, []
            self._forget()
            for on_done in waiting:
                guarded(on_done)
