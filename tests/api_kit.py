"""A runtime on a model's API, played by the rehearsal kit's server. Every wait has a bound; nothing may be left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from api_tools import TOOLS
from kit_system import until
from lastword import Event, Runtime, Session
from lastword.runtime.testing import Rehearsal
from lastword.runtime.testing.wire import ModelRequest
from structured_kit import WAIT_S, killed_host

API_THREADS = ("lastword-api", "lastword-tool")


class ApiHost:
    """One sealed folder with its model server, and lives of a host in it."""

    def __init__(self, provider: str, **options: Any) -> None:
        self.kit = Rehearsal(provider=provider, respond=self._hear)
        self.provider = provider
        self.options = options
        self.runtime: Runtime | None = None
        self.heard: list[ModelRequest] = []

    def _hear(self, request: ModelRequest) -> None:
        self.heard.append(request)

    def __enter__(self) -> Self:
        self.kit.__enter__()
        self.env = dict(self.kit.env)
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.runtime is not None:
                self.close()
            assert [t.name for t in threading.enumerate() if t.name.startswith(API_THREADS)] == []
        finally:
            self.kit.__exit__(None, None, None)

    def open(self, **options: Any) -> Runtime:
        merged: dict[str, Any] = {"env": self.env, "tools": TOOLS, "durability": "process", **self.options, **options}
        self.runtime = Runtime.open(self.kit.root / "state", **merged)
        return self.runtime

    def close(self) -> None:
        assert self.runtime is not None
        runtime, self.runtime = self.runtime, None
        report = runtime.close(grace_s=1.0)
        assert report.clean, report

    def session(self, *args: str, **options: Any) -> Session:
        assert self.runtime is not None
        return self.runtime.session(self.provider, cwd=self.kit.cwd, args=args, **options)

    def again(self, session: Session | str) -> Session:
        assert self.runtime is not None
        return self.runtime.session(session_id=session if isinstance(session, str) else session.session_id)

    def other_host(self, *messages: str, wait_for: str, and_then: Callable[[], object]) -> dict[str, Any]:
        """Another process is the host: it sends these, and is ended by SIGKILL once such an event is on record and
        ``and_then`` holds.
        """
        assert self.runtime is None
        return killed_host(
            before_kill=lambda: until(and_then, within_s=WAIT_S),
            state=str(self.kit.root / "state"),
            cwd=str(self.kit.cwd),
            env=self.env,
            provider=self.provider,
            argv=[],
            tools="api_tools",
            options={},
            messages=messages,
            wait_for=wait_for,
        )


def listening(session: Session, last: Callable[[Event], bool]) -> tuple[threading.Thread, list[Event]]:
    """All that a subscriber is told from now on, ephemeral ones too, up to the first for which ``last`` holds."""
    told: list[Event] = []
    stream = session.events(after=session.snapshot().seq)

    def listen() -> None:
        for event in stream:
            told.append(event)
            if last(event):
                break
        stream.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=listen)
    thread.start()
    return thread, told
