"""Who is asked by ``lastword top``, and what is said where nobody answers. Every look ends."""

from __future__ import annotations

import select
import socket
import threading
import time

import pytest

from journal_samples import session
from lastword.actors.core.errors import UsageError
from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import Batch
from lastword.runtime import _door as door
from lastword.runtime._host_lock import HostLock
from lastword.runtime._journal import SqliteJournal
from lastword.runtime._top import Look
from lastword.runtime.command import _top_feed as feed
from lastword.runtime.command._desk import HostSeen

WAIT_S = 20.0


@pytest.fixture
def state(tmp_path):
    """A state folder with one session on record."""
    journal = SqliteJournal.open(tmp_path)
    journal.record([Batch(session_id=SessionId("s_1"), session=session())], 1.0)
    journal.close()
    return tmp_path


@pytest.fixture
def held(state):
    """It has a host."""
    lock = HostLock(state)
    yield state
    lock.release()


@pytest.fixture
def listening(held, monkeypatch):
    """Somebody listens at its socket."""
    monkeypatch.setattr(feed, "HOST_ANSWER_S", 0.2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(held / door.SOCKET_NAME))
        listener.listen()
        yield held, listener


def looked(folder) -> tuple[str, str, list[str]]:
    sight = feed.Looker(folder).look(Look(lines=5))
    assert sight.top is not None
    assert not sight.top.live
    return sight.host.state, sight.note, [line.session_id for line in sight.top.lines]


def test_nobody_has_it(state):
    assert looked(state) == ("none", "no live host: this is what the journal says", ["s_1"])


def test_a_host_without_a_socket(held):
    told, note, lines = looked(held)
    assert (told, lines) == ("alone", ["s_1"])
    assert "without a socket" in note


def test_a_host_that_listens_and_says_nothing(listening):
    told, note, lines = looked(listening[0])
    assert (told, lines) == ("silent", ["s_1"])
    assert "does not answer" in note


@pytest.mark.parametrize("answer", [b"", b"garbage\n", b'{"ok":true,"top":{"at":1}}\n', b'{"ok":true}\n', b"\xff\n"])
def test_a_host_that_answers_nonsense(listening, answer):
    folder, listener = listening

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    serving = threading.Thread(target=serve)
    serving.start()
    told, _, lines = looked(folder)
    serving.join(WAIT_S)
    assert told in ("silent", "serves")
    assert lines == ["s_1"]


def test_a_host_that_does_not_know_the_question(listening):
    folder, listener = listening
    listener.close()
    (folder / door.SOCKET_NAME).unlink()
    served = door.Door(folder, lambda _: pytest.fail("no session was asked for"))
    served.open()
    try:
        told, note, lines = looked(folder)
    finally:
        served.close()
    assert (told, lines) == ("serves", ["s_1"])
    assert "refuses to tell (unsupported_capability)" in note


def test_no_journal_and_no_host_is_an_error_and_no_exception(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        sight = feed.Looker(folder).look(Look(lines=5))
        assert (sight.top, sight.host, sight.error.kind) == (None, HostSeen("none"), "journal_failed")


# --- the thread ----------------------------------------------------------------------------------------------------------


class Slow:
    """Looks as long as it is held; keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Look] = []
        self.entered, self.go_on = threading.Event(), threading.Event()

    def look(self, look: Look) -> feed.Sight:
        self.asked.append(look)
        self.entered.set()
        assert self.go_on.wait(WAIT_S)
        return feed.Sight(top=None, host=HostSeen("none"), note=str(look.lines))


def sight_of(one: feed.Feed) -> feed.Sight:
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        select.select([one.fd], [], [], 1.0)
        if (found := one.take()) is not None:
            return found
    raise AssertionError("nothing came")


def test_wishes_that_come_during_a_look_are_one_look():
    slow = Slow()
    with feed.Feed(slow) as one:
        one.want(Look(lines=0))
        assert slow.entered.wait(WAIT_S)
        for lines in range(1, 50):
            one.want(Look(lines=lines))
        assert one.take() is None
        slow.go_on.set()
        notes = [sight_of(one).note]
        while notes[-1] != "49":
            notes.append(sight_of(one).note)
    assert [look.lines for look in slow.asked] == [0, 49]


def test_the_end_does_not_wait_for_a_look():
    slow = Slow()
    with feed.Feed(slow) as one:
        one.want(Look(lines=0))
        assert slow.entered.wait(WAIT_S)
    assert one._thread.is_alive()
    slow.go_on.set()
    one._thread.join(WAIT_S)
    assert not one._thread.is_alive()


def test_a_look_that_fails_is_told_to_whoever_waits():
    class Broken:
        def look(self, _: Look) -> feed.Sight:
            raise UsageError("usage", "broken")

    with feed.Feed(Broken()) as one:
        one.want(Look(lines=0))
        with pytest.raises(UsageError):
            sight_of(one)
