"""What is counted as early, as wrong, as a rival's own time; and where a record holds a prompt and an end."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def rival_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    yield importlib.import_module("_rival_table")
    for name in ("_rival_table", "_report"):
        sys.modules.pop(name, None)


def turn(table: Any, **more: Any) -> Any:
    given = {"kind": "plain", "number": 3, "sent": 10.0, "told": 12.0, "answer": table.answer_of("plain", 3)}
    given |= {"asked": [10.25], "model_ended": 11.0, "prompt_seen": 10.5, "end_seen": 11.5}
    return table.Turn(**{**given, **more})


def line(**entry: Any) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def said(text: str, stop: str | None) -> bytes:
    return line(
        type="assistant",
        message={"role": "assistant", "content": [{"type": "text", "text": text}], "stop_reason": stop},
    )


def test_the_prompt_says_of_which_turn_it_is(rival_table: Any) -> None:
    wrapped = f"Please do this:\n{rival_table.prompt_of('tools', 12)}\nThank you."
    assert rival_table.turn_of(wrapped) == ("tools", 12)
    assert rival_table.turn_of("a title for the session") is None
    both = rival_table.prompt_of("plain", 1) + rival_table.prompt_of("pause", 2)
    assert rival_table.turn_of(both) == ("pause", 2)


@pytest.mark.parametrize(("told", "early"), [(10.9, True), (11.0, False), (11.2, False)])
def test_early_is_before_the_model_had_answered(rival_table: Any, told: float, early: bool) -> None:
    assert turn(rival_table, told=told).early is early


def test_a_turn_whose_model_was_never_asked_is_not_early_but_wrong(rival_table: Any) -> None:
    seen = turn(rival_table, asked=[], model_ended=None, answer="")
    assert (seen.early, seen.wrong, seen.more) == (False, True, False)


def test_what_a_screen_does_to_a_text_is_not_wrong(rival_table: Any) -> None:
    text = rival_table.answer_of("plain", 3)
    screen = "> the prompt\n● " + text.replace(" ", "\n  ", 4) + "\n❯"
    assert (turn(rival_table, answer=screen).wrong, turn(rival_table, answer=screen).more) == (False, True)
    assert (turn(rival_table, answer=text + "\n").wrong, turn(rival_table, answer=text + "\n").more) == (False, False)


def test_what_came_before_a_pause_is_the_models_text_too(rival_table: Any) -> None:
    whole = rival_table.begin_of(3) + rival_table.answer_of("pause", 3)
    assert not turn(rival_table, kind="pause", answer=whole).more
    assert turn(rival_table, kind="pause", answer="● " + whole).more


def test_the_answer_of_another_turn_is_wrong(rival_table: Any) -> None:
    assert turn(rival_table, answer=rival_table.answer_of("plain", 2)).wrong
    assert turn(rival_table, answer=rival_table.begin_of(3)).wrong


def test_a_row_leaves_early_turns_out_of_the_latencies_and_counts_them(rival_table: Any) -> None:
    some = [turn(rival_table), turn(rival_table, told=10.75, answer="half", asked=[10.5], prompt_seen=10.7)]
    row = dict(zip(rival_table.COLUMNS, rival_table.row("who", "terminal", some, ours_p50=50.0), strict=False))
    found = rival_table.row("who", "terminal", some, ours_p50=50.0)
    assert found[:3] == ["who", "terminal", 2]
    assert found[3:10] == [250.0, 250.0, 500.0, 500.0, 500.0, 500.0, 1000.0]
    assert (row["early"], row["wrong text"], row["own p50 to ours"]) == (1, 1, "10.0")


def test_no_ratio_where_there_is_nothing_to_compare(rival_table: Any) -> None:
    ahead = [turn(rival_table, told=11.25)]  # told before the record held it: no time of its own
    assert rival_table.row("who", "stdio", ahead, ours_p50=2.0)[-1] == "-"
    assert rival_table.row("who", "stdio", [turn(rival_table)], ours_p50=None)[-1] == "-"
    assert rival_table.row("who", "stdio", [turn(rival_table)], ours_p50=float("nan"))[-1] == "-"
    assert rival_table.row("who", "stdio", [], ours_p50=2.0)[-1] == "-"


def test_rows_by_kind_only_of_kinds_that_were(rival_table: Any) -> None:
    some = [turn(rival_table), turn(rival_table, kind="pause", told=10.5)]
    rows = rival_table.rows_by_kind("who", some)
    assert [row[1:3] for row in rows] == [["plain", 1], ["pause", 1]]
    assert rows[1][5] == 1


def test_a_record_is_read_to_where_prompt_and_end_stand(rival_table: Any) -> None:
    first = line(type="user", message={"role": "user", "content": rival_table.prompt_of("tools", 1)})
    tool = said("Look 0 of 1.", "tool_use")
    result = line(type="user", message={"role": "user", "content": [{"type": "tool_result", "content": "done"}]})
    end = said(rival_table.answer_of("tools", 1), "end_turn")
    noise = b"no json\n" + line(type="system", subtype="turn_duration") + line(type="mode", message="text")
    second = line(type="user", message={"content": [{"type": "text", "text": rival_table.prompt_of("plain", 2)}]})
    half = said(rival_table.answer_of("plain", 2), "end_turn")[:-1]
    record = first + tool + result + end + noise + second + half
    upto_end = len(first + tool + result + end)
    prompts, ends = rival_table.marks_in(record)
    assert prompts == [(len(first), 1), (upto_end + len(noise + second), 2)]
    assert ends == [(upto_end, 1)]
    assert rival_table.marks_in(record + b"\n")[1] == [(upto_end, 1), (len(record) + 1, 2)]
