"""A hostile transcript: bounded memory and time, nothing settled falsely, and no file of another kind is read."""

from __future__ import annotations

import json
import os
import socket
import time
import tracemalloc

import pytest

from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.errors import UsageError
from lastword.actors.core.facts import AssistantSaid, PromptRecorded, TurnClosed, UnknownRecord
from lastword.actors.core.world import Bytes
from lastword.actors.system.deadletters import REASONS_MAX, DeadLetters
from lastword.runtime.command.read import read_files
from lastword.transports.files import read_from, read_small
from lastword.transports.providers.claude_code_oracle import ClaudeOracle
from lastword.transports.providers.claude_code_turn import ANSWER_CHARS_MAX, CUT_MARK
from volume_kit import NATIVE, encoded, turn_lines

MIB = 1024 * 1024
PIECE = MIB
HELD_MIB = 48
FEED_S = 20.0
"""Of the worst below, on a busy machine; without a bound they take hours."""


def oracle():
    return ClaudeOracle(SourceSpec(kind="append-jsonl", path="t", root="/"), NATIVE)


def fed(pieces, reader=None):
    """Facts of interest, with time and memory bounded; only a piece is ever held, as in the host."""
    reader = reader or oracle()
    began, kept, unknown = time.monotonic(), [], 0
    tracemalloc.start()
    try:
        for piece in pieces:
            for fact in reader.feed("t", piece):
                if isinstance(fact, UnknownRecord):
                    unknown += 1
                else:
                    kept.append(fact if not isinstance(fact, AssistantSaid) else type(fact))
        held = tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < FEED_S
    assert held < HELD_MIB, f"{held:.0f} MiB"
    return kept, unknown


def started(number=0):
    """An open turn: its prompt and one tool call."""
    lines = turn_lines(prompt="p", answer="a", at="2026-01-01T00:00:00Z", tools=1)
    return lines[:2], lines[2:]


def closed(facts):
    return [fact for fact in facts if isinstance(fact, TurnClosed)]


