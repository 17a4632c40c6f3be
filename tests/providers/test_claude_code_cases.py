"""What only Claude Code's transcript has: chains of records, sessions in every line, a file per /clear.

What holds for every provider is in test_cases.py. Source: tests/fixtures/claude_code/2.1.332/cases.
"""

import json
import shutil
from pathlib import Path

import pytest

from cases_kit import FIXTURES, assert_turns, case, raw
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import Fact, PromptRecorded, TurnClosed, UnknownRecord
from lastword.actors.core.reading import read_turns
from lastword.runtime.command.read import read_files
from lastword.transports.providers.claude_code_oracle import ClaudeOracle

PROVIDER = "claude-code"
CASES = FIXTURES / "claude_code" / "2.1.332" / "cases"


def assert_reads(turns: list[dict], name: str) -> None:
    assert_turns(turns, case(CASES / f"{name}.expect.json")["turns"])


def all_facts(data: bytes) -> list[Fact]:
    reader = ClaudeOracle(SourceSpec(kind="append-jsonl", path="f", root=""), "")
    return reader.feed("f", data) + reader.eof("f")


def test_the_names_of_the_files_say_nothing(tmp_path: Path) -> None:
    shutil.copy(CASES / "clear.jsonl", tmp_path / "z.jsonl")
    shutil.copy(CASES / "clear.after.jsonl", tmp_path / "a.jsonl")
    turns = read_files(PROVIDER, [tmp_path / "a.jsonl", tmp_path / "z.jsonl"])
    assert_reads([turn.as_json() for turn in turns], "clear")


@pytest.mark.contract("C30")
def test_a_record_of_another_session_is_counted_as_foreign_and_changes_nothing() -> None:
    data = raw(CASES / "basic.jsonl")
    lines = data.splitlines(keepends=True)
    session = json.loads(lines[0])["sessionId"]
    forged = [line.replace(session.encode(), b"00000000-dead-4bad-8bad-000000000000") for line in lines]
    mixed = b"".join(line for pair in zip(lines, forged, strict=True) for line in pair)
    facts = all_facts(mixed)
    foreign = [fact for fact in facts if isinstance(fact, UnknownRecord) and fact.what == "foreign_session"]
    assert len(foreign) == sum(b"sessionId" in line for line in lines)
    assert_reads([turn.as_json() for turn in read_turns(facts)], "basic")


def test_a_long_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Two thousand turns with their tools; what is held afterwards is the reading, not the file."""
    import tracemalloc

    data = raw(CASES / "tools.jsonl")
    prompts = {fact.native_turn for fact in all_facts(data) if isinstance(fact, PromptRecorded)}
    path = tmp_path / "long.jsonl"
    with path.open("wb") as sink:
        for copy in range(600):
            block = data
            for prompt in prompts:
                block = block.replace(prompt.encode(), f"{copy:08d}{prompt[8:]}".encode())
            sink.write(block)
    tracemalloc.start()
    turns = read_files(PROVIDER, [path], chunk_bytes=64 * 1024)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(turns) == 600 * len(prompts)
    assert peak < path.stat().st_size / 4, (peak, path.stat().st_size)


@pytest.mark.contract("C04")
@pytest.mark.parametrize("parent", ["absent", "unknown", "earlier"])
def test_c04_a_turn_duration_that_is_not_of_the_open_turns_chain_ends_nothing(parent: str) -> None:
    lines = raw(CASES / "basic.jsonl").splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines) if b'"turn_duration"' in line]
    forged = json.loads(lines[ends[0]]) | {"uuid": "11111111-1111-4111-8111-111111111111"}
    match parent:
        case "absent":
            del forged["parentUuid"]
        case "unknown":
            forged["parentUuid"] = "22222222-2222-4222-8222-222222222222"
        case _:
            pass
    line = json.dumps(forged).encode() + b"\n"
    for at in range(ends[0] + 1, ends[1]):  # anywhere in or before the second turn
        facts = all_facts(b"".join([*lines[:at], line, *lines[at:]]))
        closed = [fact for fact in facts if isinstance(fact, TurnClosed)]
        assert len(closed) == 2
        assert b"11111111-1111" not in closed[1].evidence.native_id.encode()
        assert_reads([turn.as_json() for turn in read_turns(facts)], "basic")


def test_a_record_of_a_new_kind_in_the_chain_does_not_cut_it() -> None:
    lines = raw(CASES / "basic.jsonl").splitlines(keepends=True)
    end = next(at for at, line in enumerate(lines) if b'"turn_duration"' in line)
    last = json.loads(lines[end])
    new = {"type": "brand_new", "uuid": "33333333-3333-4333-8333-333333333333", "parentUuid": last["parentUuid"]}
    new["sessionId"] = last["sessionId"]
    last["parentUuid"] = new["uuid"]
    mended = [*lines[:end], json.dumps(new).encode() + b"\n", json.dumps(last).encode() + b"\n", *lines[end + 1 :]]
    assert_reads([turn.as_json() for turn in read_turns(all_facts(b"".join(mended)))], "basic")
