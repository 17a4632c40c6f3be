"""The ports to panes, files and wake-ups: what the shells ask of the edge. Implemented in ``transports``.

Verbs answer by callback, on a thread of the edge's own; a callback only tells an actor. Nothing here blocks, except
where it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from lastword.actors.core.adapter import StdoutKind
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError
from lastword.actors.core.ids import SessionId


@runtime_checkable
class ScreenView(Protocol):
    """What a look at a pane gives."""

    @property
    def lines(self) -> tuple[str, ...]: ...

    @property
    def title(self) -> str: ...

    @property
    def in_copy_mode(self) -> bool: ...

    @property
    def dead(self) -> bool:
        """Its program ended, and all that it wrote has been read: the lines are its last words."""
        ...


class PressedKeys(msgspec.Struct, frozen=True):
    """The keys went out."""


class RefusedKeys(msgspec.Struct, frozen=True):
    """The check refused what it saw: no key went out."""


PressResult: TypeAlias = PressedKeys | RefusedKeys | LastwordError


class Endpoint(Protocol):
    """One live CLI, however it is spoken to."""

    @property
    def pane_id(self) -> str:
        """Of the pane that it lives in; "" where it lives in none."""
        ...

    @property
    def pid(self) -> int: ...

    @property
    def pid_start(self) -> int: ...

    def close(self, grace_s: float, on_done: Callable[[], None]) -> None:
        """End the CLI and all that it started, gently and then hard after ``grace_s``. Idempotent."""
        ...


class PaneEndpoint(Endpoint, Protocol):
    """One live CLI in a pane."""

    def look(self, on_screen: Callable[[ScreenView | LastwordError], None]) -> None: ...

    def paste(self, data: bytes, on_done: Callable[[LastwordError | None], None]) -> None: ...

    def press(self, *keys: str, on_done: Callable[[LastwordError | None], None]) -> None: ...

    def look_then_press(
        self, check: Callable[[ScreenView], bool], *keys: str, on_done: Callable[[PressResult], None]
    ) -> None:
        """Look, and press at once if ``check`` agrees; it runs on the edge's thread and must be short."""
        ...


@runtime_checkable
class StdioEndpoint(Endpoint, Protocol):
    """One live CLI behind a pipe. Its stdout is a file: nothing of it is lost, none of it need be drained. Or one in a
    pane that reads what is said to it from a file, and writes to one.
    """

    @property
    def orphaned(self) -> bool:
        """Started by a host that is dead: its stdin is closed, it does what it was told and ends."""
        ...

    def write(self, data: bytes, on_done: Callable[[WriteResult], None]) -> None:
        """Put all of it into its stdin, in order, without blocking. Each write is answered before the exit is told."""
        ...


class Written(msgspec.Struct, frozen=True):
    """All of it is in the pipe."""


class NotWritten(msgspec.Struct, frozen=True):
    """Nothing of it went out, for sure."""

    error: LastwordError


class PerhapsWritten(msgspec.Struct, frozen=True):
    """Some of it went out."""

    error: LastwordError


WriteResult: TypeAlias = Written | NotWritten | PerhapsWritten


class Transport(Protocol):
    """What every transport is asked."""

    @property
    def name(self) -> TransportName: ...

    def watch_exit(self, endpoint: Any, on_exit: Callable[[int | None], None]) -> None:
        """Call once when the process of the endpoint is gone (exit status where it is known); at once if it is."""
        ...


class PaneTransport(Transport, Protocol):
    """Opens CLIs in panes."""

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
    ) -> None: ...

    def attach_command(self, endpoint: Any) -> tuple[str, ...]:
        """What a person types to watch it."""
        ...


class Streams(Protocol):
    """The files that children behind pipes leave: one set for each process of a session, by its epoch."""

    def stream(self, name: str) -> str:
        """Path, without its ending, of the files of the process that is opened under that name, ``SESSION-EPOCH``."""
        ...

    def epochs(self, session_id: SessionId) -> Sequence[int]:
        """Of which processes of that session there are files, oldest first."""
        ...

    def note_orphaned(self, name: str) -> None:
        """Append to the file of what was sent that the host which spoke to that process is gone, where that can be
        written.
        """
        ...

    def discard(self, session_id: SessionId, before_epoch: int | None) -> None:
        """Delete the files of that session's earlier processes; None: of all of them."""
        ...


class StdioTransport(Streams, Transport, Protocol):
    """Opens CLIs behind pipes."""

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        on_opened: Callable[[StdioEndpoint | LastwordError], None],
        stdout: StdoutKind = "file",
        exit_noted: bool = False,
    ) -> None:
        """Start it with stdout and stderr in the stream files of that name; ``stdout`` and ``exit_noted`` as in a
        :class:`~lastword.actors.core.adapter.LaunchRecipe`.
        """
        ...

    def keep(self, name: str, data: bytes) -> None:
        """Append to the file of what was sent to it; done when this returns.

        Raises:
            TransportError: nothing is certain to be kept: it is not to be sent.
        """
        ...

    def attach_command(self, endpoint: Any) -> tuple[str, ...]:
        """What a person types to watch it; () where there is nothing to be seen."""
        ...

    def last_words(self, name: str) -> str:
        """The end of its stderr, or of its screen, on one line."""
        ...


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file from ``offset`` on; ``size`` of the whole file at the time."""

    data: bytes
    offset: int
    size: int
    inode: int
    device: int


class Missing(msgspec.Struct, frozen=True):
    """Looked, and there is no such file."""


class Unreadable(msgspec.Struct, frozen=True):
    """Could not look. No proof of anything."""

    reason: str


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """The file is another one now (inode changed) or is shorter than what was read: read it from its start.

    ``moved_to``: where the one before stands now, beside it; its rest is read first.
    """

    inode: int
    device: int
    reason: str
    moved_to: str = ""


FileRead: TypeAlias = Bytes | Missing | Unreadable | Rewritten


class Files(Protocol):
    """Reads files; short, page-cached reads only, so it may be called from a pooled actor."""

    def read_from(self, path: str, offset: int, max_bytes: int, inode: int, device: int) -> FileRead:
        """Bytes at ``offset``; ``inode`` and ``device`` 0 where the file was not seen before."""
        ...

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        """A small file, whole; None where it is missing, unreadable or larger."""
        ...

    def find(self, root: str, suffix: str) -> str:
        """The one file anywhere below ``root`` whose name ends so; "" where there is none, or more than one."""
        ...

    def open_files(self, pid: int, pid_start: int) -> tuple[str, ...]:
        """Paths of the files that this very process, or one that it started, holds open; empty where that cannot be
        seen.
        """
        ...


class Wakes(Protocol):
    """Wake-ups for files: hints, never facts. A lost one is made good by a slow poll."""

    def watch(self, path: str, root: str, on_change: Callable[[], None]) -> object: ...

    def unwatch(self, token: object) -> None: ...
