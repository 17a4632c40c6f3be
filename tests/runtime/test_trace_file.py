"""A trace file read again: parts of several hosts, torn and foreign lines, causes that were lost."""

from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest

from lastword import UsageError
from lastword.actors.system.tracing import FORMAT, Bound, CommitSpan, Delivered, Head, Hop, Hops, Lost
from lastword.runtime import _trace
from lastword.runtime._trace import read_trace, role
from lastword.runtime._trace_path import critical_path
from lastword.runtime._trace_perfetto import lane_name, perfetto
from lastword.runtime.command.trace import command

S, T = "s_0000000000000000000000session", "t_00000000000000000000000000turn"
TURN = f"{S}/{T}#1"


def head(process="p1", format_=FORMAT, wall_s=1000.0):
    return Head(format_, process, 7, wall_s, 0)


def a_turn(first=1):
    """The shortest whole story: called, committed, typed, the CLI works, seen, committed, delivered."""
    one, two, three, four, five, six, seven, eight = range(first, first + 8)
    return [
        Hop(one, 0, T, None, S, "Submit", 100, 110, 150, "host"),
        Hop(two, one, T, S, "journal", "Commit", 140, 160, 170),
        CommitSpan(three, two, T, 165, 170, 200, S, 1, 1),
        Hop(four, three, T, "journal", S, "Committed", 210, 220, 260),
        Hop(five, four, T, S, f"{S}/pane", "Deliver", 250, 270, 300),
        Hop(six, 0, None, None, S, "FactsRead(TurnClosed)", 900, 910, 950, "file_watch"),
        Hop(seven, six, T, S, TURN, "Tell(TurnClosed)", 940, 960, 990),
        CommitSpan(eight, seven, T, 985, 995, 1020, S, 2, 3),
        Delivered(first + 8, T, "unified_completion", S, 3, 1050, 1000.05, 1000.0, 1000.04, 1000.045),
    ]


def written(tmp_path, *records, tail=b""):
    path = tmp_path / "t.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(list(records)) + tail)
    return path


def drawn(trace):
    return json.loads(b"".join(perfetto(trace)))["traceEvents"]


def test_the_path_joins_the_call_the_cli_and_the_completion_without_a_gap(tmp_path):
    trace = read_trace(written(tmp_path, head(), *a_turn()))
    assert trace.turns() == [T]
    found = critical_path(trace, T)
    assert found.whole
    assert found.total_ns == 1050 - 100 == sum(piece.ns for piece in found.pieces)
    assert (found.sum_ns("wait"), found.sum_ns("outside")) == (10 + 20 + 5 + 10 + 20 + 10 + 20 + 10 + 30, 10 + 600)
    assert [(piece.what, piece.ns) for piece in found.pieces if piece.step is None] == [
        ("journal", 10),
        ("the CLI works", 600),
    ]
    assert (found.since_woken_ns, found.since_seen_ns) == (150, 90)
    assert (round(found.measured_ms), round(found.measured_seen_ms)) == (50, 10)
    assert critical_path(trace, "t_unknown") is None


def test_hosts_that_wrote_one_after_the_other_into_a_file_are_kept_apart(tmp_path):
    """Their ids are the same; the second one's clock began anew."""
    later = [msgspec.structs.replace(record, trace="t_later") if record.trace else record for record in a_turn()]
    path = written(tmp_path, head(), *a_turn(), head("p2", wall_s=2000.0), *later)
    trace = read_trace(path)
    assert trace.turns() == [T, "t_later"]
    assert all(critical_path(trace, turn).total_ns == 950 for turn in trace.turns())
    events = drawn(trace)
    starts = {event["pid"]: event["ts"] for event in reversed(events) if event["ph"] == "X"}
    assert starts[2] - starts[1] == 1000 * 1e6
    tids = [event["tid"] for event in events if event["name"] == "thread_name"]
    assert len(tids) == len(set(tids))


def test_a_line_that_is_being_written_is_left_out_and_a_foreign_one_counted(tmp_path):
    path = written(tmp_path, head(), *a_turn(), Lost(3), tail=b'{"type":"no"}\nnonsense\n{"type":"hop","id":1')
    trace = read_trace(path)
    assert (len(trace.steps), trace.lost, trace.unread) == (9, 3, 2)


