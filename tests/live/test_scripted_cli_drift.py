"""The scripted CLI's records held against the real Claude Code's, scenario by scenario.

Both are driven by the same keys in a real pane; the real one gets its answers from the scripted model server, the
scripted one from the same directives in the prompt. What is compared is the shape: kinds in order, the keys that
lastword reads, who is whose parent, the path rule and the registry's fields.
"""

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lastword.runtime.testing import SCRIPTED_CLI, ModelRequest, Rehearsal, Step, TextBlock
from pane_rig import Pane

CLAUDE = os.environ.get("LASTWORD_CLAUDE_BIN", "")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not CLAUDE, reason="LASTWORD_CLAUDE_BIN names no real Claude Code"),
]

# Kinds that say nothing about a turn; their number and place vary between runs of the real CLI itself.
METADATA = {
    "mode",
    "permission-mode",
    "atis-latch",
    "file-history-snapshot",
    "last-prompt",
    "api-request",
    "api-request-shape",
    "api-request-blob",
    "cost-state",
    "tools-used",
    "ai-title",
    "bridge-session",
}
READ_KEYS = {
    "parentUuid", "isSidechain", "promptId", "type", "subtype", "message", "uuid", "timestamp", "sessionId", "version",
    "cwd", "permissionMode", "origin", "promptSource", "turnOrigin", "turnPosition", "isMeta", "rowSource", "ownNote",
    "interruptedMessageId", "toolUseResult", "toolDenialKind", "toolDenialBeforeRun", "sourceToolAssistantUUID",
    "permissionDecision", "isApiErrorMessage", "apiErrorStatus", "apiErrorType", "error", "isAbortedMidStream",
    "apiBlockIndex", "requestId", "operation", "content", "reason", "commandUuid", "deliveryId", "attachment",
    "durationMs", "messageCount", "level", "commandRun", "isCompactSummary", "logicalParentUuid", "userType", "entrypoint", "sentAtMs", "turnCompanion", "compactMetadata", "isVisibleInTranscriptOnly",
}  # fmt: skip
MESSAGE_KEYS = {
    "id",
    "type",
    "role",
    "model",
    "content",
    "stop_reason",
    "stop_sequence",
    "usage",
    "stop_details",
}
REGISTRY_KEYS = {
    "pid",
    "sessionId",
    "cwd",
    "startedAt",
    "procStart",
    "version",
    "kind",
    "entrypoint",
    "status",
}
REGISTRY_KEYS |= {"updatedAt", "statusUpdatedAt"}


