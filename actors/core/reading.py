"""Facts to a plain list of turns: what ``lastword read`` prints. The convention is that of the provider cases.

It shows what the files alone prove: a turn without a terminal record is ``unsettled`` here, since only a live host can
know that its process is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from lastword.actors.core.facts import (
    Fact,
    InputJoined,
    PromptRecorded,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
    TurnInherited,
)
from lastword.actors.core.outcome import Status

ReadStatus: TypeAlias = Status | Literal["unsettled"]


class ReadTool(msgspec.Struct, kw_only=True):
    """One tool call of the turn's own model."""

    name: str
    status: ToolStatus = "no_result"


class ReadTurn(msgspec.Struct, kw_only=True):
    """One turn as the record tells it."""

    native: str
    input: str | None
    status: ReadStatus = "unsettled"
    final_text: str | None = None
    tools: dict[str, ReadTool] = {}
    joined: list[str] = []
    origin: str = ""
    error: str = ""
    error_kind: str = ""
    names: set[str] = set()
    """All names of the turn and of what it took in, for :func:`merged`."""
    by_end_of_file: bool = False

    @property
    def certainty(self) -> int:
        """How well its end is told: by a terminal record, by the end of the file, not at all."""
        return 0 if self.status == "unsettled" else 1 if self.by_end_of_file else 2

    def as_json(self) -> dict[str, Any]:
        """The turn in the form of the cases; optional keys only where they say something."""
        shown: dict[str, Any] = {
            "input": self.input,
            "status": self.status,
            "final_text": self.final_text,
            "tool_calls": [{"name": tool.name, "status": tool.status} for tool in self.tools.values()],
        }
        if self.joined:
            shown["joined"] = self.joined
        if self.origin:
            shown["origin"] = self.origin
        if self.status == "failed":
            shown["error"] = self.error
        return shown


def read_turns(facts: Iterable[Fact]) -> list[ReadTurn]:
    """Turns in order of start; each native turn once, whatever is told twice."""
    turns: dict[str, ReadTurn] = {}
    for fact in facts:
        match fact:
            case PromptRecorded(native_turn=native) if native in turns:
                turns[native].input = turns[native].input or fact.text.strip() or None  # echoed later
            case PromptRecorded():
                turns[fact.native_turn] = ReadTurn(
                    native=fact.native_turn,
                    input=fact.text.strip() or None,
                    origin=fact.origin,
                    names={fact.native_turn, *fact.also},
                )
            case InputJoined(native_turn=native) if native in turns:
                turns[native].joined.append(fact.text.strip())
                turns[native].names.update(fact.also)
            case ToolStarted(native_turn=native) if native in turns:
                turns[native].tools.setdefault(fact.call_id, ReadTool(name=fact.name))
            case ToolFinished(native_turn=native) if native in turns and fact.call_id in turns[native].tools:
                turns[native].tools[fact.call_id].status = fact.status
            case TurnInherited(native_turn=native):
                turns.pop(native, None)
            case TurnClosed(native_turn=native) if native in turns and turns[native].status == "unsettled":
                turn = turns[native]
                turn.status = fact.status
                turn.by_end_of_file = fact.by_end_of_file
                turn.final_text = fact.answer if fact.status == "completed" else None
                if fact.error is not None:
                    turn.error = fact.error.native_kind or fact.error.message
                    turn.error_kind = fact.error.kind
            case _:
                pass
    return list(turns.values())


def merged(files: Iterable[Iterable[ReadTurn]]) -> list[ReadTurn]:
    """The turns of several files of one conversation, each once, in the order given.

    Two files tell the same turn where they share a name of it; a turn that one file tells whole may be told as several
    by another that does not know what belongs together. The telling with the better proved end is taken.
    """
    tellings: list[list[ReadTurn]] = []
    place_of: dict[str, int] = {}
    for turn in (turn for turns in files for turn in turns):
        known = sorted({place_of[name] for name in turn.names if name in place_of})
        if known:
            place = known[0]
        else:
            place = len(tellings)
            tellings.append([])
        for other in known[1:]:
            tellings[place] += tellings[other]
            tellings[other] = []
        tellings[place].append(turn)
        for told in tellings[place] if known else (turn,):
            for name in told.names:
                place_of[name] = place
    return [max(told, key=lambda turn: turn.certainty) for told in tellings if told]
