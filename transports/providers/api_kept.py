"""What is kept of a model's answer for the requests after it: a form that the service takes again.

A service refuses in a conversation what it once said itself: a blank text, arguments that are no object, a name with
other characters, two calls of one id. Kept so, one odd answer would fail every later request. What was recorded before
this was known goes through the same form whenever it is told (:func:`healed`): the record stays as it is. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from lastword.actors.core.conversation import Answered, Call, Line
from lastword.actors.core.tools import arguments_of

NAME_CHARS_MAX = 64
"""Of a tool's name; the bound of both vendors."""
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def _free(wanted: str, used: set[str]) -> str:
    """That name, or one like it that is not used; used from now on."""
    name, number = wanted, 1
    while name in used:
        number += 1
        name = f"{wanted}_{number}"
    used.add(name)
    return name


class KeptCalls:
    """The calls of one answer, in order.

    Args:
        plain_ids: ids take letters, digits, ``_`` and ``-`` alone (Anthropic).
    """

    def __init__(self, *, plain_ids: bool = False) -> None:
        self.calls: list[Call] = []
        """As the model wrote them, so that what was wrong is told as it is; ids as they are kept."""
        self._plain_ids = plain_ids
        self._ids: set[str] = set()

    def keep(self, call_id: str, name: str, arguments: str) -> tuple[str, str, dict[str, Any] | None]:
        """Id and name to be told again; the arguments, or None where they are no object ({} is kept of those)."""
        wanted = _NO_NAME.sub("_", call_id) if self._plain_ids else call_id
        kept_id = _free(wanted or f"call_{len(self.calls)}", self._ids)
        self.calls.append(Call(id=kept_id, name=name, arguments=arguments))
        return kept_id, _NO_NAME.sub("_", name)[:NAME_CHARS_MAX] or "unnamed", arguments_of(arguments)


class CallIds:
    """Ids of calls in a conversation that is told: some services number the calls of each answer anew."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._told: dict[str, str] = {}

    def call(self, call_id: str) -> str:
        """Of a call."""
        told = self._told[call_id] = _free(call_id, self._used)
        return told

    def result(self, call_id: str) -> str:
        """Of the result behind it."""
        return self._told.get(call_id, call_id)


class Kept(msgspec.Struct, frozen=True):
    """What is kept of one answer.

    Attributes:
        content: in the vendor's own form, as it is taken again; ``null`` where nothing is left of it.
        text: what of it is text, as it was said.
        calls: in order.
    """

    content: msgspec.Raw
    text: str
    calls: tuple[Call, ...]


def kept(items: list[Any], texts: Iterable[str], calls: KeptCalls) -> Kept:
    """The same, put together."""
    content = msgspec.json.encode(items) if items else b"null"
    return Kept(msgspec.Raw(content), "".join(texts), tuple(calls.calls))


def healed(lines: Iterable[Line], keep: Callable[[msgspec.Raw], Kept]) -> Iterator[Line]:
    """The lines, each answer in a form that the service takes again; ``keep`` makes it of the vendor's own form.

    What is in that form stays as it is. What ``keep`` cannot read, or reads other calls in than the record has, is told
    as it was recorded: it is not known what is wrong with it.
    """
    for line in lines:
        if not isinstance(line, Answered) or bytes(line.content) == b"null":
            yield line
            continue
        try:
            again = keep(line.content)
        except msgspec.MsgspecError:
            yield line
            continue
        if len(again.calls) != len(line.calls):
            yield line
            continue
        calls = [msgspec.structs.replace(call, id=new.id) for call, new in zip(line.calls, again.calls, strict=True)]
        yield msgspec.structs.replace(line, content=again.content, calls=tuple(calls))


__all__ = ["CallIds", "Kept", "KeptCalls", "healed", "kept"]
