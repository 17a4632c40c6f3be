"""PaneActor: sole writer to one CLI's pane. Drives :mod:`lastword.actors.core.typing` and carries out its effects.

It reads the screen for two purposes only: whether it may type, and what a person is being asked. Nothing here can
end a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, assert_never, cast

import msgspec

from lastword.actors.core import typing as core
from lastword.actors.core import typing_effects
from lastword.actors.core.adapter import LaunchRequest, NotReady, PaneAdapter, Ready, Signal, SignalView
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.talk import Named
from lastword.actors.core.world import (
    Files,
    PaneEndpoint,
    PaneTransport,
    PressResult,
    RefusedKeys,
    ScreenView,
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

STATUS_BYTES_MAX = 64 * 1024
LAST_LOOK_S = 5.0
"""How long the end of a CLI that was never ready may wait for what its pane shows then; usually about a millisecond."""
LOOK_AGAIN_S = 0.01
"""Between two last looks: that a process is gone is known before its pane has shown all that it wrote."""
LAST_WORDS_CHARS = 400

# --- from the edge ------------------------------------------------------------------------------------------------


class _Opened(msgspec.Struct, frozen=True):
    result: PaneEndpoint | LastwordError
    epoch: int


class _Looked(msgspec.Struct, frozen=True):
    number: int
    result: ScreenView | LastwordError
    epoch: int


class _Pasted(msgspec.Struct, frozen=True):
    ok: bool
    epoch: int


class _Pressed(msgspec.Struct, frozen=True):
    press: typing_effects.Press
    ok: bool
    epoch: int


class _LookDue(msgspec.Struct, frozen=True):
    epoch: int


class _Exited(msgspec.Struct, frozen=True):
    status: int | None
    epoch: int


class _LookedLast(msgspec.Struct, frozen=True):
    """What the dead pane shows; None: nothing was seen in time."""

    result: ScreenView | LastwordError | None
    status: int | None
    epoch: int


class _LastLookDue(msgspec.Struct, frozen=True):
    status: int | None
    epoch: int


class _Closed(msgspec.Struct, frozen=True):
    epoch: int


_Last: TypeAlias = _Exited | _LookedLast | _LastLookDue | _Closed
_FromEdge: TypeAlias = _Opened | _Looked | _Pasted | _Pressed | _LookDue | _Last
PaneCommand: TypeAlias = MouthCommand | _FromEdge


class PaneActor(Actor):
    """One pane.

    Args:
        transport: opens endpoints.
        adapter: the provider.
        files: reads the CLI's registry.
    """

    def __init__(self, transport: PaneTransport, adapter: PaneAdapter, files: Files) -> None:
        super().__init__()
        self._transport = transport
        self._adapter = adapter
        self._files = files
        self._core = core.PaneCore(adapter, 0)
        self._epoch = 0
        self._endpoint: PaneEndpoint | None = None
        self._request: LaunchRequest | None = None
        self._status_path = ""
        self._named = ""
        """The conversation that the session knows of, and has on record."""
        self._named_at: float | None = None
        """When it was last seen there."""
        self._held_files: tuple[str, ...] = ()
        """What the CLI held open at the last look."""
        self._was_ready = False
        self._entered_at: float | None = None
        self._last_screen: tuple[str, ...] = ()
        self._closing: float | None = None
        self._opening = False
        self._kept = False
        self._dying = False
        """Its process is gone, and what it showed at its end is still looked at."""
        self._left = False

    def receive(self, message: PaneCommand) -> None:
        now_s = self.clock.monotonic()
        match message:
            case (
                _Looked()
                | _Pasted()
                | _Pressed()
                | _Opened()
                | _LookDue()
                | _Exited()
                | _LookedLast()
                | _LastLookDue()
                | _Closed()
            ):
                if message.epoch == self._epoch:
                    self._from_edge(message, now_s)
                elif isinstance(message, _Opened) and not isinstance(message.result, LastwordError):
                    message.result.close(0.0, lambda: None)  # opened for an epoch that is over
            case Open():
                self._open(message)
            case Kept():
                self._kept = self._kept or message.epoch == self._epoch
            case Attach():
                self._begin(message.epoch, message.request)
                self._kept = True
                self._core.left_behind(message.command, message.texts)
                self._opened(cast("PaneEndpoint", message.endpoint))
            case Deliver():
                self._do(self._core.deliver(message.job, now_s))
            case Withdraw():
                self._do(self._core.withdraw(message.message_id, now_s))
            case PressInterrupt():
                self._do(self._core.interrupt(message.turn_id))
            case AnswerDialog():
                self._do(self._core.answer(message.token, message.dialog_id, message.option))
            case Prove():
                self._do(self._core.proved(message.message_id, now_s))
            case Nudge():
                self._do(self._core.nudge())
            case Known():
                if message.epoch == self._epoch and message.native_session != self._named:
                    self._named, self._named_at = message.native_session, None
                    self._do(self._core.nudge())
            case MovedUnseen():
                if message.epoch == self._epoch:
                    self._core.moved_unseen()
            case Close():
                self._close(message.grace_s)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        """A CLI of which nobody else knows ends; at the system's own end its edge ends all."""
        self._left = not self.system.closing
        if self._left and self._endpoint is not None and not self._kept:
            self._endpoint.close(0.0, lambda: None)

    def _from_edge(self, message: _FromEdge, now_s: float) -> None:
        match message:
            case _Looked(result=LastwordError()):
                self._do(self._core.look_failed(message.number))
            case _Looked(result=screen):
                assert not isinstance(screen, LastwordError)
                self._last_screen = screen.lines
                signal = self._named_first(screen)
                self._do(self._core.looked(message.number, signal, copy_mode=screen.in_copy_mode, now_s=now_s))
            case _Opened(result=LastwordError() as error):
                self._opening = False
                self._core.gone()  # the session answers for what waits: it is not typed into a later CLI
                self._report(OpenFailed(epoch=self._epoch, error=error))
            case _Opened(result=endpoint):
                assert not isinstance(endpoint, LastwordError)
                self._opened(endpoint)
            case _Pasted():
                self._do(self._core.pasted(ok=message.ok, now_s=now_s))
            case _Pressed():
                self._do(self._core.pressed(message.press, ok=message.ok, now_s=now_s))
            case _LookDue():
                self._do(self._core.look_due())
            case _Exited():
                self._exited(message.status)
            case _LookedLast():
                if self._dying:
                    self._looked_last(message)
            case _LastLookDue():
                if self._dying:
                    self._look_last(message.status)
            case _Closed():
                self._report(Closed(epoch=self._epoch))
            case _:
                assert_never(message)

    # --- life of the endpoint -----------------------------------------------------------------------------------

    def _begin(self, epoch: int, request: LaunchRequest) -> None:
        self._epoch = epoch
        self._request = request
        self._named, self._named_at = request.native_session, None
        self._core = core.PaneCore(self._adapter, epoch)  # what waited here is handed over again by the session
        self._was_ready = False
        self._kept = False
        self._dying = False
        self._closing = None
        self._last_screen = ()

    def _open(self, message: Open) -> None:
        self._begin(message.epoch, message.request)
        self._opening = True
        epoch, ref = self._epoch, self.answers

        def told(result: PaneEndpoint | LastwordError) -> None:
            if self._left and not isinstance(result, LastwordError):
                result.close(0.0, lambda: None)  # nobody is here any more, nor anybody who could find it
            else:
                ref.tell(_Opened(result, epoch))

        self._transport.open(
            message.name,
            message.recipe.argv,
            cwd=message.request.cwd,
            env=message.recipe.env,
            width=message.recipe.width,
            height=message.recipe.height,
            on_opened=told,
        )

    def _opened(self, endpoint: PaneEndpoint) -> None:
        assert self._request is not None
        self._opening = False
        self._endpoint = endpoint
        spec = self._adapter.status_file(self._request, endpoint.pid)
        self._status_path = spec.path if spec is not None else ""
        self._core.unannounced = spec is None
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
        self._transport.watch_exit(endpoint, lambda status: ref.tell(_Exited(status, epoch), control=True))
        if self._closing is not None:
            self._close(self._closing)
        else:
            self._do(self._core.opened(self.clock.monotonic()))

    def _exited(self, status: int | None) -> None:
        self._do(self._core.answered_by_exit())
        self._core.gone()
        self.cancel_timer("look")
        if self._was_ready or self._endpoint is None:
            self._told_gone(status, "")
            return
        self._dying = True  # one that ends at once says why behind every look that was taken so far
        self.after(LAST_LOOK_S, _LookedLast(None, status, self._epoch), key="last look")
        self._look_last(status)

    def _look_last(self, status: int | None) -> None:
        endpoint, epoch, ref = self._endpoint, self._epoch, self.answers
        if endpoint is not None:
            endpoint.look(lambda result: ref.tell(_LookedLast(result, status, epoch)))

    def _looked_last(self, message: _LookedLast) -> None:
        result = message.result
        if result is not None and not isinstance(result, LastwordError):
            self._last_screen = result.lines
            if not result.dead:
                self.after(LOOK_AGAIN_S, _LastLookDue(message.status, self._epoch), key="look again")
                return
        self.cancel_timer("last look")
        self.cancel_timer("look again")
        words = " / ".join(line.strip() for line in self._last_screen if line.strip())
        self._told_gone(message.status, words[-LAST_WORDS_CHARS:])

    def _told_gone(self, status: int | None, words: str) -> None:
        self._dying = False
        gone = Gone(epoch=self._epoch, exit_status=status, was_ready=self._was_ready, last_words=words)
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None and self._closing is None:
            endpoint.close(0.0, lambda: None)  # what it left in its process group, and the empty pane
        self._report(gone)

    def _close(self, grace_s: float) -> None:
        self._closing = grace_s
        epoch, ref = self._epoch, self.answers
        if self._opening:
            pass  # closed as soon as it is open: nothing may come up behind our back
        elif self._endpoint is None:
            self._report(Closed(epoch=epoch))
        else:
            self._endpoint.close(grace_s, lambda: ref.tell(_Closed(epoch), control=True))

    # --- effects ----------------------------------------------------------------------------------------------------

    def _signal(self, screen: ScreenView) -> Signal:
        endpoint = self._endpoint
        status = self._files.read_small(self._status_path, STATUS_BYTES_MAX) if self._status_path else None
        view = SignalView(
            screen=screen.lines,
            title=screen.title,
            status=status,
            pid=endpoint.pid if endpoint is not None else 0,
        )
        return self._adapter.signals(view)

    def _identity(self, screen: ScreenView, open_files: Callable[[], Sequence[str]]) -> str:
        if self._request is None or self._endpoint is None:
            return ""
        request = msgspec.structs.replace(self._request, native_session=self._named)
        return self._adapter.identify(request, screen.title, open_files)

    def _look_at_files(self) -> tuple[str, ...]:
        endpoint = self._endpoint
        self._held_files = self._files.open_files(endpoint.pid, endpoint.pid_start) if endpoint is not None else ()
        return self._held_files

    def _named_first(self, screen: ScreenView) -> Signal:
        """What it shows; it takes no text before it is on record which conversation it is in."""
        signal, now = self._signal(screen), self.clock.wall()
        native = self._identity(screen, self._look_at_files)
        if native and native == self._named:
            self._named_at = now
            return signal
        if native:
            named = Named(native_session=native, before_at=self._named_at)
            self._report(Said(epoch=self._epoch, report=named, at=now))
        if not isinstance(signal, Ready):
            return signal
        what = (
            "is in a conversation that is not on record yet" if native else "has not told which conversation it is in"
        )
        return NotReady(reason=f"the CLI {what}")

    def _do(self, effects: list[typing_effects.PaneEffect]) -> None:
        for effect in effects:
            match effect:
                case typing_effects.Look():
                    self._look(effect.number)
                case typing_effects.LookIn():
                    self.after(effect.delay_s, _LookDue(self._epoch), key="look")
                case typing_effects.Paste():
                    self._for_the_first()
                    self._paste(effect.data)
                case typing_effects.Press():
                    if effect.what == "enter":
                        self._for_the_first()
                        self._entered_at = self.clock.wall()
                    self._press(effect)
                case (
                    typing_effects.Submitted()
                    | typing_effects.WithdrawnReport()
                    | typing_effects.NotDelivered()
                    | typing_effects.Delivered()
                    | typing_effects.LeftBehind()
                    | typing_effects.Interrupted()
                    | typing_effects.NothingToInterrupt()
                    | typing_effects.DialogSeen()
                    | typing_effects.DialogGone()
                    | typing_effects.AnswerResult()
                    | typing_effects.BecameReady()
                    | typing_effects.Held()
                ):
                    if isinstance(effect, typing_effects.BecameReady):
                        self._was_ready = True
                    if isinstance(effect, typing_effects.Submitted):
                        effect = msgspec.structs.replace(effect, at=self._entered_at)  # noqa: PLW2901
                    self._report(Said(epoch=self._epoch, report=effect, at=self.clock.wall()))
                case _:
                    assert_never(effect)

    def _for_the_first(self) -> None:
        """What is done at the pane now is done for the text whose turn it is, whatever woke us."""
        if self._core.jobs:
            job = self._core.jobs[0]
            self.belongs_to(job.turn_id or job.message_id)

    def _look(self, number: int) -> None:
        self.cancel_timer("look")
        endpoint, epoch, ref = self._endpoint, self._epoch, self.answers
        if endpoint is not None:
            endpoint.look(lambda result: ref.tell(_Looked(number, result, epoch)))

    def _paste(self, data: bytes) -> None:
        endpoint, epoch, ref = self._endpoint, self._epoch, self.answers
        if endpoint is not None:
            endpoint.paste(data, lambda error: ref.tell(_Pasted(error is None, epoch)))

    def _press(self, press: typing_effects.Press) -> None:
        endpoint, epoch, ref = self._endpoint, self._epoch, self.answers
        if endpoint is None:
            return

        def done(result: PressResult | None) -> None:
            # an error is no proof that the keys did not go out: only the guard's refusal is
            ref.tell(_Pressed(press, not isinstance(result, RefusedKeys), epoch))

        if press.guard:
            endpoint.look_then_press(self._guard(press), *press.keys, on_done=done)
        else:
            endpoint.press(*press.keys, on_done=done)

    def _guard(self, press: typing_effects.Press) -> Callable[[ScreenView], bool]:
        """What must hold at the very moment of the keys: nothing slow is asked there. Whoever moved the CLI to another
        conversation since the last look changed its title: that one's files were not among those seen.
        """
        holds, named, what = self._core.guard(press), self._named, press.guard
        return lambda screen: (
            not screen.in_copy_mode
            and holds(self._signal(screen))
            and (what == "dialog" or self._identity(screen, lambda: self._held_files) == named)
        )

    def _report(self, report: MouthReport) -> None:
        assert self.parent is not None
        self.parent.tell(report)


__all__ = ["PaneActor"]
