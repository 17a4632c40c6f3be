"""The adapter of Pi over its rpc protocol: launch recipe, identity, and what a text becomes.

Each prompt is a command with our message's id, by which the answers name it. Pi's stdout is its record
(docs/adr/0009): events that settle. Its session file tells whether there is a conversation to resume.

Source: Pi 1.6.0, docs/providers/pi.md.
"""

from __future__ import annotations

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, Refused, SourceSpec, TypedText
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId
from lastword.transports.providers.pi import Pi, unfit
from lastword.transports.providers.pi_stream import PiStreamOracle
from lastword.transports.providers.pi_talk import PiTalk


class PiStructuredAdapter(Pi):
    """Pi over JSON lines on its stdin and stdout."""

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
        }
    )

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """``pi --mode rpc --session FILE``, new or known alike."""
        argv = (*request.executable, "--mode", "rpc", *self.conversation(request))
        return LaunchRecipe(argv=argv, env={}, native_session=request.native_session)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """What it says: each prompt's answer bears its name, and the events after it say the rest."""
        return (request.heard,)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It keeps none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> PiStreamOracle:  # noqa: ARG002
        """A reader of what it says."""
        return PiStreamOracle(native_session, offset)

    def key(self, message_id: MessageId) -> str:
        """The id of the command that brings it."""
        return message_id

    def talk(self, request: LaunchRequest) -> PiTalk:  # noqa: ARG002 - a process has one conversation
        """A new process is spoken to."""
        return PiTalk()

    def escape(self, text: str) -> TypedText | Refused:
        """As it is; the talk knows which words the CLI would take for a command of its own."""
        if reason := unfit(text):
            return Refused(reason=reason)
        return TypedText(text=text, paste=text.encode(), rewritten=text)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False


__all__ = ["PiStructuredAdapter"]
