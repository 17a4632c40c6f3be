"""A host that takes over a session with a very long transcript; prints what it cost. Run by volume_kit, by path."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from kit_system import until
from lastword import Runtime
from lastword.actors.core.ids import SessionId, TurnId
from lastword.actors.core.ports import Batch, Cursor, SessionRow, TurnRow
from lastword.actors.core.world import Bytes
from lastword.runtime._edge import Edge
from lastword.runtime._journal import SqliteJournal
from lastword.transports.files import LocalFiles
from lastword.transports.memory import MemoryWorld
from lastword.transports.providers.claude_code import project_folder
from lastword.transports.watch import FileWatcher
from volume_kit import NATIVE, native_turn

SESSION = SessionId("s_volume")
TURN = TurnId("t_last")


class Everything:
    """Real files beside those of the in-process CLI."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world, self._local = world, LocalFiles()

    def read_from(self, path, offset, max_bytes, inode, device):
        files = self._world if path.startswith(self._world.root) else self._local
        return files.read_from(path, offset, max_bytes, inode, device)

    def read_small(self, path, max_bytes):
        return (self._world if path.startswith(self._world.root) else self._local).read_small(path, max_bytes)


class Counted:
    """How many bytes were read of real files."""

    def __init__(self) -> None:
        self.bytes = 0
        real = LocalFiles.read_from

        def read_from(files, path, *where):
            read = real(files, path, *where)
            self.bytes += len(read.data) if isinstance(read, Bytes) else 0
            return read

        LocalFiles.read_from = read_from  # type: ignore[method-assign]


class Wakes:
    def __init__(self, world: MemoryWorld) -> None:
        self._world, self._local = world, FileWatcher()

    def watch(self, path, root, on_change):
        edge = self._world if path.startswith(self._world.root) else self._local
        return edge, edge.watch(path, root, on_change)

    def unwatch(self, token):
        token[0].unwatch(token[1])

    def close(self):
        self._local.close()


def resident_kib(field: str = "VmRSS") -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise AssertionError(field)


def prepare(folder: Path, case: str, offset: int) -> str:
    """The journal as a host that was killed in the last turn leaves it."""
    path = f"{folder}/home/.claude/projects/{project_folder(str(folder))}/{NATIVE}.jsonl"
    facts = Path(path).stat()
    cursor = {
        "cursor": Cursor(path=path, offset=offset, inode=facts.st_ino, device=facts.st_dev),
        "none": None,
        "replaced": Cursor(path=path, offset=offset, inode=facts.st_ino + 1, device=facts.st_dev),
        "moved": Cursor(path=path + ".before", offset=7, inode=5, device=5),
    }[case]
    now = time.time()
    row = SessionRow(
        session_id=SESSION,
        provider="claude-code",
        transport="tmux",
        cwd=str(folder),
        native_session=NATIVE,
        handle='{"native_session_id":"x","pid":1}',
        cursor=cursor,
        opened_at=now - 60,
    )
    turn = TurnRow(
        turn_id=TURN,
        session_id=SESSION,
        message_id=None,
        state="running",
        native_turn=native_turn(),
        accepted_at=now - 50,
        bound_at=now - 49,
    )
    journal = SqliteJournal.open(folder / "state", durability="process")
    journal.record([Batch(session_id=SESSION, session=row, turns=(turn,), cursor=cursor)], now - 50)
    journal.close()
    return path


def main() -> None:
    folder, case, offset = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    prepare(folder, case, offset)
    world = MemoryWorld()
    wakes = Wakes(world)
    counted = Counted()
    edge = Edge(transport=world, files=Everything(world), wakes=wakes, close=world.close)
    with Runtime.open(folder / "warm", edge=edge) as warm:  # modules and pools that any host has are no growth
        warm.session("memory").run("x")
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_kib()
    began = time.monotonic()
    runtime = Runtime.open(folder / "state", edge=edge, env={"HOME": f"{folder}/home", "PATH": "/usr/bin:/bin"})
    session = runtime.session(session_id=SESSION)
    session.snapshot()
    attach_s = time.monotonic() - began
    other = runtime.session("memory")
    turns: list[float] = []

    def settled() -> bool:
        start = time.monotonic()
        assert other.run("meanwhile").status == "completed"
        turns.append(time.monotonic() - start)
        start = time.monotonic()
        session.snapshot()
        turns.append(time.monotonic() - start)
        return runtime.completion(TURN) is not None

    until(settled, within_s=280)
    settled_s = time.monotonic() - began
    done = runtime.completion(TURN)
    assert done is not None
    print(
        json.dumps(
            {
                "attach_s": attach_s,
                "settled_s": settled_s,
                "grown_mib": (resident_kib("VmHWM") - before) / 1024,
                "read_mib": counted.bytes / 1024 / 1024,
                "other_turns": len(turns) // 2,
                "slowest_other_s": max(turns),
                "status": done.status,
                "answer": done.answer,
                "turns": runtime._journal.turn_count(SESSION),
            }
        )
    )
    runtime.close()
    wakes.close()


if __name__ == "__main__":
    main()
