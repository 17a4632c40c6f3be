"""The host's socket: one line a request, everything bounded, errors keep their kind."""

import os
import socket
import time
from contextlib import contextmanager

import msgspec
import pytest

from lastword.actors.core.delivery import Answer, Delivery, Interrupt
from lastword.actors.core.errors import JournalError, LastwordError, RejectedError, TransportError, UsageError
from lastword.actors.core.snapshot import Snapshot
from lastword.runtime import _door as door
from lastword.runtime._edge import Edge
from lastword.runtime._runtime import Runtime
from lastword.transports.memory import MemoryWorld


class FakeSession:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def send(self, what, *, message_id=None, deadline_s=None):
        self.seen.append(what)
        if what == "refuse":
            raise RejectedError("busy", "a turn runs", remedy="wait", provider="p")
        if what == "break":
            raise RuntimeError("secret text")
        return Delivery(session_id="s_1", message_id=message_id or "m_1", taken="applied", transport="memory", seq=1)

    def snapshot(self):
        return Snapshot(session_id="s_1", provider="p", transport="memory", cwd="/", state="idle", seq=4)


@contextmanager
def serving(folder, session=None, **options):
    session = session or FakeSession()

    def find(session_id):
        if session_id != "s_1":
            raise UsageError("unknown_session", f"no session {session_id!r} is on record")
        return session

    served = door.Door(folder, find, **options)
    served.open()
    try:
        yield served, session
    finally:
        served.close()


def raw(folder) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect(str(folder / door.SOCKET_NAME))
    return connection


def line_of(connection: socket.socket) -> dict:
    return msgspec.json.decode(connection.makefile("rb").readline())


def test_each_request_is_one_call_of_the_session(tmp_path) -> None:
    with serving(tmp_path) as (_, session):
        sent = door.ask(tmp_path, door.Send(session="s_1", text="hi\n" * 1000, message_id="m_7")).delivery
        door.ask(tmp_path, door.InterruptTurn(session="s_1", turn_id="t_1"))
        door.ask(tmp_path, door.AnswerDialog(session="s_1", dialog_id="d_1", option=2))
        snapshot = door.ask(tmp_path, door.GetSnapshot(session="s_1")).snapshot
    assert sent.message_id == "m_7"
    assert session.seen == ["hi\n" * 1000, Interrupt(turn_id="t_1"), Answer("d_1", 2)]
    assert snapshot.seq == 4


@pytest.mark.contract("C21")
def test_c21_an_error_keeps_its_type_kind_and_remedy_across_processes(tmp_path) -> None:
    with serving(tmp_path):
        with pytest.raises(RejectedError) as busy:
            door.ask(tmp_path, door.Send(session="s_1", text="refuse"))
        with pytest.raises(UsageError) as unknown:
            door.ask(tmp_path, door.Send(session="s_2", text="hi"))
        with pytest.raises(LastwordError) as broken:
            door.ask(tmp_path, door.Send(session="s_1", text="break"))
    assert (busy.value.kind, busy.value.remedy, busy.value.provider) == ("busy", "wait", "p")
    assert unknown.value.kind == "unknown_session"
    assert "secret" not in str(broken.value)


@pytest.mark.contract("C21")
def test_c21_a_text_that_is_no_unicode_is_refused_before_it_is_sent(tmp_path) -> None:
    with serving(tmp_path) as (_, session):
        with pytest.raises(RejectedError) as refused:
            door.ask(tmp_path, door.Send(session="s_1", text="half \ud83d"))
        assert refused.value.kind == "unsupported_text"
        assert session.seen == []


def test_the_socket_is_its_users_alone_and_goes_with_the_host(tmp_path) -> None:
    with serving(tmp_path) as (served, _):
        assert served.path.stat().st_mode & 0o777 == 0o600
    assert not served.path.exists()
    with pytest.raises(UsageError) as gone:
        door.ask(tmp_path, door.GetSnapshot(session="s_1"))
    assert gone.value.kind == "host_unreachable"
    served.close()


