"""Going on with another provider or model, between two turns (C13).

Theory of operation. A switch is taken only where nothing is open: no turn, no message on its way. From then on what is
sent waits at the door. The CLI is ended and its record read to the end, so that all it had to say is said and settled;
then one batch makes the switch true: the row with the new configuration, and the event. Only after that commit the
other CLI is started and the door opened: no message can reach a provider that is not the one on record, whenever the
host dies. Before the commit the session is its former provider's, behind it the new one's, never in between.

A conversation belongs to one provider over one transport. Another model goes on in it; another provider begins one of
its own and is told nothing of what was said before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastword.actors import mouth
from lastword.actors.core import events
from lastword.actors.core.errors import LastwordError
from lastword.actors.replies import fail, resolve
from lastword.actors.session_commands import SwitchTo

if TYPE_CHECKING:
    from lastword.actors.session import SessionActor

END_GRACE_S = 2.0
"""Between the gentle and the hard end of the CLI that is left."""


class Switching:
    """Runs on the session actor's thread only."""

    def __init__(self, session: SessionActor) -> None:
        self._session = session
        self._wanted: SwitchTo | None = None
        self._token: int | None = None
        self._since = 0.0

    @property
    def active(self) -> bool:
        """Whether one is under way."""
        return self._wanted is not None

    def begin(self, switch: SwitchTo) -> None:
        """Nothing is open: end the CLI that is left."""
        session, row = self._session, self._session.record.row
        if (row.provider, row.transport, row.config) == (*_target(switch), switch.config):
            resolve(switch.reply, None)  # another thread was faster
            return
        self._wanted = switch
        session.policy.overtaken()
        if session.cli.exhausted:
            self.go_on()
        else:
            session.mouth.tell(mouth.Close(grace_s=END_GRACE_S))

    def go_on(self) -> None:
        """Once it is gone and nothing that it began is open any more: have the switch committed."""
        session, switch = self._session, self._wanted
        if switch is None or self._token is not None or session.closing or not session.cli.exhausted:
            return
        if session.turns or session.core.open or session.core.backlog:
            return
        before = session.record.row
        provider, transport = _target(switch)
        goes_on = (before.provider, before.transport) == (provider, transport)
        native = session.core.native_session if goes_on else switch.request.native_session
        self._since = before.opened_at if goes_on else session.clock.wall()
        if not goes_on:
            session.record.forget_place()
        floor = session.cli.epoch
        row = session.record.change(
            provider=provider,
            transport=transport,
            native_session=native,
            config=switch.config,
            handle="{}",
            command="",
            epoch=floor + 1,  # which no process ever bears: the next one is given its own
            config_epoch=before.config_epoch + 1,
            config_floor=floor,
        )
        body = events.SessionSwitched(
            config_epoch=row.config_epoch,
            provider=provider,
            transport=transport,
            model=switch.request.model,
            native_session_id=native,
            previous_provider=before.provider,
            previous_transport=before.transport,
            previous_model=switch.previous_model,
            previous_native_session_id=before.native_session,
        )
        self._token = session.record.send(session=row, drafts=(events.Draft(body=body),))

    def committed(self, token: int) -> None:
        """If that was the switch: the session is the other provider's; start its CLI and open the door."""
        session, switch = self._session, self._wanted
        if switch is None or token != self._token:
            return
        self._wanted = self._token = None
        resolve(switch.reply, None)
        if session.closing:
            return  # nothing is started any more; the next life goes on with the other one
        session.cli.discard()
        session.reconfigure(switch.deps, switch.request, switch.cli_version, since=self._since)
        session.cli.launch("switch")
        session.admission.unpark()

    def refuse(self, error: LastwordError) -> None:
        """The session ends: it will not come to pass."""
        if self._wanted is not None:
            fail(self._wanted.reply, error)


def _target(switch: SwitchTo) -> tuple[str, str]:
    return switch.deps.adapter.name, switch.deps.adapter.transport
