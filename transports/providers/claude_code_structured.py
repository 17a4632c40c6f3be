"""The adapter of Claude Code over its stream-json protocol: launch recipe, identity, and what a text becomes.

Each message bears a UUID of ours, made from its id: the CLI calls it by that name in all that it says of it, and takes
none twice, not even after a resume. Its stdout is its record (docs/adr/0009); its own transcript, which has no closing
records in this mode, only tells whether there is a conversation to resume.

Source: Claude Code 2.1.332, docs/providers/claude_code.md.
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
from lastword.transports.providers.claude_code import ClaudeCode
from lastword.transports.providers.claude_code_stream import ClaudeStreamOracle
from lastword.transports.providers.claude_code_talk import ClaudeTalk, message_uuid

TEXT_CHARS_MAX = 2_000_000
SPEAK = (
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--replay-user-messages",
    "--permission-prompt-tool",
    "stdio",
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class ClaudeCodeStructuredAdapter(ClaudeCode):
    """Claude Code over JSON lines on its stdin and stdout."""

    transport: TransportName = "structured"
    keeps_sent = False
    capabilities: frozenset[Capability] = frozenset(
        {
            "queues_while_busy",
            "absorbs_while_busy",
            "interrupt",
            "resume",
            "dialogs",
            "tool_calls",
            "cli_started_turns",
            "asserts_completion",
            "versions_in_record",
        }
    )

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """``claude -p`` with both formats stream-json; permissions are asked for over the same pipe."""
        argv = (*request.executable, *SPEAK, *self.conversation(request))
        return LaunchRecipe(argv=argv, env={}, native_session=request.native_session)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """What it says. It echoes what is sent to it, by name: that need not be kept."""
        return (request.heard,)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It keeps none in this mode."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> ClaudeStreamOracle:  # noqa: ARG002
        """A reader of what it says."""
        return ClaudeStreamOracle(native_session, offset)

    def key(self, message_id: MessageId) -> str:
        """The UUID that is sent with it."""
        return message_uuid(message_id)

    def talk(self, request: LaunchRequest) -> ClaudeTalk:
        """A new process is spoken to."""
        return ClaudeTalk(request.native_session)

    def escape(self, text: str) -> TypedText | Refused:
        """As it is, but for a command of the CLI's own: a blank in front, which it drops, makes that a prompt."""
        if len(text) > TEXT_CHARS_MAX:
            return Refused(reason=f"longer than {TEXT_CHARS_MAX} characters")
        if found := _SURROGATE.search(text):
            return Refused(reason=f"the lone surrogate U+{ord(found.group()):04X} is no text")
        sent = f" {text}" if text.startswith("/") else text
        notes = ("outer_blank",) if text != text.strip() else ()
        return TypedText(text=text, paste=sent.encode(), rewritten=text.strip(), notes=notes)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False


__all__ = ["ClaudeCodeStructuredAdapter"]
