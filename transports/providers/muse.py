"""Muse Code. Known from public packages that speak to it alone: **emulated**, never seen on the real CLI.

``muse exec --json --session-id UUID --prompt-file F``: one process a turn; the id is ours and names or resumes. Exactly
one ``run_terminal`` ends a turn; retracted and retried ones go on without it.

Source: docs/providers/muse.md.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, SourceSpec
from lastword.actors.core.facts import AssistantSaid, PromptRecorded, TurnClosed
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.transports.providers.decoding import Decoder
from lastword.transports.providers.line_oracle import UNREADABLE, LineOracle, turn_error
from lastword.transports.providers.one_shot import OneShotAdapter, OneShotOracle, OneShotTalk, recipe

CANCELLED = frozenset({"cancelled", "canceled", "aborted", "interrupted"})


class _Stream(msgspec.Struct):
    id: str = ""


class _Payload(msgspec.Struct):
    kind: str = ""
    terminal: str = ""
    text: Any = None
    reason: Any = None


class _Line(msgspec.Struct):
    payload: _Payload
    stream: _Stream = msgspec.field(default_factory=_Stream)


_LINE = Decoder(_Line)


class MuseOracle(LineOracle):
    """Reads ``muse exec --json``: one run."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._run = ""

    @property
    def _busy(self) -> bool:
        return bool(self._run)

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _LINE.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.stream.id)
        if not line.payload.kind:  # Codex's rollout has payloads too: a line of another form opens nothing
            self._unknown("without_kind", evidence)
            return
        native = line.stream.id or "run"
        if native not in (self._run, *self._closed) and not self._run:
            self._run = native
            self._facts.append(PromptRecorded(native_turn=native, text="", evidence=evidence, taken="sdk"))
        if line.payload.kind != "run_terminal":
            return  # of the run's inner life, whatever it is: it ends nothing
        if native != self._run:  # of a run that is over, or that never began
            self._unknown("late_terminal", evidence)
            return
        self._run = ""
        closed = _closed(native, line.payload, evidence)
        if closed.answer:
            said = AssistantSaid(native_turn=native, native_message=native, text=closed.answer, evidence=evidence)
            self._facts.append(said)
        self._close(closed)


def _closed(native: str, payload: _Payload, evidence: Evidence) -> TurnClosed:
    if payload.terminal == "completed":
        text = payload.text if isinstance(payload.text, str) else ""
        return TurnClosed(native_turn=native, status="completed", answer=text, evidence=evidence)
    if payload.terminal in CANCELLED:
        return TurnClosed(native_turn=native, status="cancelled", evidence=evidence)
    reason = payload.reason if isinstance(payload.reason, str) else ""
    error: TurnError = turn_error(reason, kind=None, word=payload.terminal, status=None)
    return TurnClosed(native_turn=native, status="failed", error=error, evidence=evidence)


class MuseReader:
    """Reads ``muse exec --json``."""

    name = "muse"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> MuseOracle:  # noqa: ARG002
        """A reader of that stream."""
        return MuseOracle(native_session, offset)


class MuseAdapter(OneShotAdapter):
    """Muse Code, a process a turn."""

    name = "muse"
    executables = ("muse",)
    capabilities: frozenset[Capability] = frozenset(
        {"queues_while_busy", "interrupt", "resume", "process_per_turn", "emulated"}
    )
    guarded = ()

    def new_native_session(self, entropy: bytes) -> str:
        """A UUID of ours."""
        return str(uuid.UUID(bytes=entropy, version=4))

    def parse_version(self, output: str) -> str:
        """Its first line."""
        return output.partition("\n")[0].strip()

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """One prompt, from its stdin; ``args`` may hold ``--trust-workspace``."""
        model = ("--model", request.model) if request.model else ()
        run = (*request.executable, "exec", "--json", "--session-id", request.native_session, *model)
        return recipe(request, (*run, *request.extra_args, "--prompt-file", "/dev/stdin"), on_stdin=True)

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> OneShotOracle:  # noqa: ARG002
        """A reader of one process's files; always from the start."""
        return OneShotOracle(MuseOracle())

    def talk(self, request: LaunchRequest) -> OneShotTalk:  # noqa: ARG002 - a process has one conversation
        """A new process is spoken to."""
        return OneShotTalk(_is_last)


def _is_last(line: bytes) -> bool:
    try:
        return _LINE.decode(line).payload.kind == "run_terminal"
    except UNREADABLE:
        return False


__all__ = ["MuseAdapter", "MuseOracle", "MuseReader"]
