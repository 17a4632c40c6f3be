"""The open turns of a session: one actor each, replaced under a new epoch when it fails or is stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from lastword.actors import turn
from lastword.actors.core import turn as core
from lastword.actors.core.facts import CliStatusSeen
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.ports import MessageRow
from lastword.actors.system.actor import Actor
from lastword.actors.system.flow import Flow
from lastword.actors.system.ref import Ref
from lastword.actors.system.supervision import ChildFailed

TURN_RESTARTS_MAX = 3


class OpenTurn(msgspec.Struct, kw_only=True):
    """What is kept of an open turn, enough to replace its actor after a failure.

    ``told`` is everything that it was told but the CLI's passing states, of which the last one is ``status``; ``rows``
    is the last row of its own message that it was told. ``interrupted``: it was told to stop while it ran, or its
    interrupt is on its way to the CLI.
    """

    turn: core.Turn
    ref: Ref
    told: list[core.TurnEvent]
    messages: list[MessageId]
    deadline_mono_s: float | None
    status: CliStatusSeen | None = None
    rows: tuple[MessageRow, ...] = ()
    interrupted: bool = False


class OpenTurns:
    """Lives in one session's actor, whose children the turns are; not thread-safe."""

    def __init__(
        self, session: Actor, journal: Ref, certified: Callable[[], tuple[str, ...] | None], flow: Flow
    ) -> None:
        self._session = session
        self._journal = journal
        self._flow = flow
        self._certified = certified
        self._open: dict[TurnId, OpenTurn] = {}

    def __contains__(self, turn_id: object) -> bool:
        return turn_id in self._open

    def __iter__(self) -> Iterator[TurnId]:
        return iter(tuple(self._open))

    def __bool__(self) -> bool:
        return bool(self._open)

    def get(self, turn_id: TurnId) -> OpenTurn | None:
        """What is kept of it, while it is open."""
        return self._open.get(turn_id)

    def owned(self, rows: dict[MessageId, MessageRow]) -> dict[TurnId, tuple[MessageRow, ...]]:
        """Take out the rows of messages that own an open turn: they are for :meth:`tell`."""
        owned: dict[TurnId, tuple[MessageRow, ...]] = {}
        for row in tuple(rows.values()):
            open_turn = self._open.get(row.turn_id) if row.turn_id is not None else None
            if open_turn is not None and open_turn.turn.message_id == row.message_id:
                owned[open_turn.turn.turn_id] = (rows.pop(row.message_id),)
        return owned

    def begin(self, state: core.Turn, first: Iterable[core.TurnEvent], rows: tuple[MessageRow, ...] = ()) -> None:
        """Give the turn an actor and tell it the first events, and ``rows`` as :meth:`tell` does."""
        told = tuple(first)
        state = msgspec.structs.replace(state, certified=self._certified())
        ref = self._session.spawn(
            turn.TurnActor,
            self._journal,
            state,
            self._flow,
            name=f"{state.session_id}/{state.turn_id}#{state.epoch}",
        )
        messages = [state.message_id] if state.message_id is not None else []
        clock, deadline_at = self._session.clock, state.deadline_at
        self._open[state.turn_id] = OpenTurn(
            turn=state,
            ref=ref,
            told=list(told),
            messages=messages,
            deadline_mono_s=None if deadline_at is None else clock.monotonic() + deadline_at - clock.wall(),
            rows=rows,
        )
        self._tell(state.turn_id, ref, told, rows)

    def tell(self, turn_id: TurnId, *told: core.TurnEvent, rows: tuple[MessageRow, ...] = ()) -> None:
        """Tell it; what concerns a turn that is not open is a dead letter. ``rows``: of its own message, which it is to
        have committed with what comes of this; only of a turn that is open.
        """
        open_turn = self._open.get(turn_id)
        if open_turn is None:
            self._session.system.dead_letters.record("turn_not_open", self._session.ref.name, told[0])
            return
        for event in told:
            if isinstance(event, CliStatusSeen):
                open_turn.status = event
            else:
                open_turn.told.append(event)
        open_turn.rows = rows or open_turn.rows
        self._tell(turn_id, open_turn.ref, told, rows)

    def _tell(
        self, turn_id: TurnId, ref: Ref, told: tuple[core.TurnEvent, ...], rows: tuple[MessageRow, ...] = ()
    ) -> None:
        self._flow.take(turn_id)
        ref.tell(turn.Tell(turn_id=turn_id, events=told, messages=rows))

    def interrupt(self, turn_id: TurnId) -> None:
        """Its interrupt is as good as pressed."""
        open_turn = self._open.get(turn_id)
        if open_turn is not None:
            open_turn.interrupted = True

    @property
    def interrupted(self) -> bool:
        """Whether one of them is being interrupted: a dialog that is open then is not answered any more."""
        return any(open_turn.interrupted for open_turn in self._open.values())

    def finished(self, finished: turn.TurnFinished) -> OpenTurn | None:
        """It is settled: forget it. None for what an epoch says that is over: only one completion stands anyway."""
        open_turn = self._open.get(finished.turn_id)
        if open_turn is None or open_turn.turn.epoch != finished.epoch:
            return None
        self._flow.forget(finished.turn_id)
        return self._open.pop(finished.turn_id)

    def failed(self, failed: ChildFailed) -> bool:
        """Whether that was a turn's actor, and another has taken its place."""
        for turn_id, open_turn in self._open.items():
            if open_turn.ref == failed.ref:
                self._session.system.dead_letters.record("turn_actor_failed", self._session.ref.name, failed)
                return self.replace(turn_id)
        return False

    def replace(self, turn_id: TurnId) -> bool:
        """A new epoch takes its place and is told again all that the old one was told; False when it was too often."""
        open_turn = self._open[turn_id]
        if open_turn.turn.epoch > TURN_RESTARTS_MAX:
            return False
        open_turn.ref.stop()
        self._flow.forget(turn_id)
        clock, due_s = self._session.clock, open_turn.deadline_mono_s
        again = msgspec.structs.replace(
            open_turn.turn,
            epoch=open_turn.turn.epoch + 1,
            deadline_at=None if due_s is None else clock.wall() + due_s - clock.monotonic(),
        )
        status = (open_turn.status,) if open_turn.status is not None else ()
        self.begin(again, (*open_turn.told, *status), open_turn.rows)
        self._open[turn_id].messages = open_turn.messages
        self._open[turn_id].interrupted = open_turn.interrupted
        return True
