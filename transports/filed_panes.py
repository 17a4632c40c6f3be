"""CLIs in panes that are spoken to by files: an extension of ours inside the CLI appends what happens to one file, and
carries out what is appended to another (docs/adr/0018). A pane of tmux and two files, under the ports of a pipe.

So a person can attach and type, no key is ever pressed by us, and what was said to a CLI before its host died is there
for it, and for the next host, all the same.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lastword.actors.core.adapter import StdoutKind
from lastword.actors.core.bounded import forget_oldest
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, RejectedError, TransportError
from lastword.actors.core.world import NotWritten, PaneEndpoint, PaneTransport, ScreenView, WriteResult, Written
from lastword.transports._guard import guarded
from lastword.transports.stream_files import StreamFiles, append_to

WIDTH, HEIGHT = 200, 50
LAST_WORDS_CHARS = 400
LAST_WORDS_MAX = 64
"""Panes whose last words are kept until somebody asks."""


class FiledPane:
    """One pane, and the file by which its CLI is spoken to. Thread-safe."""

    orphaned = False
    """It reads its file whoever its host is."""

    def __init__(self, name: str, pane: PaneEndpoint, commands: str) -> None:
        self.name = name
        self.pane = pane
        self._commands = commands
        self._lock = threading.Lock()
        self._torn = False

    def __repr__(self) -> str:
        return f"<filed {self.pane!r}>"

    @property
    def pane_id(self) -> str:
        """As :class:`~lastword.actors.core.world.Endpoint`."""
        return self.pane.pane_id

    @property
    def pid(self) -> int:
        """As :class:`~lastword.actors.core.world.Endpoint`."""
        return self.pane.pid

    @property
    def pid_start(self) -> int:
        """As :class:`~lastword.actors.core.world.Endpoint`."""
        return self.pane.pid_start

    def close(self, grace_s: float, on_done: Callable[[], None]) -> None:
        """As :class:`~lastword.actors.core.world.Endpoint`."""
        self.pane.close(grace_s, on_done)

    def write(self, data: bytes, on_done: Callable[[WriteResult], None]) -> None:
        """As :class:`~lastword.actors.core.world.StdioEndpoint`: into its file, at once. What did not go in whole is no
        line, and nothing that the CLI would read.
        """
        with self._lock:
            try:
                self._append(data)
                result: WriteResult = Written()
            except OSError as error:
                reason = f"what is said to the CLI could not be written: {error.strerror}"
                result = NotWritten(RejectedError("overloaded", reason))
        guarded(on_done, result)

    def _append(self, data: bytes) -> None:
        fd = append_to(self._commands)
        try:
            view = memoryview(b"\n" + data if self._torn else data)
            self._torn = True
            while view:
                view = view[os.write(fd, view) :]
            self._torn = False
        finally:
            os.close(fd)


class FiledPanes(StreamFiles):
    """Opens CLIs in panes that are spoken to by files. Thread-safe; nothing blocks for long.

    Args:
        panes: opens the panes.
        folder: where the files stand; made (0700) with the first pane.
    """

    name: TransportName = "tmux"

    def __init__(self, panes: PaneTransport, folder: Path) -> None:
        super().__init__(folder)
        self._panes = panes
        self._last_words: dict[str, str] = {}

    def open(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        on_opened: Callable[[FiledPane | LastwordError], None],
        stdout: StdoutKind = "file",  # noqa: ARG002 - its stdout is the pane
        exit_noted: bool = False,  # noqa: ARG002 - its stdin too
    ) -> None:
        """As :class:`~lastword.actors.core.world.StdioTransport`; both files are there before the CLI is."""

        def opened(result: PaneEndpoint | LastwordError) -> None:
            on_opened(result if isinstance(result, LastwordError) else self.of(name, result))

        try:
            self.make_folder()
            for path in (f"{self.stream(name)}.jsonl", self._commands(name)):
                os.close(append_to(path))
        except OSError as error:
            on_opened(TransportError("transport_failed", f"its files could not be made: {error.strerror}"))
            return
        self._panes.open(name, argv, cwd=cwd, env=env, width=WIDTH, height=HEIGHT, on_opened=opened)

    def of(self, name: str, pane: PaneEndpoint) -> FiledPane:
        """The pane that was opened under that name, by this host or an earlier one, to be spoken to."""
        return FiledPane(name, pane, self._commands(name))

    def watch_exit(self, endpoint: FiledPane, on_exit: Callable[[int | None], None]) -> None:
        """As :class:`~lastword.actors.core.world.Transport`; what it shows at its end is looked at first."""

        def exited(status: int | None) -> None:
            def looked(screen: ScreenView | LastwordError) -> None:
                if not isinstance(screen, LastwordError):
                    words = " / ".join(line.strip() for line in screen.lines if line.strip())
                    self._last_words[endpoint.name] = words[-LAST_WORDS_CHARS:]
                    forget_oldest(self._last_words, LAST_WORDS_MAX)
                on_exit(status)

            endpoint.pane.look(looked)

        self._panes.watch_exit(endpoint.pane, exited)

    def attach_command(self, endpoint: FiledPane) -> tuple[str, ...]:
        """As :class:`~lastword.actors.core.world.PaneTransport`."""
        return self._panes.attach_command(endpoint.pane)

    def last_words(self, name: str) -> str:
        """As :class:`~lastword.actors.core.world.StdioTransport`: what its pane showed at its end."""
        return self._last_words.pop(name, "")

    def _commands(self, name: str) -> str:
        return f"{self.stream(name)}.sent.jsonl"
