"""How long a turn waits for what, and how often it tries."""

from __future__ import annotations

REREAD_S = 1.0
"""After the CLI says idle behind our interrupt: how long its record may still bring a terminal record (0.1 s seen)."""
INTERRUPT_GRACE_S = 5.0
"""How long one interrupt may take before the key is pressed again."""
INTERRUPT_AGAIN_S = 0.3
"""The record shows the turn's start behind our key, which the CLI may have had before it took the Enter: how long the
record may still show that it was interrupted (0.1 s seen), before the key is pressed again."""
INTERRUPTS_MAX = 3
"""After so many unanswered interrupts the CLI is ended; its session resumes with the next message (C07)."""
REQUESTS_MAX = 2
"""The same where it is asked to stop over a protocol: no key can be lost there, so one repeat is enough."""
MOOTS_MAX = 2
"""So many looks behind our interrupt, seconds apart, at an idle and empty input box: a prompt that is not on record
by then is believed absent."""
WITHDRAWALS_MAX = 3
"""After so many unanswered repeats of a withdrawal (the text lies behind a dialog) the CLI is ended as well."""
END_GRACE_S = 10.0
"""How long the end of the CLI, and its record read to the end, may take before it is asked for again."""
ANSWER_GRACE_S = 5.0
"""A final answer is on record and the CLI says idle since: how long its terminal record may still come (C40)."""
RECORD_GONE_S = 30.0
"""The CLI has been idle so long since after the prompt: its record is looked at once more, and where that was seen to
hold no end, none will come. Where it could not be looked at, after so long again."""
IDLE_SKEW_S = 0.05
"""How much earlier than its last message the CLI may stamp its own idle."""
RECORD_RETRY_S = 1.0
"""Pause before a completion that the journal could not take is offered again; it is never given up."""
