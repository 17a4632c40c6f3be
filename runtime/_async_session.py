"""AsyncSession: the surface of one conversation for asyncio (C10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from lastword.actors.core.delivery import Delivery, Sendable
from lastword.actors.core.events import Event
from lastword.actors.core.ids import SessionId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.snapshot import Snapshot
from lastword.runtime._asking import Asking, sent
from lastword.runtime._requests import check_after, command_of, run_of
from lastword.runtime._session import Session
from lastword.runtime._steps import awaited


class AsyncSession:
    """The same five for asyncio: nothing here blocks the loop. Safe from any task."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counterpart = session._counterpart  # noqa: SLF001 - one session, in two modules
        self._shared = self._counterpart.shared

    @property
    def session_id(self) -> SessionId:
        """The id by which the session is found again."""
        return self._session.session_id

    async def run(
        self,
        text: str,
        *,
        deadline_s: float | None = None,
        message_id: str | None = None,
        queue: bool = False,
    ) -> Completion:
        """As :meth:`Session.run`. Cancelling the task that awaits it interrupts the turn, which still gets its one
        completion, told by the events.
        """
        shared = self._shared
        asking = Asking(self._counterpart, run_of(text, deadline_s, message_id, shared.fresh_id(), queue=queue))
        try:
            done = await awaited(asking.completed())
        except asyncio.CancelledError:
            asking.abandon()
            raise
        return shared.hub.returned(done)

    async def send(self, what: Sendable, *, message_id: str | None = None, deadline_s: float | None = None) -> Delivery:
        """As :meth:`Session.send`."""
        command = command_of(what, message_id, deadline_s, self._shared.fresh_id())
        return await awaited(sent(self._counterpart, command))

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """As :meth:`Session.events`; call it on a running loop."""
        check_after(after)
        return self._shared.hub.async_subscribe(self.session_id, after)

    async def snapshot(self) -> Snapshot:
        """As :meth:`Session.snapshot`."""
        self._shared.check_here()
        return await asyncio.to_thread(self._session.snapshot)

    async def close(self, *, grace_s: float = 2.0) -> None:
        """As :meth:`Session.close`."""
        self._shared.check_here()
        await asyncio.to_thread(self._session.close, grace_s=grace_s)
