"""What every wire format shares: the request as a script sees it, the frames of an answer, the shell tool's many names.

A format is a module with ``parse``, ``refuse``, ``whole`` and ``stream`` (see :class:`Wire`); ``model_server`` chooses
it by the path of the request. No sockets, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from lastword.runtime.testing.script import Step, StepError, TextBlock, ToolBlock

CONTEXT_OVERFLOW = "context_overflow"
"""As the ``word`` of a :class:`StepError`: the request is too long, in the words of whichever vendor is asked."""
JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"
LIMIT_REQUESTS = 60
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer.

    Attributes:
        prompt: text of the human message that is being answered.
        answered: assistant messages since that prompt, which is the index of the step to play.
        session: the client's own session id, from its header; empty when it sends none.
        tool_names: tools that the client offers. tool_fields: the argument names of each.
        hidden: what the CLI asks for itself, of which its person knows nothing (a title, a summary); empty for a turn.
        hidden_answer: what such a request gets in place of the script.
    """

    prompt: str
    answered: int
    model: str
    stream: bool
    session: str = ""
    messages: int = 0
    max_tokens: int = 0
    tool_names: tuple[str, ...] = ()
    tool_fields: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    hidden: str = ""
    hidden_answer: str = ""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to send after a pause, seconds. ``block_end`` marks the place where a scripted cut breaks off."""

    data: bytes
    pause_s: float = 0.0
    block_end: bool = False


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A failure as the vendor shapes it; some travel in a stream that began well."""

    status: int
    body: bytes
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    content_type: str = JSON_TYPE


class Wire(Protocol):
    """One wire format; implemented by modules."""

    def parse(self, headers: Mapping[str, str], body: dict[str, Any], path: str) -> ModelRequest:
        """Read a request. Any JSON object is accepted; what is missing reads as empty. Header names in lower case."""

    def refuse(self, request: ModelRequest, error: StepError, serial: int) -> Refusal:
        """The failure of one request."""

    def whole(self, request: ModelRequest, step: Step, serial: int) -> bytes:
        """The answer in one piece."""

    def stream(self, request: ModelRequest, step: Step, serial: int) -> Iterator[Frame]:
        """The answer as server-sent events, with the script's pauses."""


def hidden_step(request: ModelRequest) -> Step:
    """The harmless answer to what the CLI asks for itself."""
    return Step(blocks=(TextBlock(text=request.hidden_answer),))


def person_text(texts: list[str], host_text: re.Pattern[str]) -> str:
    """The last of ``texts`` that a person wrote, without reminders, or an empty string."""
    for raw in reversed(texts):
        text = _REMINDER.sub("", raw).strip()
        if text and not host_text.match(text):
            return text
    return ""


def text_parts(content: object, kinds: tuple[str, ...]) -> list[str]:
    """The texts of a message's content: a string, or a list of typed parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [str(part.get("text") or "") for part in parts if isinstance(part, dict) and part.get("type") in kinds]


def fields_of(schema: object) -> tuple[str, ...]:
    """The argument names in a tool's JSON schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return tuple(properties) if isinstance(properties, dict) else ()


SHELL_TOOLS = ("exec_command", "shell_command", "shell", "run_shell_command", "bash")
"""The shell tool of Codex 0.171.0 (and its older two), Gemini CLI 0.61.0 and Qwen Code 0.24.4, Pi 1.6.0 and opencode
1.18.33: what ``[[tool:Bash:COMMAND]]`` means where no ``Bash`` is offered."""


def tool_call(request: ModelRequest, block: ToolBlock) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call as this client knows the tool."""
    if block.name != "Bash" or "Bash" in request.tool_names:
        return block.name, block.input
    name = next((name for name in SHELL_TOOLS if name in request.tool_names), "")
    if not name:
        return block.name, block.input
    command = block.input.get("command", "")
    known: dict[str, Any] = {
        "cmd": command,
        "command": ["bash", "-lc", command] if name == "shell" else command,
        "description": block.input.get("description", "scripted command"),
        "is_background": False,
    }
    fields = request.tool_fields.get(name) or ("cmd" if name == "exec_command" else "command",)
    return name, {field: known[field] for field in fields if field in known}
