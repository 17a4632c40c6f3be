"""Every provider whose records are read, by name: all that can be driven, and those that cannot yet.

Apart from :data:`ADAPTERS`, so that a host that drives one does not load the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastword.actors.core.adapter import Reader
from lastword.transports.providers import ADAPTERS, PROVIDERS
from lastword.transports.providers.agy import AgyReader
from lastword.transports.providers.claude_code_reader import ClaudeCodeReader
from lastword.transports.providers.codex_reader import CodexReader
from lastword.transports.providers.cursor import CursorReader
from lastword.transports.providers.gemini_oracle import GeminiReader
from lastword.transports.providers.muse import MuseReader
from lastword.transports.providers.opencode_oracle import OpencodeReader
from lastword.transports.providers.pi_reader import PiReader
from lastword.transports.providers.qwen_oracle import QwenReader

RECORDS: tuple[Reader, ...] = (
    AgyReader(),
    ClaudeCodeReader(),
    CodexReader(),
    CursorReader(),
    GeminiReader(),
    MuseReader(),
    OpencodeReader(),
    PiReader(),
    QwenReader(),
)
"""Those of CLIs: what a file of unknown origin may be of."""
READERS: Mapping[str, Reader] = {
    **{name: adapter for (name, _), adapter in ADAPTERS.items() if name in PROVIDERS},
    **{reader.name: reader for reader in RECORDS},
}
