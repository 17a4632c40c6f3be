"""What a session over a CLI with a process a turn promises, on emulators: **no real CLI of these was ever run**."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable

import pytest

from kit_system import until
from lastword import Interrupt, ProviderError, RejectedError, events
from lastword.runtime.command.doctor import examine
from lastword.transports.providers import ADAPTERS, one_shot
from structured_kit import (
    WAIT_S,
    StdioHost,
    as_told,
    child_of,
    completed,
    completion_of,
    completions,
    ended,
    of_type,
    seen,
)

NAMED_BY_THE_END = {"agy"}
"""Whose conversations nobody can name before their first end."""
Hosts = Callable[..., StdioHost]


WITH_ARGUMENTS = {"agy", "cursor"}
"""Whose prompt is an argument, which must not look like an option or a command."""


def heard(host: StdioHost) -> list[str]:
    """Every prompt that an emulator got, by conversation."""
    files = sorted((host.kit.home / ".scripted-print").iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def can(host: StdioHost, capability: str) -> bool:
    return capability in ADAPTERS[host.provider, "structured"].capabilities


@pytest.mark.contract("C52")
def test_c52_what_is_emulated_is_certified_on_nothing_and_says_so_everywhere(hosts: Hosts, tmp_path) -> None:
    host = hosts(allow_uncertified=False)
    assert ADAPTERS[host.provider, "structured"].certified_versions == ()
    with pytest.raises(ProviderError) as refused:
        host.session()
    assert refused.value.kind == "unsupported_cli_version"
    assert "emulated" in refused.value.reason
    (check,) = [each for each in examine(tmp_path) if each.name == host.provider]
    assert "emulated" in check.found


@pytest.mark.contract("C02")
@pytest.mark.contract("C03")
def test_c02_a_plain_turn_completes_from_the_stream(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("hello")
    assert (ack.taken, ack.transport) == ("started_turn", "structured")
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer, done.source) == ("completed", "echo: hello", "stream")
    assert done.message_id == ack.message_id
    assert [kind for kind in as_told(session) if kind not in ("assistant_message", "session_gone")] == [
        "session_opened",
        "message_accepted",
        "provider_started",
        "message_submitted",
        "turn_started",
        "unified_completion",
    ]


@pytest.mark.contract("C08")
@pytest.mark.contract("C16")
def test_c16_the_next_process_goes_on_in_the_conversation_and_gets_the_current_prompt(host: StdioHost) -> None:
    session = host.session()
    assert session.run("first", deadline_s=WAIT_S).status == "completed"
    assert session.run("second", deadline_s=WAIT_S).answer == "echo: second"
    assert session.run("[[history]] third", deadline_s=WAIT_S).answer == "first | second"
    assert len({done.native_session_id for done in completions(session)[1:]}) == 1
    assert [event.body.reason for event in of_type(session, events.ProviderStarted)] == ["open", "resume", "resume"]


@pytest.mark.contract("C04")
@pytest.mark.contract("C32")
def test_c32_each_tool_shows_once_where_the_record_holds_tools(host: StdioHost) -> None:
    session = host.session()
    prompt = "[[say:Let me look. ]][[tool:Bash:echo alpha]][[tool:Bash:false]][[say:done]] tools"
    done = session.run(prompt, deadline_s=WAIT_S)
    assert done.status == "completed"
    if not can(host, "tool_calls"):
        assert of_type(session, events.ToolStarted) == []
        return
    assert done.answer == "done"
    started = [json.loads(event.body.arguments)["command"] for event in of_type(session, events.ToolStarted)]
    finished = [event.body for event in of_type(session, events.ToolFinished)]
    assert started == ["echo alpha", "false"]
    assert [each.status for each in finished] == ["ok", "error"]
    assert "alpha" in finished[0].result


@pytest.mark.contract("C24")
def test_c24_every_text_reaches_the_cli_as_written_or_is_refused(host: StdioHost) -> None:
    session = host.session()
    for text in ("/cost", "--force", "!ls $HOME `id` 'a' \"b\" \\", "a\r\nb\tc\n", "e\u0301 \u6f22 \U0001f468"):
        assert session.run(text, deadline_s=WAIT_S).status == "completed"
        blank = " " if text.startswith(("-", "/")) and host.provider in WITH_ARGUMENTS else ""
        assert heard(host)[-1] == blank + text
    for text in ("nul \x00 end", "y" * 200_000):
        with pytest.raises(RejectedError) as refused:
            session.send(text)
        assert refused.value.kind == "unsupported_text"
    assert session.run("y" * 100_000, deadline_s=WAIT_S).status == "completed"


@pytest.mark.contract("C13")
@pytest.mark.contract("C22")
def test_c22_messages_while_it_works_wait_and_become_turns_of_their_own_in_order(host: StdioHost) -> None:
    session = host.session()
    acks = [session.send("[[sleep:1]][[say:one]] 1"), session.send("[[say:two]] 2"), session.send("[[say:three]] 3")]
    assert [ack.taken for ack in acks] == ["started_turn", "pending", "pending"]
    done = completed(session, 3)
    assert [each.message_id for each in done] == [ack.message_id for ack in acks]
    assert [each.answer for each in done] == ["one", "two", "three"]


@pytest.mark.contract("C07")
def test_c07_an_interrupt_ends_the_process_and_the_turn_once_and_leaves_what_waits_alone(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[tool:Bash:sleep 30]] long")
    behind = session.send("[[say:behind]] it")
    seen(session, events.MessageSubmitted)
    child = child_of(session)
    assert session.send(Interrupt(turn_id=ack.turn_id)).taken == "applied"
    session.send(Interrupt(turn_id=ack.turn_id))
    one, two = completed(session, 2)
    assert (one.turn_id, one.status, one.error.kind if one.error else "") == (ack.turn_id, "cancelled", "interrupted")
    assert (two.message_id, two.status, two.answer) == (behind.message_id, "completed", "behind")
    assert ended(child)


@pytest.mark.contract("C02")
def test_c02_a_process_that_is_killed_or_ends_without_a_last_word_has_lost_its_turn(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:20]] doomed")
    seen(session, events.MessageSubmitted)
    child_of(session).send(signal.SIGKILL)
    assert completion_of(session, ack.turn_id).status == "lost"
    quiet = session.run("[[fault:no_end]][[say:half]] quiet", deadline_s=WAIT_S)
    assert (quiet.status, quiet.answer, quiet.error.kind if quiet.error else "") == ("lost", None, "provider_exited")
    assert session.run("[[say:back]]", deadline_s=WAIT_S).answer == "back"


@pytest.mark.contract("C02")
@pytest.mark.contract("C17")
def test_c17_an_answer_that_came_after_the_host_was_killed_is_recovered(host: StdioHost) -> None:
    host.close()
    told = host.other_host("[[sleep:0.4]] slow one", wait_for="message_submitted")
    host.open()
    session = host.again(told["session"])
    done = completion_of(session, told["turns"][0])
    assert (done.status, done.answer) == ("completed", "echo: [[sleep:0.4]] slow one")
    after = session.run("[[history]] after", deadline_s=WAIT_S)
    known = host.provider not in NAMED_BY_THE_END
    assert (after.status, after.answer) == ("completed", "[[sleep:0.4]] slow one" if known else "")
    assert len(completions(session)) == 2


@pytest.mark.contract("C06")
def test_c06_garbage_and_a_second_last_word_change_nothing(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[fault:garbage]][[fault:dup_end]][[say:fine]] go", deadline_s=WAIT_S)
    assert (done.status, done.answer) == ("completed", "fine")
    assert session.run("next", deadline_s=WAIT_S).answer == "echo: next"
    assert len(completions(session)) == 2


@pytest.mark.contract("C08")
@pytest.mark.contract("C61")
def test_c61_a_process_that_lingers_behind_its_last_word_is_ended(
    host: StdioHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_shot, "LINGER_S", 0.2)
    session = host.session()
    ack = session.send("[[fault:linger=60]][[say:fine]] go")
    child = child_of(session)
    began = time.monotonic()
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "fine")
    until(lambda: ended(child), within_s=WAIT_S)
    assert time.monotonic() - began < 20
    assert session.run("next", deadline_s=WAIT_S).answer == "echo: next"


@pytest.mark.contract("C02")
def test_c02_a_cli_that_cannot_start_fails_what_waits_with_its_own_words(hosts: Hosts) -> None:
    host = hosts("exit_at_start=1:not logged in")
    session = host.session()
    done = session.run("hello", deadline_s=WAIT_S)
    assert done.status in ("failed", "lost")
    assert done.error is not None
    if done.status == "failed":
        assert "not logged in" in done.error.message
    assert len(completions(session)) == 1


@pytest.mark.contract("C03")
def test_c03_an_error_is_never_passed_off_as_an_answer_and_the_session_goes_on(host: StdioHost) -> None:
    session = host.session()
    done = session.run("[[say:half]][[next]][[error:500]] please", deadline_s=WAIT_S)
    assert done.status in ("failed", "lost")
    assert done.answer is None
    assert session.run("after", deadline_s=WAIT_S).answer == "echo: after"


@pytest.mark.contract("C61")
def test_c61_after_the_close_nothing_is_left(host: StdioHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:30]] long")
    seen(session, events.MessageSubmitted)
    session.close(grace_s=0.3)
    assert completion_of(session, ack.turn_id).status == "cancelled"
    assert host.strays() == []
    assert host.streams == []
