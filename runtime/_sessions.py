"""Sessions: those that one runtime holds: begun, found, taken over from an earlier host, given another actor, ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import get_args

import msgspec

from lastword.actors.core import events
from lastword.actors.core.adapter import AnyAdapter
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.fault import fault_of
from lastword.actors.core.ids import ENTROPY_BYTES, SessionId, mint_session
from lastword.actors.core.ports import Batch, SessionRow
from lastword.actors.core.snapshot import Dialog
from lastword.actors.look_pace import LookPace
from lastword.actors.session import Rehydrate, SessionActor, SessionDeps, Start
from lastword.runtime._edge import Edge, Survivor
from lastword.runtime._edges import Edges
from lastword.runtime._guardian import Guardian, last_words
from lastword.runtime._policy import PolicyDesk
from lastword.runtime._preflight import Executable
from lastword.runtime._providers import Providers
from lastword.runtime._session import Session
from lastword.runtime._session_config import SessionConfig, config_of
from lastword.runtime._shared import Shared
from lastword.runtime._steps import blocked

CLOSE_SESSIONS_S = 8.0
"""At the runtime's end: how long beyond the grace a session may take; then it is left, and named in the report."""
REVIVALS_MAX = 3
"""Failed actors of one session that are replaced in the life of a runtime; then the session is left as it is."""
SESSION_MAILBOX_SPARE = 10_000
"""Of a session's mailbox, beyond what calls of the host may fill: for its own actors."""