def test_what_a_dead_host_left_is_replaced(tmp_path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / door.SOCKET_NAME))
    with pytest.raises(UsageError):
        door.ask(tmp_path, door.GetSnapshot(session="s_1"))
    with serving(tmp_path):
        assert door.ask(tmp_path, door.GetSnapshot(session="s_1")).ok


def test_a_path_longer_than_the_systems_bound_works(tmp_path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with serving(folder) as (served, _):
        assert len(os.fsencode(served.path)) > 107
        assert door.ask(folder, door.GetSnapshot(session="s_1")).ok
    assert not served.path.exists()


@pytest.mark.parametrize(
    "line", [b"", b"nonsense", b"[]", b'{"op":"close"}', b'{"op":"send"}', b"\xff\x00", b"[" * 9999]
)
def test_garbage_is_answered_and_the_connection_goes_on(tmp_path, line: bytes) -> None:
    with serving(tmp_path), raw(tmp_path) as connection:
        connection.sendall(line + b"\n" + b'{"op":"snapshot","session":"s_1"}\n')
        reader = connection.makefile("rb")
        first, second = msgspec.json.decode(reader.readline()), msgspec.json.decode(reader.readline())
        reader.close()
    assert (first["ok"], first["error"]["kind"]) == (False, "usage")
    assert second["ok"]


def test_a_line_without_end_is_cut_off(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(door, "LINE_BYTES_MAX", 100_000)
    with serving(tmp_path), raw(tmp_path) as connection:
        connection.sendall(b"x" * 150_000)
        answer = line_of(connection)
    assert answer["error"]["kind"] == "usage"


def test_a_silent_or_dripping_client_is_let_go_and_holds_up_nobody(tmp_path) -> None:
    with serving(tmp_path, request_wait_s=0.3), raw(tmp_path) as silent, raw(tmp_path) as dripping:
        until = time.monotonic() + 5
        with pytest.raises(OSError):
            while time.monotonic() < until:
                dripping.sendall(b" ")
                time.sleep(0.05)
        assert door.ask(tmp_path, door.GetSnapshot(session="s_1")).ok
        assert silent.recv(1) == b""


def test_more_clients_than_slots_wait_for_one(tmp_path) -> None:
    with serving(tmp_path, request_wait_s=0.5):
        idle = [raw(tmp_path) for _ in range(door.CONNECTIONS_MAX)]
        started = time.monotonic()
        assert door.ask(tmp_path, door.GetSnapshot(session="s_1")).ok  # once the idle ones were let go
        assert time.monotonic() - started < 8
        for connection in idle:
            connection.close()


def test_a_host_that_never_answers_is_given_up(tmp_path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / door.SOCKET_NAME))
        mute.listen()
        with pytest.raises(TransportError) as late:
            door.ask(tmp_path, door.GetSnapshot(session="s_1"), wait_s=0.2)
    assert late.value.kind == "transport_timeout"


def test_closing_does_not_wait_for_idle_clients(tmp_path) -> None:
    with serving(tmp_path) as (served, _), raw(tmp_path):
        time.sleep(0.05)
        started = time.monotonic()
        served.close()
        assert time.monotonic() - started < 2


def test_a_runtime_serves_its_sessions_while_it_is_open(tmp_path) -> None:
    world = MemoryWorld()
    edge = Edge(transport=world, files=world, wakes=world, close=world.close)
    with Runtime.open(tmp_path / "state", edge=edge, serve_socket=True) as runtime:
        session = runtime.session("memory")
        ack = door.ask(tmp_path / "state", door.Send(session=session.session_id, text="hello")).delivery
        for event in session.events():
            if event.type == "unified_completion":
                break
        assert event.turn_id == ack.turn_id
        with pytest.raises(JournalError):
            Runtime.open(tmp_path / "state", serve_socket=True)
        assert door.ask(tmp_path / "state", door.GetSnapshot(session=session.session_id)).ok
    assert not (tmp_path / "state" / door.SOCKET_NAME).exists()
