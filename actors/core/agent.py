"""The agent loop: one conversation with a model's API, turn by turn, request by request, tool by tool.

Pure and single-threaded: owned by one ApiActor, which carries out its effects in order.

House rules
-----------
- Everything goes on record first and is acted on once it stands there (:meth:`Agent.recorded`): a request is made once
  its prompt is on record, a tool runs when its call is, the model hears a result when that is. So nothing runs twice:
  what a record does not show was not begun, and what it shows is not begun again.
- One turn at a time. What comes meanwhile is queued here, and told to the model with its next request behind tools;
  what is left when the turn is over starts turns of its own, in order.
- The last word of a turn is one line: a final answer or an :class:`~lastword.actors.core.conversation.Ended`. Once it
  is on its way nothing else of that turn is begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias, assert_never

import msgspec

from lastword.actors.core import typing_effects as reports
from lastword.actors.core.conversation import Answered, Call, Ended, Joined, Line, Prompted, Retried, ToolEnded
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import TurnError
from lastword.actors.core.service import Reply
from lastword.actors.core.tools import ToolResult
from lastword.actors.core.typing_effects import Job, Queued, Report

TOOLS_AT_ONCE = 8
"""Tools of one session that run at the same time; further calls of the same answer wait for one."""


class Record(msgspec.Struct, frozen=True):
    """Have these lines committed, together; ``recorded(number)`` once they are."""

    number: int
    lines: tuple[Line, ...]


class Ask(msgspec.Struct, frozen=True):
    """Ask the model, with all that is on record; its words come back with ``number``."""

    number: int


class HangUp(msgspec.Struct, frozen=True):
    """Nobody waits for the request, nor for the tools that run."""


class RunTool(msgspec.Struct, frozen=True):
    """Run it; its end comes back with the turn's name."""

    turn: str
    call: Call


PAUSES_MAX = 10
"""So often in a row an answer that the service paused is asked to go on; the next pause ends the turn."""


_NOTHING = msgspec.Raw(b"null")
AgentEffect: TypeAlias = Record | Ask | HangUp | RunTool | Report | Queued


class _Turn(msgspec.Struct, kw_only=True):
    """The one that is open.

    Attributes:
        name: in the record: the message that began it.
        turn_id: ours, where it had one at acceptance.
        asking: number of the request under way, 0 for none.
        waiting, running: calls that have not ended; keys: those of all calls.
        said: text of answers that are to be continued. paused: how many of them, in a row.
        over: its last word is on its way.
    """

    name: str
    turn_id: TurnId | None
    asking: int = 0
    waiting: deque[Call] = msgspec.field(default_factory=deque)
    running: dict[str, Call] = msgspec.field(default_factory=dict)
    said: str = ""
    paused: int = 0
    over: bool = False
    keys: set[str] = msgspec.field(default_factory=set)

    def keyed(self, calls: tuple[Call, ...]) -> tuple[Call, ...]:
        """Each with a name of its own in this turn: some services number the calls of each answer anew."""
        named = []
        for call in calls:
            key, number = call.id, 1
            while not key or key in self.keys:
                number += 1
                key = f"{call.id}#{number}"
            self.keys.add(key)
            named.append(msgspec.structs.replace(call, key=key))
        return tuple(named)


