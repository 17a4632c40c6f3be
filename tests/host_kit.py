"""A runtime on the in-process transport: host-level tests without any CLI. Every wait has a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from kit_system import until
from lastword import Runtime, Session, events
from lastword.actors.core.ports import Batch
from lastword.actors.system.clock import ManualClock
from lastword.runtime._journal import SqliteJournal
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryCli, MemoryWorld
from lastword.transports.providers.memory import Record

WAIT_S = 20.0


class Rig:
    """One runtime, its world, and ways to look at both."""

    def __init__(
        self,
        folder: Path,
        *,
        manual: bool = False,
        respond: Callable[[str], str] | None = None,
        wake: bool = True,
        clock: ManualClock | None = None,
        world: MemoryWorld | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock
        stamps = {"clock": clock.wall} if clock is not None else {}
        self.world = world or MemoryWorld(manual=manual, respond=respond, wake=wake, **stamps)
        self.state = folder / "state"
        self.edge = memory_edge(self.world)
        options.setdefault("durability", "process")
        self.runtime = Runtime.open(self.state, edge=self.edge, clock=clock, **options)

    def session(self) -> Session:
        return self.runtime.session("memory")

    def cli(self, session: Session) -> MemoryCli:
        """The live CLI of the session."""

        def found() -> MemoryCli | None:
            handle = session.snapshot().handle
            cli = self.world.clis.get(handle.native_session_id)
            return cli if cli is not None and cli.alive and handle.pid == cli.pid else None

        return until(found, within_s=WAIT_S)

    def ready(self, session: Session) -> MemoryCli:
        """Its CLI, once the input box takes text."""
        cli = self.cli(session)
        until(lambda: session.snapshot().state != "starting", within_s=WAIT_S)
        return cli

    def running(self, session: Session) -> MemoryCli:
        """Its CLI, once a turn of it is on record."""

        def open_turn() -> bool:
            started = {event.turn_id for event in bodies(self, session, events.TurnStarted)}
            return bool(started - {done.turn_id for done in completions(self, session)})

        until(open_turn, within_s=WAIT_S)
        return self.cli(session)

    def events(self, session: Session | str, after: int = 0) -> list[Any]:
        """All events on record now."""
        session_id = session if isinstance(session, str) else session.session_id
        return self.runtime._journal.events(session_id, after, 1_000_000)

    def dead_letters(self) -> Any:
        return self.runtime._system.dead_letters

    def abandon(self) -> None:
        """The host is gone without a word: nothing is settled, and its CLIs live on."""
        self.settle()
        self.runtime._closed = True
        self.runtime._system.shutdown(WAIT_S)
        self.runtime._hub.close()
        self.runtime._journal.close()

    def settle(self) -> None:
        """Until no actor has anything to do."""
        assert self.runtime._system.settle(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        report = self.runtime.close()
        assert not report.sessions_left
        assert not report.actors_abandoned
        assert not report.threads_left


class HeldCommits:
    """Holds the journal's writer at the first group that has a batch of that kind, until released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: Callable[[Batch], bool]) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()
        real = SqliteJournal.record

        def record(journal: SqliteJournal, batches: Any, now: float) -> Any:
            if any(when(batch) for batch in batches):
                self.entered.set()
                assert self._open.wait(WAIT_S)
            return real(journal, batches, now)

        monkeypatch.setattr(SqliteJournal, "record", record)

    def wait(self) -> None:
        assert self.entered.wait(WAIT_S)

    def release(self) -> None:
        self._open.set()


def kinds(rig: Rig, session: Session | str) -> list[str]:
    return [event.type for event in rig.events(session)]


def bodies(rig: Rig, session: Session | str, body: type) -> list[Any]:
    return [event for event in rig.events(session) if isinstance(event.body, body)]


def completions(rig: Rig, session: Session | str) -> list[Any]:
    return [event.body.completion for event in bodies(rig, session, events.CompletionReached)]


def completed(rig: Rig, session: Session, count: int = 1) -> list[Any]:
    """The completions, once there are as many as that."""
    until(lambda: len(completions(rig, session)) >= count, within_s=WAIT_S)
    return completions(rig, session)


def prompts(rig: Rig, session: Session) -> list[str]:
    """What the CLI really took as prompts, in order."""
    lines = rig.world.contents(rig.cli(session).path).splitlines()
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    return [record.text for record in records if record.k == "prompt"]


def away(call: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:
    """Run it on a thread of its own."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call(*args, **named))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


@contextmanager
def rig(folder: Path, **options: Any) -> Iterator[Rig]:
    with Rig(folder, **options) as made:
        yield made
