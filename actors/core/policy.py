"""What a host without a person says to dialogs: the shape of a policy, and the one that is built in. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from lastword.actors.core.ids import SessionId
from lastword.actors.core.snapshot import Dialog

DialogPolicy: TypeAlias = Callable[[SessionId, Dialog], int | None]
"""The number of the option to choose, counted from 1, or None: the dialog is left to a person.

Called once for each dialog that opens, on a thread of its own and for several sessions at the same time; after a
restart once more for a dialog that is still open, perhaps before ``Runtime.open`` has returned.
"""

_TRUSTS = re.compile(r"yes, i trust this folder|trust \(this session only\)", re.IGNORECASE)


def answer_trust(session_id: SessionId, dialog: Dialog) -> int | None:  # noqa: ARG001 - the shape of a policy
    """The policy of a host that trusts the folders it is run in. Everything else, permissions first, is a person's.

    The option is found by its whole text: wherever it stands, and where no single one says so nothing is chosen.
    """
    if dialog.kind != "trust":
        return None
    found = [number for number, option in enumerate(dialog.options, 1) if _TRUSTS.fullmatch(option.strip())]
    return found[0] if len(found) == 1 else None


def unusable(option: object, dialog: Dialog) -> str:
    """Why that cannot be chosen, without its content; "" where it can."""
    if not isinstance(option, int) or isinstance(option, bool):
        return f"gave a {type(option).__name__}, not an option's number"
    if not 1 <= option <= len(dialog.options):
        return f"chose option {option} of {len(dialog.options)}"
    return ""


__all__ = ["DialogPolicy", "answer_trust", "unusable"]
