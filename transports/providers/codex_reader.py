"""Codex's records: which oracle reads which of its files."""

from __future__ import annotations

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.transports.providers import decoding
from lastword.transports.providers.codex_oracle import CodexRolloutOracle
from lastword.transports.providers.codex_stream_oracles import CodexAppServerOracle, CodexExecOracle
from lastword.transports.providers.line_oracle import SniffingOracle

EXEC_TYPES = ("thread.", "turn.", "item.")


class _Shape(msgspec.Struct, frozen=True):
    type: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"")
    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_SHAPE = decoding.Decoder(_Shape)


class CodexReader:
    """Reads a rollout, the output of ``exec --json`` or of an app-server, told apart by their lines."""

    name = "codex"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that file, whichever it is."""

        def choose(data: bytes, at: int) -> Oracle | None:
            shape = _SHAPE.decode(data)
            if bytes(shape.payload).startswith(b"{") and shape.type:
                return CodexRolloutOracle(native_session, at)
            if shape.type.startswith(EXEC_TYPES):
                return CodexExecOracle(native_session, at)
            if shape.method or (bytes(shape.id) and (bytes(shape.result) or bytes(shape.error))):
                return CodexAppServerOracle(native_session, at)
            return None

        return SniffingOracle(choose, offset)
