"""`lastword trace`: a turn in a real pane is recorded, shown and converted."""

from __future__ import annotations

import json
import stat

import pytest

from lastword.actors.system.actor import Actor
from lastword.actors.system.system import ActorSystem
from lastword.actors.system.tracing import JsonlTracer

SLACK_MS = 50.0
"""Beside the tenth: a busy machine may run somebody else between two clock readings."""


@pytest.mark.tmux
@pytest.mark.contract("C62")
@pytest.mark.contract("C63")
def test_c62_c63_a_recorded_turn_shows_every_wait_and_adds_up_to_its_measured_latency(place) -> None:
    secret = "a-word-that-no-trace-may-hold"
    code, answer, told = place.lastword("trace", "record", "-o", "t.jsonl", "--", "run", "--json", f"[[say:{secret}]]")
    assert code == 0, told
    done = json.loads(answer)
    assert done["answer"] == secret
    file = place.cwd / "t.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in file.read_text()

    code, shown, errors = place.lastword("trace", "show", "t.jsonl", "--json")
    assert code == 0, errors
    path = json.loads(shown)
    assert (path["turn_id"], path["whole"], path["lost"]) == (done["turn_id"], True, 0)
    pieces = path["pieces"]
    assert abs(sum(piece["ms"] for piece in pieces) - path["total_ms"]) < 1e-6
    for total, measured in (("total_ms", "measured_ms"), ("since_seen_ms", "measured_since_seen_ms")):
        assert abs(path[total] - path[measured]) <= path[measured] / 10 + SLACK_MS
    assert "the CLI works" in {piece["what"] for piece in pieces}
    assert pieces[0]["message"] == "Submit"
    assert pieces[-1]["message"] == "unified_completion"
    code, text, _ = place.lastword("trace", "show", "t.jsonl", done["turn_id"])
    assert code == 0
    assert "(the CLI works)" in text
    assert f"= {path['total_ms']:.3f} ms" in text

    code, _, errors = place.lastword("trace", "convert", "t.jsonl", "--turn", done["turn_id"], "-o", "p.json")
    assert code == 0, errors
    picture = place.cwd / "p.json"
    assert stat.S_IMODE(picture.stat().st_mode) == 0o600
    events = json.loads(picture.read_text())["traceEvents"]
    drawn = {(event["name"], round(event["args"]["wait_us"])) for event in events if event.get("cat") == "actor"}
    waits = [piece for piece in pieces if piece["kind"] == "wait" and piece["message"] != "commit"]
    assert {(piece["message"], round(piece["ms"] * 1000)) for piece in waits} <= drawn
    assert secret not in picture.read_text()
    code, drawing, errors = place.lastword("trace", "convert", "t.jsonl", "--to", "svg")
    assert (code, drawing.startswith("<svg ")) == (0, True), errors
    assert f"{path['total_ms']:.3f} ms by the hops" in drawing
    assert all(piece["message"][:50] in drawing for piece in pieces if piece["kind"] == "wait")
    code, exported, errors = place.lastword("trace", "convert", "t.jsonl", "--to", "jsonl", "--turn", done["turn_id"])
    assert code == 0, errors
    steps = [json.loads(line) for line in exported.splitlines() if line]
    assert {step["message"] for step in steps} >= {piece["message"] for piece in pieces if piece["message"]}
    assert secret not in drawing + exported


def test_a_trace_that_could_not_be_written_is_told_and_the_run_is_as_it_would_be(place) -> None:
    code, answer, told = place.lastword("trace", "record", "-o", "/dev/full", "--", "run", "[[say:hi]]")
    assert (code, answer.strip()) == (0, "hi"), told
    assert "records of the trace were lost" in told
    assert "traced to" not in told


def test_what_cannot_be_recorded_shown_or_converted_is_refused_on_one_line(place) -> None:
    (place.cwd / "no-trace").write_text("nothing\n")
    for words, kind in (
        (("record", "--", "sessions"), "usage"),
        (("record", "-o", "no/folder", "--", "run", "x"), "usage"),
        (("record", "--", "run", "--trace", "b.jsonl", "x"), "usage"),
        (("show", "/dev/zero"), "file_unreadable"),
        (("show", "no-trace"), "file_unreadable"),
        (("show", "none"), "file_unreadable"),
        (("convert", "none"), "file_unreadable"),
    ):
        code, out, told = place.lastword("trace", *words)
        assert (code, out, told.count("\n")) == (2, "", 1), told
        assert f"({kind})" in told


def test_a_trace_is_not_converted_over_itself(place) -> None:
    with ActorSystem("tr", tracer=JsonlTracer(place.cwd / "t.jsonl")) as system:
        system.spawn(Actor, name="a").tell(1)
    before = (place.cwd / "t.jsonl").read_bytes()
    (place.cwd / "link").symlink_to("t.jsonl")
    for target in ("t.jsonl", "link"):
        code, _, told = place.lastword("trace", "convert", "t.jsonl", "-o", target)
        assert (code, "is the trace itself" in told) == (2, True)
    assert (place.cwd / "t.jsonl").read_bytes() == before


def test_what_is_no_trace_is_not_traced_into(place) -> None:
    (place.cwd / "notes").write_text("mine")
    (place.cwd / "link").symlink_to("nowhere")
    for name, why in (("notes", "something else than a trace"), ("link", "it is a link")):
        code, _, told = place.lastword("run", "--trace", name, "x")
        assert (code, told.count("\n"), why in told) == (2, 1, True), told
    assert (place.cwd / "notes").read_text() == "mine"
    assert not (place.cwd / "nowhere").exists()
