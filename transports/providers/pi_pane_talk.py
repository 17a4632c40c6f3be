"""How Pi's terminal program is spoken to: commands in a file that our extension (``pi_extension.ts``) reads. Pure.

A text is a command with the message's id. The extension carries each id out once, however often it stands there, so a
text whose fate is not known is simply written again. It says ``taken`` before it gives a text to Pi: only then does a
text count as submitted, and one that a process never took is the next one's. It gives Pi one at a time, keeps those
that Pi cannot take now, and gives those that Pi puts back behind an interrupt again.

What an extension or Pi itself asks is drawn for a person and told here: whoever answers first has answered.

An interrupt names how many runs had settled when it was wanted: a run that began since is not hit by it.

Source: Pi 1.6.0, docs/providers/pi.md.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import msgspec

from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.talk import GiveUp, Named, Remind, TalkEffect, Write
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
from lastword.transports.providers.pi import conversation_of
from lastword.transports.providers.pi_records import Pushed

HANDSHAKE_S = 60.0
"""How long it may take until the extension speaks: Pi's other extensions and MCP servers come up first."""
KNOWN_MAX = 4096
HEARD = (b'"session_start"', b'"taken"', b'"withdrawn"', b'"user"', b'"agent_settled"', b'"dialog')
NOT_WRITTEN = "what is said to the CLI could not be written to its file"

_LINE = decoding.Decoder(Pushed)


class PiPaneTalk:
    """One process's conversation.

    Args:
        native_session: as it is on record.
    """

    def __init__(self, native_session: str) -> None:
        self._native_session = native_session
        self._ready = False
        self._known: dict[str, Job | None] = {}
        """Messages that were written, or that the extension has taken; None where that was in an earlier life."""
        self._held: deque[Job] = deque()
        self._settles = 0
        self._runs = False
        self._turn: TurnId | None = None
        """Whose run it is, where its message came with a turn."""
        self._over: deque[TurnId] = deque(maxlen=KNOWN_MAX)
        self._questions = OpenQuestions[Question]()

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def opened(self) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`: the extension speaks first."""
        return [Remind(name="handshake", delay_s=HANDSHAKE_S)]

    def deliver(self, job: Job) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if job.message_id in self._known:
            self._known[job.message_id] = job
            return []
        self._remember(job.message_id, job)
        self._held.append(job)
        return self._send()

    def _send(self) -> list[TalkEffect]:
        if not self._ready:
            return []
        jobs, self._held = self._held, deque()
        return [
            Write(
                data=_encoded({"do": "say", "id": job.message_id, "text": job.typed.paste.decode()}),
                failed=(NotDelivered(message_id=job.message_id, kind="not_delivered", reason=NOT_WRITTEN),),
            )
            for job in jobs
        ]

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`: the extension says so where Pi does not have it yet."""
        for job in self._held:
            if job.message_id == message_id:
                self._held.remove(job)
                return [WithdrawnReport(message_id=message_id)]
        return [Write(data=_encoded({"do": "withdraw", "id": message_id}))]

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if turn_id in self._over:
            return [Interrupted(turn_id=turn_id)]  # its end is on record
        write = Write(data=_encoded({"do": "interrupt", "settles": self._settles}))
        return [Interrupted(turn_id=turn_id), write]

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        question = self._questions.take(dialog_id, option)
        if question is None:
            return [AnswerResult(token=token, applied=False)]
        write = reply(_encoded({"do": "answer", "dialog": question.request_id, "option": option}), token)
        return [write, *self._questions.answered(question, token)]

    def proved(self, message_id: MessageId) -> list[TalkEffect]:  # noqa: ARG002
        """The extension says more."""
        return []

    def reminded(self, name: str) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if name == "handshake" and not self._ready and self._asks:
            return self.opened()  # a person, or the host, takes time over it
        if name == "handshake" and not self._ready:
            return [GiveUp(reason=f"the extension did not come up within {HANDSHAKE_S:g} s")]
        return []

    def gone(self) -> list[TalkEffect]:
        """Nobody waits for an answer here."""
        return []

    # --- what is heard ----------------------------------------------------------------------------------------------

    def heard(self, line: bytes) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if not any(word in line for word in HEARD):
            return []
        try:
            said = _LINE.decode(line)
        except UNREADABLE:
            return []  # the oracle counts it
        match said.ev:
            case "session_start":
                return self._began(said)
            case "taken":
                return self._taken(MessageId(said.id))
            case "withdrawn":
                return [WithdrawnReport(message_id=MessageId(said.id))]
            case "message_end" if said.role == "user":
                self._user(said.id)
            case "agent_settled":
                self._settled()
            case "dialog":
                return self._questions.ask(_question(said))
            case "dialog_closed":
                return self._questions.drop(said.id)
            case _:
                pass
        return []

    @property
    def _asks(self) -> bool:
        return any(True for _ in self._questions)

    def _began(self, said: Pushed) -> list[TalkEffect]:
        effects: list[TalkEffect] = []
        native = conversation_of(said.file) if said.file else self._native_session
        if native != self._native_session:
            self._native_session = native
            effects.append(Named(native_session=native))
        if not self._ready:
            self._ready = True
            effects.append(BecameReady())
        return [*effects, *self._send()]

    def _taken(self, message_id: MessageId) -> list[TalkEffect]:
        job = self._known.get(message_id)
        if message_id not in self._known:
            self._remember(message_id, None)
        return [Submitted(message_id=message_id, rewritten=job.typed.notes if job is not None else ())]

    def _user(self, message_id: str) -> None:
        if not self._runs:
            job = self._known.get(message_id)
            self._runs, self._turn = True, job.turn_id if job is not None else None

    def _settled(self) -> None:
        self._settles += 1
        if self._turn is not None:
            self._over.append(self._turn)
        self._turn, self._runs = None, False

    def _remember(self, message_id: str, job: Job | None) -> None:
        self._known[message_id] = job
        forget_oldest(self._known, KNOWN_MAX)


def _question(said: Pushed) -> Question:
    kind: Literal["trust", "question"] = "trust" if said.kind == "trust" else "question"
    dialog = DialogOpen(key=said.id, question=said.msg or "", options=tuple(said.options), kind=kind)
    return Question(request_id=said.id, dialog=dialog, choices=dialog.options)


def _encoded(command: dict[str, Any]) -> bytes:
    return msgspec.json.encode(command) + b"\n"


__all__ = ["PiPaneTalk"]