def ordered(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A dequeuing stands before the prompt that it lets go. Where among the answer's records a CLI writes it depends on
    when its buffer is flushed, that is on the machine's load.
    """
    rows: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    for record in records:
        if record.get("operation") == "dequeue":
            held.append(record)
            continue
        if record["type"] == "user":
            rows += held
            held = []
        rows.append(record)
    return rows + held


class Run:
    def __init__(self, pane: Pane, session_id: str) -> None:
        self.pane, self.session_id = pane, session_id
        self.first_id = session_id
        self.turns = 0

    def kept(self, session_id: str = "") -> list[dict[str, Any]]:
        records = self.pane.records(session_id or self.session_id)
        return ordered(
            record
            for record in records
            if record["type"] not in METADATA
            and not (record["type"] == "attachment" and record["attachment"]["type"] != "queued_command")
        )

    def count(self, test: Callable[[dict[str, Any]], bool]) -> int:
        return sum(map(test, self.kept()))

    def ends(self) -> int:
        return self.count(lambda record: record.get("subtype") == "turn_duration")

    def wait_end(self, number: int = 1) -> None:
        self.pane.until(lambda: self.ends() >= number and self.pane.status == "idle", f"end of turn {number}")

    def wait_record(self, test: Callable[[dict[str, Any]], bool], what: str) -> None:
        self.pane.until(lambda: self.count(test), what)


def plain(run: Run) -> None:
    run.pane.submit("hello there")
    run.wait_end()
    run.pane.submit("and again")
    run.wait_end(2)


def tool(run: Run) -> None:
    run.pane.submit("[[think:hm]][[say:looking]][[tool:Bash:echo alpha]][[say:done]]")
    run.wait_end()


def failing_tool(run: Run) -> None:
    run.pane.submit("[[tool:Bash:cat no-such-file]]")
    run.wait_end()


def multi_block(run: Run) -> None:
    run.pane.submit("[[say:First half. ]][[pause:0.1]][[say:Second half.]]")
    run.wait_end()


def queued_mid_tool(run: Run) -> None:
    run.pane.submit("[[tool:Bash:sleep 2]][[say:done]]")
    run.wait_record(lambda record: record["type"] == "assistant", "tool call")
    run.pane.submit("absorb this")
    run.wait_end()


def queued_in_generation(run: Run) -> None:
    run.pane.submit("[[say:working]][[pause:1.5]][[say:answer one]]")
    run.wait_record(lambda record: record["type"] == "user", "prompt")
    run.pane.submit("the next one")
    run.wait_end(2)


def early_escape(run: Run) -> None:
    run.pane.submit("[[sleep:6]]taken back")
    run.wait_record(lambda record: record["type"] == "user", "prompt")
    time.sleep(0.4)
    run.pane.keys("Escape")
    run.pane.until(lambda: run.pane.status == "idle", "idle after Escape")
    run.pane.until(lambda: "taken back" in run.pane.box(), "the text back in the box")
    run.pane.keys("C-u")
    run.pane.until(lambda: "taken back" not in run.pane.box(), "empty box")
    run.pane.submit("another one")
    run.wait_end()


def mid_escape(run: Run) -> None:
    run.pane.submit("[[chunk:5:0.05]][[size:2000]]")
    run.pane.until(lambda: "0123456789" in run.pane.screen(), "first words", bound_s=8)
    run.pane.keys("Escape")
    run.wait_record(lambda record: "[Request interrupted" in json.dumps(record), "interruption")
    run.pane.until(lambda: run.pane.status == "idle", "idle")


def tool_escape(run: Run) -> None:
    run.pane.submit("[[tool:Bash:sleep 9]]")
    run.wait_record(lambda record: record["type"] == "assistant", "tool call")
    time.sleep(0.5)
    run.pane.keys("Escape")
    run.wait_record(lambda record: "[Request interrupted" in json.dumps(record), "interruption")


def pasted(run: Run) -> None:
    run.pane.submit("a\nb\n  c\nd\ne")
    run.wait_end()


def api_error(run: Run) -> None:
    run.pane.submit("[[error:500]]")
    run.wait_record(lambda record: bool(record.get("isApiErrorMessage")), "error record")
    run.pane.until(lambda: run.pane.status == "idle", "idle")


def api_400(run: Run) -> None:
    run.pane.submit("[[error:400]]")
    run.wait_record(lambda record: bool(record.get("isApiErrorMessage")), "error record")


def api_429(run: Run) -> None:
    run.pane.submit("[[error:429]]")
    run.wait_record(lambda record: bool(record.get("isApiErrorMessage")), "error record")


def clear(run: Run) -> None:
    run.pane.submit("before")
    run.wait_end()
    run.pane.submit("/clear")
    run.pane.until(lambda: run.pane.registry().get("sessionId") not in ("", None, run.first_id), "new session id")
    run.session_id = run.pane.registry()["sessionId"]
    run.pane.until(lambda: run.pane.box().strip("❯\u00a0 \n") == "", "empty box")
    run.pane.submit("after")
    run.wait_end()


def compact(run: Run) -> None:
    run.pane.submit("before")
    run.wait_end()
    run.pane.submit("/compact")
    run.wait_record(lambda record: "Compacted" in json.dumps(record), "compacted")
    run.pane.until(lambda: run.pane.status == "idle", "idle")
    run.pane.submit("after")
    run.wait_end(2)


def unknown_command(run: Run) -> None:
    run.pane.submit("first")
    run.wait_end()
    run.pane.submit("/nosuchthing hi")
    run.wait_record(lambda record: record.get("subtype") == "informational", "unknown command")


def bang(run: Run) -> None:
    run.pane.submit("first")
    run.wait_end()
    run.pane.paste("!echo bang")
    run.pane.until(lambda: "echo bang" in run.pane.box(), "command in the box")
    run.pane.keys("Enter")
    run.wait_end(2)


def permission(run: Run, key: str) -> None:
    run.pane.submit("[[tool:Bash:touch made]][[say:done]]")
    run.pane.until(lambda: "Do you want to proceed?" in run.pane.screen(), "dialog")
    run.pane.until(lambda: run.pane.status == "waiting", "the status waiting")
    assert run.pane.registry()["waitingFor"] == "permission prompt"
    time.sleep(0.3)
    run.pane.keys(key)


def permission_yes(run: Run) -> None:
    permission(run, "1")
    run.wait_end()


def permission_no(run: Run) -> None:
    permission(run, "Escape")
    run.wait_record(lambda record: "[Request interrupted" in json.dumps(record), "interruption")


def stop_reasons(run: Run) -> None:
    run.pane.submit("[[say:part]][[stop:max_tokens]][[say:rest]]")
    run.wait_end()
    run.pane.submit("[[say:stopped]][[stop:stop_sequence]]")
    run.wait_end(2)
    run.pane.submit("[[say:paused]][[stop:pause_turn]]")
    run.wait_end(3)


def refusal(run: Run) -> None:
    run.pane.submit("[[say:no]][[stop:refusal]]")
    run.wait_record(lambda record: bool(record.get("isApiErrorMessage")), "refusal")


def background_agent(run: Run) -> None:
    run.pane.submit(
        '[[tool:Agent:{"description":"d","prompt":"sub task","subagent_type":"general-purpose"}]][[say:parent done]]'
    )
    run.wait_end(2)


SCENARIOS = [
    plain, tool, failing_tool, multi_block, queued_mid_tool, queued_in_generation, early_escape, mid_escape, tool_escape,
    pasted, api_error, api_400, api_429, clear, compact, unknown_command, bang, permission_yes, permission_no,
    stop_reasons, refusal, background_agent,
]  # fmt: skip


def detail(record: dict[str, Any]) -> str:
    kind = record["type"]
    if kind in {"user", "assistant"}:
        content = record["message"]["content"]
        kind += "/" + ("text" if isinstance(content, str) else ",".join(block["type"] for block in content))
        if record["type"] == "assistant":
            kind += f"/{record['message']['stop_reason']}"
    if kind == "queue-operation":
        kind += "/" + record["operation"]
    return kind + ("/" + record["subtype"] if "subtype" in record else "")


def shape(run: Run) -> list[tuple[str, tuple[str, ...], Any]]:
    """Kind, read keys, and the place of the nearest kept ancestor, for each record of all files."""
    rows = []
    for session_id in dict.fromkeys((run.first_id, run.session_id)):
        everything = run.pane.records(session_id)
        parents = {record["uuid"]: record.get("parentUuid") for record in everything if "uuid" in record}
        kept = run.kept(session_id)
        place = {record["uuid"]: at for at, record in enumerate(kept) if "uuid" in record}
        for record in kept:
            ancestor = record.get("parentUuid")
            while ancestor is not None and ancestor not in place:
                ancestor = parents.get(ancestor)
            keys = {key for key in record if key in READ_KEYS}
            if record["type"] == "assistant":
                keys |= {"message." + key for key in record["message"] if key in MESSAGE_KEYS}
            if record["type"] == "attachment":
                keys |= {"attachment." + key for key in record["attachment"]}
            rows.append((detail(record), tuple(sorted(keys)), place.get(ancestor, ancestor)))
    return rows


def slow_sub_agent(request: ModelRequest) -> Step | None:
    """A sub-agent that outlives its parent's answer, as real ones do."""
    if "sub task" in request.prompt and "[[" not in request.prompt:
        return Step(delay_s=1.0, blocks=(TextBlock(text="sub-agent answer"),))
    return None


@pytest.fixture
def stage() -> Iterator[Rehearsal]:
    with Rehearsal(respond=slow_sub_agent) as rehearsal:
        yield rehearsal


def play(argv: list[str], stage: Rehearsal, scenario: Callable[[Run], None]) -> tuple[list[Any], dict[str, Any], Path]:
    session_id = str(uuid.uuid4())
    command = [*argv, "--session-id", session_id, "--permission-mode", "default"]
    with Pane(command, stage.env, stage.cwd) as pane:
        pane.ready()
        registry = pane.registry()
        assert registry["sessionId"] == session_id
        run = Run(pane, session_id)
        scenario(run)
        quiet = (0.0, -1)
        while time.monotonic() - quiet[0] > 0 and quiet[1] != len(run.kept()):  # the last batch is on disk
            quiet = (time.monotonic(), len(run.kept()))
            time.sleep(0.4)
        return shape(run), registry, pane.transcript(session_id)


QUICK = [plain, tool, queued_mid_tool, early_escape, pasted, api_error, clear, permission_yes, background_agent]


@pytest.mark.parametrize(
    "scenario",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.full) for each in SCENARIOS],
    ids=lambda scenario: scenario.__name__,
)
def test_the_scripted_cli_records_what_the_real_one_records(scenario: Callable[[Run], None], stage: Rehearsal) -> None:
    real, registry, path = play([CLAUDE], stage, scenario)
    assert path.exists()
    imitated, own_registry, own_path = play([sys.executable, str(SCRIPTED_CLI)], stage, scenario)
    assert own_path.parent == path.parent
    assert own_path.exists()
    assert "\n".join(row[0] for row in imitated) == "\n".join(row[0] for row in real)
    for at, (own, model) in enumerate(zip(imitated, real, strict=True)):
        assert own == model, (
            f"record {at}, {own[0]}: keys {sorted(set(own[1]) ^ set(model[1]))}, parent {own[2]} / {model[2]}"
        )
    assert set(registry) & REGISTRY_KEYS == REGISTRY_KEYS
    assert set(own_registry) & REGISTRY_KEYS == REGISTRY_KEYS
    assert own_registry["version"] == registry["version"], "another CLI version: measure again"


