"""The adapter of Pi in a pane: its own terminal program with an extension of ours, spoken to and heard by files.

The extension (``pi_extension.ts``, given by ``-e``) appends what happens in that process to one file, which is its
record, and carries out what is appended to another: no key is pressed, no text is pasted (docs/adr/0018). A person may
watch and type all the same.

Source: Pi 1.6.0, docs/providers/pi.md.
"""

from __future__ import annotations

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, Refused, SourceSpec, TypedText
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId
from lastword.transports.providers.pi import Pi, unfit
from lastword.transports.providers.pi_pane_oracle import PiPaneOracle
from lastword.transports.providers.pi_pane_talk import PiPaneTalk

EXTENSION = f"{__file__.rpartition('/')[0]}/pi_extension.ts"
STREAM = "LASTWORD_PI"
"""In the environment: by which files the extension speaks. It takes that out before anything else is started."""


class PiPaneAdapter(Pi):
    """Pi over its terminal program."""

    transport: TransportName = "tmux"
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
        """``pi -e EXTENSION --session FILE``, new or known alike."""
        argv = (*request.executable, "-e", EXTENSION, *self.conversation(request))
        return LaunchRecipe(argv=argv, env={STREAM: request.stream}, native_session=request.native_session)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """What the extension writes: whose each message is, and when a run has settled."""
        return (request.heard,)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It keeps none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> PiPaneOracle:  # noqa: ARG002
        """A reader of what the extension writes."""
        return PiPaneOracle(native_session, offset)

    def key(self, message_id: MessageId) -> str:
        """The id of the command that brings it."""
        return message_id

    def talk(self, request: LaunchRequest) -> PiPaneTalk:
        """What is said to that process."""
        return PiPaneTalk(request.native_session)

    def escape(self, text: str) -> TypedText | Refused:
        """As it is: what an extension gives to Pi is neither a command nor a template."""
        if reason := unfit(text):
            return Refused(reason=reason)
        return TypedText(text=text, paste=text.encode(), rewritten=text)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False


__all__ = ["EXTENSION", "PiPaneAdapter"]
