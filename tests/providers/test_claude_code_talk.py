"""What Claude Code is told over its pipes, where no run of the scripted or the real one shows it."""

from __future__ import annotations

import json

import pytest

from lastword.actors.core.talk import Write
from lastword.actors.core.typing_effects import AnswerResult, DialogGone, DialogSeen
from lastword.transports.providers.claude_code_talk import ClaudeTalk


@pytest.mark.contract("C25")
def test_c25_a_dialog_is_told_once_the_one_before_it_is_gone() -> None:
    """What a write brings with it is told later than what stands behind it."""
    talk = ClaudeTalk("session")
    talk.opened()
    asked = [
        {"type": "control_request", "request_id": name, "request": {"subtype": "can_use_tool", "tool_name": "Bash"}}
        for name in ("r_1", "r_2")
    ]
    (one,) = talk.heard(json.dumps(asked[0]).encode())
    assert isinstance(one, DialogSeen)
    assert talk.heard(json.dumps(asked[1]).encode()) == []
    write, gone, two = talk.answer("k", one.dialog_id, 1)
    assert isinstance(write, Write)
    assert write.after == (AnswerResult(token="k", applied=True),)
    assert gone == DialogGone(dialog_id=one.dialog_id, answered=True, token="k")
    assert isinstance(two, DialogSeen)
