"""The ports to panes, files and wake-ups: what the shells ask of the edge. Implemented in ``transports``.

Verbs answer by callback, on a thread of the edge's own; a callback only tells an actor. Nothing here blocks, except
where it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError


@runtime_checkable
class ScreenView(Protocol):
    """What a look at a pane gives."""

    @property
    def lines(self) -> tuple[str, ...]: ...

    @property
    def title(self) -> str: ...

    @property
    def in_copy_mode(self) -> bool: ...


class PressedKeys(msgspec.Struct, frozen=True):
    """The keys went out."""


class RefusedKeys(msgspec.Struct, frozen=True):
    """The check refused what it saw: no key went out."""


PressResult: TypeAlias = PressedKeys | RefusedKeys | LastwordError


class Endpoint(Protocol):
    """One live CLI in a pane."""

    @property
    def pane_id(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def pid_start(self) -> int: ...

    def look(self, on_screen: Callable[[ScreenView | LastwordError], None]) -> None: ...

    def paste(self, data: bytes, on_done: Callable[[LastwordError | None], None]) -> None: ...

    def press(self, *keys: str, on_done: Callable[[LastwordError | None], None]) -> None: ...

    def look_then_press(
        self, check: Callable[[ScreenView], bool], *keys: str, on_done: Callable[[PressResult], None]
    ) -> None:
        """Look, and press at once if ``check`` agrees; it runs on the edge's thread and must be short."""
        ...

    def close(self, grace_s: float, on_done: Callable[[], None]) -> None:
        """End the CLI's process group, gently and then hard after ``grace_s``. Idempotent."""
        ...


class Transport(Protocol):
    """Opens endpoints."""

    @property
    def name(self) -> TransportName: ...

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        width: int,
        height: int,
        on_opened: Callable[[Endpoint | LastwordError], None],
    ) -> None: ...

    def watch_exit(self, endpoint: Endpoint, on_exit: Callable[[int | None], None]) -> None:
        """Call once when the process of the endpoint is gone (exit status where it is known); at once if it is."""
        ...

    def attach_command(self, endpoint: Endpoint) -> tuple[str, ...]:
        """What a person types to watch it."""
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


class Wakes(Protocol):
    """Wake-ups for files: hints, never facts. A lost one is made good by a slow poll."""

    def watch(self, path: str, root: str, on_change: Callable[[], None]) -> object: ...

    def unwatch(self, token: object) -> None: ...
