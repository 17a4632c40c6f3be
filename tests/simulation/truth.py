"""The model's own log: what the simulated CLIs really did. Written by them alone; read by the checker alone."""

from __future__ import annotations

import msgspec


class Worked(msgspec.Struct, kw_only=True):
    """One native turn as the CLI saw it. Times are virtual Unix seconds; None: it never happened."""

    native: str
    session: str
    conversation: str
    pid: int
    text: str
    origin: str
    started: float
    takes: list[str] = msgspec.field(default_factory=list)
    """Texts entered that this turn began with or absorbed."""
    prompt_at: float | None = None
    """When the prompt's line was whole in the file."""
    answer: str = ""
    answer_at: float | None = None
    status: str = ""
    error: str = ""
    end_at: float | None = None
    """When the first terminal line was whole in the file."""
    idle_at: float | None = None
    interrupted_at: float | None = None
    died_at: float | None = None


class Taken(msgspec.Struct, kw_only=True):
    """One text that Enter submitted to a CLI."""

    session: str
    text: str
    at: float
    pid: int
    by: str
    """``host`` or ``person``."""
    fate: str = ""
    """``turn``, ``joined``, ``dropped``, ``died``; "" while it is queued."""
    native: str = ""


class Truth(msgspec.Struct, kw_only=True):
    """Everything that happened."""

    turns: dict[str, Worked] = msgspec.field(default_factory=dict)
    taken: list[Taken] = msgspec.field(default_factory=list)
    faults: list[str] = msgspec.field(default_factory=list)
    """What no CLI should ever see: a key into a dialog, a text on top of a person's."""
    died: dict[int, float] = msgspec.field(default_factory=dict)
    """When which process ended."""
