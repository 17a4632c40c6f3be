"""ReconcilerActor: another pair of eyes on a session's record. Made when a turn is quiet, and reads in pieces.

It reads the provider's record again with an oracle of its own, from the last place where reading can be resumed, and
tells its session what stands behind the place that the session has heard of. It settles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import Fact
from lastword.actors.core.ports import Cursor
from lastword.actors.core.world import Bytes, Files, Missing, Rewritten, Unreadable
from lastword.actors.system.actor import Actor

PIECE_BYTES = 1024 * 1024
FACTS_MAX = 1_000
"""Facts behind the heard place that are told; the first ones."""


class Consult(msgspec.Struct, frozen=True, kw_only=True):
    """Look into that record. ``observed_to``: bytes of it that the session has heard of. ``earlier``: as in
    :class:`~lastword.actors.transcript.Follow`.
    """

    source: SourceSpec
    oracle: Callable[[int], Oracle]
    cursor: Cursor | None
    observed_to: int
    earlier: tuple[SourceSpec, ...] = ()


class Consulted(msgspec.Struct, frozen=True, kw_only=True):
    """To the session: the facts behind the place that it had heard of, in order; ``unread`` where nobody can look."""

    path: str
    facts: tuple[Fact, ...] = ()
    unread: str = ""


class _Piece(msgspec.Struct, frozen=True):
    """Read on."""

    number: int


ReconcilerCommand: TypeAlias = Consult | _Piece


class ReconcilerActor(Actor):
    """One session's. A look that is under way is not begun again."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self._files = files
        self._consult: Consult | None = None
        self._oracle: Oracle | None = None
        self._number = 0
        self._offset = 0
        self._inode = 0
        self._device = 0
        self._earlier_to: dict[str, int] = {}
        self._facts: list[Fact] = []
        self._known: tuple[tuple[str, int, int], Consulted] | None = None

    def receive(self, message: ReconcilerCommand) -> None:
        match message:
            case Consult():
                if self._consult is None:
                    self._begin(message)
            case _Piece():
                if message.number == self._number and self._consult is not None:
                    self._piece(self._consult)
            case _:
                assert_never(message)

    def _begin(self, consult: Consult) -> None:
        path = consult.source.path
        probe = self._files.read_from(path, 0, 1, 0, 0)
        if not isinstance(probe, Bytes):
            reason = probe.reason if isinstance(probe, Unreadable) else "it is not there"
            self._tell(Consulted(path=path, unread=reason))
            return
        if probe.size == consult.observed_to:
            self._tell(Consulted(path=path))
            return
        if self._known is not None and self._known[0] == (path, probe.inode, probe.size):
            self._tell(self._known[1])  # it has not changed since the last look
            return
        self._consult = consult
        cursor = consult.cursor
        resumable = cursor is not None and cursor.path == path and cursor.inode == probe.inode
        self._offset = cursor.offset if cursor is not None and resumable else 0
        self._inode, self._device = probe.inode, probe.device
        self._oracle = consult.oracle(self._offset)
        self._earlier_to = dict.fromkeys((source.path for source in consult.earlier), 0)
        self._facts = []
        self._next()

    def _next(self) -> None:
        self._number += 1
        self.ref.tell(_Piece(self._number))

    def _piece(self, consult: Consult) -> None:
        assert self._oracle is not None
        path = consult.source.path
        read = self._files.read_from(path, self._offset, PIECE_BYTES, self._inode, self._device)
        match read:
            case Bytes():
                self._offset = read.offset + len(read.data)
                self._feed_earlier(self._oracle)
                self._keep(self._oracle.feed(path, read.data), consult.observed_to)
                if self._offset < read.size and read.data:
                    self._next()
                    return
                consulted = Consulted(path=path, facts=tuple(self._facts))
                self._known = ((path, read.inode, self._offset), consulted)
                self._end(consulted)
            case Rewritten():
                self._end(Consulted(path=path, unread="it was replaced meanwhile"))
            case Missing():
                self._end(Consulted(path=path, unread="it is not there"))
            case Unreadable():
                self._end(Consulted(path=path, unread=read.reason))
            case _:
                assert_never(read)

    def _feed_earlier(self, oracle: Oracle) -> None:
        """After a piece was read: what it speaks of stands there by now."""
        for path, offset in self._earlier_to.items():
            read = self._files.read_from(path, offset, PIECE_BYTES, 0, 0)
            while isinstance(read, Bytes) and read.data:
                self._earlier_to[path] = read.offset + len(read.data)
                oracle.feed(path, read.data)  # what we sent ourselves is no news
                read = self._files.read_from(path, self._earlier_to[path], PIECE_BYTES, 0, 0)

    def _keep(self, facts: list[Fact], observed_to: int) -> None:
        for fact in facts:
            evidence = getattr(fact, "evidence", None)
            if evidence is not None and evidence.offset >= observed_to and len(self._facts) < FACTS_MAX:
                self._facts.append(fact)

    def _end(self, consulted: Consulted) -> None:
        self._consult = self._oracle = None
        self._facts = []
        self._tell(consulted)

    def _tell(self, consulted: Consulted) -> None:
        assert self.parent is not None
        self.parent.tell(consulted)
