"""How Claude Code is spoken to over its pipes: JSON lines, ``user`` messages and control requests both ways. Pure.

``initialize`` is the handshake: its answer says that the CLI reads. ``can_use_tool`` asks for a permission and is a
dialog here; ``interrupt`` stops what runs, and its answer names the messages that are still queued: one of the turn
that is being stopped is then taken back by ``cancel_async_message``. The CLI echoes our own answers: those are not
heard. What it asks otherwise is answered with an error, so that it goes on.

Source: Claude Code 2.1.332, docs/providers/claude_code.md.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import deque
from itertools import count
from typing import Any, Literal

import msgspec

from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.talk import GiveUp, Remind, TalkEffect, Write
from lastword.actors.core.typing_effects import (
    AnswerResult,
    BecameReady,
    Interrupted,
    Job,
    NotDelivered,
    Submitted,
    WithdrawnReport,
)
from lastword.transports.providers import decoding
from lastword.transports.providers.open_questions import OpenQuestions, Question, reply

HANDSHAKE_S = 60.0
"""How long a CLI may take until it answers the handshake."""
SHOWN_CHARS_MAX = 500
"""Of what a tool is to do, in the question of a permission dialog."""
KEPT_MAX = 4096
"""Messages that are remembered as sent; an older one can not be taken back any more."""
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError)
DENIED = "The user does not want this tool to run. Ask what to do instead, or go on without it."


def message_uuid(message_id: MessageId) -> str:
    """The name under which the CLI knows that message: the same one in every life of the host."""
    return str(uuid.UUID(bytes=hashlib.sha256(message_id.encode()).digest()[:16], version=4))


class _Request(msgspec.Struct, frozen=True):
    subtype: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    input: dict[str, Any] = {}
    permission_suggestions: list[dict[str, Any]] | None = None


class _Response(msgspec.Struct, frozen=True):
    subtype: str = ""
    request_id: str = ""
    response: Any = None
    error: Any = None


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    request_id: str = ""
    request: _Request | None = None
    response: _Response | None = None


_LINE = decoding.Decoder(_Line)


class _Question(Question, frozen=True, kw_only=True):
    """Of a request of the CLI's, which may hold several questions."""

    request: _Request


class ClaudeTalk:
    """One process's conversation.

    Args:
        native_session: goes into every message.
    """

    def __init__(self, native_session: str) -> None:
        self._native_session = native_session
        self._numbers = count(1)
        self._ready = False
        self._held: deque[Job] = deque()
        self._sent: dict[MessageId, str] = {}
        """Messages that were written, with their UUID."""
        self._of_turn: dict[TurnId, MessageId] = {}
        self._asked: dict[str, tuple[Literal["initialize", "interrupt", "cancel"], TurnId | None]] = {}
        self._questions = OpenQuestions[_Question]()
        self._answers: dict[str, dict[str, str]] = {}
        """What was answered so far to a request of several questions."""

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def opened(self) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        return [self._control("initialize", {"subtype": "initialize"}), Remind(name="handshake", delay_s=HANDSHAKE_S)]

    def deliver(self, job: Job) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if job.message_id in self._sent or any(held.message_id == job.message_id for held in self._held):
            return []
        self._held.append(job)
        return self._send_held()

    def _send_held(self) -> list[TalkEffect]:
        effects: list[TalkEffect] = []
        while self._ready and self._held:
            job = self._held.popleft()
            name = message_uuid(job.message_id)
            self._sent[job.message_id] = name
            forget_oldest(self._sent, KEPT_MAX)
            if job.turn_id is not None:
                self._of_turn[job.turn_id] = job.message_id
                forget_oldest(self._of_turn, KEPT_MAX)
            line = {
                "type": "user",
                "message": {"role": "user", "content": job.typed.paste.decode()},
                "session_id": self._native_session,
                "uuid": name,
            }
            refused = "the CLI does not read what is sent to it"
            effects.append(
                Write(
                    data=_encoded(line),
                    after=(Submitted(message_id=job.message_id, rewritten=job.typed.notes),),
                    failed=(NotDelivered(message_id=job.message_id, kind="not_delivered", reason=refused),),
                )
            )
        return effects

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        for job in self._held:
            if job.message_id == message_id:
                self._held.remove(job)
                return [WithdrawnReport(message_id=message_id)]
        return self._take_back(message_id)

    def _take_back(self, message_id: MessageId) -> list[TalkEffect]:
        """Out of the CLI's own queue, if it is still there: its record tells."""
        name = self._sent.get(message_id)
        if name is None:
            return []
        return [self._control("cancel", {"subtype": "cancel_async_message", "message_uuid": name})]

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        return [Interrupted(turn_id=turn_id), self._control("interrupt", {"subtype": "interrupt"}, turn_id)]

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        question = self._questions.take(dialog_id, option)
        if question is None:
            return [AnswerResult(token=token, applied=False)]
        choice = question.choices[option - 1]
        if "answered" in choice:
            answers = self._answers.setdefault(question.request_id, {})
            answers.update(choice["answered"])
            if self._questions.holds(question.request_id):
                return [AnswerResult(token=token, applied=True), *self._questions.answered(question, token)]
            choice = {"behavior": "allow", "updatedInput": {**question.request.input, "answers": answers}}
        self._questions.drop(question.request_id)  # what else it asks: none of that was told
        self._answers.pop(question.request_id, None)
        success = {"subtype": "success", "request_id": question.request_id, "response": choice}
        write = reply(_encoded({"type": "control_response", "response": success}), token)
        return [write, *self._questions.answered(question, token)]

    def proved(self, message_id: MessageId) -> list[TalkEffect]:  # noqa: ARG002
        """It is begun, or waits in the CLI's own queue: it may be taken back yet."""
        return []

    def reminded(self, name: str) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if name == "handshake" and not self._ready:
            return [GiveUp(reason=f"no answer to the handshake within {HANDSHAKE_S:g} s")]
        return []

    def gone(self) -> list[TalkEffect]:
        """Nobody waits for an answer here: each was told with its write."""
        return []

    # --- what is heard ----------------------------------------------------------------------------------------------

    def heard(self, line: bytes) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if b'"control_' not in line:
            return []
        try:
            said = _LINE.decode(line)
        except UNREADABLE:
            return []  # the oracle counts it
        match said.type:
            case "control_response" if said.response is not None:
                return self._answered(said.response)
            case "control_request" if said.request is not None and said.request_id:
                return self._requested(said.request_id, said.request)
            case "control_cancel_request":
                return self._cancelled(said.request_id)
            case _:
                return []

    def _answered(self, response: _Response) -> list[TalkEffect]:
        what, turn_id = self._asked.pop(response.request_id, ("", None))
        match what:
            case "initialize":
                if response.subtype != "success":
                    return [GiveUp(reason=f"the CLI refused the handshake: {str(response.error)[:200]}")]
                self._ready = True
                return [BecameReady(), *self._send_held()]
            case "interrupt" if turn_id in self._of_turn and isinstance(response.response, dict):
                mine = self._of_turn[turn_id]
                if self._sent.get(mine) in (response.response.get("still_queued") or ()):
                    return self._take_back(mine)
            case _:
                pass  # our own answer, echoed; or what the record tells anyway
        return []

    def _requested(self, request_id: str, request: _Request) -> list[TalkEffect]:
        if request.subtype != "can_use_tool":
            error = {"subtype": "error", "request_id": request_id, "error": f"{request.subtype} is not supported here"}
            return [Write(data=_encoded({"type": "control_response", "response": error}))]
        if self._questions.holds(request_id):
            return []
        return self._questions.ask(*_questions(request_id, request))

    def _cancelled(self, request_id: str) -> list[TalkEffect]:
        """It does not want that answer any more."""
        self._answers.pop(request_id, None)
        return self._questions.drop(request_id)

    def _control(
        self,
        what: Literal["initialize", "interrupt", "cancel"],
        request: dict[str, Any],
        turn_id: TurnId | None = None,
    ) -> Write:
        request_id = f"lastword-{next(self._numbers)}"
        self._asked[request_id] = (what, turn_id)
        return Write(data=_encoded({"type": "control_request", "request_id": request_id, "request": request}))


