"""A child that wants a pipe for its stdout: what copies it outlives whoever may die, and the record is whole at its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit_system import until
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.world import StdioEndpoint, WriteResult
from lastword.transports import relay as relay_module
from lastword.transports.process import ProcessId, pid_start
from lastword.transports.relay import Relay, left_relays
from lastword.transports.structured import Child, Children

WAIT_S = 30.0
SAYS = ("/bin/sh", "-c", 'read word; echo "$word"')


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    made = Children(tmp_path / "streams", dict(os.environ))
    yield made
    assert made.close(0.0) == []
    assert left_relays(made.folder) == {}


def opened(children: Children, *argv: str, name: str = "s-1") -> Child | LastwordError:
    there = threading.Event()
    told: list[StdioEndpoint | LastwordError] = []

    def on_opened(result: StdioEndpoint | LastwordError) -> None:
        told.append(result)
        there.set()

    children.open(name, argv, cwd="/", env={}, on_opened=on_opened, stdout="pipe")
    assert there.wait(WAIT_S)
    (result,) = told
    assert isinstance(result, Child | LastwordError)
    return result


def child(children: Children, *argv: str) -> tuple[Child, ProcessId]:
    made = opened(children, *argv)
    assert isinstance(made, Child)
    return made, left_relays(children.folder)[made.name]


def tell(one: Child, words: bytes) -> None:
    written: list[WriteResult] = []
    one.write(words, written.append)
    until(lambda: written, within_s=WAIT_S)


def record(children: Children) -> bytes:
    return Path(f"{children.stream('s-1')}.jsonl").read_bytes()


@pytest.mark.contract("C60")
def test_c60_a_child_is_closed_once_all_that_it_said_is_in_its_record(children: Children) -> None:
    one, relay = child(children, *SAYS)
    relay.send(signal.SIGSTOP)
    try:
        tell(one, b"last words\n")
        assert one.process.wait(WAIT_S)
        closed = threading.Event()
        one.close(0.0, closed.set)
        assert not closed.wait(0.3)
        assert record(children) == b""
    finally:
        relay.send(signal.SIGCONT)
    assert closed.wait(WAIT_S)
    assert record(children) == b"last words\n"
    assert not relay.is_alive()


@pytest.mark.contract("C17")
def test_c17_the_next_host_waits_for_what_is_on_its_way_into_a_record(children: Children, tmp_path: Path) -> None:
    one, relay = child(children, *SAYS)
    relay.send(signal.SIGSTOP)
    going_on = threading.Timer(0.5, relay.send, (signal.SIGCONT,))
    try:
        tell(one, b"last words\n")
        assert one.process.wait(WAIT_S)
        going_on.start()
        next_host = Children(tmp_path / "streams", dict(os.environ))
        assert next_host.left_behind() == {}
        assert record(children) == b"last words\n"
        assert next_host.close(0.0) == []
    finally:
        going_on.cancel()
        relay.send(signal.SIGCONT)


@pytest.mark.contract("C60")
def test_c60_a_stranger_that_holds_the_pipe_holds_up_nobody_for_long(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "DRAIN_S", 0.3)
    program = "env -i setsid sleep 600 & echo $!; read word"  # in no session, with no mark and soon no parent of ours
    one, _ = child(children, "/bin/sh", "-c", program)
    until(lambda: record(children).endswith(b"\n"), within_s=WAIT_S)
    pid = int(record(children))
    stranger = ProcessId(pid, pid_start(pid) or 0)
    try:
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", within_s=WAIT_S)
        tell(one, b"\n")
        assert one.process.wait(WAIT_S)
        closed = threading.Event()
        one.close(0.0, closed.set)
        assert closed.wait(WAIT_S)
        assert stranger.is_alive()
    finally:
        stranger.send(signal.SIGKILL)


@pytest.mark.contract("C61")
def test_c61_a_child_that_cannot_be_started_leaves_nothing(children: Children) -> None:
    assert isinstance(opened(children, "/no/such/program"), LastwordError)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert isinstance(opened(children, "/no/such/program"), LastwordError)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert left_relays(children.folder) == {}


def test_no_signal_to_the_group_of_the_host_or_of_the_child_reaches_the_relay(children: Children) -> None:
    one, relay = child(children, *SAYS)
    groups = {os.getpgid(each) for each in (relay.pid, one.pid, os.getpid())}
    assert len(groups) == 3
    assert {os.getsid(relay.pid)}.isdisjoint({os.getsid(one.pid), os.getsid(os.getpid())})


def test_without_a_program_that_copies_the_child_is_refused_by_name(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "defpath", "/no/such/folder")
    monkeypatch.setenv("PATH", "/no/such/folder")
    refused = opened(children, *SAYS)
    assert isinstance(refused, LastwordError)
    assert refused.kind == "launch_failed"
    assert "cat" in refused.reason


def test_a_relay_of_an_earlier_host_is_ended_by_its_pid_and_start(tmp_path: Path) -> None:
    assert left_relays(tmp_path) == {}
    assert Relay(ProcessId(os.getpid(), 1)).end()  # another process has that pid: it is gone
