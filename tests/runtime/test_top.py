"""What a look at a host's sessions says, what the journal alone says, and what looking costs."""

from __future__ import annotations

import threading

import pytest

from dialog_kit import PERMISSION
from host_kit import WAIT_S, HeldCommits, Rig, away, completed
from journal_samples import completion, session, turn
from kit_system import until
from lastword import events
from lastword.actors.core.errors import JournalError
from lastword.actors.core.events import Draft
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.outcome import Times
from lastword.actors.core.ports import Batch
from lastword.actors.system.clock import ManualClock
from lastword.runtime import _top_record as record
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._numbers import RATE_S, Numbers
from lastword.runtime._top import LINES_MAX, RECENT_MAX, Look, Top, percentiles, window
from lastword.runtime._top_record import RecordTop

STARTED = events.ProviderStarted(pid=1, pane="")


def names(top: Top) -> list[str]:
    return [line.session_id for line in top.lines]


# --- orders and windows --------------------------------------------------------------------------------------------------


def opened(session_id: str, at: float) -> events.Event:
    body = events.SessionOpened(provider="p", transport="memory", cwd="/", native_session_id="n")
    return events.Event(session_id=SessionId(session_id), seq=1, at=at, body=body)


def settled(session_id: str, at: float, took: float | None = 0.001, turn_id: str = "") -> events.Event:
    times = Times(committed_at=at, terminal_seen_at=None if took is None else at - took)
    done = completion(turn_id or f"t_{session_id}_{at}", session_id, times=times)
    return events.Event(session_id=SessionId(session_id), seq=2, at=at, body=events.CompletionReached(completion=done))


def started(session_id: str, at: float) -> events.Event:
    return events.Event(session_id=SessionId(session_id), seq=2, at=at, body=STARTED)


def began(session_id: str, at: float) -> events.Event:
    body = events.TurnStarted(origin="host")
    return events.Event(session_id=SessionId(session_id), seq=3, at=at, body=body, turn_id=TurnId(f"t_{session_id}"))


def asked(numbers: Numbers, sort: str = "state", lines: int = 10, offset: int = 0, now: float = 100.0):
    return numbers.lines(now, {}, Look(lines=lines, offset=offset, sort=sort))[1]


def test_each_order_puts_first_what_it_says():
    numbers = Numbers(lambda: 0.0)
    numbers.committed([opened(name, 1.0) for name in "abcd"] + [started(name, 2.0) for name in "abcd"])
    numbers.committed([began("c", 3.0), began("b", 4.0), settled("d", 5.0, 0.5), settled("a", 6.0, 2.0)])
    assert [line.session_id for line in asked(numbers)] == ["c", "b", "a", "d"]
    assert [line.session_id for line in asked(numbers, "age")] == ["a", "d", "c", "b"]
    assert [line.session_id for line in asked(numbers, "latency")] == ["a", "d", "b", "c"]
    assert [line.session_id for line in asked(numbers, "name")] == ["a", "b", "c", "d"]


def test_the_age_of_a_state_begins_with_it_and_not_with_each_event():
    numbers = Numbers(lambda: 0.0)
    said = events.Event(session_id=SessionId("a"), seq=9, at=30.0, body=events.AssistantMessage(text="x"))
    numbers.committed([opened("a", 1.0), started("a", 2.0), began("a", 10.0), said])
    line = asked(numbers)[0]
    assert (line.state, line.state_age_s, line.last_event_age_s) == ("busy", 90.0, 70.0)
    numbers.committed([began("a", 35.0)])
    assert asked(numbers)[0].state_age_s == 90.0
    numbers.committed([settled("a", 40.0, turn_id="t_a")])
    line = asked(numbers)[0]
    assert (line.state, line.state_age_s, line.turns, line.open_turns) == ("idle", 60.0, 1, 0)


