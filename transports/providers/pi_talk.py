"""How Pi is spoken to in its rpc mode: JSON lines, commands one way, answers and events the other. Pure.

The handshake asks for the state and for the words that Pi takes for commands: a text that begins with one of those
gets a blank in front. A text is a ``prompt`` with the message's id, always with ``steer``: an idle Pi starts a run with
it, a busy one takes it into its run, after the tools that the model called and before it is asked again.

One prompt is on its way at a time: of several that reach an idle Pi at once it answers each with *started* and loses
all but one. An abort does nothing before a prompt was answered, and leaves the queue to be run behind the next prompt:
so it waits for that answer, and ``clear_queue`` goes first. What Pi says it took out of the queue, it did not begin:
that is written again, under the same id, once the abort is done; as is what still stands in the queue of a run that
settled.

Source: Pi 1.6.0, docs/providers/pi.md.
"""

from __future__ import annotations

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
from lastword.transports.providers.line_oracle import UNREADABLE
from lastword.transports.providers.open_questions import OpenQuestions, Question, reply
from lastword.transports.providers.pi_records import Message
from lastword.transports.providers.pi_stream import returned

HANDSHAKE_S = 60.0
"""How long a CLI may take until it answers the handshake: its extensions and MCP servers come up first."""
KNOWN_MAX = 4096
"""Messages that are remembered as taken from the session."""
DIALOGS = frozenset({"select", "confirm", "input", "editor"})
HEARD = (b'"response"', b'"user"', b'"agent_start"', b'"agent_settled"', b'"extension_ui_request"')
CANCEL = "Cancel"
NOT_READ = "the CLI does not read what is sent to it"

_Asked = Literal["state", "commands", "clear", "abort"]


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    """One line of Pi's, as far as it is of interest here."""

    type: str = ""
    id: Any = None
    command: str = ""
    success: bool = False
    data: Any = None
    error: Any = None
    message: Any = None
    method: str = ""
    title: Any = None
    options: Any = None
    prefill: Any = None
    timeout: Any = None


_LINE = decoding.Decoder(_Line)


