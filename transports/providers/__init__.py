"""Every built-in provider, by name: an explicit mapping, no plugin scan."""

from __future__ import annotations

from collections.abc import Mapping

from lastword.actors.core.adapter import Adapter
from lastword.transports.providers.claude_code import ClaudeCodeAdapter
from lastword.transports.providers.memory import MemoryAdapter

PROVIDERS: Mapping[str, Adapter] = {adapter.name: adapter for adapter in (ClaudeCodeAdapter(), MemoryAdapter())}
"""Those that can be driven."""
