"""The world as one value: how panes, files and wake-ups are reached. Tests and other transports give their own."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, assert_never, cast

import msgspec

from lastword.actors.core.adapter import AnyAdapter, is_spoken_to
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import TransportTimeoutError, UsageError
from lastword.actors.core.ids import SessionId
from lastword.actors.core.ports import Journal, SessionRow
from lastword.actors.core.snapshot import Handle
from lastword.actors.core.tools import Tool
from lastword.actors.core.world import Endpoint, Files, Streams, Transport, Wakes

if TYPE_CHECKING:
    from lastword.actors.core.world import PaneEndpoint
    from lastword.transports.filed_panes import FiledPanes
    from lastword.transports.tmux_find import Lodger

LIST_S = 5.0
_OF_SESSION: Final = re.compile(r"s_[0-9a-z]{26}-\d+")


class Survivor(msgspec.Struct, frozen=True, kw_only=True):
    """A CLI that outlived its host; without an endpoint: none did, but processes up to that epoch were there.

    ``held``: one lives, and is not ours: another host holds it, or only that one's folder has its record. Asked again,
    it says whether that is still so.
    """

    endpoint: Endpoint | None
    epoch: int
    held: Callable[[], bool] | None = None


class OpenJournal(Protocol):
    """Whose CLIs an edge looks for."""

    @property
    def journal_id(self) -> str: ...

    def session(self, session_id: SessionId) -> SessionRow | None: ...


def no_survivors(rows: Mapping[SessionId, SessionRow]) -> dict[SessionId, Survivor]:  # noqa: ARG001
    """For a transport whose CLIs die with the host."""
    return {}


def no_reattachment(row: SessionRow) -> Survivor | None:  # noqa: ARG001
    """For a transport whose CLIs cannot be taken over."""
    return None


def nothing_left() -> tuple[str, ...]:
    """For a transport without processes."""
    return ()


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """The edge of one runtime for one transport.

    Attributes:
        streams: what children behind pipes leave; None for a transport of another kind.
        filed: of panes: the same ones for CLIs that are spoken to by files.
        close: ends all CLIs of the transport within about the grace given, seconds.
        reattach: the living CLI of a session whose actor failed, or None.
        left, threads_left: after ``close``: processes that live in spite of it, as ``pid (name)``, and threads.
        survivors: session -> its row; gives those whose CLI lives, and ends what belongs to no session.
    """

    transport: Transport
    files: Files
    wakes: Wakes
    close: Callable[[float], None]
    survivors: Callable[[Mapping[SessionId, SessionRow]], dict[SessionId, Survivor]] = no_survivors
    reattach: Callable[[SessionRow], Survivor | None] = no_reattachment
    left: Callable[[], tuple[str, ...]] = nothing_left
    threads_left: Callable[[], tuple[str, ...]] = nothing_left
    streams: Streams | None = None
    filed: FiledPanes | None = None

    def transport_of(self, adapter: AnyAdapter) -> tuple[Transport, Streams | None]:
        """How its CLIs are opened, and what they leave."""
        if self.filed is not None and is_spoken_to(adapter):
            return self.filed, self.filed
        return self.transport, self.streams

    def endpoint_of(self, adapter: AnyAdapter, name: str, endpoint: Endpoint | None) -> Endpoint | None:
        """A living CLI, as that adapter's transport has it."""
        if endpoint is not None and self.filed is not None and is_spoken_to(adapter):
            return self.filed.of(name, cast("PaneEndpoint", endpoint))
        return endpoint


def open_edge(
    name: TransportName,
    state: Path,
    env: Mapping[str, str],
    told: Callable[[str], None] | None = None,
    rows: Sequence[SessionRow] = (),
    *,
    journal: OpenJournal,
) -> Edge:
    """The edge of that transport; what it needs loads here, late. ``rows``: its open sessions on record in ``journal``.

    Raises:
        UsageError: ``unsupported_capability``: none is built in.
        TransportError: ``tmux_missing``, ``tmux_unsupported``, ``transport_failed``.
    """
    match name:
        case "tmux":
            return open_tmux_edge(state, env, told, rows, journal=journal)
        case "structured":
            return open_structured_edge(state, env, told)
        case "memory" | "api":
            raise UsageError("unsupported_capability", f"the transport {name!r} is none that is built in")
        case _:
            assert_never(name)


