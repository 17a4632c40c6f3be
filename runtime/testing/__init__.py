"""The rehearsal kit: test a host of coding agents without a model, a key or a network. Public.

``ModelServer`` plays scripts to a real CLI on loopback, ``Rehearsal`` gives that CLI a sealed home, and
``SCRIPTED_CLI`` is the path of a terminal program that imitates a CLI and misbehaves on request; ``rehearsed_runtime``
opens a runtime on it.
"""

from __future__ import annotations

from lastword.runtime.testing.hermetic import FAKE_KEY, SEALED_HOMES, Rehearsal, claude_home
from lastword.runtime.testing.model_server import ModelServer, RequestRecord
from lastword.runtime.testing.rehearsed import (
    SCRIPTED_CLI,
    Rehearsed,
    RehearsedAsync,
    rehearsed_async_runtime,
    rehearsed_runtime,
)
from lastword.runtime.testing.script import (
    Script,
    Step,
    StepError,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    echo,
    inline_steps,
)
from lastword.runtime.testing.wire import CONTEXT_OVERFLOW, ModelRequest

__all__ = [
    "CONTEXT_OVERFLOW",
    "FAKE_KEY",
    "SCRIPTED_CLI",
    "SEALED_HOMES",
    "ModelRequest",
    "ModelServer",
    "Rehearsal",
    "Rehearsed",
    "RehearsedAsync",
    "RequestRecord",
    "Script",
    "Step",
    "StepError",
    "TextBlock",
    "ThinkingBlock",
    "ToolBlock",
    "claude_home",
    "echo",
    "inline_steps",
    "rehearsed_async_runtime",
    "rehearsed_runtime",
]
