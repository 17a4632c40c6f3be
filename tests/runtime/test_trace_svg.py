"""A turn's path as a picture: every hop with its wait, in order, in figures that add up; whatever the names are."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

import msgspec
import pytest

from lastword.actors.system.tracing import CommitSpan, Delivered, Head, Hop
from lastword.runtime import _trace_svg
from lastword.runtime._trace import read_trace
from lastword.runtime._trace_path import critical_path
from lastword.runtime._trace_svg import svg

SVG = "{http://www.w3.org/2000/svg}"
S, T = "s_0000000000000000000000session", "t_00000000000000000000000000turn"
TURN = f"{S}/{T}#1"


def a_turn():
    """The shortest whole story: called, committed, typed, the CLI works, seen, committed, delivered."""
    return [
        Hop(1001, 0, T, None, S, "Submit", 100, 110, 150, "host"),
        Hop(1002, 1001, T, S, "journal", "Commit", 140, 160, 170),
        CommitSpan(1003, 1002, T, 165, 170, 200, S, 1, 1),
        Hop(1004, 1003, T, "journal", S, "Committed", 210, 220, 260),
        Hop(1005, 1004, T, S, f"{S}/pane", "Deliver", 250, 270, 300),
        Hop(1006, 0, None, None, S, "FactsRead(TurnClosed)", 900, 910, 950, "file_watch"),
        Hop(1007, 1006, T, S, TURN, "Tell(TurnClosed)", 940, 960, 990),
        CommitSpan(1008, 1007, T, 985, 995, 1020, S, 2, 3),
        Delivered(1009, T, "unified_completion", S, 3, 1050, 1000.05, 1000.0, 1000.04, 1000.045),
    ]


def later(record, ns):
    names = [name for name in record.__struct_fields__ if name.endswith("_ns")]
    return msgspec.structs.replace(record, **{name: getattr(record, name) + ns for name in names})


def drawn(tmp_path, *records):
    path = tmp_path / "t.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines([Head(2, "p1", 7, 1000.0, 0), *records]))
    trace = read_trace(path)
    found = critical_path(trace, T)
    return found, ET.fromstring(svg(found, trace))


def texts(picture):
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def bars(picture, kind):
    found = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("class") == kind]
    return [tuple(float(rect.get(name)) for name in ("x", "y", "width")) for rect in found]


def test_every_hop_of_the_path_has_its_wait_its_handling_and_its_cause(tmp_path):
    found, picture = drawn(tmp_path, *a_turn())
    steps = {piece.step.key for piece in found.pieces if piece.step is not None}
    waits = [piece for piece in found.pieces if piece.kind == "wait" and piece.ns]
    assert len(bars(picture, "wait")) == len(waits) == 9
    assert len(bars(picture, "handling")) == len(steps) == 9
    assert len(bars(picture, "outside")) == len([piece for piece in found.pieces if piece.step is None]) == 2
    every = sorted(bar for kind in ("wait", "handling", "outside") for bar in bars(picture, kind))
    for (x, _, wide), (following, _, _) in pairwise(every):
        assert x + wide == pytest.approx(following, abs=0.2), "a gap, or one over the other"
    assert min(wide for *_, wide in every) >= 2
    assert every[0][0] == _trace_svg.LEFT
    assert every[-1][0] + every[-1][2] <= float(picture.get("width")) == 1000
    told = texts(picture)
    for lane in ("session ession", "journal", "journal's file", "pane ession", "turn 00turn", "subscriber", "outside"):
        assert lane in told
    for word in ("Submit", "Deliver", "Tell(TurnClosed)", "the CLI works", "unified_completion", "file_watch", "host"):
        assert word in told
    assert f"{found.total_ns / 1e6:.3f} ms by the hops" in " ".join(told)
    assert "measured by the completion's stamps: 50.000 ms" in " ".join(told)
    arrows = [line for line in picture.iter(f"{SVG}line") if line.get("class") == "cause"]
    assert len(arrows) == 10
    assert all(line.get("x1") == line.get("x2") for line in arrows)


def test_a_stretch_that_is_longer_is_drawn_longer_and_none_is_too_small_to_see(tmp_path):
    story = a_turn()
    story[5:] = [later(record, 10**11) for record in story[5:]]
    _, picture = drawn(tmp_path, *story)
    assert max(wide for *_, wide in bars(picture, "outside")) > 300
    assert min(wide for *_, wide in bars(picture, "wait")) >= _trace_svg.NARROWEST - 0.1


def test_names_from_somebody_elses_file_are_text_and_nothing_else(tmp_path):
    evil = "</text><script>alert(1)</script>&\"'\x00\x1b]0;x\x07\uffff" + "y" * 500
    story = a_turn()
    story[0] = msgspec.structs.replace(story[0], origin=evil)
    story[4] = msgspec.structs.replace(story[4], receiver=evil, message=evil)
    _, picture = drawn(tmp_path, *story)
    tags = {element.tag.removeprefix(SVG) for element in picture.iter()}
    assert tags == {"svg", "defs", "marker", "path", "rect", "g", "line", "text"}
    assert any(text.startswith("</text><script>") for text in texts(picture))
    assert max(map(len, texts(picture))) <= 200


def test_a_path_of_very_many_hops_is_drawn_wider_and_from_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(_trace_svg, "STEPS_MAX", 120)
    story = [later(record, 1000) for record in a_turn()]
    chain = [
        Hop(1010 + n, 1009 + n, T, None, "a", f"m{n}", 2000 + 2 * n, 2000 + 2 * n, 2001 + 2 * n) for n in range(200)
    ]
    chain[0] = msgspec.structs.replace(chain[0], cause=1006)
    told = Hop(1210, 1209, T, S, TURN, "Tell(TurnClosed)", 2399, 2400, 2410)
    ends = [later(record, 2500) for record in a_turn()[7:]]
    ends[0] = msgspec.structs.replace(ends[0], id=1211, cause=1210)
    _, picture = drawn(tmp_path, *story[:6], *chain, told, *ends)
    assert float(picture.get("width")) > 1000
    assert "earlier hops are left out" in " ".join(texts(picture))
    assert len(list(picture.iter(f"{SVG}g"))) == 120
