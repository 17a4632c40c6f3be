"""``lastword explain``: the time line of one turn, out of the journal alone (C63).

Every boundary that a turn crosses, with its delay, and where the provider's own record says so. No text of a message
or an answer is shown (C62): it can be pasted into a bug report.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from lastword.actors.core import events
from lastword.actors.core.errors import UsageError
from lastword.actors.core.events import Event
from lastword.actors.core.ids import TurnId
from lastword.actors.core.outcome import Completion, Evidence
from lastword.actors.core.ports import SessionRow, TurnRow
from lastword.runtime.command._desk import open_reader
from lastword.runtime.command._record import recorded_end
from lastword.runtime.command._show import as_json, default_state, one_line, out, state_option, table

if TYPE_CHECKING:
    from lastword.runtime._journal import SqliteJournal

PAGE_EVENTS = 500


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One moment of the turn.

    Attributes:
        at: Unix seconds, by our clock; by the provider's where ``native``.
        since_accepted_ms, since_before_ms: the delays; None for the first one, or where the clocks differ.
    """

    at: float
    what: str
    seq: int | None = None
    native: bool = False
    evidence: Evidence | None = None
    since_accepted_ms: float | None = None
    since_before_ms: float | None = None


class RecordedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's own record holds the end of a turn that is not settled here. No text (C62): its length."""

    status: str
    evidence: Evidence
    answer_chars: int | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints."""

    turn_id: str
    session_id: str
    provider: str
    state: str
    status: str | None
    settled_by: str
    waits_for: str
    recorded_end: RecordedEnd | None
    points: tuple[Point, ...]


@click.command("explain")
@click.argument("turn")
@click.option("--json", "json_form", is_flag=True, help="One JSON object.")
@state_option
def command(turn: str, json_form: bool, state: Path | None) -> None:
    """Print the time line of TURN: who saw what when, and what settled it."""
    journal = open_reader(state or default_state())
    try:
        explanation = explain(journal, TurnId(turn), time.time())
    finally:
        journal.close()
    out(as_json(explanation) if json_form else _text(explanation))


def explain(journal: SqliteJournal, turn_id: TurnId, now_wall_s: float) -> Explanation:
    """The time line of a turn on record.

    Raises:
        UsageError: ``unknown_turn``.
    """
    row = journal.turn(turn_id)
    completion = journal.completion(turn_id)
    if row is None:
        raise UsageError(
            "unknown_turn", f"no turn {turn_id!r} is on record", remedy="`lastword events SESSION` names them"
        )
    session = journal.session(row.session_id)
    story = _story(journal, row, completion)
    return Explanation(
        turn_id=turn_id,
        session_id=row.session_id,
        provider=session.provider if session is not None else "",
        state=row.state,
        status=completion.status if completion is not None else None,
        settled_by=_settled_by(completion),
        waits_for="" if completion is not None else _waits_for(row, story, now_wall_s),
        recorded_end=_recorded_end(journal, session, row) if completion is None and session is not None else None,
        points=_points(row, completion, story),
    )


def _recorded_end(journal: SqliteJournal, session: SessionRow, row: TurnRow) -> RecordedEnd | None:
    end = recorded_end(journal, session, row)
    if end is None:
        return None
    chars = len(end.answer) if end.answer is not None else None
    return RecordedEnd(status=end.status, evidence=end.evidence, answer_chars=chars)


def _story(journal: SqliteJournal, row: TurnRow, completion: Completion | None) -> list[Event]:
    """Events of the turn, and of its messages from before they were bound to it."""
    messages = {row.message_id} if row.message_id is not None else set()
    if completion is not None:
        messages |= set(completion.joined)
        if completion.message_id is not None:
            messages.add(completion.message_id)
    story = {event.seq: event for event in journal.turn_events(row.turn_id)}
    if messages:
        after = 0
        while page := journal.events(row.session_id, after, PAGE_EVENTS):
            story |= {event.seq: event for event in page if event.message_id in messages}
            after = page[-1].seq
    return [story[seq] for seq in sorted(story)]


def _points(row: TurnRow, completion: Completion | None, story: list[Event]) -> tuple[Point, ...]:
    times = completion.times if completion is not None else None
    moments: list[Point] = []
    for at, what in (
        (row.accepted_at or None, "accepted"),
        ((times.submitted_at if times else None) or row.submitted_at, "typed and submitted"),
        ((times.bound_at if times else None) or row.bound_at, "bound to the native turn"),
        (times.terminal_seen_at if times else None, "terminal record seen"),
        (times.committed_at if times else None, "completion committed"),
    ):
        if at is not None:
            moments.append(Point(at=at, what=what))
    moments += [Point(at=event.at, what=_named(event), seq=event.seq, evidence=_evidence(event)) for event in story]
    if times is not None and times.native_started_at is not None:
        moments.append(Point(at=times.native_started_at, what="the provider's own start stamp", native=True))
    if times is not None and times.native_ended_at is not None:
        evidence = completion.evidence if completion is not None else None
        moments.append(
            Point(at=times.native_ended_at, what="the provider's own end stamp", native=True, evidence=evidence)
        )
    moments.sort(key=lambda point: (point.at, point.seq or 0))
    start = next((point.at for point in moments if not point.native), 0.0)
    told: list[Point] = []
    before: float | None = None
    for point in moments:
        told.append(
            msgspec.structs.replace(
                point,
                since_accepted_ms=round((point.at - start) * 1000, 3),
                since_before_ms=None if before is None else round((point.at - before) * 1000, 3),
            )
        )
        before = point.at
    return tuple(told)


def _named(event: Event) -> str:
    match body := event.body:
        case events.MessageAccepted():
            return f"{event.type} ({body.taken}, {body.chars} characters)"
        case events.ToolStarted() | events.ToolFinished():
            status = f" {body.status}" if isinstance(body, events.ToolFinished) else ""
            return f"{event.type} {one_line(body.name, 60)}{status}"
        case events.DialogOpened():
            return f"{event.type} ({body.kind})"
        case events.CompletionReached(completion=completion):
            return f"{event.type} ({completion.status})"
        case events.StallDiagnosed():
            return f"{event.type}: {one_line(body.waits_for, 80)}"
        case _:
            return event.type


def _evidence(event: Event) -> Evidence | None:
    body = event.body
    if isinstance(body, events.CompletionReached):
        return body.completion.evidence
    found = getattr(body, "evidence", None)
    return found if isinstance(found, Evidence) else None


def _settled_by(completion: Completion | None) -> str:
    if completion is None:
        return ""
    how = {
        "transcript": "a terminal record in the provider's transcript",
        "stream": "a terminal event in the provider's stream",
        "interrupt": "our interrupt, confirmed by the CLI",
        "process_exit": "the end of the CLI, its record read to the end",
        "delivery": "the delivery: the message never reached the CLI",
        "reconciler": "the reconciler, by an ordinary fact",
    }[completion.source]
    why = f", error {completion.error.kind}" if completion.error is not None else ""
    return how + why


def _waits_for(row: TurnRow, story: list[Event], now_wall_s: float) -> str:
    """What an open turn's own events say it waits for. Settles nothing."""
    tools: dict[str, Event] = {}
    dialog: Event | None = None
    for event in story:
        match event.body:
            case events.ToolStarted(call_id=call):
                tools[call] = event
            case events.ToolFinished(call_id=call):
                tools.pop(call, None)
            case events.DialogOpened():
                dialog = event
            case events.DialogClosed():
                dialog = None
            case _:
                pass
    if dialog is not None and isinstance(dialog.body, events.DialogOpened):
        return f"a person: a {dialog.body.kind} dialog is open since {now_wall_s - dialog.at:.0f} s"
    if tools:
        waiting = next(iter(tools.values()))
        assert isinstance(waiting.body, events.ToolStarted)
        return f"tool {one_line(waiting.body.name, 60)} for {now_wall_s - waiting.at:.0f} s"
    last = story[-1].at if story else row.accepted_at
    what = "the model" if row.bound_at is not None else "the CLI to take the message"
    return f"{what} for {now_wall_s - last:.0f} s"


