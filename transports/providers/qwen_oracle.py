"""Qwen Code's records: the stream (``stream_json``) and the chat file, told apart by their lines. Pure.

The chat file has no terminal record, and an abort is not marked in it. Reading it live closes nothing; once its writer
is gone (``eof``, every end marked ``by_end_of_file``) a finished answer (``usageMetadata``, no call) completes its
turn, a partial one settles nothing: ``lost`` where a later prompt follows, else unsettled. A
``mid_turn_user_message`` joins. Telemetry and the requests of helpers (``ui_telemetry``, ``managed-…``) say nothing.

Source: Qwen Code 0.24.4, tests/fixtures/qwen/0.24.4.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import CliVersionSeen
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers import decoding
from lastword.transports.providers.chat_file import ChatOracle
from lastword.transports.providers.line_oracle import SniffingOracle, as_json, when
from lastword.transports.providers.stream_json import QwenStreamOracle


class _Message(msgspec.Struct, frozen=True):
    role: str = ""
    parts: list[dict[str, Any]] = []


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    subtype: str | None = None
    uuid: str = ""
    session_id: str = ""
    timestamp: str | None = None
    version: str | None = None
    message: _Message | None = None
    usage_metadata: dict[str, Any] | None = None
    is_sidechain: bool | None = None
    tool_call_result: dict[str, Any] | None = None


class _Shape(msgspec.Struct, frozen=True):
    session_id: str = ""
    sessionId: str = ""  # noqa: N815 - the wire's own spelling tells the two apart


_LINE = decoding.Decoder(_Line)
_SHAPE = decoding.Decoder(_Shape)


class QwenChatOracle(ChatOracle):
    """Reads one chat file. It closes nothing before its end. Raises nothing for any input."""

    _version = ""

    def _line(self, data: bytes, source: str, offset: int) -> None:
        line = _LINE.decode(data)
        evidence = Evidence(source=source, offset=offset, native_id=line.uuid, native_at=when(line.timestamp))
        if self._foreign(line.session_id):
            self._unknown("foreign_session", evidence)
            return
        if line.is_sidechain:
            return
        if line.version and line.version != self._version:
            self._version = line.version
            self._facts.append(CliVersionSeen(version=line.version))
        parts = line.message.parts if line.message is not None else []
        text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought"))
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        results = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
        match line.type:
            case "user" if line.subtype == "mid_turn_user_message":
                self._joined(text, evidence)
            case "user" if not results:
                self._prompt(line.uuid or f"@{offset}", text, evidence)
            case "user" | "tool_result":
                status = (line.tool_call_result or {}).get("status")
                for result in results:
                    response = result.get("response")
                    failed = status == "error" or (isinstance(response, dict) and "error" in response)
                    self._returned(str(result.get("id", "")), as_json(response), evidence, failed=failed)
            case "assistant":
                self._said(line.uuid, text, evidence, finished=line.usage_metadata is not None and not calls)
                for call in calls:
                    self._called(str(call.get("id", "")), str(call.get("name", "")), call.get("args"), evidence)
            case "system":
                pass
            case _:
                self._unknown(f"type:{line.type[:40]}", evidence)


class QwenReader:
    """Reads a stream or a chat file."""

    name = "qwen"

    def oracle(self, source: SourceSpec, native_session: str, offset: int = 0) -> Oracle:  # noqa: ARG002
        """A reader of that file, whichever it is."""

        def choose(data: bytes, at: int) -> Oracle | None:
            shape = _SHAPE.decode(data)
            if shape.session_id:
                return QwenStreamOracle(native_session, at)
            return QwenChatOracle(native_session, at) if shape.sessionId else None

        return SniffingOracle(choose, offset)
