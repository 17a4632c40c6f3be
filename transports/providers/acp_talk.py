"""How an agent is spoken to over the Agent Client Protocol. Pure.

Lock step: each request goes out when the one before is answered, and never more than one prompt. What a second prompt
does to a running one differs by agent (:data:`LiveInput`): it cancels it, fails it, or runs behind it with its text
told before the first one's answer, so that nobody could say which turn said what. A message for a busy agent is
therefore held here until the answer to the one before has come.

A prompt's request id is made of the message's own: its answer says whose it is. Nothing else of the client's side is
offered: no files, no terminals; a request for those, or for what nobody knows, gets the protocol's own error. A login
is a person's affair: an agent that wants one is given up, in its own words.

Source: protocol version 1; Gemini CLI 0.61.0, Qwen Code 0.24.4, opencode 1.18.33.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any, Literal

import msgspec

from lastword.actors.core.adapter import DialogOpen, LaunchRequest
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
from lastword.transports.providers import acp_wire as wire
from lastword.transports.providers import decoding
from lastword.transports.providers.open_questions import OpenQuestions, Question, reply

LiveInput = Literal["cancels", "fails", "queues", "unknown"]
"""What the agent itself does with a prompt that comes while another runs: the running one is answered ``cancelled``, or
with an error, or both are answered in their order. Nobody ever sees it here: the message is held.
"""
HANDSHAKE_S = 90.0
"""From the start until the conversation is open."""
SHOWN_CHARS_MAX = 500
TURNS_MAX = 4096

_INITIALIZED = decoding.Decoder(wire.Initialized)
_OPENED = decoding.Decoder(wire.SessionOpened)
_ASKED = decoding.Decoder(wire.PermissionParams)


def prompt_id(message_id: MessageId) -> str:
    """Of the request that carries that message: the same one in every life of the host."""
    return f"message:{message_id}"


class AcpTalk:
    """One process's conversation.

    Args:
        request: of that process.
        model: chosen by the conversation's own option for it, where the command line has no option for it.
        load_wait_s: before an old conversation is loaded.
    """

    def __init__(self, request: LaunchRequest, model: str = "", load_wait_s: float = 0.0) -> None:
        self._request = request
        self._load_wait_s = load_wait_s
        self._model = model
        self._resume = request.native_session if request.resume else ""
        self._session = ""
        self._told_name = False
        self._numbers = count(1)
        self._asked: dict[str, str] = {}
        self._setup: deque[tuple[str, dict[str, Any]]] = deque()
        """Requests that are still to be answered before the first prompt."""
        self._ready = False
        self._held: deque[Job] = deque()
        self._running: Job | None = None
        self._taken: dict[MessageId, None] = {}
        self._of_turn: dict[TurnId, MessageId] = {}
        self._questions = OpenQuestions[Question]()

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def opened(self) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        client = {
            "protocolVersion": wire.PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "lastword", "version": "1"},
        }
        return [self._ask(wire.INITIALIZE, client), Remind(name="handshake", delay_s=HANDSHAKE_S)]

    def deliver(self, job: Job) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if job.message_id in self._taken:
            return []
        self._taken[job.message_id] = None
        forget_oldest(self._taken, TURNS_MAX)
        self._held.append(job)
        return self._send_held()

    def _send_held(self) -> list[TalkEffect]:
        if not self._ready or self._running is not None or not self._held:
            return []
        self._running = job = self._held.popleft()
        effects: list[TalkEffect] = []
        if not self._told_name:  # before its first prompt there is nothing that could be resumed
            self._told_name = True
            effects.append(Named(native_session=self._session))
        if job.turn_id is not None:
            self._of_turn[job.turn_id] = job.message_id
            forget_oldest(self._of_turn, TURNS_MAX)
        refused = "what is sent to the agent could not be written"
        prompt = [{"type": "text", "text": job.typed.paste.decode()}]
        effects.append(
            Write(
                data=wire.request(
                    prompt_id(job.message_id), wire.PROMPT, {"sessionId": self._session, "prompt": prompt}
                ),
                after=(Submitted(message_id=job.message_id, rewritten=job.typed.notes),),
                failed=(
                    NotDelivered(message_id=job.message_id, kind="not_delivered", reason=refused),
                    GiveUp(reason=refused),
                ),
            )
        )
        return effects

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        for job in self._held:
            if job.message_id == message_id:
                self._held.remove(job)
                return [WithdrawnReport(message_id=message_id)]
        return []

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """``session/cancel``, where it is that turn's prompt that runs: one that is answered already is left alone."""
        running = self._running
        known = self._of_turn.get(turn_id)
        mine = running is not None and (running.message_id == known if known is not None else running.turn_id is None)
        effects: list[TalkEffect] = [Interrupted(turn_id=turn_id)]
        if mine:
            effects.append(Write(data=wire.notification(wire.CANCEL, {"sessionId": self._session})))
            cancelled = {"outcome": {"outcome": "cancelled"}}  # the protocol asks for it
            effects += [Write(data=wire.answer(question.request_id, cancelled)) for question in self._questions]
            effects += self._questions.drop_all()
        return effects

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        question = self._questions.take(dialog_id, option)
        if question is None:
            return [AnswerResult(token=token, applied=False)]
        chosen = {"outcome": {"outcome": "selected", "optionId": question.choices[option - 1]}}
        write = reply(wire.answer(question.request_id, chosen), token)
        return [write, *self._questions.answered(question, token)]

    def proved(self, message_id: MessageId) -> list[TalkEffect]:  # noqa: ARG002
        """Nothing waits for it: the answer to the prompt lets the next one go."""
        return []

    def reminded(self, name: str) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        if name == "load":
            return self._next()
        if name == "handshake" and not self._ready:
            waits = ", ".join(self._asked.values()) or "nothing"
            return [GiveUp(reason=f"no answer to the handshake ({waits}) within {HANDSHAKE_S:g} s")]
        return []

    def gone(self) -> list[TalkEffect]:
        """Nobody waits for an answer here: each was told with its write."""
        return []

    # --- what is heard ----------------------------------------------------------------------------------------------

    def heard(self, line: bytes) -> list[TalkEffect]:
        """As :class:`~lastword.actors.core.talk.Talk`."""
        effects: list[TalkEffect] = []
        try:
            for said in wire.read(line):
                effects += self._heard(said)
        except wire.UNREADABLE:
            pass  # the oracle counts it
        return effects

    def _heard(self, said: wire.Rpc) -> list[TalkEffect]:
        if said.method and said.id is None:
            return []  # a notification: the oracle reads it
        if said.method == wire.PERMISSION:
            return self._permission(said)
        if said.method:
            return [Write(data=wire.refusal(said.id, said.method))]
        return self._answered(said)

    def _answered(self, said: wire.Rpc) -> list[TalkEffect]:
        running = self._running
        if running is not None and said.id == prompt_id(running.message_id):
            self._running = None
            return [*self._questions.drop_all(), *self._send_held()]
        method = self._asked.pop(said.id, "") if isinstance(said.id, str) else ""
        if not method:
            return []
        if said.error is not None and method != wire.FENCE:
            return [GiveUp(reason=_refused(method, said.error))]
        try:
            return self._set_up(method, said)
        except wire.UNREADABLE:
            return [GiveUp(reason=f"the agent's answer to {method} cannot be read: {bytes(said.result)[:200]!r}")]

    def _set_up(self, method: str, said: wire.Rpc) -> list[TalkEffect]:
        """The answer to a request of the handshake."""
        match method:
            case wire.INITIALIZE:
                return self._initialized(_INITIALIZED.decode(said.result))
            case wire.NEW:
                opened = _opened(said.result)
                self._session = opened.session_id
                if not self._session:
                    return [GiveUp(reason="the agent gave its conversation no name")]
                return self._chosen_model(opened)
            case wire.LOAD | wire.RESUME:
                return self._chosen_model(_opened(said.result))
            case _:
                pass
        return self._next()

    def _initialized(self, agent: wire.Initialized) -> list[TalkEffect]:
        if agent.protocol_version != wire.PROTOCOL_VERSION:
            reason = f"the agent speaks version {agent.protocol_version} of the protocol, not {wire.PROTOCOL_VERSION}"
            return [GiveUp(reason=reason)]
        where: dict[str, Any] = {"cwd": self._request.cwd, "mcpServers": []}
        can = agent.agent_capabilities
        if not self._resume:
            self._setup.append((wire.NEW, where))
        elif (can.session_capabilities or {}).get("resume") is not None:
            self._setup.append((wire.RESUME, {"sessionId": self._resume, **where}))
        elif can.load_session:
            self._setup.append((wire.LOAD, {"sessionId": self._resume, **where}))
            self._setup.append((wire.FENCE, {}))
        else:
            return [GiveUp(reason="the agent cannot resume a conversation: open another session")]
        self._session = self._resume
        self._told_name = bool(self._resume)
        if self._request.permission_mode:
            self._setup.append((wire.SET_MODE, {"modeId": self._request.permission_mode}))
        if self._setup[0][0] == wire.LOAD and self._load_wait_s:
            wait_s = self._load_wait_s
            return [Remind(name="load", delay_s=wait_s), Remind(name="handshake", delay_s=wait_s + HANDSHAKE_S)]
        return self._next()

    def _chosen_model(self, opened: wire.SessionOpened) -> list[TalkEffect]:
        if self._model:
            option = next((each.id for each in opened.config_options or () if each.category == "model"), "")
            if not option:
                return [GiveUp(reason=f"the agent lets nobody choose a model ({self._model!r} was asked for)")]
            self._setup.append((wire.SET_OPTION, {"configId": option, "value": self._model}))
        return self._next()

    def _next(self) -> list[TalkEffect]:
        if not self._setup:
            self._ready = True
            return [BecameReady(), *self._send_held()]
        method, params = self._setup.popleft()
        if method in (wire.SET_MODE, wire.SET_OPTION):
            params = {"sessionId": self._session, **params}
        return [self._ask(method, params)]

    def _ask(self, method: str, params: dict[str, Any]) -> Write:
        number = f"lastword-{next(self._numbers)}"
        self._asked[number] = method
        return Write(data=wire.request(number, method, params))

    # --- dialogs ----------------------------------------------------------------------------------------------------

    def _permission(self, said: wire.Rpc) -> list[TalkEffect]:
        if self._questions.holds(said.id):
            return []  # one answer is all that this id can have, and it is the first one's
        try:
            asked = _ASKED.decode(said.params)
        except wire.UNREADABLE:
            asked = wire.PermissionParams()
        if self._running is None or asked.session_id != self._session or not asked.options:
            cancelled = {"outcome": {"outcome": "cancelled"}}
            return [Write(data=wire.answer(said.id, cancelled))]  # of no turn of ours, or not to be answered
        return self._questions.ask(_question(said.id, asked))