def left_behind(name: TransportName, state: Path, env: Mapping[str, str]) -> bool:
    """Whether an earlier host may have left something of that transport."""
    match name:
        case "tmux":
            return tmux_left_behind(state, env)
        case "structured":
            return streams_folder(state).is_dir() and any(streams_folder(state).iterdir())
        case "memory" | "api":
            return False
        case _:
            assert_never(name)


def open_api_edge(journal: Journal, env: Mapping[str, str], tools: Mapping[str, Tool]) -> Edge:
    """Model APIs, with the record of their conversations in the journal. Nothing is connected before it is asked."""
    from lastword.runtime._conversations import RecordFiles, RecordWakes  # noqa: PLC0415
    from lastword.transports.api import Services  # noqa: PLC0415

    wakes = RecordWakes()
    transport = Services(env, tools, wakes.wrote)
    left: list[str] = []
    return Edge(
        transport=transport,
        files=RecordFiles(journal),
        wakes=wakes,
        close=lambda _: left.extend(transport.close()),
        threads_left=lambda: tuple(left),
    )


def streams_folder(state: Path) -> Path:
    """Where children behind pipes write."""
    return state.resolve() / "streams"


def open_structured_edge(state: Path, env: Mapping[str, str], told: Callable[[str], None] | None = None) -> Edge:
    """Children behind pipes, local files and their wake-ups. ``told``: as :func:`open_tmux_edge`."""
    from lastword.transports.files import LocalFiles  # noqa: PLC0415
    from lastword.transports.structured import Children  # noqa: PLC0415
    from lastword.transports.watch import FileWatcher  # noqa: PLC0415

    transport = Children(streams_folder(state), env)
    wakes = FileWatcher(told=told)
    survivors_of_close: list[str] = []

    def close(grace_s: float) -> None:
        survivors_of_close.extend(transport.close(grace_s))
        wakes.close()

    def survivors(rows: Mapping[SessionId, SessionRow]) -> dict[SessionId, Survivor]:
        found: dict[SessionId, Survivor] = {}
        for path, session_id, epoch in transport.streams():
            row = rows.get(session_id)
            if row is None:
                path.unlink(missing_ok=True)  # of a session that was closed
            elif epoch > row.epoch and epoch > (found[session_id].epoch if session_id in found else 0):
                # started by a host that was killed before it could say so
                found[session_id] = Survivor(endpoint=None, epoch=epoch)
        for name, child in transport.left_behind().items():
            session_id, epoch = SessionId(name.rpartition("-")[0]), _epoch(name)
            known = found.get(session_id)
            newest = max(rows[session_id].epoch if session_id in rows else 0, known.epoch if known is not None else 0)
            if child is not None and session_id in rows and epoch == newest:
                found[session_id] = Survivor(endpoint=child, epoch=epoch)
            elif child is not None:
                child.close(0.0)
        for held_id in transport.living_elsewhere(rows) if rows else ():
            row = rows[SessionId(held_id)]
            if (known := found.get(row.session_id)) is None or known.endpoint is None:
                found[row.session_id] = Survivor(endpoint=None, epoch=row.epoch, held=partial(held, row.session_id))
        return found

    def held(session_id: SessionId) -> bool:
        return bool(transport.living_elsewhere({session_id}))

    def reattach(row: SessionRow) -> Survivor | None:
        child = transport.child(f"{row.session_id}-{row.epoch}")
        if child is None:
            return None
        child.shut()  # who spoke to it is gone, and nobody else knows what was said: it ends when it is done
        return Survivor(endpoint=child, epoch=row.epoch)

    return Edge(
        transport=transport,
        files=LocalFiles(),
        wakes=wakes,
        close=close,
        survivors=survivors,
        reattach=reattach,
        left=lambda: tuple(survivors_of_close),
        streams=transport,
    )