class Agent:
    """The loop of one conversation.

    Args:
        lines: what is on record of it.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines: list[Line] = list(lines)
        self._turn: _Turn | None = None
        self._queue: deque[Job] = deque()
        self._begun = {line.message for line in self.lines if isinstance(line, Prompted | Joined)}
        self._recording: dict[int, tuple[Line, ...]] = {}
        self._numbers = 0

    @property
    def recording(self) -> bool:
        """Whether something is on its way to the record."""
        return bool(self._recording)

    @property
    def turn(self) -> str:
        """Name of the open turn, or ""."""
        return self._turn.name if self._turn is not None else ""

    # --- what the session wants -------------------------------------------------------------------------------------

    def deliver(self, job: Job, at: float) -> list[AgentEffect]:
        """A message, after those before it. The same one twice is taken once."""
        known = any(waiting.message_id == job.message_id for waiting in self._queue)
        if known or job.message_id in self._begun:
            return []
        if self._turn is None:
            return self._begin(job, at)
        self._queue.append(job)
        return [reports.Queued(message_id=job.message_id)]

    def withdraw(self, message_id: MessageId) -> list[AgentEffect]:
        """Take it back, if the model was not told it."""
        for job in self._queue:
            if job.message_id == message_id:
                self._queue.remove(job)
                return [reports.WithdrawnReport(message_id=message_id)]
        return []

    def interrupt(self, turn_id: TurnId, native_turn: str, at: float) -> list[AgentEffect]:
        """Stop that turn and no other."""
        turn = self._turn
        ours = turn is not None and (native_turn == turn.name if native_turn else turn_id == turn.turn_id)
        if turn is None or not ours:
            return [reports.NothingToInterrupt(turn_id=turn_id)]
        if turn.over:
            return [reports.Interrupted(turn_id=turn_id)]  # its last word is on its way: that decides
        return [
            reports.Interrupted(turn_id=turn_id),
            *self._end(turn, Ended(turn=turn.name, status="cancelled", at=at)),
        ]

    def stop(self) -> list[AgentEffect]:
        """The session ends this life of it: nothing more is begun. What is on record stays so."""
        self._queue.clear()
        if self._turn is None:
            return []
        self._turn.over = True
        return [HangUp()]

    # --- what became of things ---------------------------------------------------------------------------------------

    def recorded(self, number: int, at: float) -> list[AgentEffect]:
        """Those lines are on record."""
        effects: list[AgentEffect] = []
        for line in self._recording.pop(number):
            self.lines.append(line)
            effects += self._go_on(line, at)
        turn = self._turn
        if turn is not None and not turn.over and isinstance(self.lines[-1], Joined):
            effects += self._ask(turn)
        return effects

    def retrying(self, number: int, message: str, at: float) -> list[AgentEffect]:
        """That request is made again."""
        turn = self._asking(number)
        return [] if turn is None else [self._record(Retried(turn=turn.name, message=message, at=at))]

    def replied(self, number: int, reply: Reply, at: float) -> list[AgentEffect]:
        """That request is answered."""
        turn = self._asking(number)
        if turn is None:
            return []
        turn.asking = 0
        turn.paused = turn.paused + 1 if reply.goes_on else 0
        if reply.error is None and turn.paused > PAUSES_MAX:
            what = f"the answer was paused more than {PAUSES_MAX} times in a row and did not end"
            paused = TurnError(kind="provider_error", message=what, native_kind=reply.stop)
            reply = msgspec.structs.replace(reply, error=paused)
        final = not reply.calls and not reply.goes_on and reply.error is None
        turn.said += reply.text if final or reply.goes_on else ""
        answered = Answered(
            turn=turn.name,
            response=reply.response,
            content=reply.content if reply.error is None else _NOTHING,
            text=reply.text,
            at=at,
            calls=turn.keyed(reply.calls) if reply.error is None else (),
            answer=turn.said if final else None,
            model=reply.model,
            stop=reply.stop,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
        )
        if reply.error is not None:
            turn.over = True
            return [self._record(answered, Ended(turn=turn.name, status="failed", error=reply.error, at=at))]
        turn.over = final
        if not reply.goes_on:
            turn.said = ""
        return [self._record(answered)]

    def failed(self, number: int, error: TurnError, at: float) -> list[AgentEffect]:
        """That request has no answer."""
        turn = self._asking(number)
        if turn is None:
            return []
        turn.asking = 0
        return self._end(turn, Ended(turn=turn.name, status="failed", error=error, at=at))

    def tool_ended(self, turn_name: str, key: str, result: ToolResult, at: float) -> list[AgentEffect]:
        """That tool ended."""
        turn = self._turn
        if turn is None or turn.over or turn.name != turn_name or key not in turn.running:
            return []
        call = turn.running.pop(key)
        ended = ToolEnded(turn=turn_name, call=key, name=call.name, status=result.status, result=result.text, at=at)
        return [self._record(ended), *self._run_tools(turn)]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _asking(self, number: int) -> _Turn | None:
        """The open turn, if that is its request."""
        turn = self._turn
        return turn if turn is not None and not turn.over and turn.asking == number else None

    def _record(self, *lines: Line) -> Record:
        self._numbers += 1
        self._recording[self._numbers] = lines
        return Record(self._numbers, lines)

    def _begin(self, job: Job, at: float) -> list[AgentEffect]:
        self._begun.add(job.message_id)
        self._turn = _Turn(name=job.message_id, turn_id=job.turn_id)
        text = job.typed.rewritten
        return [self._record(Prompted(turn=job.message_id, message=job.message_id, text=text, at=at))]

    def _end(self, turn: _Turn, ended: Ended) -> list[AgentEffect]:
        turn.over = True
        turn.waiting.clear()
        turn.running.clear()
        return [HangUp(), self._record(ended)]

    def _run_tools(self, turn: _Turn) -> list[AgentEffect]:
        effects: list[AgentEffect] = []
        while turn.waiting and len(turn.running) < TOOLS_AT_ONCE:
            call = turn.waiting.popleft()
            turn.running[call.key] = call
            effects.append(RunTool(turn.name, call))
        return effects

    def _ask(self, turn: _Turn) -> list[AgentEffect]:
        self._numbers += 1
        turn.asking = self._numbers
        return [Ask(self._numbers)]

    def _go_on(self, line: Line, at: float) -> list[AgentEffect]:
        turn = self._turn
        if turn is None or turn.name != line.turn:
            return []
        match line:
            case Prompted():
                submitted = reports.Submitted(message_id=MessageId(line.message), rewritten=())
                return [submitted] if turn.over else [submitted, *self._ask(turn)]
            case Answered(answer=None) if turn.over:
                return []
            case Answered(answer=None) if line.calls:
                turn.waiting.extend(line.calls)
                return self._run_tools(turn)
            case Answered(answer=None):
                return self._ask(turn)
            case Answered() | Ended():
                return self._next(at)
            case ToolEnded():
                return self._behind_tools(turn, at)
            case Joined():
                return [reports.Submitted(message_id=MessageId(line.message), rewritten=())]
            case Retried():
                return []
            case _:
                assert_never(line)

    def _behind_tools(self, turn: _Turn, at: float) -> list[AgentEffect]:
        """The model is asked again once every call of its answer has its end on record; what came meanwhile is told
        with that.
        """
        ending = any(isinstance(line, ToolEnded) for lines in self._recording.values() for line in lines)
        if turn.over or turn.running or turn.waiting or ending or turn.asking:
            return []
        if not self._queue:
            return self._ask(turn)
        joined = []
        while self._queue:
            job = self._queue.popleft()
            self._begun.add(job.message_id)
            joined.append(Joined(turn=turn.name, message=job.message_id, text=job.typed.rewritten, at=at))
        return [self._record(*joined)]

    def _next(self, at: float) -> list[AgentEffect]:
        self._turn = None
        return self._begin(self._queue.popleft(), at) if self._queue else []


__all__ = ["PAUSES_MAX", "TOOLS_AT_ONCE", "Agent", "AgentEffect", "Ask", "HangUp", "Record", "RunTool"]
