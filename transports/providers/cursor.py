"""Cursor's CLI. Known from public documentation and reports alone: **emulated**, never seen on the real CLI.

``cursor-agent -p --output-format stream-json [--resume CHAT] PROMPT``: one process a turn. A new conversation's name
comes from ``cursor-agent create-chat``, before anything is said in it. ``result`` ends the turn and nothing else does;
a process that ends without one has lost it, one that lives on behind it is ended.

Source: docs/providers/cursor.md.
"""

from __future__ import annotations

import msgspec

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, Oracle, SourceSpec
from lastword.transports.providers.decoding import Decoder
from lastword.transports.providers.line_oracle import UNREADABLE
from lastword.transports.providers.one_shot import OneShotAdapter, OneShotOracle, OneShotTalk, recipe
from lastword.transports.providers.stream_json import CursorStreamOracle


class CursorReader:
    """Reads ``cursor-agent -p --output-format stream-json``."""

    name = "cursor"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that stream."""
        return CursorStreamOracle(native_session, offset)


class _Line(msgspec.Struct):
    type: str = ""


_LINE = Decoder(_Line)


class CursorAdapter(OneShotAdapter):
    """Cursor, a process a turn."""

    name = "cursor"
    executables = ("cursor-agent",)
    capabilities: frozenset[Capability] = frozenset(
        {"queues_while_busy", "interrupt", "resume", "tool_calls", "process_per_turn", "emulated"}
    )
    guarded = ("-", "/")

    def new_native_session(self, entropy: bytes) -> str:  # noqa: ARG002
        """``create-chat`` names it."""
        return ""

    def parse_version(self, output: str) -> str:
        """Its first line."""
        return output.partition("\n")[0].strip()

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """One prompt; ``args`` may hold ``--trust`` and ``--force``."""
        model = ("--model", request.model) if request.model else ()
        mode = ("--mode", request.permission_mode) if request.permission_mode else ()
        run = (*request.executable, "-p", "--output-format", "stream-json", *model, *mode, *request.extra_args)
        return recipe(request, run, named=("--resume", "{}"), mint=(*request.executable, "create-chat"))

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> OneShotOracle:  # noqa: ARG002
        """A reader of one process's files; always from the start."""
        return OneShotOracle(CursorStreamOracle())

    def talk(self, request: LaunchRequest) -> OneShotTalk:  # noqa: ARG002 - a process has one conversation
        """A new process is spoken to."""
        return OneShotTalk(_is_result)


def _is_result(line: bytes) -> bool:
    try:
        return _LINE.decode(line).type == "result"
    except UNREADABLE:
        return False


__all__ = ["CursorAdapter", "CursorReader"]
