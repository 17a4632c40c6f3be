"""Where ``lastword top`` has its figures from: the living host, through its socket; where none answers, the journal.

A host is asked and a journal read on a thread of its own, so that keys and the terminal wait for neither.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Self

import msgspec

from lastword.actors.core.errors import LastwordError, TransportError, UsageError
from lastword.runtime import _door as door
from lastword.runtime._top import Look, Top
from lastword.runtime._top_record import RecordTop
from lastword.runtime.command._desk import HOST_ANSWER_S, HostSeen, stopped

END_WAIT_S = 0.2
"""How long a look under way is waited for at the end; then it is left to the end of the process."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found.

    Attributes:
        top: None where neither a host nor the journal could be read.
        host: who has the folder.
        note: why it is not from a host; "" where it is.
        error: why there is nothing at all.
        seen_mono_s: when the answer was there.
    """

    top: Top | None
    host: HostSeen
    note: str = ""
    error: LastwordError | None = None
    seen_mono_s: float = 0.0


class Looker:
    """Looks at one state folder. From one thread at a time; blocks for :data:`HOST_ANSWER_S` at most and a reading."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._record = RecordTop(state)
        self._stopped: int | None = None

    def look(self, look: Look) -> Sight:
        """What is there now. Raises nothing."""
        host, note = HostSeen("stopped", self._stopped), ""
        if self._stopped is None or not stopped(self._stopped):
            self._stopped = None
            try:
                top = door.ask(self._state, door.GetTop(look=look), wait_s=HOST_ANSWER_S).top
                if top is None:
                    raise TransportError("transport_failed", "the host's answer holds nothing")
                return Sight(top=top, host=HostSeen("serves", top.pid), seen_mono_s=time.monotonic())
            except LastwordError as error:
                host, note = self._who(error)
        self._stopped = host.pid if host.state == "stopped" else None
        note = note or f"{host}: this is what the journal says"
        try:
            top = self._record.look(look)
        except LastwordError as error:
            return Sight(top=None, host=host, note=note, error=error, seen_mono_s=time.monotonic())
        top = msgspec.structs.replace(top, pid=host.pid)
        return Sight(top=top, host=host, note=note, seen_mono_s=time.monotonic())

    def _who(self, error: LastwordError) -> tuple[HostSeen, str]:
        """Who has the folder whose host did not say; and what it said instead, where it said something."""
        from lastword.runtime import _host_lock as host_lock  # noqa: PLC0415 - late

        try:
            if not host_lock.held(self._state):
                return HostSeen("none"), ""
        except OSError:
            return HostSeen("none"), ""
        pid = host_lock.holder(self._state)
        if pid is not None and stopped(pid):
            return HostSeen("stopped", pid), ""
        if isinstance(error, UsageError) and error.kind == "host_unreachable":
            return HostSeen("alone", pid), ""
        if isinstance(error, TransportError):
            return HostSeen("silent", pid), ""
        note = f"{HostSeen('serves', pid)}, and refuses to tell ({error.kind}): this is what the journal says"
        return HostSeen("serves", pid), note


class Feed:
    """Looks on a thread of its own. ``with`` starts and ends it; all else from one thread.

    ``fd`` becomes readable when something new is there; :meth:`take` gives it.
    """

    def __init__(self, looker: Looker) -> None:
        self._looker = looker
        self._wanted: Look | None = None
        self._found: Sight | None = None
        self._failed: Exception | None = None
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self.fd, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._work, name="lastword-top", daemon=True)

    def want(self, look: Look) -> None:
        """Have that looked at, after what is under way; a later wish takes the place of an earlier one."""
        with self._changed:
            self._wanted = look
            self._changed.notify()

    def take(self) -> Sight | None:
        """The newest sight that was not taken yet. Raises what a look failed with, which none should."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        with self._changed:
            if self._failed is not None:
                raise self._failed
            found, self._found = self._found, None
        return found

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._ended.is_set():
                    self._changed.wait()
                if self._ended.is_set():
                    return
                assert self._wanted is not None
                wanted, self._wanted = self._wanted, None
            found: Sight | None = None
            failed: Exception | None = None
            try:
                found = self._looker.look(wanted)
            except Exception as error:
                failed = error
            with self._changed:
                if self._ended.is_set():
                    return
                self._found, self._failed = found, failed
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake, b".")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended.set()
            self._changed.notify()
        self._thread.join(END_WAIT_S)
        os.close(self.fd)
        os.close(self._wake)
