"""What a host asks of a session beside messages: an interrupt, the answer to a dialog, a command of the CLI's own."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, assert_never

from lastword.actors import mouth
from lastword.actors.core import turn as turn_core
from lastword.actors.core import typing as typing_core
from lastword.actors.core.adapter import TypedText
from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt
from lastword.actors.core.errors import LastwordError, RejectedError, UsageError
from lastword.actors.core.ids import ENTROPY_BYTES, MessageId, TurnId, mint_message
from lastword.actors.replies import fail, resolve
from lastword.actors.session_commands import Control

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor


class Controls:
    """Those of one session, and who waits for them. Runs on its actor's thread only."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._waiting: dict[str, Future[Delivery]] = {}
        self._noting: dict[int, typing_core.Job] = {}
        """Commands whose note is on its way to the journal: typed once it is there, so that a next life knows them."""
        self._answers: dict[str, str] = {}
        """Token of a host's answer that is on its way -> its dialog."""

    @property
    def busy(self) -> bool:
        """Whether one of them is on its way to the CLI."""
        return bool(self._waiting or self._noting)

    def take(self, control: Control) -> None:
        """Do it, or refuse it with the reason."""
        if self._session.closing:
            fail(control.reply, RejectedError("session_closed", "the session is closed"))
            return
        if self._session.switching.active and not isinstance(control.what, Interrupt):
            reason = "the provider of the session is being changed"
            fail(control.reply, RejectedError("busy", reason, provider=self._session.record.row.provider))
            return
        match control.what:
            case Interrupt():
                self._interrupt(control, control.what)
            case Answer():
                self._answer(control, control.what)
            case Command():
                self._command(control, control.what)
            case _:
                assert_never(control.what)

    def done(self, token: str) -> None:
        """It was carried out."""
        self._session.policy.answered(token, applied=True)
        self._answers.pop(token, None)
        waiting = self._waiting.pop(token, None)
        self._session.record.change(command="")  # goes with the next row that is sent
        if waiting is not None:
            resolve(waiting, self._applied(None, applied=True, token=token))

    def failed(self, token: str, error: LastwordError) -> None:
        """It was not."""
        self._answers.pop(token, None)
        self._session.policy.answered(token, applied=False)
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            fail(waiting, error)

    def fail_all(self, error: LastwordError) -> None:
        """None of them will be."""
        for token in list(self._waiting):
            self.failed(token, error)

    def answering(self, dialog_id: str) -> bool:
        """Whether an answer of the host itself is on its way to that dialog."""
        return dialog_id in self._answers.values()

    def choose(self, dialog_id: str, option: int) -> str:
        """Answer it, as the policy says; returns the token by which the pane tells what became of that."""
        token = self._token()
        self._session.mouth.tell(mouth.AnswerDialog(token=token, dialog_id=dialog_id, option=option))
        return token

    def _interrupt(self, control: Control, interrupt: Interrupt) -> None:
        session = self._session
        running = (turn_id for turn_id in session.core.interruptible() if not session.admission.on_record(turn_id))
        wanted = next((turn_id for turn_id in running if interrupt.turn_id in (None, turn_id)), None)
        if wanted is None or wanted not in session.turns:
            resolve(control.reply, self._applied(None, applied=False))
            return
        session.turns.tell(wanted, turn_core.Cancel())
        if session.core.open.get(wanted):  # it runs, so that this is pressed and nothing is taken back
            session.turns.interrupt(wanted)
        resolve(control.reply, self._applied(wanted, applied=True))

    def _answer(self, control: Control, answer: Answer) -> None:
        dialog = self._session.cli.dialog
        if dialog is None or dialog.dialog_id != answer.dialog_id:
            fail(control.reply, RejectedError("unknown_dialog", "no such dialog is open"))
            return
        if self._session.turns.interrupted:
            fail(
                control.reply, RejectedError("unknown_dialog", "its turn is being interrupted, and the dialog with it")
            )
            return
        if answer.option < 1 or (dialog.options and answer.option > len(dialog.options)):
            reason = f"the dialog has {len(dialog.options)} options, counted from 1"
            fail(control.reply, UsageError("usage", reason))
            return
        token = self._token()
        self._waiting[token] = control.reply
        self._answers[token] = answer.dialog_id
        self._session.policy.overtaken()
        self._session.mouth.tell(mouth.AnswerDialog(token=token, dialog_id=answer.dialog_id, option=answer.option))

    def _command(self, control: Control, command: Command) -> None:
        session = self._session
        provider = session.record.row.provider
        words = command.text.split()
        needed = {"/clear": "clear", "/compact": "compact"}.get(words[0] if words else "")
        if needed is None or needed not in session.deps.adapter.capabilities:
            reason = "that is not a command that this provider declares"  # not quoted: it may be a prompt
            fail(control.reply, UsageError("unsupported_capability", reason, provider=provider))
            return
        if session.cli.dialog is not None:
            reason = "a dialog is open: nothing is typed into it"
            remedy = "Answer it, or have it answered in the pane"
            fail(control.reply, RejectedError("dialog_open", reason, remedy=remedy, provider=provider))
            return
        if not session.core.idle:
            if session.admission.park(control):
                return
            fail(control.reply, RejectedError("busy", "a turn is being delivered or is active"))
            return
        if session.cli.state == "gone":
            session.cli.launch("resume")
        token = self._token()
        self._waiting[token] = control.reply
        text = command.text.strip()
        typed = TypedText(text=text, paste=text.encode(), rewritten=text)
        noted = session.record.send(session=session.record.change(command=text))
        self._noting[noted] = typing_core.Job(message_id=token, typed=typed, proved_by_record=False)

    def committed(self, token: int) -> None:
        """If that was the note of a command: type it."""
        job = self._noting.pop(token, None)
        if job is not None:
            self._session.mouth.tell(mouth.Deliver(job=job))

    def _token(self) -> MessageId:
        return mint_message(self._session.clock.wall(), self._session.deps.entropy(ENTROPY_BYTES))

    def _applied(self, turn_id: TurnId | None, *, applied: bool, token: str = "") -> Delivery:
        session = self._session
        return Delivery(
            session_id=session.record.row.session_id,
            message_id=MessageId(token or self._token()),
            taken="applied" if applied else "nothing_to_do",
            transport=session.deps.transport.name,
            seq=session.record.seq,
            turn_id=turn_id,
        )
