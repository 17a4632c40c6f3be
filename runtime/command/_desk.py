"""One session as the command uses it: in this process, or in the live host of the state folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import msgspec

from lastword.actors.core.delivery import Answer, Delivery, Interrupt, TransportName
from lastword.actors.core.errors import LastwordError, TransportError, UsageError
from lastword.actors.core.ids import SessionId, TurnId
from lastword.runtime import _door as door
from lastword.runtime._hub import Hub, Subscription

if TYPE_CHECKING:
    from lastword.runtime._journal import SqliteJournal
    from lastword.runtime._session import Session

HOST_ANSWER_S = 2.0
FOLLOW_POLL_S = 0.1
"""How often the journal that another process writes is looked into."""


def cli_providers() -> tuple[str, ...]:
    """Providers that run a program, the default one first; an in-process one is called like its transport."""
    from lastword.transports.providers import PROVIDERS  # noqa: PLC0415 - late: costs a third of a cold start

    return tuple(name for name in PROVIDERS if name not in get_args(TransportName))


class Desk(Protocol):
    """What the command asks of a session."""

    def send(self, text: str, *, message_id: str | None, deadline_s: float | None) -> Delivery: ...

    def interrupt(self, turn_id: TurnId | None) -> Delivery: ...

    def answer(self, dialog_id: str, option: int) -> Delivery: ...

    def follow(self, after: int) -> Subscription: ...

    def attach(self) -> tuple[str, ...]:
        """What a person types to see the pane."""
        ...


class LocalDesk:
    """A session of this process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def send(self, text: str, *, message_id: str | None, deadline_s: float | None) -> Delivery:
        return self._session.send(text, message_id=message_id, deadline_s=deadline_s)

    def interrupt(self, turn_id: TurnId | None) -> Delivery:
        return self._session.send(Interrupt(turn_id=turn_id))

    def answer(self, dialog_id: str, option: int) -> Delivery:
        return self._session.send(Answer(dialog_id, option))

    def follow(self, after: int) -> Subscription:
        stream = self._session.events(after)
        assert isinstance(stream, Subscription)
        return stream

    def attach(self) -> tuple[str, ...]:
        return self._session.snapshot().handle.attach


class RemoteDesk:
    """A session of the live host: asked through its socket, followed in its journal."""

    def __init__(self, state: Path, journal: SqliteJournal, session_id: str) -> None:
        self._state = state
        self._session_id = SessionId(session_id)
        self._hub = Hub(journal, look_again_s=FOLLOW_POLL_S)

    def send(self, text: str, *, message_id: str | None, deadline_s: float | None) -> Delivery:
        request = door.Send(session=self._session_id, text=text, message_id=message_id, deadline_s=deadline_s)
        return _delivery(door.ask(self._state, request))

    def interrupt(self, turn_id: TurnId | None) -> Delivery:
        return _delivery(door.ask(self._state, door.InterruptTurn(session=self._session_id, turn_id=turn_id)))

    def answer(self, dialog_id: str, option: int) -> Delivery:
        request = door.AnswerDialog(session=self._session_id, dialog_id=dialog_id, option=option)
        return _delivery(door.ask(self._state, request))

    def follow(self, after: int) -> Subscription:
        return self._hub.subscribe(self._session_id, after)

    def attach(self) -> tuple[str, ...]:
        snapshot = door.ask(self._state, door.GetSnapshot(session=self._session_id)).snapshot
        return () if snapshot is None else snapshot.handle.attach


def _delivery(response: door.Response) -> Delivery:
    assert response.delivery is not None
    return response.delivery


def open_reader(state: Path) -> SqliteJournal:
    """The journal of a state folder, to be read only.

    Raises:
        JournalError: there is none, or it cannot be read.
    """
    from lastword.runtime._journal import SqliteJournal  # noqa: PLC0415 - late

    return SqliteJournal.open(state, readonly=True)


def known_session(journal: SqliteJournal, session_id: str) -> SessionId:
    """The session's id, if it is on record.

    Raises:
        UsageError: ``unknown_session``.
    """
    if journal.session(SessionId(session_id)) is None:
        raise UsageError(
            "unknown_session", f"no session {session_id!r} is on record", remedy="`lastword sessions` lists them"
        )
    return SessionId(session_id)


def host_lives(state: Path) -> bool:
    """Whether a host answers at the folder's socket."""
    return _host_answers(state) is True


def _host_answers(state: Path) -> bool | None:
    """Whether it does; None where somebody listens there and says nothing."""
    try:
        door.ask(state, door.GetSnapshot(session=""), wait_s=HOST_ANSWER_S)
    except UsageError as error:
        return error.kind != "host_unreachable"
    except TransportError as error:
        return None if error.kind == "transport_timeout" else False
    except LastwordError:
        return False
    return True


class HostSeen(msgspec.Struct, frozen=True):
    """Who has a state folder, ``pid`` as far as it says so itself. ``state``: ``none`` has it; its host ``serves`` its
    socket, is ``alone`` (it serves none), is ``silent`` (it listens and says nothing), or is ``stopped`` by a signal.
    """

    state: Literal["none", "serves", "alone", "silent", "stopped"]
    pid: int | None = None

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid is not None else "a process"
        return {
            "none": "no live host",
            "serves": f"a live host serves it ({who})",
            "alone": f"a live host has it ({who}), without a socket",
            "silent": f"a live host has it ({who}), and does not answer",
            "stopped": f"a live host has it ({who}), which is stopped",
        }[self.state]


def host_seen(state: Path) -> HostSeen:
    """The host of that folder, also one that is stopped or serves no socket; its lock tells."""
    from lastword.runtime import _host_lock as host_lock  # noqa: PLC0415 - late

    if not host_lock.held(state):
        return HostSeen("none")
    pid = host_lock.holder(state)
    if pid is not None and stopped(pid):
        return HostSeen("stopped", pid)
    answers = _host_answers(state)
    return HostSeen("silent" if answers is None else "serves" if answers else "alone", pid)


def stopped(pid: int) -> bool:
    """Whether that process was stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[0] in "tT"
    except (OSError, IndexError):
        return False
