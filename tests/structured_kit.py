"""A runtime on CLIs behind pipes, scripted or real. Every wait has a bound; nothing may be left at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from kit_system import until
from lastword import Completion, Event, Runtime, Session, events
from lastword.runtime.testing import SEALED_HOMES, Rehearsal
from lastword.transports.family import Carrier, carriers
from lastword.transports.process import ProcessId, pid_start
from lastword.transports.relay import RELAY
from lastword.transports.structured import MARK

WAIT_S = 30.0
SCRIPTED_STRUCTURED = Path(__file__).parents[1] / "runtime" / "testing" / "scripted_structured.py"
HOST_PROGRAM = Path(__file__).with_name("structured_host.py")


def scripted(*options: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTED_STRUCTURED), *options)


class StdioHost:
    """One sealed folder, and lives of a host in it."""

    def __init__(
        self,
        argv: tuple[str, ...],
        *,
        provider: str = "claude-code",
        version: str = "2.1.332",
        args: tuple[str, ...] = (),
        permission_mode: str = "default",
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.kit = Rehearsal(provider=provider if provider in SEALED_HOMES else "claude-code")
        self.provider = provider
        self.version = version
        self.argv = argv
        self.args = args
        """The CLI's own, for every session."""
        self.permission_mode = permission_mode
        self.more_env = env or {}
        self.options = options
        self.runtime: Runtime | None = None

    def __enter__(self) -> Self:
        self.kit.__enter__()
        self.env = {**self.kit.env, **self.more_env}
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.runtime is not None:
                report = self.runtime.close(grace_s=1.0)
                assert report.clean, report
            until(lambda: not self.strays(), within_s=WAIT_S)
        finally:
            for stray in self.strays():
                stray.process.send(signal.SIGKILL)
            self.kit.__exit__(None, None, None)

    @property
    def state(self) -> Path:
        return self.kit.root / "state"

    @property
    def streams(self) -> list[str]:
        folder = self.state / "streams"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def open(self, **options: Any) -> Runtime:
        merged: dict[str, Any] = {"env": self.env, "durability": "process", **self.options, **options}
        self.runtime = Runtime.open(self.state, executables={self.provider: self.argv}, **merged)
        return self.runtime

    def close(self) -> None:
        assert self.runtime is not None
        runtime, self.runtime = self.runtime, None
        report = runtime.close(grace_s=1.0)
        assert report.clean, report

    def strays(self) -> list[Carrier]:
        """What still runs of all that was ever started here."""
        return [
            each
            for mark in (MARK, RELAY)
            for each in carriers(mark)
            if each.value.startswith(str(self.state.resolve()))
        ]

    def relays(self) -> list[Carrier]:
        """What copies what children say on a pipe."""
        return [each for each in carriers(RELAY) if each.value.startswith(str(self.state.resolve()))]

    def session(self, *args: str, **options: Any) -> Session:
        assert self.runtime is not None
        options = {"permission_mode": self.permission_mode, "transport": "structured", **options}
        return self.runtime.session(self.provider, cwd=self.kit.cwd, args=(*self.args, *args), **options)

    def again(self, session: Session | str) -> Session:
        assert self.runtime is not None
        return self.runtime.session(session_id=session if isinstance(session, str) else session.session_id)

    def watched(self) -> int:
        assert self.runtime is not None
        return self.runtime._edges.opened["structured"].wakes.stats.watched

    def other_host(
        self, *messages: str, wait_for: str, frozen_until: Callable[[], bool] | None = None
    ) -> dict[str, Any]:
        """Another process is the host: it sends these, and is ended by SIGKILL once such an event is on record; or
        stands still from then on, and is ended once that is so.
        """
        assert self.runtime is None
        return killed_host(
            state=str(self.state),
            cwd=str(self.kit.cwd),
            env=self.env,
            provider=self.provider,
            argv=self.argv,
            allow_uncertified=self.options.get("allow_uncertified", False),
            options={"args": self.args, "permission_mode": self.permission_mode, "transport": "structured"},
            messages=messages,
            wait_for=wait_for,
            frozen_until=frozen_until,
        )

    def said(self, words: bytes) -> bool:
        """Whether any of the CLIs has written so."""
        return any(words in path.read_bytes() for path in (self.state / "streams").glob("*.jsonl"))


def killed_host(
    *, frozen_until: Callable[[], bool] | None = None, before_kill: Callable[[], object] = lambda: None, **order: Any
) -> dict[str, Any]:
    """A host in a process of its own (``structured_host.py``), with these orders, ended by SIGKILL; what it told.

    With ``frozen_until`` it is stopped first, and ended once that is so; ``before_kill`` is called while it lives.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(HOST_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(json.dumps(order).encode() + b"\n")
        host.stdin.flush()
        told: dict[str, Any] = json.loads(host.stdout.readline())
        try:
            before_kill()
            if frozen_until is not None:
                host.send_signal(signal.SIGSTOP)
                until(frozen_until, within_s=WAIT_S)
        finally:
            host.kill()
            host.wait(WAIT_S)
    return told


def side_by_side(sessions: list[Session], turns: int) -> list[list[Completion]]:
    """Each session plays so many turns, all at the same time; every one hears its own answers and no other."""
    done: list[list[Completion]] = [[] for _ in sessions]

    def drive(which: int) -> None:
        for number in range(turns):
            done[which].append(sessions[which].run(f"session {which} turn {number}", deadline_s=3 * WAIT_S))

    threads = [threading.Thread(target=drive, args=(which,)) for which in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * WAIT_S)
    for which, session in enumerate(sessions):
        assert [each.answer for each in done[which]] == [f"echo: session {which} turn {n}" for n in range(turns)]
        assert completions(session) == done[which]
    return done


def on_record(session: Session) -> list[Event]:
    return session._shared.journal.events(session.session_id, 0, 100_000)


def as_told(session: Session) -> list[str]:
    """The kinds of what is on record. A CLI that starts with its session is told to have started behind the message
    that it takes, wherever it came: the two begin independently of each other.
    """
    kinds = [event.type for event in on_record(session)]
    if kinds[:3] == ["session_opened", "provider_started", "message_accepted"]:
        kinds[1:3] = ["message_accepted", "provider_started"]
    return kinds


def of_type(session: Session, body: type) -> list[Any]:
    return [event for event in on_record(session) if isinstance(event.body, body)]


def completions(session: Session) -> list[Completion]:
    return [event.body.completion for event in of_type(session, events.CompletionReached)]


def completed(session: Session, count: int = 1) -> list[Completion]:
    """The completions, once there are as many as that."""
    until(lambda: len(completions(session)) >= count, within_s=WAIT_S)
    return completions(session)


def completion_of(session: Session, turn_id: str | None) -> Completion:
    found: Callable[[], Completion | None] = lambda: next(  # noqa: E731
        (each for each in completions(session) if each.turn_id == turn_id), None
    )
    done = until(found, within_s=WAIT_S)
    assert done is not None
    return done


def seen(session: Session, body: type, after: int = 0) -> Any:
    """The first such event, once it is on record."""
    return until(lambda: next((event for event in of_type(session, body) if event.seq > after), None), within_s=WAIT_S)


def child_of(session: Session) -> ProcessId:
    """Its CLI, once it runs."""
    handle = until(lambda: (known := session.snapshot().handle).pid and known, within_s=WAIT_S)
    return ProcessId(handle.pid, handle.pid_start)


def ended(process: ProcessId) -> bool:
    return pid_start(process.pid) != process.start or not process.is_alive()
