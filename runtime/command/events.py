"""``lastword events``: the events of a session from the journal; with ``--follow`` the next ones as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastword.actors.core.events import Event
from lastword.actors.core.ids import SessionId
from lastword.runtime._hub import Hub
from lastword.runtime.command._desk import FOLLOW_POLL_S, known_session, open_reader
from lastword.runtime.command._progress import describe
from lastword.runtime.command._show import as_json, default_state, out, state_option

if TYPE_CHECKING:
    from lastword.runtime._journal import SqliteJournal

PAGE_EVENTS = 500
SEQ_MAX = 2**63 - 1
"""What a journal can count to."""


@click.command("events")
@click.argument("session")
@click.option("--after", type=click.IntRange(min=0, max=SEQ_MAX), default=0, help="Only events after this seq.")
@click.option("--follow", is_flag=True, help="Wait for further ones; ends when the session is closed.")
@click.option("--json", "json_form", is_flag=True, help="One JSON object a line.")
@state_option
def command(session: str, after: int, follow: bool, json_form: bool, state: Path | None) -> None:
    """Print the events of SESSION, in order."""
    journal = open_reader(state or default_state())
    try:
        known = known_session(journal, session)
        stream = Hub(journal, look_again_s=FOLLOW_POLL_S).subscribe(known, after) if follow else None
        for event in stream if stream is not None else _recorded(journal, known, after):
            out(as_json(event_fields(event)) if json_form else line_of(event))
    finally:
        journal.close()


def _recorded(journal: SqliteJournal, session_id: SessionId, after: int) -> Iterator[Event]:
    while page := journal.events(session_id, after, PAGE_EVENTS):
        yield from page
        after = page[-1].seq


def event_fields(event: Event) -> dict[str, object]:
    """The envelope as JSON shows it, its type beside it."""
    return {
        "type": event.type,
        "session_id": event.session_id,
        "seq": event.seq,
        "at": event.at,
        "turn_id": event.turn_id,
        "message_id": event.message_id,
        "native_at": event.native_at,
        "body": event.body,
    }


def line_of(event: Event) -> str:
    """One event for a person."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.at)) + f".{int(event.at % 1 * 1000):03d}"
    return f"{event.seq:5d}  {clock}  {event.type:<20}  {describe(event)}"
