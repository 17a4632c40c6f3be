"""Following one message to the completion it ends in: rows, dialogs, Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from lastword.actors.core.delivery import Delivery
from lastword.actors.core.errors import RejectedError
from lastword.actors.core.events import (
    CompletionReached,
    DialogClosed,
    DialogOpened,
    Event,
    MessageJoined,
    MessageMoved,
    MessageUndelivered,
    StallDiagnosed,
    TurnStarted,
)
from lastword.actors.core.ids import TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.policy import DialogPolicy
from lastword.actors.core.snapshot import Dialog
from lastword.runtime._hub import Subscription
from lastword.runtime.command._desk import Desk
from lastword.runtime.command._progress import PlainProgress, RichProgress, describe, state_of
from lastword.runtime.command._show import note, one_line

TICK_S = 0.5

Ask = Callable[[DialogOpened], int | None]


class DialogWaitsError(Exception):
    """A dialog waits and nobody can be asked."""

    def __init__(self, dialog: DialogOpened, turn_id: TurnId | None) -> None:
        super().__init__(dialog.kind)
        self.dialog = dialog
        self.turn_id = turn_id


def terminal_to_ask() -> bool:
    """Whether a person sits there: both the question and the answer need the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_person(dialog: DialogOpened) -> int | None:
    """Show the dialog on stderr and ask for an option; None where it can be answered in the pane only."""
    note(one_line(dialog.question))
    for number, option in enumerate(dialog.options, 1):
        note(f"  {number}. {one_line(option)}")
    if not dialog.options:
        return None
    chosen: int = click.prompt("Option", type=click.IntRange(1, len(dialog.options)), err=True)
    return chosen


class Following:
    """One accepted message on its way; :meth:`wait` from the main thread, once."""

    def __init__(
        self,
        desk: Desk,
        stream: Subscription,
        ack: Delivery,
        progress: PlainProgress | RichProgress,
        ask: Ask | None,
        policy: DialogPolicy | None = None,
    ) -> None:
        self._desk = desk
        self._stream = stream
        self._ack = ack
        self._progress = progress
        self._ask = ask
        self._policy = policy
        self._left_to_policy: DialogOpened | None = None
        self._interrupted = False
        self.turn_id = ack.turn_id

    def wait(self) -> Completion:
        """The completion of the turn that the message ends in. The first Ctrl-C interrupts that turn.

        Raises:
            RejectedError: ``not_delivered``: the message was proved never to have run.
            DialogWaitsError: a dialog waits and there is nobody to ask.
            KeyboardInterrupt: at the second Ctrl-C.
        """
        while True:
            try:
                event = self._stream.get(TICK_S)
                if event is None:
                    self._check_alive()
                    continue
                completion = self._take(event)
                if completion is not None:
                    return completion
            except (KeyboardInterrupt, click.Abort):
                self._interrupt()

    def _check_alive(self) -> None:
        if self._stream.ended:
            raise RejectedError("session_closed", "the session ended before the message did")
        if isinstance(self._progress, RichProgress):
            self._progress.tick()

    def _interrupt(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        self._progress.row("interrupting")
        self._desk.interrupt(self.turn_id)

    def _take(self, event: Event) -> Completion | None:
        mine = event.message_id == self._ack.message_id
        if not event.ephemeral:
            self._progress.row(describe(event))
        state = state_of(event)
        if state is not None:
            self._progress.state(state)
        match event.body:
            case CompletionReached(completion=completion):
                if (
                    completion.turn_id == self.turn_id
                    or completion.message_id == self._ack.message_id
                    or self._ack.message_id in completion.joined
                ):
                    return completion
            case TurnStarted() | MessageJoined() | MessageMoved() if mine:
                self.turn_id = event.turn_id or self.turn_id
            case MessageUndelivered() if mine:
                raise RejectedError("not_delivered", f"the message was never run: {event.body.reason}")
            case DialogOpened():
                self._left_to_policy = event.body if self._policy_answers(event) else None
                if self._left_to_policy is None:
                    self._dialog(event.body)
            case DialogClosed():
                self._left_to_policy = None
            case StallDiagnosed(kind="person") if self._left_to_policy is not None:
                left, self._left_to_policy = self._left_to_policy, None
                self._dialog(left)
            case _:
                pass
        return None

    def _policy_answers(self, event: Event) -> bool:
        """Whether the runtime's policy will answer it: it is asked the same question there."""
        if self._policy is None or not isinstance(event.body, DialogOpened):
            return False
        body = event.body
        dialog = Dialog(dialog_id=body.dialog_id, kind=body.kind, question=body.question, options=body.options)
        return self._policy(event.session_id, dialog) is not None

    def _dialog(self, dialog: DialogOpened) -> None:
        if self._ask is None:
            raise DialogWaitsError(dialog, self.turn_id)
        self._progress.pause()
        option = self._ask(dialog)
        if option is None:
            note(one_line(f"Answer it in the pane: {' '.join(self._desk.attach())}"))
            return
        try:
            self._desk.answer(dialog.dialog_id, option)
        except RejectedError as error:
            note(one_line(str(error)))  # it closed meanwhile
