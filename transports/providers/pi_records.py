"""Wire shapes of Pi: an entry of a session file, an event of its json and rpc output, a line of a push extension.

Source: pi 1.6.0, tests/fixtures/pi/1.6.0. Unknown fields are free; a line whose known fields have other types does not
decode and is counted as unknown.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Block(msgspec.Struct, frozen=True):
    """One content block of a message."""

    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    arguments: Any = None


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message; ``timestamp`` (milliseconds) is when it was made: a queued one, when it was queued."""

    role: str = ""
    content: str | list[Block] | None = None
    timestamp: float | None = None
    stop_reason: str | None = None
    error_message: str | None = None
    tool_call_id: str = ""
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """Its text blocks, joined."""
        if isinstance(self.content, list):
            return "".join(block.text for block in self.content if block.type == "text")
        return self.content or ""

    @property
    def calls(self) -> list[Block]:
        """Its tool calls, in order."""
        return [block for block in self.content if block.type == "toolCall"] if isinstance(self.content, list) else []

    @property
    def name(self) -> str:
        """Its own stamp as a name: the same in every file that holds the message; "" where it has none."""
        stamp = self.timestamp
        return str(int(stamp)) if stamp is not None and 0 < stamp < 1e14 else ""


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """One line of a session file; ``timestamp`` is when it was appended."""

    type: str = ""
    id: str = ""
    parent_id: str | None = None
    timestamp: str | None = None
    parent_session: str | None = None
    message: Message | None = None
    target_id: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One event of the json or rpc output."""

    type: str = ""
    id: Any = None
    message: Any = None
    aborted: bool | None = None
    tool_call_id: str = ""
    tool_name: str = ""
    args: Any = None
    is_error: bool | None = None
    result: Any = None
    error_message: str | None = None
    command: str = ""
    success: bool | None = None
    data: Any = None
    error: Any = None
    steering: list[str] = []
    follow_up: list[str] = []


class Recorded(msgspec.Struct, frozen=True):
    """An event inside a recorder's envelope; ``dir`` is ``in`` for what was said to Pi."""

    dir: str = ""
    rec: Event | None = None


class Pushed(msgspec.Struct, frozen=True, rename="camel"):
    """One line of a push extension: what an extension's handlers were told; ``t`` in milliseconds.

    Of ours alone: ``id``, whose message it is, or of a dialog; ``at``, the message's own stamp (ms); ``file``, of the
    conversation; ``kind`` and ``options`` of a dialog, whose question is ``msg``.
    """

    ev: str = ""
    t: float | None = None
    reason: str | None = None
    text: str | None = None
    streaming_behavior: str | None = None
    role: str | None = None
    stop: str | None = None
    err: str | None = None
    msg: str | None = None
    tool_name: str = ""
    tool_call_id: str = ""
    is_error: bool | None = None
    aborted: bool | None = None
    pending: bool | None = None
    leaf: str | None = None
    id: str = ""
    at: float | None = None
    args: Any = None
    file: str | None = None
    source: str = ""
    kind: str = ""
    options: list[str] = []

    @property
    def name(self) -> str:
        """As :attr:`Message.name`: the same in the session file."""
        return Message(timestamp=self.at).name
