"""StdioActor: sole writer to one CLI's stdin. Drives a :class:`~lastword.actors.core.talk.Talk`.

It hears the child by reading the file that the child's stdout is, as the transcript watcher does for facts: this one
listens for what is said to us (handshakes, dialogs, receipts), that one for what happened. Nothing here ends a turn.

A conversation that the CLI names is spoken in once that name is on record: else a host that dies in between could find
its end and not itself again.

A CLI whose host died has lost its stdin: it is not spoken to again (*mute*). It is left to end by itself, and what is
delivered meanwhile waits for the next one. One that reads a file instead is spoken to on: its talk first hears all that
it ever said.
"""

from __future__ import annotations

from itertools import count
from typing import TypeAlias, assert_never, cast

import msgspec

from lastword.actors.core import typing_effects as reports
from lastword.actors.core.adapter import LaunchRequest, StructuredAdapter, cli_names_itself
from lastword.actors.core.errors import LastwordError, RejectedError
from lastword.actors.core.talk import GiveUp, Named, Remind, Talk, TalkEffect, TalkReport, Write
from lastword.actors.core.transcript import LineFramer
from lastword.actors.core.typing_effects import Report
from lastword.actors.core.world import (
    Bytes,
    Files,
    Missing,
    NotWritten,
    PerhapsWritten,
    Rewritten,
    StdioEndpoint,
    StdioTransport,
    Unreadable,
    Wakes,
    WriteResult,
    Written,
)
from lastword.actors.mouth import (
    AnswerDialog,
    Attach,
    Close,
    Closed,
    Deliver,
    Gone,
    Kept,
    Known,
    MouthCommand,
    MouthReport,
    MovedUnseen,
    Nudge,
    Open,
    Opened,
    OpenFailed,
    PressInterrupt,
    Prove,
    Said,
    Withdraw,
)
from lastword.actors.system.actor import Actor

READ_BYTES_MAX = 1024 * 1024
"""Heard in one go; more waits for the actor's next message."""
MUTE_INTERRUPT_GRACE_S = 1.0
"""An orphan can be interrupted by a signal only: between the gentle one and the hard one."""
GIVEN_UP_GRACE_S = 1.0
EXIT_TOLD_S = 1.0
"""Once a child is closed: how long its own exit, which tells the status, may take to be heard."""


class _Opened(msgspec.Struct, frozen=True):
    result: StdioEndpoint | LastwordError
    epoch: int


class _WriteDone(msgspec.Struct, frozen=True):
    number: int
    result: WriteResult
    epoch: int


class _Heard(msgspec.Struct, frozen=True):
    """The file may have grown."""

    epoch: int


class _Reminded(msgspec.Struct, frozen=True):
    name: str
    epoch: int


class _Exited(msgspec.Struct, frozen=True):
    status: int | None
    epoch: int
    alone: bool = False
    """What it had started has ended too."""


class _Closed(msgspec.Struct, frozen=True):
    epoch: int
    waited: bool = False


_FromEdge: TypeAlias = _Opened | _WriteDone | _Heard | _Reminded | _Exited | _Closed
StdioCommand: TypeAlias = MouthCommand | _FromEdge


