"""An in-process transport: files, wake-ups and CLIs in memory. Shipped and public, for tests of hosts and benches.

:class:`MemoryWorld` is the edge; each session that opens gets a :class:`MemoryCli`, whose behaviour is a function of
the prompt (``respond``), or is driven by hand (``manual=True``). It writes the record that
:mod:`lastword.transports.providers.memory` reads. Callbacks run on the thread that calls, as a real edge's run on its
own: they only tell actors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Literal

import msgspec

from lastword.actors.core.adapter import DialogOpen
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, TransportError
from lastword.actors.core.world import (
    Bytes,
    Endpoint,
    FileRead,
    Missing,
    PressedKeys,
    PressResult,
    RefusedKeys,
    Rewritten,
    ScreenView,
    Unreadable,
)
from lastword.transports.providers.memory import MEMORY_ROOT, Record, Registry


class MemoryScreen(msgspec.Struct, frozen=True, kw_only=True):
    """What a look gives."""

    lines: tuple[str, ...]
    title: str = ""
    in_copy_mode: bool = False
    dead: bool = False


class _File:
    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.data = bytearray()


class MemoryWorld:
    """Files, wake-ups and a transport in one. Thread-safe.

    Args:
        respond: prompt -> answer, for CLIs that are not driven by hand; default: an echo.
        manual: CLIs start a turn on Enter and leave its end to the test.
        clock: Unix seconds; the stamps of the records.
        wake: whether file changes wake readers (off: only :meth:`sweep` does, as if every hint were lost).
        root: the folder that records and registries are named under; the adapter must be given the same one.
    """

    name: TransportName = "memory"

    def __init__(
        self,
        *,
        respond: Callable[[str], str] | None = None,
        manual: bool = False,
        clock: Callable[[], float] = time.time,
        wake: bool = True,
        root: str = MEMORY_ROOT,
    ) -> None:
        self.root = root
        self.respond = respond or (lambda prompt: f"echo: {prompt}")
        self.manual = manual
        self.clock = clock
        self.wake = wake
        self.clis: dict[str, MemoryCli] = {}
        """Live and past CLIs by the conversation that they were started with."""
        self.started: list[MemoryCli] = []
        """Those that still run, oldest first."""
        self.opened: list[tuple[str, ...]] = []
        self.fail_open: LastwordError | None = None
        self.on_start: Callable[[MemoryCli], None] | None = None
        """Called with each CLI before its opening is told: make it misbehave from the start."""
        self.unreadable = False
        """No file can be read: could not look, which proves nothing."""
        self.on_turn: Callable[[MemoryCli, str], None] | None = None
        """Called with a CLI and its native turn once the prompt of a turn is on record."""
        self.hold_opens = False
        """Openings are told only when a test calls what is in ``held_opens``."""
        self.held_opens: list[Callable[[], None]] = []
        self._pids = count(1000)
        self._inodes = count(1)
        self._files: dict[str, _File] = {}
        self._watches: dict[str, dict[int, Callable[[], None]]] = {}
        self._tokens = count(1)
        self._lock = threading.RLock()

    # --- files and wakes ------------------------------------------------------------------------------------------

    def append(self, path: str, data: bytes) -> None:
        """Write at the end of a file; wakes its readers."""
        with self._lock:
            file = self._files.setdefault(path, _File(next(self._inodes)))
            file.data += data
        self._wake(path)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file by a new one."""
        with self._lock:
            file = self._files[path] = _File(next(self._inodes))
            file.data += data
        self._wake(path)

    def contents(self, path: str) -> bytes:
        """All of a file."""
        with self._lock:
            return bytes(self._files[path].data)

    def sweep(self) -> None:
        """The slow poll: wake every reader."""
        with self._lock:
            callbacks = [callback for watched in self._watches.values() for callback in watched.values()]
        for callback in callbacks:
            callback()

    def _wake(self, path: str) -> None:
        if not self.wake:
            return
        with self._lock:
            callbacks = list(self._watches.get(path, {}).values())
        for callback in callbacks:
            callback()

    def read_from(self, path: str, offset: int, max_bytes: int, inode: int, device: int) -> FileRead:  # noqa: ARG002
        """As :class:`lastword.actors.core.world.Files`."""
        if self.unreadable:
            return Unreadable(reason="as asked")
        with self._lock:
            file = self._files.get(path)
            if file is None:
                return Missing()
            if inode and inode != file.inode:
                return Rewritten(inode=file.inode, device=1, reason="replaced")
            if len(file.data) < offset:
                return Rewritten(inode=file.inode, device=1, reason="truncated")
            data = bytes(file.data[offset : offset + max_bytes])
            return Bytes(data=data, offset=offset, size=len(file.data), inode=file.inode, device=1)

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        """As :class:`lastword.actors.core.world.Files`."""
        with self._lock:
            file = self._files.get(path)
            return None if file is None or len(file.data) > max_bytes else bytes(file.data)

    def find(self, root: str, suffix: str) -> str:
        """As :class:`lastword.actors.core.world.Files`."""
        with self._lock:
            found = [path for path in self._files if path.startswith(f"{root}/") and path.endswith(suffix)]
        return found[0] if len(found) == 1 else ""

    def open_files(self, pid: int, pid_start: int) -> tuple[str, ...]:
        """As :class:`lastword.actors.core.world.Files`."""
        with self._lock:
            return next((cli.holds for cli in self.started if (cli.pid, cli.pid_start) == (pid, pid_start)), ())

    def watch(self, path: str, root: str, on_change: Callable[[], None]) -> object:  # noqa: ARG002
        """As :class:`lastword.actors.core.world.Wakes`."""
        with self._lock:
            token = next(self._tokens)
            self._watches.setdefault(path, {})[token] = on_change
            return path, token

    def unwatch(self, token: object) -> None:
        """As :class:`lastword.actors.core.world.Wakes`."""
        with self._lock:
            match token:
                case (str(path), int(number)) if path in self._watches:
                    self._watches[path].pop(number, None)
                    if not self._watches[path]:
                        del self._watches[path]
                case _:
                    pass

    @property
    def watches(self) -> int:
        """How many files are watched."""
        return sum(map(len, self._watches.values()))

    # --- transport --------------------------------------------------------------------------------------------------

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,  # noqa: ARG002
        env: Mapping[str, str],  # noqa: ARG002
        width: int,  # noqa: ARG002
        height: int,  # noqa: ARG002
        on_opened: Callable[[Endpoint | LastwordError], None],
    ) -> None:
        """As :class:`lastword.actors.core.world.Transport`."""
        if self.fail_open is not None:
            on_opened(self.fail_open)
            return
        native = argv[-1]
        with self._lock:
            cli = MemoryCli(self, native, next(self._pids), name)
            self.clis[native] = cli
            self.started = [*(each for each in self.started if each.alive), cli]
            self.opened.append(tuple(argv))
        if self.on_start is not None:
            self.on_start(cli)
        cli.write_status("idle")
        if self.hold_opens:
            self.held_opens.append(lambda: on_opened(cli))
        else:
            on_opened(cli)

    def watch_exit(self, endpoint: Endpoint, on_exit: Callable[[int | None], None]) -> None:
        """As :class:`lastword.actors.core.world.Transport`."""
        assert isinstance(endpoint, MemoryCli)
        endpoint.on_exit(on_exit)

    def attach_command(self, endpoint: Endpoint) -> tuple[str, ...]:  # noqa: ARG002
        """There is nothing to attach to."""
        return ()

    def alive(self) -> list[MemoryCli]:
        """CLIs that run, oldest first."""
        with self._lock:
            return [cli for cli in self.started if cli.alive]

    def forget_ended(self) -> None:
        """Drop what is kept of CLIs that have ended: records, registries, how they were opened. For long runs."""
        with self._lock:
            for native, cli in [pair for pair in self.clis.items() if not pair[1].alive]:
                del self.clis[native]
                self._files.pop(cli.path, None)
                self._files.pop(cli.registry_path, None)
            self.started = [cli for cli in self.started if cli.alive]
            self.opened = [argv for argv in self.opened if argv[-1] in self.clis]

    def host_died(self) -> None:
        """The host is gone without a word: nobody listens any more, and the CLIs live on."""
        with self._lock:
            self._watches.clear()
            started = list(self.started)
        for cli in started:
            cli.host_died()

    def close(self, grace_s: float) -> None:  # noqa: ARG002
        """End every CLI."""
        for cli in list(self.clis.values()):
            cli.exit(0)


