"""A family that forks while it is looked over and ended: nobody of it slips through, and it takes bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit_system import until
from lastword.transports.family import KILL_S, end_families, family
from lastword.transports.process import ProcessId, command_line, pid_start

pytestmark = pytest.mark.contract("C61")

_HEAD = """
import os, signal, sys, time
for number in (signal.SIGHUP, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 3)
over = time.time() + 30
note = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def born(): os.write(note, b"x")
"""
SHAPES = {
    # each starts the next one and ends at once; all are of one process group
    "chain": """
while time.time() < over:
    born()
    time.sleep(0.002)
    if os.fork(): os._exit(0)
""",
    # the same, as fast as it can: only a call to its group is faster
    "fast chain": """
while time.time() < over:
    born()
    if os.fork(): os._exit(0)
""",
    # as the first, each link in a session of its own: no group call reaches the next one
    "chain of sessions": """
while time.time() < over:
    born()
    time.sleep(0.002)
    if os.fork(): os._exit(0)
    os.setsid()
""",
    # each link leaves one behind that lives on, in a session of its own
    "shedding": """
while time.time() < over:
    born()
    time.sleep(0.01)
    if not os.fork():
        os.setsid()
        time.sleep(30)
        os._exit(0)
    if os.fork(): os._exit(0)
""",
    # one parent whose children go away from it twice over
    "parent": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while time.time() < over:
    born()
    time.sleep(0.005)
    if not os.fork():
        os.setsid()
        if os.fork(): os._exit(0)
        time.sleep(30)
        os._exit(0)
""",
    # a parent whose children leave the session and take a clean environment with them
    "unmarked children": """
pids = os.open(sys.argv[1] + ".pids", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(400):
    time.sleep(0.01)
    if not os.fork():
        os.setsid()
        os.write(pids, b"%d " % os.getpid())
        born()
        os.execve("/bin/sleep", ["sleep", "20"], {})
time.sleep(20)
""",
}
EACH = pytest.mark.parametrize("shape", [*SHAPES][:5])


class Forking:
    """A family that runs; known by its mark only, as everybody's parent is gone."""

    def __init__(self, folder: Path, shape: str) -> None:
        self.note = folder / "born"
        mark = f"{os.getpid()}.{time.monotonic_ns()}"
        self.marks = (f"LASTWORD_TEST={mark}\0".encode(),)
        env = {**os.environ, "LASTWORD_TEST": mark}
        subprocess.run([sys.executable, "-c", _HEAD + SHAPES[shape], str(self.note)], env=env, check=True, timeout=30)
        until(lambda: self.born() >= 3, within_s=30)

    def born(self) -> int:
        return self.note.stat().st_size if self.note.exists() else 0

    def stands_still(self) -> bool:
        """Nobody of it forks on; asked of what it writes, not of /proc."""
        before = self.born()
        time.sleep(0.2)
        return self.born() == before


@pytest.fixture
def forking(tmp_path: Path) -> Iterator[Callable[[str], Forking]]:
    made: list[Forking] = []

    def make(shape: str) -> Forking:
        made.append(Forking(tmp_path, shape))
        return made[-1]

    yield make
    for each in made:
        until(lambda each=each: end_families((), each.marks, 0.0).whole, within_s=60)


@pytest.fixture
def burning() -> Iterator[None]:
    """Two neighbours that take all the time they get."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@EACH
def test_c61_a_family_that_forks_on_is_ended_whole(forking, shape):
    it = forking(shape)
    ended = end_families((), it.marks, 0.0)
    assert ended.whole
    assert it.stands_still()
    assert family((), it.marks) == []


@pytest.mark.parametrize("shape", ["chain", "chain of sessions", "parent"])
def test_c61_a_family_that_forks_on_is_ended_whole_on_a_busy_machine(forking, shape, burning):
    it = forking(shape)
    ended = end_families((), it.marks, 0.1)
    assert ended.whole
    assert it.stands_still()


class Late:
    """The looker is held up after it has listed who lives, until a chain has gone on: so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, it: Forking, times: int) -> None:
        self.left = times
        listed = os.listdir

        def late(path):
            names = listed(path)
            if path == "/proc" and self.left > 0:
                self.left -= 1
                at = it.born() + 2
                until(lambda: it.born() >= at, within_s=30)
            return names

        monkeypatch.setattr(os, "listdir", late)


