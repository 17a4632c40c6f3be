"""A session's dialogs and its host's policy: asked once for each that opens, heard if nobody was faster.

The policy runs elsewhere and may fail, hang or talk nonsense; the dialog is a person's then, and that is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lastword.actors.core import events
from lastword.actors.core.policy import unusable
from lastword.actors.core.snapshot import Dialog
from lastword.actors.session_commands import PolicySaid, PolicyTimedOut

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor

POLICY_S = 30.0
"""How long a policy may think about one dialog; what it says later is not heard."""


class _Asked(msgspec.Struct, frozen=True):
    number: int
    dialog: Dialog


class PolicyRoom:
    """Runs on the session actor's thread only."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._asked: _Asked | None = None
        self._number = 0
        self._answer: tuple[str, Dialog] | None = None
        """The token of what the policy chose, until the pane has said what became of it, and the dialog."""
        self._chosen = ""
        """That token to the end: a dialog may be seen gone only after its answer is (a CLI that draws itself anew)."""

    def opened(self, dialog: Dialog) -> None:
        """Ask, without waiting."""
        session = self._session
        ask = session.deps.ask_policy
        if ask is None or session.closing:
            return
        self._number += 1
        number, ref = self._number, session.answers
        self._asked = _Asked(number, dialog)
        session.after(POLICY_S, PolicyTimedOut(number=number), key="policy")

        def told(option: object, fault: str) -> None:
            ref.try_tell(PolicySaid(number=number, option=option, fault=fault))

        refused = ask(session.record.row.session_id, dialog, told)
        if refused:
            self._end()
            self._leave(dialog, "policy_refused", refused)

    def overtaken(self) -> None:
        """A host's own answer came first, or the dialog is gone: what the policy says to it is of no interest."""
        self._end()

    def said(self, said: PolicySaid) -> None:
        """Its word. One to a dialog that is not asked about any more, or whose turn is being interrupted, is counted
        and nothing else.
        """
        session, asked = self._session, self._asked
        if asked is None or asked.number != said.number or session.closing:
            session.system.dead_letters.record("policy_late", session.ref.name, said)
            return
        self._end()
        if session.turns.interrupted:
            session.system.dead_letters.record("policy_late", session.ref.name, said)
        elif said.fault:
            self._leave(asked.dialog, "policy_failed", said.fault)
        elif said.option is not None:
            fault = unusable(said.option, asked.dialog)
            if fault:
                self._leave(asked.dialog, "policy_bad_option", fault)
            else:
                token = session.controls.choose(asked.dialog.dialog_id, int(said.option))  # type: ignore[call-overload]
                self._answer = (token, asked.dialog)
                self._chosen = token

    def timed_out(self, late: PolicyTimedOut) -> None:
        """It thought too long."""
        asked = self._asked
        if asked is not None and asked.number == late.number:
            self._end()
            self._leave(asked.dialog, "policy_timeout", f"said nothing within {POLICY_S:g} s")

    def chose(self, token: str) -> bool:
        """Whether that answer was the policy's."""
        return bool(token) and token == self._chosen

    def answered(self, token: str, *, applied: bool) -> None:
        """What became of an answer; one that went nowhere while its dialog stays open is a person's again."""
        if self._answer is None or self._answer[0] != token:
            return
        dialog, self._answer = self._answer[1], None
        still = self._session.cli.dialog
        open_yet = still is not None and still.dialog_id == dialog.dialog_id and not self._session.turns.interrupted
        if open_yet and not applied and not self._session.controls.answering(dialog.dialog_id):
            self._leave(dialog, "policy_unpressed", "chose an option that could not be pressed")

    def _end(self) -> None:
        if self._asked is not None:
            self._asked = None
            self._session.cancel_timer("policy")

    def _leave(self, dialog: Dialog, counted: str, fault: str) -> None:
        session = self._session
        session.system.dead_letters.record(counted, session.ref.name, dialog)
        session.cli.tell(
            events.StallDiagnosed(
                kind="person",
                waits_for=f"a person: a {dialog.kind} dialog is open, and the dialog policy {fault}",
                elapsed_s=0.0,
                quiet_s=0.0,
                evidence=f"dialog {dialog.dialog_id}",
                provider=session.record.row.provider,
            )
        )


__all__ = ["POLICY_S", "PolicyRoom"]