def _opened(result: msgspec.Raw) -> wire.SessionOpened:
    return wire.SessionOpened() if bytes(result) == b"null" else _OPENED.decode(result)


def _question(request_id: Any, asked: wire.PermissionParams) -> Question:
    call = asked.tool_call
    what = [call.title or call.kind or "a tool"]
    if call.raw_input:
        command = call.raw_input.get("command") if isinstance(call.raw_input, dict) else None
        what.append(command if isinstance(command, str) else wire.as_text(call.raw_input))
    more = wire.texts(call.content)
    if more:
        what.append(more)
    question = " - ".join(dict.fromkeys(what))
    if len(question) > SHOWN_CHARS_MAX:
        question = question[: SHOWN_CHARS_MAX - 1] + "…"
    return Question(
        request_id=request_id,
        dialog=DialogOpen(
            key=f"{asked.session_id}/{wire.as_text(request_id)}/{call.tool_call_id}",
            question=f"May it run? {question}",
            options=tuple(option.name or option.option_id for option in asked.options),
            kind="permission",
        ),
        choices=tuple(option.option_id for option in asked.options),
    )


def _refused(method: str, error: wire.RpcError) -> str:
    said = f"{error.message} {wire.as_text(error.data) if error.data else ''}".strip()[:400]
    if error.code == wire.AUTH_REQUIRED:
        return f"the agent wants a login, which is a person's affair: log in with the CLI itself ({said})"
    return f"the agent refused {method}: {said} ({error.code})"


__all__ = ["AcpTalk", "LiveInput", "prompt_id"]
