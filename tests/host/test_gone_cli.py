"""Messages and turns of a CLI that is gone (C03, C08, C22)."""

from __future__ import annotations

import pytest

from host_kit import WAIT_S, away, bodies, completed, completions, kinds, prompts
from kit_system import until
from lastword import events
from lastword.actors.pane import LAST_LOOK_S, LOOK_AGAIN_S
from lastword.transports.memory import MemoryScreen


@pytest.mark.contract("C22")
def test_c22_a_message_for_a_cli_that_is_gone_resumes_its_conversation(make):
    rig = make()
    session = rig.session()
    session.run("one")
    before = rig.cli(session)
    before.exit(1)
    until(lambda: session.snapshot().state == "gone")
    until(lambda: kinds(rig, session)[-1] == "session_gone")  # told a moment later, once it is committed
    done = session.run("two")
    assert (done.status, done.answer) == ("completed", "echo: two")
    assert [argv[-2:] for argv in rig.world.opened] == [("--session", before.native), ("--resume", before.native)]
    assert rig.cli(session).pid != before.pid
    started = bodies(rig, session, events.ProviderStarted)
    assert [event.body.reason for event in started] == ["open", "resume"]
    assert prompts(rig, session) == ["one", "two"]


@pytest.mark.contract("C22")
def test_c22_without_a_transcript_the_conversation_is_started_not_resumed(make):
    rig = make()
    session = rig.session()
    rig.ready(session).exit(0)
    until(lambda: session.snapshot().state == "gone")
    assert session.run("one").answer == "echo: one"
    assert [argv[-2] for argv in rig.world.opened] == ["--session", "--session"]


@pytest.mark.contract("C22")
def test_c22_what_was_not_typed_when_the_cli_died_is_delivered_to_the_next(make):
    rig = make()
    starts = []

    def start(cli):
        cli.starting = not starts
        starts.append(cli)

    rig.world.on_start = start
    session = rig.session()
    acks = [session.send("a"), session.send("b")]
    until(lambda: starts)
    rig.settle()
    starts[0].exit(1)
    done = completed(rig, session, 2)
    assert [one.message_id for one in done] == [ack.message_id for ack in acks]
    assert {one.status for one in done} == {"completed"}
    assert prompts(rig, session) == ["a", "b"]


@pytest.mark.contract("C08")
@pytest.mark.contract("C22")
def test_c08_a_cli_that_dies_mid_turn_loses_the_turn_not_the_session(make):
    rig = make(manual=True)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.running(session)
    pending = session.send("behind it")
    until(lambda: cli.queue)
    cli.exit(137)
    done = waiting.result(WAIT_S)
    assert (done.status, done.error.kind, done.source) == ("lost", "provider_exited", "process_exit")
    until(lambda: "message_undelivered" in kinds(rig, session))
    (gone,) = bodies(rig, session, events.MessageUndelivered)
    assert (gone.message_id, gone.body.reason) == (pending.message_id, "provider_exited")
    again = away(session.run, "again", queue=True)
    rig.running(session).finish("back")
    assert again.result(WAIT_S).answer == "back"


@pytest.mark.contract("C03")
def test_c03_a_terminal_record_written_just_before_the_death_wins_over_the_death(make):
    rig = make(manual=True, wake=False)
    session = rig.session()
    waiting = away(session.run, "go")
    cli = rig.cli(session)
    until(lambda: cli.turn)
    cli.finish("finished in time")
    cli.exit(0)
    assert waiting.result(WAIT_S).answer == "finished in time"
    rig.settle()
    assert len(completions(rig, session)) == 1


@pytest.mark.contract("C03")
@pytest.mark.parametrize("looks", [1, 4, 0])
def test_c03_the_last_words_of_a_cli_are_looked_for_until_its_pane_is_dead_or_for_a_while(make, clock, looks):
    """Its exit may be known before its pane shows what it wrote. ``looks``: so many until it is dead; 0: it never is."""
    rig, ended = make(clock=clock), []

    def start(cli):
        seen = []

        def look(on_screen):
            seen.append(cli)
            dead = 0 < looks <= len(seen)
            on_screen(MemoryScreen(lines=("why it ended",) if dead else ("READING", ""), dead=dead))

        cli.starting = True
        cli.look = look
        cli.exit(3)
        ended.append(cli)

    rig.world.on_start = start
    began = clock.monotonic()
    waiting = away(rig.session().run, "go")
    done = until(
        lambda: clock.advance(LOOK_AGAIN_S) or rig.settle() or (waiting.done() and waiting.result()), within_s=WAIT_S
    )
    assert (done.status, done.error.kind, len(ended)) == ("failed", "launch_failed", 2)
    assert ("why it ended" if looks else "READING") in done.error.message
    assert looks or clock.monotonic() - began >= 2 * LAST_LOOK_S


@pytest.mark.contract("C03")
def test_c03_what_an_earlier_start_said_is_told_where_the_last_one_said_nothing_and_once_only(make):
    rig, ways = make(), [("bad option",), ("",), None, ("",), ("",), ("",), ("",)]

    def start(cli):
        lines = ways.pop(0)
        if lines is not None:
            cli.starting = True
            cli.look = lambda on_screen: on_screen(MemoryScreen(lines=lines, dead=True))
            cli.exit(3)

    rig.world.on_start = start
    session = rig.session()
    said = "the CLI ended with status 3 before it was ready"
    assert session.run("first").error.message == f"{said}: bad option"
    assert session.run("second").answer == "echo: second"
    rig.cli(session).exit(0)
    until(lambda: session.snapshot().state == "gone")
    assert session.run("third").error.message == said
    assert session.run("fourth").error.message == said
    assert ways == []
