"""Claude Code's records: its transcript and the stream of its stream-json mode, told apart by content."""

from __future__ import annotations

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.transports.providers import decoding
from lastword.transports.providers.claude_code_oracle import ClaudeOracle
from lastword.transports.providers.claude_code_records import METADATA_TYPES
from lastword.transports.providers.claude_code_stream import ClaudeStreamOracle
from lastword.transports.providers.line_oracle import SniffingOracle


class _Shape(msgspec.Struct, frozen=True):
    type: str = ""
    session_id: str = ""
    sessionId: str = ""  # noqa: N815 - the wire's own spelling tells the two apart
    parentUuid: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_SHAPE = decoding.Decoder(_Shape)


class ClaudeCodeReader:
    """Reads a transcript or a stream."""

    name = "claude-code"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:
        """A reader of that file, whichever it is."""

        def choose(data: bytes, at: int) -> Oracle | None:
            shape = _SHAPE.decode(data)
            if shape.sessionId or bytes(shape.parentUuid) or shape.type in METADATA_TYPES:
                return ClaudeOracle(source, native_session, at)
            of_stream = shape.session_id or shape.type.startswith("control_")
            return ClaudeStreamOracle(native_session, at) if of_stream else None

        return SniffingOracle(choose, offset)