ODD = {
    "composed": "Re\u0301sume\u0301", "hangul": "\u1112\u1161\u11ab", "kelvin": "5 \u212a", "stacked": "Z\u0351\u036b\u0343\u034f\u0334a",
    "compatible": "\uf900\ufb01\u0958", "order": "q\u0302\u0323", "heart": "\u2764\ufe0f", "keycap": "1\ufe0f\u20e3",
    "family": "\U0001f468\u200d\U0001f4bb", "letters": "a\u200db\u200cc\ufe0fd\ufe00e\u034ff", "arabic": "\u0645\u200c\u062e\u200d",
    "deva": "\u0915\u094d\u200d\u0937", "mongol": "\u182d\u180b\u180e", "fillers": "a\u3164b\u115fc\uffa0d", "marks": "a\u2068b\ufff9c\U0001d173d\xade",
    "ideograph": "\u845b\U000e0100\ufe00", "math": "\u2229\ufe00", "flag": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "number": "a\u0600b",
    "khmer": "\u1780\u17b4", "blanks": "a\xa0b\u2800c",
}  # fmt: skip
ODD_TEXTS = (
    " ".join(f"<{name}:{text}>" for name, text in ODD.items()),
    " ".join(f"<{name}:{text}>" for name, text in ODD.items()) + " word" * 200,
    "a\x85b\u2029c",
    "\U0001f600" * 410,
)


