"""Runtime: wiring. Opens the journal, builds the actors, hands out sessions, and ends all of it again."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar, cast, get_args

import msgspec

from lastword.actors.admission import overloaded
from lastword.actors.core import events
from lastword.actors.core.adapter import AdapterKey, AnyAdapter, LaunchRequest
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import JournalError, LastwordError, ProviderError, UsageError
from lastword.actors.core.fault import Fault, fault_of
from lastword.actors.core.ids import ENTROPY_BYTES, MessageId, SessionId, TurnId, mint_message, mint_session
from lastword.actors.core.limits import Limits
from lastword.actors.core.outcome import Completion
from lastword.actors.core.policy import DialogPolicy
from lastword.actors.core.ports import Batch, MessageRow, Recorded, SessionRow
from lastword.actors.core.service import ApiAdapter
from lastword.actors.core.snapshot import Dialog, Handle, Snapshot
from lastword.actors.core.tools import Tool, check_tools
from lastword.actors.journal import Backlog, Commit, CommitFailed, CommitStats, Committed, JournalActor
from lastword.actors.session import Rehydrate, SessionActor, SessionDeps, Start
from lastword.actors.system.clock import Clock
from lastword.actors.system.ref import Ref
from lastword.actors.system.simulation import Simulation
from lastword.actors.system.system import ActorSystem
from lastword.actors.system.tracing import JsonlTracer
from lastword.runtime import _preflight as preflight
from lastword.runtime._door import Door
from lastword.runtime._edge import Edge, Survivor, left_behind, open_api_edge, open_edge
from lastword.runtime._guardian import Guardian, last_words
from lastword.runtime._handed_in import with_ours
from lastword.runtime._home import check_home
from lastword.runtime._hub import AsyncSubscription, Hub, Subscription
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._numbers import Numbers
from lastword.runtime._policy import PolicyDesk, check_policy
from lastword.runtime._readings import metrics_of, top_of
from lastword.runtime._session import AsyncSession, Session, check_grace
from lastword.runtime._top import Look, Top
from lastword.runtime.metrics import Metrics

_T = TypeVar("_T")

COMMIT_S = 30.0
STOP_S = 10.0
CLOSE_SESSIONS_S = 8.0
"""At the runtime's end: how long beyond the grace a session may take; then it is left, and named in the report."""
EXIT_GRACE_S = 1.0
"""Grace of the CLIs where the interpreter ends and nobody closed the runtime."""
REVIVALS_MAX = 3
"""Failed actors of one session that are replaced in the life of a runtime; then the session is left as it is."""
SESSION_MAILBOX_SPARE = 10_000
"""Of a session's mailbox, beyond what calls of the host may fill: for its own actors."""
JOURNAL_MAILBOX_MAX = 100_000
"""Where it is full, batches wait with who sends them."""

Durability = Literal["power", "process"]


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a session was asked for; stored with it."""

    model: str = ""
    permission_mode: str = ""
    extra_args: tuple[str, ...] = ()
    cli_version: str = ""

    def with_(self, asked: SessionConfig) -> SessionConfig:
        """This one, with what is asked for in the place of what it has."""
        given = {name: value for name in ("model", "permission_mode", "extra_args") if (value := getattr(asked, name))}
        return msgspec.structs.replace(self, **given)


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a runtime's end went: what is left, by name; all empty after a clean end.

    Attributes:
        sessions_left: sessions that did not end in time; the next runtime settles their turns.
        actors_abandoned, threads_left: what of this process did not end.
        processes_left: what lives in spite of SIGKILL, as ``pid (name)``.
        commits_left: batches that the journal's file did not take to the end; what they said is found again in the
            record by the next runtime.
    """

    sessions_left: tuple[str, ...] = ()
    actors_abandoned: tuple[str, ...] = ()
    threads_left: tuple[str, ...] = ()
    processes_left: tuple[str, ...] = ()
    commits_left: int = 0

    @property
    def clean(self) -> bool:
        """Nothing is left."""
        return self == CloseReport()


