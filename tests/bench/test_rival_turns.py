"""The contest itself, with made-up rivals in the place of real ones: no CLI, no network but the scripted model's loopback."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lastword.runtime.testing import ModelRequest, Rehearsal
from lastword.runtime.testing.conformance._witness import Witness

BENCH = Path(__file__).parents[2] / "bench"
HEAD = f"""
import sys, time
sys.path.insert(0, {str(BENCH / "rivals")!r})
import _turns
_turns.begin()
"""
WRITING = """
import json, pathlib, re
sys.path.insert(0, BENCH)
from _rival_table import answer_of, turn_of
record = pathlib.Path.home() / ".claude" / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", _turns.CWD) / "one.jsonl"
record.parent.mkdir(parents=True, exist_ok=True)

def ask(prompt):
    print("a rival talks on its stdout", flush=True)
    text = answer_of(*turn_of(prompt))
    with record.open("a") as file:
        for entry in (
            {"type": "user", "message": {"content": prompt}},
            {"type": "assistant", "message": {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}},
        ):
            file.write(json.dumps(entry) + "\\n")
            file.flush()
            time.sleep(0.05)
    return text, time.time()

_turns._say({"ready": "1.0"})
_turns.serve(ask)
""".replace("BENCH", repr(str(BENCH)))


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Runs a rival's text, gives its contest; nothing of it may live on."""
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("rival_turns")
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    monkeypatch.setattr(module, "CLOSE_S", 1.0)

    def run(text: str, kinds: list[str]) -> Any:
        script = tmp_path / "rival.py"
        script.write_text(HEAD + textwrap.dedent(text))
        with Witness() as witness, Rehearsal(respond=module.respond) as kit:
            made = module.Contest(module.Contestant("made up", "terminal", str(script)), "/bin/true", kit, witness)
            try:
                made.run(kinds)
            finally:
                made.end()
            assert not module.living_in(kit.home)
        return made

    run.module = module  # type: ignore[attr-defined]
    yield run
    for name in ("rival_turns", "_rival_table", "_report", "rivals", "rivals._venv"):
        sys.modules.pop(name, None)


def test_each_prompt_is_given_once_the_record_has_the_end_before_it(contest: Any) -> None:
    made = contest(WRITING, ["plain", "tools", "plain"])
    assert (made.version, made.broke) == ("1.0", "")
    assert [(turn.kind, turn.number, turn.wrong, turn.more) for turn in made.turns] == [
        ("plain", 1, False, False),
        ("tools", 2, False, False),
        ("plain", 3, False, False),
    ]
    for turn in made.turns:
        assert turn.sent <= turn.prompt_seen <= turn.end_seen
        assert (turn.asked, turn.model_ended) == ([], None)  # it asks no model


def test_a_rival_that_fails_is_told_with_its_last_words(contest: Any) -> None:
    made = contest('_turns._say({"ready": "1.0"})\nraise SystemExit("no login here")', ["plain"])
    assert (made.turns, made.broke) == ([], "its last words: no login here")


def test_a_rival_that_says_something_else_is_stopped(contest: Any) -> None:
    made = contest('_turns.OUT.write("hello\\n")\n_turns.OUT.flush()\ntime.sleep(600)', ["plain"])
    assert made.broke == "no line of ours: b'hello'"


def test_a_rival_that_is_silent_is_not_waited_for(contest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest.module, "READY_S", 0.3)
    made = contest("time.sleep(600)", ["plain"])
    assert made.broke.startswith("silent for 0 s")


def test_a_rival_that_answers_what_no_record_holds_is_stopped(contest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest.module, "END_S", 0.1)
    monkeypatch.setattr(contest.module, "PAUSE_S", 0.1)
    made = contest('_turns._say({"ready": "1.0"})\n_turns.serve(lambda prompt: "done")', ["plain"])
    assert (made.turns, made.broke) == ([], "no end of turn 1 in the CLI's record")


def test_the_plan_begins_with_a_turn_that_is_not_counted(contest: Any) -> None:
    plan = contest.module.plan
    assert Counter(plan(6, 2)) == {"plain": 7, "pause": 2, "tools": 2}
    assert plan(6, 2)[0] == "plain"
    assert plan(0, 1) == ["plain", "pause", "tools"]


def test_the_scripted_model_plays_each_kind(contest: Any) -> None:
    respond, table = contest.module.respond, sys.modules["_rival_table"]

    def played(kind: str, answered: int = 0, hidden: str = "") -> Any:
        prompt = table.prompt_of(kind, 4)
        return respond(ModelRequest(prompt=prompt, answered=answered, model="m", stream=True, hidden=hidden))

    assert played("plain").blocks[0].text == table.answer_of("plain", 4)
    pause = played("pause")
    text = pause.blocks[0].text
    assert [text[at : at + pause.chunk_chars] for at in range(0, len(text), pause.chunk_chars)] == [
        table.begin_of(4),
        table.answer_of("pause", 4),
    ], "one pause, between the two"
    assert [played("tools", answered).reason for answered in range(3)] == ["tool_use", "tool_use", "end_turn"]
    assert played("tools", 2).blocks[0].text == table.answer_of("tools", 4)
    assert played("plain", hidden="title") is None
    assert respond(ModelRequest(prompt="something else", answered=0, model="m", stream=True)) is None
