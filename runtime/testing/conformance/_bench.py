"""One sealed folder, and lives of a host in it, for one certification. Every wait has a bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from lastword.actors.core import events
from lastword.actors.core.adapter import Capability, LaunchRequest, SourceSpec
from lastword.actors.core.delivery import Answer, Delivery
from lastword.actors.core.events import Event
from lastword.actors.core.facts import Fact
from lastword.actors.core.outcome import Completion
from lastword.runtime import _preflight as preflight
from lastword.runtime._runtime import Runtime
from lastword.runtime._session import Session
from lastword.runtime.testing.conformance._subject import Subject
from lastword.runtime.testing.hermetic import Rehearsal
from lastword.transports.process import ProcessId, pid_start

WAIT_S = 60.0
"""How long a certification waits for any one thing."""
GATE_S = 1.0
"""From the native terminal record to the committed completion, at the most (C05)."""
BEGIN_S = 2.0
"""How long the begin of a turn is waited for: some CLIs tell of it with their answer only."""
LOOK_S = 0.002

_T = TypeVar("_T")


class Bench:
    """A context manager. On leaving: nothing may be left, and what was seen of capabilities is in ``observed``.

    Attributes:
        delays_s: of each turn that was waited for: from the terminal record to the committed completion.
        versions: of the CLI, as completions told them.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        home = subject.home
        self.kit = Rehearsal(provider=home) if isinstance(home, str) else Rehearsal()
        self.delays_s: list[float] = []
        self.observed: set[Capability] = set()
        self.versions: set[str] = set()
        self.env: Mapping[str, str] = {}
        self._runtime: Runtime | None = None
        self._sessions: list[Session] = []
        self._grown: dict[str, list[tuple[float, int]]] = {}

    def __enter__(self) -> Self:
        self.kit.__enter__()
        seal = self.subject.home
        if not isinstance(seal, str):
            self.kit.env = dict(seal(self.kit.home, (self.kit.cwd,), self.kit.server.base_url, self.kit.tmp))
        self.env = {**self.kit.env, **self.subject.env}
        try:
            self.open()
        except BaseException:
            self.kit.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._runtime is not None:
                self.close(strict=kind is None)
        finally:
            self.kit.__exit__(kind, error, trace)

    # --- lives of the host ------------------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The one that is open."""
        assert self._runtime is not None
        return self._runtime

    def open(self) -> None:
        """A life begins."""
        subject = self.subject
        executables = {subject.adapter.name: subject.executable} if subject.executable else {}
        self._runtime = Runtime.open(
            self.kit.root / "state",
            env=self.env,
            executables=executables,
            adapters=(subject.adapter,),
            allow_uncertified=True,
        )

    def close(self, *, strict: bool = True) -> None:
        """It ends, and its CLIs with it."""
        runtime, self._runtime = self.runtime, None
        for session in self._sessions:
            self._note(runtime._journal.events(session.session_id, 0, 100_000))  # noqa: SLF001
        report = runtime.close(grace_s=1.0)
        assert report.clean or not strict, f"left behind: {report}"

    def session(self, *, asking: bool = False) -> Session:
        """A new one."""
        options = dict(self.subject.asking if asking and self.subject.asking else self.subject.options)
        adapter = self.subject.adapter
        session = self.runtime.session(adapter.name, cwd=self.kit.cwd, transport=adapter.transport, **options)
        self._sessions.append(session)
        return session

    def again(self, session: Session) -> Session:
        """That one, in this life."""
        return self.runtime.session(session_id=session.session_id)

    # --- what is on record ------------------------------------------------------------------------------------------

    def events(self, session: Session, body: type | None = None, after: int = 0) -> list[Event]:
        """Those on record now."""
        known = self.runtime._journal.events(session.session_id, after, 100_000)  # noqa: SLF001
        return [event for event in known if body is None or isinstance(event.body, body)]

    def completions(self, session: Session) -> list[Completion]:
        """Of all turns that have ended."""
        bodies = [event.body for event in self.events(session)]
        return [body.completion for body in bodies if isinstance(body, events.CompletionReached)]

    def until(self, condition: Callable[[], _T | None], what: str) -> _T:
        """The first true value."""
        deadline = time.monotonic() + WAIT_S
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
            time.sleep(LOOK_S)
        return value

    def seen(self, session: Session, body: type, after: int = 0) -> Event:
        """The first such event."""
        return self.until(lambda: next(iter(self.events(session, body, after)), None), body.__name__)

    def say(self, session: Session, text: str) -> Completion:
        """One turn that answers just that."""
        return self.run(session, self.subject.words.say.format(text=text))

    def run(self, session: Session, prompt: str) -> Completion:
        """One turn to its end; a dialog on the way is allowed."""
        return self.end_of(session, session.send(prompt))

    def end_of(self, session: Session, ack: Delivery) -> Completion:
        """The completion of the turn that this message ended in; a dialog on the way is allowed."""

        def ended() -> Completion | None:
            self._look_at_streams()
            dialog = session.snapshot().dialog
            if dialog is not None and dialog.dialog_id not in answered:
                answered.add(dialog.dialog_id)
                self.allow(session, dialog.dialog_id, dialog.options)
            ids = (each for each in self.completions(session) if ack.message_id in (each.message_id, *each.joined))
            return next(ids, None)

        answered: set[str] = set()
        done = self.until(ended, "the completion")
        self._measure(done)
        return done

    def under_way(self, session: Session, ack: Delivery) -> None:
        """Until that message's turn is: submitted, and begun, where the CLI tells that before it answers."""

        def told(body: type) -> bool:
            return any(event.turn_id == ack.turn_id for event in self.events(session, body))

        self.until(lambda: told(events.MessageSubmitted) or told(events.TurnStarted), "the message to be submitted")
        until_s = time.monotonic() + BEGIN_S
        while not told(events.TurnStarted) and time.monotonic() < until_s:
            time.sleep(LOOK_S)

    def allow(self, session: Session, dialog_id: str, options: tuple[str, ...]) -> None:
        """Let it run, once."""
        wanted = next((word for word in self.subject.allow if word in options), None)
        option = options.index(wanted) + 1 if wanted is not None else 1
        assert session.send(Answer(dialog_id, option)).taken == "applied", "the answer was not pressed"

    def process(self, session: Session) -> ProcessId:
        """Its CLI, once it runs."""
        self.until(lambda: session.snapshot().handle.pid, "the CLI's process")
        handle = session.snapshot().handle
        return ProcessId(handle.pid, handle.pid_start)

    # --- the record read by another ---------------------------------------------------------------------------------

    def read(self, session: Session, done: Completion, *, chunk_bytes: int = 1 << 20) -> list[Fact]:
        """The facts of the conversation, read anew from the files that the turn's end stands in."""
        (*earlier, last), adapter = self.sources(session, done), self.subject.adapter
        oracle = adapter.oracle(last, done.native_session_id)
        facts: list[Fact] = []
        for source in (*earlier, last):
            file = Path(source.path)
            data = file.read_bytes() if file.is_file() else b""
            for start in range(0, len(data), chunk_bytes):
                facts += oracle.feed(source.path, data[start : start + chunk_bytes])
        return facts

    def sources(self, session: Session, done: Completion) -> tuple[SourceSpec, ...]:
        """The files of the record that settled it, in the order in which they are read."""
        assert done.evidence is not None, "no evidence: no record settled it"
        path = done.evidence.source
        request = LaunchRequest(
            native_session=done.native_session_id,
            cwd=session.snapshot().cwd,
            executable=self.executable,
            env=self.env,
            stream=path.removesuffix(".jsonl"),
        )
        *earlier, last = self.subject.adapter.sources(request)
        return (*earlier, last if last.path else last.found(path))

    @property
    def executable(self) -> tuple[str, ...]:
        """The CLI's argv prefix."""
        return preflight.find_executable(self.subject.adapter, self.subject.executable or None, self.env)

    def _look_at_streams(self) -> None:
        """How far each child's stdout has come, and when that was seen: by another than the host's own reader."""
        for file in (self.kit.root / "state" / "streams").glob("*.jsonl"):
            size, grown = file.stat().st_size, self._grown.setdefault(str(file), [])
            if not grown or grown[-1][1] != size:
                grown.append((time.time(), size))

    def _measure(self, done: Completion) -> None:
        """How long the end of that turn took: from the CLI's own stamp, else from when its file was seen to hold it."""
        committed, evidence = done.times.committed_at, done.evidence
        self.versions.add(done.cli_version)
        if committed is None or evidence is None or done.status not in ("completed", "failed"):
            return
        ended = done.times.native_ended_at
        if ended is not None:
            self.delays_s.append(max(0.0, committed - ended))
            return
        written = (at for at, size in self._grown.get(evidence.source, ()) if size > evidence.offset)
        if (first := next(written, None)) is not None:
            self.delays_s.append(max(0.0, committed - first))

    def _note(self, told: list[Event]) -> None:
        for event in told:
            match event.body:
                case events.MessageJoined():
                    self.observed.add("absorbs_while_busy")
                case events.DialogOpened():
                    self.observed.add("dialogs")
                case events.ToolStarted():
                    self.observed.add("tool_calls")
                case events.TurnStarted(origin="task_notification"):
                    self.observed.add("cli_started_turns")
                case _:
                    pass


def ended(process: ProcessId) -> bool:
    """Whether that very process is gone."""
    return pid_start(process.pid) != process.start or not process.is_alive()