def odd_texts(argv: list[str], stage: Rehearsal) -> list[str]:
    """What is recorded of each: composed in the box, as it was behind a placeholder, without what nobody sees."""
    session_id = str(uuid.uuid4())
    told: list[str] = []
    with Pane([*argv, "--session-id", session_id, "--permission-mode", "default"], stage.env, stage.cwd) as pane:
        pane.ready()
        run = Run(pane, session_id)
        for number, text in enumerate(ODD_TEXTS, 1):
            pane.paste(text)
            pane.until(lambda: pane.box().strip("\u276f\xa0 \n"), "the text in the box")
            for bound_s in (2.5, 2.5, 12.0):  # a first Enter may only take the notice of what was removed away
                pane.keys("Enter")
                try:
                    pane.until(lambda: run.ends() >= number, "its end", bound_s=bound_s)  # noqa: B023
                except AssertionError:
                    if bound_s > 10:
                        raise
                else:
                    break
            pane.until(lambda: pane.status == "idle", "idle")
        for record in pane.records(session_id):
            content = record["message"]["content"] if record["type"] == "user" and not record.get("isMeta") else None
            if isinstance(content, str):
                told.append(re.sub(r'id="\w+"', 'id="x"', content))
    return told


def words(text: str) -> list[str]:
    return ascii(text).split(" ")


def test_the_scripted_cli_makes_of_odd_texts_what_the_real_one_makes(stage: Rehearsal) -> None:
    real = odd_texts([CLAUDE], stage)
    imitated = odd_texts([sys.executable, str(SCRIPTED_CLI)], stage)
    assert len(real) == len(ODD_TEXTS)
    pairs = [
        pair for own, model in zip(imitated, real, strict=True) for pair in zip(words(own), words(model), strict=True)
    ]
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
