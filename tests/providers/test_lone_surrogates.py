"""Half a surrogate pair in what a CLI wrote: JavaScript writes it as an escape of its own, and JSON readers refuse it."""

from __future__ import annotations

import ast
import json
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cases_kit import RAW, Family, all_facts, name_of, raw
from lastword.actors.core import talk as talk_core
from lastword.actors.core.adapter import SourceSpec
from lastword.actors.core.facts import AssistantSaid, CliStatusSeen, Fact, ToolFinished, TurnClosed, UnknownRecord
from lastword.actors.core.typing_effects import DialogSeen
from lastword.transports.providers import acp_wire as wire
from lastword.transports.providers import decoding
from lastword.transports.providers.acp_oracle import AcpOracle
from lastword.transports.providers.claude_code_oracle import ClaudeOracle
from lastword.transports.providers.claude_code_talk import ClaudeTalk
from lastword.transports.providers.memory import MemoryOracle
from lastword.transports.providers.pi_talk import PiTalk

SAID_IN = frozenset(
    {
        "text",
        "content",
        "message",
        "result",
        "output",
        "last_agent_message",
        "delta",
        "aggregated_output",
        "msg",
        "response",
    }
)
"""Where the texts of records stand, whichever provider's."""
WHOLE = "\\ud83d\\ude00"


def with_escape(data: bytes, escape: str) -> bytes:
    """Every record with that escape in a field nobody knows, and at the end of each of its texts."""
    return b"".join(_escaped(line, escape) for line in data.splitlines(keepends=True))


def _escaped(line: bytes, escape: str) -> bytes:
    mark = "\ue000"
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    said = json.dumps({**_said(record, mark), "unheard_of": mark}, separators=(",", ":"))
    return said.replace("\\ue000", escape).encode() + b"\n"


def _said(value: Any, mark: str, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _said(inner, mark, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_said(inner, mark, key) for inner in value]
    return value + mark if isinstance(value, str) and value and key in SAID_IN else value


def unread(facts: list[Fact]) -> int:
    return sum(isinstance(fact, UnknownRecord) and fact.what in ("unreadable", "of_no_kind") for fact in facts)


@pytest.mark.contract("C03")
@pytest.mark.parametrize(("family", "path"), RAW, ids=name_of)
def test_c03_every_recorded_case_with_half_a_pair_in_every_line_reads_as_with_a_replacement_character(
    family: Family, path: Path
) -> None:
    data = raw(path)
    halves = [all_facts(family, with_escape(data, half)) for half in ("\\ud83d", "\\uDE00")]
    replaced = all_facts(family, with_escape(data, "\\ufffd"))
    assert halves == [replaced, replaced]
    assert unread(replaced) == unread(all_facts(family, data))
    whole = all_facts(family, with_escape(data, WHOLE))
    ends = [fact.answer for fact in whole if isinstance(fact, TurnClosed) and fact.answer]
    assert all("\N{GRINNING FACE}" in answer for answer in ends), "a whole pair is one character"


def test_the_recorded_cases_hold_answers_of_every_provider_to_prove_it_by() -> None:
    proved = {
        family.provider
        for family, path in RAW
        for fact in all_facts(family, with_escape(raw(path), "\\ud83d"))
        if isinstance(fact, TurnClosed) and "\N{REPLACEMENT CHARACTER}" in (fact.answer or "")
    }
    assert proved == {family.provider for family, _ in RAW}


def line_of(data: bytes, text: str, escape: str = "\\ud83d") -> bytes:
    assert text.encode() in data
    return data.replace(text.encode(), escape.encode())


@pytest.mark.contract("C03")
def test_c03_an_acp_agents_half_pairs_cost_neither_answer_nor_tool_nor_reason() -> None:
    half = "HALF"
    sent = wire.request("a", wire.PROMPT, {"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]})
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "status": "completed", "title": "t"}
    out = {**update, "content": [{"content": {"type": "text", "text": f"out {half}"}}]}
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"answer {half}"}}
    heard = b"".join(
        [
            wire.notification(wire.UPDATE, {"sessionId": "s", "update": out}),
            wire.notification(wire.UPDATE, {"sessionId": "s", "update": said}),
            wire.answer("a", {"stopReason": "end_turn", "note": half}),
        ]
    )
    oracle = AcpOracle()
    facts = oracle.feed("x.sent.jsonl", sent) + oracle.feed("x.jsonl", line_of(heard, half))
    assert [fact.answer for fact in facts if isinstance(fact, TurnClosed)] == ["answer \N{REPLACEMENT CHARACTER}"]
    assert [fact.result for fact in facts if isinstance(fact, ToolFinished)] == ["out \N{REPLACEMENT CHARACTER}"]


