"""Tools that a host hands over: plain functions, described so that a model can call them. Values only."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from lastword.actors.core.errors import UsageError
from lastword.actors.core.ids import SessionId

RESULT_CHARS_MAX = 256 * 1024
"""Of a tool's result; more is cut, and the cut is marked."""
CUT_MARK = "\n…[cut by lastword]"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as a tool's function gets it.

    Attributes:
        arguments: the JSON object that the model wrote.
        cancelled: asked by a long one now and then: whether nobody waits for its result any more.
    """

    name: str
    arguments: Mapping[str, Any]
    call_id: str
    session_id: SessionId
    cancelled: Callable[[], bool]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the host's that a model may call.

    Attributes:
        name: letters, digits, ``_`` and ``-``, at most 64.
        description: what the model is told of it.
        parameters: JSON schema of its arguments, an object.
        call: runs on a thread of its own and may block; several at the same time. A ``str`` is the result as it is,
            anything else becomes JSON. What it raises is told to the model as an error, by type and text.
    """

    name: str
    description: str
    call: Callable[[ToolCall], object]
    parameters: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended."""

    status: Literal["ok", "error"]
    text: str


def check_tools(tools: object) -> dict[str, Tool]:
    """By name.

    Raises:
        UsageError: ``usage``: what is none, a bad name, a name twice, no schema of an object.
    """
    found: dict[str, Tool] = {}
    if not isinstance(tools, list | tuple):
        raise UsageError("usage", f"tools is a list of Tool, not {type(tools).__name__}")
    for tool in tools:
        if not isinstance(tool, Tool):
            raise UsageError("usage", f"a tool is a Tool, not {type(tool).__name__}")
        if not isinstance(tool.name, str) or _NAME.fullmatch(tool.name) is None:
            raise UsageError("usage", "a tool's name is 1 to 64 letters, digits, _ and -")
        if tool.name in found:
            raise UsageError("usage", f"two tools are called {tool.name!r}")
        if not isinstance(tool.parameters, Mapping) or tool.parameters.get("type") != "object":
            raise UsageError("usage", f"the parameters of {tool.name!r} are no JSON schema of an object")
        if not callable(tool.call):
            raise UsageError("usage", f"the call of {tool.name!r} is no function")
        if _is_async(tool.call):
            raise UsageError(
                "usage", f"the call of {tool.name!r} is async: a tool is a plain function, which may block"
            )
        found[tool.name] = tool
    return found


def _is_async(call: Callable[..., object]) -> bool:
    """Whether calling it gives what is to be awaited or iterated. (An object's own ``__call__`` counts too.)"""
    while isinstance(call, functools.partial):
        call = call.func
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (call, getattr(call, "__call__", None))  # noqa: B004 - the method, not whether there is one
    )


def arguments_of(text: str) -> dict[str, Any] | None:
    """The JSON object that a model wrote for a call, {} where it wrote nothing; None: that text is no JSON object."""
    try:
        value = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.MsgspecError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def result_text(value: object) -> str:
    """What a function gave, as the model is told it.

    Raises:
        TypeError: it is no text, and no JSON either.
    """
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= RESULT_CHARS_MAX else text[:RESULT_CHARS_MAX] + CUT_MARK


__all__ = ["Tool", "ToolCall", "ToolResult", "arguments_of", "check_tools", "result_text"]
