"""Wire shapes of Codex: a line of a rollout, of ``exec --json``, of the app-server.

Source: codex-cli 0.171.0; rollouts in tests/fixtures/codex/0.171.0. Unknown fields are free; a line whose known fields
have other types does not decode and is counted as unknown.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Attribution(msgspec.Struct, frozen=True):
    """Why a task started; a parent turn or an agent's path is that of a sub-agent."""

    parent_turn_id: str | None = None
    initiating_agent_path: Any = None


class Window(msgspec.Struct, frozen=True):
    """One rate limit."""

    used_percent: float | None = None
    resets_at: float | None = None


class RateLimits(msgspec.Struct, frozen=True):
    """What ``token_count`` says about limits."""

    primary: Window | None = None
    secondary: Window | None = None


class ErrorField(msgspec.Struct, frozen=True):
    """``error`` of a ``task_complete``; ``codex_error_info`` is a word, or ``{word: {http_status_code}}``."""

    message: str = ""
    codex_error_info: Any = None


class Item(msgspec.Struct, frozen=True):
    """The item of an ``item_completed``."""

    type: str = ""
    id: str = ""
    client_id: str | None = None
    content: Any = None
    source: str | None = None
    status: str | None = None
    exit_code: int | None = None


class Payload(msgspec.Struct, frozen=True):
    """The payload of any line that is read."""

    type: str = ""
    id: str = ""
    thread_id: str = ""
    turn_id: str = ""
    cli_version: str = ""
    source: Any = None
    thread_source: Any = None
    turn_attribution: Attribution | None = None
    item: Item | None = None
    last_agent_message: str | None = None
    error: ErrorField | None = None
    message: Any = None
    rate_limits: RateLimits | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: Any = None
    input: Any = None
    output: Any = None


class RolloutLine(msgspec.Struct, frozen=True):
    """One line of a rollout."""

    type: str = ""
    timestamp: str | None = None
    ordinal: int | None = None
    payload: Payload | None = None


class ExecItem(msgspec.Struct, frozen=True):
    """The item of an exec event."""

    id: str = ""
    type: str = ""
    text: str | None = None
    command: Any = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    changes: Any = None
    query: str | None = None


class ExecError(msgspec.Struct, frozen=True):
    """The error of a failed exec turn."""

    message: str = ""


class ExecLine(msgspec.Struct, frozen=True):
    """One event of ``codex exec --json``."""

    type: str = ""
    thread_id: str = ""
    item: ExecItem | None = None
    error: ExecError | None = None
    message: str | None = None


class ServerError(msgspec.Struct, frozen=True, rename="camel"):
    """A turn's error."""

    message: str = ""
    codex_error_info: Any = None
    additional_details: str | None = None


class ServerTurn(msgspec.Struct, frozen=True):
    """A turn in a notification or reply."""

    id: str = ""
    status: str = ""
    error: ServerError | None = None


class ServerThread(msgspec.Struct, frozen=True, rename="camel"):
    """A thread in a notification or reply."""

    id: str = ""
    cli_version: str | None = None


class ServerItem(msgspec.Struct, frozen=True, rename="camel"):
    """An item of a turn."""

    type: str = ""
    id: str = ""
    client_id: str | None = None
    content: Any = None
    text: str | None = None
    command: Any = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    changes: Any = None
    query: str | None = None


class ServerWindow(msgspec.Struct, frozen=True, rename="camel"):
    """One rate limit."""

    used_percent: float | None = None
    resets_at: float | None = None


class ServerRateLimits(msgspec.Struct, frozen=True):
    """What ``account/rateLimits/updated`` says about limits."""

    primary: ServerWindow | None = None
    secondary: ServerWindow | None = None


class ServerParams(msgspec.Struct, frozen=True, rename="camel"):
    """Parameters of a notification."""

    thread_id: str | None = ""
    turn_id: str | None = ""
    thread: ServerThread | None = None
    turn: ServerTurn | None = None
    item: ServerItem | None = None
    error: ServerError | None = None
    will_retry: bool | None = None
    rate_limits: ServerRateLimits | None = None

    @property
    def limits(self) -> RateLimits | None:
        """In the words of a rollout."""
        told = self.rate_limits
        if told is None:
            return None
        windows = [
            Window(used_percent=each.used_percent, resets_at=each.resets_at) if each is not None else None
            for each in (told.primary, told.secondary)
        ]
        return RateLimits(*windows)


class ServerResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a reply that is read: that of thread/start, thread/resume, turn/start, turn/steer."""

    thread: ServerThread | None = None
    turn: ServerTurn | None = None
    turn_id: str = ""


class ServerLine(msgspec.Struct, frozen=True):
    """One message of the app-server; ``id`` of a request or reply, ``method`` of a notification or request."""

    method: str = ""
    id: Any = None
    params: ServerParams | None = None
    result: Any = None
    emitted_at_ms: float | None = msgspec.field(default=None, name="emittedAtMs")


def text_of(content: Any) -> str:
    """The text of an item's content, its text blocks joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = [block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "".join(blocks)