class StdioActor(Actor):
    """One CLI behind a pipe.

    Args:
        transport: opens children.
        adapter: the provider.
        files: reads what a child says.
        wakes: hints about it.
    """

    def __init__(self, transport: StdioTransport, adapter: StructuredAdapter, files: Files, wakes: Wakes) -> None:
        super().__init__()
        self._transport = transport
        self._adapter = adapter
        self._files = files
        self._wakes = wakes
        self._epoch = 0
        self._name = ""
        self._talk: Talk | None = None
        """None before the first child, and while the child is mute or gone."""
        self._request: LaunchRequest | None = None
        self._endpoint: StdioEndpoint | None = None
        self._token: object | None = None
        self._hinted = False
        self._framer = LineFramer()
        self._offset = 0
        self._writing: dict[int, Write] = {}
        self._numbers = count(1)
        self._reminders: set[str] = set()
        self._native_session = ""
        self._unrecorded: list[TalkEffect] | None = None
        """What is to be done once the conversation's name is on record; None: it is."""
        self._was_ready = False
        self._given_up = ""
        self._closing: float | None = None
        self._kept = False
        self._left = False
        self._closed = False
        """The child is closed; told once its exit was."""
        self._gone: Gone | None = None
        """Its exit, in a close: told once what it started has ended too."""
        self._opening = False
        self._replayed: list[TalkEffect] | None = None
        """What the talk makes of all that was said before it was taken over; None: it hears what is said."""

    def receive(self, message: StdioCommand) -> None:
        match message:
            case Open():
                self._open(message)
            case Attach():
                self._attach(message, cast("StdioEndpoint", message.endpoint))
            case Close():
                self._close(message.grace_s)
            case Nudge() | MovedUnseen():
                self._read()
            case Kept():
                self._kept = self._kept or message.epoch == self._epoch
            case Known():
                if message.epoch == self._epoch and message.native_session == self._native_session:
                    self._recorded()
            case Deliver() | Withdraw() | PressInterrupt() | AnswerDialog() | Prove():
                self._wanted(message)
            case _Opened() | _WriteDone() | _Heard() | _Reminded() | _Exited() | _Closed():
                if message.epoch == self._epoch:
                    self._from_edge(message)
                elif isinstance(message, _Opened) and not isinstance(message.result, LastwordError):
                    message.result.close(0.0, lambda: None)  # opened for an epoch that is over
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """A child of which nobody else knows ends; at the system's own end its edge ends all."""
        self._deafen()
        self._left = not self.system.closing
        if self._left and self._endpoint is not None and not self._kept:
            self._endpoint.close(0.0, lambda: None)

    def _wanted(self, message: Deliver | Withdraw | PressInterrupt | AnswerDialog | Prove) -> None:
        talk = self._talk
        if talk is None:
            self._mute(message)
            return
        match message:
            case Deliver():
                self._read()  # it speaks by what it has heard
                self._do(talk.deliver(message.job))
            case Withdraw():
                self._do(talk.withdraw(message.message_id))
            case PressInterrupt():
                self._read()  # what is over is not interrupted: the next one would be
                self._do(talk.interrupt(message.turn_id))
            case AnswerDialog():
                self._do(talk.answer(message.token, message.dialog_id, message.option))
            case Prove():
                self._do(talk.proved(message.message_id))
            case _:
                assert_never(message)

    def _mute(self, message: Deliver | Withdraw | PressInterrupt | AnswerDialog | Prove) -> None:
        """Nobody hears us. What is delivered waits: the session hands it to the next CLI, in order."""
        match message:
            case PressInterrupt() if self._endpoint is not None:
                self._say(reports.Interrupted(turn_id=message.turn_id))
                self._endpoint.close(MUTE_INTERRUPT_GRACE_S, lambda: None)
            case AnswerDialog():
                self._say(reports.AnswerResult(token=message.token, applied=False))
            case PressInterrupt() | Deliver() | Withdraw() | Prove():
                pass
            case _:
                assert_never(message)

    def _from_edge(self, message: _FromEdge) -> None:
        match message:
            case _Opened(result=LastwordError() as error):
                self._opening = False
                self._talk = None
                self._report(OpenFailed(epoch=self._epoch, error=error))
            case _Opened(result=endpoint):
                assert not isinstance(endpoint, LastwordError)
                self._opened(endpoint)
            case _WriteDone():
                self._written(message.number, message.result)
            case _Heard():
                self._hinted = False  # before reading: what comes after it is worth another hint
                self._read()
            case _Reminded():
                self._reminders.discard(message.name)
                if self._talk is not None:
                    self._do(self._talk.reminded(message.name))
            case _Exited():
                self._ended(message)
            case _Closed() if self._endpoint is not None and not message.waited:
                self._closed = True  # its exit is on its way, and tells how it ended
                self.after(EXIT_TOLD_S, _Closed(message.epoch, waited=True), key="closed")
            case _Closed():
                self._tell_closed()
            case _:
                assert_never(message)

    # --- life of the child ------------------------------------------------------------------------------------------

    def _begin(self, epoch: int, request: LaunchRequest, name: str) -> None:
        self._deafen()
        self._epoch = epoch
        self._request = request
        self._name = name
        self._talk = None
        self._framer = LineFramer()
        self._offset = 0
        self._writing.clear()
        self._native_session = request.native_session
        self._unrecorded = None
        self._was_ready = False
        self._given_up = ""
        self._closing = None
        self._closed = False
        self._kept = False
        self._gone = None

    def _open(self, message: Open) -> None:
        self._begin(message.epoch, message.request, message.name)
        self._talk = self._adapter.talk(message.request)
        self._opening = True
        epoch, ref = self._epoch, self.answers

        def told(result: StdioEndpoint | LastwordError) -> None:
            if self._left and not isinstance(result, LastwordError):
                result.close(0.0, lambda: None)  # nobody is here any more, nor anybody who could find it
            else:
                ref.tell(_Opened(result, epoch))

        self._transport.open(
            message.name,
            message.recipe.argv,
            cwd=message.request.cwd,
            env=message.recipe.env,
            on_opened=told,
            stdout=message.recipe.stdout,
            exit_noted=message.recipe.exit_noted,
        )

    def _attach(self, attach: Attach, endpoint: StdioEndpoint) -> None:
        """One of an earlier life of the host, which heard all that is there; a conversation that it was in meanwhile
        and has left again is no news.
        """
        self._begin(attach.epoch, attach.request, name="")
        self._kept = True
        self._was_ready = True  # in the life before: its end is no failed start
        if endpoint.orphaned:
            self._opened(endpoint)
            return
        self._talk = self._adapter.talk(attach.request)
        self._replayed = []
        self._opened(endpoint)
        self._read_rest()
        effects, self._replayed = self._replayed, None
        self._do(_news(effects))

    def _opened(self, endpoint: StdioEndpoint) -> None:
        self._opening = False
        self._endpoint = endpoint
        epoch, ref = self._epoch, self.ref
        self._report(
            Opened(
                epoch=epoch,
                pane_id=endpoint.pane_id,
                pid=endpoint.pid,
                pid_start=endpoint.pid_start,
                attach=self._transport.attach_command(endpoint),
            )
        )
        self._transport.watch_exit(endpoint, lambda status: ref.tell(_Exited(status, epoch)))
        if self._closing is not None:
            self._close(self._closing)
        elif self._talk is not None:
            self._listen()
            self._do(self._talk.opened())

    def _ended(self, exited: _Exited) -> None:
        """It has exited; what it started may hold its stdout still, and write there what it makes of the end: that is
        ended first, and only then is the record one that nobody adds to.
        """
        endpoint, epoch, ref = self._endpoint, self._epoch, self.ref
        if exited.alone or endpoint is None or self._closing is not None:
            self._exited(exited.status)
        else:
            endpoint.close(0.0, lambda: ref.tell(_Exited(exited.status, epoch, alone=True)))

    def _exited(self, status: int | None) -> None:
        if self._endpoint is None:
            return  # told twice: by its exit within a close, and by what it had started
        self._read_rest()
        self._unrecorded = None  # what it was not told, the next one will be
        for number in list(self._writing):  # at most once: what may have been written counts as written
            self._written(number, Written())
        talk, self._talk = self._talk, None
        if talk is not None:
            self._do(talk.gone())
        self._deafen()
        for name in self._reminders:
            self.cancel_timer(("remind", name))
        self._reminders.clear()
        self._endpoint = None
        words = "" if self._was_ready else self._given_up or self._transport.last_words(self._name)
        self._gone = Gone(epoch=self._epoch, exit_status=status, was_ready=self._was_ready, last_words=words)
        if self._closed:
            self.cancel_timer("closed")
            self._tell_closed()
        elif self._closing is None:
            self._tell_gone()

    def _tell_gone(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            self._report(gone)

    def _tell_closed(self) -> None:
        self._closed = False
        self._tell_gone()
        self._report(Closed(epoch=self._epoch))

    def _close(self, grace_s: float) -> None:
        self._closing = grace_s
        epoch, ref = self._epoch, self.answers
        if self._opening:
            pass  # closed as soon as it is open: nothing may come up behind our back
        elif self._endpoint is None:
            self._report(Closed(epoch=epoch))
        else:
            self._endpoint.close(grace_s, lambda: ref.tell(_Closed(epoch), control=True))

    # --- hearing ----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self._request is not None
        heard, epoch, ref = self._request.heard, self._epoch, self.ref

        def wake() -> None:  # on the edge's thread: only tells; a full mailbox is as good as a hint that waits
            if not self._hinted:
                self._hinted = True
                if not ref.try_tell(_Heard(epoch)):
                    self._hinted = False

        self._hinted = False
        self._token = self._wakes.watch(heard.path, heard.root, wake)
        self._read()

    def _deafen(self) -> None:
        if self._token is not None:
            self._wakes.unwatch(self._token)
            self._token = None

    def _read(self) -> None:
        if self._talk is not None and self._endpoint is not None and self._read_once():
            self.ref.try_tell(_Heard(self._epoch))  # more waits: take turns with the other sessions

    def _read_rest(self) -> None:
        while self._talk is not None and self._read_once():
            pass

    def _read_once(self) -> bool:
        """Hear one piece; whether there is more."""
        assert self._request is not None
        read = self._files.read_from(self._request.heard.path, self._offset, READ_BYTES_MAX, 0, 0)
        match read:
            case Bytes():
                self._offset += len(read.data)
                for line in self._framer.feed(read.data):
                    if line.data and self._talk is not None:
                        self._do(self._talk.heard(line.data))
                return bool(read.data) and self._offset < read.size
            case Missing() | Unreadable() | Rewritten():
                return False  # the sweep looks again
            case _:
                assert_never(read)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _recorded(self) -> None:
        waiting, self._unrecorded = self._unrecorded, None
        self._do(waiting or [])

    def _do(self, effects: list[TalkEffect]) -> None:
        if self._replayed is not None:
            self._replayed += effects
            return
        for number, effect in enumerate(effects):
            if self._unrecorded is not None:
                self._unrecorded += effects[number:]
                return
            match effect:
                case Named() if effect.native_session != self._native_session and cli_names_itself(self._adapter):
                    # only then is it said that the name is on record
                    self._native_session = effect.native_session
                    self._unrecorded = []
                    self._say(effect)
                case Write():
                    self._write(effect)
                case Remind():
                    self._reminders.add(effect.name)
                    self.after(effect.delay_s, _Reminded(effect.name, self._epoch), key=("remind", effect.name))
                case GiveUp():
                    self._given_up = effect.reason
                    if self._endpoint is not None:
                        self._endpoint.close(GIVEN_UP_GRACE_S, lambda: None)
                case (
                    Named()
                    | reports.Submitted()
                    | reports.WithdrawnReport()
                    | reports.NotDelivered()
                    | reports.LeftBehind()
                    | reports.Delivered()
                    | reports.Interrupted()
                    | reports.NothingToInterrupt()
                    | reports.DialogSeen()
                    | reports.DialogGone()
                    | reports.AnswerResult()
                    | reports.BecameReady()
                    | reports.Held()
                ):
                    self._say(effect)
                case _:
                    assert_never(effect)

    def _write(self, write: Write) -> None:
        endpoint, epoch, ref = self._endpoint, self._epoch, self.answers
        if endpoint is None:
            return  # it is gone: what was to be said is the next one's
        number = next(self._numbers)
        self._writing[number] = write
        if self._adapter.keeps_sent:
            try:
                self._transport.keep(self._name, write.data)
            except LastwordError as error:
                self._written(number, NotWritten(RejectedError("overloaded", error.reason)))
                return
        endpoint.write(write.data, lambda result: ref.tell(_WriteDone(number, result, epoch)))

    def _written(self, number: int, result: WriteResult) -> None:
        write = self._writing.pop(number, None)
        if write is None:
            return
        match result:
            case Written() | PerhapsWritten():
                told: tuple[Report | GiveUp, ...] = write.after
            case NotWritten() if result.error.kind == "overloaded":
                told = write.failed
            case NotWritten():
                told = ()  # the child is ending: the session hands it to the next one
            case _:
                assert_never(result)
        self._do(list(told))

    def _say(self, report: TalkReport) -> None:
        if isinstance(report, reports.BecameReady):
            self._was_ready = True
        self._report(Said(epoch=self._epoch, report=report, at=self.clock.wall()))

    def _report(self, report: MouthReport) -> None:
        assert self.parent is not None
        self.parent.tell(report)


def _news(effects: list[TalkEffect]) -> list[TalkEffect]:
    """Of all that was heard of a time that is past, what holds now: the last name, and the dialog that is open, told
    before that it takes text: what an earlier life told as open is gone, where it is not told by then.
    """
    gone = {effect.dialog_id for effect in effects if isinstance(effect, reports.DialogGone)}
    *_, name = (None, *(effect for effect in effects if isinstance(effect, Named)))
    news = [
        effect
        for effect in effects
        if not isinstance(effect, Named | reports.DialogGone)
        and not (isinstance(effect, reports.DialogSeen) and effect.dialog_id in gone)
    ]
    news.sort(key=lambda effect: not isinstance(effect, reports.DialogSeen))
    return [*news, name] if name is not None else news


__all__ = ["StdioActor"]
