"""Recorded conversations of every provider and the right reading of each: through the command's own function, through
the command itself, in every chunking, from every place where reading may be resumed, and damaged in every way.

Source: tests/fixtures/PROVIDER/VERSION/cases (see cases_kit).
"""

import json
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases_kit import (
    BY_PROVIDER,
    CASES,
    ENDED,
    FAMILIES,
    RAW,
    Family,
    all_facts,
    assert_turns,
    case,
    files_of,
    name_of,
    oracle_of,
    raw,
    session_of,
    without_names,
)
from lastword.actors.core.facts import TurnClosed, UnknownRecord
from lastword.actors.core.reading import ReadTurn, read_turns
from lastword.runtime.command.read import read_files
from lastword.transports.providers import PROVIDERS
from lastword.transports.providers.readers import READERS

MANY = [(family, path) for family, path in CASES if len(case(path)["files"]) > 1]
each_case = pytest.mark.parametrize(("family", "path"), CASES, ids=name_of)
each_ended = pytest.mark.parametrize(("family", "path"), ENDED, ids=name_of)
each_raw = pytest.mark.parametrize(("family", "path"), RAW, ids=name_of)


def shown(turns: list[ReadTurn]) -> list[dict]:
    return [turn.as_json() for turn in turns]


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_there_are_cases_and_each_raw_file_of_a_case_is_here(family: Family) -> None:
    paths = family.expected()
    assert len(paths) >= family.cases_min
    for path in paths:
        for file in files_of(path):
            assert file.stat().st_size > 0


def test_every_provider_whose_record_is_read_has_cases() -> None:
    assert {family.provider for family in FAMILIES} == set(READERS) - {"memory"}
    assert set(PROVIDERS) <= set(READERS)


@pytest.mark.contract("C04")
@each_case
def test_each_recorded_conversation_is_read_right(family: Family, path: Path) -> None:
    assert_turns(shown(read_files(family.provider, files_of(path))), case(path)["turns"])


@pytest.mark.parametrize(("family", "path"), MANY, ids=name_of)
def test_the_order_of_the_files_says_nothing(family: Family, path: Path) -> None:
    files = files_of(path)
    for order in (files, files[::-1], [*files, files[0]]):
        assert_turns(shown(read_files(family.provider, order)), case(path)["turns"])


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_the_command_prints_the_same_reading(family: Family) -> None:
    """All of the provider's files of the case with the most of them, and of that with the most turns."""
    paths = family.expected()
    for path in {max(paths, key=lambda one: len(case(one)[key])) for key in ("files", "turns")}:
        files = [str(file) for file in reversed(files_of(path))]
        done = subprocess.run(
            [sys.executable, "-m", "lastword.runtime.command", "read", family.provider, *files, "--json"],
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert_turns(json.loads(done.stdout)["turns"], case(path)["turns"])


# --- chunking ----------------------------------------------------------------------------------------------------------


@each_raw
def test_byte_by_byte_gives_the_same_facts_as_the_whole_file(family: Family, path: Path) -> None:
    data, reader = raw(path), oracle_of(family)
    facts = [fact for at in range(len(data)) for fact in reader.feed("f", data[at : at + 1])]
    assert facts + reader.eof("f") == all_facts(family, data)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(which=st.sampled_from(RAW), seed=st.integers(0, 2**32), pieces=st.integers(1, 60))
def test_any_split_gives_the_same_facts(which: tuple[Family, Path], seed: int, pieces: int) -> None:
    family, path = which
    data, reader = raw(path), oracle_of(family)
    chosen = random.Random(seed)
    cuts = [0, *sorted(chosen.randrange(len(data) + 1) for _ in range(pieces)), len(data)]
    facts = [fact for a, b in pairwise(cuts) for fact in reader.feed("f", data[a:b])]
    assert facts + reader.eof("f") == all_facts(family, data)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 4096])
@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_the_size_of_a_read_says_nothing(family: Family, chunk_bytes: int) -> None:
    path = max(family.expected(), key=lambda one: len(case(one)["turns"]))
    assert_turns(
        shown(read_files(family.provider, files_of(path), chunk_bytes=chunk_bytes)),
        case(path)["turns"],
    )


# --- resuming ------------------------------------------------------------------------------------------------------------


@each_raw
def test_reading_resumed_at_any_quiet_line_gives_the_same_remaining_facts(family: Family, path: Path) -> None:
    data = raw(path)
    session = session_of(family, data)
    reader, at = oracle_of(family, session=session), 0
    boundaries, closed = [], 0
    for line in data.splitlines(keepends=True):
        facts = reader.feed("f", line)
        closed += sum(isinstance(fact, TurnClosed) and fact.status != "lost" for fact in facts)
        at += len(line)
        if reader.quiescent:
            boundaries.append(at)
    for start in boundaries:
        before = oracle_of(family, session=session)
        before.feed("f", data[:start])
        rest = before.feed("f", data[start:]) + before.eof("f")
        late = oracle_of(family, start, session)
        got = late.feed("f", data[start:]) + late.eof("f")
        assert without_names(got) == without_names(rest), start
    assert boundaries or not closed


# --- C04: nothing before its terminal record ------------------------------------------------------------------------------