def default_state_folder(env: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/lastword``, or ``~/.local/state/lastword``."""
    env = os.environ if env is None else env
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".local" / "state")
    return Path(base) / "lastword"


def _path_of(state: object) -> Path:
    """The folder that is meant.

    Raises:
        UsageError: ``usage``: none is.
    """
    try:
        name = os.fspath(state)  # type: ignore[call-overload]
    except TypeError:
        name = b""
    if not isinstance(name, str):
        raise UsageError("usage", f"the state folder is a path of text, not {type(state).__name__}")
    if not name:
        raise UsageError("usage", "the state folder has no name", remedy="Leave it out for the usual one.")
    try:
        usable = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise UsageError("usage", "the name of the state folder holds a character that no file name can")
    return Path(name)


class Runtime:
    """Drives CLIs and keeps their journal. One per state folder; every method is safe from any thread.

    Use it as a context manager, or call :meth:`close`.
    """

    def __init__(
        self,
        *,
        state: Path,
        journal: SqliteJournal,
        env: Mapping[str, str],
        executables: Mapping[str, preflight.Executable],
        adapters: Mapping[AdapterKey, AnyAdapter],
        allow_uncertified: bool,
        dispatcher: Literal["pooled", "pinned"],
        clock: Clock | None,
        trace: Path | None,
        edge: Edge | None,
        serve_socket: bool = False,
        dialog_policy: DialogPolicy | None = None,
        tools: Mapping[str, Tool] | None = None,
        limits: Limits | None = None,
        simulation: Simulation | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._state = state
        self._journal = journal
        self._env = dict(env)
        self._executables = dict(executables)
        self._adapters = dict(adapters)
        self._allow_uncertified = allow_uncertified
        self._tools = dict(tools or {})
        self._versions = preflight.Versions()
        tracer = _open_trace(trace) if trace is not None else None
        self._system = ActorSystem("lastword", clock=clock, dispatcher=dispatcher, tracer=tracer, simulation=simulation)
        self._entropy: Callable[[int], bytes] = os.urandom if simulation is None else simulation.entropy
        self._numbers = Numbers(self._system.clock.wall)
        self._hub = Hub(journal, on_delivered=self._numbers.delivered)
        self._hub.tracer = tracer
        self._commits_left = 0
        self._behind = Backlog()
        self._commit_stats = CommitStats()
        self._writer = self._system.spawn(
            JournalActor,
            journal,
            self._publish,
            on_left=self._commits_were_left,
            backlog=self._behind,
            mailbox_max=JOURNAL_MAILBOX_MAX,
            stats=self._commit_stats,
            name="journal",
            dispatcher="pinned",
        )
        self._guardian = self._system.spawn(Guardian, self._writer, _Keeper(self), name="sessions")
        self._faults: dict[SessionId, Fault] = {}
        self._moved = threading.Condition()
        """Told whenever an actor of a session has taken the place of one that failed, or none will."""
        self._revivals: dict[SessionId, int] = {}
        self._policy = PolicyDesk(dialog_policy) if dialog_policy is not None else None
        self._edges: dict[TransportName, Edge] = {} if edge is None else {edge.transport.name: edge}
        """Opened when a session first needs it: a host without tmux can run what needs none."""
        self._lock = threading.Lock()
        self._finding = threading.Lock()
        """Held while a session on record is given its actor: two threads that ask for it get one."""
        self._survivors: dict[SessionId, Survivor] = {}
        """What an earlier host left of sessions that nobody has asked for yet."""
        self._held: dict[SessionId, Callable[[], bool]] = {}
        """Sessions whose CLI lives and is not ours, and whether that is still so."""
        self._sessions: dict[SessionId, Session] = {}
        self._closed = False
        self._pid = os.getpid()
        _end_at_exit(self)
        self._door = Door(state, self._served, metrics=self.metrics, top=self._top) if serve_socket else None
        if self._door is not None:
            try:
                self._door.open()
            except BaseException:
                self._system.shutdown(STOP_S)
                raise

    @classmethod
    def open(
        cls,
        state: str | os.PathLike[str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        executables: Mapping[str, str | Sequence[str]] | None = None,
        adapters: Sequence[AnyAdapter] = (),
        allow_uncertified: bool = False,
        durability: Durability = "power",
        dispatcher: Literal["pooled", "pinned"] = "pooled",
        trace: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        edge: Edge | None = None,
        serve_socket: bool = False,
        dialog_policy: DialogPolicy | None = None,
        tools: Sequence[Tool] = (),
        limits: Limits | None = None,
        simulation: Simulation | None = None,
    ) -> Runtime:
        """Open the journal in the folder ``state`` (made if missing, mode 0700; default: XDG state) and start.

        Args:
            state: the folder of the journal.
            env: the whole environment of the CLIs; default: this process's own.
            executables: provider name -> path (or argv prefix) of its CLI; default: looked for on PATH.
            adapters: further adapters, beside the built-in ones. One replaces the built-in one of its name and
                transport only where its class is derived from that one's.
            allow_uncertified: accept CLI versions on which lastword was never seen to work.
            durability: ``power``: a completion that was told survives a power cut; ``process``: only a crash of
                the process, 0.4 ms sooner.
            dispatcher: ``pooled`` (default) or ``pinned``: a thread per actor, for debugging.
            trace: write who told whom what when to this JSONL file (no text of messages); one that is there is added
                to. ``lastword trace show`` and ``lastword trace convert`` read it.
            clock: the time, for tests.
            edge: the world of one transport, for tests and other transports.
            serve_socket: let other processes of this user reach the sessions here through ``host.sock`` in the
                state folder (``lastword send``).
            dialog_policy: answers dialogs where no person does: ``(session_id, dialog) -> option number or None``, from
                1. Asked on a thread of its own; what it does not answer in time or in range is left to a person, and
                told. ``lastword.answer_trust`` is one. Without one nothing answers but the host's own ``Answer``.
            tools: functions of the host's that models over an API may call. Given here and not with a session, so that
                one that an earlier host left has them from its first moment.
            limits: how much may wait before more is refused as ``overloaded``.
            simulation: for tests: everything runs in the caller's thread, on a virtual clock, in an order drawn from
                a seed; needs an ``edge`` of the same kind.

        Raises:
            UsageError: ``usage``: ``state`` is no path, the policy no plain function, a tool none, or a limit; what was
                handed in is no adapter, or its name is taken; the trace file cannot be written.
            JournalError: unwritable, of a newer version, corrupt, or held by another host; nothing was changed.
        """
        if dialog_policy is not None:
            check_policy(dialog_policy)
        known = with_ours(adapters)
        known_tools = check_tools(tools)
        if limits is not None:
            limits.check()
        folder = _path_of(state) if state is not None else default_state_folder(env)
        given = {name: (path,) if isinstance(path, str) else tuple(path) for name, path in (executables or {}).items()}
        journal = SqliteJournal.open(folder, durability=durability)
        try:
            runtime = cls(
                state=folder,
                journal=journal,
                env=os.environ if env is None else env,
                executables=given,
                adapters=known,
                allow_uncertified=allow_uncertified,
                dispatcher=dispatcher,
                clock=clock,
                trace=Path(trace) if trace is not None else None,
                edge=edge,
                serve_socket=serve_socket,
                dialog_policy=dialog_policy,
                tools=known_tools,
                limits=limits,
                simulation=simulation,
            )
        except BaseException:
            journal.close()
            raise
        try:
            runtime._rehydrate()
        except BaseException:
            runtime.close()
            raise
        return runtime

    # --- sessions -------------------------------------------------------------------------------------------------

    def session(
        self,
        provider: str | None = None,
        *,
        session_id: str | None = None,
        cwd: str | os.PathLike[str] = ".",
        model: str = "",
        permission_mode: str = "",
        args: Sequence[str] = (),
        transport: TransportName | None = None,
    ) -> Session:
        """A new session with ``provider``, or the known one called ``session_id``.

        A new one returns once it is committed; its CLI starts meanwhile, and messages may be sent at once.

        A known one is *switched* by another ``provider``, ``model``, ``transport``, ``permission_mode`` or ``args``
        than it has; what is not given stays as it is. That waits until its CLI is gone and returns once the switch is
        committed (``session_switched``); it is refused as ``busy`` while a turn is open or a message is on its way, so
        that what was accepted before is always its former provider's, and what is sent from then on the new one's.
        Another model of the same provider goes on in the same conversation. Another provider or transport begins a new
        one, with nothing of ours but the arguments of this call: it is told nothing of what was said before.

        Args:
            provider: its name.
            session_id: of a known one; its ``cwd`` stays.
            cwd: the folder that its CLI works in.
            model: passed to it.
            permission_mode: passed to it.
            args: further arguments of its command line.
            transport: how its CLI is spoken to: ``tmux`` (its own TUI in a pane) or ``structured`` (its own protocol
                over its stdin and stdout); a model's API over ``api``. Never anything else than what was asked for;
                default: ``tmux``, or the only one that there is.

        Raises:
            UsageError: ``unknown_provider``, ``unsupported_capability`` (not over that transport), ``unknown_session``,
                ``cwd_unusable``, ``usage`` (also: an API that cannot be asked so), ``runtime_closed``, ``forked`` (as
                is every call in a forked process).
            ProviderError: ``provider_unavailable``, ``unsupported_cli_version``.
            TransportError: ``tmux_missing``, ``tmux_unsupported``, ``transport_failed``.
            RejectedError: ``overloaded``: there are too many, or the journal is too far behind; of a switch also
                ``busy``, ``session_closed``; ``timeout``: it is still under way.
            JournalError: it could not be committed.
        """
        self._check_here()
        self._check_open()
        if isinstance(args, str):
            raise UsageError("usage", "args is a sequence of strings, not one string")
        preflight.check_words(model=model, permission_mode=permission_mode, args=tuple(args))
        asked = SessionConfig(model=model, permission_mode=permission_mode, extra_args=tuple(args))
        if session_id is not None:
            session = self._find(SessionId(session_id))
            self._switch(session, provider, transport, asked)
            return session
        if provider is None:
            raise UsageError("usage", "name a provider, or a session_id")
        adapter = preflight.find_adapter(self._adapters, provider, transport)
        folder = preflight.check_cwd(cwd)
        executable, version = self._check_fit(adapter, folder, asked)
        self._check_load()
        edge = self._open_edge(adapter.transport)
        config = msgspec.structs.replace(asked, cli_version=version)
        now = self._system.clock.wall()
        row = SessionRow(
            session_id=mint_session(now, self._entropy(ENTROPY_BYTES)),
            provider=provider,
            transport=adapter.transport,
            cwd=folder,
            native_session=adapter.new_native_session(self._entropy(16)),
            config=msgspec.json.encode(config).decode(),
            opened_at=now,
        )
        opened = events.SessionOpened(
            provider=provider, transport=row.transport, cwd=folder, native_session_id=row.native_session
        )
        self._commit(Batch(session_id=row.session_id, session=row, drafts=(events.Draft(body=opened),)))
        return self._start(row, adapter, executable, config, edge, Start())

    def run(
        self,
        provider: str,
        text: str,
        *,
        cwd: str | os.PathLike[str] = ".",
        deadline_s: float | None = None,
        model: str = "",
        permission_mode: str = "",
        args: Sequence[str] = (),
        transport: TransportName | None = None,
    ) -> Completion:
        """One turn in a session of its own, which is closed again. Raises what ``session`` and ``run`` raise."""
        session = self.session(
            provider, cwd=cwd, model=model, permission_mode=permission_mode, args=args, transport=transport
        )
        try:
            return session.run(text, deadline_s=deadline_s)
        finally:
            session.close()

    def sessions(self) -> list[SessionRow]:
        """All sessions on record, oldest first."""
        self._check_here()
        return self._read(self._journal.sessions)

    def completion(self, turn_id: str) -> Completion | None:
        """The completion of a turn, if it is settled."""
        self._check_here()
        return self._read(lambda: self._journal.completion(TurnId(turn_id)))

    def metrics(self) -> Metrics:
        """The runtime in numbers, now: see :class:`lastword.runtime.metrics.Metrics`, and
        :func:`lastword.runtime.metrics.prometheus` for the text. It asks no actor and no file, and nothing waits for
        it; also after :meth:`close`.
        """
        self._check_here()
        return metrics_of(self._numbers, self._system, self._commit_stats, self._behind())

    def close(self, *, grace_s: float = 2.0) -> CloseReport:
        """End every CLI and every actor; running turns settle ``cancelled``. Sessions stay on record. Idempotent.

        In a process that was forked off the host's it does nothing: all that would be ended is the host's.

        Raises:
            UsageError: ``usage``: ``grace_s`` is no number of seconds; nothing was ended.
        """
        if os.getpid() != self._pid:
            return CloseReport()
        check_grace(grace_s)
        with self._lock:
            if self._closed:
                return CloseReport()
            self._closed = True
            sessions = list(self._sessions.values())
        if self._door is not None:
            self._door.close()
        left = self._close_sessions(sessions, grace_s)
        thinking = self._policy.close() if self._policy is not None else []
        with self._lock:
            edges = list(self._edges.values())
        for edge in edges:
            edge.close(grace_s)
        report = self._system.shutdown(STOP_S)
        self._hub.tracer = None  # it is closed
        self._numbers.closing()
        self._hub.close()
        self._journal.close()
        return CloseReport(
            sessions_left=tuple(left),
            actors_abandoned=report.abandoned,
            threads_left=(
                *report.threads_left,
                *thinking,
                *(name for edge in edges for name in edge.threads_left()),
            ),
            processes_left=tuple(name for edge in edges for name in edge.left()),
            commits_left=self._commits_left,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check_fit(self, adapter: AnyAdapter, cwd: str, config: SessionConfig) -> tuple[preflight.Executable, str]:
        """Its CLI and the version of that, or its SDK's; seen fit to be driven so."""
        if adapter.transport == "api":
            return (), preflight.check_service(cast("ApiAdapter", adapter), self._request("", cwd, (), config))
        executable = preflight.find_executable(adapter, self._executables.get(adapter.name), self._env)
        version = ""
        # one without versions stands for any program, which says itself what it is
        if adapter.certified_versions or "emulated" in adapter.capabilities:
            version = self._versions.of(adapter, executable, self._env)
            preflight.check_version(adapter, version, allow_uncertified=self._allow_uncertified)
        return executable, version

    def _switch(
        self, session: Session, provider: str | None, transport: TransportName | None, asked: SessionConfig
    ) -> None:
        """Have the session go on as asked, where that is another way than it goes now."""
        row = self._journal.session(session.session_id)
        assert row is not None
        same = provider in (None, row.provider) and transport in (None, row.transport)
        now = msgspec.json.decode(row.config, type=SessionConfig)
        wanted = now.with_(asked) if same else asked
        if same and wanted == now:
            return
        over = row.transport if same else transport
        adapter = preflight.find_adapter(self._adapters, provider or row.provider, over)
        executable, version = self._check_fit(adapter, row.cwd, wanted)
        config = msgspec.structs.replace(wanted, cli_version=version)
        native = adapter.new_native_session(self._entropy(16))
        session._switch(  # noqa: SLF001
            deps=self._deps(adapter, self._open_edge(adapter.transport)),
            request=self._request(native, row.cwd, executable, config),
            config=msgspec.json.encode(config).decode(),
            previous_model=now.model,
            cli_version=version,
        )

    def _edge_says(self, word: str) -> None:
        self._system.dead_letters.record(word, "edge", word)

    def _publish(self, told: Sequence[events.Event]) -> None:
        """To the subscribers first; counting holds up nobody."""
        self._hub.publish(told)
        self._numbers.committed(told)

    def _top(self, look: Look) -> Top:
        """What ``lastword top`` shows."""
        return top_of(self._numbers, self._system, self._journal, self._behind(), look)

    def _commits_were_left(self, count: int) -> None:
        self._commits_left = count

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("runtime_closed", "the runtime is closed")

    def _check_here(self) -> None:
        check_home(self._pid)

    def _check_load(self) -> None:
        limits = self._limits
        if len(self._sessions) >= limits.sessions_max:
            raise overloaded(f"{limits.sessions_max} sessions are open")
        if (behind := self._behind()) >= limits.journal_behind_max:
            raise overloaded(f"the journal is {behind} batches behind")

    def _read(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except JournalError as error:
            if error.kind != "journal_closed":
                raise
            raise UsageError("runtime_closed", "the runtime is closed") from error

    def _forget(self, session: Session) -> None:
        """It is closed for ever: the journal alone knows it from here on; a host that runs for months keeps nothing."""
        with self._lock:
            if self._sessions.get(session.session_id) is session:
                del self._sessions[session.session_id]
                self._revivals.pop(session.session_id, None)
                self._faults.pop(session.session_id, None)

    def _served(self, session_id: str) -> Session:
        self._check_open()
        return self._find(SessionId(session_id))

    def _find(self, session_id: SessionId) -> Session:
        with self._finding:
            with self._lock:
                known = self._sessions.get(session_id)
            if known is not None:
                return known
            row = self._journal.session(session_id)
            if row is None:
                remedy = "`lastword sessions` lists them"
                raise UsageError("unknown_session", f"no session {session_id!r} is on record", remedy=remedy)
            if row.state == "closed":
                return Session(self, session_id, None)
            if (held := self._held.get(session_id)) is not None:
                if held():
                    return Session(self, session_id, None, held=True)
                del self._held[session_id]
            return self._revive(row, self._survivors.pop(session_id, None))

    def _rehydrate(self) -> None:
        """Take over what an earlier host left: living CLIs, unsettled turns, messages without an end (C17)."""
        work = self._journal.sessions_with_work()
        rows = [row for row in self._journal.sessions() if row.state == "open"]
        for row in rows:
            self._numbers.found(row)
        for name in get_args(TransportName):
            self._rehydrate_over(name, [row for row in rows if row.transport == name], work)

    def _rehydrate_over(self, name: TransportName, rows: list[SessionRow], work: set[SessionId]) -> None:
        needed = {row.session_id for row in rows if row.handle != "{}" or row.session_id in work}
        if not needed and name not in self._edges and not left_behind(name, self._state, self._env):
            return
        survivors = self._open_edge(name, rows).survivors({row.session_id: row for row in rows})
        self._survivors.update(survivors)
        for row in rows:
            survivor = survivors.get(row.session_id)
            if survivor is not None and survivor.held is not None:
                self._held[row.session_id] = self._survivors.pop(row.session_id).held or _no
            elif row.session_id in needed or (survivor is not None and survivor.endpoint is not None):
                self._revive(row, self._survivors.pop(row.session_id, None))

    def _session_failed(self, session_id: SessionId, error: BaseException) -> Batch:
        """A session's actor failed: count it, and say so."""
        texts = [each.text for each in self._journal.open_messages(session_id)]
        fault = fault_of(error, session_id, texts)
        with self._lock:
            times = self._revivals[session_id] = self._revivals.get(session_id, 0) + 1
            self._faults[session_id] = fault
        self._system.dead_letters.record(f"session_{fault.kind}", session_id, error)
        repair = "another actor took its place" if times <= REVIVALS_MAX else f"given up after {times} failures"
        told = events.InvariantViolated(what=f"the session's actor failed: {fault.what}", repair=repair)
        key = f"actor_failed:{self._system.clock.wall()}:{times}"
        return Batch(session_id=session_id, drafts=(events.Draft(body=told, once=key),))

    def _session_succeeded(self, session_id: SessionId) -> list[Batch]:
        """Another takes its place, from the journal and the record, as after a restart. Where that was done too often:
        its CLI is ended, and these are the last words of what was open.
        """
        with self._lock:
            session, times = self._sessions.get(session_id), self._revivals.get(session_id, 0)
            fault = self._faults[session_id]
        row = self._journal.session(session_id)
        if self._closed or row is None or row.state == "closed":
            return []
        if times > REVIVALS_MAX:
            if times == REVIVALS_MAX + 1:  # what fails now is its end: the turns get theirs all the same
                self._end_cli(row)
            turns, messages = self._journal.turns(session_id, unsettled=True), self._journal.open_messages(session_id)
            return last_words(row, turns, messages, fault, _config(row).cli_version)
        if session is None:
            return []
        edge = self._open_edge(row.transport)
        survivor = edge.reattach(row)
        adapter = preflight.find_adapter(self._adapters, row.provider, row.transport)
        if survivor is None and edge.transport_of(adapter)[1] is None:
            # panes whose start is not on record may still be going, under their names
            survivor = Survivor(endpoint=None, epoch=row.epoch + times)
        revived = self._revive(row, survivor)
        with self._lock:
            self._sessions[session_id] = session
        session._replaced(revived._ref)  # noqa: SLF001
        return []

    def _end_cli(self, row: SessionRow) -> None:
        survivor = self._open_edge(row.transport).reattach(row)
        if survivor is not None and survivor.endpoint is not None:
            survivor.endpoint.close(0.0, lambda: None)

    def _session_given_up(self, session_id: SessionId) -> None:
        with self._lock:
            session, times = self._sessions.get(session_id), self._revivals.get(session_id, 0)
            fault = self._faults[session_id]
        if session is not None and times > REVIVALS_MAX:
            session._given_up(fault.what)  # noqa: SLF001

    def _fault_of(self, session_id: SessionId) -> str:
        """Why its actor failed last, or ""."""
        with self._lock:
            fault = self._faults.get(session_id)
        return fault.what if fault is not None else ""

    def _message(self, message_id: MessageId) -> MessageRow | None:
        """What is on record of it."""
        return self._read(lambda: self._journal.message(message_id))

    def _fresh_id(self) -> MessageId:
        return mint_message(self._system.clock.wall(), self._entropy(ENTROPY_BYTES))

    def _dialog_told(self, session_id: SessionId) -> Dialog | None:
        told = self._journal.open_dialog(session_id)
        if told is None:
            return None
        return Dialog(dialog_id=told.dialog_id, kind=told.kind, question=told.question, options=told.options)

    def _revive(self, row: SessionRow, survivor: Survivor | None) -> Session:
        adapter = preflight.find_adapter(self._adapters, row.provider, row.transport)
        config = msgspec.json.decode(row.config, type=SessionConfig)
        try:
            executable = (
                preflight.find_executable(adapter, self._executables.get(row.provider), self._env)
                if adapter.transport != "api"
                else ()
            )
        except ProviderError:
            executable = (adapter.executables or (adapter.name,))[
                :1
            ]  # its end can be settled all the same; a start says what is missing
        unsettled = tuple(self._journal.turns(row.session_id, unsettled=True))
        messages = self._journal.open_messages(row.session_id)
        seq = self._journal.last_seq(row.session_id)
        last = self._journal.events(row.session_id, max(0, seq - 1), 1)
        open_turns = {turn.turn_id for turn in unsettled}
        epoch = max(row.epoch, survivor.epoch if survivor is not None else 0)
        edge = self._open_edge(row.transport)
        endpoint = survivor.endpoint if survivor is not None else None
        dormant = (
            endpoint is None
            and row.handle == "{}"
            and not unsettled
            and not any(each.turn_id is None and each.state in ("accepted", "submitted", "queued") for each in messages)
        )
        first = Rehydrate(
            endpoint=edge.endpoint_of(adapter, f"{row.session_id}-{epoch}", endpoint),
            turns=unsettled,
            messages=tuple(
                each
                for each in messages
                if each.state in ("accepted", "submitted", "queued", "bound")
                and (each.turn_id is None or each.turn_id in open_turns)
            ),
            joined=tuple(each for each in messages if each.state == "joined" and each.turn_id in open_turns),
            last_completion=self._journal.last_completion(row.session_id),
            seq=seq,
            last_at=last[0].at if last else row.opened_at,
            epoch=epoch,
            dormant=dormant,
            dialog=None if dormant else self._dialog_told(row.session_id),
        )
        self._numbers.taken_over(
            row,
            turns=unsettled,
            messages=first.messages,
            last=last[-1] if last else None,
            last_completion=first.last_completion,
            lives=first.endpoint is not None,
        )
        return self._start(row, adapter, executable, config, edge, first)

    def _start(
        self,
        row: SessionRow,
        adapter: AnyAdapter,
        executable: preflight.Executable,
        config: SessionConfig,
        edge: Edge,
        first: Start | Rehydrate,
    ) -> Session:
        ref = self._system.spawn(
            SessionActor,
            self._deps(adapter, edge),
            row,
            self._request(row.native_session, row.cwd, executable, config),
            config.cli_version,
            name=row.session_id,
            parent=self._guardian,
            mailbox_max=self._limits.calls_max + SESSION_MAILBOX_SPARE,
        )
        session = Session(self, row.session_id, ref)
        with self._lock:
            self._sessions[row.session_id] = session
        ref.tell(first)
        return session

    def _request(
        self, native_session: str, cwd: str, executable: preflight.Executable, config: SessionConfig
    ) -> LaunchRequest:
        return LaunchRequest(
            native_session=native_session,
            cwd=cwd,
            executable=executable,
            env=self._env,
            model=config.model,
            permission_mode=config.permission_mode,
            extra_args=config.extra_args,
        )

    def _deps(self, adapter: AnyAdapter, edge: Edge) -> SessionDeps:
        transport, streams = edge.transport_of(adapter)
        return SessionDeps(
            journal=self._writer,
            reader=self._journal,
            adapter=adapter,
            transport=transport,
            files=edge.files,
            wakes=edge.wakes,
            entropy=self._entropy,
            streams=streams,
            ask_policy=self._policy.ask if self._policy is not None else None,
            live=self._hub.live,
            limits=self._limits,
            behind=self._behind,
        )

    def _open_edge(self, name: TransportName, rows: Sequence[SessionRow] = ()) -> Edge:
        with self._lock:
            if name not in self._edges:
                self._edges[name] = (
                    open_api_edge(self._journal, self._env, self._tools)
                    if name == "api"
                    else open_edge(name, self._state, self._env, self._edge_says, rows, journal=self._journal)
                )
            return self._edges[name]

    def _commit(self, batch: Batch) -> Recorded:
        answer: Future[Recorded] = Future()
        self._writer.tell(Commit(batch=batch, reply_to=_Reply(answer)))
        return answer.result(timeout=self._system.wait_s(answer.done, COMMIT_S))

    def _subscribe(self, session_id: SessionId, after: int) -> Subscription:
        return self._hub.subscribe(session_id, after)

    def _async_subscribe(self, session_id: SessionId, after: int) -> AsyncSubscription:
        return self._hub.async_subscribe(session_id, after)

    def _recorded_snapshot(self, session_id: SessionId) -> Snapshot:
        """A session without an actor here, as the journal has it."""
        return self._read(lambda: self._snapshot_on_record(session_id))

    def _snapshot_on_record(self, session_id: SessionId) -> Snapshot:
        row = self._journal.session(session_id)
        if row is None:
            remedy = "`lastword sessions` lists them"
            raise UsageError("unknown_session", f"no session {session_id!r} is on record", remedy=remedy)
        return Snapshot(
            session_id=session_id,
            provider=row.provider,
            transport=row.transport,
            cwd=row.cwd,
            state="closed" if row.state == "closed" else "gone",
            seq=self._journal.last_seq(session_id),
            handle=Handle(native_session_id=row.native_session),
            last_completion=self._journal.last_completion(session_id),
        )

    def _close_sessions(self, sessions: list[Session], grace_s: float) -> list[str]:
        """All at the same time: each may need its grace."""
        left: list[str] = []
        until_s = self._system.clock.monotonic() + grace_s + CLOSE_SESSIONS_S
        asked = [(session, session._ask_close(grace_s, forever=False)) for session in sessions]  # noqa: SLF001
        for session, reply in asked:
            try:
                session._await_close(reply, max(0.0, until_s - self._system.clock.monotonic()))  # noqa: SLF001
            except LastwordError:
                left.append(session.session_id)
        return left


def _no() -> bool:
    return False


def _end_at_exit(runtime: Runtime) -> None:
    """A host that ends without closing its runtime (``sys.exit``, an exception) leaves nothing behind; a child that it
    forked ends nothing.
    """
    known, pid = weakref.ref(runtime), os.getpid()

    def end() -> None:
        left = known()
        if left is not None and os.getpid() == pid:
            with contextlib.suppress(Exception):
                left.close(grace_s=EXIT_GRACE_S)

    atexit.register(end)
    weakref.finalize(runtime, atexit.unregister, end).atexit = False


def _open_trace(path: Path) -> JsonlTracer:
    try:
        return JsonlTracer(path)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise UsageError("usage", f"the trace file {path} cannot be written: {why}") from error


class _Keeper:
    """The runtime, as its guardian sees it."""

    def __init__(self, runtime: Runtime) -> None:
        self.failed = runtime._session_failed  # noqa: SLF001
        self.succeed = runtime._session_succeeded  # noqa: SLF001
        self.given_up = runtime._session_given_up  # noqa: SLF001


def _config(row: SessionRow) -> SessionConfig:
    return msgspec.json.decode(row.config, type=SessionConfig)


class _Reply:
    """Takes the journal actor's answer for a thread that waits."""

    def __init__(self, future: Future[Recorded]) -> None:
        self._future = future

    def tell(self, message: object, *, control: bool = False) -> None:  # noqa: ARG002
        match message:
            case Committed():
                self._future.set_result(message.recorded)
            case CommitFailed():
                self._future.set_exception(message.error)
            case _:
                raise AssertionError(message)


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


__all__ = ["AsyncIterator", "AsyncRuntime", "CloseReport", "Edge", "Ref", "Runtime", "SessionConfig"]
