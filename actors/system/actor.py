"""The base of every actor: a real ``pykka.Actor`` whose loop is run in slices by a dispatcher.

A subclass implements ``receive`` and knows neither its dispatcher nor its threads. It never blocks unless
it is spawned pinned. pykka's own ways in (``start``, proxies) are closed: an actor is made by ``spawn``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, cast, final

import pykka

from lastword.actors.core.errors import UsageError
from lastword.actors.system.envelope import context, trace_text
from lastword.actors.system.mailbox import STOP
from lastword.actors.system.ref import Link, Ref
from lastword.actors.system.supervision import ChildFailed
from lastword.actors.system.tracing import Record

if TYPE_CHECKING:
    import threading

    from lastword.actors.system.cell import ActorTimer
    from lastword.actors.system.clock import Clock
    from lastword.actors.system.envelope import Envelope
    from lastword.actors.system.system import ActorSystem


class _Flag:
    """Whether an actor stops, in the place of pykka's ``Event``, of which nobody waits: 0.1 KiB for 1.1."""

    __slots__ = ("_on",)

    def __init__(self) -> None:
        self._on = False

    def is_set(self) -> bool:
        return self._on

    def set(self) -> None:
        self._on = True


class Actor(pykka.Actor):
    """Subclass and implement ``receive``; all hooks run on the dispatcher, one at a time.

    ``__init__`` runs in the spawning thread (in the dispatcher on a restart), may take arguments and must
    call ``super().__init__()`` before it uses any attribute below.
    """

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        cell = context.newborn
        if cell is None:
            raise UsageError("usage", f"{type(self).__name__} is made by spawn, not by itself")
        super().__init__()
        self._cell = cell
        self.actor_stopped = self.actor_ref.actor_stopped = cast("threading.Event", _Flag())
        self.actor_urn = self.actor_ref.actor_urn = cell.ref.urn

    # to implement

    def receive(self, message: Any) -> Any:
        """Handle one message; what it returns answers an ``ask``.

        Raising: the asker gets the exception; where nobody asked, the actor fails and its parent is told.
        """
        raise NotImplementedError

    def started(self) -> None:
        """Runs before the first message of each incarnation. Raising is a failure."""

    def stopped(self) -> None:
        """Runs at the end of each incarnation, failed ones too: release what you hold, and be quick."""

    def child_failed(self, failed: ChildFailed) -> Any:
        """A child failed. Unless overridden it goes to ``receive`` as any message."""
        return self.receive(failed)

    # to use

    @property
    def ref(self) -> Ref:
        """The own address."""
        return self._cell.ref

    @property
    def system(self) -> ActorSystem:
        """The system it lives in."""
        return self._cell.system

    @property
    def clock(self) -> Clock:
        """The system's clock."""
        return self._cell.system.clock

    @property
    def parent(self) -> Ref | None:
        """Who spawned it, if that was an actor or was named."""
        return self._cell.parent.ref if self._cell.parent is not None else None

    @property
    def incarnation(self) -> int:
        """1, and one more after each restart."""
        return self._cell.incarnation

    @property
    def failure(self) -> BaseException | None:
        """What this incarnation ends of; None where it did not fail."""
        return self._cell.failure

    @property
    def sender(self) -> Ref | None:
        """Who told the message in hand; None from outside of all actors."""
        envelope = self._cell.mailbox.current
        return envelope.sender if envelope is not None else None

    @property
    def trace_id(self) -> str:
        """The trace that the message in hand belongs to; empty outside of handlers."""
        envelope = self._cell.mailbox.current
        return trace_text(envelope.trace) if envelope is not None else ""

    @property
    def answers(self) -> Ref | Link:
        """The own address for whoever answers the message in hand later, from outside or from another message's
        handling: where it is traced, the answer is caused by this message. For one wish; take it in its handler.
        """
        cell = self._cell
        if cell.system.tracer is None or (envelope := cell.mailbox.current) is None:
            return cell.ref
        return Link(cell.ref, envelope.trace, envelope.number)

    def belongs_to(self, trace: str, *, surely: bool = False) -> None:
        """What is told from here on, to the end of this message's handling, belongs to that trace, and so does the
        message itself where it belonged to none by name, or ``surely``. Does nothing where nothing is traced.
        """
        if self._cell.system.tracer is not None and (envelope := self._cell.mailbox.current) is not None:
            if surely or envelope.trace.__class__ is int:
                envelope.about = trace
            elif envelope.about is None:
                envelope.about = str(envelope.trace)
            envelope.trace = trace

    @property
    def in_hand(self) -> Envelope | None:
        """The message in hand as it came; None outside of handlers."""
        return self._cell.mailbox.current

    def tell_as(self, cause: Envelope | None) -> None:
        """What is told from here on, until that is said again or the handling ends, is caused by that: for what is
        done in one handling for the sake of others.
        """
        self._cell.mailbox.current = cause

    def note(self, record: Record) -> None:
        """Have the tracer take that, if there is one."""
        tracer = self._cell.system.tracer
        if tracer is not None:
            try:
                tracer.handled(record)
            except Exception as error:
                self._cell.tracer_raised(error, record)

    def lives_in(self, trace: str) -> None:
        """All that this actor ever handles belongs to that trace."""
        self._cell.trace = trace

    def spawn(self, actor_class: type[Actor], *args: Any, name: str, **kwargs: Any) -> Ref:
        """Make a child; arguments as ``ActorSystem.spawn``. It ends when this actor ends."""
        return self._cell.system.spawn(actor_class, *args, name=name, parent=self.ref, **kwargs)

    def watch(self, ref: Ref) -> None:
        """Have one ``Terminated`` told to this actor when that one ends, or at once if it has."""
        ref._cell.add_watcher(self.ref)  # noqa: SLF001  # refs hide their cell from all but the system

    def unwatch(self, ref: Ref) -> None:
        """No ``Terminated`` for it any more; one that is queued already still comes."""
        ref._cell.remove_watcher(self.ref)  # noqa: SLF001

    def after(self, delay_s: float, message: object, key: Hashable | None = None, *, control: bool = False) -> None:
        """Tell oneself a message after a delay. The same key replaces; ends with the incarnation.

        Without a key the message cannot be cancelled. Once cancelled or replaced it can not arrive any
        more, not even where it was already queued.
        """
        self._cell.set_timer(delay_s, message, key, control=control)

    def cancel_timer(self, key: Hashable) -> bool:
        """Whether there was one that had not been handled."""
        return self._cell.cancel_timer(key)

    def more_waiting(self) -> bool:
        """Whether further messages are queued now; lets a writer commit once for many."""
        return not self._cell.mailbox.empty()

    def stop(self) -> None:
        """End after the message in hand."""
        if context.cell is self._cell:
            self._cell.request_stop()
        else:
            self.ref.stop()

    # pykka's seams

    @final
    def on_receive(self, message: Any) -> Any:
        """The guard: nothing raised here reaches pykka's loop, which would log it or stop all actors."""
        cell = self._cell
        if message is STOP:
            cell.mailbox.forget_hop()
            return cell.request_stop()
        if message.__class__ is cell.timer_class:
            timer: ActorTimer = message
            if not timer.take():
                cell.mailbox.forget_hop()
                return None
            message = timer.message
        try:
            if message.__class__ is ChildFailed:
                return self.child_failed(message)
            return self.receive(message)
        except BaseException as error:
            return cell.handler_raised(error, message)

    _handle_receive = on_receive  # spares each message pykka's four isinstance checks; works without it too

    @final
    def on_start(self) -> None:
        """The start hook of pykka: the guarded ``started``."""
        try:
            self.started()
        except BaseException as error:
            self._cell.hook_raised(error, "started")

    @staticmethod
    def _create_actor_inbox() -> Any:
        assert context.newborn is not None
        return context.newborn.mailbox

    @staticmethod
    def _create_future() -> pykka.Future[Any]:
        return pykka.ThreadingFuture()

    def _start_actor_loop(self) -> None:
        raise UsageError("usage", "the dispatcher runs the loop")
