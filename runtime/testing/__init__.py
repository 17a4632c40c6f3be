"""The rehearsal kit: test a host of coding agents without a model, a key or a network. Public.

``ModelServer`` plays scripts to a real CLI on loopback, ``Rehearsal`` gives that CLI a sealed home, and
``SCRIPTED_CLI`` is the path of a terminal program that imitates a CLI and misbehaves on request.
"""

from __future__ import annotations

from pathlib import Path

from lastword.runtime.testing.hermetic import FAKE_KEY, Rehearsal, claude_home
from lastword.runtime.testing.model_server import ModelServer, RequestRecord
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
from lastword.runtime.testing.wire_anthropic import ModelRequest

SCRIPTED_CLI = Path(__file__).with_name("scripted_cli.py")

__all__ = [
    "FAKE_KEY",
    "SCRIPTED_CLI",
    "ModelRequest",
    "ModelServer",
    "Rehearsal",
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
]
