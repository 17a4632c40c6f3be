"""Pi's records: which oracle reads which of its files. Which one an adapter reads, it says itself."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.transports.providers import decoding
from lastword.transports.providers.line_oracle import SniffingOracle
from lastword.transports.providers.pi_oracle import PiEventsOracle, PiPushOracle, PiSessionOracle
from lastword.transports.providers.pi_pane_oracle import PiPaneOracle

EVENT_TYPES = frozenset(
    {"response", "agent_start", "turn_start", "message_start", "message_end", "agent_settled", "queue_update"}
)
ENTRY_TYPES = frozenset({"message", "model_change", "thinking_level_change", "context_edit", "compaction"})


class _Shape(msgspec.Struct, frozen=True):
    type: str = ""
    ev: str = ""
    v: int = 0
    dir: str = ""
    rec: Any = None


_SHAPE = decoding.Decoder(_Shape)


class PiReader:
    """Reads a session file, json or rpc output, a push extension's file or that of ours, told apart by their lines."""

    name = "pi"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that file, whichever it is."""

        def choose(data: bytes, at: int) -> Oracle | Literal["later"] | None:
            shape = _SHAPE.decode(data)
            if shape.ev and shape.v:
                return PiPaneOracle(native_session, at)
            if shape.ev:
                return PiPushOracle(native_session, at)
            if shape.dir or shape.type in EVENT_TYPES:
                return PiEventsOracle(native_session, at)
            if shape.type in ENTRY_TYPES:
                return PiSessionOracle(native_session, at)
            return "later" if shape.type == "session" else None  # both a session file and json output begin so

        return SniffingOracle(choose, offset)
