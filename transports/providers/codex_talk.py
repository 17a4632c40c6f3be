"""How Codex is spoken to over its app-server's pipes: JSON-RPC, one message a line. Pure.

``initialize`` and ``thread/start`` (or ``thread/resume``) are the handshake; the reply names the thread. A text is a
``turn/start`` where nothing runs and a ``turn/steer`` of the running turn else, with the message's id: one at a time,
since each waits for the other's reply to know which it is. A steer that comes too late is refused and goes out again
as a start; one that was accepted and stands in no item when its turn ends was dropped by an interrupt, and goes out
again too: in both cases the server itself says that it was not taken. A turn that cannot be steered (a compaction) is
waited for.

An interrupt is refused before ``turn/started``, and the turn then runs on: it waits for that. A request of the server
is a dialog (``codex_dialogs``), or is answered with an error, so that nobody waits for nothing.

Source: codex-cli 0.171.0, docs/providers/codex.md.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec

from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.talk import GiveUp, Named, Remind, TalkEffect, Write
from lastword.actors.core.typing_effects import (
    AnswerResult,
    BecameReady,
    Interrupted,
    Job,
    NotDelivered,
    NothingToInterrupt,
    Submitted,
    WithdrawnReport,
)
from lastword.transports.providers.codex_dialogs import CodexQuestion, Result, Wanted, questions_of
from lastword.transports.providers.codex_stream_oracles import START, STEER
from lastword.transports.providers.decoding import Decoder
from lastword.transports.providers.line_oracle import UNREADABLE
from lastword.transports.providers.open_questions import OpenQuestions, reply

HANDSHAKE_S = 60.0
"""How long a CLI may take until it answers the handshake: its MCP servers come up meanwhile."""
AGAIN_S = 1.0
"""Where a turn takes no text and its end is not heard: when the text is tried again."""
KNOWN_MAX = 4096
"""Messages, and turns that are over, that are remembered."""
OPEN_FILES_MAX = 64
"""File changes that are under way, with their paths."""
INITIALIZE, THREAD, INTERRUPT = "initialize", "thread", "interrupt"
NOT_READ = "the CLI does not read what is sent to it"
NO_METHOD = -32601
NOT_STEERABLE = "notsteerable"
"""In an error, spelled with or without underscores: the running turn takes no text, nor does another one start."""
TOO_LATE = ("no active turn", "expected active turn")
UNHEARD = (
    "item/agentMessage/delta",
    "item/plan/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/textDelta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "turn/diff/updated",
)
"""Pieces of what an item's end tells whole: the server need not say them."""


class _Named(msgspec.Struct, frozen=True):
    id: str = ""


