"""Recorded conversations of the real CLI and the right reading of each: through the command's own function, through
the command itself, in every chunking, from every place where reading may be resumed, and damaged in every way.

Source: tests/fixtures/claude_code/2.1.332/cases (schema in its README).
"""

import json
import random
import shutil
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import CliVersionSeen, Fact, PromptRecorded, TurnClosed, UnknownRecord
from lastword.actors.core.reading import read_turns
from lastword.runtime.command.read import read_files
from lastword.transports.providers.claude_code_oracle import ClaudeOracle

PROVIDER = "claude-code"
CASES = Path(__file__).parent.parent / "fixtures" / "claude_code" / "2.1.332" / "cases"
EXPECTED = sorted(CASES.glob("*.expect.json"))
RAW = sorted(CASES.glob("*.jsonl"))
LAB = CASES.parent / "lab"
"""Recordings of our own with the same CLI: forks, -p, a Stop hook's veto, a day of a session; same schema."""
NAMES = [path.name.removesuffix(".expect.json") for path in EXPECTED]


@cache
def case(name: str) -> dict:
    return json.loads((CASES / f"{name}.expect.json").read_bytes())


@cache
def raw(path: Path) -> bytes:
    return path.read_bytes()


def squeezed(text: str | None) -> str | None:
    return None if text is None else "".join(text.split())


def assert_reads(turns: list[dict], name: str) -> None:
    """The convention's own comparison: white space is not compared, nor an input of null."""
    assert_turns(turns, case(name)["turns"])


def assert_turns(turns: list[dict], expected: list[dict]) -> None:
    assert len(turns) == len(expected), turns
    for got, want in zip(turns, expected, strict=True):
        if want["input"] is not None:
            assert squeezed(got["input"]) == squeezed(want["input"])
        assert squeezed(got["final_text"]) == squeezed(want["final_text"])
        for key in ("status", "origin", "error", "joined"):
            assert got.get(key) == want.get(key), key
        calls = [(call["name"], call["status"]) for call in got["tool_calls"]]
        assert [name for name, _ in calls] == [call["name"] for call in want["tool_calls"]]
        for (_, status), call in zip(calls, want["tool_calls"], strict=True):
            assert call.get("status") in (None, status)


def oracle(offset: int = 0, session: str = "") -> ClaudeOracle:
    return ClaudeOracle(SourceSpec(kind="append-jsonl", path="f", root=""), session, offset)


def all_facts(data: bytes) -> list[Fact]:
    reader = oracle()
    return reader.feed("f", data) + reader.eof("f")


def test_there_are_cases_and_each_raw_file_of_a_case_is_here() -> None:
    assert len(EXPECTED) >= 27
    for name in NAMES:
        for file in case(name)["files"]:
            assert (CASES / file).stat().st_size > 0


@pytest.mark.contract("C04")
@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_conversation_is_read_right(name: str) -> None:
    turns = read_files(PROVIDER, [CASES / file for file in case(name)["files"]])
    assert_reads([turn.as_json() for turn in turns], name)


@pytest.mark.contract("C04")
@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".expect.json") for path in LAB.glob("*.expect.json")))
def test_each_recording_of_our_own_is_read_right(name: str) -> None:
    expected = json.loads((LAB / f"{name}.expect.json").read_bytes())
    turns = read_files(PROVIDER, [LAB / file for file in expected["files"]])
    assert_turns([turn.as_json() for turn in turns], expected["turns"])


@pytest.mark.parametrize("name", [name for name in NAMES if len(case(name)["files"]) > 1])
def test_the_order_of_the_files_says_nothing(name: str) -> None:
    files = [CASES / file for file in case(name)["files"]]
    for order in (files, files[::-1], [*files, files[0]]):
        assert_reads([turn.as_json() for turn in read_files(PROVIDER, order)], name)


def test_the_names_of_the_files_say_nothing(tmp_path: Path) -> None:
    shutil.copy(CASES / "clear.jsonl", tmp_path / "z.jsonl")
    shutil.copy(CASES / "clear.after.jsonl", tmp_path / "a.jsonl")
    turns = read_files(PROVIDER, [tmp_path / "a.jsonl", tmp_path / "z.jsonl"])
    assert_reads([turn.as_json() for turn in turns], "clear")