class MemoryCli:
    """One in-process CLI: an input box, a queue of its own, a record, a registry. Thread-safe."""

    def __init__(self, world: MemoryWorld, native: str, pid: int, name: str = "") -> None:
        self.world = world
        self.native = native
        self.name = name
        self.pid = pid
        self.pid_start = pid
        self.pane_id = f"%{pid}"
        self.draft = ""
        self.dialog: DialogOpen | None = None
        self.turn = ""
        self.queue: list[str] = []
        self.keys: list[str] = []
        self.looks = 0
        self.copy_mode = False
        self.title = ""
        self.holds: tuple[str, ...] = ()
        """Files that it holds open."""
        self.starting = False
        self.swallow_enters = 0
        self.lose_pastes = 0
        self.stuck_looks = 0
        self.quiet_status = False
        self.silent_interrupt = False
        self.ignore_escape = False
        self.hold_records = False
        """Records are kept back until :meth:`release`, as by a slow disk of the CLI's."""
        self.held: list[Callable[[], None]] = []
        self._kept: list[bytes] = []
        self._turns = count(1)
        self._exit: int | None = None
        self._on_exit: list[Callable[[int | None], None]] = []
        self._lock = threading.RLock()

    @property
    def path(self) -> str:
        """Its record."""
        return f"{self.world.root}/{self.native}.jsonl"

    @property
    def registry_path(self) -> str:
        """Its registry."""
        return f"{self.world.root}/{self.pid}.json"

    # --- what a test or a script makes it do ------------------------------------------------------------------------

    def write(self, record: Record) -> None:
        """Append a record, stamped."""
        stamped = msgspec.structs.replace(record, at=self.world.clock())
        line = msgspec.json.encode(stamped) + b"\n"
        if self.hold_records:
            self._kept.append(line)
        else:
            self.world.append(self.path, line)

    def release(self) -> None:
        """Write the records that were kept back."""
        self.hold_records = False
        kept, self._kept = self._kept, []
        if kept:
            self.world.append(self.path, b"".join(kept))

    def write_status(self, status: str, waiting_for: str = "") -> None:
        """Rewrite the registry."""
        if self.quiet_status:
            return
        registry = Registry(status=status, updated_at=self.world.clock(), session=self.native, waiting_for=waiting_for)
        self.world.replace(self.registry_path, msgspec.json.encode(registry))

    def start_turn(self, text: str, *, origin: str = "", queued: bool = False) -> str:
        """Begin a turn; returns the native turn."""
        with self._lock:
            self.turn = f"{self.native[:8]}-{self.pid}-{next(self._turns)}"
            turn = self.turn
        self.write_status("busy")
        self.write(Record(k="prompt", turn=turn, text=text, origin=origin, status="queued" if queued else ""))
        if self.world.on_turn is not None:
            self.world.on_turn(self, turn)
        if not self.world.manual:
            self.finish(self.world.respond(text))
        return turn

    def say(self, text: str) -> None:
        """An assistant message that is not the end."""
        self.write(Record(k="said", turn=self.turn, text=text))

    def tool(self, call: str, name: str, arguments: str = "{}") -> None:
        """A tool call."""
        self.write(Record(k="tool", turn=self.turn, call=call, name=name, text=arguments))

    def tool_end(self, call: str, result: str = "", status: Literal["ok", "error"] = "ok") -> None:
        """Its result."""
        self.write(Record(k="tool_end", turn=self.turn, call=call, text=result, status=status))

    def join(self) -> None:
        """Absorb the oldest queued message into the running turn."""
        with self._lock:
            text = self.queue.pop(0)
        self.write(Record(k="joined", turn=self.turn, text=text))

    def drop(self, reason: str = "removed") -> None:
        """Lose the oldest queued message."""
        with self._lock:
            text = self.queue.pop(0)
        self.write(Record(k="dropped", text=text, status=reason))

    def finish(self, answer: str = "", *, status: str = "completed", error: str = "", background: int = 0) -> None:
        """End the running turn; the next queued message starts one of its own."""
        with self._lock:
            turn, self.turn = self.turn, ""
        end = Record(k="end", turn=turn, text=answer, status=status, error=error, background=background)
        if status == "completed" and answer:
            self.write(Record(k="said", turn=turn, text=answer))
        self.write(end)
        self.write_status("idle")
        with self._lock:
            following = self.queue.pop(0) if self.queue else None
        if following is not None:
            self.start_turn(following, queued=True)

    def open_dialog(self, dialog: DialogOpen) -> None:
        """Show a dialog."""
        self.dialog = dialog
        self.write_status("waiting", dialog.question)

    def close_dialog(self) -> None:
        """Take it away."""
        self.dialog = None
        self.write_status("busy" if self.turn else "idle")

    def exit(self, status: int | None = 0) -> None:
        """End the process."""
        with self._lock:
            if self._exit is not None:
                return
            self._exit = status if status is not None else -9
            callbacks, self._on_exit = self._on_exit, []
        for callback in callbacks:
            callback(self._exit)

    def host_died(self) -> None:
        """Nobody is told of its end any more."""
        with self._lock:
            self._on_exit.clear()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._exit is None

    # --- endpoint ---------------------------------------------------------------------------------------------------

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        """Tell once when it is gone; at once if it is."""
        with self._lock:
            if self._exit is None:
                self._on_exit.append(callback)
                return
        callback(self._exit)

    def _screen(self) -> MemoryScreen:
        with self._lock:
            if self.dialog is not None:
                head = "DIALOG " + msgspec.json.encode(self.dialog).decode()
            else:
                head = "STARTING" if self.starting else "BUSY" if self.turn else "READY"
            lines = (head, *self.draft.split("\n")) if self.draft else (head,)
            return MemoryScreen(lines=lines, title=self.title, in_copy_mode=self.copy_mode)

    def look(self, on_screen: Callable[[ScreenView | LastwordError], None]) -> None:
        """As :class:`lastword.actors.core.world.Endpoint`."""
        self.looks += 1
        if self._exit is not None:
            on_screen(TransportError("transport_failed", "the process is gone", endpoint=self.pane_id))
        elif self.stuck_looks:
            self.held.append(lambda: on_screen(self._screen()))
        else:
            on_screen(self._screen())

    def paste(self, data: bytes, on_done: Callable[[LastwordError | None], None]) -> None:
        """As :class:`lastword.actors.core.world.Endpoint`."""
        with self._lock:
            if self.lose_pastes:
                self.lose_pastes -= 1
            elif self.dialog is None and not self.starting:
                self.draft += data.decode()
            self.keys.append("<paste>")
        on_done(None)

    def press(self, *keys: str, on_done: Callable[[LastwordError | None], None]) -> None:
        """As :class:`lastword.actors.core.world.Endpoint`."""
        for key in keys:
            self._key(key)
        on_done(None)

    def look_then_press(
        self, check: Callable[[ScreenView], bool], *keys: str, on_done: Callable[[PressResult], None]
    ) -> None:
        """As :class:`lastword.actors.core.world.Endpoint`."""
        if self._exit is not None:
            on_done(TransportError("transport_failed", "the process is gone", endpoint=self.pane_id))
        elif check(self._screen()):
            for key in keys:
                self._key(key)
            on_done(PressedKeys())
        else:
            on_done(RefusedKeys())

    def close(self, grace_s: float, on_done: Callable[[], None]) -> None:  # noqa: ARG002
        """As :class:`lastword.actors.core.world.Endpoint`."""
        self.exit(0)
        on_done()

    def _key(self, key: str) -> None:
        self.keys.append(key)
        if self.dialog is not None:
            if key.isdigit() or key in ("Enter", "Escape"):
                self.close_dialog()
            return
        match key:
            case "Enter":
                self._enter()
            case "Escape":
                self._escape()
            case "C-u":
                self.draft = ""
            case _:
                self.draft += key

    def _enter(self) -> None:
        with self._lock:
            if self.swallow_enters:
                self.swallow_enters -= 1
                return
            text, self.draft = self.draft, ""
            busy = bool(self.turn)
            if text and busy:
                self.queue.append(text)
        if text == "/clear" and not busy:
            self.native = f"{self.native}+"
            self.world.clis[self.native] = self
            self.write_status("idle")
        elif text and busy:
            self.write(Record(k="queued", text=text))
        elif text:
            self.start_turn(text)

    def _escape(self) -> None:
        with self._lock:
            if not self.turn or self.ignore_escape:
                return
            turn, self.turn = self.turn, ""
        if not self.silent_interrupt:
            self.write(Record(k="end", turn=turn, status="cancelled"))
        self.write_status("idle")