@pytest.mark.parametrize("shape", ["chain", "chain of sessions"])
@pytest.mark.parametrize("times", [1, 5])
def test_c61_a_look_that_somebody_escaped_is_not_believed(forking, monkeypatch, shape, times):
    """Whoever was listed has ended by the time it is read, and who came after it is not on the list."""
    it = forking(shape)
    late = Late(monkeypatch, it, times)
    ended = end_families((), it.marks, 0.0)
    assert late.left == 0
    assert ended.whole
    assert it.stands_still()


def test_c61_a_group_of_its_own_is_stopped_at_once_though_a_signal_to_each_comes_too_late(forking, monkeypatch):
    it = forking("chain")
    send = ProcessId.send

    def late(process, number):
        at, over = it.born() + 2, time.monotonic() + 0.1
        until(lambda: it.born() >= at or time.monotonic() > over, within_s=30)
        return send(process, number)

    monkeypatch.setattr(ProcessId, "send", late)
    ended = end_families((), it.marks, 0.0)
    assert ended.whole
    assert it.stands_still()


def test_c61_what_cannot_be_caught_is_told_within_its_bound(forking, monkeypatch):
    it = forking("chain of sessions")
    late = Late(monkeypatch, it, 1_000_000)
    began = time.monotonic()
    ended = end_families((), it.marks, 0.0)
    assert time.monotonic() - began < KILL_S + 15
    late.left = 0
    assert ended.unsure
    assert not it.stands_still()


def test_c61_a_child_without_the_mark_is_known_from_before_its_parent_ended(tmp_path):
    """It has left the session and taken a clean environment with it: only its parent tells whose it is."""
    note = tmp_path / "pid"
    child = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(30)"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], env={{}}, start_new_session=True)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        pid = int(until(lambda: note.exists() and note.read_text(), within_s=30))
        left = ProcessId(pid, pid_start(pid) or 0)
        leader = ProcessId(parent.pid, pid_start(parent.pid) or 0)
        ended = end_families([leader], (), 0.5)  # it heeds SIGHUP, and is gone when the family is looked for again
        assert not left.is_alive()
        assert ended.survivors == ()
    finally:
        parent.kill()
        parent.wait()


def test_c61_a_child_that_is_born_while_others_are_ended_is_found_though_nothing_marks_it(
    forking, monkeypatch, tmp_path
):
    """All of it stands still before the first of it is ended: a parent that went on would leave one behind."""
    it = forking("unmarked children")
    listed = os.listdir

    def late(path):
        names = listed(path)
        if path == "/proc":
            at, over = it.born() + 2, time.monotonic() + 0.1
            until(lambda: it.born() >= at or time.monotonic() > over, within_s=30)
        return names

    with monkeypatch.context() as held:
        held.setattr(os, "listdir", late)
        ended = end_families((), it.marks, 0.0)
    assert ended.whole
    born = [int(pid) for pid in Path(f"{it.note}.pids").read_text().split()]
    alive = [pid for pid in born if b"sleep" in command_line(pid)]
    for pid in alive:
        ProcessId(pid, pid_start(pid) or 0).send(signal.SIGKILL)
    assert alive == []


def test_c61_nobody_else_of_a_group_is_touched(tmp_path):
    """A group is signalled as one only where all of it is of the family."""
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '30'], env={**os.environ, 'LASTWORD_TEST': sys.argv[1]})\n"
        "print(child.pid, flush=True)\nchild.wait()\nprint('lives', flush=True)\n"
    )
    stranger = subprocess.Popen(
        [sys.executable, "-c", code, mark], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        pid = int(stranger.stdout.readline())
        until(lambda: family((), (f"LASTWORD_TEST={mark}\0".encode(),)), within_s=30)
        assert end_families((), (f"LASTWORD_TEST={mark}\0".encode(),), 0.0).killed == (pid,)
        assert stranger.stdout.readline() == "lives\n"
        assert stranger.wait(30) == 0
    finally:
        stranger.kill()
        stranger.wait()
        stranger.stdout.close()
