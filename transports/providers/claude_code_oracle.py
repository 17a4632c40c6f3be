"""The oracle of Claude Code's transcript: bytes to facts. Pure; what a fact means for a turn is decided elsewhere.

Theory of operation. The main thread of a conversation is sequential, so at most one native turn is open. A prompt line
opens it; ``system/turn_duration`` in the chain of its records closes it, as do an API error line and an interrupt.
An assistant message is recorded a line per block; its text is joined by ``message.id``. Sub-agents' lines
(``isSidechain``) and copied history of a fork say nothing. ``-p`` files have no ``turn_duration``: there the next
prompt, or the proved end of the file, closes a turn whose last message ended by itself.

Source: Claude Code 2.1.332, tests/fixtures/claude_code/2.1.332 (cases and their expected reading).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import (
    AssistantSaid,
    CliStatusSeen,
    CliVersionSeen,
    CompactionRecorded,
    Fact,
    InputJoined,
    PromptRecorded,
    ProviderRetrying,
    Taken,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
    TurnInherited,
    UnknownRecord,
)
from lastword.actors.core.outcome import Evidence, TurnError
from lastword.transports.providers import decoding
from lastword.transports.providers.claude_code_errors import api_error
from lastword.transports.providers.claude_code_lines import ClaudeLines
from lastword.transports.providers.claude_code_queue import TASK_NOTIFICATION, CliQueue
from lastword.transports.providers.claude_code_records import (
    METADATA_TYPES,
    Block,
    Line,
    Message,
    Position,
    RegistryFile,
    text_of,
)
from lastword.transports.providers.claude_code_text import unwrap
from lastword.transports.providers.claude_code_turn import CUT_MARK, NativeTurn, Said
from lastword.transports.providers.line_oracle import UNREADABLE

TOOL_RESULT_CHARS_MAX = 64 * 1024
TOOLS_OPEN_MAX = 8192
"""Tool calls of a turn that wait for their result."""
ID_CHARS_MAX = 256
VERSION_CHARS_MAX = 64
INTERRUPTED = "[Request interrupted by user"
LOCAL_TAGS = ("<command-name>", "<command-message>", "<local-command-", "<bash-stdout>", "<bash-stderr>")
BASH_INPUT = "<bash-input>"
SYNTHETIC = "<synthetic>"

_REGISTRY = decoding.Decoder(RegistryFile)


def _superseded(turn: NativeTurn, evidence: Evidence) -> TurnClosed:
    error = TurnError(kind="superseded", message="a later turn began without this one's end")
    return TurnClosed(native_turn=turn.native, status="lost", evidence=evidence, error=error)


class ClaudeOracle:
    """Reads one transcript. Raises nothing for any input.

    Args:
        native_session: the conversation; "" takes that of the first line.
        offset: where reading starts; a place where an oracle was quiescent.
    """

    def __init__(self, source: SourceSpec, native_session: str, offset: int = 0) -> None:
        self._source = source.path
        self._lines = ClaudeLines(offset, native_session)
        self._turn: NativeTurn | None = None
        self._overlapped: NativeTurn | None = None
        """A turn that was not over when the CLI's own queue began the next: its interrupt line may still come."""
        self._closed: deque[set[str]] = deque(maxlen=4)
        self._enqueued = CliQueue()
        self._bash: tuple[Line, Evidence, str] | None = None
        self._version = ""
        self._idle = False
        self._facts: list[Fact] = []
        self._expected: frozenset[str] = frozenset()
        self._handlers: dict[str, Callable[[Line, Evidence], None]] = {
            "user": self._user,
            "assistant": self._assistant,
            "system": self._system,
            "attachment": self._attachment,
            "queue-operation": self._queue_operation,
        }

    @property
    def quiescent(self) -> bool:
        """No turn is open, nothing is queued, no half line is held."""
        return (
            self._turn is None
            and self._overlapped is None
            and not self._enqueued
            and self._bash is None
            and not self._lines.half_held
        )

    def expect(self, native_turns: Collection[str]) -> None:
        """As :class:`~lastword.actors.core.adapter.ExpectsTurns`: by the uuids of their prompts."""
        self._expected = frozenset(native_turns)

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Turn the next transcript bytes into facts, in file order; each ``offset`` is that of its line.

        Args:
            source: name of the file, for the evidence.
            chunk: bytes following the previous chunk, any length; may cut a line or a UTF-8 sequence.
        """
        self._take(self._lines.feed(source, chunk))
        if self._idle:
            self._flush_said()
        facts, self._facts = self._facts, []
        return facts

    def _take(self, read: Iterable[tuple[Line, Evidence] | UnknownRecord]) -> None:
        for each in read:
            if isinstance(each, UnknownRecord):
                self._facts.append(each)
                continue
            line, evidence = each
            try:
                self._line(line, evidence)
            except UNREADABLE:
                self._unknown("unreadable", evidence)

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:  # noqa: ARG002 - one registry a process
        """The CLI's registry of its process. An unreadable one (half written) says nothing."""
        try:
            registry = _REGISTRY.decode(data)
        except UNREADABLE:
            return []
        self._idle = registry.status == "idle"
        if self._idle:
            self._flush_said()  # the last message gets no further block: what it says is complete
        seen = CliStatusSeen(
            status=registry.status,
            waiting_for=registry.waiting_for or "",
            updated_at=(registry.status_updated_at or 0.0) / 1000,
            native_session=registry.session_id,
        )
        facts, self._facts = [*self._facts, seen], []
        return facts

    def eof(self, source: str) -> list[Fact]:
        """The writer is gone and all was fed: a whole last record without its newline counts.

        A ``-p`` turn whose last message ended by itself is over then.
        """
        self._take(self._lines.flush(source))
        turn = self._turn
        if turn is not None and turn.said is not None and self._sdk and turn.said.final:
            evidence = turn.said.evidence
            assert evidence is not None
            self._complete(turn, evidence, 0, by_end_of_file=True)
        facts, self._facts = self._facts, []
        return facts

    # --- lines ------------------------------------------------------------------------------------------------------

    _sdk = False

    def _line(self, line: Line, evidence: Evidence) -> None:
        if line.is_sidechain:
            return
        uuid, parent, prompt = line.uuid, line.parent_uuid, line.prompt_id
        if (
            (uuid is not None and len(uuid) > ID_CHARS_MAX)
            or (parent is not None and len(parent) > ID_CHARS_MAX)
            or (prompt is not None and len(prompt) > ID_CHARS_MAX)
        ):
            self._unknown("id_beyond_bounds", evidence)
            return
        if line.session_id is not None:
            if not self._lines.native_session:
                self._lines.native_session = line.session_id
            elif line.session_id != self._lines.native_session:
                self._unknown("foreign_session", evidence)
                return
        if line.forked_from is not None:
            return
        if line.version:
            version = line.version[:VERSION_CHARS_MAX]
            if version != self._version:
                self._version = version
                self._facts.append(CliVersionSeen(version=version))
        handler = self._handlers.get(line.type)
        if line.parent_uuid in self._expected:
            self._resume(line, evidence)
        if handler is not None:
            if line.entrypoint:
                self._sdk = line.entrypoint.startswith("sdk")
            handler(line, evidence)
        else:
            self._own(line)  # a newer kind of record may stand in the chain all the same
            if line.type not in METADATA_TYPES:
                self._unknown(f"type:{line.type[:40]}", evidence)

    def _unknown(self, what: str, evidence: Evidence) -> None:
        self._facts.append(UnknownRecord(what=what, evidence=evidence))

    def _own(self, line: Line) -> None:
        """Note that this record stands in the chain of the open turn."""
        turn = self._turn
        if turn is None or line.uuid is None:
            return
        if any(line.parent_uuid in uuids for uuids in self._closed if line.parent_uuid is not None):
            return  # hangs on an earlier turn
        turn.own(line.uuid)

    def _resume(self, line: Line, evidence: Evidence) -> None:
        """Go on with a turn that is expected, whose prompt is not in the record any more: with the first record that
        hangs on that prompt. Of one that was open before it the end is not there either.
        """
        root, before = line.parent_uuid, self._turn
        if root is None or line.uuid is None or self._in_closed(root) or (before and root in before.uuids):
            return
        if before is not None:
            self._close(before, _superseded(before, evidence))
        self._turn = NativeTurn(root, None, line.turn_position)
        self._turn.own(root)

    # --- user lines ---------------------------------------------------------------------------------------------------

    def _user(self, line: Line, evidence: Evidence) -> None:
        message = line.message
        content = message.content if message is not None else None
        if line.is_compact_summary:
            self._own(line)
            self._facts.append(CompactionRecorded(evidence=evidence))
            return
        if isinstance(content, list) and any(block.type == "tool_result" for block in content):
            self._flush_said()
            self._own(line)
            self._tool_results(content, evidence)
            return
        text = text_of(content)
        human = (line.origin is not None and line.origin.kind == "human") or line.prompt_source in {
            "typed",
            "queued",
            "sdk",
        }
        if not human and text.startswith(INTERRUPTED):
            self._interrupted(line, evidence)
        elif line.is_meta:
            self._meta(line, text, evidence)
        elif human:
            self._prompt(line, unwrap(text), evidence)
        elif line.origin is not None:
            self._prompt(line, "", evidence, origin=line.origin.kind.replace("-", "_"))
        elif text.startswith(BASH_INPUT):
            inner = text.removeprefix(BASH_INPUT).rsplit("</bash-input>", 1)[0]
            self._bash = (line, evidence, f"!{inner}")
        elif self._bash is not None and line.prompt_id == self._bash[0].prompt_id:
            if line.turn_origin:
                self._open_shell_turn(line)
        elif text.startswith(LOCAL_TAGS) or line.row_source is not None:
            self._own(line)
        elif text.startswith(TASK_NOTIFICATION):
            self._prompt(line, "", evidence, origin="task_notification")
        elif content is not None:
            self._prompt(line, unwrap(text), evidence)  # a version that says no source
        else:
            self._unknown("user_without_content", evidence)

    def _open_shell_turn(self, line: Line) -> None:
        assert self._bash is not None
        opened, evidence, text = self._bash
        self._bash = None
        self._prompt(opened, text, evidence, taken="shell", position=line.turn_position)
        self._own(line)

    def _prompt(
        self,
        line: Line,
        text: str,
        evidence: Evidence,
        *,
        origin: str = "",
        taken: Taken | None = None,
        position: Position | None = None,
    ) -> None:
        # not the promptId: in a fork all copied prompts carry the new prompt's
        native = line.uuid or line.prompt_id or f"@{evidence.offset}"
        before = self._turn
        position = position or line.turn_position
        if before is not None:
            if before.native == native:
                self._own(line)
                return
            if self._merged(before, line, position):
                self._own(line)
                self._facts.append(InputJoined(native_turn=before.native, text=text, evidence=evidence))
                return
            self._overtaken(before, line, position, evidence)
        if taken is None:
            taken = "queued" if line.prompt_source == "queued" else "sdk" if line.prompt_source == "sdk" else "typed"
            if origin:
                taken = "self"
        self._turn = NativeTurn(native, line.parent_uuid, position)
        self._own(line)
        if line.uuid is not None:
            self._turn.own(line.uuid)
        self._facts.append(PromptRecorded(native_turn=native, text=text, evidence=evidence, taken=taken, origin=origin))

    def _merged(self, turn: NativeTurn, line: Line, position: Position | None) -> bool:
        """Several messages of the CLI's queue may begin one turn: prompts in a chain, of one place, with one end."""
        chained = line.parent_uuid is not None and line.parent_uuid in turn.uuids
        queued = line.prompt_source == "queued" and position is not None and turn.position == position
        return chained and queued and not turn.output

    def _overtaken(self, turn: NativeTurn, line: Line, position: Position | None, evidence: Evidence) -> None:
        """A prompt began while a turn was open: what became of that one is known now."""
        self._flush_said()
        if turn.inherited:
            self._turn = None
        elif not turn.output and turn.parent == line.parent_uuid and turn.position == position and position is not None:
            # taken back with Escape before any output: the CLI gave its place to this prompt
            self._close(turn, TurnClosed(native_turn=turn.native, status="cancelled", evidence=evidence))
        elif line.prompt_source == "queued" and self._overlapped is None and not turn.final:
            self._overlapped = turn  # the record of how it ended comes behind the prompt that its end let in
            self._turn = None
        elif turn.said is not None and turn.said.final and not turn.tools:
            self._complete(turn, turn.said.evidence or evidence, 0)  # a version or mode without turn_duration
        else:
            self._close(turn, _superseded(turn, evidence))

    def _meta(self, line: Line, text: str, evidence: Evidence) -> None:
        self._flush_said()
        self._own(line)
        if self._turn is not None and text.startswith("Stop hook feedback"):
            self._facts.append(TurnContinued(native_turn=self._turn.native, reason="stop_hook", evidence=evidence))

    def _interrupted(self, line: Line, evidence: Evidence) -> None:
        overlapped = self._overlapped
        if overlapped is not None:
            self._own(line)
            self._overlapped = None
            self._facts.append(TurnClosed(native_turn=overlapped.native, status="cancelled", evidence=evidence))
            self._closed.append(overlapped.uuids)
            return
        turn = self._turn
        if turn is None or self._hangs_on_closed(line):
            self._unknown("late_terminal", evidence)
            return
        self._flush_said()
        self._close(turn, TurnClosed(native_turn=turn.native, status="cancelled", evidence=evidence))

    def _tool_results(self, blocks: list[Block], evidence: Evidence) -> None:
        turn = self._turn
        for block in blocks:
            if block.type != "tool_result":
                continue
            if self._overlapped is not None and block.tool_use_id in self._overlapped.tools:
                turn = self._overlapped
            else:
                turn = self._turn
            if turn is None or block.tool_use_id not in turn.tools:
                self._unknown("tool_result_without_call", evidence)
                continue
            del turn.tools[block.tool_use_id]
            result = text_of(block.content)
            if len(result) > TOOL_RESULT_CHARS_MAX:
                result = result[:TOOL_RESULT_CHARS_MAX] + CUT_MARK
            self._facts.append(
                ToolFinished(
                    native_turn=turn.native,
                    call_id=block.tool_use_id,
                    status="error" if block.is_error else "ok",
                    result=result,
                    evidence=evidence,
                )
            )

    # --- assistant lines ----------------------------------------------------------------------------------------------

    def _assistant(self, line: Line, evidence: Evidence) -> None:
        message = line.message
        if message is None:
            self._unknown("assistant_without_message", evidence)
            return
        if self._bash is not None and self._turn is None:
            self._open_shell_turn(line)
        turn = self._turn
        if (
            line.request_session_id
            and self._lines.native_session
            and line.request_session_id != self._lines.native_session
        ):
            if turn is not None and not turn.inherited:
                turn.inherited = True
                self._facts.append(TurnInherited(native_turn=turn.native, evidence=evidence))
            return
        if message.model == SYNTHETIC and not line.is_api_error_message:
            return  # "No response requested." at a resume: neither answer nor end
        if turn is None or self._hangs_on_closed(line):
            self._unknown("assistant_without_turn", evidence)
            return
        self._own(line)
        if line.is_api_error_message:
            self._flush_said()
            self._failed(turn, line, message, evidence)
            return
        turn.output = True
        said = turn.said
        if said is None or said.id != message.id:
            self._flush_said(over=True)
            carry = said.text if said is not None and said.stop_reason == "max_tokens" else ""
            said = turn.said = Said(message.id, carry)
        said.stop_reason = message.stop_reason if not line.is_aborted_mid_stream else None
        said.evidence = evidence
        blocks = message.content if isinstance(message.content, list) else []
        if isinstance(message.content, str):
            blocks = [Block(type="text", text=message.content)]
        for number, block in enumerate(blocks):
            self._block(turn, said, block, (line.api_block_index or 0) + number, evidence)

    def _block(self, turn: NativeTurn, said: Said, block: Block, index: int, evidence: Evidence) -> None:
        match block.type:
            case "text":
                if not said.add(index, block.text):
                    self._unknown("text_beyond_bounds", evidence)
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                self._flush_said()
                if len(block.id) > ID_CHARS_MAX:
                    self._unknown("id_beyond_bounds", evidence)
                elif block.id and block.id not in turn.tools:
                    turn.tools[block.id] = None
                    if len(turn.tools) > TOOLS_OPEN_MAX:
                        del turn.tools[next(iter(turn.tools))]
                    self._facts.append(
                        ToolStarted(
                            native_turn=turn.native,
                            call_id=block.id,
                            name=block.name,
                            arguments=bytes(block.input).decode("utf-8", "replace"),
                            evidence=evidence,
                        )
                    )
            case _:
                pass  # thinking and what else a model may put into a message: no text of the answer

    def _flush_said(self, *, over: bool = False) -> None:
        """Tell the text of the message so far, once complete as far as can be known; ``over``: nothing follows."""
        turn = self._turn
        if turn is None or turn.said is None or turn.inherited:
            return
        said = turn.said
        if said.evidence is not None and said.worth_telling(over=over):
            said.told = said.text
            self._facts.append(
                AssistantSaid(
                    native_turn=turn.native,
                    native_message=said.id,
                    text=said.text,
                    evidence=said.evidence,
                    ends_by_itself=said.final,
                )
            )

    def _failed(self, turn: NativeTurn, line: Line, message: Message, evidence: Evidence) -> None:
        error = api_error(line, message)
        self._close(turn, TurnClosed(native_turn=turn.native, status="failed", evidence=evidence, error=error))

    # --- system, attachments, queue ---------------------------------------------------------------------------------

    def _system(self, line: Line, evidence: Evidence) -> None:
        match line.subtype:
            case "turn_duration":
                self._turn_duration(line, evidence)
            case "compact_boundary":
                self._own(line)
                self._facts.append(CompactionRecorded(evidence=evidence))
            case "api_error":
                self._own(line)
                if self._turn is not None:
                    retrying = ProviderRetrying(
                        native_turn=self._turn.native, message=text_of(line.content)[:2000], evidence=evidence
                    )
                    self._facts.append(retrying)
            case "informational" | "local_command" | "stop_hook_summary" | "away_summary" | "bridge_status":
                self._own(line)
            case _:
                self._own(line)
                self._unknown(f"system:{(line.subtype or '')[:40]}", evidence)

    def _turn_duration(self, line: Line, evidence: Evidence) -> None:
        turn = self._turn
        if turn is None or line.parent_uuid not in turn.uuids or line.uuid in turn.uuids:
            self._unknown("late_terminal", evidence)  # not of this turn's chain: it ends nothing
            return
        if turn.inherited:
            self._turn = None
            return
        self._complete(turn, evidence, line.pending_background_agent_count or 0)
        if line.uuid is not None:
            self._closed[-1].add(line.uuid)

    def _hangs_on_closed(self, line: Line) -> bool:
        """Whether the record's chain is that of a turn that is closed already (a late or doubled record)."""
        turn, parent = self._turn, line.parent_uuid
        if turn is not None and parent in turn.uuids:
            return False
        if line.uuid is not None and any(line.uuid in uuids for uuids in self._closed):
            return True
        return parent is not None and turn is not None and parent != turn.parent and self._in_closed(parent)

    def _in_closed(self, uuid: str) -> bool:
        return any(uuid in uuids for uuids in self._closed)

    def _attachment(self, line: Line, evidence: Evidence) -> None:
        self._own(line)
        attachment = line.attachment
        if attachment is None or attachment.type != "queued_command" or self._turn is None:
            return
        if attachment.command_mode == "task-notification":
            return
        text = text_of(attachment.prompt)
        if text.startswith(TASK_NOTIFICATION):
            return
        self._flush_said()
        self._facts.append(InputJoined(native_turn=self._turn.native, text=unwrap(text), evidence=evidence))

    def _queue_operation(self, line: Line, evidence: Evidence) -> None:
        self._facts += self._enqueued.change(line, evidence)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _complete(self, turn: NativeTurn, evidence: Evidence, background: int, *, by_end_of_file: bool = False) -> None:
        self._flush_said(over=True)
        said = turn.said
        answer = said.text if said is not None and said.final else ""
        self._close(
            turn,
            TurnClosed(
                native_turn=turn.native,
                status="completed",
                answer=answer,
                evidence=evidence,
                background_pending=background,
                by_end_of_file=by_end_of_file,
            ),
        )

    def _close(self, turn: NativeTurn, closed: TurnClosed) -> None:
        self._expected -= {turn.native}
        overlapped = self._overlapped
        if overlapped is not None:
            self._overlapped = None
            self._closed.append(overlapped.uuids)
            error = TurnError(kind="superseded", message="a later turn ended without this one's end")
            lost = TurnClosed(native_turn=overlapped.native, status="lost", evidence=closed.evidence, error=error)
            self._facts.append(lost)
        self._facts.append(closed)
        self._closed.append(turn.uuids)
        self._turn = None
