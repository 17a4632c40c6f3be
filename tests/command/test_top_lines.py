"""A frame of ``lastword top``: never wider or longer than the terminal, whatever stands in it, and what is left out."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from lastword.actors.core.errors import JournalError
from lastword.actors.core.ids import SessionId
from lastword.runtime._top import Top, TopLine
from lastword.runtime.command._desk import HostSeen
from lastword.runtime.command._top_feed import Sight
from lastword.runtime.command._top_lines import COLUMNS, View, foot, frame, header, seconds, took
from lastword.runtime.command._top_screen import Painter

EVIL = "s\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\u2066\x00\r\n\x7f\U000e0041宽宽👩‍👩‍👧e\u0301"
NAME = "s_01m8x68vr4nwhkqsae6m39fef0"


def line(session_id: str = NAME, **fields) -> TopLine:
    given = {"provider": "claude-code", "transport": "tmux", "state": "busy", "last_event": "tool_finished"}
    return TopLine(session_id=SessionId(session_id), **{**given, **fields})


def sight(*lines: TopLine, live: bool = True, note: str = "", **fields) -> Sight:
    states = dict.fromkeys(("starting", "idle", "busy", "awaiting_user", "gone"), 0) | {"busy": len(lines)}
    told = {"open_turns": 0, "waiting": 0, "completions": 7, "dead_letters": 0, "invariant_violations": 0}
    top = Top(at=100.0, since=40.0, pid=12, live=live, sessions=states, lines=tuple(lines), **{**told, **fields})
    return Sight(top=top, host=HostSeen("serves", 12), note=note)


def texts(shown) -> list[str]:
    return ["".join(text for text, _ in each) for each in shown]


def of(told: Sight, width: int = 160, height: int = 24, view: View | None = None, now: float = 0.0) -> list[str]:
    return texts(frame(told, view or View(folder="/state"), width, height, now))


def controls(shown: list[str]) -> set[str]:
    return {char for each in shown for char in each if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}


def test_the_columns_say_what_the_line_does():
    told = line(
        state_age_s=3.25, last_event_age_s=125.0, mailbox=3, turns=12,
        last_commit_s=0.0013, commit_p50_s=0.25, commit_p99_s=61.0,
    )  # fmt: skip
    shown = of(sight(told, turns_per_s=12.34, journal_behind=4, journal_wait_s=0.5))
    head = next(each for each in shown if each.startswith("SESSION")).split()
    assert head == ["SESSION", "PROVIDER", "STATE", "FOR", "LAST", "FACT", "AGO", "BOX", "TOOK", "P50", "P99", "TURNS"]
    row = next(each for each in shown if each.startswith("s_")).split()
    assert row == [
        NAME,
        "claude-code/tmux",
        "busy",
        "3.2s",
        "tool_finished",
        "2m",
        "3",
        "1.3ms",
        "250ms",
        "61.0s",
        "12",
    ]
    words = " ".join(" ".join(shown).split())
    for figure in ("host 12", "up 60s", "1 sessions", "1 busy", "12.3 turns/s", "7 completions", "0 dead letters"):
        assert figure in words
    assert "journal 4 behind, waits 500ms" in words


def test_what_only_a_host_counts_is_not_made_up():
    words = " ".join(of(sight(line(), live=False, note="no live host", dead_letters=None, invariant_violations=None)))
    assert "no live host" in words
    for figure in ("host 12", "dead letters", "behind", "turns/s", "violations"):
        assert figure not in words


def test_a_journal_that_takes_nothing_is_told_loudly():
    items = header(sight(journal_failing=True, journal_behind=9, journal_wait_s=7.0), View(), 0.0)
    assert any("FAILS 9 behind, waits 7.0s" in item.text and "red" in item.style for item in items)


def test_an_old_answer_is_said_to_be_old():
    assert "as of" not in " ".join(of(sight(line()), now=1.0))
    assert "as of 9.0s ago" in " ".join(of(sight(line()), now=9.0))


def test_nothing_that_can_be_read_is_told_with_its_reason():
    nothing = Sight(top=None, host=HostSeen("none"), note="no live host", error=JournalError("journal_failed", EVIL))
    shown = of(nothing, 60, 12)
    assert "journal_failed" in " ".join(shown)
    assert not controls(shown)
    assert len(shown) == 12


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (160, set()),
        (80, {"P50", "P99"}),
        (40, {"P50", "P99", "PROVIDER", "BOX", "LAST FACT", "AGO"}),
        (20, {"P50", "P99", "PROVIDER", "BOX", "LAST FACT", "AGO", "TURNS", "TOOK", "FOR"}),
    ],
)
def test_what_matters_least_is_left_out_first(width, missing):
    shown = of(sight(line()), width)
    head = next(each for each in shown if each.startswith("SESSION"))
    assert {column.name for column in COLUMNS if column.name not in head} == missing
    row = next(each for each in shown if each.startswith("s_"))
    named = row.split()[0]
    assert named == NAME if width == 160 else NAME.endswith(named.removeprefix("s_…"))
    assert all(cell_len(each) <= width for each in shown)


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(st.one_of(st.text(max_size=60), st.just(EVIL)), min_size=1, max_size=6),
    width=st.integers(1, 200),
    height=st.integers(1, 30),
    ages=st.one_of(st.none(), st.floats(0, 1e15), st.just(float("inf"))),
)
def test_whatever_stands_in_it_a_frame_fits_and_holds_no_control_character(texts, width, height, ages):
    fields = {"state_age_s": ages, "last_event_age_s": ages, "last_commit_s": ages, "commit_p99_s": ages}
    lines = [line(text, provider=text, transport=text, last_event=text, turns=10**12, **fields) for text in texts]
    shown = of(sight(*lines, note=texts[0], live=False), width, height, View(folder=texts[0]))
    assert len(shown) == height
    assert all(cell_len(each) <= width for each in shown), [each for each in shown if cell_len(each) > width]
    assert not controls(shown)


def test_only_rows_with_a_place_are_drawn():
    drawn = []

    class Watched(str):
        __slots__ = ()

        def replace(self, *words):
            drawn.append(self)
            return super().replace(*words)

    lines = [line(Watched(f"s_{number:026}")) for number in range(500)]
    of(sight(*lines), 160, 24)
    assert 0 < len({str(each) for each in drawn}) <= 24


def test_ages_and_latencies_fit_their_columns():
    for age in (None, 0.0, 9.99, 10.0, 119.9, 7199.0, 172_799.0, 1e7, 1e12, float("inf")):
        assert len(seconds(age)) <= 5, age
        assert len(took(age)) <= 6, age
    assert [seconds(each) for each in (0.04, 59.0, 600.0, 7200.0, 200_000.0)] == ["0.0s", "59s", "10m", "2h", "2d"]
    assert [took(each) for each in (0.00004, 0.0995, 0.0999999, 0.9994, 0.9999)] == [
        "0.0ms",
        "99.5ms",
        "100ms",
        "999ms",
        "1.0s",
    ]


def test_keys_move_within_the_list_and_sort_from_its_begin():
    view = View(rows=20, offset=5)
    assert view.pressed("up", 100).offset == 4
    assert view.pressed("page_down", 100).offset == 24
    assert view.pressed("end", 100).offset == 80
    assert view.pressed("home", 100).offset == 0
    assert View(rows=20).pressed("up", 100).offset == 0
    assert View(rows=20).pressed("end", 3).offset == 0
    assert msgspec.structs.replace(view, offset=90).pressed("down", 40).offset == 20
    assert (view.pressed("l", 100).sort, view.pressed("l", 100).offset) == ("latency", 0)
    assert view.pressed("x", 100) is None


def test_the_foot_says_where_in_the_list_it_is():
    assert foot(sight(line(), line(), offset=7), View(sort="age"), 2).startswith("8-9 of 2 by age")
    assert foot(sight(), View(), 0).startswith("0 of 0")


# --- what the terminal is sent -------------------------------------------------------------------------------------------


def test_only_lines_that_changed_are_sent(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    painter = Painter(10, 3)
    first = painter.paint(((("a", ""),), (("b", "bold"),), ()))
    assert first == "\x1b[1;1H\x1b[2Ka\x1b[2;1H\x1b[2K\x1b[1mb\x1b[0m\x1b[3;1H\x1b[2K"
    assert painter.paint(((("a", ""),), (("b", "bold"),), ())) == ""
    assert painter.paint(((("a", ""),), (("c", ""),))) == "\x1b[2;1H\x1b[2Kc"
    painter.forget()
    assert painter.paint(((("a", ""),),)).count("\x1b[2K") == 3


def test_no_color_is_sent_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in Painter(10, 1).paint(((("a", "bold yellow"),),))
    monkeypatch.delenv("NO_COLOR")
    assert "33m" in Painter(10, 1).paint(((("a", "bold yellow"),),))
