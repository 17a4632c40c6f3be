"""An agent that misbehaves: each turn still ends once, as the agent's own words say, and nothing waits for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit_system import until
from lastword import Interrupt, ProviderError, RejectedError, Runtime, events
from lastword.actors.core.ids import TurnId
from lastword.actors.core.talk import TalkEffect, Write
from lastword.actors.core.typing_effects import Interrupted
from lastword.actors.mouth import PressInterrupt
from lastword.actors.session_cli import Cli
from lastword.actors.stdio import StdioActor, _Heard
from lastword.transports import structured
from lastword.transports.providers.acp import AcpAdapter
from lastword.transports.providers.acp_talk import AcpTalk
from structured_kit import (
    WAIT_S,
    StdioHost,
    child_of,
    completed,
    completion_of,
    completions,
    of_type,
    on_record,
    seen,
)

Hosts = Callable[..., StdioHost]
SCRIPTED_ACP = Path(__file__).parents[2] / "runtime" / "testing" / "scripted_acp.py"


def scripted(*faults: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTED_ACP), *(word for fault in faults for word in ("--fault", fault)))


@pytest.mark.contract("C04")
@pytest.mark.contract("C06")
def test_c06_an_update_behind_the_answer_belongs_to_no_turn(hosts: Hosts) -> None:
    host = hosts("late=0.05")
    session = host.session()
    assert session.run("[[say:one]]", deadline_s=WAIT_S).answer == "one"
    assert host.runtime is not None
    letters = host.runtime._system.dead_letters
    until(lambda: letters.counts().get("late_update"), within_s=WAIT_S)
    assert completions(session)[0].answer == "one"
    assert session.run("[[say:two]]", deadline_s=WAIT_S).answer == "two"
    assert [each.body.text for each in of_type(session, events.AssistantMessage)] == ["one", "two"]


@pytest.mark.contract("C06")
def test_c06_an_answer_that_comes_twice_settles_once(hosts: Hosts) -> None:
    session = hosts("dup_response").session()
    for number in range(3):
        assert session.run(f"n {number}", deadline_s=WAIT_S).answer == f"echo: n {number}"
    assert len(completions(session)) == 3


@pytest.mark.contract("C02")
def test_c02_updates_without_an_answer_complete_nothing(hosts: Hosts) -> None:
    """The agent says all and never answers the prompt: the turn waits; when it is killed, it is lost."""
    session = hosts("no_response").session()
    ack = session.send("[[say:all of it]]")
    seen(session, events.TurnStarted)
    with pytest.raises(RejectedError) as busy:
        session.run("another")
    assert busy.value.kind == "busy"
    assert completions(session) == []
    child_of(session).send(9)
    end = completion_of(session, ack.turn_id)
    assert (end.status, end.answer, end.source) == ("lost", None, "process_exit")


@pytest.mark.contract("C03")
@pytest.mark.parametrize(
    ("reason", "kind", "word"),
    [
        ("refusal", "refused", "refusal"),
        ("max_tokens", "provider_error", "max_tokens"),
        ("max_turn_requests", "provider_error", "max_turn_requests"),
        ("what_is_new", "provider_error", "what_is_new"),
    ],
)
def test_c03_only_end_turn_completes(hosts: Hosts, reason: str, kind: str, word: str) -> None:
    session = hosts(f"stop={reason}").session()
    done = session.run("[[say:half]]", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("failed", None)
    assert done.error is not None
    assert (done.error.kind, done.error.native_kind) == (kind, word)


@pytest.mark.contract("C17")
def test_c17_nothing_is_said_in_a_conversation_whose_name_is_not_on_record(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a host that dies in between finds the turn's end, and never the conversation again."""
    order: list[str] = []
    recorded, write = Cli.recorded, StdioActor._write

    def told(self: Cli, native_session: str) -> None:
        order.append(f"on record: {native_session}")
        recorded(self, native_session)

    def written(self: StdioActor, message: Write) -> None:
        order.append(json.loads(message.data).get("method", ""))
        write(self, message)

    monkeypatch.setattr(Cli, "recorded", told)
    monkeypatch.setattr(StdioActor, "_write", written)
    session = hosts().session()
    assert session.run("[[say:one]]", deadline_s=WAIT_S).answer == "one"
    name = session.snapshot().handle.native_session_id
    assert name
    assert order.index(f"on record: {name}") < order.index("session/prompt")


