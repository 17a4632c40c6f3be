"""What the provider's own record says of one turn now, whatever the host observed (C42). Reads only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lastword.actors.core import events
from lastword.actors.core.adapter import Refused, SourceSpec
from lastword.actors.core.facts import Fact, PromptRecorded, TurnClosed
from lastword.actors.core.ports import SessionRow, TurnRow
from lastword.actors.core.world import Bytes, Files
from lastword.runtime._conversations import SCHEME, RecordFiles
from lastword.transports.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lastword.actors.core.adapter import Adapter
    from lastword.runtime._journal import SqliteJournal

CHUNK_BYTES = 1024 * 1024
SKEW_S = 1.0


def recorded_end(journal: SqliteJournal, session: SessionRow, row: TurnRow) -> TurnClosed | None:
    """The terminal record of that very turn, found by its native id; where it was never bound, by the prompt with its
    message's text, recorded since it was accepted and not bound to another turn. None where there is none.
    """
    from lastword.transports.providers import ADAPTERS  # noqa: PLC0415 - loaded for this alone

    adapter = ADAPTERS.get((session.provider, session.transport))
    path = _path(journal, session, row)
    if adapter is None or not path:
        return None
    cursor = session.cursor
    offset = cursor.offset if cursor is not None and cursor.path == path else 0
    native = row.native_turn
    files: Files = RecordFiles(journal) if path.startswith(SCHEME) else LocalFiles()
    for fact in _facts(adapter, files, path, session.native_session, offset):
        if not native and isinstance(fact, PromptRecorded) and _is_ours(journal, adapter, row, fact):
            native = fact.native_turn
        if native and isinstance(fact, TurnClosed) and fact.native_turn == native:
            return fact
    return None


def _path(journal: SqliteJournal, session: SessionRow, row: TurnRow) -> str:
    for event in journal.turn_events(row.turn_id):
        if isinstance(event.body, events.TurnStarted) and event.body.evidence is not None:
            return event.body.evidence.source
    return session.cursor.path if session.cursor is not None else ""


def _facts(adapter: Adapter, files: Files, path: str, native_session: str, offset: int) -> Iterator[Fact]:
    source = SourceSpec(kind="append-jsonl", path=path, root=str(Path(path).parent))
    oracle = adapter.oracle(source, native_session, offset)
    while isinstance(read := files.read_from(path, offset, CHUNK_BYTES, 0, 0), Bytes) and read.data:
        offset += len(read.data)
        yield from oracle.feed(path, read.data)


def _is_ours(journal: SqliteJournal, adapter: Adapter, row: TurnRow, prompt: PromptRecorded) -> bool:
    message = journal.message(row.message_id) if row.message_id is not None else None
    if message is not None and prompt.key:
        return adapter.key(message.message_id) == prompt.key
    at = prompt.evidence.native_at
    if message is None or at is None or at < message.accepted_at - SKEW_S:
        return False
    typed = adapter.escape(message.text)
    if isinstance(typed, Refused) or not adapter.matches(typed, prompt.text):
        return False
    bound = {turn.native_turn for turn in journal.turns(row.session_id) if turn.turn_id != row.turn_id}
    return prompt.native_turn not in bound
