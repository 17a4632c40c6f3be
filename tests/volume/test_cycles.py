"""Opening and closing very often leaves a host as it was: no thread, descriptor, watch or memory stays (C61)."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from host_kit import Rig
from kit_system import lastword_threads, until
from lastword.actors.system.cell import Cell
from lastword.runtime import Session
from lastword.runtime.testing import Rehearsal, rehearsed_runtime

GROWN_KIB = 3_000
STRETCHES_MAX = 4


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def least_growth_kib(stretch: Callable[[], None], bound: int) -> int:
    """What a stretch adds to the process, in KiB: the least of up to four, until one is within the bound. What leaks does so
    in each; what the allocator keeps once, or gives back later, does not come again.
    """
    grown: list[int] = []
    while len(grown) < STRETCHES_MAX and min(grown, default=bound) >= bound:
        before = resident_kib()
        stretch()
        grown.append(resident_kib() - before)
    print(f"grown by {grown} KiB")
    return min(grown)


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


@pytest.mark.contract("C61")
def test_c61_a_thousand_sessions_of_one_runtime_leave_nothing_behind(tmp_path):
    with Rig(tmp_path) as rig:

        def cycle() -> None:
            session = rig.session()
            assert session.run("x").status == "completed"
            session.close()
            rig.world.clis.clear()  # the in-process CLIs remember for the tests
            rig.world.opened.clear()
            rig.world._files.clear()

        for _ in range(150):
            cycle()
        rig.settle()
        before = (alive(Cell), alive(Session), descriptors(), len(lastword_threads("lastword")), rig.world.watches)

        def stretch() -> None:
            for _ in range(1_000):
                cycle()
            rig.settle()

        grown = least_growth_kib(stretch, GROWN_KIB)
        until(lambda: alive(Cell) <= before[0])
        after = (alive(Cell), alive(Session), descriptors(), len(lastword_threads("lastword")), rig.world.watches)
        assert after == before
        assert len(rig.runtime._sessions) == 0
        assert grown < GROWN_KIB


@pytest.mark.contract("C61")
def test_c61_two_hundred_runtimes_one_after_the_other_leave_nothing_behind(tmp_path):
    def cycle(number: int) -> None:
        with Rig(tmp_path / f"{number % 3}") as rig:
            assert rig.session().run("x").status == "completed"

    for number in range(20):
        cycle(number)
    before = (alive(Cell), alive(Session), descriptors())

    def stretch() -> None:
        for number in range(200):
            cycle(number)

    grown = least_growth_kib(stretch, GROWN_KIB)
    assert (alive(Cell), alive(Session), descriptors()) == before
    assert lastword_threads("lastword") == []
    assert grown < GROWN_KIB


def in_panes(cycles: int) -> None:
    with rehearsed_runtime() as rehearsed:
        runtime = rehearsed.runtime

        def cycle() -> None:
            session = runtime.session(rehearsed.provider, cwd=rehearsed.cwd)
            assert session.run("hello", deadline_s=60).status == "completed"
            session.close(grace_s=0.5)

        for _ in range(5):
            cycle()
        server = runtime._edges.opened["tmux"].transport.server
        before = (descriptors(), len(lastword_threads("lastword")), alive(Session))

        def stretch() -> None:
            for _ in range(cycles):
                cycle()

        grown = least_growth_kib(stretch, GROWN_KIB + 4 * cycles)
        until(lambda: (descriptors(), len(lastword_threads("lastword")), alive(Session)) <= before)
        assert server._rows(server.control)[1:] == [], "no pane but the hub's"
        assert server.control.call(b"list-buffers", 5).lines == ()
        assert grown < GROWN_KIB + 4 * cycles


@pytest.mark.tmux
@pytest.mark.contract("C61")
def test_c61_sessions_in_real_panes_leave_nothing_behind():
    in_panes(20)


@pytest.mark.tmux
@pytest.mark.stress
@pytest.mark.contract("C61")
def test_c61_a_thousand_sessions_in_real_panes_leave_nothing_behind():
    in_panes(1_000)


def test_a_rehearsal_leaves_no_folder(tmp_path):
    with Rehearsal(parent=tmp_path) as place:
        assert place.root.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []
