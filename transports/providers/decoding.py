r"""How every line, snapshot and answer of a CLI is decoded: JSON to a wire struct. Pure.

A text that a program in JavaScript cut in the middle of an emoji holds half a surrogate pair, and ``JSON.stringify``
writes that as an escape of its own (``\ud83d``). It is valid JSON and no Unicode: msgspec refuses the whole line. So
the line is read with U+FFFD in its place, as every writer of UTF-8 would have put it; whole pairs stay, and a line that
is refused for any other reason is refused as before. Only what was refused is looked at twice.
"""

from __future__ import annotations

import json
import re
from typing import Generic, TypeVar

import msgspec

_T = TypeVar("_T")

_HEX = rb"[0-9a-fA-F]{2}"
_PAIR = rb"\\u[dD][89abAB]" + _HEX + rb"\\u[dD][c-fC-F]" + _HEX
_ESCAPED = re.compile(
    rb"(?<!\\)((?:\\\\)*)"  # after an even number of backslashes: an escape, not a text that speaks of one
    rb"(?:(?:" + _PAIR + rb")+|\\u([dD][89a-fA-F]" + _HEX + rb"))"
)
_RAW = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""The same as three bytes, as a writer that does not look writes it."""


class Decoder(Generic[_T]):
    """Decodes one kind of wire struct. Safe from any thread.

    Args:
        type_: the struct.
    """

    def __init__(self, type_: type[_T]) -> None:
        self._decode = msgspec.json.Decoder(type_).decode

    def decode(self, data: bytes | msgspec.Raw) -> _T:
        """What the bytes say.

        Raises:
            msgspec.ValidationError: JSON of another shape.
            msgspec.DecodeError: no JSON.
            RecursionError: nested too deep.
        """
        try:
            return self._decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            mended = mend(bytes(data))
            if mended is None:
                raise
        return self._decode(mended)


def mend(data: bytes) -> bytes | None:
    """The same JSON with U+FFFD for each half of a surrogate pair; None where it holds none."""
    mended = _ESCAPED.sub(_whole, data) if b"\\ud" in data or b"\\uD" in data else data
    if _RAW.search(mended):
        try:
            text = mended.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return None  # no UTF-8 for other reasons too
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return mended if mended != data else None


def meant(data: bytes) -> bytes:
    """JSON of what is nearly JSON, for a line that nobody may pass over: ``NaN`` and infinities are null, control
    characters within a text stand for themselves, what is no UTF-8 is U+FFFD.

    Raises:
        ValueError: it is nothing of the kind.
        RecursionError: nested too deep.
    """
    return msgspec.json.encode(json.loads(data.decode("utf-8", "replace"), strict=False))


def _whole(found: re.Match[bytes]) -> bytes:
    return found[0] if found[2] is None else found[1] + rb"\ufffd"