# --- text ------------------------------------------------------------------------------------------------------------


def _text(told: Explanation) -> str:
    head = f"turn {told.turn_id} of session {told.session_id} ({told.provider}): {told.status or told.state}"
    files: dict[str, int] = {}
    rows = [
        (
            time.strftime("%H:%M:%S", time.localtime(point.at)) + f".{int(point.at % 1 * 1000):03d}",
            _ms(point.since_accepted_ms),
            "" if point.since_before_ms is None else f"+{_ms(point.since_before_ms)}",
            "" if point.seq is None else str(point.seq),
            point.what + (" (native clock)" if point.native else ""),
            _where(point.evidence, files),
        )
        for point in told.points
    ]
    lines = [one_line(head), table(rows, ("CLOCK", "MS", "DELAY", "SEQ", "WHAT", "EVIDENCE"))]
    lines += [f"[{number}] {one_line(path)}" for path, number in files.items()]
    if told.settled_by:
        lines.append(f"settled by {told.settled_by}")
    if told.recorded_end is not None:
        end = told.recorded_end
        at = end.evidence.native_at
        when = time.strftime(" at %H:%M:%S", time.localtime(at)) if at is not None else ""
        text = f" with an answer of {end.answer_chars} characters" if end.answer_chars is not None else ""
        where = f"{one_line(end.evidence.source)} byte {end.evidence.offset}"
        lines.append(one_line(f"not settled: {told.provider} {end.status}{when}{text} ({where}); no host observed it"))
    elif told.waits_for:
        lines.append(one_line(f"not settled: waits for {told.waits_for}"))
    return "\n".join(lines)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _where(evidence: Evidence | None, files: dict[str, int]) -> str:
    """Where it stands on record; the file by its number in ``files``, which is added to."""
    if evidence is None:
        return ""
    number = files.setdefault(evidence.source, len(files) + 1)
    stamp = ""
    if evidence.native_at is not None:
        stamp = " at " + time.strftime("%H:%M:%S", time.localtime(evidence.native_at))
        stamp += f".{int(evidence.native_at % 1 * 1000):03d}"
    return f"[{number}] byte {evidence.offset} id {evidence.native_id or '-'}{stamp}"
