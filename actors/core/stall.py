"""What a quiet turn waits for: a diagnosis from what is known of it, never a verdict (C41, C42).

Pure. A long silence is no failure: a model may think for an hour. So silence only makes us look again, into the
provider's own record, and names what is waited for; it settles nothing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    Fact,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
)
from lastword.actors.core.outcome import Evidence

QUIET_S = 15.0
"""A turn of which nothing was heard for so long is quiet: its record is looked into by another reader (C41)."""
CONSULT_EVERY_S = 5.0
"""The pause between two such looks."""
WARN_S = 1800.0
"""A turn that was quiet for so long is told as stalled, once (C41). It settles nothing."""
SHOWN_CHARS_MAX = 200
"""Of an answer or a question, in a diagnosis."""

StallKind: TypeAlias = Literal[
    "model",  # nothing but the model's next word is missing
    "tool",  # a tool runs
    "retry",  # the CLI tries again by itself
    "person",  # a dialog, a draft, copy mode: somebody must do something
    "cli_start",  # the CLI is not ready yet
    "delivery",  # the message is not on record yet
    "queue",  # it waits in the CLI's own queue
    "terminal_record",  # the CLI says that it is idle; its terminal record is missing
    "record",  # the CLI's record cannot be read
    "provider_gone",  # the CLI is gone; its record is being read to the end
    "journal",  # the journal cannot be written
    "unobserved",  # the record holds the end; the runtime did not see it
]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What is waited for.

    Attributes:
        what: one phrase, as ``tool Bash``.
        since: when that wait began, Unix seconds, where it is known.
        evidence: the record that shows it.
    """

    kind: StallKind
    what: str
    since: float | None = None
    evidence: Evidence | None = None


class Track(msgspec.Struct, kw_only=True):
    """What the record told last of one native turn, and which of its tools run."""

    last: Fact | None = None
    tools: dict[str, ToolStarted] = {}

    def note(self, fact: Fact) -> None:
        """The next fact of that turn, in the order of the record."""
        match fact:
            case ToolStarted():
                self.tools = {**self.tools, fact.call_id: fact}
            case ToolFinished():
                self.tools = {call: tool for call, tool in self.tools.items() if call != fact.call_id}
            case _:
                pass
        self.last = fact


def native_of(fact: object) -> str:
    """The native turn that a fact is about, "" where it is about none."""
    match fact:
        case (
            PromptRecorded()
            | AssistantSaid()
            | ToolStarted()
            | ToolFinished()
            | ProviderRetrying()
            | TurnContinued()
            | TurnClosed()
        ):
            return fact.native_turn
        case _:
            return ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one open turn and its session.

    Attributes:
        stage: of its message while it is not bound: ``waiting``, ``typing``, ``submitted``, ``queued``; else "".
        held: why delivery waits for a person: a phrase, or "".
        dialog: kind and question of an open dialog, or None.
        journal_waits: whether the journal could not take something.
        settling: the turn was told its end, and its completion is not committed yet.
        cli: ``starting``, ``idle`` (alive and past its start) or ``gone``.
        ending: the CLI is gone and its record is not read to the end yet.
        unread: the record that cannot be read, and why; both "" while it can.
        since: when the turn was accepted, Unix seconds.
    """

    provider: str
    stage: str = ""
    held: str = ""
    dialog: tuple[str, str] | None = None
    journal_waits: bool = False
    settling: bool = False
    cli: str = "idle"
    ending: bool = False
    unread: tuple[str, str] = ("", "")
    status: CliStatusSeen | None = None
    track: Track = msgspec.field(default_factory=Track)
    bound_at: float | None = None
    since: float | None = None


def diagnose(view: View) -> Wait:
    """What that turn waits for, the most certain cause first."""
    last = view.track.last
    evidence: Evidence | None = getattr(last, "evidence", None)
    heard_at = evidence.native_at if evidence is not None and evidence.native_at is not None else view.bound_at
    if view.journal_waits:
        return Wait(kind="journal", what="the journal to be writable", since=view.since)
    if view.settling:
        return Wait(kind="journal", what="the journal to take the completion", since=heard_at)
    if view.dialog is not None:
        kind, question = view.dialog
        return Wait(kind="person", what=f"a person: a {kind} dialog is open: {shown(question)}", evidence=evidence)
    path, reason = view.unread
    if reason:
        what = f"the record of {view.provider}, {shown(path)}, which cannot be read: {reason}"
        return Wait(kind="record", what=what, evidence=evidence)
    if view.ending:
        return Wait(kind="provider_gone", what=f"the record of {view.provider}, which is gone", evidence=evidence)
    if view.held:
        return Wait(kind="person", what=f"a person: {view.held}", since=view.since)
    if view.cli == "starting":
        return Wait(kind="cli_start", what=f"{view.provider} to take input", since=view.since)
    if view.stage == "queued":
        return Wait(kind="queue", what=f"the queue of {view.provider}", since=view.since)
    if view.stage:
        what = "to show the message on record" if view.stage == "submitted" else "to take the message"
        return Wait(kind="delivery", what=f"{view.provider} {what}", since=view.since)
    if view.track.tools:
        tool = next(iter(view.track.tools.values()))
        return Wait(kind="tool", what=f"tool {tool.name}", since=tool.evidence.native_at, evidence=tool.evidence)
    if isinstance(last, ProviderRetrying):
        return Wait(kind="retry", what=f"{view.provider}, which tries again", since=heard_at, evidence=evidence)
    status = view.status
    if status is not None and status.status == "waiting":
        what = status.waiting_for or "something"
        return Wait(kind="person", what=f"a person: {view.provider} waits for {shown(what)}", since=status.updated_at)
    if status is not None and status.status == "idle" and heard_at is not None and status.updated_at >= heard_at:
        what = f"the terminal record of {view.provider}, which says that it is idle"
        return Wait(kind="terminal_record", what=what, since=status.updated_at, evidence=evidence)
    return Wait(kind="model", what="the model", since=heard_at, evidence=evidence)


def shown(text: str) -> str:
    """On one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS_MAX else line[: SHOWN_CHARS_MAX - 1] + "…"
