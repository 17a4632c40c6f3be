"""Wire shapes of a Claude Code transcript: one loose struct for a line, one for a content block, one for the registry.

Source: session JSONL and ``sessions/<pid>.json`` of Claude Code 2.1.332, tests/fixtures/claude_code/2.1.332. Unknown
fields are free; a line whose known fields have other types does not decode and is counted as unknown.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from lastword.transports.providers import decoding

METADATA_TYPES = frozenset(
    {
        "mode",
        "permission-mode",
        "atis-latch",
        "file-history-snapshot",
        "api-request-shape",
        "api-request-blob",
        "api-request",
        "last-prompt",
        "tools-used",
        "cost-state",
        "summary",
        "custom-title",
        "ai-title",
        "agent-name",
        "progress",
        "pr-link",
        "tag",
    }
)
"""Line types that say nothing about turns."""


class Block(msgspec.Struct, frozen=True):
    """One content block of a message."""

    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class Message(msgspec.Struct, frozen=True):
    """The API message inside a line."""

    id: str = ""
    model: str = ""
    content: str | list[Block] | None = None
    stop_reason: str | None = None


class OriginField(msgspec.Struct, frozen=True):
    """Why a prompt came."""

    kind: str = ""


class Position(msgspec.Struct, frozen=True):
    """Which prompt and turn of the conversation it is."""

    prompt: int = msgspec.field(default=0, name="promptIndex")
    turn: int = msgspec.field(default=0, name="turnIndex")


class Attachment(msgspec.Struct, frozen=True):
    """The payload of an ``attachment`` line."""

    type: str = ""
    prompt: Any = None
    command_mode: str = msgspec.field(default="", name="commandMode")


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the transcript, whatever its type."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    version: str | None = None
    entrypoint: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    prompt_id: str | None = None
    prompt_source: str | None = None
    row_source: str | None = None
    turn_origin: str | None = None
    turn_position: Position | None = None
    origin: OriginField | None = None
    message: Message | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    error: Any = None
    quota_limits: Any = None
    is_aborted_mid_stream: bool | None = None
    api_block_index: int | None = None
    request_session_id: str | None = None
    interrupted_message_id: str | None = None
    operation: str | None = None
    content: Any = None
    reason: str | None = None
    attachment: Attachment | None = None
    pending_background_agent_count: int | None = None
    forked_from: Any = None


class RegistryFile(msgspec.Struct, frozen=True, rename="camel"):
    """``~/.claude/sessions/<pid>.json``; ``status_updated_at`` in milliseconds."""

    pid: int = 0
    session_id: str = ""
    status: str = ""
    waiting_for: str | None = None
    status_updated_at: float | None = None
    version: str | None = None


_REGISTRY = decoding.Decoder(RegistryFile)


def parse_registry(data: bytes) -> RegistryFile | None:
    """The registry, None where it cannot be read (half written)."""
    try:
        return _REGISTRY.decode(data)
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
        return None


def when(timestamp: str | None) -> float | None:
    """An ISO stamp as Unix seconds, None where there is none or it is unreadable."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError):
        return None


def text_of(content: Any) -> str:
    """The text of a content value: a string, or its text blocks joined."""
    if isinstance(content, str):
        return content
    parts: list[str] = []
    if isinstance(content, list):
        for block in content:
            if isinstance(block, Block):
                if block.type == "text":
                    parts.append(block.text)
            elif isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
                parts.append(block["text"])
    return "\n".join(parts)
