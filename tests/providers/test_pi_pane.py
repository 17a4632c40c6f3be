"""Pi in its pane, from recordings of our extension in the real CLI: what the oracle reads, and what the talk says."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from lastword.actors.core.adapter import LaunchRequest, SourceSpec, TypedText
from lastword.actors.core.facts import (
    Fact,
    InputDropped,
    InputJoined,
    InputQueued,
    PromptRecorded,
    ProviderRetrying,
    ToolFinished,
    ToolStarted,
    TurnClosed,
    UnknownRecord,
)
from lastword.actors.core.ids import MessageId, TurnId
from lastword.actors.core.reading import read_turns
from lastword.actors.core.talk import GiveUp, Named, Remind, TalkEffect, Write
from lastword.actors.core.typing_effects import (
    AnswerResult,
    BecameReady,
    DialogGone,
    DialogSeen,
    Interrupted,
    Job,
    Submitted,
    WithdrawnReport,
)
from lastword.transports.providers.pi import conversation_of
from lastword.transports.providers.pi_pane import EXTENSION, PiPaneAdapter
from lastword.transports.providers.pi_pane_oracle import PiPaneOracle
from lastword.transports.providers.pi_pane_talk import HANDSHAKE_S, PiPaneTalk
from lastword.transports.providers.pi_reader import PiReader

FOLDER = Path(__file__).parents[1] / "fixtures" / "pi" / "1.6.0" / "pane"
CASES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.record.jsonl"))
SOURCE = "record"
OURS = "0995e619-9160-4acd-a85f-45e3987568e3"


def recorded(case: str) -> bytes:
    return (FOLDER / f"{case}.record.jsonl").read_bytes()


def sent(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{case}.sent.jsonl").read_text().splitlines()]


def told(data: bytes, chunk: int = 0) -> list[Fact]:
    oracle = PiPaneOracle()
    step = chunk or len(data) or 1
    facts = [fact for at in range(0, len(data), step) for fact in oracle.feed(SOURCE, data[at : at + step])]
    return [*facts, *oracle.eof(SOURCE)]


def outline(facts: list[Fact]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for fact in facts:
        match fact:
            case PromptRecorded():
                found.append(("began", fact.key or fact.origin or fact.taken))
            case InputQueued():
                found.append(("queued", fact.key))
            case InputJoined():
                found.append(("joined", fact.key))
            case InputDropped():
                found.append(("dropped", fact.key, fact.reason))
            case ToolStarted():
                found.append(("tool", json.loads(fact.arguments)["command"]))
            case ToolFinished():
                found.append(("tool_end", fact.status, fact.result))
            case ProviderRetrying():
                found.append(("retrying", fact.message[:3]))
            case TurnClosed():
                kind = fact.error.kind if fact.error is not None else ""
                found.append(("closed", fact.status, fact.answer or kind))
            case UnknownRecord():
                found.append(("unknown", fact.what))
            case _:
                pass
    return found


READ: dict[str, list[tuple[str, ...]]] = {
    "plain": [
        ("began", "m_1"),
        ("closed", "completed", "echo: hello"),
        ("began", "m_2"),
        ("tool", "echo alpha"),
        ("tool_end", "ok", "alpha\n"),
        ("closed", "completed", "Both."),
        ("began", "m_3"),
        ("closed", "failed", "invalid_request"),
        ("began", "m_4"),
        ("retrying", "529"),
        ("closed", "completed", "after it"),
    ],
    "busy": [
        ("began", "m_1"),
        ("tool", "sleep 1"),
        ("queued", "m_2"),
        ("tool_end", "ok", "(no output)"),
        ("joined", "m_2"),
        ("closed", "completed", "second answer"),
    ],
    "interrupted": [
        ("began", "m_1"),
        ("queued", "m_2"),
        ("closed", "cancelled", ""),
        ("began", "m_2"),
        ("closed", "completed", "behind"),
    ],
    "person": [
        ("began", "m_1"),
        ("closed", "completed", "echo: warm"),
        ("began", "typed"),
        ("closed", "completed", "echo: typed by a person"),
        ("began", "m_2"),
        ("tool", "sleep 2"),
        ("tool_end", "ok", "(no output)"),
        ("joined", ""),
        ("closed", "completed", "theirs"),
        ("began", "m_3"),
        ("closed", "completed", "echo: in the new one"),
        ("began", "m_4"),
        ("closed", "completed", "echo: reloaded"),
    ],
    "asked": [
        ("began", "m_1"),
        ("tool", "touch allowed"),
        ("tool_end", "ok", "(no output)"),
        ("closed", "completed", "done"),
        ("began", "m_2"),
        ("tool", "touch never"),
        ("tool_end", "error", "Operation aborted"),
        ("closed", "cancelled", ""),
    ],
    "moved_midrun": [
        ("began", "m_1"),
        ("queued", "m_2"),
        ("closed", "cancelled", ""),
        ("began", "m_2"),
        ("closed", "completed", "behind"),
    ],
    "alone": [
        ("began", "m_1"),
        ("closed", "completed", "ours"),
        ("began", "task_notification"),
        ("closed", "completed", "by itself"),
    ],
}


def test_every_recording_is_read() -> None:
    assert sorted(READ) == CASES


@pytest.mark.contract("C04")
@pytest.mark.parametrize("case", CASES)
def test_c04_the_record_says_whose_message_began_joined_and_ended(case: str) -> None:
    facts = told(recorded(case))
    assert outline(facts) == READ[case]
    assert told(recorded(case), chunk=1) == facts
    assert told(recorded(case), chunk=97) == facts


@pytest.mark.contract("C04")
@pytest.mark.parametrize("case", CASES)
def test_c04_nothing_but_a_settled_run_closes_a_turn(case: str) -> None:
    lines = recorded(case).splitlines(keepends=True)
    for until in range(len(lines)):
        ends = [fact for fact in told(b"".join(lines[:until])) if isinstance(fact, TurnClosed)]
        assert len(ends) == sum(b'"agent_settled"' in line for line in lines[:until])


@pytest.mark.contract("C50")
def test_c50_a_torn_or_hostile_line_raises_nothing_and_ends_nothing() -> None:
    dice = random.Random(7)
    data = recorded("plain")
    for _ in range(300):
        torn = bytearray(data)
        for _ in range(dice.randrange(1, 6)):
            torn[dice.randrange(len(torn))] = dice.randrange(256)
        told(bytes(torn))
    for junk in (b"null\n", b"[1]\n", b'{"ev":7}\n', b'{"ev":"message_end","role":"user","at":1e99}\n', b"[" * 9000):
        assert not [fact for fact in told(junk) if isinstance(fact, TurnClosed)]


@pytest.mark.contract("C02")
def test_c02_a_run_that_is_open_when_pi_is_in_another_conversation_is_lost() -> None:
    lines = recorded("moved_midrun").splitlines(keepends=True)
    cut = [line for line in lines if b'"agent_settled","aborted":true' not in line]
    closed = [fact for fact in told(b"".join(cut)) if isinstance(fact, TurnClosed)]
    assert [(each.status, each.error.kind if each.error else "") for each in closed] == [
        ("lost", "superseded"),
        ("completed", ""),
    ]


@pytest.mark.contract("C06")
def test_c06_a_second_end_and_a_run_without_a_message_change_nothing() -> None:
    data = recorded("busy")
    again = data.splitlines(keepends=True)[-1]
    assert outline(told(data + again)) == [*READ["busy"], ("unknown", "late_terminal")]


def test_c13_two_messages_of_one_millisecond_are_two_turns() -> None:
    lines = [line for line in recorded("plain").splitlines(keepends=True) if b"echo alpha" not in line][:7]
    twice = b"".join(lines) + b"".join(lines[1:]).replace(b"m_1", b"m_9")
    natives = [fact.native_turn for fact in told(twice) if isinstance(fact, PromptRecorded)]
    assert len(natives) == len(set(natives)) == 2


def test_c21_what_pi_would_not_begin_is_dropped_with_its_reason() -> None:
    line = b'{"v":1,"t":1,"ev":"refused","id":"m_1","reason":"no model is selected in Pi"}\n'
    assert outline(told(line)) == [("dropped", "m_1", "no model is selected in Pi")]


def test_a_record_of_ours_is_told_from_another_extensions(tmp_path: Path) -> None:
    source = SourceSpec(kind="append-jsonl", path="", root="")
    facts = PiReader().oracle(source, "").feed(SOURCE, recorded("busy"))
    (turn,) = read_turns(facts)
    assert (turn.status, turn.final_text) == ("completed", "second answer")


# --- the talk ---------------------------------------------------------------------------------------------------------


def job(message_id: str, text: str = "hello", turn_id: str | None = None) -> Job:
    typed = TypedText(text=text, paste=text.encode(), rewritten=text)
    return Job(message_id=MessageId(message_id), typed=typed, turn_id=TurnId(turn_id) if turn_id else None)


def line(ev: str, **more: Any) -> bytes:
    return json.dumps({"v": 1, "t": 1, "ev": ev, **more}).encode()


def written(effects: list[TalkEffect]) -> list[dict[str, Any]]:
    return [json.loads(effect.data) for effect in effects if isinstance(effect, Write)]


START = line("session_start", reason="startup", file=f"/x/lastword_{OURS}.jsonl")


def ready() -> PiPaneTalk:
    talk = PiPaneTalk(OURS)
    assert talk.opened() == [Remind(name="handshake", delay_s=HANDSHAKE_S)]
    assert talk.heard(START) == [BecameReady()]
    return talk


@pytest.mark.contract("C24")
@pytest.mark.parametrize("case", CASES)
def test_c24_the_talk_says_what_the_real_extension_was_told(case: str) -> None:
    talk = PiPaneTalk("")
    talk.heard(recorded(case).splitlines()[0])
    for command in sent(case):
        match command["do"]:
            case "say":
                assert written(talk.deliver(job(command["id"], command["text"]))) == [command]
            case "interrupt":
                for each in recorded(case).splitlines():
                    if json.loads(each)["ev"] == "agent_settled" and talk._settles < command["settles"]:
                        talk.heard(each)
                assert written(talk.interrupt(TurnId("t"))) == [command]
            case "answer":
                asked = next(each for each in recorded(case).splitlines() if b'"dialog"' in each)
                (seen,) = talk.heard(asked)
                assert isinstance(seen, DialogSeen)
                assert written(talk.answer("token", seen.dialog_id, command["option"])) == [command]


@pytest.mark.contract("C24")
def test_c24_nothing_is_said_before_the_extension_spoke_and_each_text_once() -> None:
    talk = PiPaneTalk(OURS)
    assert talk.deliver(job("m_1")) == []
    assert talk.deliver(job("m_1")) == []
    assert talk.deliver(job("m_2")) == []
    assert [each["id"] for each in written(talk.heard(START))] == ["m_1", "m_2"]
    assert talk.deliver(job("m_1")) == []
    assert talk.heard(line("session_start", reason="reload", file=f"/x/lastword_{OURS}.jsonl")) == []


@pytest.mark.contract("C02")
def test_c02_a_text_counts_as_submitted_once_it_was_taken() -> None:
    talk = ready()
    (write,) = talk.deliver(job("m_1"))
    assert isinstance(write, Write)
    assert write.after == ()
    assert talk.heard(line("taken", id="m_1")) == [Submitted(message_id=MessageId("m_1"), rewritten=())]


@pytest.mark.contract("C17")
def test_c17_what_was_taken_in_an_earlier_life_is_not_written_again() -> None:
    talk = PiPaneTalk(OURS)
    heard = [effect for each in recorded("interrupted").splitlines() for effect in talk.heard(each)]
    assert [effect.message_id for effect in heard if isinstance(effect, Submitted)] == ["m_1", "m_2", "m_2"]
    assert talk.deliver(job("m_2")) == []
    assert [each["id"] for each in written(talk.deliver(job("m_3")))] == ["m_3"]


@pytest.mark.contract("C07")
def test_c07_an_interrupt_names_the_runs_that_had_settled_and_spares_a_turn_that_is_over() -> None:
    talk = ready()
    talk.deliver(job("m_1", turn_id="t_1"))
    talk.heard(line("message_end", role="user", id="m_1", msg="hello"))
    assert written(talk.interrupt(TurnId("t_1"))) == [{"do": "interrupt", "settles": 0}]
    talk.heard(line("agent_settled", aborted=False))
    assert talk.interrupt(TurnId("t_1")) == [Interrupted(turn_id=TurnId("t_1"))]
    assert written(talk.interrupt(TurnId("t_2"))) == [{"do": "interrupt", "settles": 1}]


def test_c20_a_text_that_is_not_written_is_taken_back_at_once_and_another_by_the_extension() -> None:
    talk = PiPaneTalk(OURS)
    talk.deliver(job("m_1"))
    assert talk.withdraw(MessageId("m_1")) == [WithdrawnReport(message_id=MessageId("m_1"))]
    assert talk.heard(START) == [BecameReady()]
    talk.deliver(job("m_2"))
    assert written(talk.withdraw(MessageId("m_2"))) == [{"do": "withdraw", "id": "m_2"}]
    assert talk.heard(line("withdrawn", id="m_2")) == [WithdrawnReport(message_id=MessageId("m_2"))]


@pytest.mark.contract("C51")
def test_c51_the_conversation_that_a_person_moved_pi_to_is_named_by_its_path() -> None:
    talk = ready()
    path = "/home/x/.pi/agent/sessions/--work--/2026-12-03T00-40-23-970Z_01a23958.jsonl"
    assert talk.heard(line("session_start", reason="new", file=path)) == [Named(native_session=path)]
    assert talk.heard(START) == [Named(native_session=OURS)]
    request = LaunchRequest(
        native_session=path, cwd="/work", executable=("pi",), env={"HOME": "/home/x"}, stream="/s/1"
    )
    recipe = PiPaneAdapter().launch(request)
    assert recipe.argv == ("pi", "-e", EXTENSION, "--session", path)
    assert recipe.env == {"LASTWORD_PI": "/s/1"}
    assert conversation_of(PiPaneAdapter().transcript(request).path) == path


@pytest.mark.contract("C25")
def test_c25_a_question_is_a_dialog_until_it_is_answered_here_or_in_the_pane() -> None:
    talk = ready()
    asked = line("dialog", id="q1", kind="question", msg="May it run?\ntouch x", options=["Yes", "No"])
    (seen,) = talk.heard(asked)
    assert isinstance(seen, DialogSeen)
    assert (seen.dialog.question, seen.dialog.options, seen.dialog.kind) == (
        "May it run?\ntouch x",
        ("Yes", "No"),
        "question",
    )
    assert talk.answer("t", seen.dialog_id, 3) == [AnswerResult(token="t", applied=False)]
    write, gone = talk.answer("t", seen.dialog_id, 2)
    assert written([write]) == [{"do": "answer", "dialog": "q1", "option": 2}]
    assert gone == DialogGone(dialog_id=seen.dialog_id, answered=True, token="t")
    assert talk.heard(line("dialog_closed", id="q1", by="host")) == []
    (again,) = talk.heard(line("dialog", id="q2", kind="trust", msg="Trust?", options=["Trust"]))
    assert isinstance(again, DialogSeen)
    assert again.dialog.kind == "trust"
    assert talk.heard(line("dialog_closed", id="q2", by="pane")) == [
        DialogGone(dialog_id=again.dialog_id, answered=False)
    ]


@pytest.mark.contract("C25")
def test_c25_one_who_takes_time_over_the_first_question_is_waited_for_and_silence_is_not() -> None:
    talk = PiPaneTalk(OURS)
    talk.heard(line("dialog", id="q1", kind="trust", msg="Trust?", options=["Trust"]))
    assert talk.reminded("handshake") == [Remind(name="handshake", delay_s=HANDSHAKE_S)]
    talk.heard(line("dialog_closed", id="q1", by="pane"))
    (given_up,) = talk.reminded("handshake")
    assert isinstance(given_up, GiveUp)
    assert ready().reminded("handshake") == []