class PiTalk:
    """One process's conversation."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._asked: dict[str, tuple[_Asked, TurnId | None]] = {}
        self._state_known = False
        self._commands: frozenset[str] | None = None
        self._known: dict[MessageId, None] = {}
        self._held: deque[Job] = deque()
        self._flying: Job | None = None
        """Written, and not answered yet."""
        self._queued: list[Job] = []
        """In Pi's queue, as far as it has told."""
        self._unwanted: set[MessageId] = set()
        self._interrupting: TurnId | None = None
        """To be interrupted once what flies was answered."""
        self._runs = False
        self._turn: TurnId | None = None
        """Whose run it is, where its message came with a turn."""
        self._over: deque[TurnId] = deque(maxlen=KNOWN_MAX)
        """Turns whose run has settled: an interrupt of one would hit the next."""
        self._questions = OpenQuestions[Question]()

    @property
    def _ready(self) -> bool:
        return self._state_known and self._commands is not None

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def opened(self) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        return [
            self._ask("state", "get_state"),
            self._ask("commands", "get_commands"),
            Remind(name="handshake", delay_s=HANDSHAKE_S),
        ]

    def deliver(self, job: Job) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if job.message_id in self._known:
            return []
        self._known[job.message_id] = None
        forget_oldest(self._known, KNOWN_MAX)
        self._held.append(job)
        return self._send()

    def _send(self) -> list[TalkEffect]:
        """Write the next text, where one may be written."""
        if not self._ready or self._flying is not None or not self._held or self._pending("clear", "abort"):
            return []
        self._flying = job = self._held.popleft()
        text, notes = job.typed.paste.decode(), job.typed.notes
        if self._is_command(text):
            text, notes = f" {text}", (*notes, "leading_blank")
        line = {"id": job.message_id, "type": "prompt", "message": text, "streamingBehavior": "steer"}
        return [
            Write(
                data=_encoded(line),
                after=(Submitted(message_id=job.message_id, rewritten=notes),),
                failed=(NotDelivered(message_id=job.message_id, kind="not_delivered", reason=NOT_READ),),
            )
        ]

    def _is_command(self, text: str) -> bool:
        """Whether Pi would run it, or put a template in its place."""
        if not text.startswith("/"):
            return False
        word = text[1:].split(None, 1)[0] if text[1:].strip() else ""
        return word in (self._commands or ())

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        for job in self._held:
            if job.message_id == message_id:
                self._held.remove(job)
                return [WithdrawnReport(message_id=message_id)]
        if self._flying is not None and self._flying.message_id == message_id:
            self._unwanted.add(message_id)
        elif any(job.message_id == message_id for job in self._queued):
            self._unwanted.add(message_id)
            return self._clear()
        return []

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if turn_id in self._over:
            return [Interrupted(turn_id=turn_id)]  # its end is on record
        if self._flying is not None and self._interrupting is None:
            self._interrupting = turn_id  # asked again, it is tried all the same: Pi may be long at preparing the run
            return []
        abort = self._ask("abort", "abort", turn_id)
        return [Interrupted(turn_id=turn_id), *self._clear(), abort, *self._dismiss()]

    def _clear(self) -> list[TalkEffect]:
        """Have the queue emptied; what comes back of ours goes out again, unless it is not wanted any more."""
        return [] if self._pending("clear") else [self._ask("clear", "clear_queue")]

    def _dismiss(self) -> list[TalkEffect]:
        """A run that waits for an answer does not end before it has one."""
        cancelled: dict[str, Any] = {"cancelled": True}
        replies = [Write(data=_replied(question, cancelled)) for question in self._questions]
        return [*replies, *self._questions.drop_all()]

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        question = self._questions.take(dialog_id, option)
        if question is None:
            return [AnswerResult(token=token, applied=False)]
        write = reply(_replied(question, question.choices[option - 1]), token)
        return [write, *self._questions.answered(question, token)]

    def proved(self, message_id: MessageId) -> list[TalkEffect]:  # noqa: ARG002
        """It is begun, or waits in Pi's queue: it may be taken back yet."""
        return []

    def reminded(self, name: str) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if name == "handshake" and not self._ready:
            return [GiveUp(reason=f"no answer to the handshake within {HANDSHAKE_S:g} s")]
        if name.startswith("dialog:"):
            return self._questions.drop(name.removeprefix("dialog:"))  # Pi has answered that one itself
        return []

    def gone(self) -> list[TalkEffect]:
        """Nobody waits for an answer here: each was told with its write."""
        return []

    # --- what is heard ----------------------------------------------------------------------------------------------

    def heard(self, line: bytes) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if b'"message_update"' in line[:40] or not any(word in line for word in HEARD):
            return []
        try:
            said = _LINE.decode(line)
            match said.type:
                case "response":
                    return self._answered(said)
                case "message_end":
                    self._message(msgspec.convert(said.message, Message))
                    return []
                case "agent_start":
                    self._runs = True
                    return []
                case "agent_settled":
                    return self._settled()
                case "extension_ui_request":
                    return self._requested(said)
                case _:
                    return []
        except UNREADABLE:
            return []  # the oracle counts it

    def _settled(self) -> list[TalkEffect]:
        if self._turn is not None:
            self._over.append(self._turn)
        self._turn, self._runs = None, False
        return self._stranded()

    def _answered(self, said: _Line) -> list[TalkEffect]:
        if said.command == "prompt":
            return self._prompt_answered(said)
        what, _ = self._asked.pop(said.id, ("", None)) if isinstance(said.id, str) else ("", None)
        match what:
            case "state" if not said.success:
                return [GiveUp(reason=f"the CLI refused the handshake: {str(said.error)[:200]}")]
            case "state":
                self._state_known = True
                return self._begin()
            case "commands":
                self._commands = _names(said.data)
                return self._begin()
            case "clear":
                return [*self._took_back(returned(said.data)), *self._send()]
            case "abort":
                return self._send()
            case _:
                return []

    def _begin(self) -> list[TalkEffect]:
        return [BecameReady(), *self._send()] if self._ready else []

    def _prompt_answered(self, said: _Line) -> list[TalkEffect]:
        job = self._flying
        if job is None or said.id != job.message_id:
            return []
        self._flying = None
        effects: list[TalkEffect] = []
        disposition = said.data.get("disposition") if said.success and isinstance(said.data, dict) else ""
        if disposition == "started":
            self._runs, self._turn = True, job.turn_id
        elif disposition == "queued":
            self._queued.append(job)
        turn_id, self._interrupting = self._interrupting, None
        if turn_id is not None:
            effects += self.interrupt(turn_id)
        elif disposition == "queued" and job.message_id in self._unwanted:
            effects += self._clear()
        elif disposition == "queued":
            effects += self._stranded()
        self._unwanted.intersection_update(each.message_id for each in self._queued)
        return [*effects, *self._send()]

    def _message(self, message: Message) -> None:
        """A message of the queue was begun."""
        if message.role != "user":
            return
        begun = next((job for job in self._queued if _same(job, message.text)), None)
        if begun is not None:
            self._queued.remove(begun)
            self._unwanted.discard(begun.message_id)

    def _stranded(self) -> list[TalkEffect]:
        """Nothing runs that would ever begin what is in the queue."""
        return self._clear() if self._queued and not self._runs else []

    def _took_back(self, texts: list[str]) -> list[TalkEffect]:
        """These left the queue without having begun."""
        effects: list[TalkEffect] = []
        again: list[Job] = []
        for text in texts:
            job = next((each for each in self._queued if _same(each, text)), None)
            if job is None:
                continue  # none of ours
            self._queued.remove(job)
            if job.message_id in self._unwanted:
                self._unwanted.discard(job.message_id)
                effects.append(WithdrawnReport(message_id=job.message_id))
            else:
                again.append(job)
        self._queued.clear()  # what was not given back has begun
        self._held.extendleft(reversed(again))
        return effects

    # --- dialogs ------------------------------------------------------------------------------------------------------

    def _requested(self, said: _Line) -> list[TalkEffect]:
        if said.method not in DIALOGS or not isinstance(said.id, str):
            return []
        if self._questions.holds(said.id):
            return []
        effects = self._questions.ask(_question(said.id, said))
        if isinstance(said.timeout, (int, float)) and said.timeout > 0:
            effects.append(Remind(name=f"dialog:{said.id}", delay_s=said.timeout / 1000))
        return effects

    # --- commands -----------------------------------------------------------------------------------------------------

    def _pending(self, *kinds: _Asked) -> bool:
        return any(what in kinds for what, _ in self._asked.values())

    def _ask(self, what: _Asked, command: str, turn_id: TurnId | None = None) -> Write:
        request_id = f"lastword-{next(self._numbers)}"
        self._asked[request_id] = (what, turn_id)
        return Write(data=_encoded({"id": request_id, "type": command}))


