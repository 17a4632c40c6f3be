"""What a host may ask of a session: checked at the call, before it reaches an actor (C21)."""

from __future__ import annotations

import math
from concurrent.futures import Future

from lastword.actors.core.delivery import Answer, Command, Delivery, Interrupt, Sendable
from lastword.actors.core.errors import RejectedError, UsageError
from lastword.actors.core.ids import MessageId
from lastword.actors.core.outcome import Completion
from lastword.actors.session import Control, Submit

TEXT_BYTES_MAX = 1024 * 1024
"""Of one message, UTF-8; a longer one is refused: put it into a file and name the file."""
SEQ_MAX = 2**63 - 1
ID_CHARS_MAX = 200
"""Of a ``message_id`` that the host brings."""


def check_grace(grace_s: object) -> None:
    """Whether that is a number of seconds.

    Raises:
        UsageError: ``usage``: it is not.
    """
    if not isinstance(grace_s, int | float) or isinstance(grace_s, bool) or not 0.0 <= grace_s < math.inf:
        raise UsageError("usage", f"grace_s is a number of seconds from 0 on, not {_shown(grace_s)}")


def check_after(after: object) -> None:
    """Whether that is the ``seq`` of an event, or 0.

    Raises:
        UsageError: ``usage``: it is not.
    """
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after <= SEQ_MAX:
        raise UsageError("usage", f"after is the seq of an event, an int from 0 on, not {_shown(after)}")


def command_of(
    what: Sendable, message_id: str | None, deadline_s: float | None, fresh_id: MessageId
) -> Submit | Control:
    """What ``send`` tells the session.

    Raises:
        UsageError: ``usage``.
        RejectedError: ``unsupported_text``.
    """
    reply: Future[Delivery] = Future()
    match what:
        case Interrupt():
            if what.turn_id is not None:
                _check_id("turn_id", what.turn_id)
        case Answer():
            _check_id("dialog_id", what.dialog_id)
            if not isinstance(what.option, int) or isinstance(what.option, bool):
                raise UsageError("usage", f"an option is an int counted from 1, not {type(what.option).__name__}")
        case Command():
            _check_text(what.text)
        case _:
            return _submission(what, deadline_s, message_id, fresh_id, run=False, reply=reply, outcome=None)
    return Control(what=what, reply=reply)


def run_of(text: str, deadline_s: float | None, message_id: str | None, fresh_id: MessageId, *, queue: bool) -> Submit:
    """What ``run`` tells the session. Raises as :func:`command_of`."""
    return _submission(text, deadline_s, message_id, fresh_id, run=not queue, reply=Future(), outcome=Future())


def _submission(
    text: str,
    deadline_s: float | None,
    message_id: str | None,
    fresh_id: MessageId,
    *,
    run: bool,
    reply: Future[Delivery],
    outcome: Future[Completion] | None,
) -> Submit:
    _check_text(text)
    _check_deadline(deadline_s)
    if message_id is not None:
        _check_id("message_id", message_id)
    return Submit(
        text=text,
        reply=reply,
        message_id=MessageId(message_id) if message_id is not None else None,
        fresh_id=fresh_id,
        run=run,
        deadline_s=deadline_s,
        outcome=outcome,
    )


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UsageError("usage", f"a message is a str, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        reason = "the text is no Unicode: it holds half of a surrogate pair, or bytes that are no UTF-8"
        raise RejectedError("unsupported_text", reason, remedy="Replace them") from None
    if size > TEXT_BYTES_MAX:
        reason = f"the text has {size} bytes, at most {TEXT_BYTES_MAX} can be sent"
        raise RejectedError("unsupported_text", reason, remedy="Put it into a file and name the file")


def _check_deadline(deadline_s: object) -> None:
    if deadline_s is None:
        return
    if not isinstance(deadline_s, int | float) or isinstance(deadline_s, bool):
        raise UsageError("usage", f"deadline_s is a number of seconds, not {type(deadline_s).__name__}")
    if not math.isfinite(deadline_s) or deadline_s < 0:
        raise UsageError("usage", "deadline_s must be finite and not negative")


def _check_id(what: str, given: object) -> None:
    if not isinstance(given, str) or not 0 < len(given) <= ID_CHARS_MAX or not given.isprintable():
        raise UsageError("usage", f"a {what} is a printable str of 1 to {ID_CHARS_MAX} characters")


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, int | float) else type(value).__name__