@pytest.mark.parametrize("name", ["agent", "clear", "tools", "err400", "kill9", "queue_final"])
def test_the_command_prints_the_same_reading(name: str) -> None:
    files = [str(CASES / file) for file in reversed(case(name)["files"])]
    done = subprocess.run(
        [sys.executable, "-m", "lastword.runtime.command", "read", PROVIDER, *files, "--json"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert_reads(json.loads(done.stdout)["turns"], name)


# --- chunking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_byte_by_byte_gives_the_same_facts_as_the_whole_file(path: Path) -> None:
    data, reader = raw(path), oracle()
    facts = [fact for at in range(len(data)) for fact in reader.feed("f", data[at : at + 1])]
    assert facts + reader.eof("f") == all_facts(data)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(RAW), seed=st.integers(0, 2**32), pieces=st.integers(1, 60))
def test_any_split_gives_the_same_facts(path: Path, seed: int, pieces: int) -> None:
    data, reader = raw(path), oracle()
    chosen = random.Random(seed)
    cuts = [0, *sorted(chosen.randrange(len(data) + 1) for _ in range(pieces)), len(data)]
    facts = [fact for a, b in pairwise(cuts) for fact in reader.feed("f", data[a:b])]
    assert facts + reader.eof("f") == all_facts(data)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 4096])
def test_the_size_of_a_read_says_nothing(chunk_bytes: int) -> None:
    turns = read_files(PROVIDER, [CASES / "tools.jsonl"], chunk_bytes=chunk_bytes)
    assert_reads([turn.as_json() for turn in turns], "tools")


# --- resuming ------------------------------------------------------------------------------------------------------------


def is_version(fact: Fact) -> bool:
    return isinstance(fact, CliVersionSeen)  # a resumed reader says the version again


@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_reading_resumed_at_any_quiet_line_gives_the_same_remaining_facts(path: Path) -> None:
    data = raw(path)
    session = next((found for line in data.splitlines() if (found := json.loads(line).get("sessionId"))), "")
    reader, at, resumed = oracle(session=session), 0, 0
    boundaries = []
    for line in data.splitlines(keepends=True):
        reader.feed("f", line)
        at += len(line)
        if reader.quiescent:
            boundaries.append(at)
    for start in boundaries:
        before = oracle(session=session)
        before.feed("f", data[:start])
        rest = before.feed("f", data[start:]) + before.eof("f")
        late = oracle(start, session)
        got = late.feed("f", data[start:]) + late.eof("f")
        assert [fact for fact in got if not is_version(fact)] == [fact for fact in rest if not is_version(fact)], start
        resumed += 1
    assert resumed or b'"isSidechain":true' in data or b"turn_duration" not in data


# --- C04: nothing before its terminal record ------------------------------------------------------------------------------


@pytest.mark.contract("C04")
@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_c04_no_prefix_of_a_file_closes_a_turn_before_its_terminal_record(path: Path) -> None:
    """Fed line by line, a turn is closed by the very line that the whole file's reading names, never by one before."""
    data = raw(path)
    closed = {fact.native_turn: fact for fact in all_facts(data) if isinstance(fact, TurnClosed)}
    reader, at = oracle(), 0
    early: dict[str, TurnClosed] = {}
    for line in data.splitlines(keepends=True):
        for fact in reader.feed("f", line):
            if isinstance(fact, TurnClosed):
                assert fact.native_turn not in early, "closed twice"
                assert fact == closed[fact.native_turn]
                early[fact.native_turn] = fact
                if fact.status != "lost":
                    assert fact.evidence.offset <= at
        at += len(line)
    terminal = (b'"turn_duration"', b"[Request interrupted", b'"isApiErrorMessage":true')
    for fact in early.values():
        line = data[fact.evidence.offset :].split(b"\n", 1)[0]
        if fact.status in ("completed", "failed"):
            assert any(mark in line for mark in terminal), line[:200]


