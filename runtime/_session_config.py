"""SessionConfig: how a session was asked for, as the journal keeps it."""

from __future__ import annotations

import msgspec

from lastword.actors.core.ports import SessionRow


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a session was asked for; stored with it."""

    model: str = ""
    permission_mode: str = ""
    extra_args: tuple[str, ...] = ()
    cli_version: str = ""

    def with_(self, asked: SessionConfig) -> SessionConfig:
        """This one, with what is asked for in the place of what it has."""
        given = {name: value for name in ("model", "permission_mode", "extra_args") if (value := getattr(asked, name))}
        return msgspec.structs.replace(self, **given)

    def stored(self) -> str:
        """As it stands in the session's row."""
        return msgspec.json.encode(self).decode()


def config_of(row: SessionRow) -> SessionConfig:
    """What the session on record was asked for."""
    return msgspec.json.decode(row.config, type=SessionConfig)
