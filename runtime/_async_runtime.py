"""AsyncRuntime: the runtime for asyncio hosts. What blocks runs on a thread of the pool, never on the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from lastword.actors.core.outcome import Completion
from lastword.actors.core.ports import SessionRow
from lastword.runtime._async_session import AsyncSession
from lastword.runtime._close_report import CloseReport
from lastword.runtime._runtime import Runtime
from lastword.runtime.metrics import Metrics


class AsyncRuntime:
    """The runtime for asyncio hosts: ``async with AsyncRuntime.open(...) as runtime``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @classmethod
    def open(cls, state: str | os.PathLike[str] | None = None, **options: object) -> _Opening:
        """As :meth:`Runtime.open`; await it, or enter it with ``async with``."""
        return _Opening(state, options)

    async def session(self, provider: str | None = None, **options: object) -> AsyncSession:
        """As :meth:`Runtime.session`."""
        self._runtime._check_here()  # noqa: SLF001
        session = await asyncio.to_thread(lambda: self._runtime.session(provider, **options))  # type: ignore[arg-type]
        return AsyncSession(session)

    async def run(self, provider: str, text: str, *, deadline_s: float | None = None, **options: object) -> Completion:
        """As :meth:`Runtime.run`."""
        session = await self.session(provider, **options)
        try:
            return await session.run(text, deadline_s=deadline_s)
        finally:
            await asyncio.shield(session.close())

    async def sessions(self) -> list[SessionRow]:
        """As :meth:`Runtime.sessions`."""
        self._runtime._check_here()  # noqa: SLF001
        return await asyncio.to_thread(self._runtime.sessions)

    async def completion(self, turn_id: str) -> Completion | None:
        """As :meth:`Runtime.completion`."""
        self._runtime._check_here()  # noqa: SLF001
        return await asyncio.to_thread(self._runtime.completion, turn_id)

    async def metrics(self) -> Metrics:
        """As :meth:`Runtime.metrics`."""
        self._runtime._check_here()  # noqa: SLF001
        return await asyncio.to_thread(self._runtime.metrics)

    async def trace_to(self, file: str | os.PathLike[str] | None) -> None:
        """As :meth:`Runtime.trace_to`."""
        self._runtime._check_here()  # noqa: SLF001
        await asyncio.to_thread(self._runtime.trace_to, file)

    async def close(self, *, grace_s: float = 2.0) -> CloseReport:
        """As :meth:`Runtime.close`."""
        if os.getpid() != self._runtime._pid:  # noqa: SLF001
            return CloseReport()  # no thread of the pool came along
        return await asyncio.to_thread(lambda: self._runtime.close(grace_s=grace_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self.close())


class _Opening:
    """``await`` it for the runtime, or use it in ``async with``."""

    def __init__(self, state: str | os.PathLike[str] | None, options: Mapping[str, object]) -> None:
        self._state = state
        self._options = options
        self._runtime: AsyncRuntime | None = None

    async def _open(self) -> AsyncRuntime:
        runtime = await asyncio.to_thread(lambda: Runtime.open(self._state, **self._options))  # type: ignore[arg-type]
        return AsyncRuntime(runtime)

    def __await__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return self._open().__await__()

    async def __aenter__(self) -> AsyncRuntime:
        self._runtime = await self._open()
        return self._runtime

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runtime is not None
        await self._runtime.__aexit__(kind, error, trace)