class Sessions:
    """By id. Safe from any thread.

    It is the keeper of the guardian that it starts: :meth:`failed`, :meth:`succeed` and :meth:`given_up` are for that
    one alone.
    """

    def __init__(self, shared: Shared, providers: Providers, edges: Edges, policy: PolicyDesk | None) -> None:
        self._shared = shared
        self._providers = providers
        self._edges = edges
        self._policy = policy
        self._lock = threading.Lock()
        self._here: dict[SessionId, Session] = {}
        self._finding = threading.Lock()
        """Held while a session on record is given its actor: two threads that ask for it get one."""
        self._survivors: dict[SessionId, Survivor] = {}
        """What an earlier host left of sessions that nobody has asked for yet."""
        self._looks = LookPace()
        self._held: dict[SessionId, Callable[[], bool]] = {}
        """Sessions whose CLI lives and is not ours, and whether that is still so."""
        self._guardian = shared.system.spawn(Guardian, shared.writer, self, name="sessions")

    def __len__(self) -> int:
        return len(self._here)

    def get(self, session_id: SessionId) -> Session | None:
        """It, where it is known here already."""
        with self._lock:
            return self._here.get(session_id)

    # --- begun, found, switched, ended ---------------------------------------------------------------------------

    def begin(
        self, adapter: AnyAdapter, cwd: str, asked: SessionConfig, executable: Executable, version: str
    ) -> Session:
        """A new one; returns once it is committed, while its CLI starts.

        Raises:
            TransportError: the transport's edge cannot be opened.
            JournalError: it could not be committed.
        """
        shared = self._shared
        edge = self._edges.open(adapter.transport)
        config = msgspec.structs.replace(asked, cli_version=version)
        now = shared.system.clock.wall()
        row = SessionRow(
            session_id=mint_session(now, shared.entropy(ENTROPY_BYTES)),
            provider=adapter.name,
            transport=adapter.transport,
            cwd=cwd,
            native_session=adapter.new_native_session(shared.entropy(16)),
            config=config.stored(),
            opened_at=now,
        )
        opened = events.SessionOpened(
            provider=row.provider, transport=row.transport, cwd=cwd, native_session_id=row.native_session
        )
        shared.commit(Batch(session_id=row.session_id, session=row, drafts=(events.Draft(body=opened),)))
        return self._start(row, adapter, executable, config, edge, Start())

    def find(self, session_id: SessionId) -> Session:
        """The one of that id, here or on record.

        Raises:
            UsageError: ``unknown_session``.
        """
        with self._finding:
            known = self.get(session_id)
            if known is not None:
                return known
            row = self._shared.on_record.session(session_id)
            if row.state == "closed":
                return Session(self._shared, session_id, None)
            if (held := self._held.get(session_id)) is not None:
                if held():
                    return Session(self._shared, session_id, None, held=True)
                del self._held[session_id]
            return self._revive(row, self._survivors.pop(session_id, None))

    def switch(
        self, session: Session, provider: str | None, transport: TransportName | None, asked: SessionConfig
    ) -> None:
        """Have the session go on as asked, where that is another way than it goes now."""
        row = self._shared.journal.session(session.session_id)
        assert row is not None
        same = provider in (None, row.provider) and transport in (None, row.transport)
        now = config_of(row)
        wanted = now.with_(asked) if same else asked
        if same and wanted == now:
            return
        adapter = self._providers.adapter(provider or row.provider, row.transport if same else transport)
        executable, version = self._providers.fit(adapter, row.cwd, wanted)
        config = msgspec.structs.replace(wanted, cli_version=version)
        native = adapter.new_native_session(self._shared.entropy(16))
        session._switch(  # noqa: SLF001 - one facade in two modules
            deps=self._deps(adapter, self._edges.open(adapter.transport)),
            request=self._providers.request(native, row.cwd, executable, config),
            config=config.stored(),
            previous_model=now.model,
            cli_version=version,
        )

    def close(self, grace_s: float) -> tuple[str, ...]:
        """End all that are here, at the same time, since each may need its grace; names of those that did not end."""
        with self._lock:
            counterparts = [session._counterpart for session in self._here.values()]  # noqa: SLF001 - as above
        left: list[str] = []
        now_s = self._shared.system.clock.monotonic
        until_s = now_s() + grace_s + CLOSE_SESSIONS_S
        asked = [(each, each.ask_close(grace_s, forever=False)) for each in counterparts]
        for each, reply in asked:
            try:
                blocked(each.closed(reply, bound_s=max(0.0, until_s - now_s())), self._shared.system)
            except LastwordError:
                left.append(each.session_id)
        return tuple(left)

    def _forget(self, session: Session) -> None:
        """It is closed for ever: the journal alone knows it from here on; a host that runs for months keeps nothing."""
        with self._lock:
            known = self._here.get(session.session_id) is session
            if known:
                del self._here[session.session_id]
        if known:
            self._shared.faults.forget(session.session_id)

    # --- taken over from an earlier host -------------------------------------------------------------------------

    def take_over(self) -> None:
        """What an earlier host left: living CLIs, unsettled turns, messages without an end (C17)."""
        work = self._shared.journal.sessions_with_work()
        rows = [row for row in self._shared.journal.sessions() if row.state == "open"]
        for row in rows:
            self._shared.numbers.found(row)
        for name in get_args(TransportName):
            self._take_over(name, [row for row in rows if row.transport == name], work)

    def _take_over(self, name: TransportName, rows: list[SessionRow], work: set[SessionId]) -> None:
        needed = {row.session_id for row in rows if row.handle != "{}" or row.session_id in work}
        if not needed and not self._edges.has_work(name):
            return
        survivors = self._edges.open(name, rows).survivors({row.session_id: row for row in rows})
        self._survivors.update(survivors)
        for row in rows:
            survivor = survivors.get(row.session_id)
            if survivor is not None and survivor.held is not None:
                self._held[row.session_id] = self._survivors.pop(row.session_id).held or _no
            elif row.session_id in needed or (survivor is not None and survivor.endpoint is not None):
                self._revive(row, self._survivors.pop(row.session_id, None))

    # --- the guardian's keeper -----------------------------------------------------------------------------------

    def failed(self, session_id: SessionId, error: BaseException) -> Batch:
        """A session's actor failed: count it, and say so."""
        shared = self._shared
        texts = [each.text for each in shared.journal.open_messages(session_id)]
        fault = fault_of(error, session_id, texts)
        times = shared.faults.count(session_id, fault)
        shared.system.dead_letters.record(f"session_{fault.kind}", session_id, error)
        repair = "another actor took its place" if times <= REVIVALS_MAX else f"given up after {times} failures"
        told = events.InvariantViolated(what=f"the session's actor failed: {fault.what}", repair=repair)
        key = f"actor_failed:{shared.system.clock.wall()}:{times}"
        return Batch(session_id=session_id, drafts=(events.Draft(body=told, once=key),))

    def succeed(self, session_id: SessionId) -> list[Batch]:
        """Another takes its place, from the journal and the record, as after a restart. Where that was done too often:
        its CLI is ended, and these are the last words of what was open.
        """
        journal = self._shared.journal
        session, last = self.get(session_id), self._shared.faults.last(session_id)
        row = journal.session(session_id)
        if self._shared.ended() or row is None or row.state == "closed" or last is None:
            return []
        fault, times = last
        if times > REVIVALS_MAX:
            if times == REVIVALS_MAX + 1:  # what fails now is its end: the turns get theirs all the same
                self._end_cli(row)
            turns, messages = journal.turns(session_id, unsettled=True), journal.open_messages(session_id)
            return last_words(row, turns, messages, fault, config_of(row).cli_version)
        if session is None:
            return []
        edge = self._edges.open(row.transport)
        survivor = edge.reattach(row)
        adapter = self._providers.adapter(row.provider, row.transport)
        if survivor is None and edge.transport_of(adapter)[1] is None:
            # panes whose start is not on record may still be going, under their names
            survivor = Survivor(endpoint=None, epoch=row.epoch + times)
        revived = self._revive(row, survivor)
        with self._lock:
            self._here[session_id] = session
        session._counterpart.replaced(revived._counterpart.ref)  # noqa: SLF001 - as above
        return []

    def given_up(self, session_id: SessionId) -> None:
        """Its last words are on record: no other takes its place."""
        session, last = self.get(session_id), self._shared.faults.last(session_id)
        if session is not None and last is not None and last[1] > REVIVALS_MAX:
            session._counterpart.given_up(last[0].what)  # noqa: SLF001 - as above

    def _end_cli(self, row: SessionRow) -> None:
        survivor = self._edges.open(row.transport).reattach(row)
        if survivor is not None and survivor.endpoint is not None:
            survivor.endpoint.close(0.0, lambda: None)

    # --- an actor for a session ----------------------------------------------------------------------------------

    def _revive(self, row: SessionRow, survivor: Survivor | None) -> Session:
        adapter = self._providers.adapter(row.provider, row.transport)
        edge = self._edges.open(row.transport)
        return self._start(
            row,
            adapter,
            self._providers.named(adapter),
            config_of(row),
            edge,
            self._rehydration(row, adapter, edge, survivor),
        )

    def _rehydration(self, row: SessionRow, adapter: AnyAdapter, edge: Edge, survivor: Survivor | None) -> Rehydrate:
        """What its actor begins with: all that the journal has of it without an end, and its CLI, if that lives."""
        journal = self._shared.journal
        unsettled = tuple(journal.turns(row.session_id, unsettled=True))
        messages = journal.open_messages(row.session_id)
        seq = journal.last_seq(row.session_id)
        last = journal.events(row.session_id, max(0, seq - 1), 1)
        open_turns = {turn.turn_id for turn in unsettled}
        epoch = max(row.epoch, survivor.epoch if survivor is not None else 0)
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
            last_completion=journal.last_completion(row.session_id),
            seq=seq,
            last_at=last[0].at if last else row.opened_at,
            epoch=epoch,
            dormant=dormant,
            dialog=None if dormant else self._dialog_told(row.session_id),
        )
        self._shared.numbers.taken_over(
            row,
            turns=unsettled,
            messages=first.messages,
            last=last[-1] if last else None,
            last_completion=first.last_completion,
            lives=first.endpoint is not None,
        )
        return first

    def _dialog_told(self, session_id: SessionId) -> Dialog | None:
        told = self._shared.journal.open_dialog(session_id)
        if told is None:
            return None
        return Dialog(dialog_id=told.dialog_id, kind=told.kind, question=told.question, options=told.options)

    def _start(
        self,
        row: SessionRow,
        adapter: AnyAdapter,
        executable: Executable,
        config: SessionConfig,
        edge: Edge,
        first: Start | Rehydrate,
    ) -> Session:
        ref = self._shared.system.spawn(
            SessionActor,
            self._deps(adapter, edge),
            row,
            self._providers.request(row.native_session, row.cwd, executable, config),
            config.cli_version,
            name=row.session_id,
            parent=self._guardian,
            mailbox_max=self._shared.limits.calls_max + SESSION_MAILBOX_SPARE,
        )
        session = Session(self._shared, row.session_id, ref, on_closed=self._forget)
        with self._lock:
            self._here[row.session_id] = session
        ref.tell(first)
        return session

    def _deps(self, adapter: AnyAdapter, edge: Edge) -> SessionDeps:
        transport, streams = edge.transport_of(adapter)
        return SessionDeps(
            journal=self._shared.writer,
            reader=self._shared.journal,
            adapter=adapter,
            transport=transport,
            files=edge.files,
            wakes=edge.wakes,
            entropy=self._shared.entropy,
            streams=streams,
            ask_policy=self._policy.ask if self._policy is not None else None,
            live=self._shared.hub.live,
            limits=self._shared.limits,
            behind=self._shared.behind,
            looks=self._looks,
        )


def _no() -> bool:
    return False
