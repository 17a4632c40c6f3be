"""``lastword send``: a message, an interrupt or an answer for a session of the live host of the state folder."""

from __future__ import annotations

from pathlib import Path

import click

from lastword.actors.core.errors import LastwordError, RejectedError
from lastword.actors.core.ids import TurnId
from lastword.runtime.command._desk import RemoteDesk, known_session, open_reader
from lastword.runtime.command._show import SECONDS, as_json, default_state, one_line, out, read_stdin, state_option


@click.command("send")
@click.argument("session")
@click.argument("text", required=False)
@click.option("--deadline", type=SECONDS, help="Cancel its turn after so many seconds.")
@click.option("--message-id", help="Your own id: the same id again is delivered once.")
@click.option("--interrupt", is_flag=True, help="Cancel the running turn.")
@click.option("--turn", help="With --interrupt: only this turn.")
@click.option("--answer", nargs=2, type=(str, int), metavar="DIALOG OPTION", help="Answer an open dialog.")
@click.option("--json", "json_form", is_flag=True, help="Print the acknowledgement as JSON.")
@state_option
def command(
    session: str,
    text: str | None,
    *,
    deadline: float | None,
    message_id: str | None,
    interrupt: bool,
    turn: str | None,
    answer: tuple[str, int] | None,
    json_form: bool,
    state: Path | None,
) -> None:
    """Send TEXT (``-``: from stdin) to SESSION of a running host; returns with the acknowledgement."""
    if sum((text is not None, interrupt, answer is not None)) != 1:
        raise click.UsageError("give one of TEXT, --interrupt and --answer")
    if turn is not None and not interrupt:
        raise click.UsageError("--turn is for --interrupt: a text goes to the session, whatever turn runs")
    if (deadline is not None or message_id is not None) and text is None:
        raise click.UsageError("--deadline and --message-id are for a TEXT")
    folder = state or default_state()
    journal = open_reader(folder)
    try:
        desk = RemoteDesk(folder, journal, known_session(journal, session))
        try:
            if interrupt:
                ack = desk.interrupt(TurnId(turn) if turn else None)
            elif answer is not None:
                ack = desk.answer(*answer)
            else:
                said = read_stdin() if text == "-" else (text or "")
                if not said.strip():
                    raise RejectedError("empty_message", "the message is empty", remedy="Give it a text")
                ack = desk.send(said, message_id=message_id, deadline_s=deadline)
        except LastwordError as error:
            if error.kind == "host_unreachable":
                error.reason = f"session {session} has no live host: nobody serves {folder}"
            raise
    finally:
        journal.close()
    if json_form:
        out(as_json(ack))
    else:
        turn_id = f" turn {ack.turn_id}" if ack.turn_id else ""
        twice = " (known already)" if ack.duplicate else ""
        out(one_line(f"{ack.taken} message {ack.message_id}{turn_id} seq {ack.seq}{twice}"))
