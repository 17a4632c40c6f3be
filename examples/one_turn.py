"""Two turns through a real tmux pane, and one last word for each: what `make run` shows.

The CLI in the pane is the scripted one of the rehearsal kit: no model, no key, no network. Every event is printed as it
comes. Exit code 0 only if both turns completed with the answer that was expected.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from lastword import Completion, Event, Session, events
from lastword.runtime.testing import rehearsed_runtime

TURNS = (
    ("[[tool:Bash:echo from the tool]][[say:The tool has spoken.]]", "The tool has spoken."),
    ("And what did I say second?", "echo: And what did I say second?"),
)
DEADLINE_S = 60.0


def detail(event: Event) -> str:
    """What is worth a word of one event."""
    match event.body:
        case events.SessionOpened(provider=provider, cwd=cwd):
            return f"{provider} in {cwd}"
        case events.ProviderStarted(pid=pid, pane=pane):
            return f"pid {pid} in pane {pane}"
        case events.MessageAccepted(taken=taken):
            return taken
        case events.ToolStarted(name=name, arguments=arguments):
            return f"{name} {arguments}"
        case events.ToolFinished(name=name, status=status, result=result):
            return f"{name} {status}: {result.strip()}"
        case events.AssistantMessage(text=text):
            return text
        case events.CompletionReached(completion=completion):
            return f"{completion.status}, settled by {completion.source}"
        case _:
            return ""


def one_turn(session: Session, stream: Iterator[Event], text: str) -> Completion:
    """Send a message and print what happens until its turn is over."""
    started = time.monotonic()
    print(f"\n> {text}")
    ack = session.send(text, deadline_s=DEADLINE_S)
    for event in stream:
        took_ms = (time.monotonic() - started) * 1000
        print(f"  {event.seq:3d} {took_ms:7.1f} ms  {event.type:<20} {detail(event)}")
        if isinstance(event.body, events.CompletionReached) and event.turn_id == ack.turn_id:
            return event.body.completion
    raise SystemExit("the session ended before its turn")


def main() -> int:
    """Rehearse both turns in one session."""
    with rehearsed_runtime() as rehearsed:
        session = rehearsed.runtime.session(rehearsed.provider, cwd=rehearsed.cwd)
        stream = session.events()
        right = 0
        for text, expected in TURNS:
            done = one_turn(session, stream, text)
            print(f"< {done.status}: {done.answer}")
            right += done.status == "completed" and done.answer == expected
        session.close()
    print(f"\n{right} of {len(TURNS)} turns completed with the expected answer")
    return 0 if right == len(TURNS) else 1


if __name__ == "__main__":
    sys.exit(main())
