"""The Agent Client Protocol as it stands on a line: what is read of it, and how a line is written. Pure.

JSON-RPC 2.0, one object a line, or a batch of them. The names are those of the protocol's schema, version 1; a test
holds every line that is written here against the models of the ``agent-client-protocol`` package, which costs half a
second to import and is therefore no part of a running host. What is read is read leniently: unknown members and kinds
are free, an error may have any shape, and what is nearly JSON (``NaN``, a raw control character) is read as what was
meant: an answer that is not read leaves its turn without an end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.transports.providers import decoding

PROTOCOL_VERSION = 1
INITIALIZE = "initialize"
NEW = "session/new"
LOAD = "session/load"
RESUME = "session/resume"
SET_MODE = "session/set_mode"
SET_OPTION = "session/set_config_option"
PROMPT = "session/prompt"
CANCEL = "session/cancel"
UPDATE = "session/update"
PERMISSION = "session/request_permission"
FENCE = "_lastword/fence"
"""Asked behind a ``session/load``: an agent may still be telling the old conversation when it has answered that. Any
answer will do, an error is one.
"""
AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError, OverflowError)


class RpcError(msgspec.Struct, frozen=True):
    """Why a request failed."""

    code: int = 0
    message: str = ""
    data: Any = None


class Rpc(msgspec.Struct, frozen=True):
    """One object: a request (method and id), a notification (method) or a response (id)."""

    id: Any = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: RpcError | None = None


class _AnyRpc(msgspec.Struct, frozen=True):
    """The same, as whatever it holds."""

    id: Any = None
    method: Any = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None


class Content(msgspec.Struct, frozen=True):
    """A block; only text is read."""

    type: str = ""
    text: str = ""
    content: Any = None
    path: str = ""


class ToolCall(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call, or what is new about it."""

    tool_call_id: str = ""
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[Any] | None = None
    raw_input: Any = None
    raw_output: Any = None
    meta: Any = msgspec.field(default=None, name="_meta")


class Update(ToolCall, frozen=True, rename="camel"):
    """What a ``session/update`` tells."""

    session_update: str = ""
    message_id: str | None = None
    content: Any = None


class UpdateParams(msgspec.Struct, frozen=True, rename="camel"):
    """Of a ``session/update``."""

    session_id: str = ""
    update: Update = Update()


class Option(msgspec.Struct, frozen=True, rename="camel"):
    """One answer to a permission request."""

    option_id: str = ""
    name: str = ""
    kind: str = ""


class PermissionParams(msgspec.Struct, frozen=True, rename="camel"):
    """Of a ``session/request_permission``."""

    session_id: str = ""
    tool_call: ToolCall = ToolCall()
    options: list[Option] = []


class PromptParams(msgspec.Struct, frozen=True, rename="camel"):
    """Of a ``session/prompt``."""

    session_id: str = ""
    prompt: list[Content] = []


class AgentInfo(msgspec.Struct, frozen=True):
    """Who it is."""

    name: str = ""
    version: str = ""


class AgentCapabilities(msgspec.Struct, frozen=True, rename="camel"):
    """What it can, of what matters here."""

    load_session: bool = False
    session_capabilities: dict[str, Any] | None = None


class Initialized(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to ``initialize``."""

    protocol_version: int = 0
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    agent_info: AgentInfo | None = None
    auth_methods: list[dict[str, Any]] = []


class ConfigOption(msgspec.Struct, frozen=True):
    """What may be chosen for a conversation."""

    id: str = ""
    category: str | None = None


class SessionOpened(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to ``session/new``, ``session/load`` and ``session/resume``."""

    session_id: str = ""
    config_options: list[ConfigOption] | None = None


class Prompted(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a prompt."""

    stop_reason: Any = ""


class Exited(msgspec.Struct, frozen=True):
    """Of our own note (:data:`~lastword.actors.core.talk.EXITED`)."""

    heard: int = 0


_RPC = decoding.Decoder(_AnyRpc)
_BATCH = decoding.Decoder(list[msgspec.Raw])


def read(line: bytes) -> list[Rpc]:
    """What stands on a line, in order; of a batch, what of it is an object. Raises any of :data:`UNREADABLE` where that
    is nothing.
    """
    try:
        return _read(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        meant = decoding.meant(line)
    return _read(meant)


def _read(line: bytes) -> list[Rpc]:
    try:
        return [_rpc(_RPC.decode(line))]
    except msgspec.ValidationError:
        batch = _BATCH.decode(line)
    found: list[Rpc] = []
    for each in batch:
        try:
            found.append(_rpc(_RPC.decode(each)))
        except UNREADABLE:
            continue
    if not found:
        raise ValueError("a batch of nothing")
    return found


def _rpc(said: _AnyRpc) -> Rpc:
    method = said.method if isinstance(said.method, str) else ""
    return Rpc(said.id, method, said.params, said.result, _error(said.error))


def _error(told: Any) -> RpcError | None:
    if told is None:
        return None
    if not isinstance(told, dict):
        return RpcError(0, as_text(told))
    code, message = told.get("code"), told.get("message")
    return RpcError(
        code if isinstance(code, int) and not isinstance(code, bool) else 0,
        as_text(told if message is None and told else message or ""),
        told.get("data"),
    )


def request(number: str, method: str, params: dict[str, Any]) -> bytes:
    """A request of ours."""
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification of ours."""
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def answer(number: Any, result: dict[str, Any]) -> bytes:
    """Our answer to a request of the agent's."""
    return _line({"jsonrpc": "2.0", "id": number, "result": result})


def refusal(number: Any, method: str) -> bytes:
    """Our answer to a request that is not understood."""
    error = {"code": METHOD_NOT_FOUND, "message": f"{method[:200]} is not supported"}
    return _line({"jsonrpc": "2.0", "id": number, "error": error})


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def as_text(value: Any) -> str:
    """Any decoded value as text; a string as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")


def texts(content: Any) -> str:
    """The text of tool content: text blocks joined, a change of a file by its path."""
    parts: list[str] = []
    for block in content if isinstance(content, list) else [content]:
        if not isinstance(block, dict):
            continue
        inner = block.get("content")
        if isinstance(inner, dict) and isinstance(inner.get("text"), str):
            parts.append(inner["text"])
        elif isinstance(block.get("text"), str):
            parts.append(block["text"])
        elif block.get("type") == "diff":
            parts.append(f"changed {block.get('path')}")
    return "\n".join(parts)
