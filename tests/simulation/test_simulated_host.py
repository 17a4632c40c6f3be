"""A host's own tests in a simulation: the plain calls of the door, one thread, no real time."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from lastword import Interrupt, Runtime, Session
from lastword.actors.session_commands import Submit
from lastword.actors.system.simulation import Simulation
from lastword.runtime.testing.memory import memory_edge
from lastword.transports.memory import MemoryWorld


def opened(state: Path, simulation: Simulation, world: MemoryWorld) -> Runtime:
    return Runtime.open(state, edge=memory_edge(world), durability="process", simulation=simulation)


def on_record(runtime: Runtime, session: Session) -> list[str | None]:
    return [done.answer for done in runtime._journal.completions(session.session_id)]


def test_a_host_waits_in_virtual_time_only(tmp_path: Path) -> None:
    simulation = Simulation(1)
    world = MemoryWorld(clock=simulation.wall, manual=True)
    began = time.monotonic()
    with opened(tmp_path, simulation, world) as runtime:
        session = runtime.session("memory")
        world.on_turn = lambda cli, _: simulation.after(3600.0, lambda: cli.finish("an hour later"))
        assert session.run("take your time").answer == "an hour later"
        world.on_turn = None
        cancelled = session.run("never ends", deadline_s=7200.0)
        assert (cancelled.status, cancelled.error.kind) == ("cancelled", "deadline")
        assert session.send(Interrupt()).taken == "nothing_to_do"
        assert session.snapshot().state == "idle"
        session.close()
    assert simulation.monotonic() > 10_000.0
    assert time.monotonic() - began < 10.0


@pytest.mark.contract("C17")
def test_c17_a_host_dropped_at_any_step_finds_its_living_cli_and_settles_once(tmp_path: Path) -> None:
    """Every step of one turn's way is one at which the host is dropped and a second one takes over CLI and turn."""
    drops = 0
    while True:
        simulation = Simulation(f"drop {drops}")
        world = MemoryWorld(clock=simulation.wall)
        state = tmp_path / str(drops)
        first = opened(state, simulation, world)
        first._system.batch = 1  # a step is one message
        session = first.session("memory")
        simulation.run_for(1.0)
        (cli,) = world.alive()
        session._counterpart.ref.tell(Submit(text="the only one", reply=Future()))
        done = any(not simulation.step(simulation.monotonic()) for _ in range(drops))
        first._system.drop()
        first._hub.close()
        first._journal.close()
        world.host_died()
        with opened(state, simulation, world) as second:
            again = second.session(session_id=session.session_id)
            simulation.run_for(60.0)
            assert world.alive() == [cli], "its CLI was left alone"
            accepted = second._journal.messages(session.session_id)
            assert on_record(second, session) == ["echo: the only one"] * len(accepted)
            assert cli.keys.count("Enter") == len(accepted)
            assert again.run("one more").answer == "echo: one more"
        if done:
            break
        drops += 1
    assert drops > 20
