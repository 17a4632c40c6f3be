"""The adapter of the in-process transport (:mod:`lastword.transports.memory`): the smallest complete one.

Record: JSON lines with ``k`` = prompt, queued, joined, dropped, said, tool, tool_end, retry, end. The screen's first
line is ``READY``, ``BUSY``, ``STARTING`` or ``DIALOG <json>``; the lines after it are the draft. Nothing of it
imitates a real CLI; it proves what lastword itself does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

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
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    Fact,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    ToolStatus,
    TurnClosed,
    UnknownRecord,
)
from lastword.actors.core.ids import MessageId
from lastword.actors.core.outcome import ErrorKind, Evidence, Status, TurnError
from lastword.actors.core.transcript import LineFramer
from lastword.transports.providers import decoding

MEMORY_ROOT = "/memory"
"""Where records stand unless another root is asked for; nothing is ever read from or written to a disk there."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the record."""

    k: Literal["prompt", "queued", "joined", "dropped", "said", "tool", "tool_end", "retry", "end"]
    turn: str = ""
    text: str = ""
    at: float | None = None
    origin: str = ""
    call: str = ""
    name: str = ""
    status: str = ""
    error: str = ""
    background: int = 0
    final: bool = False


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """The registry file."""

    status: str
    updated_at: float
    session: str
    waiting_for: str = ""


_RECORD = decoding.Decoder(Record)
_REGISTRY = decoding.Decoder(Registry)
_DIALOG = decoding.Decoder(DialogOpen)


class MemoryOracle:
    """Reads the records above."""

    def __init__(self, source: SourceSpec, offset: int) -> None:
        self._framer = LineFramer(offset)
        self._path = source.path
        self._open: set[str] = set()
        self._queued = 0

    @property
    def quiescent(self) -> bool:
        """Nothing open, nothing queued, no half line."""
        return not self._open and not self._queued and not self._framer.tail_bytes

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Facts of the next bytes."""
        facts: list[Fact] = []
        for line in self._framer.feed(chunk):
            try:
                record = _RECORD.decode(line.data)
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                evidence = Evidence(source=source, offset=line.offset)
                facts.append(UnknownRecord(what="unreadable", evidence=evidence))
                continue
            evidence = Evidence(source=source, offset=line.offset, native_at=record.at)
            if record.k == "prompt":
                facts += self._without_end(record.turn, evidence)
            facts.append(self._fact(record, evidence))
        return facts

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:  # noqa: ARG002
        """The registry."""
        try:
            registry = _REGISTRY.decode(data)
        except msgspec.MsgspecError:
            return []
        return [
            CliStatusSeen(
                status=registry.status,
                waiting_for=registry.waiting_for,
                updated_at=registry.updated_at,
                native_session=registry.session,
            )
        ]

    def eof(self, source: str) -> list[Fact]:  # noqa: ARG002
        """Its end proves nothing more."""
        return []

    def _without_end(self, following: str, evidence: Evidence) -> list[Fact]:
        """This CLI runs one turn at a time: where the next one begins, no end of the one before will come any more."""
        lost = sorted(self._open - {following})
        self._open.difference_update(lost)
        return [TurnClosed(native_turn=native, status="lost", evidence=evidence) for native in lost]

    def _fact(self, record: Record, evidence: Evidence) -> Fact:
        match record.k:
            case "prompt":
                self._open.add(record.turn)
                self._queued = max(0, self._queued - (record.status == "queued"))
                return PromptRecorded(
                    native_turn=record.turn, text=record.text, evidence=evidence, origin=record.origin
                )
            case "queued":
                self._queued += 1
                return InputQueued(text=record.text, evidence=evidence)
            case "joined":
                self._queued = max(0, self._queued - 1)
                return InputJoined(native_turn=record.turn, text=record.text, evidence=evidence)
            case "dropped":
                self._queued = max(0, self._queued - 1)
                return InputDropped(text=record.text, reason=record.status, evidence=evidence)
            case "said":
                message = f"{record.turn}@{evidence.offset}"
                return AssistantSaid(
                    native_turn=record.turn,
                    native_message=message,
                    text=record.text,
                    evidence=evidence,
                    ends_by_itself=record.final,
                )
            case "tool":
                return ToolStarted(
                    native_turn=record.turn,
                    call_id=record.call,
                    name=record.name,
                    arguments=record.text,
                    evidence=evidence,
                )
            case "tool_end":
                status: ToolStatus = "error" if record.status == "error" else "ok"
                return ToolFinished(
                    native_turn=record.turn,
                    call_id=record.call,
                    status=status,
                    result=record.text,
                    evidence=evidence,
                )
            case "retry":
                return ProviderRetrying(native_turn=record.turn, message=record.text, evidence=evidence)
            case "end":
                self._open.discard(record.turn)
                status_word = msgspec.convert(record.status, type=Status)
                error = TurnError(kind=msgspec.convert(record.error, type=ErrorKind)) if record.error else None
                return TurnClosed(
                    native_turn=record.turn,
                    status=status_word,
                    answer=record.text if status_word == "completed" else None,
                    error=error,
                    evidence=evidence,
                    background_pending=record.background,
                )


class MemoryAdapter:
    """Adapter of the in-process CLI. ``root``: the folder that its files are named under, as its world's."""

    name = "memory"
    transport: TransportName = "memory"
    capabilities: frozenset[Capability] = frozenset(
        {
            "queues_while_busy",
            "absorbs_while_busy",
            "interrupt",
            "resume",
            "clear",
            "dialogs",
            "tool_calls",
            "cli_started_turns",
            "asserts_completion",
        }
    )
    certified_versions: tuple[str, ...] = ("1",)
    executables: tuple[str, ...] = ("true",)

    def __init__(self, root: str = MEMORY_ROOT) -> None:
        self._root = root

    def new_native_session(self, entropy: bytes) -> str:
        """A UUID."""
        return str(uuid.UUID(bytes=entropy[:16], version=4))

    def parse_version(self, output: str) -> str:  # noqa: ARG002
        """There is one version."""
        return "1"

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """The in-process CLI reads its conversation from argv."""
        argv = (*request.executable, "--resume" if request.resume else "--session", request.native_session)
        return LaunchRecipe(argv=argv, env={}, native_session=request.native_session)

    def transcript(self, request: LaunchRequest) -> SourceSpec:
        """``ROOT/SESSION.jsonl``."""
        return SourceSpec(kind="append-jsonl", path=f"{self._root}/{request.native_session}.jsonl", root=self._root)

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """That file."""
        return (self.transcript(request),)

    def key(self, message_id: MessageId) -> str:  # noqa: ARG002
        """Its text tells."""
        return ""

    def identify(self, request: LaunchRequest, title: str, open_files: Callable[[], Sequence[str]]) -> str:  # noqa: ARG002
        """The one that we chose."""
        return request.native_session

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """``ROOT/PID.json``."""
        return SourceSpec(kind="snapshot-json", path=f"{self._root}/{pid}.json", root=self._root)

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> MemoryOracle:  # noqa: ARG002
        """A reader."""
        return MemoryOracle(source, offset)

    def signals(self, view: SignalView) -> Signal:
        """From the screen's first line."""
        head = view.screen[0] if view.screen else ""
        draft = "\n".join(view.screen[1:])
        if head == "READY":
            return Ready(draft=draft)
        if head == "BUSY":
            return Ready(draft=draft, busy=True)
        if head.startswith("DIALOG "):
            return _DIALOG.decode(head[7:].encode())
        return NotReady(reason=head)

    def escape(self, text: str) -> TypedText | Refused:
        """Everything but NUL."""
        if "\0" in text:
            return Refused(reason="a NUL cannot be typed")
        return TypedText(text=text, paste=text.encode(), rewritten=text)

    def matches(self, typed: TypedText, recorded: str) -> bool:
        """To the letter."""
        return typed.rewritten == recorded

    def landed(self, typed: TypedText, draft: str) -> bool:
        """To the letter."""
        return typed.rewritten == draft

    def interrupt_keys(self) -> tuple[str, ...]:
        """Escape."""
        return ("Escape",)

    def clear_draft_keys(self, draft: str) -> tuple[str, ...]:  # noqa: ARG002
        """C-u."""
        return ("C-u",)

    def answer_keys(self, dialog: DialogOpen, option: int) -> tuple[str, ...]:  # noqa: ARG002
        """The digit."""
        return (str(option),)
