"""Taking up a session of an earlier life of the host: from the journal and the record, nothing typed again on a guess,
nothing settled by memory (C17).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from lastword.actors.core import session as core
from lastword.actors.core import turn as turn_core
from lastword.actors.core.adapter import Refused, TypedText
from lastword.actors.core.ids import TurnId
from lastword.actors.core.pending import Stage
from lastword.actors.core.ports import MessageRow, TurnRow
from lastword.actors.session_commands import Rehydrate

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor

_STAGES: dict[str, Stage] = {"queued": "queued", "submitted": "submitted"}


def rehydrate(session: SessionActor, known: Rehydrate) -> None:
    """Go on with what the journal knows; runs on the session actor's thread, as its first message."""
    session.record.reached(known.seq)
    session.last_completion = known.last_completion
    session.cli.epoch = known.epoch
    session.cli.last_at = known.last_at
    session.cli.told = known.dialog
    if known.dormant:
        session.cli.sleep()
        return
    session.book.rows.update({row.message_id: row for row in (*known.messages, *known.joined)})
    if known.messages:  # what the record tells of others again is not to be taken for news of these
        records = session.deps.reader.queue_records(session.record.row.session_id, core.READ_BEFORE_MAX)
        for record, times in Counter(records).items():
            session.core.read_before(record, times)
    for row in known.turns:
        _restore_turn(session, row, known.joined)
    for message in known.messages:
        if message.message_id not in session.core.pending and message.turn_id is None:
            _restore_message(session, message, None)
    session.stalls.follow()
    if known.endpoint is None:
        session.cli.mourn()
        return
    session.cli.attach(known.endpoint)
    session.cli.uncertain = tuple(session.core.pending)


def _restore_turn(session: SessionActor, row: TurnRow, joined: tuple[MessageRow, ...]) -> None:
    message = session.book.rows.get(row.message_id) if row.message_id is not None else None
    if row.native_turn:
        session.core.known_native(row.native_turn, row.turn_id)
    elif message is not None:
        _restore_message(session, message, row.turn_id)
    state = turn_core.TurnState(row.state)
    typed = message is not None and message.state in ("submitted", "queued")
    if typed and state is turn_core.TurnState.ACCEPTED:
        state = turn_core.TurnState.SUBMITTED  # the message's row was ahead of the turn's own
    cancelling = state is turn_core.TurnState.CANCELLING
    session.turns.begin(
        turn_core.Turn(
            turn_id=row.turn_id,
            session_id=row.session_id,
            provider=session.record.row.provider,
            transport=session.deps.transport.name,
            message_id=row.message_id,
            origin=row.origin,
            parent_turn_id=row.parent_turn_id,
            epoch=row.epoch,
            state=state,
            native_turn=row.native_turn,
            native_session=session.core.native_session,
            cli_version=session.core.cli_version,
            accepted_at=row.accepted_at,
            submitted_at=row.submitted_at,
            bound_at=row.bound_at,
            deadline_at=_deadline(session, row.deadline_at, row.accepted_at),
            joined=tuple(each.message_id for each in joined if each.turn_id == row.turn_id),
            cancel="interrupted" if cancelling else None,
            withdrawing=cancelling and not row.native_turn and row.submitted_at is None,
        ),
        (turn_core.Begin(),),
    )


def _restore_message(session: SessionActor, row: MessageRow, turn_id: TurnId | None) -> None:
    typed = session.admission.escape(row.text)
    if isinstance(typed, Refused):  # by a newer adapter: the record can still bind it, nothing will type it
        typed = TypedText(text=row.text, paste=row.text.encode(), rewritten=row.text)
    stage = _STAGES.get(row.state, "typing")
    clock_s = row.clock_s or None
    session.core.restore(row.message_id, typed, turn_id, stage, accepted_at=row.accepted_at, clock_s=clock_s)
    session.book.deliverable.add(row.message_id)
    if turn_id is None:
        deadline_at = _deadline(session, row.deadline_at, row.accepted_at)
        session.admission.arm_deadline(msgspec.structs.replace(row, deadline_at=deadline_at))


def _deadline(session: SessionActor, deadline_at: float | None, accepted_at: float) -> float | None:
    """One of an earlier life: by the wall, but never further away than it was when it was given."""
    return None if deadline_at is None else min(deadline_at, session.clock.wall() + deadline_at - accepted_at)
