"""A tmux server of ours that lives though its socket is not where one looks for it: found by a CLI in it, and woken.

The socket's file may be gone (who cleans a folder for temporary files takes it), or stand elsewhere (another
``TMUX_TMPDIR``, a state folder that was moved, whose path gives the socket its name). Neither says anything about the
CLIs: those are asked of ``/proc``. On SIGUSR1 tmux makes its socket anew, at the path that it was started with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Container, Sequence
from pathlib import Path

import msgspec

from lastword.actors.core.errors import TransportError
from lastword.transports.claims import Claims
from lastword.transports.family import carriers, end_families
from lastword.transports.process import ProcessId, command_line, listener, parent

OWNER_OPTION = "@lastword"
JOURNAL_OPTION = "@lastword-journal"
PANE_MARK = "LASTWORD_PANE"
"""In the environment of a CLI in a pane, and of all that it starts: under which name the pane was opened."""
SOCKET_PATH_BYTES_MAX = 107
WAKE_S = 1.0
"""How long a server that was asked for its socket is waited for."""
WAKE_POLL_S = 0.01
LAST_GRACE_S = 1.0
"""For CLIs that nobody can reach any more, before they are ended hard."""
KILLED_WAIT_S = 1.0


class Lodger(msgspec.Struct, frozen=True):
    """A CLI on record, and the socket of the server that it was started in."""

    cli: ProcessId
    socket_path: Path


class Owner(msgspec.Struct, frozen=True):
    """Who asks: a journal by its id, and what its host holds. A server is *ours* where it was started for that journal
    and no other living host holds it: only then it is spoken to or ended (docs/adr/0020).
    """

    journal: str = ""
    claims: Claims = msgspec.field(default_factory=Claims)

    def owns(self, server: ProcessId, socket_path: Path) -> bool:
        """Whether it is ours, held from here on."""
        return is_ours(server, socket_path) and self.journal in ("", _journal_of(server)) and self.claims.take(server)

    def end(self, server: ProcessId, socket_path: Path, clis: Sequence[ProcessId] = ()) -> None:
        """As :func:`end_server`, and let go of it."""
        end_server(server, socket_path, clis)
        self.claims.drop(server)


def free_socket(owner: Owner, wanted: Path, other: Path) -> Path:
    """Where our server may stand: as wanted, unless a server of somebody else's does. What stands at the place that is
    not taken and is ours is ended. Blocks, bounded.
    """
    heard = listener(wanted)
    free = heard is None or not is_ours(heard, wanted) or owner.owns(heard, wanted)
    chosen, left = (wanted, other) if free else (other, wanted)
    end_other(owner, left)
    return chosen


def end_other(owner: Owner, path: Path) -> None:
    """End what listens there, where it is ours."""
    heard = listener(path)
    if heard is not None and owner.owns(heard, path):
        owner.end(heard, path)


def living_elsewhere(session_ids: Container[str], home: ProcessId | None) -> set[str]:
    """Sessions with a CLI that lives in a pane of another server of lastword's than ``home``."""
    found: set[str] = set()
    for each in carriers(PANE_MARK):
        session_id = each.value.rpartition("-")[0]
        server = parent(each.process.pid) if each.leads and session_id in session_ids else None
        if server is not None and server != home and OWNER_OPTION.encode() + b"\0" in command_line(server.pid):
            found.add(session_id)
    return found