def _names(data: Any) -> frozenset[str]:
    commands = data.get("commands") if isinstance(data, dict) else None
    names = [each.get("name") for each in commands if isinstance(each, dict)] if isinstance(commands, list) else []
    return frozenset(name for name in names if isinstance(name, str))


def _same(job: Job, text: str) -> bool:
    """Whether that is the job's text; with the blank that keeps Pi from taking it for a command."""
    sent = job.typed.paste.decode()
    return text in (sent, f" {sent}")


def _replied(question: Question, choice: dict[str, Any]) -> bytes:
    return _encoded({"type": "extension_ui_response", "id": question.request_id, **choice})


def _question(request_id: str, said: _Line) -> Question:
    title, more = _text(said.title), _text(said.message)
    cancelled: dict[str, Any] = {"cancelled": True}
    match said.method:
        case "select" if isinstance(said.options, list):
            labels = tuple(option for option in said.options if isinstance(option, str))
            options, choices = (*labels, CANCEL), (*({"value": label} for label in labels), cancelled)
        case "confirm":
            options, choices = ("Yes", "No"), ({"confirmed": True}, {"confirmed": False})
        case "editor" if isinstance(said.prefill, str):
            options, choices = ("Leave the text as it is", CANCEL), ({"value": said.prefill}, cancelled)
        case _:
            options, choices = (CANCEL,), (cancelled,)  # it asks for words, and an answer is an option
    return Question(
        request_id=request_id,
        dialog=DialogOpen(
            key=request_id, question="\n".join(filter(None, (title, more))), options=options, kind="question"
        ),
        choices=choices,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _encoded(line: dict[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


__all__ = ["PiTalk"]
