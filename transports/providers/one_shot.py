"""CLIs that take one prompt as an argument, say what becomes of it on stdout, and end. Pure data and functions.

A process is one turn. It is started before its prompt is known: a shell waits for that on its stdin, one line, and
becomes the CLI (:func:`recipe`). So a message is handed over as to any CLI behind a pipe (at most once, kept before it
is written), nothing stands between the CLI and us while it works, and its stdout is its record (docs/adr/0009). When
the process has ended the session is ``gone``; the next message starts another one, which continues the conversation.

A message that comes meanwhile is held here and goes to the next process. An interrupt is a signal: these CLIs have no
other word for it.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Sequence

import msgspec

from lastword.actors.core import typing_effects as reports
from lastword.actors.core.adapter import LaunchRecipe, LaunchRequest, Refused, SourceSpec, TypedText
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.facts import (
    AssistantSaid,
    Fact,
    InputJoined,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    TurnContinued,
    UnknownRecord,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.outcome import Evidence
from lastword.actors.core.talk import GiveUp, Named, Remind, TalkEffect, Write
from lastword.actors.core.transcript import LineFramer
from lastword.actors.core.typing_effects import Job
from lastword.transports.providers.decoding import Decoder
from lastword.transports.providers.line_oracle import UNREADABLE, LineOracle

ARGUMENT_BYTES_MAX = 128 * 1024 - 1
"""Of one argument, in Linux."""
LINGER_S = 5.0
"""How long a process may live behind its own last word before it is ended."""
READY = b'{"type":"lastword.ready"'
OURS = b'{"type":"lastword.'
"""Lines of the shell's own."""
SENT_ENDING = ".sent.jsonl"


def key_of(message_id: MessageId) -> str:
    """By what a line that we send names a message: one word, whatever the host's id is."""
    return hashlib.sha256(message_id.encode()).hexdigest()[:24]


# --- starting it ------------------------------------------------------------------------------------------------------


def recipe(
    request: LaunchRequest,
    run: Sequence[str],
    *,
    named: Sequence[str] = (),
    last: Sequence[str] = (),
    mint: Sequence[str] = (),
    stderr: bool = False,
    on_stdin: bool = False,
) -> LaunchRecipe:
    """A shell that waits for the prompt and becomes ``run``, the prompt behind it.

    Args:
        request: what was asked for.
        run: the CLI's command line.
        named: what goes behind it where the conversation has a name; ``{}`` stands for that name.
        last: what stands right before the prompt.
        mint: a command that prints the name of a new conversation: run first, where there is none.
        stderr: what it says there is part of the record.
        on_stdin: the prompt is no argument, it is read from stdin; the shell stays, and waits for the CLI.
    """
    lines = [f"name={shlex.quote(request.native_session)}"]
    if mint:
        lines += [
            f'[ -n "$name" ] || name=$({shlex.join(mint)} </dev/null) || exit',
            """case $name in ''|*[!A-Za-z0-9_-]*) echo "it named no conversation" >&2; exit 1;; esac""",
        ]
    words = shlex.join(run)
    if named and (mint or request.native_session):
        words += " " + " ".join('"$name"' if word == "{}" else shlex.quote(word) for word in named)
    words += "".join(f" {shlex.quote(word)}" for word in last)
    told = " 2>&1" if stderr else ""
    lines += [
        """printf '{"type":"lastword.ready","name":"%s"}\\n' "$name" """.strip(),
        "IFS=' ' read -r key text || exit 0",
    ]
    if on_stdin:
        lines.append(f'printf %s "$text" | base64 -d | {words}{told}')
    else:
        lines += [
            'prompt=$(printf %s "$text" | base64 -d; echo .)',
            f'exec {words} "${{prompt%.}}" </dev/null{told}',
        ]
    return LaunchRecipe(argv=("/bin/sh", "-c", "\n".join(lines)), env={}, native_session=request.native_session)


# --- speaking to it ---------------------------------------------------------------------------------------------------


class _Ready(msgspec.Struct):
    name: str = ""


_NAMED = Decoder(_Ready)


