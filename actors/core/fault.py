"""What failed, in one line for a person: the part, the exception, where it was raised; never the text of a prompt."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import PurePath
from typing import Literal

import msgspec

from lastword.actors.core.errors import LastwordError, ProviderError

SAID_CHARS_MAX = 200
"""Of an exception's own message."""
PROMPT_CHARS = 16
"""So many characters in a row that stand in a prompt too make a message one that tells of the prompt."""
UNTOLD = "(its message holds text of a prompt)"


class PartFailedError(RuntimeError):
    """A part of a session failed, and the session with it; the cause is what the part raised.

    Attributes:
        part: the name of its actor.
    """

    def __init__(self, part: str) -> None:
        super().__init__(f"{part} failed")
        self.part = part


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why an actor of a session failed.

    Attributes:
        kind: ``adapter_failed`` where the adapter raised, else ``internal``: as the error of a completion has it.
        what: the part, the exception with its message, and where it was raised.
    """

    kind: Literal["adapter_failed", "internal"]
    what: str


def fault_of(error: BaseException, part: str, texts: Iterable[str] = ()) -> Fault:
    """``part``: the name of the actor that raised it; ``texts``: the prompts, of which nothing is to be told."""
    while isinstance(error, PartFailedError) and error.__cause__ is not None:
        part, error = error.part, error.__cause__
    adapters = isinstance(error, ProviderError) and error.kind == "adapter_failed"
    raised = error.__cause__ if adapters and error.__cause__ is not None else error
    said = _said(raised, texts)
    named = error.reason if adapters and isinstance(error, LastwordError) else type(raised).__name__
    told = f"{named}: {said}" if said else named
    return Fault(kind="adapter_failed" if adapters else "internal", what=f"{part}: {told}{_where(raised)}")


def _said(error: BaseException, texts: Iterable[str]) -> str:
    said = error.reason if isinstance(error, LastwordError) else str(error)
    said = " ".join(said.split())[:SAID_CHARS_MAX]
    return UNTOLD if said and any(_tells_of(said, text) for text in texts) else said


def _tells_of(said: str, text: str) -> bool:
    """Whether a run of characters of the one stands in the other."""
    text = " ".join(text.split())
    if len(text) <= PROMPT_CHARS:
        return len(text) > 1 and text in said
    return any(said[at : at + PROMPT_CHARS] in text for at in range(max(0, len(said) - PROMPT_CHARS + 1)))


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
