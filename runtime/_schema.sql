-- The journal's schema, as of the version in _migrations.py; what a new file gets. An older file gets there step by
-- step, and a test compares the two. Bodies are JSON text, so that any SQLite tool can read them; the other columns
-- are keys and what is searched for, written from the same struct in the same statement.

CREATE TABLE meta (
    key TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE session (
    ord INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    cursor TEXT,
    body TEXT NOT NULL
);

CREATE TABLE message (
    ord INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    state TEXT NOT NULL,
    turn_id TEXT,
    accepted_seq INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX message_by_session ON message (session_id, ord);
CREATE INDEX message_loose ON message (session_id, ord)
        WHERE turn_id IS NULL AND state NOT IN ('joined', 'undelivered');
CREATE INDEX message_by_turn ON message (turn_id) WHERE turn_id IS NOT NULL;

CREATE TABLE turn (
    ord INTEGER PRIMARY KEY,
    turn_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    state TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX turn_by_session ON turn (session_id, ord);
CREATE INDEX turn_open ON turn (session_id, ord) WHERE state <> 'settled';
-- Asked for each prompt that a record shows: whether it was over before.
CREATE INDEX turn_by_native ON turn (session_id, json_extract(body, '$.native_turn')) WHERE state = 'settled';

-- The row that makes it true that a turn is over: one per turn, never replaced.
CREATE TABLE completion (
    turn_id TEXT PRIMARY KEY NOT NULL,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL,
    committed_at REAL NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX completion_by_session ON completion (session_id, seq);

CREATE TABLE event (
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    type TEXT NOT NULL,
    turn_id TEXT,
    message_id TEXT,
    native_at REAL,
    once TEXT,
    body TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX event_once ON event (session_id, once) WHERE once IS NOT NULL;
CREATE INDEX event_by_turn ON event (turn_id, seq) WHERE turn_id IS NOT NULL;

-- What the tool bridge itself executed; wins over what a transcript intended.
CREATE TABLE receipt (
    session_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    turn_id TEXT,
    at REAL NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session_id, call_id)
) WITHOUT ROWID;

-- The record of conversations that have no file of their own: what was told to a model's API and heard of it, a line
-- each, at its offset in bytes (docs/adr/0011).
CREATE TABLE line (
    conversation TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX line_by_place ON line (conversation, at);

-- What the reconciler found and repaired: the events that say so.
CREATE VIEW violation AS SELECT session_id, seq, at, turn_id, body FROM event WHERE type = 'invariant_violation';
