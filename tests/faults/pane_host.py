"""A runtime on scripted CLIs in real panes, for the fault tests. Every wait has a bound."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Self

from host_kit import WAIT_S, away
from kit_system import until
from lastword import Runtime, Session, events
from lastword.runtime._edge import socket_name
from lastword.runtime.testing import SCRIPTED_CLI, Rehearsal
from lastword.transports.process import ProcessId, pid_start


class PaneHost:
    """One sealed folder, and lives of a host in it."""

    def __init__(self, *options: str) -> None:
        self.kit = Rehearsal()
        self.options = options
        self.runtime: Runtime | None = None
        self.state = Path()
        self.tmux = Path("/tmp")

    def __enter__(self) -> Self:
        self.kit.__enter__()
        self.state = self.kit.root / "state"
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.runtime is not None:
                report = self.runtime.close(grace_s=1.0)
                assert report.clean, report
            assert self.strays() == []
            assert not self.socket.exists()
        finally:
            for pid in self.strays():
                os.kill(pid, signal.SIGKILL)
            self.socket.unlink(missing_ok=True)
            self.kit.__exit__(None, None, None)

    @property
    def socket(self) -> Path:
        return self.tmux / f"tmux-{os.getuid()}" / socket_name(self.state)

    def open(self) -> Runtime:
        self.runtime = Runtime.open(
            self.state,
            env=self.kit.env,
            executables={"claude-code": (sys.executable, str(SCRIPTED_CLI), *self.options)},
            durability="process",
        )
        return self.runtime

    def abandon(self) -> None:
        """The host is gone without a word; its tmux and its CLIs live on."""
        runtime, self.runtime = self.runtime, None
        assert runtime is not None
        assert runtime._system.settle(WAIT_S)
        runtime._closed = True
        runtime._system.shutdown(WAIT_S)
        if (edge := runtime._edges.opened.get("tmux")) is not None:
            edge.transport.server.detach()
            edge.wakes.close()
        runtime._hub.close()
        runtime._journal.close()

    def session(self, *args: str, **options: Any) -> Session:
        assert self.runtime is not None
        return self.runtime.session("claude-code", cwd=self.kit.cwd, args=args, **options)

    def again(self, session: Session) -> Session:
        """The same one, in this life."""
        assert self.runtime is not None
        return self.runtime.session(session_id=session.session_id)

    def log(self, session: Session) -> list[Any]:
        assert self.runtime is not None
        return self.runtime._journal.events(session.session_id, 0, 100_000)

    def running(self, session: Session, count: int = 1) -> None:
        """Until so many turns have begun."""
        until(lambda: self.started(session) >= count, within_s=WAIT_S)

    def started(self, session: Session) -> int:
        return sum(isinstance(event.body, events.TurnStarted) for event in self.log(session))

    def completions(self, session: Session) -> list[Any]:
        return [
            event.body.completion for event in self.log(session) if isinstance(event.body, events.CompletionReached)
        ]

    def completed(self, session: Session, count: int) -> list[Any]:
        until(lambda: len(self.completions(session)) >= count, within_s=WAIT_S)
        assert self.runtime is not None
        assert self.runtime._system.settle(WAIT_S)
        done = self.completions(session)
        assert len(done) == count, [(each.status, each.answer, each.origin) for each in done]
        return done

    def run(self, session: Session, text: str) -> Any:
        return away(session.run, text, queue=True).result(WAIT_S)

    def record(self, session: Session) -> Path:
        """The CLI's own record of it."""
        native = session.snapshot().handle.native_session_id
        return until(
            lambda: next(iter(self.kit.home.glob(f".claude/projects/*/{native}.jsonl")), None), within_s=WAIT_S
        )

    def cli(self, session: Session) -> ProcessId:
        handle = until(lambda: (found := session.snapshot().handle).pid and found, within_s=WAIT_S)
        return ProcessId(handle.pid, handle.pid_start)

    @property
    def server(self) -> ProcessId:
        assert self.runtime is not None
        return self.runtime._edges.opened["tmux"].transport.server.process

    def strays(self) -> list[int]:
        """Processes that work in the sealed folder or carry it in their environment."""
        return strays(str(self.kit.root))


def strays(root: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names, many times
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            if state in ("Z", "X"):
                continue
            where = os.readlink(f"/proc/{name}/cwd")
            env = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if where.startswith(root) or f"={root}".encode() in env:
            found.append(int(name))
    return found


def stat_of(pid: int) -> str:
    """Its state letter, or ``-`` where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "-"


def process(pid: int) -> ProcessId:
    return ProcessId(pid, pid_start(pid) or 0)


def gone(pid: int, *, within_s: float = WAIT_S) -> None:
    until(lambda: stat_of(pid) in ("-", "Z", "X"), within_s=within_s)


def soon(path: Path) -> str:
    """What a file says, once it says something."""
    return until(lambda: path.exists() and path.read_text().strip(), within_s=WAIT_S)