@pytest.mark.contract("C07")
def test_c07_what_the_agent_said_is_heard_before_it_is_interrupted(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an interrupt of a turn that is over stops the next one."""
    muted, actors = threading.Event(), list[StdioActor]()
    told: list[list[TalkEffect]] = []
    edge, begin, interrupt = StdioActor._from_edge, StdioActor._begin, AcpTalk.interrupt

    def from_edge(self: StdioActor, message: Any) -> None:
        if not (muted.is_set() and isinstance(message, _Heard)):
            edge(self, message)

    def begun(self: StdioActor, *args: Any, **options: Any) -> None:
        actors.append(self)
        begin(self, *args, **options)

    def noted(self: AcpTalk, turn_id: TurnId) -> list[TalkEffect]:
        told.append(interrupt(self, turn_id))
        return told[-1]

    monkeypatch.setattr(StdioActor, "_from_edge", from_edge)
    monkeypatch.setattr(StdioActor, "_begin", begun)
    monkeypatch.setattr(AcpTalk, "interrupt", noted)
    session = hosts().session()
    assert session.run("[[say:one]]", deadline_s=WAIT_S).answer == "one"
    muted.set()
    done = session.run("[[say:two]]", deadline_s=WAIT_S)
    actors[0].ref.tell(PressInterrupt(turn_id=done.turn_id))
    until(lambda: told, within_s=WAIT_S)
    assert told == [[Interrupted(turn_id=done.turn_id)]]


@pytest.mark.contract("C03")
def test_c03_an_answer_without_a_text_is_completed_and_empty(hosts: Hosts) -> None:
    done = hosts("silent").session().run("[[say:before the tool]][[tool:Bash:echo x]] x", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.empty) == ("completed", "", True)


@pytest.mark.contract("C07")
def test_c07_a_cancelled_prompt_that_is_answered_with_an_error_is_cancelled(hosts: Hosts) -> None:
    session = hosts("abort_is_error").session()
    ack = session.send("[[sleep:20]] long")
    seen(session, events.MessageSubmitted)
    session.send(Interrupt())
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.error.kind if done.error else "") == ("cancelled", "interrupted")


@pytest.mark.contract("C04")
@pytest.mark.parametrize("second", ["cancels", "fails", "queues"])
def test_c22_a_second_prompt_never_reaches_an_agent_that_works(hosts: Hosts, second: str) -> None:
    session = hosts(f"second={second}").session()
    session.send("[[sleep:0.5]][[say:one]] first")
    seen(session, events.MessageSubmitted)
    session.send("[[say:two]] second")
    assert [(each.status, each.answer) for each in completed(session, 2)] == [
        ("completed", "one"),
        ("completed", "two"),
    ]


@pytest.mark.contract("C13")
def test_c13_lines_that_are_none_and_other_conversations_change_nothing(hosts: Hosts) -> None:
    session = hosts("garbage", "foreign", "odd_request").session()
    for number in range(2):
        assert session.run(f"n {number}", deadline_s=WAIT_S).answer == f"echo: n {number}"


@pytest.mark.contract("C04")
@pytest.mark.contract("C16")
def test_c16_an_old_conversation_that_is_told_after_the_load_was_answered_is_no_answer(hosts: Hosts) -> None:
    host = hosts("replay_late", permission_mode="")
    session = host.session()
    for number in range(20):
        assert session.run(f"old {number}", deadline_s=WAIT_S).status == "completed"
    child_of(session).send(9)
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    assert session.run("[[say:new]]", deadline_s=WAIT_S).answer == "new"


@pytest.mark.contract("C21")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("auth", "wants a login"),
        ("version=7", "version 7 of the protocol"),
        ("exit_at_start=3:no such model", "no such model"),
    ],
)
def test_c21_an_agent_that_cannot_start_fails_what_waits_and_says_why(hosts: Hosts, fault: str, words: str) -> None:
    session = hosts(fault).session()
    done = session.run("[[say:x]]", deadline_s=WAIT_S)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.kind == "launch_failed"
    assert words in done.error.message


@pytest.mark.contract("C21")
def test_c21_an_agent_that_closes_its_stdout_before_it_is_ready_fails_what_waits_and_that_is_said() -> None:
    with StdioHost(("/bin/sh", "-c", "exec >&-; exec sleep 600"), provider="acp") as host:
        done = host.session().run("[[say:x]]", deadline_s=2 * WAIT_S)
        assert (done.status, done.error.kind if done.error else "") == ("failed", "launch_failed")
        assert done.error is not None
        assert "closed its stdout" in done.error.message


def test_c21_a_conversation_that_cannot_be_resumed_is_not_begun_anew_in_silence(hosts: Hosts) -> None:
    session = hosts("no_load").session()
    assert session.run("[[say:x]]", deadline_s=WAIT_S).status == "completed"
    child_of(session).send(9)
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    done = session.run("[[say:y]]", deadline_s=WAIT_S)
    assert (done.status, done.error.kind if done.error else "") == ("failed", "launch_failed")
    assert done.error is not None
    assert "cannot resume" in done.error.message


@pytest.mark.contract("C08")
def test_c08_a_conversation_in_which_nothing_ended_is_begun_anew(hosts: Hosts) -> None:
    """Its agent may have kept nothing of it, and would refuse it for ever."""
    session = hosts("no_load").session()
    lost = session.run("[[fault:crash=before]] x", deadline_s=WAIT_S)
    assert lost.status == "lost"
    done = session.run("[[say:on]]", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "on")
    assert done.native_session_id not in ("", lost.native_session_id)
    assert session.snapshot().handle.native_session_id == done.native_session_id


@pytest.mark.contract("C02")
@pytest.mark.parametrize("where", ["before", "mid", "tool", "end"])
def test_c02_an_agent_that_dies_anywhere_in_a_turn_loses_it_once(hosts: Hosts, where: str) -> None:
    session = hosts().session()
    assert session.run("[[say:warm]]", deadline_s=WAIT_S).status == "completed"
    done = session.run(f"[[fault:crash={where}]][[say:a]][[tool:Bash:echo b]][[say:c]] x", deadline_s=WAIT_S)
    assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(completions(session)) == 3


@pytest.mark.contract("C02")
@pytest.mark.contract("C07")
def test_c07_what_a_killed_agent_left_behind_calls_no_turn_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child sees the end of its stdin and says ``cancelled``, for which nobody has asked: the turn is lost."""
    parent = tmp_path / "parent.py"
    parent.write_text("import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n")
    real = structured.end_families

    def once_it_is_said(*args: Any) -> Any:
        until(lambda: host.said(b'"cancelled"'), within_s=WAIT_S)
        return real(*args)

    agent = (sys.executable, str(parent), *scripted("cancel_at_eof"))
    with StdioHost(agent, provider="acp") as host:
        session = host.session()
        assert session.run("[[say:warm]]", deadline_s=WAIT_S).status == "completed"
        ack = session.send("[[chunk:5:0.2]][[size:4000]] long")
        seen(session, events.TurnStarted, ack.seq)
        with monkeypatch.context() as patched:
            patched.setattr(structured, "end_families", once_it_is_said)
            child_of(session).send(9)
            done = completion_of(session, ack.turn_id)
        assert (done.status, done.error.kind if done.error else "") == ("lost", "provider_exited")
        assert done.error is not None
        assert done.error.native_kind == "cancelled"
        assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
        assert len(completions(session)) == 3


@pytest.mark.contract("C07")
@pytest.mark.contract("C17")
@pytest.mark.parametrize("it_lives_on", [False, True], ids=["gone", "alive"])
def test_c17_what_an_agent_makes_of_its_hosts_death_calls_no_turn_cancelled(hosts: Hosts, it_lives_on: bool) -> None:
    """It sees the end of its stdin and says ``cancelled``, for which nobody has asked: the turn is lost."""
    host = hosts("cancel_at_eof")
    host.close()
    long = "[[chunk:5:0.2]][[size:4000]] long"
    told = host.other_host(long, wait_for="turn_started")
    if not it_lives_on:
        until(lambda: not host.strays(), within_s=WAIT_S)
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert host.said(b'"cancelled"')
    assert done.error is not None
    assert (done.status, done.error.kind, done.error.native_kind) == ("lost", "provider_exited", "cancelled")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"
    assert len(completions(session)) == 2


@pytest.mark.contract("C07")
def test_c07_an_agent_that_ignores_the_cancel_is_ended_and_the_session_goes_on(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastword.actors.core.turn_cancelling.INTERRUPT_GRACE_S", 0.3)
    session = hosts().session()
    ack = session.send("[[fault:deaf_cancel]][[sleep:120]] long")
    seen(session, events.MessageSubmitted)
    session.send(Interrupt())
    assert completion_of(session, ack.turn_id).status == "cancelled"
    until(lambda: session.snapshot().state in ("idle", "gone"), within_s=WAIT_S)
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


@pytest.mark.contract("C17")
def test_c17_the_answer_that_came_after_the_host_was_killed_is_recovered(hosts: Hosts) -> None:
    host = hosts()
    host.close()
    told = host.other_host("[[sleep:1]][[say:late]] one", wait_for="message_submitted")
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.answer, done.source) == ("completed", "late", "stream")
    assert session.run("[[say:on]]", deadline_s=WAIT_S).answer == "on"


def test_c10_an_adapter_of_the_hosts_own_is_one_object(hosts: Hosts) -> None:
    host = hosts()
    host.close()
    mine = AcpAdapter(name="my-agent", executables=(sys.executable,), words=host.argv[1:])
    with Runtime.open(host.kit.root / "other", env=host.env, adapters=[mine]) as runtime:
        done = runtime.run("my-agent", "hello", cwd=host.kit.cwd)  # over the only transport that it has
        assert (done.status, done.answer, done.transport) == ("completed", "echo: hello", "structured")


def test_c21_any_agent_has_to_be_named(hosts: Hosts) -> None:
    host = hosts()
    host.close()
    with Runtime.open(host.kit.root / "other", env=host.env) as runtime, pytest.raises(ProviderError) as refused:
        runtime.session("acp", cwd=host.kit.cwd)
    assert refused.value.kind == "provider_unavailable"
    assert "executables=" in refused.value.remedy


@pytest.mark.contract("C62")
def test_a_host_of_agents_loads_no_models_of_the_protocol() -> None:
    """They cost half a second."""
    program = "import sys, lastword.transports.providers.acp as acp; acp.ANY.talk; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "False"


def test_a_permission_mode_is_set_over_the_protocol(hosts: Hosts) -> None:
    host = hosts(permission_mode="yolo")
    session = host.session()
    assert session.run("[[tool:Bash:touch unasked]][[say:x]]", deadline_s=WAIT_S).answer == "x"
    assert (host.kit.cwd / "unasked").exists()
    assert of_type(session, events.DialogOpened) == []
    assert on_record(session)
