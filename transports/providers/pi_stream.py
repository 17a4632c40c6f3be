"""What Pi says in its rpc mode: its stdout as a record. Events as :mod:`pi_oracle` reads them, and whose message it is.

Theory of operation. A message of ours is a ``prompt`` command whose id is its name; Pi answers *started* or *queued*
under that name, but its events do not bear it. One prompt is on its way at a time (:mod:`pi_talk`), so order tells: the
first user message after *started* is that one, and opens the run; *queued* is about what ``queue_update`` added last.
An entry that leaves the queue begins with the user message that follows, or was cleared by ``clear_queue``, whose
answer follows: a cleared one of ours is no loss, it is sent again under the same name.

``agent_settled`` ends the run, with all messages that it took in. A prompt that is answered with an error, that an
extension handled, or that settled without a message of its own, was dropped.

Source: pi 1.6.0, tests/fixtures/pi/1.6.0, docs/providers/pi.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lastword.actors.core.facts import InputDropped, InputJoined, InputQueued, PromptRecorded, Taken
from lastword.actors.core.outcome import Evidence
from lastword.transports.providers.pi_oracle import PiEventsOracle
from lastword.transports.providers.pi_records import Event, Message

REASON_CHARS_MAX = 300


class _Waiting(msgspec.Struct, kw_only=True):
    """An entry of Pi's queue; "" as key until its answer names it, and for one that is none of ours."""

    text: str
    key: str = ""


class PiStreamOracle(PiEventsOracle):
    """Reads ``pi --mode rpc``. Raises nothing for any input."""

    def __init__(self, native_session: str = "", offset: int = 0) -> None:
        super().__init__(native_session, offset)
        self._starting = ""
        """The message whose run was announced and has not shown yet."""
        self._in_queue: list[_Waiting] = []
        self._leaving: list[_Waiting] = []
        """They left the queue: begun or cleared, what follows tells."""
        self._cleared: set[str] = set()
        self._nameless = ""
        """The run into which a message went before its answer came."""
        self._agent_runs = False

    @property
    def _busy(self) -> bool:
        return bool(self._run or self._starting or self._in_queue or self._leaving or self._cleared)

    # --- answers to what we send --------------------------------------------------------------------------------------

    def _response(self, event: Event, evidence: Evidence) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        key = event.id if isinstance(event.id, str) else ""
        if event.command == "clear_queue":
            self._was_cleared(evidence)
        elif event.command != "prompt" or not key:
            return
        elif not event.success:
            self._drop(key, str(event.error), evidence)
        else:
            match data.get("disposition"):
                case "started":
                    self._cleared.discard(key)
                    self._starting = key
                case "queued":
                    self._cleared.discard(key)
                    self._was_queued(key, evidence)
                case disposition:
                    self._drop(key, f"it was {disposition} by an extension", evidence)

    def _was_queued(self, key: str, evidence: Evidence) -> None:
        entry = next((each for each in reversed((*self._leaving, *self._in_queue)) if not each.key), None)
        if entry is not None:
            entry.key = key
            self._facts.append(InputQueued(text="", key=key, evidence=evidence))
        elif self._nameless:  # it was taken out of the queue before the answer was written
            self._facts.append(InputJoined(native_turn=self._nameless, text="", key=key, evidence=evidence))
            self._nameless = ""

    def _was_cleared(self, evidence: Evidence) -> None:
        for entry in self._leaving:
            if entry.key:
                self._cleared.add(entry.key)
            else:
                self._facts.append(InputDropped(text=entry.text, reason="cleared", evidence=evidence))
        self._leaving.clear()

    def _drop(self, key: str, reason: str, evidence: Evidence) -> None:
        self._cleared.discard(key)
        self._facts.append(InputDropped(text="", key=key, reason=reason[:REASON_CHARS_MAX], evidence=evidence))

    # --- events -------------------------------------------------------------------------------------------------------

    def _queue_update(self, waiting: tuple[str, ...], evidence: Evidence) -> None:  # noqa: ARG002 - no fact by itself
        added = list(waiting)
        still: list[_Waiting] = []
        for entry in reversed(self._in_queue):  # of two equal ones the first leaves first
            if entry.text in added:
                added.remove(entry.text)
                still.insert(0, entry)
            else:
                self._leaving.insert(0, entry)
        self._in_queue = [*still, *(_Waiting(text=text) for text in added)]

    def _started_agent(self) -> None:
        self._agent_runs = True

    def _user(
        self, native: str, text: str, evidence: Evidence, taken: Taken, also: tuple[str, ...], joins: tuple[str, ...]
    ) -> None:
        run, key = self._run, self._key_of(text)
        if run is not None:
            run.stop = run.text = run.error = ""
            self._nameless = "" if key else run.native
            self._facts.append(InputJoined(native_turn=run.native, text=text, key=key, evidence=evidence, also=joins))
            return
        if native in self._opened_names:  # another one within the same millisecond
            native = f"{native}@{evidence.offset}"
        self._opened(native, text, evidence, taken, also)
        opened = self._facts[-1]
        assert isinstance(opened, PromptRecorded)
        self._facts[-1] = msgspec.structs.replace(opened, key=key)
        self._nameless = "" if key else native

    def _key_of(self, text: str) -> str:
        """Whose message this is, as far as it has been named."""
        if self._run is None and self._starting:
            key, self._starting = self._starting, ""
            return key
        entry = next((each for each in self._leaving if each.text == text), None)
        if entry is None:
            return ""
        self._leaving.remove(entry)
        return entry.key

    def _of_itself(self, message: Message, evidence: Evidence) -> bool:
        """An extension began a run with a message of its own."""
        if message.role != "custom" or not self._agent_runs or self._starting:
            return False
        native = message.name or f"{self._native_session}@{evidence.offset}"
        self._opened(native, "", evidence, "self", ())
        opened = self._facts[-1]
        if isinstance(opened, PromptRecorded):
            self._facts[-1] = msgspec.structs.replace(opened, origin="task_notification")
        return True

    def _settled(self, evidence: Evidence, *, aborted: bool, kept: list[str]) -> None:  # noqa: ARG002 - keys tell
        self._nameless = ""
        if self._starting:  # this run never had its message; one that is open is another's
            key, self._starting = self._starting, ""
            self._drop(key, "its run ended before it began", evidence)
            return
        self._agent_runs = False
        run, self._run = self._run, None
        if run is None:
            self._unknown("late_terminal", evidence)
        else:
            self._close(self._closing(run, evidence, aborted=aborted))

    def _new_process(self, evidence: Evidence) -> None:
        """A stream is one process's; rpc has no header."""
        self._unknown("event:session", evidence)


def returned(data: Any) -> list[str]:
    """The texts that ``clear_queue`` says it took out of the queue."""
    found: list[str] = []
    for name in ("steering", "followUp"):
        texts = data.get(name) if isinstance(data, dict) else None
        found += [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    return found


__all__ = ["PiStreamOracle", "returned"]