def asked_by_claude() -> list[talk_core.TalkEffect]:
    talk = ClaudeTalk("session")
    talk.opened()
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "echo HALF"}}
    line = json.dumps({"type": "control_request", "request_id": "r", "request": request}).encode()
    return talk.heard(line_of(line, "HALF"))


def asked_by_pi() -> list[talk_core.TalkEffect]:
    talk = PiTalk()
    talk.opened()
    request = {"type": "extension_ui_request", "id": "r", "method": "confirm", "title": "Run echo HALF?"}
    return talk.heard(line_of(json.dumps(request).encode(), "HALF"))


@pytest.mark.contract("C25")
@pytest.mark.parametrize("asked", [asked_by_claude, asked_by_pi])
def test_c25_a_question_with_half_a_pair_is_told(asked: Any) -> None:
    (dialog,) = asked()
    assert isinstance(dialog, DialogSeen)
    assert "echo \N{REPLACEMENT CHARACTER}" in dialog.dialog.question


def test_a_registry_and_the_memory_transports_record_are_read_alike() -> None:
    source = SourceSpec(kind="append-jsonl", path="f", root="")
    registry = b'{"pid":1,"sessionId":"s","status":"idle","name":"\\ud83d"}'
    (seen,) = ClaudeOracle(source, "s").feed_snapshot("r", registry)
    assert isinstance(seen, CliStatusSeen)
    assert seen.status == "idle"
    record = b'{"k":"prompt","turn":"t","text":"hi"}\n{"k":"said","turn":"t","text":"\\ud83d"}\n'
    said = [fact.text for fact in MemoryOracle(source, 0).feed("f", record) if isinstance(fact, AssistantSaid)]
    assert said == ["\N{REPLACEMENT CHARACTER}"]


def test_any_text_reads_as_a_utf8_writer_would_have_written_it() -> None:
    """Escapes in any order, escaped backslashes before them, and the three bytes of a careless writer."""
    dice = random.Random(1)
    words = ["\\\\", "\\n", "\\ud83d", "\\uDE00", "\\uDBff", '\\"', "x", "\\u0041", "ud83d", "\\uDFFf", "é", WHOLE]
    decoder = decoding.Decoder(str)
    for _ in range(20_000):
        line = ('"' + "".join(dice.choice(words) for _ in range(dice.randint(0, 9))) + '"').encode()
        text: str = json.loads(line)
        wanted = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        assert decoder.decode(line) == wanted, line
        assert decoder.decode(msgspec.json.encode(wanted)) == wanted
    careless = '"a\ud83d b\ude00 c\ud83d\ude00"'.encode("utf-8", "surrogatepass")
    assert decoder.decode(careless) == "a\N{REPLACEMENT CHARACTER} b\N{REPLACEMENT CHARACTER} c\N{GRINNING FACE}"


@pytest.mark.parametrize(
    "line", [b'"\\ud83d', b'"\\ud83', b'"\\ud83d" x', b'"\xff\\ud83d"', b'"\\uzzzz"', b'"\xed\xa0"', b""]
)
def test_what_is_refused_for_another_reason_is_refused_as_before(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        decoding.Decoder(str).decode(line)
    assert not isinstance(caught.value, msgspec.ValidationError)
    with pytest.raises(msgspec.ValidationError):
        decoding.Decoder(int).decode(b'"x"')


def test_nothing_that_a_cli_wrote_is_decoded_in_any_other_way() -> None:
    """The next adapter too: what it decodes by itself would lose such a line."""
    folder = Path(decoding.__file__).parent
    files = [path for path in folder.glob("*.py") if path.name != "decoding.py"]
    assert len(files) > 30
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}
        assert not {name for name in used if re.fullmatch(r"(msgspec\.)?json\.(decode|Decoder|loads)", name)}, path.name
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not imported & {"loads", "JSONDecoder"}, path.name