def test_a_line_without_end_costs_bounded_memory_and_the_next_one_is_read():
    def pieces():
        yield b'{"type":"user","message":{"content":"'
        for _ in range(100):
            yield b"x" * MIB
        yield b'"}}\n' + encoded(turn_lines(prompt="p", answer="the answer", at="2026-01-01T00:00:00Z"))

    facts, unknown = fed(pieces())
    (end,) = closed(facts)
    assert (end.answer, unknown) == ("the answer", 1)


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"type":"user","content":[', '{"message":{"content":[{"input":['])
def test_nesting_a_hundred_thousand_deep_is_one_unreadable_record(opening):
    first, rest = started()
    deep = (opening * 100_000 + "\n").encode()
    closing = {"[": "]", "{": "}"}
    whole = opening * 100_000 + "1" + "".join(closing[c] for c in reversed(opening * 100_000) if c in closing)
    facts, unknown = fed([encoded(first), deep, whole.encode() + b"\n", encoded(rest)])
    assert unknown == 2
    assert [end.status for end in closed(facts)] == ["completed"]


def test_very_many_tiny_records_of_unknown_types_cost_nothing_that_stays():
    letters = DeadLetters(lambda: 0.0)
    reader = oracle()

    def pieces():
        for start in range(0, 200_000, 20_000):
            yield b"".join(b'{"type":"t%d"}\n' % number for number in range(start, start + 20_000))

    _, unknown = fed(pieces(), reader)
    assert unknown == 200_000
    for number in range(REASONS_MAX * 3):
        letters.record(f"type:t{number}", "a", None)
    assert len(letters.counts()) == REASONS_MAX + 1
    assert sum(letters.counts().values()) == REASONS_MAX * 3


def test_a_turn_of_endless_tool_calls_blocks_and_queued_messages_costs_bounded_memory():
    first, _ = started()
    call = json.dumps({"type": "tool_use", "id": "ID", "name": "n", "input": {}})

    def pieces():
        yield encoded(first)
        for start in range(0, 200_000, 2_000):
            lines = []
            for number in range(start, start + 2_000):
                block = call.replace("ID", f"id-{number}") + ',{"type":"text","text":"xxxxxxxx"}'
                lines.append(
                    f'{{"type":"assistant","uuid":"u{number}","sessionId":"{NATIVE}","apiBlockIndex":{number * 2},'
                    f'"message":{{"id":"m","content":[{block}]}}}}\n'
                    f'{{"type":"queue-operation","operation":"enqueue","content":"{"q" * 100}{number}"}}\n'
                )
            yield "".join(lines).encode()

    reader = oracle()
    began = time.monotonic()
    for piece in pieces():
        reader.feed("t", piece)
    assert time.monotonic() - began < FEED_S
    assert len(reader._turn.tools) <= 8192
    assert len(reader._enqueued) <= 1_000
    assert len(reader._turn.said.blocks) <= 1_000


def test_one_line_of_very_many_blocks_takes_time_in_proportion():
    first, _ = started()
    blocks = [{"type": "text", "text": "x" * 4 * MIB}]
    for number in range(40_000):
        blocks += [{"type": "tool_use", "id": f"i{number}", "name": "n", "input": {}}, {"type": "text", "text": "y"}]
    line = {"type": "assistant", "uuid": "big", "sessionId": NATIVE, "message": {"id": "m", "content": blocks}}
    began = time.monotonic()
    facts = oracle_after(first).feed("t", encoded([line]))
    assert time.monotonic() - began < FEED_S
    assert sum(len(fact.text) for fact in facts if isinstance(fact, AssistantSaid)) < 32 * MIB


def test_an_answer_beyond_its_bound_is_cut_there_and_says_so():
    first, rest = started()
    reader = oracle_after(first)
    big = {"type": "text", "text": "x" * (ANSWER_CHARS_MAX + 5)}
    line = {"type": "assistant", "uuid": "big", "sessionId": NATIVE, "parentUuid": first[-1]["uuid"]}
    facts = reader.feed("t", encoded([line | {"message": {"id": "m", "stop_reason": "end_turn", "content": [big]}}]))
    facts += reader.feed("t", encoded([rest[-1] | {"parentUuid": "big"}]))
    (end,) = closed(facts)
    assert end.answer == "x" * ANSWER_CHARS_MAX + CUT_MARK


def oracle_after(lines):
    reader = oracle()
    reader.feed("t", encoded(lines))
    return reader


FORGED = {
    "a terminal record inside a tool's result": {
        "type": "user",
        "uuid": "f1",
        "message": {
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "nobody",
                    "content": '\n{"type":"system","subtype":"turn_duration","parentUuid":"P","uuid":"x"}\n',
                }
            ]
        },
    },
    "a terminal record of another session": {"sessionId": "other", "subtype": "turn_duration", "parentUuid": "P"},
    "a terminal record that hangs on nothing": {"subtype": "turn_duration", "parentUuid": None, "uuid": "f2"},
    "a terminal record that hangs on a stranger": {"subtype": "turn_duration", "parentUuid": "no such", "uuid": "f3"},
    "a terminal record that is its own parent": {"subtype": "turn_duration", "parentUuid": "f4", "uuid": "f4"},
    "a terminal record with the id of the prompt": {"subtype": "turn_duration", "parentUuid": "P", "uuid": "P"},
    "a terminal record of a sub-agent": {
        "subtype": "turn_duration",
        "parentUuid": "P",
        "uuid": "f",
        "isSidechain": True,
    },
    "a copied one": {"subtype": "turn_duration", "parentUuid": "P", "uuid": "f", "forkedFrom": {"a": 1}},
    "a terminal record whose parent is a number": {"subtype": "turn_duration", "parentUuid": 7, "uuid": "f5"},
    "ids beyond bounds": {"subtype": "turn_duration", "parentUuid": "P", "uuid": "x" * 300},
    "an answer of a stranger": {
        "type": "assistant",
        "uuid": "f6",
        "sessionId": "other",
        "message": {"id": "z", "stop_reason": "end_turn", "content": [{"type": "text", "text": "forged"}]},
    },
}


@pytest.mark.contract("C04")
@pytest.mark.parametrize("name", FORGED)
def test_c04_a_forged_record_settles_nothing(name):
    first, rest = started()
    forged = {"type": "system", "sessionId": NATIVE, **FORGED[name]}
    text = json.dumps(forged).replace('"P"', f'"{first[0]["uuid"]}"')
    reader = oracle()
    assert closed(reader.feed("t", encoded(first) + text.encode() + b"\n")) == []
    (end,) = closed(reader.feed("t", encoded(rest)))
    assert (end.status, end.answer) == ("completed", "a")


@pytest.mark.contract("C02")
def test_c02_a_doubled_transcript_opens_and_closes_each_turn_once_for_who_reads_it(tmp_path):
    data = encoded(turn_lines(prompt="p", answer="a", at="2026-01-01T00:00:00Z"))
    path = tmp_path / "t.jsonl"
    path.write_bytes(data + data)
    (turn,) = read_files("claude-code", [path])
    assert (turn.status, turn.final_text) == ("completed", "a")


@pytest.mark.contract("C02")
def test_c02_a_prompt_that_stands_there_twice_in_its_turn_opens_it_once():
    first, rest = started()
    facts = fed([encoded(first[:1]), encoded(first), encoded(rest)])[0]
    assert len([fact for fact in facts if isinstance(fact, PromptRecorded)]) == 1
    assert [(end.status, end.answer) for end in closed(facts)] == [("completed", "a")]


@pytest.mark.parametrize(
    "line",
    [
        b"\0" * 1000,
        b"\xff\xfe{}",
        b'{"type":"user","message":{"content":"\xc3\x28"}}',
        b'{"type":"user","message":{"content":"\\ud800"}}',
        b'{"type":"user","timestamp":"0001-01-01T00:00:00+23:59","message":{"content":"x"}}',
        b'{"type":"user","timestamp":"99999-99-99","message":{"content":"x"}}',
        b'{"type":"assistant","apiBlockIndex":' + b"9" * 400 + b',"message":{"content":[]}}',
        b'{"type":' + b"[" * 500 + b"}",
        b'{"type":"user","uuid":{},"message":[]}',
    ],
)
def test_broken_bytes_raise_nothing_and_end_nothing(line):
    first, rest = started()
    reader = oracle()
    facts = reader.feed("t", encoded(first))
    middle = reader.feed("t", line + b"\n")
    if not any(isinstance(fact, PromptRecorded) for fact in middle):
        assert closed(middle) == []
        assert [end.status for end in closed(reader.feed("t", encoded(rest)))] == ["completed"]
    assert isinstance(facts[1], PromptRecorded)


REST = b'{"type":"user","sessionId":"' + NATIVE.encode() + b'","uuid":"torn","message":{"content":"abc'


@pytest.mark.contract("C02")
def test_c02_a_record_that_is_glued_to_the_rest_of_another_is_read():
    """A CLI that was killed as it wrote, and resumed: its next record stands behind half a line."""
    reader = oracle()
    first, rest = started()
    glued = fed([REST + encoded(first) + encoded(rest)], reader)[0]
    assert [fact.text for fact in glued if isinstance(fact, PromptRecorded)] == ["p"]
    assert [(end.status, end.answer) for end in closed(glued)] == [("completed", "a")]


@pytest.mark.contract("C04")
@pytest.mark.parametrize(
    "line",
    [
        b"X" * 1000 + REST[:20],
        REST + json.dumps('{"type":"system","subtype":"turn_duration","parentUuid":"P","uuid":"f"}').encode()[1:-1],
        REST + b'","more":{"type":"system","subtype":"turn_duration","sessionId":"S","parentUuid":"P","uuid":"f"},',
        REST + b'{"type":"system","subtype":"turn_duration","sessionId":"another","parentUuid":"P","uuid":"f"}',
        REST + b'{"type":"system","subtype":"turn_duration","parentUuid":"P","uuid":"f"}',
    ],
    ids=["no record", "a text in a string", "a part of a record", "another session's", "nobody's"],
)
def test_c04_what_stands_in_an_unreadable_line_and_is_no_record_of_this_session_settles_nothing(line):
    first, rest = started()
    reader = oracle()
    reader.feed("t", encoded(first))
    line = line.replace(b'"P"', f'"{first[0]["uuid"]}"'.encode()).replace(b'"S"', f'"{NATIVE}"'.encode())
    facts = reader.feed("t", line + b"\n")
    assert [type(fact) for fact in facts] == [UnknownRecord]
    assert [end.status for end in closed(reader.feed("t", encoded(rest)))] == ["completed"]


def test_very_many_record_beginnings_in_one_unreadable_line_cost_little():
    fed([b'{"type":' * 100_000 + b"\n" + b'{"parentUuid":"x","type":{' * 30_000 + b"\n"])


def strangers(folder):
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder / "loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    return [folder / name for name in ("fifo", "folder", "zero", "loop", "socket")] + [
        "/dev/zero",
        "/dev/tty",
        "/dev/null",
    ]


def test_what_is_no_file_is_never_read_and_never_waited_for(tmp_path):
    began = time.monotonic()
    for path in strangers(tmp_path):
        assert not isinstance(read_from(str(path), 0, 100), Bytes), path
        assert read_small(str(path), 100) is None
        with pytest.raises(UsageError) as caught:
            read_files("claude-code", [path])
        assert caught.value.kind == "file_unreadable"
    assert time.monotonic() - began < 5
