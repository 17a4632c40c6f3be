"""The record of a conversation with a model's API: lines of ours, and what they say to the model.

An API keeps no file that we could read, so its record is kept by us, in the journal (docs/adr/0011): one line for each
thing that happened, written before anyone hears of it. The same lines are read for facts, like a CLI's own file, and
are what the model is told of the conversation. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.outcome import Status, TurnError

ToolEnd = Literal["ok", "error", "no_result"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool by the model; ``arguments`` is JSON text, as the model wrote it.

    ``key`` names it in the record: its id, made unique in its turn where the service gives one twice.
    """

    id: str
    name: str
    arguments: str
    key: str = ""


class Prompted(msgspec.Struct, frozen=True, kw_only=True, tag="prompted"):
    """A turn began with this message. ``turn`` is its name in the record."""

    turn: str
    message: str
    text: str
    at: float


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag="joined"):
    """A message that came during the turn is told to the model with its next request."""

    turn: str
    message: str
    text: str
    at: float


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The model answered one request, whole.

    Attributes:
        content: the answer in the vendor's own form, as it is told to the model again; ``null`` where it cannot be.
        text: what of it is text.
        answer: the turn's final answer, where this ends it; None where the turn goes on.
    """

    turn: str
    response: str
    content: msgspec.Raw
    text: str
    at: float
    calls: tuple[Call, ...] = ()
    answer: str | None = None
    model: str = ""
    stop: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True, tag="tool_ended"):
    """A tool of the host's ended; ``result`` is what the model is told, ``call`` the key of its call."""

    turn: str
    call: str
    name: str
    status: ToolEnd
    result: str
    at: float


class Retried(msgspec.Struct, frozen=True, kw_only=True, tag="retried"):
    """A request failed and is made again."""

    turn: str
    message: str
    at: float


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The turn is over without a final answer."""

    turn: str
    status: Status
    at: float
    error: TurnError | None = None


Line: TypeAlias = Prompted | Joined | Answered | ToolEnded | Retried | Ended

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def encode(line: Line) -> bytes:
    """One line of the record, without its newline."""
    return _encode(line)


def decode(data: bytes) -> Line:
    """The same back.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    return _decode(data)


# --- what the model is told -----------------------------------------------------------------------------------------


class Human(msgspec.Struct, frozen=True):
    """Text of the host's."""

    text: str


class Model(msgspec.Struct, frozen=True):
    """What the model said, in the vendor's own form."""

    content: msgspec.Raw


class Result(msgspec.Struct, frozen=True):
    """What became of one call."""

    call: str
    text: str
    failed: bool


class Note(msgspec.Struct, frozen=True):
    """In the model's place: how a turn ended that it did not answer. A prompt that stays unanswered would be answered
    together with the next one (C16).
    """

    text: str


Piece: TypeAlias = Human | Model | Result | Note

NO_RESULT = "No result: the turn was over before the tool's end was known. It may have run."


EMPTY = "[empty answer]"


def unanswered(status: str, kind: str) -> str:
    """The note behind a turn without an answer."""
    return f"[This turn was not answered: {status}, {kind}.]" if kind else f"[This turn was not answered: {status}.]"


def told(lines: Iterable[Line]) -> list[Piece]:
    """The conversation for the model: each call with its result, each turn that is over with an end, and nothing open
    but the last one.
    """
    pieces: list[Piece] = []
    owed: dict[str, Call] = {}
    turn = ""

    def pay() -> None:
        pieces.extend(Result(call.id, NO_RESULT, failed=True) for call in owed.values())
        owed.clear()

    def close(note: str) -> None:
        nonlocal turn
        pay()
        pieces.append(Note(note))
        turn = ""

    for line in lines:
        match line:
            case Prompted():
                if turn:
                    close(unanswered("lost", "provider_exited"))
                turn = line.turn
                pieces.append(Human(line.text))
            case Joined():
                pay()
                pieces.append(Human(line.text))
            case Answered():
                pay()
                if bytes(line.content) != b"null":
                    pieces.append(Model(line.content))
                elif line.text.strip():
                    pieces.append(Note(line.text))
                owed.update({call.key: call for call in line.calls})
                if line.answer is not None:
                    turn = ""
                    if bytes(line.content) == b"null" and not line.text.strip():
                        pieces.append(Note(EMPTY))
            case ToolEnded():
                call = owed.pop(line.call, None)
                if call is not None:
                    pieces.append(Result(call.id, line.result, failed=line.status != "ok"))
            case Ended():
                if turn:
                    close(unanswered(line.status, line.error.kind if line.error is not None else ""))
            case Retried():
                pass
    return pieces