def living_home(lodgers: Sequence[Lodger], usual: Path, owner: Owner | None = None) -> Path | None:
    """The socket of the server in which CLIs on record live, listening; None where none lives. Blocks, bounded.

    There is one home: the server with the most of them. What another living host holds is let be. Every other CLI that
    lives elsewhere, or whose server can be reached no more, is *ended* here with all that its server holds, before
    anybody can tell it gone: else it would be told as gone while it lives, a second one would come beside it on the
    same conversation, and it would stay for ever. So is what stands at ``usual``, where the home is another.
    """
    owner = owner or Owner()
    homes: dict[tuple[ProcessId | None, Path], list[ProcessId]] = {}
    for each in lodgers:
        if each.cli.is_alive():
            homes.setdefault((_server_of(each), each.socket_path), []).append(each.cli)
    home: Path | None = None
    for (server, socket_path), clis in sorted(homes.items(), key=lambda item: -len(item[1])):
        if server is None:
            _end_homeless(clis)
        elif not owner.owns(server, socket_path):
            continue
        elif home is None and reach(server, socket_path, owner):
            home = socket_path
        else:
            owner.end(server, socket_path, clis)
    if home is not None and home != usual:
        end_other(owner, usual)
    return home


def reach(server: ProcessId, socket_path: Path, owner: Owner) -> bool:
    """Whether that living server of ours listens there, woken if it does not. Blocks for a second and a bit at most.

    Another one of ours that has taken the path meanwhile is ended: a path has one server.
    """
    heard = listener(socket_path)
    if heard == server:
        return True
    if heard is not None and not owner.owns(heard, socket_path):
        return False
    try:
        socket_path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        prepare_folder(socket_path)
    except (OSError, TransportError):
        return False
    until = time.monotonic() + WAKE_S
    server.send(signal.SIGUSR1)
    while listener(socket_path) != server:
        if time.monotonic() >= until:
            return False
        time.sleep(WAKE_POLL_S)
    if heard is not None:
        owner.end(heard, socket_path)
    return True


def is_ours(server: ProcessId, socket_path: Path) -> bool:
    """Whether it was started by a runtime, for that socket."""
    return OWNER_OPTION.encode() + b"\0" + os.fsencode(socket_path.name) + b"\0" in command_line(server.pid)


def _journal_of(server: ProcessId) -> str:
    """The journal that it was started for."""
    _, found, rest = command_line(server.pid).partition(JOURNAL_OPTION.encode() + b"\0")
    return rest.partition(b"\0")[0].decode("utf-8", "replace") if found else ""


def server_mark(server: ProcessId, socket_path: Path) -> bytes:
    """What the environment of every process in its panes carries."""
    return b"TMUX=%b,%d," % (os.fsencode(socket_path), server.pid)


def end_server(server: ProcessId, socket_path: Path, clis: Sequence[ProcessId] = ()) -> None:
    """End a server that we do not speak to, and all that runs in it. Blocks, bounded."""
    end_families(clis, (server_mark(server, socket_path),), LAST_GRACE_S)
    server.send(signal.SIGKILL)
    server.wait(KILLED_WAIT_S)
    if listener(socket_path) is None:
        with contextlib.suppress(OSError):
            socket_path.unlink()


def prepare_folder(socket_path: Path) -> None:
    """Make the folder of a socket, for us alone.

    Raises:
        TransportError: the path is too long, the folder cannot be made or is not ours alone.
    """
    if len(os.fsencode(socket_path)) > SOCKET_PATH_BYTES_MAX:
        raise TransportError(
            "transport_failed", f"the socket path is too long: {socket_path}", remedy="set a short tmpdir"
        )
    folder = socket_path.parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise TransportError("transport_failed", f"no folder for the socket: {error}") from error
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise TransportError("transport_failed", f"{folder} is not a folder of ours alone")


def _server_of(lodger: Lodger) -> ProcessId | None:
    """The tmux of ours that is its parent; None where that is somebody else: the server has died without it."""
    server = parent(lodger.cli.pid)
    return server if server is not None and is_ours(server, lodger.socket_path) else None


def _end_homeless(clis: Sequence[ProcessId]) -> None:
    """CLIs that outlived their server, each with what it left."""
    values = {each.process: each.value for each in carriers("TMUX")}
    for cli in clis:
        where = values.get(cli, "")
        end_families([cli], (f"TMUX={where}\0".encode(),) if where else (), LAST_GRACE_S)
