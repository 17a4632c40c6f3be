"""``lastword sessions``: what is on record in a state folder. Reads the journal only."""

from __future__ import annotations

import time
from pathlib import Path

import click

from lastword.runtime.command._desk import host_lives, open_reader
from lastword.runtime.command._show import as_json, default_state, out, state_option, table


@click.command("sessions")
@click.option("--json", "json_form", is_flag=True, help="One JSON object.")
@state_option
def command(json_form: bool, state: Path | None) -> None:
    """List the sessions of the state folder, oldest first."""
    folder = state or default_state()
    journal = open_reader(folder)
    try:
        rows = journal.sessions()
        facts = []
        for row in rows:
            last = journal.last_completion(row.session_id)
            facts.append(
                {
                    "session_id": row.session_id,
                    "provider": row.provider,
                    "transport": row.transport,
                    "state": row.state,
                    "cwd": row.cwd,
                    "opened_at": row.opened_at,
                    "turns": journal.turn_count(row.session_id),
                    "open_turns": [turn.turn_id for turn in journal.turns(row.session_id, unsettled=True)],
                    "last_turn_id": last.turn_id if last is not None else None,
                    "last_status": last.status if last is not None else None,
                }
            )
    finally:
        journal.close()
    if json_form:
        out(as_json({"host_lives": host_lives(folder), "sessions": facts}))
        return
    shown = [
        (
            str(fact["session_id"]),
            str(fact["provider"]),
            str(fact["state"]),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.opened_at)),
            str(fact["turns"]),
            str(fact["last_turn_id"] or "-"),
            str(fact["last_status"] or "-"),
            str(fact["cwd"]),
        )
        for fact, row in zip(facts, rows, strict=True)
    ]
    out(table(shown, ("SESSION", "PROVIDER", "STATE", "OPENED", "TURNS", "LAST TURN", "ENDED", "CWD")))
