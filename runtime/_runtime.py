"""Runtime: wiring. Opens the journal, builds the actors, hands out sessions, and ends all of it again."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from lastword.actors.admission import overloaded
from lastword.actors.core import events
from lastword.actors.core.adapter import AdapterKey, AnyAdapter
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import UsageError
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.limits import Limits
from lastword.actors.core.outcome import Completion
from lastword.actors.core.policy import DialogPolicy
from lastword.actors.core.ports import SessionRow
from lastword.actors.core.tools import Tool, check_tools
from lastword.actors.journal import Backlog, CommitStats, JournalActor
from lastword.actors.system.clock import Clock
from lastword.actors.system.simulation import Simulation
from lastword.actors.system.system import ActorSystem
from lastword.runtime import _preflight as preflight
from lastword.runtime._close_report import CloseReport
from lastword.runtime._door import Door
from lastword.runtime._edge import Edge
from lastword.runtime._edges import Edges
from lastword.runtime._faults import Faults
from lastword.runtime._handed_in import with_ours
from lastword.runtime._home import end_at_exit
from lastword.runtime._hub import Hub
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._journal_file import Durability
from lastword.runtime._numbers import Numbers
from lastword.runtime._on_record import OnRecord
from lastword.runtime._policy import PolicyDesk, check_policy
from lastword.runtime._providers import Providers
from lastword.runtime._readings import metrics_of, top_of
from lastword.runtime._requests import check_grace
from lastword.runtime._session import Session
from lastword.runtime._session_config import SessionConfig
from lastword.runtime._sessions import Sessions
from lastword.runtime._shared import Shared
from lastword.runtime._state_folder import state_folder
from lastword.runtime._top import Look, Top
from lastword.runtime._tracing import HostTrace, open_trace
from lastword.runtime.metrics import Metrics

STOP_S = 10.0
JOURNAL_MAILBOX_MAX = 100_000
"""Where it is full, batches wait with who sends them."""


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
        trace: str | os.PathLike[str] | None,
        edge: Edge | None,
        serve_socket: bool = False,
        dialog_policy: DialogPolicy | None = None,
        tools: Mapping[str, Tool] | None = None,
        limits: Limits | None = None,
        simulation: Simulation | None = None,
    ) -> None:
        env = dict(env)
        limits = limits or Limits()
        tracer = open_trace(trace) if trace is not None else None
        self._pid = os.getpid()
        self._closed = False
        self._closing = threading.Lock()
        self._journal = journal
        self._on_record = OnRecord(journal)
        self._system = ActorSystem("lastword", clock=clock, dispatcher=dispatcher, tracer=tracer, simulation=simulation)
        self._numbers = Numbers(self._system.clock.wall)
        self._hub = Hub(journal, on_delivered=self._numbers.delivered)
        self._trace = HostTrace(tracer, self._system, self._hub)
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
        self._shared = Shared(
            pid=self._pid,
            ended=lambda: self._closed,
            system=self._system,
            journal=journal,
            on_record=self._on_record,
            writer=self._writer,
            behind=self._behind,
            hub=self._hub,
            numbers=self._numbers,
            faults=Faults(),
            limits=limits,
            entropy=os.urandom if simulation is None else simulation.entropy,
        )
        self._policy = PolicyDesk(dialog_policy) if dialog_policy is not None else None
        self._providers = Providers(adapters, executables, env, allow_uncertified=allow_uncertified)
        self._edges = Edges(edge, state=state, env=env, tools=tools or {}, journal=journal, told=self._edge_says)
        self._sessions = Sessions(self._shared, self._providers, self._edges, self._policy)
        end_at_exit(self)
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
            if not isinstance(limits, Limits):
                raise UsageError("usage", f"limits are a Limits, not {limits!r}")
            limits.check()
        folder = state_folder(state, env)
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
                trace=trace,
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
            runtime._sessions.take_over()
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
        self._shared.check_open()
        if isinstance(args, str):
            raise UsageError("usage", "args is a sequence of strings, not one string")
        preflight.check_words(model=model, permission_mode=permission_mode, args=tuple(args))
        asked = SessionConfig(model=model, permission_mode=permission_mode, extra_args=tuple(args))
        if session_id is not None:
            session = self._sessions.find(SessionId(session_id))
            self._sessions.switch(session, provider, transport, asked)
            return session
        if provider is None:
            raise UsageError("usage", "name a provider, or a session_id")
        adapter = self._providers.adapter(provider, transport)
        folder = preflight.check_cwd(cwd)
        executable, version = self._providers.fit(adapter, folder, asked)
        self._check_load()
        return self._sessions.begin(adapter, folder, asked, executable, version)

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
        return self._on_record.sessions()

    def completion(self, turn_id: str) -> Completion | None:
        """The completion of a turn, if it is settled."""
        self._check_here()
        return self._on_record.completion(TurnId(turn_id))

    def metrics(self) -> Metrics:
        """The runtime in numbers, now: see :class:`lastword.runtime.metrics.Metrics`, and
        :func:`lastword.runtime.metrics.prometheus` for the text. It asks no actor and no file, and nothing waits for
        it; also after :meth:`close`.
        """
        self._check_here()
        return metrics_of(self._numbers, self._system, self._commit_stats, self._behind())

    def trace_to(self, file: str | os.PathLike[str] | None) -> None:
        """Write who told whom what when to this file from now on, as ``open(trace=…)`` does; None: no longer. The trace
        before is whole in its own file when this returns. From any thread.

        Raises:
            UsageError: ``usage``: it cannot be written, and the trace before goes on; ``runtime_closed``; ``forked``.
        """
        self._check_here()
        with self._closing:
            if self._closed:
                raise UsageError("runtime_closed", "the runtime is closed")
            self._trace.switch(file)

    def close(self, *, grace_s: float = 2.0) -> CloseReport:
        """End every CLI and every actor; running turns settle ``cancelled``. Sessions stay on record. Idempotent.

        In a process that was forked off the host's it does nothing: all that would be ended is the host's.

        Raises:
            UsageError: ``usage``: ``grace_s`` is no number of seconds; nothing was ended.
        """
        if os.getpid() != self._pid:
            return CloseReport()
        check_grace(grace_s)
        with self._closing:
            if self._closed:
                return CloseReport()
            self._closed = True
        if self._door is not None:
            self._door.close()
        left = self._sessions.close(grace_s)
        thinking = self._policy.close() if self._policy is not None else []
        self._edges.close(grace_s)
        report = self._system.shutdown(STOP_S)
        self._trace.closed()
        self._numbers.closing()
        self._hub.close()
        self._journal.close()
        return CloseReport(
            trace_lost=self._trace.lost,
            sessions_left=left,
            actors_abandoned=report.abandoned,
            threads_left=(*report.threads_left, *thinking, *self._edges.threads_left()),
            processes_left=self._edges.processes_left(),
            commits_left=self._commits_left,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check_here(self) -> None:
        self._shared.check_here()

    def _check_load(self) -> None:
        limits = self._shared.limits
        if len(self._sessions) >= limits.sessions_max:
            raise overloaded(f"{limits.sessions_max} sessions are open")
        if (behind := self._behind()) >= limits.journal_behind_max:
            raise overloaded(f"the journal is {behind} batches behind")

    def _served(self, session_id: str) -> Session:
        self._shared.check_open()
        return self._sessions.find(SessionId(session_id))

    def _top(self, look: Look) -> Top:
        """What ``lastword top`` shows."""
        return top_of(self._numbers, self._system, self._journal, self._behind(), look)

    def _publish(self, told: Sequence[events.Event]) -> None:
        """To the subscribers first; counting holds up nobody."""
        self._hub.publish(told)
        self._numbers.committed(told)

    def _commits_were_left(self, count: int) -> None:
        self._commits_left = count

    def _edge_says(self, word: str) -> None:
        self._system.dead_letters.record(word, "edge", word)