def panes_folder(state: Path) -> Path:
    """Where CLIs in panes that are spoken to by files write, and are told."""
    return state.resolve() / "panes"


def socket_name(state: Path) -> str:
    """The tmux socket of a state folder: the same one after a restart."""
    return "lastword-" + hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]


def open_tmux_edge(
    state: Path,
    env: Mapping[str, str],
    told: Callable[[str], None] | None = None,
    rows: Sequence[SessionRow] = (),
    *,
    journal: OpenJournal,
) -> Edge:
    """A private tmux server, local files and their wake-ups. Blocks while tmux starts; libtmux loads here, late.
    ``told``: called with a word where the edge had to do with less than it wants. Where a CLI of ``rows`` lives, its
    own server is the one, wherever that listens; one that can be reached no more is ended first. What another living
    host holds is neither taken nor ended.

    Raises:
        TransportError: ``tmux_missing``, ``tmux_unsupported``, ``transport_failed``.
    """
    from lastword.transports.filed_panes import FiledPanes  # noqa: PLC0415
    from lastword.transports.files import LocalFiles  # noqa: PLC0415
    from lastword.transports.process import ProcessId, child_start, parent  # noqa: PLC0415
    from lastword.transports.tmux import TmuxServer  # noqa: PLC0415
    from lastword.transports.tmux_find import Owner, free_socket, living_elsewhere, living_home  # noqa: PLC0415
    from lastword.transports.tmux_panes import PaneRow  # noqa: PLC0415
    from lastword.transports.tmux_renewing import RenewingTmux  # noqa: PLC0415
    from lastword.transports.watch import FileWatcher  # noqa: PLC0415

    usual = tmux_socket(state, env)
    owner = Owner(journal.journal_id)
    lodgers = dict(_lodgers(rows))
    wanted = living_home(list(lodgers.values()), usual, owner) or usual

    def made() -> TmuxServer:
        path = free_socket(owner, wanted, _other_socket(state, usual))
        return TmuxServer(path.name, env=env, tmpdir=path.parent.parent, owner=owner)

    transport = RenewingTmux(made)
    try:
        transport.start()
    except BaseException:
        owner.claims.close()
        raise
    server = transport.server
    filed = FiledPanes(transport, panes_folder(state))
    wakes = FileWatcher(told=told)
    survivors_of_close: list[str] = []

    def close(grace_s: float) -> None:
        survivors_of_close.extend(transport.close(grace_s))
        owner.claims.close()
        wakes.close()

    def held(row: SessionRow) -> bool:
        """Whether a CLI of it lives that is not ours."""
        home, lodger = transport.server.process, lodgers.get(row.session_id)
        if lodger is not None and lodger.cli.is_alive() and parent(lodger.cli.pid) != home:
            return True
        return bool(living_elsewhere({row.session_id}, home))

    def listed() -> list[PaneRow]:
        answer: list[object] = []
        done = threading.Event()

        def told(rows: object) -> None:
            answer.append(rows)
            done.set()

        server.panes(told)
        if not done.wait(LIST_S) or not answer:
            raise TransportTimeoutError("the list of panes", LIST_S)
        rows = answer[0]
        if isinstance(rows, Exception):
            raise rows
        assert isinstance(rows, list)
        return rows

    row_of = journal.session

    def survivors(rows: Mapping[SessionId, SessionRow]) -> dict[SessionId, Survivor]:
        found: dict[SessionId, Survivor] = {}
        filed.keep_only(rows)
        process = server.process
        elsewhere = living_elsewhere(rows, process) if rows else set()
        for each in rows.values():
            lodger = lodgers.get(each.session_id)
            astray = lodger is not None and lodger.cli.is_alive() and parent(lodger.cli.pid) != process
            if astray or each.session_id in elsewhere:
                found[each.session_id] = Survivor(endpoint=None, epoch=each.epoch, held=partial(held, each))
        if not server.adopted or process is None:
            return found
        for seen in sorted(listed(), key=lambda pane: _epoch(pane.name)):
            session_id, epoch = SessionId(seen.name.rsplit("-", 1)[0]), _epoch(seen.name)
            if row_of(session_id) is None and _OF_SESSION.fullmatch(seen.name):
                server.spare(seen.pane_id)  # of a copy of this journal
                continue
            start = child_start(seen.pid, process.pid)
            pane = server.adopt(seen.pane_id, seen.pid, start, seen.name)
            row = rows.get(session_id)
            newer = row is not None and epoch > row.epoch  # started by a host that was killed before it could say so
            known = row is not None and epoch == row.epoch and _same(row.handle, seen.pid, start)
            ours = not seen.dead and start and (newer or known)
            before = found.get(session_id)
            if ours and before is not None and before.endpoint is not None:
                before.endpoint.close(0.0, lambda: None)
            if ours:
                found[session_id] = Survivor(endpoint=pane, epoch=epoch)
            else:
                pane.close(0.0, lambda: None)
                if row is not None:
                    held_yet = before.held if before else None
                    found[session_id] = Survivor(
                        endpoint=before.endpoint if before else None, epoch=epoch, held=held_yet
                    )
        return found

    def reattach(row: SessionRow) -> Survivor | None:
        handle = msgspec.json.decode(row.handle, type=Handle)
        if not handle.pid or not ProcessId(handle.pid, handle.pid_start).is_alive():
            return None
        name = f"{row.session_id}-{row.epoch}"
        pane = transport.server.adopt(handle.pane, handle.pid, handle.pid_start, name)
        return Survivor(endpoint=pane, epoch=row.epoch)

    return Edge(
        transport=transport,
        files=LocalFiles(),
        wakes=wakes,
        close=close,
        survivors=survivors,
        reattach=reattach,
        left=lambda: tuple(survivors_of_close),
        filed=filed,
    )


