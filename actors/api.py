"""ApiActor: speaks to a model's API for one session. Drives :class:`~lastword.actors.core.agent.Agent`.

It is a mouth like the others: what it does goes on record, in the journal, and the transcript watcher reads that record
for facts, as it reads a CLI's own file. Nothing here ends a turn. The network and the host's tools run elsewhere
(:class:`~lastword.actors.core.service.ApiTransport`); this actor never blocks.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from lastword.actors.core import typing_effects as reports
from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.agent import Agent, AgentEffect, Ask, HangUp, Record, RunTool
from lastword.actors.core.conversation import Line, decode, encode
from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import Batch, Lines
from lastword.actors.core.service import (
    ApiAdapter,
    ApiTransport,
    Asking,
    Calling,
    Failed,
    Failure,
    Replied,
    Retrying,
    Streamed,
    Word,
)
from lastword.actors.core.tools import ToolResult
from lastword.actors.core.transcript import LineFramer
from lastword.actors.core.world import Bytes, Files
from lastword.actors.journal import CommitFailed, Committed
from lastword.actors.mouth import (
    AnswerDialog,
    Attach,
    Close,
    Closed,
    Deliver,
    Gone,
    Kept,
    Known,
    MouthCommand,
    MouthReport,
    MovedUnseen,
    Nudge,
    Open,
    Opened,
    OpenFailed,
    PressInterrupt,
    Prove,
    Said,
    Withdraw,
)
from lastword.actors.outbox import Outbox, Retry
from lastword.actors.system.actor import Actor
from lastword.actors.system.ref import Ref

READ_BYTES_MAX = 1024 * 1024
"""Of the record, in one piece, when a conversation is taken up again."""


class _Heard(msgspec.Struct, frozen=True):
    number: int
    word: Word


class _ToolEnded(msgspec.Struct, frozen=True):
    turn: str
    key: str
    result: ToolResult


_FromEdge: TypeAlias = _Heard | _ToolEnded
ApiCommand: TypeAlias = MouthCommand | _FromEdge | Committed | CommitFailed | Retry


class ApiActor(Actor):
    """One conversation with a model's API.

    Args:
        transport: asks services, runs tools.
        adapter: the vendor.
        files: reads the record.
        journal: writes it.
    """

    def __init__(
        self, transport: ApiTransport, adapter: ApiAdapter, files: Files, journal: Ref, session_id: SessionId
    ) -> None:
        super().__init__()
        self._transport = transport
        self._adapter = adapter
        self._files = files
        self._session_id = session_id
        self._outbox = Outbox(journal, self.ref, lambda delay_s, retry: self.after(delay_s, retry, key=retry.token))
        self._agent = Agent()
        self._epoch = 0
        self._request: LaunchRequest | None = None
        """None before the first Open, and once it is closed."""
        self._path = ""
        self._records: dict[int, int] = {}
        """Token of a commit -> number of what the agent had recorded."""
        self._asking: tuple[int, Asking] | None = None
        self._calling: dict[str, Calling] = {}
        self._closing = False

    def receive(self, message: ApiCommand) -> None:
        match message:
            case Open():
                self._open(message)
            case Attach():
                raise AssertionError("nothing of an API outlives its host")
            case Close():
                self._close()
            case Deliver():
                if self._request is not None and not self._closing:
                    self._do(self._agent.deliver(message.job, self.clock.wall()))
            case Withdraw():
                self._do(self._agent.withdraw(message.message_id))
            case PressInterrupt():
                self._do(self._agent.interrupt(message.turn_id, message.native_turn, self.clock.wall()))
            case AnswerDialog():
                self._say(reports.AnswerResult(token=message.token, applied=False))
            case Prove() | Nudge() | Known() | Kept() | MovedUnseen():
                pass  # nothing here waits for the record to be read
            case _Heard():
                self._heard(message.number, message.word)
            case _ToolEnded():
                self._calling.pop(message.key, None)
                self._do(self._agent.tool_ended(message.turn, message.key, message.result, self.clock.wall()))
            case Committed():
                self._committed(message)
            case CommitFailed():
                self._outbox.failed(message)
            case Retry():
                self._outbox.again(message)
            case _:
                assert_never(message)

    def stopped(self) -> None:
        self._hang_up()

    # --- life -------------------------------------------------------------------------------------------------------

    def _open(self, message: Open) -> None:
        self._hang_up()
        self._epoch = message.epoch
        self._closing = False
        error = self._transport.unready(self._adapter.service)
        if error is not None:
            self._request = None
            self._report(OpenFailed(epoch=self._epoch, error=error))
            return
        self._request = message.request
        (source,) = self._adapter.sources(message.request)
        self._path = source.path
        self._agent = Agent(self._on_record())
        self._report(Opened(epoch=self._epoch, pane_id="", pid=0, pid_start=0))
        self._say(reports.BecameReady())

    def _on_record(self) -> list[Line]:
        lines: list[Line] = []
        framer, offset = LineFramer(), 0
        while isinstance(read := self._files.read_from(self._path, offset, READ_BYTES_MAX, 0, 0), Bytes) and read.data:
            offset += len(read.data)
            for line in framer.feed(read.data):
                try:
                    lines.append(decode(line.data))
                except msgspec.MsgspecError:
                    self.system.dead_letters.record("unknown_record", self.ref.name, line.offset)
        return lines

    def _close(self) -> None:
        if self._request is None:
            self._report(Closed(epoch=self._epoch))
            return
        self._closing = True
        self._do(self._agent.stop())
        self._maybe_closed()

    def _maybe_closed(self) -> None:
        """Its end is told once nothing more can come on record: then the record is whole."""
        if self._closing and self._request is not None and not self._agent.recording:
            self._request = None
            self._report(Gone(epoch=self._epoch, exit_status=None, was_ready=True, last_words=""))
            self._report(Closed(epoch=self._epoch))

    # --- words of the edge ------------------------------------------------------------------------------------------

    def _heard(self, number: int, word: Word) -> None:
        asking = self._asking
        if asking is None or asking[0] != number:
            return
        now = self.clock.wall()
        match word:
            case Streamed():
                response, text = asking[1].take()
                if text:
                    self._stream(
                        reports.Streamed(native_turn=self._agent.turn, native_message=response, text=text), now
                    )
            case Retrying():
                self._do(self._agent.retrying(number, word.message, now))
            case Replied():
                self._asking = None
                self._replied(number, word.body, now)
            case Failed():
                self._asking = None
                self._do(self._agent.failed(number, self._adapter.failed(word.failure), now))
            case _:
                assert_never(word)

    def _replied(self, number: int, body: bytes, now: float) -> None:
        try:
            reply = self._adapter.reply(body)
        except msgspec.MsgspecError as error:
            what = f"the answer is none that is understood: {type(error).__name__}"
            failure = Failure(kind="other", message=what, at=now)
            self._do(self._agent.failed(number, self._adapter.failed(failure), now))
            return
        self._do(self._agent.replied(number, reply, now))

    def _committed(self, answer: Committed) -> None:
        self._outbox.committed(answer)
        number = self._records.pop(answer.token, None)
        if number is not None:
            self._transport.wrote(self._path)
            self._do(self._agent.recorded(number, self.clock.wall()))
            self._maybe_closed()

    # --- effects ----------------------------------------------------------------------------------------------------

    def _do(self, effects: list[AgentEffect]) -> None:
        for effect in effects:
            match effect:
                case Record():
                    self._record(effect)
                case Ask():
                    self._ask(effect.number)
                case RunTool():
                    self._run(effect)
                case HangUp():
                    self._hang_up()
                case _:
                    self._say(effect)

    def _record(self, record: Record) -> None:
        assert self._request is not None
        lines = Lines(conversation=self._request.native_session, lines=tuple(map(encode, record.lines)))
        token = self._outbox.send(Batch(session_id=self._session_id, lines=lines))
        self._records[token] = record.number

    def _ask(self, number: int) -> None:
        assert self._request is not None
        ref = self.answers
        body = self._adapter.body(self._request, self._agent.lines, self._transport.tools)
        asking = self._transport.ask(self._adapter.service, body, lambda word: ref.tell(_Heard(number, word)))
        self._asking = (number, asking)

    def _run(self, run: RunTool) -> None:
        ref, turn, key = self.answers, run.turn, run.call.key
        self._calling[key] = self._transport.call(
            run.call, self._session_id, lambda result: ref.tell(_ToolEnded(turn, key, result))
        )

    def _hang_up(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking[1].cancel()
        calling, self._calling = self._calling, {}
        for each in calling.values():
            each.cancel()

    def _stream(self, streamed: reports.Streamed, at: float) -> None:
        """Live only: where the session has no room for it, it is let go."""
        assert self.parent is not None
        self.parent.try_tell(Said(epoch=self._epoch, report=streamed, at=at))

    def _say(self, report: reports.Report | reports.Queued) -> None:
        self._report(Said(epoch=self._epoch, report=report, at=self.clock.wall()))

    def _report(self, report: MouthReport) -> None:
        assert self.parent is not None
        self.parent.tell(report)


__all__ = ["ApiActor"]
