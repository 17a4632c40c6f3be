"""A third party's adapter of a CLI that is a process for each turn: a command line, one method that reads a line, and
what its last line looks like. Certify it: ``lastword certify quill_adapter:SUBJECT``.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from lastword.actors.core.adapter import Capability, LaunchRecipe, LaunchRequest, SourceSpec
from lastword.actors.core.facts import PromptRecorded, TurnClosed, UnknownRecord
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.runtime.testing.conformance import Subject
from lastword.transports.providers.line_oracle import LineOracle
from lastword.transports.providers.one_shot import OneShotAdapter, OneShotOracle, OneShotTalk, recipe

TURN = "run"
"""A process is one turn: any name will do, the message's own takes its place."""


class QuillOracle(LineOracle):
    """Reads what it says: ``begin``, ``end``."""

    _open = False

    @property
    def _busy(self) -> bool:
        return self._open

    def _line(self, data: bytes, source: str, offset: int) -> None:
        try:
            self._record(json.loads(data), source, offset)
        except (KeyError, TypeError, AttributeError) as error:  # what is raised must be one of UNREADABLE
            raise ValueError from error

    def _record(self, record: dict[str, Any], source: str, offset: int) -> None:
        evidence = Evidence(source=source, offset=offset, native_at=float(record["at"]))
        match record["kind"]:
            case "begin":
                self._open = True
                self._facts.append(PromptRecorded(native_turn=TURN, text="", evidence=evidence, taken="sdk"))
            case "end" if self._open and record["ok"]:
                answer = str(record["text"])
                self._end(TurnClosed(native_turn=TURN, status="completed", answer=answer, evidence=evidence))
            case "end" if self._open:
                error = TurnError(kind="provider_error", message=str(record["why"]))
                self._end(TurnClosed(native_turn=TURN, status="failed", error=error, evidence=evidence))
            case kind:
                self._facts.append(UnknownRecord(what=f"kind:{kind}", evidence=evidence))

    def _end(self, closed: TurnClosed) -> None:
        self._open = False
        self._close(closed)


def is_last(line: bytes) -> bool:
    """Whether that is its last word: it may live no longer than a moment behind it."""
    return line.startswith(b'{"kind": "end"')


class QuillAdapter(OneShotAdapter):
    """Quill behind a pipe. The rest is :class:`OneShotAdapter`'s."""

    name = "quill"
    executables: tuple[str, ...] = ("quill",)
    certified_versions: tuple[str, ...] = ("3.1",)
    capabilities: frozenset[Capability] = frozenset({"queues_while_busy", "interrupt", "resume", "process_per_turn"})

    def new_native_session(self, entropy: bytes) -> str:
        """A UUID: it takes any name."""
        return str(uuid.UUID(bytes=entropy[:16], version=4))

    def parse_version(self, output: str) -> str:
        """``quill 3.1``."""
        return output.strip().removeprefix("quill ")

    def launch(self, request: LaunchRequest) -> LaunchRecipe:
        """The prompt goes behind it, once it is known."""
        return recipe(request, (*request.executable, "ask", "--conv", request.native_session))

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> OneShotOracle:  # noqa: ARG002
        """A reader of one process's words."""
        return OneShotOracle(QuillOracle())

    def talk(self, request: LaunchRequest) -> OneShotTalk:  # noqa: ARG002
        """One text, once."""
        return OneShotTalk(is_last)


SUBJECT = Subject(
    adapter=QuillAdapter(), executable=(sys.executable, str(Path(__file__).with_name("quill.py"))), realness="real"
)