def test_the_percentiles_are_of_the_latest_turns_and_what_is_kept_is_bounded():
    numbers = Numbers(lambda: 0.0)
    numbers.committed([opened("a", 0.0)])
    assert asked(numbers)[0].commit_p50_s is None
    numbers.committed([settled("a", 10.0 + n, 9.0) for n in range(50)])
    numbers.committed([settled("a", 100.0 + n, (n + 1) / 128, f"later {n}") for n in range(RECENT_MAX)])
    line = asked(numbers)[0]
    assert (line.turns, line.last_commit_s) == (50 + RECENT_MAX, 1.0)
    assert line.commit_p50_s == pytest.approx(0.5)
    assert line.commit_p99_s == pytest.approx(127 / 128)
    assert len(numbers._known[SessionId("a")].recent) == RECENT_MAX
    numbers.committed([settled("a", 300.0, None)])  # no terminal record was seen: nothing is measured of it
    assert asked(numbers)[0].last_commit_s is None


def test_percentiles_are_values_that_were_measured():
    assert percentiles(()) is None
    assert percentiles([3.0]) == (3.0, 3.0)
    assert percentiles([2.0, 1.0]) == (1.0, 2.0)
    assert percentiles([float(n) for n in range(1, 101)]) == (50.0, 99.0)


def test_completions_a_second_are_those_of_the_last_whole_seconds():
    now = 0.0
    numbers = Numbers(lambda: now)
    numbers.committed([opened("a", 0.0), *(settled("a", 100.0 + n / 10, turn_id=f"t{n}") for n in range(100))])
    assert numbers.turns_per_s(110.5) == 10.0
    assert numbers.turns_per_s(115.5) == 5.0
    assert numbers.turns_per_s(110.5 + RATE_S) == 0.0
    assert numbers.turns_per_s(50.0) == 0.0  # the clock was set back


def test_a_window_beyond_the_end_is_the_last_lines_and_an_answer_is_bounded():
    places = [((0.0, 0.0, f"{n:04}"), n) for n in range(LINES_MAX + 50)]
    assert window(places, Look(lines=3)) == (0, [0, 1, 2])
    assert window(places, Look(lines=2, offset=10**9)) == (LINES_MAX + 48, [LINES_MAX + 48, LINES_MAX + 49])
    assert len(window(places, Look(lines=10**9))[1]) == LINES_MAX
    assert window(places, Look(lines=-1, offset=-5)) == (0, [])
    assert window([], Look(lines=5, offset=5)) == (0, [])


def test_a_look_goes_on_while_the_fold_does():
    numbers = Numbers(lambda: 0.0)
    numbers.committed([opened(f"s{n}", 0.0) for n in range(50)])
    ended = threading.Event()

    def fold() -> None:
        at = 0
        while not ended.is_set():
            at += 1
            numbers.committed(
                [began(f"s{at % 50}", float(at)), settled(f"s{at % 50}", float(at), turn_id=f"t_s{at % 50}")]
            )

    folding = away(fold)
    try:
        for n in range(200):
            assert len(asked(numbers, ("state", "age", "latency", "name")[n % 4], 50)) == 50
    finally:
        ended.set()
    folding.result(WAIT_S)


# --- a living host -------------------------------------------------------------------------------------------------------


def test_a_commit_under_way_is_told_as_the_journals_wait(make, monkeypatch):
    rig = make(manual=True)
    session = rig.session()
    rig.ready(session)
    rig.settle()
    assert rig.runtime._top(Look(lines=1)).journal_wait_s == 0.0
    began, go_on = threading.Event(), threading.Event()
    real = SqliteJournal._record

    def held(*args):
        began.set()
        assert go_on.wait(WAIT_S)
        return real(*args)

    monkeypatch.setattr(SqliteJournal, "_record", held)
    waiting = away(session.send, "x")
    assert began.wait(WAIT_S)
    until(lambda: rig.runtime._top(Look(lines=1)).journal_wait_s > 0.01, within_s=WAIT_S)
    go_on.set()
    waiting.result(WAIT_S)
    rig.settle()
    assert rig.runtime._top(Look(lines=1)).journal_wait_s == 0.0


