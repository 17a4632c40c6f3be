"""Every built-in provider, by name: an explicit mapping, no plugin scan."""

from __future__ import annotations

from collections.abc import Mapping

from lastword.actors.core.adapter import Adapter
from lastword.transports.providers.memory import MemoryAdapter

PROVIDERS: Mapping[str, Adapter] = {"memory": MemoryAdapter()}
