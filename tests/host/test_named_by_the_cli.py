"""A CLI that chooses the conversation's name itself: nothing is typed before that name is on record (C51)."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from host_kit import WAIT_S, HeldCommits, Rig, bodies, completions, kinds
from kit_system import until
from lastword import events
from lastword.actors.core.adapter import DialogOpen
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.memory import MemoryAdapter

LOCKS = "/locks/"


class NamingAdapter(MemoryAdapter):
    """The in-process CLI names its conversation; it shows the name in its title, and holds a lock of that name."""

    def new_native_session(self, entropy):
        return ""

    def transcript(self, request):
        suffix = f"{request.native_session}.jsonl" if request.native_session else ""
        return msgspec.structs.replace(super().transcript(request), path="", suffix=suffix)

    def identify(self, request, title, open_files):
        return title if title and f"{LOCKS}{title}" in open_files() else ""

    def status_file(self, request, pid):
        return None


def shows(cli, native):
    """It is in that conversation now."""
    cli.native = native
    cli.holds = (*cli.holds, f"{LOCKS}{native}")
    cli.title = native


class NamingWorld(MemoryWorld):
    """Each new conversation is named ``chosen-N``; ``mute``: it is named, and does not show it yet."""

    def __init__(self, **options):
        super().__init__(**options)
        self.names = count(1)
        self.mute = False
        self.on_start = self._starts

    def _starts(self, cli):
        native = cli.native or f"chosen-{next(self.names)}"
        shows(cli, native)
        if self.mute:
            cli.title = ""

    @property
    def cli(self):
        return self.started[-1]


@pytest.fixture
def world():
    return NamingWorld()


@pytest.fixture
def rig(tmp_path, world):
    with Rig(tmp_path, world=world, adapters=[NamingAdapter()]) as made:
        yield made


def named(session):
    return session.snapshot().handle.native_session_id


@pytest.mark.contract("C51")
def test_c51_the_name_that_the_cli_chose_is_the_conversations_and_no_rebinding(rig):
    session = rig.session()
    done = session.run("hello", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.native_session_id) == ("completed", "echo: hello", "chosen-1")
    assert named(session) == "chosen-1"
    assert "session_rebound" not in kinds(rig, session)
    assert [row.native_session for row in rig.runtime._journal.sessions()] == ["chosen-1"]


@pytest.mark.contract("C51")
def test_c51_nothing_is_typed_while_the_cli_has_not_told_its_name(rig, world):
    world.mute = True
    session = rig.session()
    ack = session.send("hello")
    until(lambda: world.started, within_s=WAIT_S)
    cli = world.cli
    for _ in range(3):  # looks go on
        before = cli.looks
        until(lambda before=before: cli.looks > before, within_s=WAIT_S)
    assert (cli.draft, cli.keys) == ("", [])
    cli.title = cli.native
    until(lambda: completions(rig, session), within_s=WAIT_S)
    assert completions(rig, session)[0].turn_id == ack.turn_id


@pytest.mark.contract("C17")
@pytest.mark.contract("C51")
def test_c51_nothing_is_typed_before_the_name_is_committed(rig, world, monkeypatch):
    world.mute = True
    session = rig.session()
    ack = session.send("hello")
    until(lambda: bodies(rig, session, events.ProviderStarted), within_s=WAIT_S)
    cli = world.cli
    held = HeldCommits(monkeypatch, lambda batch: batch.session is not None and bool(batch.session.native_session))
    cli.title = cli.native
    held.wait()
    before = cli.looks
    until(lambda: cli.looks > before + 2, within_s=WAIT_S)
    assert (cli.draft, cli.keys) == ("", [])
    held.release()
    until(lambda: completions(rig, session), within_s=WAIT_S)
    assert completions(rig, session)[0].turn_id == ack.turn_id


@pytest.mark.contract("C19")
@pytest.mark.contract("C51")
def test_c51_a_cli_that_was_moved_is_followed_before_anything_is_typed_there(rig, world):
    session = rig.session()
    assert session.run("one", deadline_s=WAIT_S).native_session_id == "chosen-1"
    shows(world.cli, "elsewhere")
    done = session.run("two", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.native_session_id) == ("completed", "echo: two", "elsewhere")
    (rebound,) = bodies(rig, session, events.SessionRebound)
    assert (rebound.body.previous, rebound.body.native_session_id) == ("chosen-1", "elsewhere")
    assert [row.native_session for row in rig.runtime._journal.sessions()] == ["elsewhere"]


@pytest.mark.contract("C02")
@pytest.mark.contract("C51")
def test_c51_what_the_pane_shows_in_the_middle_of_a_turn_loses_no_turn(rig, world):
    world.manual = True
    session = rig.session()
    ack = session.send("one")
    until(lambda: bodies(rig, session, events.TurnStarted), within_s=WAIT_S)
    cli = world.cli
    cli.title, cli.holds = "an-agents", (*cli.holds, f"{LOCKS}an-agents")
    before = cli.looks
    until(lambda: cli.looks > before + 1, within_s=WAIT_S)
    rig.settle()
    assert not bodies(rig, session, events.SessionRebound)
    cli.title = cli.native
    cli.finish("done")
    until(lambda: completions(rig, session), within_s=WAIT_S)
    (done,) = completions(rig, session)
    assert (done.turn_id, done.status, done.answer) == (ack.turn_id, "completed", "done")
    assert named(session) == "chosen-1"


@pytest.mark.contract("C22")
def test_c22_a_conversation_in_which_nothing_was_said_is_not_resumed(rig, world):
    session = rig.session()
    until(lambda: named(session) == "chosen-1" and session.snapshot().state == "idle", within_s=WAIT_S)
    world.cli.exit(1)
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    done = session.run("hello", deadline_s=WAIT_S)
    assert (done.status, done.native_session_id) == ("completed", "chosen-2")
    assert [argv[1:] for argv in world.opened] == [("--session", ""), ("--session", "")]


@pytest.mark.contract("C22")
def test_c22_one_in_which_something_was_said_is_resumed_by_its_name(rig, world):
    session = rig.session()
    assert session.run("hello", deadline_s=WAIT_S).status == "completed"
    world.cli.exit(1)
    until(lambda: session.snapshot().state == "gone", within_s=WAIT_S)
    done = session.run("again", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.native_session_id) == ("completed", "echo: again", "chosen-1")
    assert [argv[1:] for argv in world.opened] == [("--session", ""), ("--resume", "chosen-1")]


@pytest.mark.contract("C17")
def test_c17_a_turn_that_ends_while_no_host_lives_is_found_by_the_name_on_record(tmp_path, world):
    world.manual = True
    with Rig(tmp_path, world=world, adapters=[NamingAdapter()]) as first:
        session = first.session()
        ack = session.send("one")
        until(lambda: bodies(first, session, events.TurnStarted), within_s=WAIT_S)
        first.abandon()
    world.host_died()
    world.cli.finish("meanwhile")
    with Rig(tmp_path, world=world, adapters=[NamingAdapter()]) as second:
        again = second.runtime.session(session_id=session.session_id)
        until(lambda: completions(second, again), within_s=WAIT_S)
        (done,) = completions(second, again)
        assert (done.turn_id, done.answer) == (ack.turn_id, "meanwhile")


@pytest.mark.contract("C51")
def test_c51_enter_is_not_pressed_in_a_conversation_that_it_moved_to_at_the_last_moment(rig, world):
    session = rig.session()
    assert session.run("one", deadline_s=WAIT_S).status == "completed"
    cli, press = world.cli, world.cli.look_then_press

    def moved_meanwhile(check, *keys, on_done):
        cli.look_then_press = press
        shows(cli, "elsewhere")
        press(check, *keys, on_done=on_done)

    cli.look_then_press = moved_meanwhile
    done = session.run("two", deadline_s=WAIT_S)
    assert (done.status, done.answer, done.native_session_id) == ("completed", "echo: two", "elsewhere")
    order = [kind for kind in kinds(rig, session) if kind in ("session_rebound", "message_submitted")]
    assert order == ["message_submitted", "session_rebound", "message_submitted"]


@pytest.mark.contract("C25")
def test_c25_a_dialog_of_a_cli_that_announces_nothing_is_seen_in_the_middle_of_a_turn(rig, world):
    world.manual = True
    session = rig.session()
    session.send("one")
    until(lambda: bodies(rig, session, events.TurnStarted), within_s=WAIT_S)
    before = world.cli.looks
    until(lambda: world.cli.looks > before + 2, within_s=WAIT_S)  # what was left of the delivery has looked, and more
    world.cli.dialog = DialogOpen(key="p", question="Run it?", options=("Yes", "No"), kind="permission")
    until(lambda: bodies(rig, session, events.DialogOpened), within_s=WAIT_S)
    world.cli.dialog = None
    until(lambda: bodies(rig, session, events.DialogClosed), within_s=WAIT_S)
    world.cli.finish("done")
    until(lambda: completions(rig, session), within_s=WAIT_S)


@pytest.mark.contract("C19")
def test_c19_what_a_person_does_in_a_conversation_that_they_moved_to_is_a_turn_of_theirs(rig, world):
    session = rig.session()
    assert session.run("one", deadline_s=WAIT_S).status == "completed"
    shows(world.cli, "elsewhere")
    world.cli.start_turn("typed by a person")
    until(lambda: len(completions(rig, session)) == 2, within_s=WAIT_S)
    theirs = completions(rig, session)[1]
    assert (theirs.origin, theirs.answer) == ("human_terminal", "echo: typed by a person")
    assert theirs.native_session_id == "elsewhere"


@pytest.mark.contract("C19")
def test_c19_a_cli_that_a_person_moves_before_anything_was_sent_is_followed(rig, world):
    session = rig.session()
    until(lambda: named(session) == "chosen-1" and session.snapshot().state == "idle", within_s=WAIT_S)
    shows(world.cli, "elsewhere")
    until(lambda: named(session) == "elsewhere", within_s=WAIT_S)
    assert session.run("one", deadline_s=WAIT_S).native_session_id == "elsewhere"
