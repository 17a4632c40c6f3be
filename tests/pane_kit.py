"""A runtime on a real CLI in panes, and how that CLI is asked for what the promises need. Every wait has a bound."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from kit_system import until
from lastword import Completion, Runtime, Session
from lastword.runtime.testing import Rehearsal
from structured_kit import completions, killed_host

WAIT_S = 60.0
GATE_S = 1.0
"""From the native terminal record to the committed completion, at the most (C05)."""


class Ways(NamedTuple):
    """What differs from CLI to CLI.

    Attributes:
        options: of a session that asks nobody. asking: of one that asks before a tool runs.
        approval: a prompt that has it ask, with ``{file}`` that the tool would make.
        records: glob of its records below the home. ended: what a record holds once its turn is over.
        error_kinds: how a turn fails that the model server answers with that HTTP status for ever.
        env: more environment.
        stamped_early_s: how much later than its stamp such a CLI, one of eight on a busy machine, writes a record.
    """

    provider: str
    version: str
    argv: tuple[str, ...]
    options: dict[str, Any]
    asking: dict[str, Any]
    approval: str
    records: str
    ended: str
    error_kinds: dict[int, str]
    stamped_early_s: float = 0.0
    env: Mapping[str, str] = MappingProxyType({})


class PaneHost:
    """One sealed folder, and lives of a host in it. On leaving, nothing is left, and every completion was in time."""

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self.kit = Rehearsal(provider=ways.provider)
        self.runtime: Runtime | None = None
        self._sessions: list[Session] = []

    def __enter__(self) -> Self:
        self.kit.__enter__()
        self.kit.env = {**self.kit.env, **self.ways.env}
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self.runtime is not None:
                self.close(measure=kind is None)
        finally:
            self.kit.__exit__(None, None, None)

    def open(self) -> Runtime:
        executables = {self.ways.provider: self.ways.argv}
        self.runtime = Runtime.open(
            self.kit.root / "state", executables=executables, env=self.kit.env, durability="process"
        )
        return self.runtime

    def close(self, *, measure: bool = True) -> None:
        """End this life; the CLIs go with it."""
        assert self.runtime is not None
        runtime, sessions = self.runtime, self._sessions
        delays = self._delays(sessions) if measure else []
        self.runtime, self._sessions = None, []
        report = runtime.close(grace_s=1.0)
        assert report.clean, report
        assert all(delay < GATE_S + self.ways.stamped_early_s for delay in delays), delays

    def _delays(self, sessions: list[Session]) -> list[float]:
        """How long after its native end each turn of this life was told."""
        ended = [done for session in sessions for done in completions(session)]
        delays = [
            done.times.committed_at - done.times.native_ended_at
            for done in ended
            if done.times.committed_at is not None and done.times.native_ended_at is not None
        ]
        if delays:
            print(f"\nnative end -> committed: {len(delays)} turns, at most {max(delays) * 1e3:.1f} ms")
        return delays

    def session(self, *, asking: bool = False, **options: Any) -> Session:
        assert self.runtime is not None
        merged = {**(self.ways.asking if asking else self.ways.options), **options}
        session = self.runtime.session(self.ways.provider, cwd=self.kit.cwd, transport="tmux", **merged)
        self._sessions.append(session)
        return session

    def again(self, session_id: str) -> Session:
        """One of an earlier life: what ended meanwhile is not measured."""
        assert self.runtime is not None
        return self.runtime.session(session_id=session_id)

    def other_host(self, *messages: str, wait_for: str) -> dict[str, Any]:
        """Another process is the host: it sends these, and is ended by SIGKILL once such an event is on record."""
        assert self.runtime is None
        return killed_host(
            state=str(self.kit.root / "state"),
            cwd=str(self.kit.cwd),
            env=self.kit.env,
            provider=self.ways.provider,
            argv=self.ways.argv,
            options={**self.ways.options, "transport": "tmux"},
            messages=messages,
            wait_for=wait_for,
        )

    def records(self) -> str:
        return "".join(path.read_text() for path in Path(self.kit.home).glob(self.ways.records))

    def record_says_ended(self, count: int = 1) -> None:
        until(lambda: self.records().count(self.ways.ended) >= count, within_s=WAIT_S)


def keys(session: Session, *words: str) -> None:
    """A person at the attached pane."""
    _tmux(session, "send-keys", *words)


def screen(session: Session) -> str:
    """What that person sees."""
    return _tmux(session, "capture-pane", "-p")


def _tmux(session: Session, command: str, *words: str) -> str:
    handle = session.snapshot().handle
    argv = ["tmux", "-S", handle.attach[handle.attach.index("-S") + 1], command, "-t", handle.pane, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def owners(done: list[Completion]) -> list[str]:
    """Every message that ended in one of these, in their order."""
    return [message for each in done for message in (each.message_id, *each.joined) if message is not None]
