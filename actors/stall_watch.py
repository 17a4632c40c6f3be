"""The watch over quiet turns of one session (C41, C42): looks again, names what is waited for, settles nothing.

A session without an open turn has no timer here and costs nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lastword.actors.core import events, stall
from lastword.actors.core.facts import CliStatusSeen, TurnClosed
from lastword.actors.core.ids import TurnId
from lastword.actors.core.outcome import Evidence
from lastword.actors.core.pending import Pending
from lastword.actors.core.reconcile import unobserved
from lastword.actors.reconciler import Consult, Consulted, ReconcilerActor
from lastword.actors.session_commands import CheckStall

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor
    from lastword.actors.system.ref import Ref

TICK_S = 0.001
"""What is due so soon is due: the difference of two readings of a clock is not exact."""
WATCHERS_MAX = 3
"""So many watchers of one session in a row are replaced because they do not see what is on record."""


class StallWatch:
    """Runs on the session actor's thread only."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._heard_mono_s = session.clock.monotonic()
        self._armed = False
        self._due_s: float | None = None
        """When the look that is put off is due."""
        self._tracks: dict[str, stall.Track] = {}
        self._status: CliStatusSeen | None = None
        self._told: set[TurnId] = set()
        self._reconciler: Ref | None = None
        self._reconcilers = 0
        self._observed: dict[str, int] = {}
        self._suspected: int | None = None
        self._watchers = 0
        self._unread = ("", "")
        self._unread_told: set[TurnId] = set()

    def end(self) -> None:
        """It is of a provider that the session had before."""
        if self._reconciler is not None:
            self._reconciler.stop()

    # --- what is heard ------------------------------------------------------------------------------------------------

    def heard(self) -> None:
        """Something happened: nobody is quiet."""
        self._heard_mono_s = self._session.clock.monotonic()

    def note(self, facts: tuple[object, ...], path: str, read_to: int) -> None:
        """Facts came; the watcher has read ``path`` up to ``read_to`` bytes."""
        if path:
            self._observed = {path: read_to}
        for fact in facts:
            if fact != self._status:  # a registry that is read again says nothing new
                self.heard()
            if isinstance(fact, CliStatusSeen):
                self._status = fact
            else:
                self._watchers = 0
            native = stall.native_of(fact)
            if native and not isinstance(fact, TurnClosed):
                self._tracks.setdefault(native, stall.Track()).note(fact)  # type: ignore[arg-type]
            elif native:
                self._tracks.pop(native, None)

    @property
    def blind(self) -> bool:
        """Whether the record cannot be read."""
        return bool(self._unread[1])

    def unread(self, path: str, reason: str) -> None:
        """The record cannot be read (``reason``), or can be again: told at once, for nothing else will be heard."""
        self._unread = (path, reason)
        self._unread_told.clear()
        self._tell_unread()

    def _tell_unread(self) -> None:
        session = self._session
        if self._unread[1]:
            for turn_id in session.core.open:
                if turn_id not in self._unread_told:
                    self._unread_told.add(turn_id)
                    self._tell(turn_id, self.wait_of(turn_id), session.clock.monotonic() - self._heard_mono_s)

    def follow(self) -> None:
        """A turn may be open now: watch it."""
        self._tell_unread()
        if not self._armed and self._session.core.open:
            self._armed = True
            self.heard()
            self._session.after(stall.QUIET_S, CheckStall(), key="stall")

    # --- the look -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The time for a look: at once where a turn is quiet, else when it will be."""
        session = self._session
        self._told &= set(session.core.open)
        if not session.core.open:
            self._armed = False
            self._due_s = None
            self._suspected = None
            self._tracks.clear()
            if self._reconciler is not None:
                self._reconciler.stop()
                self._reconciler = None
            return
        quiet_s = session.clock.monotonic() - self._heard_mono_s
        if quiet_s < stall.QUIET_S - TICK_S:
            self._due_s = None
            session.after(stall.QUIET_S - quiet_s, CheckStall(), key="stall")
            return
        if not self._may_look():
            return
        session.put_right()
        if "asserts_completion" in session.deps.adapter.capabilities:
            self._consult()
        if quiet_s >= stall.WARN_S:
            for turn_id in session.core.open:
                if turn_id not in self._told:
                    self._told.add(turn_id)
                    self._tell(turn_id, self.wait_of(turn_id), quiet_s)
        session.after(stall.CONSULT_EVERY_S, CheckStall(), key="stall")

    def _may_look(self) -> bool:
        """Whether it is its turn; where it is not, it is put off until then."""
        session = self._session
        now_s = session.clock.monotonic()
        if self._due_s is None:
            self._due_s = session.deps.looks.slot(now_s)
        if self._due_s > now_s + TICK_S:
            session.after(self._due_s - now_s, CheckStall(), key="stall")
            return False
        self._due_s = None
        return True

    def _consult(self) -> None:
        session = self._session
        if self._reconciler is None:
            self._reconcilers += 1
            row = session.record.row
            which = f"{row.config_epoch}." if row.config_epoch > 1 else ""
            name = f"{row.session_id}/reconciler#{which}{self._reconcilers}"
            self._reconciler = session.spawn(ReconcilerActor, session.deps.files, name=name)
        follow = session.cli.following()
        self._reconciler.tell(
            Consult(
                source=follow.source,
                oracle=follow.oracle,
                cursor=follow.cursor,
                observed_to=self._observed.get(follow.source.path, 0),
                natives=frozenset(session.core.open.values()),
                earlier=follow.earlier,
            )
        )

    def consulted(self, found: Consulted) -> None:
        """What the other reader found. What it sees and we do not may be on its way to us: it is believed unobserved
        when a second look, seconds later, finds it still so.
        """
        session = self._session
        natives = frozenset(session.core.open.values())
        behind = unobserved(found.facts, self._observed.get(found.path, 0), natives)
        if behind is None or not session.core.open:
            self._suspected = None
            return
        if self._suspected is None:
            self._suspected = behind.offset
            return
        self._suspected = None
        if self._watchers >= WATCHERS_MAX:
            return
        self._watchers += 1
        quiet_s = session.clock.monotonic() - self._heard_mono_s
        for turn_id, native in session.core.open.items():
            for end in behind.ends:
                if end.native_turn == native or not native:
                    self._tell(turn_id, self._missed(end), quiet_s)
        body = events.InvariantViolated(
            what=f"the record of {session.record.row.provider} holds what the runtime did not observe",
            repair="it is read again by another watcher",
        )
        session.record.send(drafts=(events.Draft(body=body),))
        session.renew_watcher()

    def _missed(self, end: TurnClosed) -> stall.Wait:
        provider = self._session.record.row.provider
        at = f" at {stamp(end.evidence.native_at)}" if end.evidence.native_at is not None else ""
        said = f" with {stall.shown(end.answer)!r}" if end.answer is not None else ""
        what = f"{provider} {end.status}{at}{said}; the runtime did not observe it"
        return stall.Wait(kind="unobserved", what=what, since=end.evidence.native_at, evidence=end.evidence)

    # --- the diagnosis ------------------------------------------------------------------------------------------------

    def wait(self) -> stall.Wait | None:
        """What the session waits for now: its running turn, one whose end is not committed yet, a message that has no
        turn; None where nothing of it is open. One that was asked to end waits for the journal or for nobody.
        """
        core = self._session.core
        if self._session.closing and not self._journal_waits:
            return None
        turn_id = core.interrupted_turn() or next(iter(core.open), None)
        if turn_id is not None:
            return self.wait_of(turn_id)
        pending = next(iter(core.pending.values()), None)
        return self._diagnosed(None, pending) if pending is not None or self._session.closing else None

    def wait_of(self, turn_id: TurnId) -> stall.Wait:
        """What that open turn waits for now."""
        pending = next((each for each in self._session.core.pending.values() if each.turn_id == turn_id), None)
        return self._diagnosed(turn_id, pending)

    @property
    def _journal_waits(self) -> bool:
        return self._session.record.failing or self._session.deps.reader.failing

    def _diagnosed(self, turn_id: TurnId | None, pending: Pending | None) -> stall.Wait:
        session = self._session
        native = session.core.open.get(turn_id, "") if turn_id is not None else ""
        open_turn = session.turns.get(turn_id) if turn_id is not None else None
        accepted_at = pending.accepted_at if pending is not None else None
        dialog = session.cli.dialog
        return stall.diagnose(
            stall.View(
                provider=session.record.row.provider,
                stage=pending.stage if pending is not None else "",
                held=session.cli.held,
                dialog=(dialog.kind, dialog.question) if dialog is not None else None,
                journal_waits=self._journal_waits,
                settling=turn_id is not None and session.core.settling(turn_id),
                cli=session.cli.state,
                ending=session.cli.ending,
                unread=self._unread,
                status=self._status,
                track=self._tracks.get(native, stall.Track()),
                since=open_turn.turn.accepted_at if open_turn is not None else accepted_at,
            )
        )

    def _tell(self, turn_id: TurnId, wait: stall.Wait, quiet_s: float) -> None:
        session = self._session
        open_turn = session.turns.get(turn_id)
        began = open_turn.turn.accepted_at if open_turn is not None else None
        now = session.clock.wall()
        body = events.StallDiagnosed(
            kind=wait.kind,
            waits_for=f"{wait.what} for {now - wait.since:.0f} s" if wait.since is not None else wait.what,
            elapsed_s=now - began if began is not None else 0.0,
            quiet_s=quiet_s,
            evidence=_told(wait.evidence),
            provider=session.record.row.provider,
        )
        session.record.send(drafts=(events.Draft(body=body, turn_id=turn_id),))


def stamp(at: float) -> str:
    """Local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _told(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    return f"{evidence.source} byte {evidence.offset} id {evidence.native_id or '-'}"
