"""lastword: drive coding-agent CLIs and get exactly one last word for every turn.

The public names live in ``lastword.runtime``; they load on first use, so that importing a pure core module
(``lastword.actors.core.turn``) does not import the runtime, tmux or a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastword.runtime import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    from lastword import runtime  # noqa: PLC0415

    if name in runtime.__all__:
        return getattr(runtime, name)
    msg = f"module 'lastword' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    from lastword import runtime  # noqa: PLC0415

    return sorted({*runtime.__all__, "__version__"})