@pytest.mark.contract("C13")
def test_c13_batches_that_wait_for_the_journal_are_told(make, monkeypatch):
    rig = make(manual=True)
    sessions = [rig.session() for _ in range(3)]
    for each in sessions:
        rig.ready(each)
    held = HeldCommits(monkeypatch, lambda batch: batch.accept is not None)
    waiting = [away(sessions[0].send, "x")]
    held.wait()
    waiting += [away(each.send, "x") for each in sessions[1:]]
    until(lambda: rig.runtime._top(Look(lines=1)).journal_behind == 2, within_s=WAIT_S)
    held.release()
    for each in waiting:
        each.result(WAIT_S)


# --- the journal alone ---------------------------------------------------------------------------------------------------


def test_the_journal_says_the_states_that_the_host_said(make):
    rig = make(manual=True)
    idle, busy, asked, gone, closed = (rig.session() for _ in range(5))
    for each in (idle, busy, asked, gone, closed):
        rig.ready(each)
    waiting = away(idle.run, "go")
    rig.running(idle).finish("done")
    waiting.result(WAIT_S)
    for each in (busy, asked):
        each.send("go")
        rig.running(each)
    rig.cli(asked).open_dialog(PERMISSION)
    rig.cli(gone).exit(1)
    closed.close()
    until(lambda: rig.runtime.metrics().sessions["awaiting_user"] == rig.runtime.metrics().sessions["gone"] == 1)
    rig.settle()
    told, on_record = rig.runtime._top(Look(lines=10)), RecordTop(rig.state).look(Look(lines=10))
    assert (told.live, on_record.live) == (True, False)
    assert on_record.sessions == told.sessions
    assert (on_record.open_turns, on_record.completions) == (told.open_turns, told.completions) == (2, 1)
    for here, there in zip(told.lines, on_record.lines, strict=True):
        same = ("session_id", "provider", "transport", "state", "open_turns", "turn_id", "last_event", "turns")
        for name in (*same, "last_status", "last_commit_s", "commit_p50_s", "commit_p99_s"):
            assert getattr(here, name) == getattr(there, name), name
        for name in ("state_age_s", "last_event_age_s"):
            assert getattr(here, name) == pytest.approx(getattr(there, name), abs=10.0), name
    for sort in ("state", "age", "latency", "name"):
        look = Look(lines=2, offset=1, sort=sort)
        assert names(RecordTop(rig.state).look(look)) == names(rig.runtime._top(look)), sort


def test_a_journal_that_does_not_change_is_read_once_and_one_that_grows_at_its_rest(make, monkeypatch):
    rig = make()
    session = rig.session()
    session.run("x")
    rig.settle()
    now = [0.0]
    looked = RecordTop(rig.state, mono=lambda: now[0])
    real = record._Reading.__init__

    def slow(self, folder) -> None:
        now[0] += 1.0
        real(self, folder)

    monkeypatch.setattr(record._Reading, "__init__", slow)
    for _ in range(5):
        assert looked.look(Look(lines=5)).completions == 1
    assert looked.readings == 1
    session.run("y")
    rig.settle()
    assert looked.look(Look(lines=5)).completions == 1  # it rests
    now[0] += record.REST_FACTOR
    assert looked.look(Look(lines=5)).completions == 2
    assert looked.readings == 2


def test_ages_on_record_go_on_with_the_clock_though_nothing_is_read(make):
    rig = make()
    rig.session().run("x")
    rig.settle()
    clock = ManualClock()
    looked = RecordTop(rig.state, wall=clock.wall)
    first = looked.look(Look(lines=1)).lines[0]
    clock.advance(1000.0)
    later = looked.look(Look(lines=1)).lines[0]
    assert later.last_event_age_s >= first.last_event_age_s
    assert looked.readings == 1


