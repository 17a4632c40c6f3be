"""A CLI in a real pane that is spoken to by files, imitated: what the runtime does with it. The real one is in tests/live."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit_system import until
from lastword import Answer, Interrupt, events
from lastword.actors.core.world import NotWritten, WriteResult, Written
from lastword.transports.filed_panes import FiledPane
from pane_kit import WAIT_S, PaneHost, Ways, owners, screen
from structured_kit import child_of, completed, completion_of, completions, ended, of_type, on_record, seen

PROGRAM = Path(__file__).with_name("scripted_filed.py")
tmux = pytest.mark.tmux


@pytest.fixture
def hosts() -> Iterator[Callable[..., PaneHost]]:
    with ExitStack() as stack:

        def build(*faults: str, **env: str) -> PaneHost:
            ways = Ways(
                provider="pi",
                version="1.6.0",
                argv=(sys.executable, str(PROGRAM), *faults),
                options={},
                asking={},
                approval="",
                records="../state/panes/*[0-9].jsonl",
                ended='"agent_settled"',
                error_kinds={},
                env=env,
            )
            return stack.enter_context(PaneHost(ways))

        yield build


@pytest.fixture
def host(hosts: Callable[..., PaneHost]) -> PaneHost:
    return hosts()


def taken(host: PaneHost) -> int:
    return host.records().count('"ev": "taken"')


@tmux
@pytest.mark.contract("C02")
@pytest.mark.contract("C15")
@pytest.mark.contract("C24")
def test_c24_a_turn_and_its_follow_up_need_no_key_and_no_other_process(host: PaneHost) -> None:
    session = host.session()
    first = session.run("hello", deadline_s=WAIT_S)
    assert (first.status, first.answer, first.source) == ("completed", "echo: hello", "transcript")
    before = session.snapshot()
    assert before.handle.attach[0] == "tmux"
    assert session.run("a\r\nb\tc \x00", deadline_s=WAIT_S).answer == "echo: a\r\nb\tc \x00"
    assert session.snapshot().handle == before.handle
    assert "echo: hello" in screen(session)
    kinds = [event.type for event in on_record(session)]
    assert kinds[-4:] == ["message_submitted", "turn_started", "assistant_message", "unified_completion"]


@tmux
@pytest.mark.contract("C20")
def test_c20_a_message_while_it_works_is_told_as_queued_and_joins(host: PaneHost) -> None:
    session = host.session()
    first = session.send("[[sleep:1]][[say:one]]")
    seen(session, events.TurnStarted)
    second = session.send("[[say:two]]")
    assert second.taken == "pending"
    (done,) = completed(session)
    assert (done.message_id, done.joined, done.answer) == (first.message_id, (second.message_id,), "two")
    assert seen(session, events.MessageQueued).message_id == second.message_id


@tmux
@pytest.mark.contract("C07")
def test_c07_an_interrupt_ends_the_run_and_what_came_back_from_the_queue_goes_in_again(host: PaneHost) -> None:
    session = host.session()
    first = session.send("[[sleep:60]]")
    seen(session, events.TurnStarted)
    second = session.send("[[say:two]]")
    seen(session, events.MessageQueued)
    session.send(Interrupt(turn_id=first.turn_id))
    one, two = completed(session, 2)
    assert (one.turn_id, one.status, one.joined) == (first.turn_id, "cancelled", ())
    assert (two.message_id, two.status, two.answer) == (second.message_id, "completed", "two")


@tmux
@pytest.mark.contract("C02")
@pytest.mark.contract("C22")
def test_c22_what_a_process_never_took_the_next_one_does_once(hosts: Callable[..., PaneHost], tmp_path: Path) -> None:
    hear = tmp_path / "hear"
    host = hosts("deaf", SCRIPTED_HEAR=str(hear))
    session = host.session()
    ack = session.send("hello")
    panes = host.kit.root / "state" / "panes"
    until(lambda: any("hello" in path.read_text() for path in panes.glob("*.sent.jsonl")), within_s=WAIT_S)
    assert not of_type(session, events.MessageSubmitted)  # it is written, and not taken
    child_of(session).send(signal.SIGKILL)
    hear.touch()
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.answer) == ("completed", "echo: hello")
    assert taken(host) == 1
    assert [event.body.reason for event in of_type(session, events.ProviderStarted)] == ["open", "resume"]


@tmux
@pytest.mark.contract("C02")
def test_c02_one_that_dies_in_a_run_loses_that_turn_and_gives_it_to_no_other(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:60]]")
    seen(session, events.TurnStarted)
    child_of(session).send(signal.SIGKILL)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.source) == ("lost", "process_exit")
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert len(completions(session)) == 2


@tmux
@pytest.mark.contract("C02")
def test_c02_the_death_of_tmux_loses_the_turn_and_the_next_message_has_a_new_pane(host: PaneHost) -> None:
    session = host.session()
    ack = session.send("[[sleep:60]]")
    seen(session, events.TurnStarted)
    assert host.runtime is not None
    server = host.runtime._edges.opened["tmux"].transport.server.process
    server.send(signal.SIGKILL)
    done = completion_of(session, ack.turn_id)
    assert (done.status, done.source) == ("lost", "process_exit")
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"


@tmux
@pytest.mark.contract("C03")
def test_c03_one_that_cannot_start_says_what_its_pane_showed(hosts: Callable[..., PaneHost]) -> None:
    session = hosts("broken").session()
    done = session.run("hello", deadline_s=WAIT_S)
    assert (done.status, done.error.kind if done.error else "") == ("failed", "launch_failed")
    assert done.error is not None
    assert "error: it cannot start like this" in done.error.message


@tmux
@pytest.mark.contract("C17")
def test_c17_the_next_host_speaks_on_to_the_same_process_and_nothing_is_done_twice(host: PaneHost) -> None:
    host.close()
    told = host.other_host("[[sleep:1]][[say:one]]", "[[say:two]]", wait_for="message_queued")
    host.open()
    session = host.again(told["session"])
    until(lambda: len(owners(completions(session))) == 2, within_s=WAIT_S)
    assert sorted(owners(completions(session))) == sorted(told["messages"])
    assert session.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert session.snapshot().handle.pid == told["pid"]
    assert taken(host) == 3
    assert len(of_type(session, events.MessageSubmitted)) == 3


@tmux
@pytest.mark.contract("C17")
@pytest.mark.contract("C25")
def test_c25_the_next_host_is_told_of_the_dialog_that_is_open_and_of_no_other(host: PaneHost) -> None:
    host.close()
    told = host.other_host("[[ask]][[say:one]]", wait_for="dialog_opened")
    host.open()
    session = host.again(told["session"])
    opened = until(lambda: session.snapshot().dialog, within_s=WAIT_S)
    assert (opened.question, opened.options) == ("May it run?", ("Yes", "No"))
    session.send(Answer(opened.dialog_id, 1))
    assert completion_of(session, told["turns"][0]).answer == "one"
    count = len(of_type(session, events.DialogOpened))
    os.kill(told["pid"], 0)
    # one more life: that dialog is answered
    host.close()
    host.open()
    again = host.again(told["session"])
    assert again.run("on", deadline_s=WAIT_S).answer == "echo: on"
    assert len(of_type(again, events.DialogOpened)) == count


@tmux
@pytest.mark.contract("C17")
@pytest.mark.contract("C51")
def test_c51_conversations_that_it_was_in_while_no_host_looked_are_no_news(host: PaneHost, tmp_path: Path) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    host.close()
    told = host.other_host(f"[[sleep:1]][[move:{a}]][[move:{b}]]", wait_for="turn_started")
    until(lambda: host.records().count('"reason": "new"') == 2, within_s=WAIT_S)
    host.open()
    session = host.again(told["session"])
    until(lambda: session.snapshot().handle.native_session_id == str(b), within_s=WAIT_S)
    completed(session)
    assert session.run("on", deadline_s=WAIT_S).native_session_id == str(b)
    assert [event.body.native_session_id for event in of_type(session, events.SessionRebound)] == [str(b)]


@tmux
@pytest.mark.contract("C61")
def test_c61_a_closed_session_leaves_no_file_and_a_closed_runtime_no_process(host: PaneHost) -> None:
    session, other = host.session(), host.session()
    for each in (session, other):
        assert each.run("hello", deadline_s=WAIT_S).status == "completed"
    folder = host.kit.root / "state" / "panes"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    session.close()
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {other.session_id}
    child = child_of(other)
    host.close()
    until(lambda: ended(child), within_s=WAIT_S)


# --- the file of commands ---------------------------------------------------------------------------------------------


class Pane:
    pane_id, pid, pid_start = "%1", 1, 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: it is spoken to by a file")


def said(pane: FiledPane, data: bytes) -> WriteResult:
    told: list[WriteResult] = []
    pane.write(data, told.append)
    return told[0]


@pytest.mark.contract("C24")
def test_c24_what_did_not_go_in_whole_is_no_command_and_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "commands"
    pane = FiledPane("s-1", Pane(), str(file))
    assert isinstance(said(pane, b'{"n":1}\n'), Written)
    real = os.write
    with monkeypatch.context() as patch:

        def full(fd: int, data: bytes) -> int:
            if len(data) < 8:
                raise OSError(28, "No space left on device")
            return real(fd, bytes(data[:3]))

        patch.setattr(os, "write", full)
        failed = said(pane, b'{"n":2}\n')
    assert isinstance(failed, NotWritten)
    assert failed.error.kind == "overloaded"
    assert isinstance(said(pane, b'{"n":3}\n'), Written)
    assert file.read_bytes() == b'{"n":1}\n{"n\n{"n":3}\n'


def test_c24_a_link_in_the_place_of_its_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "commands").symlink_to(target)
    assert isinstance(said(FiledPane("s-1", Pane(), str(tmp_path / "commands")), b"{}\n"), NotWritten)
    assert target.read_bytes() == b""
