"""``lastword read`` on a record of somebody else, of nobody, and without a name."""

import json
from pathlib import Path

import pytest

from cases_kit import FAMILIES, FIXTURES, Family, all_facts, assert_turns, case, files_of, name_of, raw
from command_kit import Place
from lastword import UsageError
from lastword.actors.core.facts import UnknownRecord
from lastword.runtime.command._whose import HEAD_BYTES, fits
from lastword.runtime.command.read import find_provider, read_files

CLAUDE = FIXTURES / "claude_code/2.1.332/cases/basic.jsonl"
QWEN_STREAM = FIXTURES / "qwen/0.24.4/cases/stream-plain.jsonl"
SAME_FORM = {"claude-code", "cursor", "qwen"}
"""Their streams are the same form: nothing in a short one tells whose it is."""


@pytest.mark.contract("C21")
@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_c21_each_recorded_file_is_recognised_for_its_own(family: Family) -> None:
    for path in family.raw():
        whose = fits(raw(path)[:HEAD_BYTES])
        told = any(not isinstance(fact, UnknownRecord) for fact in all_facts(family, raw(path)))
        assert (family.provider in whose) == told, (path.name, whose)
        assert len(whose) < 2 or set(whose) <= SAME_FORM, (path.name, whose)


@pytest.mark.contract("C21")
def test_c21_a_record_of_another_provider_is_refused_with_its_owner(place: Place) -> None:
    code, out, err = place.lastword("read", "codex", str(CLAUDE))
    assert (code, out) == (2, "")
    assert "is no record of codex: it reads as one of claude-code (file_unreadable)" in err
    assert f"lastword read claude-code {CLAUDE}" in err


@pytest.mark.contract("C21")
def test_c21_a_record_of_nobody_is_refused_with_the_forms_that_were_tried(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Buy milk\nand bread\n")
    for words in (("claude-code", str(file)), (str(file),), ("opencode", str(file), "--json")):
        code, out, err = place.lastword("read", *words)
        assert (code, out) == (2, "")
        assert "no turn in a form that is known here (tried: agy, claude-code, codex," in err
        assert "lastword read PROVIDER FILE" in err


@pytest.mark.contract("C21")
def test_c21_a_stranger_among_the_files_is_refused() -> None:
    with pytest.raises(UsageError, match="is no record of codex"):
        read_files("codex", [FIXTURES / "codex/0.171.0/cases/tui_two_turns.jsonl", CLAUDE])


def test_without_a_provider_the_file_says_whose_it_is(place: Place) -> None:
    [family] = [family for family in FAMILIES if family.provider == "claude-code"]
    path = CLAUDE.with_name("basic.expect.json")
    assert files_of(path) == [CLAUDE]
    assert path in family.expected()
    code, out, err = place.lastword("read", str(CLAUDE), "--json")
    assert (code, err) == (0, "")
    assert_turns(json.loads(out)["turns"], case(path)["turns"])


def test_a_form_that_several_write_needs_the_name() -> None:
    with pytest.raises(UsageError, match="may be a record of claude-code or of cursor or of qwen"):
        find_provider([QWEN_STREAM])


def test_a_provider_without_a_file_is_told_what_lacks(place: Place) -> None:
    code, out, err = place.lastword("read", "codex")
    assert (code, out) == (2, "")
    assert "no FILE is named (usage). lastword read codex FILE" in err


def test_an_empty_file_and_one_of_sub_agents_alone_have_no_turn_and_are_no_fault(place: Place, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    subagent = CLAUDE.with_name("agent.subagent0.jsonl")
    for path in (tmp_path / "empty.jsonl", subagent):
        assert place.lastword("read", "claude-code", str(path)) == (0, "no turn\n", "")
