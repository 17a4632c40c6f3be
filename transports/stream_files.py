"""The files with what a CLI's process says and is told, in lines: one set a process, by its epoch.

Behind a pipe they are its stdout and a copy of its stdin; of a CLI in a pane that is spoken to by files, they are the
way itself. Parses nothing; each write is one line or more, appended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container
from pathlib import Path

from lastword.actors.core.errors import TransportError
from lastword.actors.core.ids import SessionId
from lastword.actors.core.talk import EXITED, ORPHANED

STREAM_ENDINGS = (".jsonl", ".sent.jsonl", ".err")


def append_to(path: str) -> int:
    """A descriptor that appends to that file, which is made where it is not there; its owner's alone.

    Raises:
        OSError: it cannot be, or is a link.
    """
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class StreamFiles:
    """Implements :class:`lastword.actors.core.world.Streams` in one folder. Thread-safe: it holds nothing but a name.

    Args:
        folder: where the files stand.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make_folder(self) -> None:
        """Make it (0700), if it is not there."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def folder(self) -> Path:
        """Where stream files stand."""
        return self._folder

    def stream(self, name: str) -> str:
        """As :class:`~lastword.actors.core.world.StdioTransport`."""
        return str(self._folder / name)

    def keep(self, name: str, data: bytes) -> None:
        """As :class:`~lastword.actors.core.world.StdioTransport`."""
        try:
            fd = append_to(f"{self.stream(name)}.sent.jsonl")
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            finally:
                os.close(fd)
        except OSError as error:
            raise TransportError("transport_failed", f"what is sent could not be kept: {error.strerror}") from error

    def note_exit(self, name: str) -> None:
        """Append to the file of what was sent that the process is gone, and how much it had said by then.

        Raises:
            TransportError: as :meth:`keep`.
        """
        try:
            said = os.stat(f"{self.stream(name)}.jsonl").st_size  # noqa: PTH116
        except OSError:
            said = 0
        self.keep(name, b'{"jsonrpc":"2.0","method":"%s","params":{"heard":%d}}\n' % (EXITED.encode(), said))

    def note_orphaned(self, name: str) -> None:
        """As :class:`~lastword.actors.core.world.StdioTransport`."""
        with contextlib.suppress(TransportError):
            self.keep(name, b'{"jsonrpc":"2.0","method":"%s","params":{}}\n' % ORPHANED.encode())

    def discard(self, session_id: SessionId, before_epoch: int | None) -> None:
        """As :class:`~lastword.actors.core.world.StdioTransport`."""
        for path, known, epoch in self.streams():
            if known == session_id and (before_epoch is None or epoch < before_epoch):
                path.unlink(missing_ok=True)

    def epochs(self, session_id: SessionId) -> list[int]:
        """As :class:`~lastword.actors.core.world.StdioTransport`."""
        found = {epoch for path, known, epoch in self.streams() if known == session_id and path.name.endswith(".jsonl")}
        return sorted(found)

    def streams(self) -> list[tuple[Path, SessionId, int]]:
        """Every stream file: whose, and of which epoch."""
        found: list[tuple[Path, SessionId, int]] = []
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError:
            return found
        for name in names:
            session_id, _, number = name.partition(".")[0].rpartition("-")
            if session_id and number.isdigit() and name.endswith(STREAM_ENDINGS):
                found.append((self._folder / name, SessionId(session_id), int(number)))
        return found

    def keep_only(self, sessions: Container[SessionId]) -> None:
        """Delete what belongs to none of these."""
        for path, session_id, _ in self.streams():
            if session_id not in sessions:
                path.unlink(missing_ok=True)
