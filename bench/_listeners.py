"""Subscribers of a stress run: each hears all events of one session into the account. They are waited for, with a bound."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from _account import Account, Heard

HEAR_S = 30.0
"""How long, after the last turn, until each subscriber must have heard all; and again until it must have ended."""


class AsyncListeners:
    """On one asyncio loop. ``anew``: each subscribes again after each completion, so that no ring of events fills."""

    def __init__(self, account: Account, *, anew: bool = False) -> None:
        self._account, self._anew = account, anew
        self._all: dict[str, tuple[asyncio.Task[None], Heard, asyncio.Event]] = {}

    def follow(self, session: Any) -> None:
        """Begin with the first event of the session."""
        moved = asyncio.Event()
        heard = self._account.follow(session.session_id)
        heard.moved = moved.set
        task = asyncio.create_task(self._hear(session, session.events()))
        self._all[session.session_id] = (task, heard, moved)

    async def _hear(self, session: Any, events: Any) -> None:
        try:
            while True:
                async for event in events:
                    self._account.heard(session.session_id, event)
                    if self._anew and event.type == "unified_completion":
                        await events.aclose()
                        events = session.events(after=event.seq)
                        break
                else:
                    return
        except Exception as error:
            self._account.fault("subscriber", "raised", f"{session.session_id}: {type(error).__name__}: {error}")

    async def caught_up(self) -> None:
        """All have heard the last end on record, or :data:`HEAR_S` is over. What they have not is told by ``settle``."""
        try:
            async with asyncio.timeout(HEAR_S):
                for session_id, (task, heard, moved) in self._all.items():
                    wanted = self._account.last_end(session_id)
                    while heard.seq < wanted and not task.done():
                        moved.clear()
                        ready = asyncio.create_task(moved.wait())
                        await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
                        ready.cancel()
        except TimeoutError:
            pass

    async def ended(self, session_id: str | None = None) -> None:
        """The session (the runtime) is closed: so must its subscribers be."""
        names = list(self._all) if session_id is None else [name for name in (session_id,) if name in self._all]
        tasks = {self._all.pop(name)[0] for name in names}
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=HEAR_S)
        for task in left:
            task.cancel()
            self._account.fault("subscriber", "hung", "it does not end with its session")


class Listeners:
    """One thread each."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._moved = threading.Condition()
        self._all: list[tuple[str, Heard, threading.Thread]] = []

    def follow(self, session: Any) -> None:
        """Begin with the first event of the session."""
        heard = self._account.follow(session.session_id)
        heard.moved = self._wake
        thread = threading.Thread(target=self._hear, args=(session, session.events()), daemon=True)
        self._all.append((session.session_id, heard, thread))
        thread.start()

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def _hear(self, session: Any, events: Any) -> None:
        try:
            for event in events:
                self._account.heard(session.session_id, event)
        except Exception as error:
            self._account.fault("subscriber", "raised", f"{session.session_id}: {type(error).__name__}: {error}")

    def caught_up(self) -> None:
        """As :meth:`AsyncListeners.caught_up`."""
        until = time.monotonic() + HEAR_S
        for session_id, heard, _ in self._all:
            wanted = self._account.last_end(session_id)
            with self._moved:
                self._moved.wait_for(lambda h=heard, w=wanted: h.seq >= w, max(0.0, until - time.monotonic()))

    def ended(self) -> None:
        """The runtime is closed: so must they be."""
        until = time.monotonic() + HEAR_S
        for session_id, _, thread in self._all:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self._account.fault("subscriber", "hung", f"{session_id}: it does not end with the runtime")
