"""Ready-made policies for the dialogs of unattended sessions: ``Runtime.open(dialog_policy=answer_trust)``."""

from __future__ import annotations

from lastword.actors.core.snapshot import Dialog

YES = ("yes", "trust", "i trust", "proceed")


def answer_trust(session_id: str, dialog: Dialog) -> int | None:  # noqa: ARG001 - the form of a policy
    """Trust the folder that the session was opened in; every other dialog, permissions above all, is left to a person.

    The option is found by its words, not by its place: the CLI's own default may be to leave.
    """
    if dialog.kind != "trust":
        return None
    for number, option in enumerate(dialog.options, 1):
        if option.strip().lower().startswith(YES):
            return number
    return None
