"""Cursor's stream. Known from public documentation and reports alone: its cases are emulated, not recorded."""

from __future__ import annotations

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.transports.providers.stream_json import CursorStreamOracle


class CursorReader:
    """Reads ``cursor-agent -p --output-format stream-json``."""

    name = "cursor"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that stream."""
        return CursorStreamOracle(native_session, offset)
