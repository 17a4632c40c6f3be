"""What is written to an agent, and what the scripted one writes, keeps to the protocol's own schema."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from acp_promises import allow
from lastword import Interrupt, events
from lastword.actors.core.adapter import LaunchRequest
from lastword.actors.core.talk import Write
from lastword.runtime.testing.acp_schema import faults_of
from lastword.transports.providers import acp_wire as wire
from lastword.transports.providers.acp_talk import AcpTalk
from structured_kit import WAIT_S, StdioHost, child_of, completed, completion_of, seen

pytest.importorskip("acp.schema", reason="the extra lastword[acp] is not installed")


def lines(host: StdioHost) -> tuple[list[bytes], list[bytes]]:
    folder = host.state / "streams"
    sent = [line for path in sorted(folder.glob("*.sent.jsonl")) for line in path.read_bytes().splitlines()]
    heard = [
        line
        for path in sorted(folder.glob("*.jsonl"))
        if not path.name.endswith(".sent.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    return sent, heard


def test_a_whole_conversation_keeps_to_the_schema(hosts: Callable[..., StdioHost]) -> None:
    host = hosts(permission_mode="default")
    session = host.session()
    ack = session.send("[[say:a]][[tool:Bash:touch x]][[say:b]] tools")
    allow(session)
    assert completion_of(session, ack.turn_id).status == "completed"
    ack = session.send("[[tool:Bash:touch y]] stopped")
    seen(session, events.DialogOpened, ack.seq)
    session.send(Interrupt())
    assert completion_of(session, ack.turn_id).status == "cancelled"
    session.run("[[error:400]] x", deadline_s=WAIT_S)
    completed(session, 3)
    sent, heard = lines(host)
    assert {json.loads(line).get("method") for line in sent} >= {
        "initialize",
        "session/new",
        "session/set_mode",
        "session/prompt",
        "session/cancel",
        None,
    }
    assert faults_of(sent, heard) == []
    child_of(session).send(9)


@pytest.mark.parametrize("can", ["load", "resume"])
def test_what_opens_an_old_conversation_keeps_to_the_schema(can: str) -> None:
    request = LaunchRequest(native_session="s-1", cwd="/", executable=("x",), env={}, permission_mode="m", resume=True)
    talk = AcpTalk(request, "a-model")
    sent: list[bytes] = []
    todo = talk.opened()
    options = [
        {
            "id": "m",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": "a",
            "options": [{"value": "a", "name": "A"}],
        }
    ]
    answers = {
        wire.INITIALIZE: {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "sessionCapabilities": {"resume": {}} if can == "resume" else {},
            },
        },
        wire.LOAD: {"configOptions": options},
        wire.RESUME: {"configOptions": options},
        wire.SET_OPTION: {"configOptions": options},
    }
    heard: list[bytes] = []
    while todo:
        effect = todo.pop(0)
        if isinstance(effect, Write):
            sent.append(effect.data)
            asked = json.loads(effect.data)
            heard.append(wire.answer(asked["id"], answers.get(asked["method"], {})))
            todo += talk.heard(heard[-1])
    methods = [json.loads(line)["method"] for line in sent]
    opened = [wire.LOAD, wire.FENCE, wire.SET_MODE] if can == "load" else [wire.RESUME, wire.SET_MODE]
    assert methods == [wire.INITIALIZE, *opened, wire.SET_OPTION]
    assert faults_of(sent, heard) == []


def test_what_is_against_the_schema_is_found() -> None:
    bad = wire.request("1", "session/prompt", {"sessionId": "x", "prompt": "no blocks"})
    assert faults_of([bad], []) == ["session/prompt: prompt: Input should be a valid list"]
    answer = wire.answer("1", {"stopReason": "sleepy"})
    good = wire.request("1", "session/prompt", {"sessionId": "x", "prompt": []})
    assert faults_of([good], [answer])[0].startswith("answer to session/prompt: stopReason")
