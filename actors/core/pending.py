"""A message that waits for its turn, and what the CLI's record calls it."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Literal

import msgspec

from lastword.actors.core.adapter import TypedText
from lastword.actors.core.facts import InputDropped, InputJoined, InputQueued
from lastword.actors.core.ids import MessageId, TurnId

MERGE_STEPS_MAX = 50_000
"""Comparisons that are spent on finding out which messages the CLI merged into one prompt."""

Stage = Literal["waiting", "typing", "submitted", "queued"]


class Pending(msgspec.Struct, kw_only=True):
    """A message that is accepted and not yet bound to a native turn.

    ``stage``: ``waiting`` (nothing typed), ``typing`` (with the pane), ``submitted`` (Enter pressed), ``queued`` (the
    record shows it in the CLI's own queue). ``unwanted``: its turn is being cancelled; it is not delivered anew.
    ``clock_s``: wall minus monotonic clock at acceptance; ``set_back_s``: how far the wall was behind that since.
    ``entered_at``: Unix time just before Enter was pressed for it in this life. ``recorded``: as
    the CLI's queue has it.
    """

    message_id: MessageId
    typed: TypedText
    turn_id: TurnId | None
    stage: Stage = "waiting"
    accepted_at: float = 0.0
    clock_s: float | None = None
    set_back_s: float = 0.0
    unwanted: bool = False
    entered_at: float | None = None
    recorded: str = ""


def record_of(fact: InputQueued | InputJoined | InputDropped) -> str:
    """Which record that is, in one word: the same one, read again, has the same."""
    evidence = fact.evidence
    where = evidence.native_id or f"{evidence.source}@{evidence.offset}"
    what = f"{type(fact).__name__}\0{where}\0{evidence.native_at}\0{fact.text}"
    return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def cover(wanted: str, by_text: dict[str, deque[Pending]]) -> list[Pending]:
    """Two or more texts, each message used once, that make up ``wanted``; what was accepted earlier is tried first."""
    steps = 0
    taken: list[tuple[str, Pending]] = []
    levels = [iter(tuple(by_text))]
    offset = 0
    while levels:
        for text in levels[-1]:
            steps += 1
            if steps > MERGE_STEPS_MAX:
                return []
            if not by_text[text] or not wanted.startswith(text, offset):
                continue
            taken.append((text, by_text[text].popleft()))
            offset += len(text)
            if offset == len(wanted) and len(taken) > 1:
                return [pending for _, pending in taken]
            levels.append(iter(tuple(by_text)))
            break
        else:
            levels.pop()
            if taken:
                text, pending = taken.pop()
                by_text[text].appendleft(pending)
                offset -= len(text)
    return []
