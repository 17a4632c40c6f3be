"""Asking: one message on its way to its answer, past actors that fail: no word is lost, none is said twice."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lastword.actors.admission import delivery_of
from lastword.actors.core.delivery import Delivery
from lastword.actors.core.errors import SessionFailedError
from lastword.actors.core.outcome import Completion
from lastword.actors.session import Control, Submit
from lastword.runtime._counterpart import Counterpart
from lastword.runtime._steps import Aside, Steps

if TYPE_CHECKING:
    from lastword.actors.system.ref import Ref

ACK_S = 30.0
"""How long an acknowledgement may take (it waits for the journal's commit only)."""
REPLACED_S = 30.0
"""How long another actor may take to stand in for one that failed, or its turns to get their last word."""


class Asking:
    """A submission, told and told anew under the same name to whoever takes the place of an actor that failed."""

    def __init__(self, counterpart: Counterpart, submission: Submit) -> None:
        self._counterpart = counterpart
        self._told = submission
        """The one that was told last."""

    def completed(self) -> Steps[Completion]:
        """How the turn ended that the message came to: for a submission with an ``outcome``."""
        done = yield from self._asked()
        assert isinstance(done, Completion)
        return done

    def acknowledged(self) -> Steps[Delivery]:
        """That the message is accepted: for a submission without an ``outcome``."""
        named = self._told.message_id is not None
        ack = yield from self._asked()
        assert isinstance(ack, Delivery)
        return ack if named or not ack.duplicate else msgspec.structs.replace(ack, duplicate=False)

    def abandon(self) -> None:
        """Nobody wants the answer any more: what runs of it is interrupted."""
        self._counterpart.abandon(self._told)

    def end(self) -> Steps[Completion]:
        """What it comes to once it was abandoned, however long that takes."""
        assert self._told.outcome is not None
        return self._counterpart.answer(self._told.outcome)

    def _asked(self) -> Steps[Completion | Delivery]:
        while True:
            told, ref = self._told, self._counterpart.ref
            try:
                ref = self._counterpart.tell(told, told.reply)
                if told.outcome is None:
                    return (yield from self._counterpart.answer(told.reply, ref, bound_s=ACK_S))
                return (yield from self._counterpart.answer(told.outcome, ref, bound_s=ACK_S, sign=told.reply))
            except SessionFailedError as error:
                left: Completion | Delivery | Submit = yield Aside(partial(self._left_by, ref, error))
                if not isinstance(left, Submit):
                    return left
                self._told = left

    def _left_by(self, failed: Ref | None, error: SessionFailedError) -> Completion | Delivery | Submit:
        """What that actor left of the message: what it came to, where nobody takes its place; else the same question.
        Blocks for :data:`REPLACED_S` at most.

        Raises:
            SessionFailedError: it was not accepted, and nobody takes its place.
        """
        told, shared = self._told, self._counterpart.shared
        self._counterpart.follow(failed, REPLACED_S)
        message_id = told.message_id or told.fresh_id
        assert message_id is not None
        if self._counterpart.ref is failed or shared.ended():
            row = shared.on_record.message(message_id)
            if row is None:
                raise error
            if told.outcome is None:
                return delivery_of(row)
            done = shared.on_record.completion(row.turn_id) if row.turn_id is not None else None
            if done is None:
                raise error
            return done
        outcome: Future[Completion] | None = Future() if told.outcome is not None else None
        return msgspec.structs.replace(told, message_id=message_id, reply=Future(), outcome=outcome)


def sent(counterpart: Counterpart, command: Submit | Control) -> Steps[Delivery]:
    """The acknowledgement of what a host sends.

    Raises: as :meth:`Counterpart.tell` and :meth:`Counterpart.answer`.
    """
    if isinstance(command, Submit):
        return (yield from Asking(counterpart, command).acknowledged())
    ref = counterpart.tell(command, command.reply)
    return (yield from counterpart.answer(command.reply, ref, bound_s=ACK_S))