class OneShotTalk:
    """Speaks to one process: one text, once.

    Args:
        is_last: whether a line is the CLI's last word.
        name_of: the conversation's name in a line, or "".
    """

    def __init__(self, is_last: Callable[[bytes], bool], name_of: Callable[[bytes], str] = lambda _: "") -> None:
        self._is_last = is_last
        self._name_of = name_of
        self._ready = False
        self._sent = False
        self._over = False
        self._held: dict[MessageId, Job] = {}

    def opened(self) -> list[TalkEffect]:
        """The shell says when it listens."""
        return []

    def heard(self, line: bytes) -> list[TalkEffect]:
        """What it says."""
        if line.startswith(READY):
            self._ready = True
            name = _NAMED.decode(line).name
            named: list[TalkEffect] = [Named(native_session=name)] if name else []
            return [*named, reports.BecameReady(), *self._send()]
        if line.startswith(OURS) or not self._sent:
            return []
        name = self._name_of(line)
        effects: list[TalkEffect] = [Named(native_session=name)] if name else []
        if not self._over and self._is_last(line):
            self._over = True
            effects.append(Remind(name="linger", delay_s=LINGER_S))
        return effects

    def deliver(self, job: Job) -> list[TalkEffect]:
        """The first text goes to this process, the others to the next ones."""
        self._held.setdefault(job.message_id, job)
        return self._send()

    def withdraw(self, message_id: MessageId) -> list[TalkEffect]:
        """One that was not sent."""
        if self._held.pop(message_id, None) is None:
            return []
        return [reports.WithdrawnReport(message_id=message_id)]

    def interrupt(self, turn_id: TurnId) -> list[TalkEffect]:
        """End the process."""
        if not self._sent or self._over:
            return [reports.NothingToInterrupt(turn_id=turn_id)]
        return [reports.Interrupted(turn_id=turn_id), GiveUp(reason="interrupted")]

    def answer(self, token: str, dialog_id: str, option: int) -> list[TalkEffect]:  # noqa: ARG002
        """It asks nothing."""
        return [reports.AnswerResult(token=token, applied=False)]

    def proved(self, message_id: MessageId) -> list[TalkEffect]:  # noqa: ARG002
        """Nothing waits for that."""
        return []

    def reminded(self, name: str) -> list[TalkEffect]:  # noqa: ARG002
        """It lives on behind its last word."""
        return [GiveUp(reason="it lingered behind its last word")]

    def gone(self) -> list[TalkEffect]:
        """Nothing was promised."""
        return []

    def _send(self) -> list[TalkEffect]:
        if not self._ready or self._sent or not self._held:
            return []
        self._sent = True
        message_id, job = next(iter(self._held.items()))
        del self._held[message_id]
        text = base64.b64encode(job.typed.paste).decode()
        submitted = reports.Submitted(message_id=message_id, rewritten=job.typed.notes)
        failed = reports.NotDelivered(message_id=message_id, kind="not_delivered", reason="it could not be written")
        return [Write(data=f"{key_of(message_id)} {text}\n".encode(), after=(submitted,), failed=(failed,))]


# --- reading it -------------------------------------------------------------------------------------------------------


