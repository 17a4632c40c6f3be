"""What a scripted model says: steps of blocks, pauses and faults, as typed data with a JSON form.

It knows no wire format (see ``wire_anthropic``) and performs nothing. One *step* answers one model request;
a *script* is a named row of steps, of which the last one repeats. A prompt picks its script by a directive
in its own text:

``[[script:NAME]]`` plays the script NAME. Without one, the inline directives build a script on the spot:

=====================  ===================================================================================
``[[sleep:S]]``        wait S seconds before the first byte of this step's answer
``[[say:TEXT]]``       a text block
``[[half:TEXT]]``      a text block that ends in half a surrogate pair, as of an emoji that was cut in two
``[[think:TEXT]]``     a thinking block
``[[tool:NAME:ARG]]``  a tool call, ends the step. ARG is the command of ``Bash``, else a JSON object
``[[also:NAME:ARG]]``  a further tool call in the same message as the tool call before it
``[[pause:S]]``        wait S seconds before the next block (or, after the last one, before the message ends)
``[[chunk:N:S]]``      stream in pieces of N characters, S seconds apart
``[[size:N]]``         a text block of N characters
``[[stop:REASON]]``    ends the step with a stop reason: end_turn, max_tokens, refusal, pause_turn, ...
``[[next]]``           ends the step
``[[error:CODE]]``     HTTP error CODE; ``[[error:CODE:TIMES]]`` only for the step's first TIMES requests;
                       ``[[error:CODE:TIMES:S]]`` with a ``retry-after`` of S seconds
``[[cut]]``            the connection breaks before the first block ends; ``[[cut:TIMES]]`` as above
``[[hang:S]]``         silence of S seconds after the answer has begun
=====================  ===================================================================================

The last step gets ``echo: <prompt>`` where it says nothing. ``[[fault:...]]`` is for the scripted CLI and
ignored here. The scripted CLI (stdlib only) reads the same language and the same JSON with code of
its own; a test keeps the two alike.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

ECHO_CHARS_MAX = 2000
HALF_PAIR = "\ud83d"
_DIRECTIVE = re.compile(r"\[\[([a-z]+)(?::(.*?))?\]\]", re.DOTALL)
_ERROR_WORDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class TextBlock(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """A piece of answer text."""

    text: str
    pause_s: float = 0.0


class ThinkingBlock(msgspec.Struct, frozen=True, kw_only=True, tag="thinking"):
    """A piece of reasoning."""

    thinking: str
    pause_s: float = 0.0


class ToolBlock(msgspec.Struct, frozen=True, kw_only=True, tag="tool_use"):
    """A call of one tool; without an id the wire format makes one."""

    name: str
    input: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str = ""
    pause_s: float = 0.0


Block = TextBlock | ThinkingBlock | ToolBlock


class StepError(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP error in place of an answer; after ``times`` requests the step plays (0 = for ever).

    ``headers`` are added to the response (of a rate limit: when it ends).
    """

    status: int
    word: str = ""
    message: str = "scripted failure"
    times: int = 0
    retry_after_s: float | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The provider's word for this status, as the client will report it."""
        return self.word or _ERROR_WORDS.get(self.status, "api_error")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one model request. Times are seconds.

    Attributes:
        delay_s: before the first byte. hang_s: after the answer has begun.
        stop_pause_s: before the message ends.
        chunk_chars: size of the streamed pieces, ``chunk_pause_s`` apart.
        cut: break the connection before the first block ends, for the first ``cut_times`` requests (0 = for ever).
        stop_reason: empty means ``tool_use`` if there is a tool call, else ``end_turn``.
    """

    blocks: tuple[Block, ...] = ()
    stop_reason: str = ""
    delay_s: float = 0.0
    hang_s: float = 0.0
    stop_pause_s: float = 0.0
    chunk_chars: int = 200
    chunk_pause_s: float = 0.0
    error: StepError | None = None
    cut: bool = False
    cut_times: int = 0

    @property
    def reason(self) -> str:
        """The stop reason that the wire carries."""
        if self.stop_reason:
            return self.stop_reason
        return "tool_use" if any(isinstance(block, ToolBlock) for block in self.blocks) else "end_turn"


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Named rows of steps. JSON: ``{"scripts": {"NAME": [{"blocks": [{"type": "text", ...}], ...}]}}``."""

    scripts: dict[str, tuple[Step, ...]] = msgspec.field(default_factory=dict)

    @classmethod
    def from_json(cls, raw: bytes | str) -> Script:
        """Read the JSON form. Raises: ``msgspec.ValidationError`` naming the bad place."""
        return msgspec.json.decode(raw, type=cls)

    @classmethod
    def from_file(cls, path: Path | str) -> Script:
        """Read the JSON form from a file."""
        return cls.from_json(Path(path).read_bytes())

    def to_json(self) -> bytes:
        """The JSON form, readable by ``from_json`` and by the scripted CLI."""
        return msgspec.json.encode(self)

    def pick(self, prompt: str, answered: int) -> Played:
        """The step that answers ``prompt`` after ``answered`` assistant messages of the same turn."""
        match = re.findall(r"\[\[script:([^\]]+)\]\]", prompt)
        name = match[-1] if match else ""
        steps = self.scripts.get(name) if name else inline_steps(prompt)
        if not steps:
            steps = (Step(blocks=(TextBlock(text=f"no script named {name}" if name else echo(prompt)),)),)
        index = min(answered, len(steps) - 1)
        return Played(script=name or "inline", index=index, step=steps[index])


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """Which step a request met."""

    script: str
    index: int
    step: Step


