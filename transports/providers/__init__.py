"""Every built-in adapter, by provider and transport: an explicit mapping, no plugin scan."""

from __future__ import annotations

from collections.abc import Mapping

from lastword.actors.core.adapter import AdapterKey, AnyAdapter
from lastword.transports.providers.acp import ANY, GEMINI, OPENCODE, QWEN
from lastword.transports.providers.agy import AgyAdapter
from lastword.transports.providers.claude_code import ClaudeCodeAdapter
from lastword.transports.providers.claude_code_structured import ClaudeCodeStructuredAdapter
from lastword.transports.providers.codex import CodexAdapter
from lastword.transports.providers.codex_structured import CodexStructuredAdapter
from lastword.transports.providers.cursor import CursorAdapter
from lastword.transports.providers.memory import MemoryAdapter
from lastword.transports.providers.muse import MuseAdapter
from lastword.transports.providers.pi_pane import PiPaneAdapter
from lastword.transports.providers.pi_structured import PiStructuredAdapter
from lastword.transports.providers.services import SERVICES

_ADAPTERS: tuple[AnyAdapter, ...] = (
    ClaudeCodeAdapter(),
    ClaudeCodeStructuredAdapter(),
    CodexAdapter(),
    CodexStructuredAdapter(),
    PiPaneAdapter(),
    PiStructuredAdapter(),
    GEMINI,
    QWEN,
    OPENCODE,
    AgyAdapter(),
    CursorAdapter(),
    MuseAdapter(),
    ANY,
    *SERVICES,
    MemoryAdapter(),
)
ADAPTERS: Mapping[AdapterKey, AnyAdapter] = {(adapter.name, adapter.transport): adapter for adapter in _ADAPTERS}
PROVIDERS: tuple[str, ...] = tuple(dict.fromkeys(adapter.name for adapter in _ADAPTERS if adapter.executables))
"""Those that can be driven, over whatever transport; one that stands for any program of the host's is none."""
