"""Adapters over the Agent Client Protocol: any agent, and those whose way of speaking it was measured.

    Runtime.open(executables={"acp": ("my-agent", "--acp")}).session("acp")
    Runtime.open(adapters=[AcpAdapter(name="my-agent", executables=("my-agent",), words=("acp",))]).session("my-agent")

Pure data and functions. The agent's stdout is its record, with the file of what was sent to it.
"""

from __future__ import annotations

import re

from lastword.actors.core.adapter import (
    Capability,
    LaunchRecipe,
    LaunchRequest,
    Refused,
    SourceSpec,
    StdoutKind,
    TypedText,
)
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.ids import MessageId
from lastword.transports.providers.acp_oracle import AcpOracle
from lastword.transports.providers.acp_talk import AcpTalk, LiveInput, prompt_id

TEXT_CHARS_MAX = 2_000_000
"""Escaped, it fits what may wait for a child to read it."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSION = re.compile(r"\d+\.\d+\.\d+[^\s]*")


class AcpAdapter:
    """One agent over the Agent Client Protocol.

    Args:
        name: of the provider.
        executables: under which it is looked for on PATH; without any the host names it (``executables=``).
        words: what its command line needs so that it speaks the protocol.
        certified_versions: without any its version is not asked before it starts; what it says of itself is told.
        live_input: what a second prompt does to it; held back in any case.
        model_option: of its command line; without one the model is chosen over the protocol.
        load_after_s: an old conversation is loaded no sooner after the last start of a process of it: Gemini CLI names
            the file of a conversation by the minute, and one that is loaded in the minute of its making is overwritten.
        stdout: a pipe, as whoever writes an agent expects (those on the ``agent-client-protocol`` package take nothing
            else); ``"file"`` for one that is known to write to a file, and costs no process beside it.
    """

    transport: TransportName = "structured"
    keeps_sent = True
    capabilities: frozenset[Capability] = frozenset(
        {"queues_while_busy", "interrupt", "resume", "dialogs", "tool_calls", "versions_in_record"}
    )

    def __init__(
        self,
        *,
        name: str = "acp",
        executables: tuple[str, ...] = (),
        words: tuple[str, ...] = (),
        certified_versions: tuple[str, ...] = (),
        live_input: LiveInput = "unknown",
        model_option: str = "",
        load_after_s: float = 0.0,
        stdout: StdoutKind = "pipe",
    ) -> None:
        self.name = name
        self.executables = executables
        self.certified_versions = certified_versions
        self.live_input: LiveInput = live_input
        self._words = words
        self._model_option = model_option
        self._load_after_s = load_after_s
        self._stdout: StdoutKind = stdout

    def new_native_session(self, entropy: bytes) -> str:  # noqa: ARG002
        """The agent names it."""
        return ""

    def parse_version(self, output: str) -> str:
        """The first version number in what it prints."""
        found = _VERSION.search(output)
        return found.group() if found else ""

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """The agent, speaking the protocol."""
        model = (self._model_option, request.model) if self._model_option and request.model else ()
        argv = (*request.executable, *self._words, *model, *request.extra_args)
        return LaunchRecipe(
            argv=argv, env={}, native_session=request.native_session, stdout=self._stdout, exit_noted=True
        )

    def transcript(self, request: LaunchRequest) -> SourceSpec | None:  # noqa: ARG002
        """The protocol does not tell where the agent keeps it."""
        return None

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """What was sent to it, which it does not echo, and what it said."""
        return (request.sent, request.heard)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It has none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> AcpOracle:  # noqa: ARG002
        """A reader of both; always from the start. What was sent names the conversation."""
        return AcpOracle()

    def key(self, message_id: MessageId) -> str:
        """The id of the prompt's request."""
        return prompt_id(message_id)

    def talk(self, request: LaunchRequest) -> AcpTalk:
        """A new process is spoken to."""
        wait_s = max(0.0, self._load_after_s - request.since_start_s)
        return AcpTalk(request, "" if self._model_option else request.model, wait_s)

    def escape(self, text: str) -> TypedText | Refused:
        """As it is, but for a command of the agent's own: a blank in front makes that a prompt."""
        if len(text) > TEXT_CHARS_MAX:
            return Refused(reason=f"longer than {TEXT_CHARS_MAX} characters")
        if found := _SURROGATE.search(text):
            return Refused(reason=f"the lone surrogate U+{ord(found.group()):04X} is no text")
        sent = f" {text}" if text.startswith("/") else text
        return TypedText(text=text, paste=sent.encode(), rewritten=sent)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False


GEMINI = AcpAdapter(
    name="gemini",
    executables=("gemini",),
    words=("--acp",),
    certified_versions=("0.61.0",),
    live_input="cancels",
    model_option="--model",
    load_after_s=75.0,
    stdout="file",
)
QWEN = AcpAdapter(
    name="qwen",
    executables=("qwen",),
    words=("--acp",),
    certified_versions=("0.24.4",),
    live_input="fails",
    model_option="--model",
    stdout="file",
)
OPENCODE = AcpAdapter(
    name="opencode",
    executables=("opencode",),
    words=("acp",),
    certified_versions=("1.18.33",),
    live_input="queues",
    stdout="file",
)
ANY = AcpAdapter()

__all__ = ["ANY", "GEMINI", "OPENCODE", "QWEN", "AcpAdapter", "LiveInput"]