# --- dialogs --------------------------------------------------------------------------------------------------------


def _questions(request_id: str, request: _Request) -> list[_Question]:
    asked = request.input.get("questions") if request.tool_name == "AskUserQuestion" else None
    if isinstance(asked, list) and asked:
        found = [_asked(request_id, request, number, each) for number, each in enumerate(asked)]
        if all(each is not None for each in found):
            return [each for each in found if each is not None]
    return [_permission(request_id, request)]


def _asked(request_id: str, request: _Request, number: int, asked: object) -> _Question | None:
    """A question of the model's own, with its options; the last one declines."""
    if not isinstance(asked, dict) or not isinstance(asked.get("question"), str):
        return None
    question: str = asked["question"]
    labels = [each.get("label") for each in asked.get("options") or () if isinstance(each, dict)]
    options = [label for label in labels if isinstance(label, str)]
    decline = {"behavior": "deny", "message": "The user declined to answer."}
    return _Question(
        request_id=request_id,
        request=request,
        dialog=DialogOpen(
            key=f"{request_id}#{number}", question=question, options=(*options, "Decline to answer"), kind="question"
        ),
        choices=(*({"answered": {question: label}} for label in options), decline),
    )


def _permission(request_id: str, request: _Request) -> _Question:
    allow: dict[str, Any] = {"behavior": "allow", "updatedInput": request.input}
    options, choices = ["Yes"], [allow]
    for suggestion in request.permission_suggestions or ():
        options.append(f"Yes, and {_described(suggestion)}")
        choices.append({**allow, "updatedPermissions": [suggestion]})
    wanted = msgspec.json.encode(request.input).decode()
    if isinstance(command := request.input.get("command"), str):
        wanted = command
    if len(wanted) > SHOWN_CHARS_MAX:
        wanted = wanted[: SHOWN_CHARS_MAX - 1] + "…"
    return _Question(
        request_id=request_id,
        request=request,
        dialog=DialogOpen(
            key=request_id,
            question=f"May {request.tool_name} run? {wanted}",
            options=(*options, "No"),
            kind="permission",
        ),
        choices=(*choices, {"behavior": "deny", "message": DENIED}),
    )


def _described(suggestion: dict[str, Any]) -> str:
    """What accepting it changes, in words."""
    where = f"({suggestion.get('destination')})"
    match suggestion.get("type"):
        case "addRules":
            rules = [each for each in suggestion.get("rules") or () if isinstance(each, dict)]
            shown = ", ".join(f"{each.get('toolName')}({each.get('ruleContent') or ''})" for each in rules)
            return f"do not ask again for {shown} {where}"
        case "setMode":
            return f"go on in permission mode {suggestion.get('mode')} {where}"
        case "addDirectories":
            folders = [str(each) for each in suggestion.get("directories") or ()]
            return f"allow {', '.join(folders)} {where}"
        case other:
            return f"{other} {where}"


def _encoded(line: dict[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


__all__ = ["ClaudeTalk", "message_uuid"]
