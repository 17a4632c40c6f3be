"""A third party's adapter, whole: how ``parrot.py`` is started, what its record says, when it takes text.

Hand it to a runtime (``Runtime.open(adapters=[ParrotAdapter()])``) and certify it:
``lastword certify parrot_adapter:SUBJECT`` or
``pytest --pyargs lastword.runtime.testing.conformance --lastword-subject parrot_adapter:SUBJECT``.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from lastword.actors.core.adapter import (
    Capability,
    DialogOpen,
    LaunchRecipe,
    LaunchRequest,
    NotReady,
    Ready,
    Refused,
    Signal,
    SignalView,
    SourceSpec,
    TypedText,
)
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.facts import Fact, InputQueued, PromptRecorded, TurnClosed, UnknownRecord
from lastword.actors.core.ids import MessageId
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.actors.core.transcript import LineFramer
from lastword.runtime.testing.conformance import Subject


class ParrotOracle:
    """Reads its record: ``prompt``, ``queued``, ``end``."""

    def __init__(self, offset: int) -> None:
        self._framer = LineFramer(offset)
        self._open: set[str] = set()
        self._queued = 0

    @property
    def quiescent(self) -> bool:
        """Nothing open, nothing queued, no half line."""
        return not self._open and not self._queued and not self._framer.tail_bytes

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Facts of the next bytes."""
        return [self._fact(source, line.offset, line.data) for line in self._framer.feed(chunk)]

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:  # noqa: ARG002 - it keeps no registry
        """None."""
        return []

    def eof(self, source: str) -> list[Fact]:  # noqa: ARG002 - its end proves nothing more
        """None."""
        return []

    def _fact(self, source: str, offset: int, line: bytes) -> Fact:
        try:
            record = json.loads(line)
            kind, at = record["kind"], float(record["at"])
            evidence = Evidence(source=source, offset=offset, native_at=at)
            match kind:
                case "queued":
                    self._queued += 1
                    return InputQueued(text=str(record["text"]), evidence=evidence)
                case "prompt":
                    self._queued = max(0, self._queued - 1)
                    self._open.add(str(record["turn"]))
                    return PromptRecorded(native_turn=str(record["turn"]), text=str(record["text"]), evidence=evidence)
                case "end" if record["turn"] in self._open:
                    self._open.discard(record["turn"])
                    return self._end(record, evidence)
                case _:
                    return UnknownRecord(what=f"kind:{kind}", evidence=evidence)
        except (ValueError, TypeError, KeyError, RecursionError):
            return UnknownRecord(what="unreadable", evidence=Evidence(source=source, offset=offset))

    def _end(self, record: dict[str, str], evidence: Evidence) -> TurnClosed:
        turn = str(record["turn"])
        match record["status"]:
            case "completed":
                return TurnClosed(native_turn=turn, status="completed", answer=str(record["text"]), evidence=evidence)
            case "cancelled":
                return TurnClosed(native_turn=turn, status="cancelled", evidence=evidence)
            case _:
                error = TurnError(kind="provider_error", message="the parrot would not say it")
                return TurnClosed(native_turn=turn, status="failed", error=error, evidence=evidence)


class ParrotAdapter:
    """The parrot in a pane."""

    name = "parrot"
    transport: TransportName = "tmux"
    capabilities: frozenset[Capability] = frozenset({"queues_while_busy", "interrupt", "resume", "asserts_completion"})
    certified_versions: tuple[str, ...] = ("1.0.0",)
    executables: tuple[str, ...] = ("parrot",)

    def new_native_session(self, entropy: bytes) -> str:
        """A UUID, which names the record."""
        return str(uuid.UUID(bytes=entropy[:16], version=4))

    def parse_version(self, output: str) -> str:
        """``parrot 1.0.0``."""
        return output.strip().removeprefix("parrot ")

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """A new conversation and a known one are started alike: it reads its record first."""
        argv = (*request.executable, self.transcript(request).path)
        return LaunchRecipe(argv=argv, env={}, native_session=request.native_session)

    def transcript(self, request: LaunchRequest) -> SourceSpec:
        """``~/.parrot/SESSION.jsonl``."""
        root = f"{request.env.get('HOME', '')}/.parrot"
        return SourceSpec(kind="append-jsonl", path=f"{root}/{request.native_session}.jsonl", root=root)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """That file."""
        return (self.transcript(request),)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It keeps none."""
        return None

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> ParrotOracle:  # noqa: ARG002
        """A reader."""
        return ParrotOracle(offset)

    def key(self, message_id: MessageId) -> str:  # noqa: ARG002
        """Its record names no message: the text tells."""
        return ""

    def identify(self, request: LaunchRequest, title: str, open_files: Callable[[], Sequence[str]]) -> str:  # noqa: ARG002
        """The one that we chose."""
        return request.native_session

    def escape(self, text: str) -> TypedText | Refused:
        """Everything but control characters."""
        if any(ord(char) < ord(" ") and char != "\n" for char in text):
            return Refused(reason="a control character would be taken for a key")
        return TypedText(text=text, paste=text.encode(), rewritten=text)

    def matches(self, typed: TypedText, recorded: str) -> bool:
        """To the letter, but for how the terminal writes a line's end."""
        return typed.rewritten == recorded.replace("\r", "\n")

    def signals(self, view: SignalView) -> Signal:
        """From its first line; the draft follows the ``>``."""
        if len(view.screen) < 2 or not view.screen[0].startswith("parrot is "):
            return NotReady(reason="no screen yet")
        draft = "\n".join(view.screen[1:]).removeprefix(">").strip()
        return Ready(draft=draft, busy=view.screen[0].endswith("thinking"))

    def landed(self, typed: TypedText, draft: str) -> bool:
        """The screen wraps: blanks do not count."""
        return "".join(typed.rewritten.split()) == "".join(draft.split())

    def interrupt_keys(self) -> tuple[str, ...]:
        """Escape."""
        return ("Escape",)

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]:  # noqa: ARG002
        """C-u."""
        return ("C-u",)

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]:  # noqa: ARG002
        """It asks nothing."""
        return ()


SUBJECT = Subject(
    adapter=ParrotAdapter(), executable=(sys.executable, str(Path(__file__).with_name("parrot.py"))), realness="real"
)
