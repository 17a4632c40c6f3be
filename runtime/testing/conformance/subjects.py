"""The built-in adapters as subjects: on the CLI that is given, or on the scripted one that imitates it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lastword.actors.core.adapter import AdapterKey, AnyAdapter
from lastword.actors.core.errors import UsageError
from lastword.runtime.testing.conformance import toolbox
from lastword.runtime.testing.conformance._subject import Subject, Words
from lastword.runtime.testing.hermetic import SEALED_HOMES
from lastword.transports.providers import ADAPTERS

HERE = Path(__file__).parent.parent
EMULATORS: Mapping[AdapterKey, Path] = {
    ("claude-code", "tmux"): HERE / "scripted_cli.py",
    ("claude-code", "structured"): HERE / "scripted_structured.py",
    ("acp", "structured"): HERE / "scripted_acp.py",
    ("agy", "structured"): HERE / "scripted_agy.py",
    ("cursor", "structured"): HERE / "scripted_cursor.py",
    ("muse", "structured"): HERE / "scripted_muse.py",
}
"""Programs that imitate a CLI well enough to be certified on; what is shown on them is labelled ``emulated``."""

_AGENT_TOOL = '[[tool:Agent:{{"description": "d", "prompt": "sub do it", "subagent_type": "general-purpose"}}]]'
_ESCALATED = '"sandbox_permissions": "require_escalated", "justification": "May I?"'
_PI_EXTENSION = HERE / "conformance" / "pi_asks.ts"
_DIFFERENT: Mapping[AdapterKey, Mapping[str, Any]] = {
    ("claude-code", "tmux"): {
        "options": {"permission_mode": "default"},
        "words": Words(background="[[say:Delegating.]]" + _AGENT_TOOL + "[[say:{text}]] go"),
        "stamped_early_s": 0.5,
    },
    ("claude-code", "structured"): {
        "options": {"permission_mode": "default"},
        "words": Words(background="[[say:Delegating.]]" + _AGENT_TOOL + "[[say:{text}]] go"),
    },
    ("codex", "tmux"): {
        "asking": {"permission_mode": "on-request", "args": ("--sandbox", "read-only")},
        "words": Words(ask='[[tool:exec_command:{{"cmd": "touch {file}", ' + _ESCALATED + "}}]][[say:{text}]] please"),
        "allow": ("Yes, proceed", "Yes"),
    },
    ("codex", "structured"): {"asking": {"permission_mode": "untrusted"}},
    ("pi", "tmux"): {
        "options": {"args": ("--offline", "--no-approve", "-e", str(_PI_EXTENSION))},
        "words": Words(background="[[say:{text}]] and then go on by yourself"),
    },
    ("pi", "structured"): {
        "options": {"args": ("--offline", "--no-approve", "-e", str(_PI_EXTENSION))},
        "words": Words(background="[[say:{text}]] and then go on by yourself"),
    },
    ("gemini", "structured"): {"options": {"permission_mode": "default"}, "wait_s": 180.0},
    ("qwen", "structured"): {"options": {"permission_mode": "default"}},
    ("cursor", "structured"): {"words": Words(fail="[[fault:error_result=1]][[error:400]] please")},
    ("opencode", "structured"): {"env": {"OPENCODE_PERMISSION": '{"bash": "ask"}'}},
}


def subjects(provider: str, transport: str | None = None) -> list[AnyAdapter]:
    """The built-in adapters of that name.

    Raises:
        UsageError: ``unknown_provider``, ``unsupported_capability``.
    """
    over = [adapter for (name, _), adapter in ADAPTERS.items() if name == provider and adapter.transport != "memory"]
    if not over:
        known = ", ".join(sorted({name for name, way in ADAPTERS if way != "memory"}))
        raise UsageError("unknown_provider", f"no provider is called {provider!r}", remedy=f"Known here: {known}")
    wanted = [adapter for adapter in over if transport in (None, adapter.transport)]
    if not wanted:
        raise UsageError("unsupported_capability", f"{provider!r} is not driven over {transport}", provider=provider)
    return wanted


def on_real(adapter: AnyAdapter, executable: tuple[str, ...]) -> Subject:
    """On the provider's own CLI."""
    home = adapter.name if adapter.name in SEALED_HOMES else "claude-code"
    different = _DIFFERENT.get((adapter.name, adapter.transport), {})
    return Subject(adapter=adapter, executable=executable, realness="real", home=home, **different)


def on_service(adapter: AnyAdapter) -> Subject:
    """A model's API, asked through the vendor's own SDK: the service is the scripted model server, so ``emulated``."""
    return Subject(adapter=adapter, home=adapter.name, tools=toolbox.bash)


def on_emulator(adapter: AnyAdapter) -> Subject | None:
    """On the program that imitates its CLI, if there is one; an API on the server that imitates its service."""
    if adapter.transport == "api":
        return on_service(adapter)
    program = EMULATORS.get((adapter.name, adapter.transport))
    if program is None:
        return None
    subject = on_real(adapter, (sys.executable, str(program)))
    return msgspec.structs.replace(subject, realness="emulated")
