"""The address of an actor: the only thing that others hold of it.

A ref stays good over restarts, and after the end it costs its holder no more than a name: the actor object
is not kept alive by it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec

from lastword.actors.core.errors import ActorError
from lastword.actors.system import deadletters
from lastword.actors.system.dispatcher import blocking
from lastword.actors.system.envelope import Envelope, Reply, context, next_number, origin
from lastword.actors.system.mailbox import STOP, Offer

if TYPE_CHECKING:
    from lastword.actors.system.cell import Cell


class Ref:
    """Tell, ask, stop. Equal and hashed by the actor's urn; every method is safe from any thread."""

    __slots__ = ("__weakref__", "_cell", "name", "urn")

    def __init__(self, cell: Cell, name: str, urn: str) -> None:
        self._cell = cell
        self.name = name
        self.urn = urn

    def tell(self, message: object, *, control: bool = False) -> None:
        """Queue a message and return at once.

        Messages of one sender arrive in order; control messages pass the queued user messages. A dead actor's
        message goes to the dead letters.

        Raises: ``ActorError("mailbox_full")``; nothing was queued then.
        """
        offer = self._offer(message, control)
        if offer is not Offer.TAKEN:
            self._refused(offer, message)

    def try_tell(self, message: object, *, control: bool = False, waiting_max: int | None = None) -> bool:
        """As ``tell``, but says whether it was queued. Dead: a dead letter and False; full: just False.

        ``waiting_max``: no more than so many user messages may wait before it, so that there is room for others.
        """
        offer = self._offer(message, control, waiting_max=waiting_max)
        if offer is Offer.CLOSED:
            self._cell.system.dead_letters.record(deadletters.DEAD, self.name, message)
        return offer is Offer.TAKEN

    def ask(self, message: object, *, timeout_s: float, waiting_max: int | None = None) -> Any:
        """Tell and wait for the handler's return value. For the host's threads; actors tell.

        Never waits for a dead actor, nor for one that dies with the question queued or half handled.

        Raises: what the handler raised; ``ActorError`` with kind ``actor_dead``, ``mailbox_full`` or
        ``timeout``.
        """
        reply = Reply()
        offer = self._offer(message, control=False, reply=reply, waiting_max=waiting_max)
        if offer is Offer.CLOSED:
            raise ActorError("actor_dead", f"actor {self.name} has ended")
        if offer is Offer.FULL:
            raise self._full()
        timeout_s = self._cell.system.wait_s(reply.done, timeout_s)
        if context.pool is None:
            return reply.wait(timeout_s)
        with blocking():
            return reply.wait(timeout_s)

    def stop(self, *, control: bool = True) -> None:
        """Ask it to end: after the message in hand, or with ``control=False`` after those queued now."""
        number = next_number()
        envelope = Envelope(STOP, None, None, number, 0, number, perf_counter_ns())
        self._cell.mailbox.offer_stop(envelope, control=control)

    def is_alive(self) -> bool:
        """Whether it still takes messages."""
        return not self._cell.mailbox.closed

    def when_ended(self, wake: Callable[[], object]) -> None:
        """Have that called once the actor has ended, by whoever ends it, or at once where it has: for those who wait
        and are no actor. It must return at once and must not raise. From any thread.
        """
        self._cell.when_ended(wake)

    def forget_end(self, wake: Callable[[], object]) -> None:
        """Nobody waits any more: the same object that was given. From any thread."""
        self._cell.forget_end(wake)

    def has_failed(self) -> bool:
        """Whether it ends, or has ended, of what it raised."""
        return self._cell.failure is not None or self._cell.ending_reason == "failed"

    def waiting(self) -> int:
        """Messages that are queued for it now."""
        return self._cell.mailbox.waiting()

    def _offer(
        self, message: object, control: bool, reply: Reply | None = None, waiting_max: int | None = None
    ) -> Offer:
        here = context.cell
        number = next_number()
        if here is None:
            envelope = Envelope(message, reply, None, context.trace or number, 0, number, perf_counter_ns())
            if self._cell.system.tracer is not None:
                envelope.origin = origin()
        elif (handled := here.mailbox.current) is None:
            envelope = Envelope(message, reply, here.ref, number, 0, number, perf_counter_ns())
        else:
            envelope = Envelope(message, reply, here.ref, handled.trace, handled.number, number, perf_counter_ns())
        return self._put(envelope, control, waiting_max)

    def _put(self, envelope: Envelope, control: bool, waiting_max: int | None = None) -> Offer:
        if control:
            return self._cell.mailbox.offer_system(envelope, control=True, bounded=True)
        return self._cell.mailbox.offer(envelope, waiting_max)

    def _refused(self, offer: Offer, message: object) -> None:
        self._cell.system.dead_letters.record(
            deadletters.DEAD if offer is Offer.CLOSED else deadletters.MAILBOX_FULL, self.name, message
        )
        if offer is Offer.FULL:
            raise self._full()

    def _full(self) -> ActorError:
        box = self._cell.mailbox
        return ActorError(
            "mailbox_full",
            f"actor {self.name} has {box.waiting()} messages queued, at most {box.messages_max}",
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Ref) and other.urn == self.urn)

    def __hash__(self) -> int:
        return hash(self.urn)

    def __repr__(self) -> str:
        return f"Ref({self.name!r})"


class Link(msgspec.Struct):
    """An address with a cause: what is told by it belongs to a known handling, whichever thread tells it, and when.

    For what the edge answers later. Safe from any thread, as a ref is.

    Attributes:
        ref: who is told.
        trace: of the handling.
        cause: the number of the handling's envelope.
    """

    ref: Ref
    trace: int | str
    cause: int

    def tell(self, message: object, *, control: bool = False) -> None:
        """As :meth:`Ref.tell`."""
        offer = self._offer(message, control)
        if offer is not Offer.TAKEN:
            self.ref._refused(offer, message)  # noqa: SLF001

    def try_tell(self, message: object, *, control: bool = False) -> bool:
        """As :meth:`Ref.try_tell`."""
        offer = self._offer(message, control)
        if offer is Offer.CLOSED:
            self.ref._refused(offer, message)  # noqa: SLF001
        return offer is Offer.TAKEN

    def _offer(self, message: object, control: bool) -> Offer:
        here, number = context.cell, next_number()
        if here is None:
            sender, told_by = None, context.origin or origin()
        else:
            sender, told_by = here.ref, None
        envelope = Envelope(message, None, sender, self.trace, self.cause, number, perf_counter_ns(), told_by)
        if control:
            return self.ref._cell.mailbox.offer_system(envelope, control=True, bounded=True)  # noqa: SLF001
        return self.ref._cell.mailbox.offer(envelope)  # noqa: SLF001
