"""SessionView: everything that a host shows of a session, folded from its events and from nothing else (C33).

Pure: no clock, no thread, no I/O. Feed it events in any order and as often as you like: each ``seq`` counts once, and
what is told of one turn does not depend on what came first of another. Events without a ``seq`` are not durable and
are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, assert_never

import msgspec

from lastword.actors.core import events
from lastword.actors.core.events import Event
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Completion
from lastword.actors.core.snapshot import Dialog, SessionState

ToolStatus = Literal["running", "ok", "error", "no_result"]
RowKind = Literal["prompt", "assistant", "tool", "final", "notice"]


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a tool: one row, whatever was told of it first."""

    call_id: str
    turn_id: TurnId | None
    name: str = ""
    arguments: str = ""
    status: ToolStatus = "running"
    result: str = ""
    duration_s: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the conversation as a host formats it. ``seq``: of the event that it comes from."""

    kind: RowKind
    text: str
    seq: int
    turn_id: TurnId | None = None
    message_id: MessageId | None = None
    tool: ToolRow | None = None


class _Seen(msgspec.Struct):
    """What is folded of one message: who it belongs to, and whether that is over."""

    turn_id: TurnId | None = None
    bound: bool = False
    undelivered: bool = False


class SessionView:
    """The fold. Not thread-safe: owned by whoever feeds it."""

    def __init__(self, seen: Iterable[Event] = ()) -> None:
        self._events: dict[int, Event] = {}
        self._tools: dict[tuple[TurnId | None, str], ToolRow] = {}
        self._messages: dict[MessageId, _Seen] = {}
        self._begun: dict[TurnId, int] = {}
        self._completions: dict[TurnId, tuple[int, Completion]] = {}
        self._dialogs: dict[str, tuple[int, Dialog]] = {}
        self._dialogs_closed: dict[str, int] = {}
        self._started = self._gone = self._closed = 0
        self._seq = 0
        self.feed_all(seen)

    def feed(self, event: Event) -> bool:
        """Take one event; False where its ``seq`` was taken before."""
        if event.seq < 1 or event.seq in self._events:
            return False
        self._events[event.seq] = event
        while self._seq + 1 in self._events:
            self._seq += 1
        self._fold(event)
        return True

    def feed_all(self, seen: Iterable[Event]) -> None:
        """Take several."""
        for event in seen:
            self.feed(event)

    # --- what a host shows ------------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Up to where everything was seen: ``session.events(after=view.seq)`` brings the rest."""
        return self._seq

    @property
    def open_turns(self) -> tuple[TurnId, ...]:
        """Turns that began (or own an accepted message) and have no completion yet, oldest first."""
        begun = sorted(self._begun.items(), key=lambda item: item[1])
        return tuple(turn_id for turn_id, _ in begun if turn_id not in self._completions)

    @property
    def waiting(self) -> tuple[MessageId, ...]:
        """Accepted messages that no turn's record shows yet, in the order told."""
        return tuple(
            message_id
            for message_id, seen in self._messages.items()
            if not seen.bound and not seen.undelivered and seen.turn_id not in self._completions
        )

    @property
    def turn_id(self) -> TurnId | None:
        """The turn that runs or is being delivered."""
        return next(iter(self.open_turns), None)

    @property
    def busy(self) -> bool:
        """Whether a spinner is due: a turn is open, or a message waits."""
        return bool(self.open_turns or self.waiting)

    @property
    def dialog(self) -> Dialog | None:
        """The dialog that waits for a person."""
        pending = [
            (seq, dialog) for key, (seq, dialog) in self._dialogs.items() if self._dialogs_closed.get(key, 0) < seq
        ]
        return max(pending, key=lambda item: item[0])[1] if pending else None

    @property
    def last_completion(self) -> Completion | None:
        """Of the turn that was settled last."""
        if not self._completions:
            return None
        return max(self._completions.values(), key=lambda item: item[0])[1]

    @property
    def state(self) -> SessionState:
        """In the words of :class:`lastword.Snapshot`. ``starting`` only before anything was told of the CLI."""
        if self._closed:
            return "closed"
        if self.dialog is not None:
            return "awaiting_user"
        if self._gone > self._started:
            return "gone"
        if self.busy:
            return "busy"
        return "idle" if self._started else "starting"

    @property
    def completions(self) -> Mapping[TurnId, Completion]:
        """By turn; one each."""
        return {turn_id: completion for turn_id, (_, completion) in self._completions.items()}

    @property
    def tools(self) -> tuple[ToolRow, ...]:
        """Every tool execution once, in the order in which they were told first."""
        return tuple(self._tools.values())

    def conversation(self) -> list[Row]:
        """What was said and done, in order of the events; the final answer of a turn once, as ``final``."""
        rows: list[Row] = []
        shown: set[tuple[TurnId | None, str]] = set()
        for seq in sorted(self._events):
            row = self._row(self._events[seq], shown)
            if row is not None:
                rows.append(row)
        return [row for at, row in enumerate(rows) if not self._said_again(row, rows[at + 1 :])]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _fold(self, event: Event) -> None:
        body, turn_id, message_id = event.body, event.turn_id, event.message_id
        match body:
            case events.MessageAccepted():
                seen = self._message(message_id)
                seen.turn_id = seen.turn_id or turn_id
                self._begin(turn_id, event.seq)
            case events.MessageSubmitted() | events.MessageQueued():
                self._message(message_id)
            case events.MessageJoined() | events.MessageMoved():
                seen = self._message(message_id)
                seen.turn_id, seen.bound = turn_id, True
            case events.TurnStarted():
                self._begin(turn_id, event.seq)
                if message_id is not None:
                    seen = self._message(message_id)
                    seen.turn_id, seen.bound = turn_id, True
            case events.MessageUndelivered():
                self._message(message_id).undelivered = True
            case events.CompletionReached():
                self._completions.setdefault(body.completion.turn_id, (event.seq, body.completion))
                for message in (body.completion.message_id, *body.completion.joined):
                    if message is not None:
                        self._message(message).bound = True
            case events.ToolStarted():
                row = self._tool(turn_id, body.call_id)
                self._tools[turn_id, body.call_id] = msgspec.structs.replace(
                    row, name=body.name, arguments=body.arguments
                )
            case events.ToolFinished():
                row = self._tool(turn_id, body.call_id)
                self._tools[turn_id, body.call_id] = msgspec.structs.replace(
                    row,
                    name=row.name or body.name,
                    status=body.status,
                    result=body.result,
                    duration_s=body.duration_s,
                )
            case events.DialogOpened():
                dialog = Dialog(dialog_id=body.dialog_id, kind=body.kind, question=body.question, options=body.options)
                if self._dialogs.get(body.dialog_id, (0,))[0] < event.seq:
                    self._dialogs[body.dialog_id] = (event.seq, dialog)
            case events.DialogClosed():
                self._dialogs_closed[body.dialog_id] = max(self._dialogs_closed.get(body.dialog_id, 0), event.seq)
            case events.ProviderStarted():
                self._started = max(self._started, event.seq)
            case events.SessionGone():
                self._gone = max(self._gone, event.seq)
            case events.SessionClosed():
                self._closed = event.seq
            case (
                events.SessionOpened()
                | events.ProviderRetrying()
                | events.AssistantMessage()
                | events.AssistantDelta()
                | events.UsageReported()
                | events.StallDiagnosed()
                | events.InvariantViolated()
                | events.SessionRebound()
                | events.SessionSwitched()
            ):
                pass
            case _:
                assert_never(body)

    def _begin(self, turn_id: TurnId | None, seq: int) -> None:
        if turn_id is not None:
            self._begun[turn_id] = min(self._begun.get(turn_id, seq), seq)

    def _message(self, message_id: MessageId | None) -> _Seen:
        return self._messages.setdefault(message_id or MessageId(""), _Seen())

    def _tool(self, turn_id: TurnId | None, call_id: str) -> ToolRow:
        return self._tools.setdefault((turn_id, call_id), ToolRow(call_id=call_id, turn_id=turn_id))

    def _row(self, event: Event, shown: set[tuple[TurnId | None, str]]) -> Row | None:
        body = event.body

        def row(kind: RowKind, text: str, tool: ToolRow | None = None) -> Row:
            return Row(
                kind=kind, text=text, seq=event.seq, turn_id=event.turn_id, message_id=event.message_id, tool=tool
            )

        match body:
            case events.TurnStarted():
                return row("prompt", body.text or "")
            case events.AssistantMessage():
                return row("assistant", body.text)
            case events.ToolStarted() | events.ToolFinished():
                key = (event.turn_id, body.call_id)
                if key in shown:
                    return None
                shown.add(key)
                tool = self._tools[key]
                return row("tool", tool.name, tool)
            case events.CompletionReached():
                done = body.completion
                if done.status == "completed":
                    return row("final", done.answer or "")
                return row("notice", f"{done.status}: {done.error.kind}" if done.error is not None else done.status)
            case events.MessageUndelivered():
                return row("notice", f"undelivered: {body.reason}")
            case events.DialogOpened():
                return row("notice", body.question)
            case _:
                return None

    @staticmethod
    def _said_again(row: Row, later: list[Row]) -> bool:
        """The last assistant message of a turn is its final answer: shown as that, once."""
        if row.kind != "assistant":
            return False
        for other in later:
            if other.turn_id == row.turn_id and other.kind in ("assistant", "tool", "final"):
                return other.kind == "final" and other.text == row.text
        return False