@pytest.mark.contract("C04")
@pytest.mark.parametrize("path", RAW, ids=lambda path: path.stem)
def test_c04_what_a_prefix_shows_as_answered_stays_so(path: Path) -> None:
    """No prefix of the file, read as a file of its own, shows an end that the longer file takes back."""
    data, at = raw(path), 0
    final = {turn.native: turn for turn in read_turns(all_facts(data))}
    for line in data.splitlines(keepends=True):
        at += len(line)
        for turn in read_turns(all_facts(data[:at])):
            if turn.native in final and turn.status in ("completed", "failed"):
                assert (turn.status, turn.final_text) == (final[turn.native].status, final[turn.native].final_text)


# --- damage ----------------------------------------------------------------------------------------------------------------

WRONG = [None, True, -1, 10**400, 1e308, "", "\x00", [], {}, [[]], {"type": "user"}, "x" * 5000]


def mutated(data: bytes, chosen: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(chosen.randrange(1, 6)):
        at = chosen.randrange(len(lines))
        line = bytearray(lines[at])
        match chosen.randrange(7):
            case 0:
                line[chosen.randrange(len(line))] = chosen.randrange(256)
            case 1:
                del line[chosen.randrange(len(line)) :]
            case 2:
                line[chosen.randrange(len(line)) : 0] = bytes(chosen.randrange(256) for _ in range(20))
            case 3:
                lines.insert(chosen.randrange(len(lines)), bytes(line))
            case 4:
                lines.insert(at, b"[" * 10_000 + b"\n")
            case 5:
                line = bytearray(wrong_types(bytes(line), chosen))
            case _:
                line[0:0] = b"\x00\xff\xfe"
        lines[at] = bytes(line)
    return b"".join(lines)


def wrong_types(line: bytes, chosen: random.Random) -> bytes:
    try:
        record = json.loads(line)
    except ValueError:
        return line
    holder = record
    while isinstance(holder, dict) and holder:
        key = chosen.choice(sorted(holder))
        if isinstance(holder[key], dict) and chosen.random() < 0.7:
            holder = holder[key]
            continue
        holder[key] = chosen.choice(WRONG)
        break
    return json.dumps(record).encode() + b"\n"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(RAW), seed=st.integers(0, 2**32))
def test_a_damaged_file_never_raises_and_reads_alike_in_any_chunking(path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    data = mutated(raw(path), chosen)
    whole = all_facts(data)
    reader, facts = oracle(), []
    cut = chosen.randrange(len(data) + 1)
    facts = reader.feed("f", data[:cut]) + reader.feed("f", data[cut:]) + reader.eof("f")
    assert facts == whole
    for turn in read_turns(whole):
        json.dumps(turn.as_json())


@pytest.mark.parametrize(
    "line",
    [
        b"\x00" * 100,
        b"\xff\xfe\xfd",
        b"[" * 10_000,
        b'{"a":' * 10_000,
        b'{"type":"user","message":' + b'{"content":' * 10_000,
        b'{"type":' + b"9" * 5000 + b"}",
        b'{"type":"user","timestamp":"' + b"9" * 5000 + b'"}',
        b'{"type":"system","subtype":"turn_duration","durationMs":1e999}',
        b'{"type":"user","message":{"content":[null,1,"x",{"type":"tool_result","content":[[[1]]]}]}}',
        b'{"type":"assistant","message":{"id":1,"content":{"type":"text"}}}',
        b"null",
        b'"text"',
        b"{}",
    ],
    ids=lambda line: line[:24].decode("ascii", "replace"),
)
def test_a_hostile_line_is_one_unknown_record_and_the_turns_around_it_stay(line: bytes) -> None:
    data = raw(CASES / "basic.jsonl")
    lines = data.splitlines(keepends=True)
    for at in range(len(lines) + 1):
        damaged = b"".join([*lines[:at], line + b"\n", *lines[at:]])
        assert_reads([turn.as_json() for turn in read_turns(all_facts(damaged))], "basic")
    assert any(isinstance(fact, UnknownRecord) for fact in all_facts(line + b"\n")) or b'"content":[null' in line


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
