"""What a model is told of a conversation: every call with its result, every turn with an end, the last prompt alone."""

import msgspec
import pytest

from lastword.actors.core.conversation import (
    NO_RESULT,
    Answered,
    Call,
    Ended,
    Human,
    Joined,
    Model,
    Note,
    Prompted,
    Result,
    Retried,
    ToolEnded,
    decode,
    encode,
    told,
    unanswered,
)
from lastword.actors.core.outcome import TurnError

SAID = msgspec.Raw(b'[{"type":"text","text":"x"}]')
NOTHING = msgspec.Raw(b"null")


def prompted(turn):
    return Prompted(turn=turn, message=turn, text=f"prompt {turn}", at=1.0)


def answered(turn, *keys, answer=None, content=SAID, text="x"):
    calls = tuple(Call(id=f"id {key}", name="t", arguments="{}", key=key) for key in keys)
    return Answered(turn=turn, response="r", content=content, text=text, at=2.0, calls=calls, answer=answer)


def tool(turn, key, status="ok"):
    return ToolEnded(turn=turn, call=key, name="t", status=status, result=f"result {key}", at=3.0)


def test_a_line_is_read_as_it_was_written():
    lines = [
        prompted("a"),
        Joined(turn="a", message="b", text="line\nbreak", at=1.5),
        answered("a", "k"),
        tool("a", "k"),
        Retried(turn="a", message="again", at=2.5),
        Ended(turn="a", status="failed", at=4.0, error=TurnError(kind="rate_limited", resets_at=9.0)),
    ]
    for line in lines:
        data = encode(line)
        assert b"\n" not in data
        assert decode(data) == line


def test_results_stand_behind_their_answer_and_what_joined_behind_them():
    lines = [
        prompted("a"),
        answered("a", "1", "2"),
        tool("a", "2"),
        tool("a", "1", "error"),
        Joined(turn="a", message="b", text="more", at=3.5),
        answered("a", answer="x"),
    ]
    assert told(lines) == [
        Human("prompt a"),
        Model(SAID),
        Result("id 2", "result 2", failed=False),
        Result("id 1", "result 1", failed=True),
        Human("more"),
        Model(SAID),
    ]


@pytest.mark.contract("C16")
@pytest.mark.parametrize("status", ["failed", "cancelled", "lost"])
def test_c16_a_turn_without_an_answer_is_closed_for_the_model_before_the_next_prompt(status):
    error = TurnError(kind="rate_limited") if status == "failed" else None
    lines = [prompted("a"), answered("a", "1", "2"), tool("a", "1")]
    if status != "lost":
        lines.append(Ended(turn="a", status=status, at=4.0, error=error))
    note = {
        "failed": unanswered("failed", "rate_limited"),
        "cancelled": unanswered("cancelled", ""),
        "lost": unanswered("lost", "provider_exited"),
    }
    assert told([*lines, prompted("b")]) == [
        Human("prompt a"),
        Model(SAID),
        Result("id 1", "result 1", failed=False),
        Result("id 2", NO_RESULT, failed=True),
        Note(note[status]),
        Human("prompt b"),
    ]


def test_an_answer_that_cannot_be_told_again_leaves_its_text_or_a_word():
    cut = [prompted("a"), answered("a", content=NOTHING, text="half"), Ended(turn="a", status="failed", at=4.0)]
    assert told(cut) == [Human("prompt a"), Note("half"), Note(unanswered("failed", ""))]
    empty = [prompted("a"), answered("a", content=NOTHING, text="", answer="")]
    assert told([*empty, prompted("b")]) == [Human("prompt a"), Note("[empty answer]"), Human("prompt b")]


def test_a_result_without_a_call_is_not_told():
    assert told([prompted("a"), tool("a", "9")]) == [Human("prompt a")]
