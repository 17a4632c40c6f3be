"""The CLI goes to another conversation by itself, and the host hears of it late or is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_kit import WAIT_S, Rig, completions
from kit_system import until
from lastword.actors.system.clock import ManualClock
from lastword.transports.memory import MemoryCli


def typed_clear(cli: MemoryCli) -> None:
    """A person's."""
    cli.draft = "/clear"
    cli.press("Enter", on_done=lambda _: None)


def told_of(rig: Rig, origin: str, session: str) -> list[str | None]:
    """Answers of the turns of that origin, as far as they are told."""
    rig.clock.advance(0.1)
    rig.world.sweep()
    rig.settle()
    return [done.answer for done in completions(rig, session) if done.origin == origin]


@pytest.mark.contract("C19")
def test_c19_a_turn_that_began_before_the_move_was_seen_is_no_history(tmp_path: Path) -> None:
    """The hint of the registry's change was lost. What the CLI began in the seconds until the poll, in the conversation
    that it had moved to, was taken for the history of that conversation, and had no turn.
    """
    with Rig(tmp_path, clock=ManualClock(), wake=False) as rig:
        session = rig.session()
        cli = rig.ready(session)
        told_of(rig, "host", session.session_id)
        rig.clock.advance(1.0)
        typed_clear(cli)
        rig.clock.advance(0.1)
        cli.start_turn("", origin="task_notification")
        rig.clock.advance(2.0)
        until(lambda: told_of(rig, "task_notification", session.session_id) == ["echo: "], within_s=WAIT_S)


@pytest.mark.contract("C19")
def test_c19_what_a_conversation_held_before_the_move_is_history(tmp_path: Path) -> None:
    with Rig(tmp_path, clock=ManualClock()) as rig:
        session = rig.session()
        cli = rig.ready(session)
        until(lambda: session.snapshot().state == "idle", within_s=WAIT_S)
        native, cli.native = cli.native, f"{cli.native}+"
        old = rig.world.clock() - 60.0
        rig.world.append(
            cli.path,
            b'{"k":"prompt","turn":"old","text":"long ago","at":%f}\n{"k":"end","turn":"old","text":"x","status":"completed","at":%f}\n'
            % (old, old),
        )
        cli.native = native
        rig.clock.advance(1.0)
        typed_clear(cli)
        cli.start_turn("", origin="task_notification")
        until(lambda: told_of(rig, "task_notification", session.session_id) == ["echo: "], within_s=WAIT_S)
        assert len(completions(rig, session)) == 1


@pytest.mark.contract("C13")
@pytest.mark.contract("C17")
@pytest.mark.contract("C24")
@pytest.mark.parametrize("waiting", [False, True], ids=["alone", "another waits"])
def test_c24_what_was_entered_between_two_moves_that_no_host_saw_is_not_typed_again(
    tmp_path: Path, waiting: bool
) -> None:
    """The CLI was moved; the host entered a text, and died before it heard of the move; the CLI was moved again. What became
    of the text stands in a conversation that nobody knows of.
    """
    clock = ManualClock()
    with Rig(tmp_path, clock=clock, wake=False, manual=True) as first:
        session = first.session()
        cli = first.ready(session)
        clock.advance(1.0)
        first.settle()
        typed_clear(cli)
        session.send("ours")
        for _ in range(4):
            clock.advance(0.1)
            first.settle()
        assert cli.turn
        if waiting:
            session.send("never typed")
        first.settle()
        first.abandon()
    cli.finish("done, and told nobody")
    clock.advance(1.0)
    typed_clear(cli)
    first.world.manual = False
    with Rig(tmp_path, clock=clock, world=first.world, manual=True) as again:
        for _ in range(80):
            clock.advance(0.25)
            again.world.sweep()
            again.settle()
        ends = [(done.status, done.error and done.error.kind, done.answer) for done in completions(again, session)]
        assert ends[0] == ("lost", "superseded", None)
        assert ends[1:] == ([("completed", None, "echo: never typed")] if waiting else [])
        assert cli.keys.count("<paste>") == 1 + waiting
        found = again.runtime.session(session_id=session.session_id)
        assert found.snapshot().state == "idle"


@pytest.mark.contract("C17")
@pytest.mark.contract("C24")
@pytest.mark.parametrize("moves", [1, 2])
def test_c17_a_turn_that_was_on_record_before_the_host_died_is_settled_however_often_the_cli_was_moved_since(
    tmp_path: Path, moves: int
) -> None:
    clock = ManualClock()
    with Rig(tmp_path, clock=clock, manual=True) as first:
        session = first.session()
        first.ready(session)
        session.send("ours")
        first.settle()
        cli = first.running(session)
        first.abandon()
    cli.finish("done")
    for _ in range(moves):
        clock.advance(0.5)
        typed_clear(cli)
    with Rig(tmp_path, clock=clock, world=first.world, manual=True) as again:
        for _ in range(40):
            clock.advance(0.25)
            again.world.sweep()
            again.settle()
        assert [(done.status, done.answer) for done in completions(again, session)] == [("completed", "done")]
        assert cli.keys.count("<paste>") == 1