def test_a_hop_whose_cause_was_lost_begins_a_chain(tmp_path):
    kept = [record for record in a_turn() if getattr(record, "id", 0) != 6]
    found = critical_path(read_trace(written(tmp_path, head(), *kept, Lost(1))), T)
    assert found.pieces[-2].step.message == "unified_completion"
    assert sum(piece.ns for piece in found.pieces) == found.total_ns
    cut = critical_path(read_trace(written(tmp_path, head(), *a_turn()[5:])), T)
    assert (cut.whole, cut.total_ns, cut.pieces[0].step.origin) == (False, 150, "file_watch")


def test_a_turn_that_another_one_made_wait_says_so(tmp_path):
    """The call was kept until the turn before was over: what is told then is told in that one's handling."""
    other = Hop(20, 0, "t_before", TURN, S, "TurnFinished", 130, 150, 180)
    story = a_turn(21)
    story[0] = msgspec.structs.replace(story[0], trace=None, ended_ns=120)
    story[1] = msgspec.structs.replace(story[1], cause=20, enqueued_ns=155)
    found = critical_path(read_trace(written(tmp_path, head(), other, *story, Bound(T, hop=21))), T)
    assert (found.whole, found.total_ns) == (True, 950)
    assert next((piece.what, piece.ns) for piece in found.pieces if piece.step is None) == (
        "the turn before it ends",
        35,
    )
    assert "t_before" not in {piece.step.turn for piece in found.pieces if piece.step is not None}


def test_what_is_no_trace_or_a_newer_one_is_refused(tmp_path):
    for path in (written(tmp_path, head(format_=FORMAT + 1)), tmp_path / "none", tmp_path):
        with pytest.raises(UsageError) as caught:
            read_trace(path)
        assert caught.value.kind == "file_unreadable"
    with pytest.raises(UsageError, match="is no trace"):
        read_trace(written(tmp_path, *a_turn()))


def test_actors_are_named_by_their_part(tmp_path):
    assert [role(name) for name in (S, f"{S}/pane", TURN, "journal", None)] == [
        "session",
        "pane",
        "turn",
        "journal",
        "",
    ]
    assert [lane_name(name) for name in (S, f"{S}/pane#2", TURN, TURN[:-1] + "2", "journal")] == [
        "session ession",
        "pane#2 ession",
        "turn 00turn",
        "turn 00turn #2",
        "journal",
    ]


def test_a_message_is_of_the_turn_that_it_was_bound_to_by_its_id_by_its_hop_or_by_both(tmp_path):
    """A parked call is known by the hop that brought it, as a message; the message is bound to a turn later on."""
    hops = [
        Hop(1, 0, "m_one", None, S, "Submit", 1, 2, 3, "host"),
        Hop(2, 0, "m_two", None, S, "Submit", 1, 2, 3, "host"),
        Hop(3, 0, None, None, S, "Submit", 1, 2, 3, "host"),
        Hop(4, 0, "m_never", None, S, "Submit", 1, 2, 3, "host"),
    ]
    ties = [Bound(T, "m_one"), Bound("m_two", hop=3), Bound(T, "m_two")]
    trace = read_trace(written(tmp_path, head(), *hops, *ties, head("p2"), *hops[:2]))
    assert [step.turn for step in trace.steps.values()] == [T, T, T, "m_never", "m_one", "m_two"]
    assert [step.key for step in trace.of(T)] == [("p1", 1), ("p1", 2), ("p1", 3)]


def test_a_call_that_returned_is_caused_by_the_end_of_its_own_turn(tmp_path):
    """Where nobody follows the events, the path leads to the caller that waited."""
    returned = Delivered(12, T, "run", S, 0, 1200, 1000.1, 1000.0, 1000.04, 1000.045)
    other = msgspec.structs.replace(returned, id=13, trace="t_other", at_ns=1100)
    ends = [
        Hop(10, 8, T, S, S, "TurnFinished", 1030, 1040, 1060),
        Hop(11, 0, "t_other", S, S, "TurnFinished", 1030, 1070, 1090),
    ]
    trace = read_trace(written(tmp_path, head(), *a_turn()[:-1], *ends, returned, other))
    step = trace.steps["p1", 12]
    assert (step.cause, step.receiver, step.enqueued_ns) == (("p1", 10), "host", 1040)
    found = critical_path(trace, T)
    assert (found.whole, found.total_ns, found.pieces[-1].step.message) == (True, 1100, "run")
    assert round(found.measured_ms) == 100
    assert critical_path(trace, "t_other").pieces[0].begin_ns == 1030


