"""One sealed folder, and lives of a host in it, for one certification. Every wait has a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeGuard, TypeVar

from lastword.actors.core import events
from lastword.actors.core.adapter import AnyAdapter, Capability, LaunchRequest, SourceSpec
from lastword.actors.core.delivery import Answer, Delivery
from lastword.actors.core.events import Event
from lastword.actors.core.facts import Fact
from lastword.actors.core.outcome import Completion
from lastword.actors.core.service import ApiAdapter
from lastword.actors.core.world import Bytes
from lastword.runtime import _preflight as preflight
from lastword.runtime._conversations import SCHEME, RecordFiles
from lastword.runtime._runtime import Runtime
from lastword.runtime._session import Session
from lastword.runtime.testing.conformance._subject import Subject
from lastword.runtime.testing.conformance._witness import Witness
from lastword.runtime.testing.hermetic import Rehearsal
from lastword.transports.process import ProcessId, pid_start

GATE_S = 1.0
"""From the native terminal record to the committed completion, at the most (C05)."""
BEGIN_S = 2.0
"""How long the begin of a turn is waited for: some CLIs tell of it with their answer only."""
LOOK_S = 0.002
SEEN_S = 5.0
"""How long the other process may take to say what it has seen."""
READ_BYTES = 1 << 20

_T = TypeVar("_T")


class Measured(NamedTuple):
    """One turn's end, Unix seconds: as the CLI stamped it, as another process saw it, as a subscriber was told.

    The first two are None where there is no stamp, and where it was not seen.
    """

    stamped: float | None
    seen: float | None
    told: float


class Bench:
    """A context manager. On leaving: nothing may be left, and what was seen of capabilities is in ``observed``.

    Attributes:
        delays_s: of each turn that was waited for: from the terminal record to the committed completion, as told.
        measured: the same, each stamp by itself.
        versions: of the CLI, as completions told them.
        not_shown: rules that could not be judged here, and why: what a certification says of itself.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        home = subject.home
        self.kit = Rehearsal(provider=home) if isinstance(home, str) else Rehearsal()
        self.delays_s: list[float] = []
        self.measured: list[Measured] = []
        self.observed: set[Capability] = set()
        self.versions: set[str] = set()
        self.not_shown: dict[str, str] = {}
        self.env: Mapping[str, str] = {}
        self._runtime: Runtime | None = None
        self._sessions: list[Session] = []
        self._witness = Witness()
        self._told: dict[str, float] = {}
        self._processes: dict[str, ProcessId] = {}

    def __enter__(self) -> Self:
        self.kit.__enter__()
        seal = self.subject.home
        if not isinstance(seal, str):
            self.kit.env = dict(seal(self.kit.home, (self.kit.cwd,), self.kit.server.base_url, self.kit.tmp))
        self.env = {**self.kit.env, **self.subject.env}
        try:
            self._witness.__enter__()
            self._witness.watch(self.kit.root / "state" / "streams")
            self.open()
        except BaseException:
            self._witness.__exit__()
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
            self._witness.__exit__()
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
            tools=subject.tools(self.kit.cwd) if subject.tools is not None else (),
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
        self._follow(session)
        return session

    def again(self, session: Session) -> Session:
        """That one, in this life."""
        again = self.runtime.session(session_id=session.session_id)
        self._follow(again)
        return again

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
        wait_s = self.subject.wait_s
        deadline = time.monotonic() + wait_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {wait_s:g} s: {what}"
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
            self._look_at_process(session)
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

    def process(self, session: Session) -> ProcessId | None:
        """Its CLI, once one runs or has run in this life; None: an API has none."""
        if is_api(self.subject.adapter):
            return None
        return self.until(lambda: self._look_at_process(session), "the CLI's process")

    def _look_at_process(self, session: Session) -> ProcessId | None:
        """The one that runs, else the last one that was seen to: some CLIs have one for each turn."""
        handle = session.snapshot().handle
        if handle.pid:
            self._processes[session.session_id] = ProcessId(handle.pid, handle.pid_start)
        return self._processes.get(session.session_id)

    # --- the record read by another ---------------------------------------------------------------------------------

    def read(self, session: Session, done: Completion, *, chunk_bytes: int = READ_BYTES) -> list[Fact]:
        """The facts of the conversation, read anew from the files that the turn's end stands in."""
        (*earlier, last), adapter = self.sources(session, done), self.subject.adapter
        oracle = adapter.oracle(last, done.native_session_id)
        facts: list[Fact] = []
        for source in (*earlier, last):
            data = self._bytes_of(source.path)
            for start in range(0, len(data), chunk_bytes):
                facts += oracle.feed(source.path, data[start : start + chunk_bytes])
        return facts

    def _bytes_of(self, path: str) -> bytes:
        if not path.startswith(SCHEME):
            return Path(path).read_bytes() if Path(path).is_file() else b""
        files, data = RecordFiles(self.runtime._journal), b""  # noqa: SLF001
        while isinstance(read := files.read_from(path, len(data), READ_BYTES, 0, 0), Bytes) and read.data:
            data += read.data
        return data

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
        """The CLI's argv prefix; () for an API."""
        if is_api(self.subject.adapter):
            return ()
        return preflight.find_executable(self.subject.adapter, self.subject.executable or None, self.env)

    def version(self) -> str:
        """What the CLI says of its version, or that of an API's SDK; "" where it is not asked before it starts.

        Raises:
            ProviderError: ``provider_unavailable``.
        """
        adapter = self.subject.adapter
        if is_api(adapter):
            request = LaunchRequest(native_session="", cwd=str(self.kit.cwd), executable=(), env=self.env)
            return preflight.check_service(adapter, request)
        executable = self.executable
        if not adapter.certified_versions:
            return ""
        return self.runtime._providers.versions.of(adapter, executable, self.env)  # noqa: SLF001

    def _follow(self, session: Session) -> None:
        """Note when a subscriber is told of each completion: no earlier is it a host's."""
        stream = session.events(after=session.snapshot().seq)

        def follow() -> None:
            for event in stream:
                if isinstance(event.body, events.CompletionReached):
                    self._told[event.body.completion.turn_id] = time.time()

        threading.Thread(target=follow, name="lastword-bench-follower", daemon=True).start()

    def _measure(self, done: Completion) -> None:
        """How long the end of that turn took: from the CLI's own stamp, else from when another process saw its file
        hold it; to when a subscriber was told of what was committed.
        """
        evidence = done.evidence
        self.versions.add(done.cli_version)
        if evidence is None or done.status not in ("completed", "failed"):
            return
        told = self.until(lambda: self._told.get(done.turn_id), "a subscriber to be told of the completion")
        stamped, folder = done.times.native_ended_at, Path(evidence.source).parent
        seen = None
        if self._witness.watches(folder):
            seen = self._witness.held(evidence.source, evidence.offset, within_s=SEEN_S)
        elif not evidence.source.startswith(SCHEME):
            self._witness.watch(folder)  # from the next turn on
        if (since := seen if stamped is None else stamped) is not None:
            self.delays_s.append(max(0.0, told - since))
        self.measured.append(Measured(stamped=stamped, seen=seen, told=told))

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


def is_api(adapter: AnyAdapter) -> TypeGuard[ApiAdapter]:
    """Whether no program of it runs."""
    return adapter.transport == "api"


def ended(process: ProcessId | None) -> bool:
    """Whether that very process is gone; where there is none, it is."""
    return process is None or pid_start(process.pid) != process.start or not process.is_alive()