class OneShotOracle:
    """Reads what was sent to a process, and what that said. Raises nothing for any input.

    The turn has begun with the first thing that the CLI says once it was asked; all that it says is of that turn, under
    the name of the message: one process, one turn. Where no line of ours is read (``lastword read``) the CLI's own
    names stand.

    Args:
        said: reads the CLI's own lines.
    """

    def __init__(self, said: LineOracle) -> None:
        self._inner = said
        self._framers: dict[str, LineFramer] = {}
        self._sent: tuple[str, str] | None = None
        self._names: dict[str, str] = {}
        self._begun = False

    @property
    def quiescent(self) -> bool:
        """Nothing was asked, and no half line is held."""
        return self._sent is None and not any(framer.tail_bytes for framer in self._framers.values())

    def feed(self, source: str, chunk: bytes) -> list[Fact]:
        """Facts of the bytes that follow the previous chunk of that source."""
        framer = self._framers.setdefault(source, LineFramer())
        facts: list[Fact] = []
        for line in framer.feed(chunk):
            if source.endswith(SENT_ENDING):
                facts += self._told(line.data, Evidence(source=source, offset=line.offset))
            elif not line.data.startswith(OURS):
                facts += self._heard(self._inner.take(line, source), Evidence(source=source, offset=line.offset))
        return facts

    def feed_snapshot(self, source: str, data: bytes) -> list[Fact]:  # noqa: ARG002 - no such source
        """Nothing: there is no snapshot file."""
        return []

    def eof(self, source: str) -> list[Fact]:
        """It is gone and all was fed: a whole last line without its newline counts."""
        framer = self._framers.get(source)
        tail = framer.flush() if framer is not None else None
        if source.endswith(SENT_ENDING):
            return []
        evidence = Evidence(source=source, offset=tail.offset if tail is not None else 0)
        facts: list[Fact] = []
        if tail is not None and not tail.data.startswith(OURS):
            facts += self._heard(self._inner.take(tail, source), evidence)
        return facts + self._heard(self._inner.ended(source), evidence)

    def _told(self, data: bytes, evidence: Evidence) -> list[Fact]:
        key, _, text = data.partition(b" ")
        try:
            self._sent = (key.decode(), base64.b64decode(text, validate=True).decode())
        except UNREADABLE:
            return [UnknownRecord(what="unreadable", evidence=evidence)]
        return []

    def _heard(self, facts: list[Fact], evidence: Evidence) -> list[Fact]:
        if self._sent is None:
            return facts
        key, text = self._sent
        first: list[Fact] = []
        if not self._begun and any(_native(fact) for fact in facts):
            self._begun = True
            first = [PromptRecorded(native_turn=key, text=text, key=key, taken="sdk", evidence=evidence)]
        return first + [renamed for fact in facts if (renamed := self._ours(fact, key)) is not None]

    def _ours(self, fact: Fact, key: str) -> Fact | None:
        native = _native(fact)
        if not native:
            return fact
        if native not in self._names:
            self._names[native] = key if not self._names else f"{key}#{len(self._names) + 1}"
        name = self._names[native]
        if isinstance(fact, PromptRecorded) and name == key:
            return None  # its own word for what we sent
        assert isinstance(fact, _OfTurn)
        return msgspec.structs.replace(fact, native_turn=name)


_OfTurn = (
    PromptRecorded,
    InputJoined,
    AssistantSaid,
    ToolStarted,
    ToolFinished,
    ProviderRetrying,
    TurnContinued,
    TurnClosed,
)


def _native(fact: Fact) -> str:
    return fact.native_turn if isinstance(fact, _OfTurn) else ""


# --- the adapter ------------------------------------------------------------------------------------------------------


class OneShotAdapter:
    """What the adapters of such CLIs share."""

    transport: TransportName = "structured"
    keeps_sent = True
    certified_versions: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ("-",)
    """What a prompt must not begin with, or the CLI takes it for a word of its own: a blank goes in front."""

    def transcript(self, request: LaunchRequest) -> SourceSpec | None:  # noqa: ARG002
        """Where it keeps a conversation is not relied on."""
        return None

    def sources(self, request: LaunchRequest) -> tuple[SourceSpec, ...]:
        """What was sent to it, and what it said."""
        return (request.sent, request.heard)

    def status_file(self, request: LaunchRequest, pid: int) -> SourceSpec | None:  # noqa: ARG002
        """It has none."""
        return None

    def key(self, message_id: MessageId) -> str:
        """As the line that brings it is named."""
        return key_of(message_id)

    def escape(self, text: str) -> TypedText | Refused:
        """As it is, as far as an argument can be."""
        if "\0" in text:
            return Refused(reason="an argument of a program cannot hold a NUL")
        try:
            sent = f" {text}" if text.startswith(self.guarded) else text
            data = sent.encode()
        except UnicodeEncodeError:
            return Refused(reason="a lone surrogate is no text")
        if len(data) > ARGUMENT_BYTES_MAX:
            return Refused(reason=f"longer than {ARGUMENT_BYTES_MAX} bytes, which is what one argument may hold")
        notes = ("leading_blank",) if sent != text else ()
        return TypedText(text=text, paste=data, rewritten=sent, notes=notes)

    def matches(self, typed: TypedText, recorded: str) -> bool:  # noqa: ARG002
        """Every message of ours is named in the record: text alone tells nothing here."""
        return False


__all__ = ["OneShotAdapter", "OneShotOracle", "OneShotTalk", "key_of", "recipe"]