def test_a_torn_line_in_the_middle_hides_none_of_the_next_host(tmp_path):
    """The writer begins on a line of its own; were it not so, its records would be taken for the first one's."""
    later = [msgspec.structs.replace(record, trace="t_later") if record.trace else record for record in a_turn()]
    torn = msgspec.json.Encoder().encode_lines([head(), *a_turn()])[:-20]
    path = written(tmp_path, head("p2"), *later)
    path.write_bytes(torn + b"\n\n" + path.read_bytes())
    trace = read_trace(path)
    assert (trace.unread, list(trace.heads)) == (1, ["p1", "p2"])
    assert {step.key[0] for step in trace.of("t_later")} == {"p2"}
    assert critical_path(trace, "t_later").total_ns == 950


def test_numbers_of_somebody_elses_file_lead_in_no_circle_and_fill_no_memory(tmp_path):
    """A file from a report is somebody's: whatever stands in it is read to an end."""
    story = a_turn()
    story[0] = msgspec.structs.replace(story[0], cause=9)  # the delivery
    story[3] = msgspec.structs.replace(story[3], cause=5)
    story[4] = msgspec.structs.replace(story[4], cause=4)
    story[5] = msgspec.structs.replace(story[5], cause=6)
    story[7] = msgspec.structs.replace(story[7], seq_to=10**15)
    long = b'["hop",1,0,"' + b"x" * (3 * _trace.LINE_BYTES_MAX) + b'"]\n'
    story.append(Hop(10, 9, T, None, S, "of a delivery", 1, 2, 3))
    trace = read_trace(written(tmp_path, head(), *story, tail=long))
    assert [trace.steps["p1", number].cause for number in (1, 4, 6, 10)] == [None] * 4
    assert trace.steps["p1", 9].cause == ("p1", 8)
    assert trace.unread == 1
    assert critical_path(trace, T).total_ns > 0
    assert drawn(trace)


def test_of_a_huge_file_the_newest_is_held_and_the_rest_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(_trace, "RECORDS_MAX", 12)
    later = [msgspec.structs.replace(record, trace="t_later") if record.trace else record for record in a_turn(20)]
    trace = read_trace(written(tmp_path, head(), *a_turn(), *later))
    assert (len(trace.steps), trace.older, trace.lost) == (12, 6, 0)
    assert critical_path(trace, "t_later").whole


def test_a_head_that_no_clock_told_and_a_name_without_end_are_foreign_lines(tmp_path):
    good = a_turn()
    heads = [head("p2", wall_s=1e305), msgspec.structs.replace(head("p3"), at_ns=10**40), head("p" * 1_001)]
    named = msgspec.structs.replace(good[0], receiver="x" * 1_001)
    numbered = [msgspec.structs.replace(good[0], id=10**400), msgspec.structs.replace(good[8], delivered_at=1e300)]
    trace = read_trace(written(tmp_path, head(), *good, *heads, named, *numbered))
    assert (trace.unread, list(trace.heads), len(trace.steps)) == (6, ["p1"], 9)
    assert drawn(trace)
    assert critical_path(trace, T).whole


