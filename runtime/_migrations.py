"""Forward steps of the journal's schema. A step is never changed once released; a new one is added at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STEPS: Final[Mapping[int, str]] = {
    # From version 1: the events of one turn by index, the tool bridge's receipts, violations under their own name.
    2: """
    CREATE INDEX event_by_turn ON event (turn_id, seq) WHERE turn_id IS NOT NULL;
    CREATE TABLE receipt (
        session_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        turn_id TEXT,
        at REAL NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (session_id, call_id)
    ) WITHOUT ROWID;
    CREATE VIEW violation AS SELECT session_id, seq, at, turn_id, body FROM event WHERE type = 'invariant_violation';
    """,
    # To version 3: what is open, and which turn a native one was, by index: a restart costs what is open.
    3: """
    CREATE INDEX turn_open ON turn (session_id, ord) WHERE state <> 'settled';
    CREATE INDEX turn_by_native ON turn (session_id, json_extract(body, '$.native_turn')) WHERE state = 'settled';
    CREATE INDEX message_loose ON message (session_id, ord)
        WHERE turn_id IS NULL AND state NOT IN ('joined', 'undelivered');
    CREATE INDEX message_by_turn ON message (turn_id) WHERE turn_id IS NOT NULL;
    """,
    # To version 4: the record of conversations that have no file of their own (docs/adr/0011).
    4: """
    CREATE TABLE line (
        conversation TEXT NOT NULL,
        at INTEGER NOT NULL,
        body TEXT NOT NULL
    );
    CREATE UNIQUE INDEX line_by_place ON line (conversation, at);
    """,
}
"""What brings a file to the version of the key, from the one before."""

SCHEMA_VERSION: Final = max(STEPS)


def steps_from(version: int) -> list[tuple[int, str]]:
    """The steps that a file of that version still needs, in order."""
    return [(target, STEPS[target]) for target in range(version + 1, SCHEMA_VERSION + 1)]
