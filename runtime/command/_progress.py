"""What a person sees on stderr while a turn runs: rows of what happened, and on a terminal a line that ticks.

Derived from events alone (C33). Model text passes through :func:`safe`; nothing here is read by a program.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, assert_never

from lastword.actors.core import events
from lastword.actors.core.events import Event
from lastword.runtime.command._show import one_line

if TYPE_CHECKING:
    from rich.status import Status

ARGUMENT_CHARS = 100


class PlainProgress:
    """One line a row; for logs and pipes."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def row(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:7.2f} s  {text}", file=sys.stderr, flush=True)

    def state(self, text: str) -> None: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...


class RichProgress:
    """Rows, and under them a spinner with state and time."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where there is a terminal
        from rich.text import Text  # noqa: PLC0415

        self._text = Text
        self._console = Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._status: Status | None = None
        self._state = "starting"

    def row(self, text: str) -> None:
        self._console.print(self._text(f"{time.monotonic() - self._started:7.2f} s  {text}", style="dim"))

    def state(self, text: str) -> None:
        self._state = text
        self.tick()

    def tick(self) -> None:
        """Show the time again."""
        shown = self._text(f"{self._state}  {time.monotonic() - self._started:.0f} s")
        if self._status is None:
            self._status = self._console.status(shown)
            self._status.start()
        else:
            self._status.update(shown)

    def pause(self) -> None:
        """Leave the terminal to a question."""
        self.close()

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def open_progress() -> RichProgress | PlainProgress:
    """Rich on a terminal, plain lines otherwise."""
    return RichProgress() if sys.stderr.isatty() else PlainProgress()


def state_of(event: Event) -> str | None:
    """The state that begins with this event, where one does."""
    match event.body:
        case events.ProviderStarted():
            return "starting"
        case events.MessageSubmitted() | events.TurnStarted() | events.ToolFinished() | events.DialogClosed():
            return "running"
        case events.AssistantDelta():
            return "writing"
        case events.ToolStarted(name=name):
            return f"tool {one_line(name, 40)}"
        case events.DialogOpened():
            return "waiting for a person"
        case _:
            return None


def describe(event: Event) -> str:
    """One event on one line, safe for a terminal."""
    match body := event.body:
        case events.SessionOpened():
            text = f"session {event.session_id} ({body.provider}, {body.transport}) in {body.cwd}"
        case events.ProviderStarted():
            where = f", pane {body.pane}" if body.pane else ""
            text = f"CLI {body.cli_version} started: pid {body.pid}{where}"
            if not body.pid:
                text = f"{body.cli_version} is spoken to"
        case events.MessageAccepted():
            text = f"message accepted: {body.taken}"
        case events.MessageSubmitted():
            text = "message submitted" + (f" (rewritten: {', '.join(body.rewritten)})" if body.rewritten else "")
        case events.MessageQueued():
            text = "message queued by the CLI"
        case events.MessageJoined():
            text = "message joined the running turn"
        case events.MessageMoved():
            text = f"message moved from turn {body.from_turn_id}"
        case events.MessageUndelivered():
            text = f"message not delivered: {body.reason} {body.detail}"
        case events.TurnStarted():
            text = f"turn {event.turn_id} started" + ("" if body.origin == "host" else f" by {body.origin}")
        case events.ProviderRetrying():
            text = f"the CLI tries again: {body.message}"
        case events.AssistantMessage():
            text = f"says: {one_line(body.text, ARGUMENT_CHARS)}"
        case events.AssistantDelta():
            text = f"writes: {one_line(body.text, ARGUMENT_CHARS)}"
        case events.ToolStarted():
            text = f"tool {body.name} {one_line(body.arguments, ARGUMENT_CHARS)}"
        case events.ToolFinished():
            took = "" if body.duration_s is None else f" in {body.duration_s:.2f} s"
            text = f"tool {body.name} {body.status}{took}"
        case events.DialogOpened():
            options = " | ".join(f"{number}. {option}" for number, option in enumerate(body.options, 1))
            text = f"a {body.kind} dialog waits: {one_line(body.question, 400)} {options}"
        case events.DialogClosed():
            text = f"dialog closed by {body.by}"
        case events.CompletionReached(completion=completion):
            why = "" if completion.error is None else f": {completion.error.kind} {completion.error.message}"
            text = f"turn {completion.turn_id} {completion.status}{why} (settled by {completion.source})"
            if completion.cli_uncertified:
                said = completion.cli_version or "of no known version"
                named = said.startswith(f"{completion.provider} ")
                text += f"; {said if named else f'{completion.provider} {said}'} was never certified"
        case events.UsageReported():
            text = f"usage: {body.input_tokens} tokens in, {body.output_tokens} out"
        case events.StallDiagnosed():
            text = f"waits for {body.waits_for}, {body.elapsed_s:.0f} s: {body.evidence}"
        case events.InvariantViolated():
            text = f"invariant violated: {body.what} ({body.repair})"
        case events.SessionRebound():
            text = f"the CLI is in another conversation now: {body.native_session_id}"
        case events.SessionSwitched():
            now = f"{body.provider} over {body.transport}" + (f", {body.model}" if body.model else "")
            text = f"the session goes on with {now}"
        case events.SessionGone():
            text = f"the CLI is gone: {body.reason}"
        case events.SessionClosed():
            text = f"session closed {body.reason}"
        case _:
            assert_never(body)
    return one_line(text)
