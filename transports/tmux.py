"""The tmux server of one runtime: its life, its panes, and whether it lives.

A private server on its own socket, never the person's; a *hub* session held by a sleeping process keeps it (and the
control client) up when no CLI runs; each CLI gets a session of its own, so that a person can attach to one. What starts
a server goes through :mod:`lastword.transports.tmux_program`, everything hot through
:mod:`lastword.transports.tmux_control`. tmux facts were tried on 3.3a; the floor is 3.2 (``new-session -e``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, TransportError, UsageError
from lastword.actors.core.world import Endpoint, PaneEndpoint
from lastword.transports._guard import guarded
from lastword.transports.family import end_families
from lastword.transports.process import ExitWatcher, ProcessId, child_start, listener, pid_start
from lastword.transports.tmux_control import SERVER_GONE, Command, ControlClient, Reply, quote
from lastword.transports.tmux_exit import ask_exit_status
from lastword.transports.tmux_find import (
    JOURNAL_OPTION,
    OWNER_OPTION,
    PANE_MARK,
    Owner,
    end_server,
    is_ours,
    prepare_folder,
    reach,
    server_mark,
)
from lastword.transports.tmux_pane import PaneHandle, reply_error
from lastword.transports.tmux_panes import LIST_PANES, NAME, PaneRow, new_pane, rows_of
from lastword.transports.tmux_program import HUB, TmuxProgram
from lastword.transports.tmux_setup import CALL_TIMEOUT_S

LIVENESS_TIMEOUT_S = 1.0
KILL_SERVER_TIMEOUT_S = 1.0
LEAVING_WAIT_S = 0.5
"""How long a server that is on its way out is waited for before it is ended."""
DEATH_CHECK_S = 0.2
"""After the control client is gone: how long the server's own end is waited for before it counts as living."""
REATTACH_MAX = 3
REATTACH_PAUSE_S = 10.0
"""So many control clients may end, each sooner than this after the one before, until one is waited with for so long."""
REATTACH_TRIES = 30


class Alive(msgspec.Struct, frozen=True):
    """It answered just now."""


class Gone(msgspec.Struct, frozen=True):
    """Looked, and its process has ended."""


class Unknown(msgspec.Struct, frozen=True):
    """Could not look. No proof of anything."""

    reason: str


Liveness: TypeAlias = Alive | Gone | Unknown


class StopReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the server ended and what it took.

    Attributes:
        server: it ended when asked, was killed, was gone before, lives in spite of it, or was left with panes that are
            not ours (:meth:`TmuxServer.spare`).
        killed: pids that needed SIGKILL; ``survivors``: pids that live in spite of it.
        unsure: some may live unseen (:class:`~lastword.transports.family.Ended`).
    """

    server: Literal["ended", "killed", "already_gone", "survives", "left"]
    killed: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    unsure: bool = False


class TmuxServer:
    """A private tmux server, and the panes transport. Thread-safe; only what says so blocks.

    Args:
        socket_name: as ``tmux -L``: letters, digits, ``_`` and ``-``; one per runtime.
        env: the server's environment and the base of each pane's; None is ours. ``TMUX`` and ``TMUX_PANE`` never
            pass. A pane further gets TERM, TERM_PROGRAM(_VERSION), TMUX, TMUX_PANE, SHELL and PWD from tmux.
        tmpdir: where ``tmux-<uid>/<socket_name>`` stands; None is TMUX_TMPDIR or /tmp, as for ``tmux -L``.
        on_gone: called once when the server's process is proved gone without :meth:`stop`.
        owner: for which journal it is started, and what else its host holds.
    """

    def __init__(
        self,
        socket_name: str,
        *,
        env: Mapping[str, str] | None = None,
        tmpdir: Path | None = None,
        on_gone: Callable[[], None] | None = None,
        owner: Owner | None = None,
    ) -> None:
        if not NAME.fullmatch(socket_name):
            raise UsageError("usage", f"not a socket name: {socket_name!r}")
        base = dict(os.environ if env is None else env)
        self._env = {key: value for key, value in base.items() if key not in {"TMUX", "TMUX_PANE", PANE_MARK}}
        folder = tmpdir if tmpdir is not None else Path(self._env.get("TMUX_TMPDIR") or "/tmp")  # noqa: S108
        self.socket_name = socket_name
        self.socket_path = folder.resolve() / f"tmux-{os.getuid()}" / socket_name
        self.on_gone = on_gone
        self._owner = owner or Owner()
        self._spared: set[str] = set()
        self.adopted = False
        """The server was found running, by :meth:`start`."""
        self._lock = threading.Lock()
        self._program: TmuxProgram | None = None
        self._control: ControlClient | None = None
        self._server: ProcessId | None = None
        self._panes: dict[str, PaneHandle] = {}
        self._exits = ExitWatcher()
        self._reattached = 0
        self._attached_at = 0.0
        self._stopping = False

    @property
    def name(self) -> TransportName:
        return "tmux"

    @property
    def control(self) -> ControlClient:
        """The control client of the moment.

        Raises:
            TransportError: the server was not started.
        """
        if self._control is None:
            raise TransportError("transport_failed", "the tmux server was not started")
        return self._control

    @property
    def process(self) -> ProcessId | None:
        """The server's process, once started."""
        return self._server

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server, or find our own running one again (:attr:`adopted`), and attach. Blocks, bounded.

        Raises:
            TransportError: no usable tmux; the socket's folder is not ours alone; a foreign server has the socket, or
                one of another host or journal.
        """
        program = self._program = TmuxProgram(self.socket_path, self._env)
        prepare_folder(self.socket_path)
        self.adopted = self._find_running(program)
        if not self.adopted:
            mark: tuple[str, ...] = (";", "set-option", "-s", OWNER_OPTION, self.socket_name)
            if self._owner.journal:
                mark = (*mark, ";", "set-option", "-s", JOURNAL_OPTION, self._owner.journal)
            program.start_server(*mark)
        else:
            program.ensure_hub()
        program.set_options()
        self._attach(program)
        if self._server is None or not self._owner.owns(self._server, self.socket_path):
            raise self._another()
        if self.adopted:
            self._drop_buffers()

    def _find_running(self, program: TmuxProgram) -> bool:
        if not self.socket_path.exists():
            return False
        heard = listener(self.socket_path)
        if heard is not None and is_ours(heard, self.socket_path) and not self._owner.owns(heard, self.socket_path):
            raise self._another()
        result = program.call("show-options", "-sqv", OWNER_OPTION)
        if result.returncode != 0:
            self._end_leaving()
            return False  # "no server running": tmux replaces the stale socket by itself
        if result.stdout.decode("utf-8", "replace").strip() != self.socket_name:
            raise self._another()
        return True

    def _another(self) -> TransportError:
        return TransportError("transport_failed", f"another tmux server has the socket {self.socket_path}")

    def _end_leaving(self) -> None:
        """Out of the way with a server of ours that listens and serves nobody any more.

        One that was told to end (``kill-server``) stays for ever where a control client of a killed host still has
        output to come that nobody will read (tmux 3.3a: it waits for that client, and answers every other with
        "server exited unexpectedly"). A stopped one does not answer at all and never comes here.
        """
        leaving = listener(self.socket_path)
        if leaving is None or leaving.wait(LEAVING_WAIT_S):
            return
        if not self._owner.owns(leaving, self.socket_path):
            raise self._another()
        end_families([], self._marks(leaving), 0.0)
        leaving.send(signal.SIGKILL)
        leaving.wait(KILL_SERVER_TIMEOUT_S)

    def _attach(self, program: TmuxProgram) -> None:
        control = ControlClient(program.argv, f"={HUB}", env=self._env, on_gone=self._control_gone)
        reply = control.call(b"display-message -p '#{pid}'", CALL_TIMEOUT_S)
        pid = int(reply.lines[0]) if reply.ok and reply.lines and reply.lines[0].isdigit() else 0
        start = pid_start(pid) if pid else None
        if start is None:
            control.close()
            raise TransportError("transport_failed", "the tmux server did not tell its pid")
        with self._lock:
            self._control = control
            self._server = ProcessId(pid, start)
            self._attached_at = time.monotonic()

    def _control_gone(self) -> None:
        """The control client ended: is it the server, or did somebody detach the client?

        A server that lives is asked for its socket before anything else: to start one where that file is gone would
        give a second server, and leave the first with its CLIs. One that can be reached no more is ended with them: so
        their end is told, and the next message finds a new one.
        """
        server, program = self._server, self._program
        if self._stopping or server is None or program is None:
            return
        if time.monotonic() - self._attached_at > REATTACH_PAUSE_S:
            self._reattached = 0
        for tries in range(1, REATTACH_TRIES + 1):
            pause = DEATH_CHECK_S if self._reattached < REATTACH_MAX else REATTACH_PAUSE_S
            if server.wait(pause) or self._stopping:
                break
            self._reattached += 1
            if not reach(server, self.socket_path, self._owner):
                if tries >= REATTACH_MAX:
                    end_server(server, self.socket_path, [pane.process for pane in list(self._panes.values())])
                continue
            try:
                program.ensure_hub()
                self._attach(program)
            except LastwordError:
                continue
            return
        if not self._stopping and not server.is_alive() and self.on_gone is not None:
            guarded(self.on_gone)

    def liveness(self, timeout_s: float = LIVENESS_TIMEOUT_S) -> Liveness:
        """Whether the server lives. Blocks for ``timeout_s`` at most; not from a callback.

        Gone only where its own process has ended; an error or a silence is Unknown, which proves nothing.
        """
        server, control = self._server, self._control
        if server is None or control is None:
            return Unknown("not started")
        if not server.is_alive():
            return Gone()
        try:
            reply = control.call(b"display-message -p alive", timeout_s)
        except TransportError as error:
            return Unknown(error.reason) if server.is_alive() else Gone()
        return Alive() if reply.ok else Unknown(reply.text)

    def stop(self, grace_s: float = 2.0) -> StopReport:
        """End every CLI, the server and all that they left; blocks for the grace and a few seconds at most.

        Each pane's family first (gently, then hard), then ``kill-server``, then the server by pid, then its socket.
        Idempotent. Without it the server and its CLIs live on (:meth:`detach`).
        """
        self._stopping = True
        server, control = self._server, self._control
        if server is None or control is None:
            self._exits.close()
            return StopReport(server="already_gone")
        if self._spared and any(row.pane_id in self._spared and not row.dead for row in self._rows(control)):
            self.detach()
            return StopReport(server="left")
        lived = server.is_alive()
        leaders = {pane.pid: pane.process for pane in self._panes.values()}
        for row in self._rows(control):
            start = child_start(row.pid, server.pid)
            if row.name != HUB and start:
                leaders.setdefault(row.pid, ProcessId(row.pid, start))
        marks = self._marks(server)
        ended = end_families(list(leaders.values()), marks, grace_s)
        killed, verdict = set(ended.killed), self._end_server(server, control, lived=lived)
        control.close()
        left = end_families(list(leaders.values()), marks, 0.0)
        killed.update(left.killed)
        if verdict != "survives":
            self.socket_path.unlink(missing_ok=True)
        self._exits.close()
        self._panes.clear()
        self._owner.claims.drop(server)
        return StopReport(
            server=verdict,
            killed=tuple(sorted(killed.difference(left.survivors))),
            survivors=left.survivors,
            unsure=left.unsure,
        )

    def _end_server(
        self, server: ProcessId, control: ControlClient, *, lived: bool
    ) -> Literal["ended", "killed", "already_gone", "survives"]:
        if not lived:
            return "already_gone"
        control.submit(b"kill-server", _ignore)
        if server.wait(KILL_SERVER_TIMEOUT_S):
            return "ended"
        server.send(signal.SIGKILL)
        return "killed" if server.wait(KILL_SERVER_TIMEOUT_S) else "survives"

    def detach(self) -> None:
        """Let go: the server and its CLIs live on, to be found again by :meth:`start` of the next runtime."""
        self._stopping = True
        if self._control is not None:
            self._control.close()
        self._exits.close()
        if self._server is not None:
            self._owner.claims.drop(self._server)

    def spare(self, pane_id: str) -> None:
        """It is none of ours: the server is not ended while that pane lives."""
        self._spared.add(pane_id)

    # --- panes ----------------------------------------------------------------------------------------------------

    def open_pane(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        width: int = 200,
        height: int = 50,
        on_opened: Callable[[PaneHandle | LastwordError], None],
    ) -> None:
        """Start a program in a new pane; tmux executes ``argv`` itself, so the pane's pid is the program's.

        ``name`` is of its session and unique on the server (letters, digits, ``_``, ``-``); ``env`` is added to the
        base environment. ``on_opened`` is told the pane, or why there is none: kind ``cwd_unusable`` (tmux would
        silently take another folder), ``launch_failed`` (no such program on the pane's PATH), ``transport_failed``.
        A program that ends at once still gives a pane: its screen and exit status tell why.
        """
        try:
            command = new_pane(name, argv, cwd=cwd, env=env, base=self._env, size=(width, height))
        except LastwordError as error:
            guarded(on_opened, error)
            return

        def opened(reply: Reply) -> None:
            words = reply.lines[0].split() if reply.ok and reply.lines else []
            if len(words) != 2 or not words[1].isdigit():
                on_opened(reply_error(reply, "open a pane", name))
                return
            pane_id = words[0].decode()
            # A person who attaches with another terminal size must not reflow what we read.
            self.submit_all(Command(f"resize-window -t {pane_id} -x {width} -y {height}".encode(), _ignore))
            pid = int(words[1])
            server = self._server
            on_opened(self.adopt(pane_id, pid, child_start(pid, server.pid) if server is not None else 0, name))

        self.submit_all(Command(command, opened))

    def adopt(self, pane_id: str, pid: int, pid_start: int, name: str) -> PaneHandle:
        """A handle on a pane known from before; nothing is checked (``handle.process.is_alive()``)."""
        pane = PaneHandle(self, pane_id=pane_id, pid=pid, pid_start=pid_start, name=name)
        with self._lock:
            self._panes[pane_id] = pane
        return pane

    def panes(self, on_reply: Callable[[list[PaneRow] | TransportError], None]) -> None:
        """All panes but the hub's."""

        def listed(reply: Reply) -> None:
            if reply.ok:
                on_reply([row for row in rows_of(reply) if row.name != HUB])
            else:
                on_reply(reply_error(reply, "list panes"))

        self.submit_all(Command(LIST_PANES, listed))

    # --- the Transport port -----------------------------------------------------------------------------------------

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        width: int,
        height: int,
        on_opened: Callable[[PaneEndpoint | LastwordError], None],
    ) -> None:
        """As :meth:`open_pane`."""
        self.open_pane(name, argv, cwd=cwd, env=env, width=width, height=height, on_opened=on_opened)

    def watch_exit(self, endpoint: Endpoint, on_exit: Callable[[int | None], None]) -> None:
        """Call once when the CLI has ended: its exit status (minus a signal's number), None where nobody knows.

        From a pidfd, so it also comes when the server is gone; not after :meth:`stop` or :meth:`detach`.
        """

        def nudge() -> None:
            if self._server is not None:
                self._server.send(signal.SIGCHLD)

        def ended(_: object) -> None:
            ask_exit_status(endpoint.pane_id, endpoint.pid, self.submit_all, nudge, on_exit)

        self._exits.watch(endpoint.pid, ended, start=endpoint.pid_start)

    def attach_command(self, endpoint: Endpoint | None = None) -> tuple[str, ...]:
        """What a person types to watch all, or that one pane."""
        target = ("-t", endpoint.name if isinstance(endpoint, PaneHandle) else endpoint.pane_id) if endpoint else ()
        return ("tmux", "-S", str(self.socket_path), "attach-session", *target)

    # --- for the panes ----------------------------------------------------------------------------------------------

    def submit_all(self, *commands: Command) -> None:
        """Send command lines back to back; answered with a failure where there is no server."""
        control = self._control
        if control is None:
            for command in commands:
                guarded(command.on_reply, Reply(ok=False, lines=(SERVER_GONE,)))
        else:
            control.submit_all(commands)

    def marks(self, pane_id: str) -> tuple[bytes, ...]:
        """What the environment of every process of a pane carries."""
        return (*self._marks(self._server), b"TMUX_PANE=%b\0" % pane_id.encode()) if self._server is not None else ()

    def forget(self, pane: PaneHandle) -> None:
        """It is closed."""
        with self._lock:
            if self._panes.get(pane.pane_id) is pane:
                del self._panes[pane.pane_id]

    def _marks(self, server: ProcessId) -> tuple[bytes, ...]:
        return (server_mark(server, self.socket_path),)

    # --- blocking, bounded ------------------------------------------------------------------------------------------

    def _rows(self, control: ControlClient) -> list[PaneRow]:
        try:
            reply = control.call(LIST_PANES, LIVENESS_TIMEOUT_S)
        except TransportError:
            return []
        return rows_of(reply)

    def _drop_buffers(self) -> None:
        """A host that died between two commands may have left a prompt in a buffer."""
        try:
            reply = self.control.call(b"list-buffers -F '#{buffer_name}'", CALL_TIMEOUT_S)
        except TransportError:
            return
        for line in reply.lines if reply.ok else ():
            self.submit_all(Command(b"delete-buffer -b " + quote(line), _ignore))


def _ignore(_: Reply) -> None:
    pass
