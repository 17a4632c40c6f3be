"""Every built-in provider, by name: an explicit mapping, no plugin scan."""

from __future__ import annotations

from collections.abc import Mapping

from lastword.actors.core.adapter import Adapter, Reader
from lastword.transports.providers.claude_code import ClaudeCodeAdapter
from lastword.transports.providers.claude_code_reader import ClaudeCodeReader
from lastword.transports.providers.codex import CodexReader
from lastword.transports.providers.cursor import CursorReader
from lastword.transports.providers.gemini_oracle import GeminiReader
from lastword.transports.providers.memory import MemoryAdapter
from lastword.transports.providers.opencode_oracle import OpencodeReader
from lastword.transports.providers.pi import PiReader
from lastword.transports.providers.qwen_oracle import QwenReader

PROVIDERS: Mapping[str, Adapter] = {adapter.name: adapter for adapter in (ClaudeCodeAdapter(), MemoryAdapter())}
"""Those that can be driven."""

_RECORDS: tuple[Reader, ...] = (
    ClaudeCodeReader(),
    CodexReader(),
    CursorReader(),
    GeminiReader(),
    OpencodeReader(),
    PiReader(),
    QwenReader(),
)
READERS: Mapping[str, Reader] = {**PROVIDERS, **{reader.name: reader for reader in _RECORDS}}
"""Those whose records can be read: all that can be driven, and those that cannot yet."""
