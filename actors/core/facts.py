"""What an oracle reads out of a provider's own record: facts. And what may only wake a reader: hints.

The two are separate unions, so that a type checker refuses a hint where a fact is wanted. Only a
:class:`TurnClosed` (or the proved end of the endpoint, :class:`RecordExhausted`) may settle a turn.
``native_turn`` names the provider's own turn; it says nothing about a turn id of ours, unless that stands in the
bytes. Facts come in file order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.outcome import Evidence, Status, TurnError

ToolStatus = Literal["ok", "error", "no_result"]
Taken = Literal["typed", "queued", "sdk", "shell", "self"]


class PromptRecorded(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_recorded"):
    """A native turn began.

    Attributes:
        text: what the CLI recorded as its input, its own wrapping removed; "" where it has no human text.
        taken: how the CLI took it: typed, out of its own queue, over its SDK, a shell line (``!``), or by itself.
        origin: why, where nobody typed it: ``task_notification``, ``hook``, ``local_command``; else "".
        also: other names of this native turn, under which another file of the same conversation may tell it.
        key: the name of the message in the record, where we gave it one: it alone then tells whose it is.
    """

    native_turn: str
    text: str
    evidence: Evidence
    taken: Taken = "typed"
    origin: str = ""
    also: tuple[str, ...] = ()
    key: str = ""


class InputQueued(msgspec.Struct, frozen=True, kw_only=True, tag="input_queued"):
    """The CLI took a message into its own queue. Proof of submission, not yet of a turn. ``key``: see
    :class:`PromptRecorded`.
    """

    text: str
    evidence: Evidence
    key: str = ""


class InputJoined(msgspec.Struct, frozen=True, kw_only=True, tag="input_joined"):
    """The CLI absorbed a message into the running native turn. ``also``, ``key``: see :class:`PromptRecorded`."""

    native_turn: str
    text: str
    evidence: Evidence
    also: tuple[str, ...] = ()
    key: str = ""


class InputDropped(msgspec.Struct, frozen=True, kw_only=True, tag="input_dropped"):
    """The CLI took a message out of its queue and neither ran nor absorbed it (edited back, removed, lost)."""

    text: str
    reason: str
    evidence: Evidence
    key: str = ""


class AssistantSaid(msgspec.Struct, frozen=True, kw_only=True, tag="assistant_said"):
    """One complete assistant message of the turn; says nothing about whether the turn is over.

    ``native_message`` is the provider's id of the message; a later fact with the same id replaces its text
    (a message may be recorded block by block). ``ends_by_itself``: the message is of the kind behind which a turn may
    be over; that alone says nothing either.
    """

    native_turn: str
    native_message: str
    text: str
    evidence: Evidence
    ends_by_itself: bool = False


class ToolStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tool_intended"):
    """The model called a tool. ``arguments`` is the JSON text of its input."""

    native_turn: str
    call_id: str
    name: str
    arguments: str
    evidence: Evidence


class ToolFinished(msgspec.Struct, frozen=True, kw_only=True, tag="tool_resulted"):
    """The tool's result as recorded. ``result`` is text, cut to a bounded length by the oracle."""

    native_turn: str
    call_id: str
    status: ToolStatus
    result: str
    evidence: Evidence


class ProviderRetrying(msgspec.Struct, frozen=True, kw_only=True, tag="provider_retrying"):
    """The CLI is trying again by itself after an error; nothing is over."""

    native_turn: str
    message: str
    evidence: Evidence


class TurnContinued(msgspec.Struct, frozen=True, kw_only=True, tag="turn_continued"):
    """A Stop hook sent the answer back: the same turn goes on."""

    native_turn: str
    reason: str
    evidence: Evidence


class TurnClosed(msgspec.Struct, frozen=True, kw_only=True, tag="turn_closed"):
    """The provider's terminal record of a native turn.

    Attributes:
        answer: text of the last assistant message (all its blocks) when completed, "" when it recorded none;
            None for every other status.
        background_pending: background tasks that the record says are still running.
        by_end_of_file: no terminal record says so; the record shows it because its writer is gone.
    """

    native_turn: str
    status: Status
    evidence: Evidence
    answer: str | None = None
    error: TurnError | None = None
    background_pending: int = 0
    by_end_of_file: bool = False


class TurnInherited(msgspec.Struct, frozen=True, kw_only=True, tag="turn_inherited"):
    """That native turn is copied history of another conversation (a fork): it is none of this one's."""

    native_turn: str
    evidence: Evidence


class CompactionRecorded(msgspec.Struct, frozen=True, kw_only=True, tag="compaction_recorded"):
    """The CLI compacted its conversation. Belongs to the turn around it, or to no turn."""

    evidence: Evidence


class CliVersionSeen(msgspec.Struct, frozen=True, kw_only=True, tag="cli_version_seen"):
    """The record names the CLI's version."""

    version: str


class CliStatusSeen(msgspec.Struct, frozen=True, kw_only=True, tag="cli_status_seen"):
    """The CLI's own session registry.

    Attributes:
        status: ``idle``, ``busy``, ``waiting`` (a dialog is open) or the CLI's newer word.
        waiting_for: its own words for what it waits for, or "".
        updated_at: when the CLI last changed the status, Unix seconds.
        native_session: the conversation that it is in now; differs from the one before after ``/clear``.
    """

    status: str
    waiting_for: str
    updated_at: float
    native_session: str


class UnknownRecord(msgspec.Struct, frozen=True, kw_only=True, tag="unknown_record"):
    """A record that the oracle does not know, or cannot read. Counted, never fatal.

    ``times``: so many of that kind, where several are told as one; the evidence is the last one's.
    """

    what: str
    evidence: Evidence
    times: int = 1


class RecordExhausted(msgspec.Struct, frozen=True, kw_only=True, tag="record_exhausted"):
    """Our own child is gone *and* its record has been read to the end: the one fact that is the system's (C03).

    ``exit_status`` is the process's, None where only its end is known.
    """

    exit_status: int | None = None
    unread: str = ""
    """Why it could not be read, for as long as that was tried; empty: it was read to its end."""


Fact: TypeAlias = (
    PromptRecorded
    | InputQueued
    | InputJoined
    | InputDropped
    | AssistantSaid
    | ToolStarted
    | ToolFinished
    | ProviderRetrying
    | TurnContinued
    | TurnClosed
    | TurnInherited
    | CompactionRecorded
    | CliVersionSeen
    | CliStatusSeen
    | UnknownRecord
    | RecordExhausted
)


def counted(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The same facts, with the unknown records of each kind told as one, behind all else: there may be a million."""
    known: list[Fact] = []
    unknown: dict[str, list[UnknownRecord]] = {}
    for fact in facts:
        if isinstance(fact, UnknownRecord):
            unknown.setdefault(fact.what, []).append(fact)
        else:
            known.append(fact)
    for what, told in unknown.items():
        times = sum(each.times for each in told)
        known.append(UnknownRecord(what=what, evidence=told[-1].evidence, times=times))
    return tuple(known)


class FileChangedHint(msgspec.Struct, frozen=True, kw_only=True):
    """A watched file may have changed: look."""

    path: str = ""


class EndpointGoneHint(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI's process is gone: read its record to the end. Not a verdict."""

    exit_status: int | None = None


class SweepHint(msgspec.Struct, frozen=True, kw_only=True):
    """The slow poll, in case another hint was lost."""


Hint: TypeAlias = FileChangedHint | EndpointGoneHint | SweepHint
