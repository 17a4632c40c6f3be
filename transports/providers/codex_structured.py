"""The adapter of Codex over its app-server: launch recipe, identity, and what a text becomes.

Each message bears our own id (``clientUserMessageId``), by which the server's items and replies name it; it takes the
same one twice, so none is written twice. Its stdout is its record (docs/adr/0009); its rollout, which bears the
thread's id in its name, tells whether there is a conversation to resume.

Source: codex-cli 0.171.0, docs/providers/codex.md.
"""

from __future__ import annotations

import re

from lastword.actors.core.adapter import (
    Capability,
    LaunchRecipe,
    LaunchRequest,
    Refused,
    SourceSpec,
    TypedText,
)
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId
from lastword.transports.providers.codex import CodexAdapter
from lastword.transports.providers.codex_stream_oracles import CodexAppServerOracle
from lastword.transports.providers.codex_talk import CodexTalk

TEXT_CHARS_MAX = 1_048_576
"""Codex refuses a longer one."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_PANE = CodexAdapter()
"""What holds of the CLI however it is spoken to, its adapter in a pane says."""


class CodexStructuredAdapter:
    """Codex over JSON-RPC on its stdin and stdout."""

    name = _PANE.name
    transport: TransportName = "structured"
    certified_versions: tuple[str, ...] = ("0.171.0",)
    executables: tuple[str, ...] = _PANE.executables
    keeps_sent = False
    capabilities: frozenset[Capability] = frozenset(
        {
            "queues_while_busy",
            "absorbs_while_busy",
            "interrupt",
            "resume",
            "dialogs",
            "tool_calls",
            "asserts_completion",
            "versions_in_record",
        }
    )

    def new_native_session(self, entropy: bytes) -> str:
        """The CLI chooses it."""
        return _PANE.new_native_session(entropy)

    def parse_version(self, output: str) -> str:
        """``codex-cli 0.171.0`` -> ``0.171.0``."""
        return _PANE.parse_version(output)

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """``codex app-server``; which thread, folder, model and policy, the talk says."""
        argv = (*request.executable, "app-server", *request.extra_args)
        return LaunchRecipe(argv=argv, env={}, native_session=request.native_session)

    def transcript(self, request: LaunchRequest) -> SourceSpec:
        """Its rollout; not there before the first turn."""
        return _PANE.transcript(request)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """What it says. It echoes what is sent to it, by name: that need not be kept."""
        return (request.heard,)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It keeps none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> CodexAppServerOracle:  # noqa: ARG002
        """A reader of what it says. The thread that it names first is ours, whatever an earlier one was called."""
        return CodexAppServerOracle("", offset)

    def key(self, message_id: MessageId) -> str:
        """The name that is sent with it."""
        return message_id

    def talk(self, request: LaunchRequest) -> CodexTalk:
        """A new process is spoken to."""
        return CodexTalk(request)

    def escape(self, text: str) -> TypedText | Refused:
        """As it is: nothing is a command here."""
        if len(text) > TEXT_CHARS_MAX:
            return Refused(reason=f"longer than {TEXT_CHARS_MAX} characters")
        if found := _SURROGATE.search(text):
            return Refused(reason=f"the lone surrogate U+{ord(found.group()):04X} is no text")
        return TypedText(text=text, paste=text.encode(), rewritten=text)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False


__all__ = ["CodexStructuredAdapter"]