@pytest.mark.contract("C04")
@each_ended
def test_c04_no_prefix_of_a_file_closes_a_turn_before_its_terminal_record(family: Family, path: Path) -> None:
    """Fed line by line, a turn is closed by the very line that the whole file's reading names, never by one before."""
    data = raw(path)
    closed = {fact.native_turn: fact for fact in all_facts(family, data) if isinstance(fact, TurnClosed)}
    reader, at = oracle_of(family), 0
    early: dict[str, TurnClosed] = {}
    for line in data.splitlines(keepends=True):
        for fact in reader.feed("f", line):
            if isinstance(fact, TurnClosed):
                assert fact.native_turn not in early, "closed twice"
                assert fact == closed[fact.native_turn]
                assert not fact.by_end_of_file
                early[fact.native_turn] = fact
                if fact.status != "lost":
                    assert fact.evidence.offset <= at
        at += len(line)
    assert not early or not any(part in path.name for part in family.by_end_of_file)
    for fact in early.values():
        line = data[fact.evidence.offset :].split(b"\n", 1)[0].replace(b'": ', b'":')
        if fact.status in ("completed", "failed"):
            assert any(mark in line for mark in family.terminal), line[:200]


@pytest.mark.contract("C04")
@each_ended
def test_c04_what_a_prefix_shows_as_ended_by_its_record_stays_so(family: Family, path: Path) -> None:
    """No prefix of the file, read as a file of its own, shows an end by a record that the longer file takes back."""
    data, at = raw(path), 0
    final = {turn.native: turn for turn in read_turns(all_facts(family, data))}
    for line in data.splitlines(keepends=True):
        at += len(line)
        for turn in read_turns(all_facts(family, data[:at])):
            if turn.native in final and turn.status in ("completed", "failed") and not turn.by_end_of_file:
                assert (turn.status, turn.final_text) == (final[turn.native].status, final[turn.native].final_text)


# --- damage ----------------------------------------------------------------------------------------------------------------

WRONG = [None, True, -1, 10**400, 1e308, "", "\x00", [], {}, [[]], {"type": "user"}, "x" * 5000]


def mutated(data: bytes, chosen: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(chosen.randrange(1, 6)):
        at = chosen.randrange(len(lines))
        line = bytearray(lines[at] or b"\n")  # an earlier damage may have left nothing of it
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


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(which=st.sampled_from(RAW), seed=st.integers(0, 2**32))
def test_a_damaged_file_never_raises_and_reads_alike_in_any_chunking(which: tuple[Family, Path], seed: int) -> None:
    family, path = which
    chosen = random.Random(seed)
    data = mutated(raw(path), chosen)
    whole = all_facts(family, data)
    reader = oracle_of(family)
    cut = chosen.randrange(len(data) + 1)
    assert reader.feed("f", data[:cut]) + reader.feed("f", data[cut:]) + reader.eof("f") == whole
    closed = [fact.native_turn for fact in whole if isinstance(fact, TurnClosed)]
    if family.provider != "claude-code":  # there a doubled prompt line is told again; the session knows it by its id
        assert len(closed) == len(set(closed)), "closed twice"
    for turn in read_turns(whole):
        json.dumps(turn.as_json())


HOSTILE = [
    b"\x00" * 100,
    b"\xff\xfe\xfd",
    b"[" * 10_000,
    b'{"a":' * 10_000,
    b'{"type":"user","message":' + b'{"content":' * 10_000,
    b'{"type":' + b"9" * 5000 + b"}",
    b'{"type":"brand_new_record"}',
    b'{"type":"user","timestamp":"' + b"9" * 5000 + b'"}',
    b'{"type":"system","subtype":"turn_duration","durationMs":1e999}',
    b'{"type":"user","message":{"content":[null,1,"x",{"type":"tool_result","content":[[[1]]]}]}}',
    b'{"type":"assistant","message":{"id":1,"content":{"type":"text"}}}',
    b"null",
    b'"text"',
    b"{}",
]


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: line[:24].decode("ascii", "replace"))
@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_a_hostile_line_is_one_unknown_record_and_the_turns_around_it_stay(family: Family, line: bytes) -> None:
    path = min((one for one in family.expected()), key=lambda one: sum(len(raw(file)) for file in files_of(one)))
    for file in files_of(path):
        lines = raw(file).splitlines(keepends=True)
        want = shown(read_turns(all_facts(family, raw(file))))
        for at in range(len(lines) + 1):
            damaged = b"".join([*lines[:at], line + b"\n", *lines[at:]])
            assert_turns(shown(read_turns(all_facts(family, damaged))), want)
    facts = all_facts(family, line + b"\n")
    assert any(isinstance(fact, UnknownRecord) for fact in facts) or b'"content":[null' in line


@pytest.mark.parametrize("family", FAMILIES, ids=name_of)
def test_a_line_longer_than_any_record_costs_no_turn_and_no_memory(family: Family) -> None:
    """It streams by: what is held of it never reaches the bound."""
    import tracemalloc

    path = family.expected()[0]
    file = files_of(path)[0]
    want = shown(read_turns(all_facts(family, raw(file))))
    reader, piece = oracle_of(family), b"x" * (1024 * 1024)
    facts = reader.feed("f", raw(file))
    tracemalloc.start()
    for _ in range(80):
        facts += reader.feed("f", piece)
    facts += reader.feed("f", b"\n")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1024 * 1024
    assert any(isinstance(fact, UnknownRecord) and fact.what == "oversized_line" for fact in facts)
    assert shown(read_turns([*facts, *reader.eof("f")])) == want


def test_what_two_files_tell_apart_is_merged_by_the_names_they_share() -> None:
    """A session file tells three messages of one Pi run, its events that they are one: one turn, told once."""
    folder = next(path for path in BY_PROVIDER["pi"].expected() if path.name.startswith("steerfinal")).parent
    for name in ("steerfinal.session.jsonl", "steerfinal.events.jsonl"):
        [turn] = read_files("pi", [folder / name])
        assert len(turn.joined) == 2
        assert turn.by_end_of_file == (".session." in name)
    [turn] = read_files("pi", [folder / "steerfinal.session.jsonl", folder / "steerfinal.events.jsonl"])
    assert not turn.by_end_of_file
