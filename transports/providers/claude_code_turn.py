"""The native turn that a transcript has open, and the message in it that is being recorded. Pure."""

from __future__ import annotations

from collections import deque

from lastword.actors.core.outcome import Evidence
from lastword.transports.providers.claude_code_records import Position

ENDS_BY_ITSELF = frozenset({"end_turn", "stop_sequence", "pause_turn", "max_tokens", "refusal"})
"""stop_reasons of a message behind which a turn may be over; any other, known or new, goes on."""
CUT_MARK = "\n…[cut by lastword]"
UUIDS_MAX = 8192
"""Record ids of the open turn that are kept to tell its terminal record from a late one."""
BLOCKS_MAX = 1_000
"""Text blocks of one message; further ones are dropped and counted."""
ANSWER_CHARS_MAX = 4 * 1024 * 1024
"""Of the text of one message; what goes beyond is cut off, with a mark."""
FREELY_TOLD_CHARS = 64 * 1024
"""A longer unfinished message is told again only when it has grown by an eighth: telling costs what it is long."""


class Said:
    """The assistant message that is being recorded, block by block."""

    __slots__ = ("_chars", "_text", "blocks", "carry", "evidence", "id", "stop_reason", "told")

    def __init__(self, message_id: str, carry: str) -> None:
        self.id = message_id
        self.blocks: dict[int, str] = {}
        self.carry = carry
        self.stop_reason: str | None = None
        self.evidence: Evidence | None = None
        self.told = ""
        self._chars = len(carry)
        self._text: str | None = None

    @property
    def text(self) -> str:
        """All of it so far."""
        if self._text is None:
            self._text = self.carry + "".join(self.blocks[index] for index in sorted(self.blocks))
        return self._text

    @property
    def final(self) -> bool:
        """It ended by itself: a turn may be over behind it."""
        return self.stop_reason in ENDS_BY_ITSELF

    def add(self, index: int, text: str) -> bool:
        """Take one block, cut to what a message may hold; False where it takes no more."""
        before = self.blocks.get(index)
        if before is None and len(self.blocks) >= BLOCKS_MAX:
            return False
        left = ANSWER_CHARS_MAX - self._chars + len(before or "")
        if left <= 0:
            return False
        if len(text) > left:
            text = text[:left] + CUT_MARK
        self._chars += len(text) - len(before or "")
        self.blocks[index] = text
        self._text = None
        return True

    def worth_telling(self, *, over: bool) -> bool:
        """Whether there is a text that was not told, and telling it is in proportion."""
        if not self.text or self.text == self.told:
            return False
        return over or len(self.text) <= FREELY_TOLD_CHARS or len(self.text) >= len(self.told) * 9 // 8


class NativeTurn:
    """The open native turn."""

    __slots__ = (
        "inherited",
        "native",
        "output",
        "parent",
        "position",
        "said",
        "tools",
        "uuid_order",
        "uuids",
    )

    def __init__(self, native: str, parent: str | None, position: Position | None) -> None:
        self.native = native
        self.parent = parent
        self.position = position
        self.output = False
        self.inherited = False
        self.said: Said | None = None
        self.tools: dict[str, None] = {}
        self.uuids: set[str] = set()
        self.uuid_order: deque[str] = deque()

    @property
    def final(self) -> bool:
        """Its last message ended by itself, and no tool runs."""
        return self.said is not None and self.said.final and not self.tools

    def own(self, uuid: str) -> None:
        """Note that this record stands in the turn's chain."""
        if uuid in self.uuids:
            return
        self.uuids.add(uuid)
        self.uuid_order.append(uuid)
        if len(self.uuid_order) > UUIDS_MAX:
            self.uuids.discard(self.uuid_order.popleft())