def tmux_left_behind(state: Path, env: Mapping[str, str]) -> bool:
    """Whether a tmux server of an earlier host may still be there."""
    usual = tmux_socket(state, env)
    return usual.exists() or _other_socket(state, usual).exists()


def _other_socket(state: Path, usual: Path) -> Path:
    """Where it stands while somebody else's server has that place: of a host whose folder was moved from there."""
    return usual.with_name(f"{usual.name}-{state.stat().st_ino:x}")


def tmux_socket(state: Path, env: Mapping[str, str]) -> Path:
    """Where the tmux socket of a state folder stands, unless a CLI lives in another."""
    folder = Path(env.get("TMUX_TMPDIR") or "/tmp")  # noqa: S108 - tmux's own default
    return folder.resolve() / f"tmux-{os.getuid()}" / socket_name(state)


def _lodgers(rows: Sequence[SessionRow]) -> Iterator[tuple[SessionId, Lodger]]:
    from lastword.transports.process import ProcessId  # noqa: PLC0415
    from lastword.transports.tmux_find import Lodger  # noqa: PLC0415

    for row in rows:
        handle = msgspec.json.decode(row.handle, type=Handle)
        if handle.pid and "-S" in handle.attach[:-1]:
            socket_path = Path(handle.attach[handle.attach.index("-S") + 1])
            yield row.session_id, Lodger(ProcessId(handle.pid, handle.pid_start), socket_path)


def _epoch(name: str) -> int:
    number = name.rsplit("-", 1)[-1]
    return int(number) if number.isdigit() else 0


def _same(handle: str, pid: int, start: int) -> bool:
    """Whether the journalled handle is that process; an empty one was lost between the start and its commit."""
    if handle == "{}":
        return True
    known = msgspec.json.decode(handle, type=Handle)
    return (known.pid, known.pid_start) == (pid, start)
