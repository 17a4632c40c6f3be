"""Finding a real CLI for ``run --rehearse``: on PATH, or where ``make live`` put its pinned one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from lastword.actors.core.adapter import Adapter
from lastword.actors.core.errors import LastwordError, ProviderError
from lastword.runtime import _preflight as preflight


def rehearsed() -> tuple[str, ...]:
    """The providers that can be rehearsed: those that it is known how to seal off."""
    from lastword.runtime.testing import SEALED_HOMES  # noqa: PLC0415 - late: the scripted model comes with it

    return tuple(sorted(SEALED_HOMES))


class RehearseOption(click.Option):
    """Its help names what can be rehearsed, looked up when the help is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option and its help."""
        record = super().get_help_record(ctx)
        return None if record is None else (record[0], f"{record[1]} For {', '.join(rehearsed())}.")


def cache_folder() -> Path:
    """``$LASTWORD_CLI_CACHE``, else ``$XDG_CACHE_HOME/lastword``, else ``~/.cache/lastword``."""
    named = os.environ.get("LASTWORD_CLI_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lastword"


def cached_cli(adapter: Adapter) -> Path | None:
    """The pinned CLI of that adapter in the cache folder, newest certified version first."""
    for version in reversed(adapter.certified_versions):
        folder = cache_folder() / "cli" / f"{adapter.name}-{version}" / "node_modules" / ".bin"
        for name in adapter.executables:
            if os.access(folder / name, os.X_OK):
                return folder / name
    return None


def find_real_cli(adapter: Adapter) -> Path:
    """A real CLI: the one on PATH, unless only the pinned one is of a certified version.

    Raises:
        ProviderError: ``provider_unavailable``.
    """
    cached = cached_cli(adapter)
    for name in adapter.executables:
        found = shutil.which(name)
        if found is not None and (cached is None or _is_certified(adapter, found)):
            return Path(found).absolute()
    if cached is None:
        raise ProviderError(
            "provider_unavailable",
            f"the CLI of {adapter.name} is neither on PATH nor in {cache_folder() / 'cli'}",
            remedy="`make live` downloads the pinned one there through npm",
            provider=adapter.name,
        )
    return cached


def _is_certified(adapter: Adapter, executable: str) -> bool:
    try:
        return preflight.Versions().of(adapter, (executable,), os.environ) in adapter.certified_versions
    except LastwordError:
        return False