def test_a_journal_that_goes_away_and_another_one_are_seen(tmp_path):
    state = tmp_path / "state"
    journal = SqliteJournal.open(state)
    journal.record([Batch(session_id=SessionId("s_1"), session=session("s_1"))], 1.0)
    journal.close()
    looked = RecordTop(state)
    assert names(looked.look(Look(lines=5))) == ["s_1"]
    for path in state.glob("journal.db*"):
        path.unlink()
    with pytest.raises(JournalError):
        looked.look(Look(lines=5))
    journal = SqliteJournal.open(state)
    journal.record([Batch(session_id=SessionId("s_2"), session=session("s_2"))], 1.0)
    journal.close()
    assert names(looked.look(Look(lines=5))) == ["s_2"]


def test_looking_keeps_no_host_out_and_sees_what_it_writes(tmp_path):
    with Rig(tmp_path) as rig:
        rig.session().run("x")
    looked = RecordTop(tmp_path / "state", mono=lambda: 0.0)  # it never rests
    looked.look(Look(lines=5))
    with Rig(tmp_path) as rig:
        rig.session().run("x")
        rig.settle()
        assert looked.look(Look(lines=5)).completions == 2
    assert looked.look(Look(lines=5)).completions == 2


@pytest.mark.parametrize(
    ("drafts", "open_turn", "state", "age"),
    [
        (
            (events.SessionOpened(provider="p", transport="memory", cwd="/", native_session_id="n"),),
            False,
            "starting",
            99.0,
        ),
        ((STARTED,), False, "idle", 99.0),
        ((STARTED,), True, "busy", 90.0),
        ((STARTED, events.SessionGone(reason="x")), True, "gone", 99.0),
        ((events.SessionGone(reason="x"), STARTED), False, "idle", 99.0),
        ((events.AssistantMessage(text="x"),) * 100, False, "idle", None),
    ],
)
def test_the_newest_events_on_record_tell_the_state(tmp_path, drafts, open_turn, state, age):
    journal = SqliteJournal.open(tmp_path)
    turns = (turn("t_1", accepted_at=10.0),) if open_turn else ()
    batch = Batch(
        session_id=SessionId("s_1"), session=session(), turns=turns, drafts=tuple(Draft(body=body) for body in drafts)
    )
    journal.record([batch], 1.0)
    journal.close()
    line = RecordTop(tmp_path, wall=lambda: 100.0).look(Look(lines=5)).lines[0]
    assert (line.state, line.state_age_s) == (state, age)


def test_a_thousand_sessions_on_record_are_read_once_and_only_those_shown_in_full(tmp_path):
    journal = SqliteJournal.open(tmp_path, durability="process")
    batches = [
        Batch(
            session_id=SessionId(f"s_{n:04}"),
            session=session(f"s_{n:04}"),
            completion=completion(f"t_{n}", f"s_{n:04}"),
        )
        for n in range(1000)
    ]
    for at in range(0, 1000, 250):
        journal.record(batches[at : at + 250], 1.0)
    journal.close()
    looked = RecordTop(tmp_path, mono=lambda: 0.0)  # it never rests
    assert names(looked.look(Look(lines=20, sort="name"))) == [f"s_{n:04}" for n in range(20)]
    assert looked.look(Look(lines=20, offset=990, sort="name")).lines[-1].turns == 1
    assert (looked.readings, len(looked._outlines)) == (1, 40)


def test_the_host_counts_a_turn_that_it_took_over_and_settled(make):
    rig = make(manual=True)
    busy = rig.session()
    busy.send("go")
    cli = rig.running(busy)
    rig.abandon()
    rig.world.host_died()
    on_record = RecordTop(rig.state).look(Look(lines=1)).lines[0]
    assert (on_record.state, on_record.open_turns, on_record.turns) == ("busy", 1, 0)
    later = make(world=rig.world)
    cli.finish("done")
    completed(later, later.runtime.session(session_id=busy.session_id))
    until(lambda: later.runtime._top(Look(lines=1)).lines[0].turns == 1, within_s=WAIT_S)