class _Item(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    id: str = ""
    client_id: str | None = None
    changes: list[Any] | None = None


class _Params(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str | None = ""
    request_id: Any = None
    turn: _Named | None = None
    item: _Item | None = None


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    thread: _Named | None = None
    turn: _Named | None = None
    turn_id: str = ""


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    data: Any = None


class _Line(msgspec.Struct, frozen=True):
    method: str = ""
    id: Any = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: _Error | None = None


_LINE = Decoder(_Line)
_PARAMS = Decoder(_Params)
_WANTED = Decoder(Wanted)
_RESULT = Decoder(_Result)

_How: TypeAlias = Literal["start", "steer"]


class CodexTalk:
    """One process's conversation."""

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request
        self._numbers = count(1)
        self._thread = ""
        """Named once the handshake is done."""
        self._known: dict[MessageId, None] = {}
        self._held: deque[Job] = deque()
        self._flying: tuple[Job, _How] | None = None
        """Written, and not answered yet."""
        self._accepted: dict[MessageId, tuple[Job, str, _How]] = {}
        """By that native turn, and in no item of it yet."""
        self._unwanted: set[MessageId] = set()
        """Written, and taken back or interrupted since: not written again."""
        self._shown: set[MessageId] = set()
        """Of what flies: its item was heard before its answer."""
        self._active = ""
        """The native turn that runs, or is about to, as far as was heard."""
        self._begun = False
        """It has started: only then can it be interrupted."""
        self._waits = False
        """It takes no text: what is held waits for its end."""
        self._natives: dict[TurnId, str] = {}
        self._over: dict[str, None] = {}
        self._interrupting: TurnId | None = None
        """To be interrupted once it has started."""
        self._interrupts: dict[str, TurnId] = {}
        self._files: dict[str, tuple[str, ...]] = {}
        self._questions = OpenQuestions[CodexQuestion]()
        self._answers: dict[str, Result] = {}
        """What was answered so far to a request of several questions."""

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def opened(self) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        hello = {
            "clientInfo": {"name": "lastword", "version": "1"},
            "capabilities": {"experimentalApi": True, "optOutNotificationMethods": UNHEARD},
        }
        return [self._ask(INITIALIZE, "initialize", hello), Remind(name="handshake", delay_s=HANDSHAKE_S)]

    def deliver(self, job: Job) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if job.message_id in self._known:
            return []
        _keep(self._known, job.message_id, None)
        self._held.append(job)
        return self._send()

    def _send(self) -> list[TalkEffect]:
        """Write the next text, where one may be written."""
        if not self._thread or self._flying is not None or self._waits or not self._held:
            return []
        job = self._held.popleft()
        params: dict[str, Any] = {
            "threadId": self._thread,
            "input": [{"type": "text", "text": job.typed.paste.decode()}],
            "clientUserMessageId": job.message_id,
        }
        how: _How = START
        if self._active:
            how, params["expectedTurnId"] = STEER, self._active
        self._flying = (job, how)
        self._shown.clear()
        lost = NotDelivered(message_id=job.message_id, kind="not_delivered", reason=NOT_READ)
        write = self._ask(f"{how}:{job.message_id}", f"turn/{how}", params)
        after = (Submitted(message_id=job.message_id, rewritten=job.typed.notes),)
        return [msgspec.structs.replace(write, after=after, failed=(lost, GiveUp(reason=NOT_READ)))]

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`; what Codex took it keeps."""
        for job in self._held:
            if job.message_id == message_id:
                self._held.remove(job)
                return [WithdrawnReport(message_id=message_id)]
        if message_id in self._accepted or (self._flying is not None and self._flying[0].message_id == message_id):
            self._unwanted.add(message_id)
        return []

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        held = next((job for job in self._held if job.turn_id == turn_id), None)
        if held is not None:  # it was refused, and waits
            return [Interrupted(turn_id=turn_id), *self.withdraw(held.message_id)]
        if self._flying is not None and self._flying[0].turn_id == turn_id:
            self._unwanted.add(self._flying[0].message_id)
            self._interrupting = turn_id
            return []
        native = self._natives.get(turn_id, "")
        if native in self._over or (not native and self._active in self._natives.values()):
            return [Interrupted(turn_id=turn_id)]  # its end is on record; another one runs
        self._unwanted.update(name for name, (job, _, _) in self._accepted.items() if job.turn_id == turn_id)
        if not self._active:
            return [NothingToInterrupt(turn_id=turn_id)]
        if not self._begun:
            self._interrupting = turn_id
            return []
        name = f"{INTERRUPT}:{next(self._numbers)}"
        self._interrupts[name] = turn_id
        params = {"threadId": self._thread, "turnId": native or self._active}
        return [Interrupted(turn_id=turn_id), self._ask(name, "turn/interrupt", params)]

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        question = self._questions.take(dialog_id, option)
        if question is None:
            return [AnswerResult(token=token, applied=False)]
        choice = question.choices[option - 1]
        if question.part:
            answers = {**self._answers.pop(str(question.request_id), {}), **choice}
            if choice and self._questions.holds(question.request_id):
                self._answers[str(question.request_id)] = answers
                return [AnswerResult(token=token, applied=True), *self._questions.answered(question, token)]
            choice = {"answers": answers if choice else {}}
            self._questions.drop(question.request_id)  # what else it asks: none of that was told
        write = reply(_encoded({"id": question.request_id, "result": choice}), token)
        return [write, *self._questions.answered(question, token)]

    def proved(self, message_id: MessageId) -> list[TalkEffect]:  # noqa: ARG002
        """It is begun, or waits for the running turn; an interrupt may give it back yet."""
        return []

    def reminded(self, name: str) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if name == "handshake" and not self._thread:
            return [GiveUp(reason=f"no answer to the handshake within {HANDSHAKE_S:g} s")]
        if name == "again":
            self._waits = False
            return self._send()
        return []

    def gone(self) -> list[TalkEffect]:
        """Nobody waits for an answer here: each was told with its write."""
        return []

    # --- what is heard ----------------------------------------------------------------------------------------------

    def heard(self, line: bytes) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        try:
            said = _LINE.decode(line)
            if not said.method:
                return self._answered(said)
            if said.id is not None:
                return self._requested(said)
            if said.method in UNHEARD:
                return []
            return self._notified(said.method, _PARAMS.decode(said.params))
        except UNREADABLE:
            return []  # the oracle counts it

    # --- replies ------------------------------------------------------------------------------------------------------

    def _answered(self, said: _Line) -> list[TalkEffect]:
        if not isinstance(said.id, str):
            return []
        what, _, name = said.id.partition(":")
        if what in (INITIALIZE, THREAD) and said.error is not None:
            return [GiveUp(reason=f"the CLI refused the handshake: {said.error.message[:200]}")]
        match what:
            case "initialize":
                return [Write(data=_encoded({"method": "initialized"})), self._open_thread()]
            case "thread":
                return self._named(_RESULT.decode(said.result))
            case "start" | "steer" if self._flying is not None and self._flying[0].message_id == name:
                if said.error is not None:
                    return self._refused(said.error)
                return self._taken(_RESULT.decode(said.result))
            case "interrupt" if said.id in self._interrupts:
                turn_id = self._interrupts.pop(said.id)
                return [NothingToInterrupt(turn_id=turn_id)] if said.error is not None else []
            case _:
                return []

    def _open_thread(self) -> Write:
        request = self._request
        params: dict[str, Any] = {"cwd": request.cwd}
        if request.permission_mode:
            params["approvalPolicy"] = request.permission_mode
        if request.model:
            params["model"] = request.model
        if request.resume:
            known = {"threadId": request.native_session, "excludeTurns": True}
            return self._ask(THREAD, "thread/resume", {**known, **params})
        return self._ask(THREAD, "thread/start", params)

    def _named(self, result: _Result) -> list[TalkEffect]:
        if result.thread is None or not result.thread.id:
            return [GiveUp(reason="the CLI named no thread")]
        self._thread = result.thread.id
        return [Named(native_session=self._thread), BecameReady(), *self._send()]

    def _taken(self, result: _Result) -> list[TalkEffect]:
        """What flew has landed: it begins a turn, or waits for the one that runs."""
        assert self._flying is not None
        job, how = self._flying
        self._flying = None
        native = result.turn.id if result.turn is not None else result.turn_id
        if how == START and native not in self._over:
            self._unwanted.discard(job.message_id)  # begun: it can be interrupted
            if native != self._active:
                self._active, self._begun = native, False
        elif job.message_id not in self._shown:
            self._accepted[job.message_id] = (job, native, how)
        if job.turn_id is not None:
            _keep(self._natives, job.turn_id, native)
        return [*self._dropped(native), *self._interrupt_now(), *self._send()]

    def _refused(self, error: _Error) -> list[TalkEffect]:
        assert self._flying is not None
        job, how = self._flying
        self._flying = None
        told = f"{error.message} {msgspec.json.encode(error.data).decode()}".replace("_", "").lower()
        if NOT_STEERABLE in told:
            self._waits = True
        elif how == STEER and any(words in told for words in TOO_LATE):
            self._active, self._begun = "", False
        else:
            reason = f"the CLI refused it: {error.message[:500]}"
            refused = NotDelivered(message_id=job.message_id, kind="not_delivered", reason=reason)
            return [refused, *self._send()]
        effects = self._hold_again([job])
        return [*effects, Remind(name="again", delay_s=AGAIN_S)] if self._waits else [*effects, *self._send()]

    def _hold_again(self, jobs: list[Job]) -> list[TalkEffect]:
        """They were not taken: they go out before all others, where they are wanted yet."""
        effects: list[TalkEffect] = []
        for job in jobs:
            if job.message_id not in self._unwanted:
                continue
            if self._interrupting is not None and self._interrupting == job.turn_id:
                effects.append(Interrupted(turn_id=job.turn_id))
                self._interrupting = None
            effects.append(WithdrawnReport(message_id=job.message_id))
        self._held.extendleft(job for job in reversed(jobs) if job.message_id not in self._unwanted)
        self._unwanted.difference_update(job.message_id for job in jobs)
        return effects

    # --- notifications ------------------------------------------------------------------------------------------------

    def _notified(self, method: str, params: _Params) -> list[TalkEffect]:
        match method:
            case "serverRequest/resolved":
                return self._resolved(params.request_id)
            case "item/started" if params.item is not None and params.item.type == "fileChange":
                self._files[params.item.id] = _paths(params.item.changes)
                forget_oldest(self._files, OPEN_FILES_MAX)
            case _ if params.thread_id != self._thread:
                pass  # of a sub-agent, or of another thread
            case "turn/started" if params.turn is not None and params.turn.id and params.turn.id not in self._over:
                self._active, self._begun = params.turn.id, True
                return self._interrupt_now()
            case "turn/completed" if params.turn is not None and params.turn.id:
                return self._completed(params.turn.id)
            case "item/completed" if params.item is not None and params.item.type == "userMessage":
                name = MessageId(params.item.client_id or "")
                self._accepted.pop(name, None)
                self._unwanted.discard(name)
                if self._flying is not None and self._flying[0].message_id == name:
                    self._shown.add(name)
            case _:
                pass
        return []

    def _completed(self, native: str) -> list[TalkEffect]:
        _keep(self._over, native, None)
        turn_id = self._interrupting
        flies = self._flying is not None and self._flying[0].turn_id == turn_id
        if turn_id is not None and not flies and self._natives.get(turn_id, native) == native:
            self._interrupting = None
        if self._active in ("", native):
            self._active, self._begun, self._waits = "", False, False
        return [*self._dropped(native), *self._send()]

    def _dropped(self, native: str) -> list[TalkEffect]:
        """That turn, if it is over: what it accepted and never showed was not taken."""
        if native not in self._over:
            return []
        effects: list[TalkEffect] = []
        again: list[Job] = []
        for job, turn, how in list(self._accepted.values()):
            if turn != native:
                continue
            del self._accepted[job.message_id]
            if how == STEER:
                again.append(job)
            else:  # it began that turn, or was to: either way it is not for another one
                reason = "the turn that it came into ended without it"
                effects.append(NotDelivered(message_id=job.message_id, kind="not_delivered", reason=reason))
        return [*effects, *self._hold_again(again)]

    def _interrupt_now(self) -> list[TalkEffect]:
        """What was to be interrupted, where that has started now."""
        turn_id = self._interrupting
        if turn_id is None or (self._flying is not None and self._flying[0].turn_id == turn_id):
            return []
        self._interrupting = None
        return self.interrupt(turn_id)

    # --- dialogs ------------------------------------------------------------------------------------------------------

    def _requested(self, said: _Line) -> list[TalkEffect]:
        wanted = _WANTED.decode(said.params)
        scope = self._request.stream.rpartition("/")[2]
        questions = questions_of(scope, said.id, said.method, wanted, self._files.get(wanted.item_id, ()))
        if not questions:
            error = {"code": NO_METHOD, "message": f"{said.method} is not supported here"}
            return [Write(data=_encoded({"id": said.id, "error": error}))]
        if self._questions.holds(said.id):
            return []
        return self._questions.ask(*questions)

    def _resolved(self, request_id: Any) -> list[TalkEffect]:
        """It does not wait for that answer any more: it has it, or the turn was interrupted."""
        self._answers.pop(str(request_id), None)
        return self._questions.drop(request_id)

    def _ask(self, name: str, method: str, params: dict[str, Any]) -> Write:
        return Write(data=_encoded({"id": name, "method": method, "params": params}))


def _paths(changes: list[Any] | None) -> tuple[str, ...]:
    found = [each.get("path") for each in changes or () if isinstance(each, dict)]
    return tuple(path for path in found if isinstance(path, str))


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    forget_oldest(known, KNOWN_MAX)


def _encoded(line: dict[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


__all__ = ["CodexTalk"]
