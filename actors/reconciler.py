"""ReconcilerActor: another pair of eyes on a session's record. Made when a turn is quiet, and reads in pieces.

It reads the provider's record again with an oracle of its own, from the last place where reading can be resumed, and
tells its session what stands behind the place that the session has heard of. It settles nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias, assert_never

import msgspec

from lastword.actors.core.adapter import Oracle, SourceSpec
from lastword.actors.core.facts import Fact, TurnClosed
from lastword.actors.core.ports import Cursor
from lastword.actors.core.world import Bytes, Files, Missing, Rewritten, Unreadable
from lastword.actors.system.actor import Actor

PIECE_BYTES = 1024 * 1024
FACTS_MAX = 1_000
"""Ends of turns behind the heard place that are told; the last ones."""


class Consult(msgspec.Struct, frozen=True, kw_only=True):
    """Look into that record. ``observed_to``: bytes of it that the session has heard of. ``natives``: the native turns
    that it holds open, "" for one that is not bound. ``earlier``: as in :class:`~lastword.actors.transcript.Follow`.
    """

    source: SourceSpec
    oracle: Callable[[int], Oracle]
    cursor: Cursor | None
    observed_to: int
    natives: frozenset[str]
    earlier: tuple[SourceSpec, ...] = ()


class Consulted(msgspec.Struct, frozen=True, kw_only=True):
    """To the session: of the facts behind the place that it had heard of the ends of the turns that it holds open, in
    order, and the last one of all; ``unread`` where nobody can look.
    """

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
        self._ends: deque[Fact] = deque(maxlen=FACTS_MAX)
        self._last: Fact | None = None
        self._known: tuple[tuple[str, int, int, frozenset[str]], Consulted] | None = None

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
        if self._known is not None and self._known[0] == (path, probe.inode, probe.size, consult.natives):
            self._tell(self._known[1])  # it has not changed since the last look
            return
        self._consult = consult
        cursor = consult.cursor
        resumable = cursor is not None and cursor.path == path and cursor.inode == probe.inode
        self._offset = cursor.offset if cursor is not None and resumable else 0
        self._inode, self._device = probe.inode, probe.device
        self._oracle = consult.oracle(self._offset)
        self._earlier_to = dict.fromkeys((source.path for source in consult.earlier), 0)
        self._forget()
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
                match self._feed_earlier(
                    self._oracle
                ):  # after the piece was read: what it speaks of stands there by now
                    case Unreadable(reason=reason):
                        self._end(Consulted(path=path, unread=reason))
                        return
                    case True:
                        self._next()
                        return
                    case False:
                        pass
                self._offset = read.offset + len(read.data)
                self._keep(self._oracle.feed(path, read.data), consult)
                if self._offset < read.size and read.data:
                    self._next()
                    return
                last = (self._last,) if self._last is not None and self._last not in list(self._ends)[-1:] else ()
                consulted = Consulted(path=path, facts=(*self._ends, *last))
                self._known = ((path, read.inode, self._offset, consult.natives), consulted)
                self._end(consulted)
            case Rewritten():
                self._end(Consulted(path=path, unread="it was replaced meanwhile"))
            case Missing():
                self._end(Consulted(path=path, unread="it is not there"))
            case Unreadable():
                self._end(Consulted(path=path, unread=read.reason))
            case _:
                assert_never(read)

    def _feed_earlier(self, oracle: Oracle) -> bool | Unreadable:
        """A piece of what precedes the record; whether there was any."""
        for path, offset in self._earlier_to.items():
            read = self._files.read_from(path, offset, PIECE_BYTES, 0, 0)
            if isinstance(read, Unreadable):
                return read
            if isinstance(read, Bytes) and read.data:
                self._earlier_to[path] = read.offset + len(read.data)
                oracle.feed(path, read.data)  # what we sent ourselves is no news
                return True
        return False

    def _keep(self, facts: list[Fact], consult: Consult) -> None:
        """What else there is, and however much, hides no end."""
        for fact in facts:
            evidence = getattr(fact, "evidence", None)
            if evidence is None or evidence.offset < consult.observed_to:
                continue
            self._last = fact
            if isinstance(fact, TurnClosed) and not consult.natives.isdisjoint(("", fact.native_turn)):
                self._ends.append(fact)

    def _forget(self) -> None:
        self._ends.clear()
        self._last = None

    def _end(self, consulted: Consulted) -> None:
        self._consult = self._oracle = None
        self._forget()
        self._tell(consulted)

    def _tell(self, consulted: Consulted) -> None:
        assert self.parent is not None
        self.parent.tell(consulted)