def test_what_a_file_binds_and_who_wrote_it_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(_trace, "RECORDS_MAX", 12)
    unused = (Bound("t_x", f"m_{number}") for number in range(100_000))
    path = written(tmp_path, head(), *unused, Bound(T, "m_last"), Hop(1, 0, "m_last", None, S, "Submit", 1, 2, 3))
    tracemalloc.start()
    try:
        trace = read_trace(path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert trace.steps["p1", 1].turn == T
    assert peak_bytes < 2_000_000
    monkeypatch.setattr(_trace, "HOSTS_MAX", 3)
    with pytest.raises(UsageError, match="more than 3 hosts"):
        read_trace(written(tmp_path, *(head(f"p{number}") for number in range(4))))
    assert len(read_trace(written(tmp_path, *(head(f"p{number}") for number in range(3)))).heads) == 3


@pytest.mark.parametrize("form", ["perfetto", "jsonl"])
def test_a_conversion_holds_some_half_a_kilobyte_of_each_record(tmp_path, form):
    """A file may have 500,000 that are read: it took 2 GiB to convert them."""
    count = 12_000
    times = ((100 * n, 100 * n + 40, 100 * n + 90) for n in range(1, count + 1))
    hops = [Hop(n, n - 1, f"{T}{n // 30}", S, f"{S}/{T}{n // 30}#1", "Tell", *each) for n, each in enumerate(times, 1)]
    file, target = written(tmp_path, head(), *hops), tmp_path / "out"
    del hops
    tracemalloc.start()
    try:
        command.main(["convert", str(file), "--to", form, "-o", str(target)], standalone_mode=False)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert target.read_bytes().count(T.encode()) > count
    assert peak_bytes < 700 * count


@pytest.mark.parametrize("form", ["perfetto", "jsonl", "svg"])
def test_what_cannot_be_converted_leaves_the_target_as_it_was(tmp_path, form):
    target = tmp_path / "out"
    target.write_text("mine")
    words = ["convert", str(written(tmp_path, head(), *a_turn())), "--to", form, "--turn", "t_none", "-o", str(target)]
    with pytest.raises(UsageError, match="no turn 't_none'"):
        command.main(words, standalone_mode=False)
    assert target.read_text() == "mine"


def test_the_path_of_a_turn_of_many_hops_is_found_in_a_time_that_grows_with_them_alone(tmp_path):
    """Counted, not timed: looks at a step's cause, in a turn whose hops are one long chain of the CLI's."""
    looks = []
    for count in (200, 400):
        told = [Hop(20 + n, 19 + n if n else 0, T, S, f"{S}/pane", "x", 300, 310, 320) for n in range(count)]
        trace = read_trace(written(tmp_path, head(), *a_turn(1000), *told))

        class Counted(dict):
            seen = 0

            def __getitem__(self, key):
                Counted.seen += 1
                return super().__getitem__(key)

        trace.steps = Counted(trace.steps)
        assert critical_path(trace, T).whole
        looks.append(Counted.seen)
    assert looks[1] < 3 * looks[0]
    assert looks[1] < 3 * 400


def test_what_nests_without_end_is_a_foreign_line_and_what_has_no_head_is_soon_no_trace(tmp_path):
    nested = tmp_path / "nested.jsonl"
    nested.write_bytes(msgspec.json.encode(Head(FORMAT, "p1", 1, 0.0, 0)) + b"\n" + b"[" * 60_000 + b"\n")
    assert read_trace(nested).unread == 1
    for endless in ("/dev/zero", "no-trace"):
        (tmp_path / "no-trace").write_bytes(b"none of ours\n" * 1_001 + nested.read_bytes())
        with pytest.raises(UsageError, match="is no trace"):
            read_trace(tmp_path / endless)


def test_hops_of_one_line_are_hops_and_those_of_the_format_before_are_too(tmp_path):
    hops = [Hop(number, 0, T, None, S, "Submit", number, number, number, "host") for number in range(1, 4)]
    fields = [value for hop in hops for value in msgspec.structs.astuple(hop)]
    read = []
    for name, lines in (("before", hops), ("now", [Hops(fields)]), ("bad", [Hops([*fields, "x"]), *hops])):
        file = tmp_path / name
        file.write_bytes(msgspec.json.Encoder().encode_lines([Head(FORMAT, "p1", 1, 0.0, 0), *lines]))
        read.append(read_trace(file))
    before, now, bad = read
    assert list(before.steps.values()) == list(now.steps.values()) == list(bad.steps.values())
    assert (before.unread, now.unread, bad.unread) == (0, 0, 1)


def test_times_that_no_clock_told_make_no_picture_that_runs_backwards(tmp_path):
    file = tmp_path / "t.jsonl"
    told = [Hop(1, 0, T, None, S, "a", 50, 40, 30), Hop(2, 1, T, S, S, "b", 60, 70, 65)]
    lines = [Head(FORMAT, "p1", 1, 0.0, 0), *told, CommitSpan(3, 2, T, 80, 70, 60, S)]
    wild = b'["hop",4,0,null,null,"s","x",-100000,1,1,null,false]\n["hop",5,0,null,null,"s","x",1e21,1,1,null,false]\n'
    file.write_bytes(msgspec.json.Encoder().encode_lines(lines) + wild)
    trace = read_trace(file)
    assert trace.unread == 2
    assert all(step.enqueued_ns <= step.started_ns <= step.ended_ns for step in trace.steps.values())
    events = drawn(trace)
    assert min(event.get("dur", 0) for event in events) >= 0
    assert min(event.get("ts", 0) for event in events) >= 0
