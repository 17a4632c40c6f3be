"""Talk: how one provider's protocol over stdin and stdout is spoken. A port; each provider has a machine of its own.

A talk belongs to one process of the CLI and is owned by one StdioActor, which carries out its effects in order. It
reads no clock and writes nothing: it is told what was heard and what is wanted, and answers with effects.

House rules
-----------
- A talk never says that a turn is over: the oracle does, from the same lines in the child's own file (hints wake,
  facts settle). What a talk hears serves the conversation about turns: handshakes, dialogs, receipts.
- At most once: a text goes out in one :class:`Write`, and no talk ever writes it again, unless the CLI itself says that
  it did not take it. ``Submitted`` belongs into that write's ``after``. What the record does not show once the child is
  gone and read to its end, the session sends to the next child, by a talk of its own.
- One dialog is told at a time. That one is gone is told before the next is seen, so not in a write's ``after``, which
  is told later than what stands behind the write.
- A talk holds texts back until its handshake is done (:class:`~lastword.actors.core.typing_effects.BecameReady`), so
  that a CLI which cannot start costs no message.
- A request of the CLI that is not understood is answered with the protocol's own error: nobody waits for nothing.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.typing_effects import Job, Report

EXITED = "_lastword/exited"
"""The method of a line in the file of what was sent (a JSON-RPC notification that nobody is sent): the process that was
started is gone, and its file held ``heard`` bytes then. What stands behind them was written by what is left of it.
"""

ORPHANED = "_lastword/orphaned"
"""Such a line too: the host that spoke to it is gone, and its stdin ended by that. What that host had heard of is
settled; an end that is still to be told was told to nobody.
"""


class GiveUp(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can be said to this child (no handshake): end it. Told as the reason of what waits."""

    reason: str


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Write these bytes to the child's stdin: whole lines.

    Attributes:
        after: told once the bytes are in the pipe, or the child ended before that was known: what may have been
            written counts as written.
        failed: told instead where it is known that nothing of it was written; a :class:`GiveUp` where nothing else can
            be said to the child then.
    """

    data: bytes
    after: tuple[Report, ...] = ()
    failed: tuple[Report | GiveUp, ...] = ()


class Remind(msgspec.Struct, frozen=True, kw_only=True):
    """Call ``reminded(name)`` after that long; replaces an earlier one of that name."""

    name: str
    delay_s: float


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Report: the provider named the conversation; it is resumed by that name.

    ``before_at``: where it is in another one than before, when it was last seen in that (Unix seconds).
    """

    native_session: str
    before_at: float | None = None


TalkReport: TypeAlias = Report | Named
TalkEffect: TypeAlias = Write | Remind | GiveUp | TalkReport


class Talk(Protocol):
    """One process's conversation. Every method answers with effects, in order; none raises for any line."""

    def opened(self) -> list[TalkEffect]:
        """The child runs: begin the handshake."""
        ...

    def heard(self, line: bytes) -> list[TalkEffect]:
        """One whole line of its stdout, without the newline."""
        ...

    def deliver(self, job: Job) -> list[TalkEffect]:
        """Send a text, after those before it. The same message twice is sent once."""
        ...

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """Take a text back: answered by ``WithdrawnReport`` where it was not written; what was, the CLI may be asked to
        drop, and its record tells.
        """
        ...

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """Stop what runs: ``Interrupted`` and what the protocol has for it. Asked again while nothing comes of it."""
        ...

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:
        """Answer that dialog if it is the one that was told as open: ``AnswerResult`` with the token, always."""
        ...

    def proved(self, message_id: MessageId) -> list[TalkEffect]:
        """The record shows that the message was taken."""
        ...

    def reminded(self, name: str) -> list[TalkEffect]:
        """The time of a :class:`Remind` has come."""
        ...

    def gone(self) -> list[TalkEffect]:
        """The child is gone: tell the end of what was promised an answer (``AnswerResult``); write nothing."""
        ...