def echo(prompt: str) -> str:
    """The default answer: the whole prompt up to 2000 characters, else its ends and its length."""
    if len(prompt) <= ECHO_CHARS_MAX:
        return f"echo: {prompt}"
    half = ECHO_CHARS_MAX // 2
    return f"echo: {prompt[:half]} ...[{len(prompt)} characters]... {prompt[-half:]}"


def tool_input(name: str, argument: str) -> dict[str, Any]:
    """What ``[[tool:NAME:ARG]]`` means: a command for Bash, a JSON object for anything else."""
    if name == "Bash":
        return {"command": argument, "description": "scripted command"}
    value: object = json.loads(argument) if argument else {}
    if not isinstance(value, dict):
        raise ValueError(f"the argument of tool {name} is not a JSON object")  # noqa: TRY004 - bad text, not a bad call
    return value


class _Builder:
    """Collects directives into steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._reset()

    def _reset(self) -> None:
        self.blocks: list[Block] = []
        self.fields: dict[str, Any] = {}
        self.pause_s = 0.0

    def block(self, block: Block) -> None:
        self.blocks.append(msgspec.structs.replace(block, pause_s=self.pause_s))
        self.pause_s = 0.0

    def end(self) -> None:
        if self.pause_s:
            self.fields["stop_pause_s"] = self.pause_s
        self.steps.append(Step(blocks=tuple(self.blocks), **self.fields))
        self._reset()

    def reopen(self) -> None:
        last = self.steps.pop()
        self.blocks = list(last.blocks)
        self.fields = {
            name: getattr(last, name) for name in Step.__struct_fields__ if name not in {"blocks", "stop_pause_s"}
        }


def inline_steps(prompt: str) -> tuple[Step, ...]:
    """Compile the inline directives of a prompt; a bad one becomes the answer, so that its author sees it."""
    builder = _Builder()
    try:
        for word, argument in _DIRECTIVE.findall(prompt):
            _directive(builder, word, argument)
    except (ValueError, IndexError) as bad:
        return (Step(blocks=(TextBlock(text=f"bad directive: {bad}"),)),)
    if builder.blocks or builder.fields or builder.pause_s or not builder.steps:
        builder.end()
    last = builder.steps[-1]
    if any(isinstance(block, ToolBlock) for block in last.blocks):
        builder.end()
    elif any(isinstance(block, TextBlock) for block in last.blocks) or last.stop_reason:
        return tuple(builder.steps)
    last = builder.steps.pop()
    answer: tuple[Block, ...] = (*last.blocks, TextBlock(text=echo(prompt)))
    return (*builder.steps, msgspec.structs.replace(last, blocks=answer))


def _directive(builder: _Builder, word: str, argument: str) -> None:
    part = argument.split(":")
    match word:
        case "sleep":
            builder.fields["delay_s"] = float(argument)
        case "hang":
            builder.fields["hang_s"] = float(argument)
        case "pause":
            builder.pause_s += float(argument)
        case "chunk":
            builder.fields["chunk_chars"] = max(1, int(part[0]))
            builder.fields["chunk_pause_s"] = float(part[1])
        case "say":
            builder.block(TextBlock(text=argument))
        case "half":
            builder.block(TextBlock(text=argument + HALF_PAIR))
        case "size":
            builder.block(TextBlock(text=("0123456789" * (int(argument) // 10 + 1))[: int(argument)]))
        case "think":
            builder.block(ThinkingBlock(thinking=argument))
        case "tool" | "also":
            name, _, rest = argument.partition(":")
            if word == "also":
                builder.reopen()
            builder.block(ToolBlock(name=name, input=tool_input(name, rest)))
            builder.end()
        case "stop":
            builder.fields["stop_reason"] = argument
            builder.end()
        case "next":
            builder.end()
        case "error":
            builder.fields["error"] = StepError(
                status=int(part[0]),
                times=int(part[1]) if len(part) > 1 else 0,
                retry_after_s=float(part[2]) if len(part) > 2 else None,
            )
        case "cut":
            builder.fields.update(cut=True, cut_times=int(argument) if argument else 0)
        case _:
            pass  # faults of the scripted CLI, or plain text that looks like a directive
