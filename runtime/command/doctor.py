"""``lastword doctor``: whether a turn could run here, and what to do where it could not. Changes nothing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Literal

import click
import msgspec

from lastword.actors.core.errors import LastwordError
from lastword.runtime.command._desk import cli_providers, host_seen
from lastword.runtime.command._rehearse import cached_cli
from lastword.runtime.command._show import as_json, default_state, one_line, out, state_option

EMULATED = "emulated: written from documents, never seen on the real CLI"
EMULATED_SERVICE = "emulated: seen on an imitated service alone"
PYTHON_MIN = (3, 11)


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at. ``note`` is no fault, ``bad`` keeps turns from running."""

    name: str
    verdict: Literal["ok", "note", "bad"]
    found: str
    remedy: str = ""


@click.command("doctor")
@click.option("--json", "json_form", is_flag=True, help="One JSON object.")
@state_option
@click.pass_context
def command(ctx: click.Context, json_form: bool, state: Path | None) -> None:
    """Look at everything that a turn needs. Exit code 0: all is well; 1: something is missing."""
    checks = list(examine(state or default_state()))
    healthy = all(check.verdict != "bad" for check in checks)
    if json_form:
        out(as_json({"healthy": healthy, "checks": checks}))
    else:
        for check in checks:
            remedy = f"\n        {one_line(check.remedy)}" if check.remedy else ""
            out(f"{check.verdict:<5} {check.name:<12} {one_line(check.found)}{remedy}")
    ctx.exit(0 if healthy else 1)


def examine(state: Path) -> Iterator[Check]:
    """Every check, in the order in which a turn needs them."""
    version = platform.python_version()
    fine = sys.version_info[:2] >= PYTHON_MIN
    yield Check(
        name="python",
        verdict="ok" if fine else "bad",
        found=f"{version} ({sys.executable})",
        remedy="" if fine else "Install Python 3.11 or newer",
    )
    linux = sys.platform == "linux"
    yield Check(
        name="system",
        verdict="ok" if linux else "bad",
        found=platform.platform(terse=True),
        remedy="" if linux else "Linux is the only system that is supported so far",
    )
    yield _tmux()
    services = list(_services())
    yield from _providers(usable=sum(check.verdict == "ok" for check in services))
    yield from _named_by_the_host()
    yield from services
    yield _folder(state)
    yield _journal(state)
    yield _watch()


def _tmux() -> Check:
    from lastword.transports.tmux_setup import find_tmux  # noqa: PLC0415 - late: loads the edge

    try:
        info = find_tmux()
    except LastwordError as error:
        return _bad("tmux", error)
    return Check(name="tmux", verdict="ok", found=f"{'.'.join(map(str, info.version))} ({info.path})")


def _providers(usable: int) -> Iterator[Check]:
    """``usable``: what else a turn can run on."""
    from lastword.runtime import _preflight as preflight  # noqa: PLC0415 - late
    from lastword.transports.providers import ADAPTERS  # noqa: PLC0415

    versions = preflight.Versions()
    faults: list[Check] = []
    for name in cli_providers():
        over = [adapter for (known, _), adapter in ADAPTERS.items() if known == name]
        adapter = over[0]
        ways = ", ".join(each.transport for each in over)
        emulated = "emulated" in adapter.capabilities
        try:
            executable = preflight.find_executable(adapter, None, os.environ)
            if emulated:
                version = versions.of(adapter, executable, os.environ)
                found = f"{version}, over {ways} ({executable[0]}); {EMULATED}"
                yield Check(name=name, verdict="note", found=found, remedy="Accept it with --allow-uncertified")
                continue
            version = versions.of(adapter, executable, os.environ)
            preflight.check_version(adapter, version, allow_uncertified=False)
        except LastwordError as error:
            bad = _bad(name, error)
            faults.append(msgspec.structs.replace(bad, found=f"{bad.found}; {EMULATED}") if emulated else bad)
        else:
            usable += 1
            yield Check(name=name, verdict="ok", found=f"{version}, certified, over {ways} ({executable[0]})")
        cached = cached_cli(adapter)
        if cached is not None:
            yield Check(name=name, verdict="note", found=f"pinned for rehearsals: {cached}")
    for fault in faults:  # another one is enough for a turn
        yield msgspec.structs.replace(fault, verdict="note") if usable else fault


def _named_by_the_host() -> Iterator[Check]:
    """Adapters that stand for any program: nothing can be looked at before the host names one, and that is no fault."""
    from lastword.runtime import _preflight as preflight  # noqa: PLC0415 - late
    from lastword.transports.providers import ADAPTERS  # noqa: PLC0415

    for adapter in ADAPTERS.values():
        if adapter.transport == "api" or adapter.executables:
            continue
        try:
            preflight.find_executable(adapter, None, os.environ)
        except LastwordError as error:
            bad = _bad(adapter.name, error)
            found = f"any agent that speaks its protocol, over {adapter.transport}; {bad.found}"
            yield msgspec.structs.replace(bad, verdict="note", found=found)


def _services() -> Iterator[Check]:
    """Model APIs: each an extra, so none that is missing is a fault."""
    from lastword.transports.api import unready  # noqa: PLC0415 - late
    from lastword.transports.providers.services import SERVICES  # noqa: PLC0415

    for adapter in SERVICES:
        service = adapter.service
        error = unready(service, os.environ)
        if error is not None:
            yield msgspec.structs.replace(_bad(adapter.name, error), verdict="note")
            continue
        found = f"{service.sdk} {version_of(service.sdk)}, over api; {EMULATED_SERVICE}"
        named = os.environ.get(service.model)
        remedy = "" if named else f"Name a model with model=, or set {service.model}"
        yield Check(name=adapter.name, verdict="ok", found=f"{found}, model {named or 'not named'}", remedy=remedy)


def _folder(state: Path) -> Check:
    from lastword.runtime._journal_file import who_else_writes  # noqa: PLC0415 - late

    there = state
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
    except OSError as error:
        remedy = "Choose a state folder of your own: --state or LASTWORD_STATE"
        found = f"{there} cannot be looked at ({error.strerror or type(error).__name__})"
        return Check(name="state", verdict="bad", found=found, remedy=remedy)
    stranger = who_else_writes(there.stat()) if there == state else ""
    if stranger:
        return Check(name="state", verdict="bad", found=f"{state} {stranger}", remedy="chmod 700, or another folder")
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        how = "writable" if there == state else f"not there yet, can be made in {there}"
        return Check(name="state", verdict="ok", found=f"{state}: {how}")
    return Check(
        name="state",
        verdict="bad",
        found=f"{state}: {there} {'cannot be written' if there.is_dir() else 'is not a folder'}",
        remedy="Choose a state folder that this user can write: --state or LASTWORD_STATE",
    )


def _journal(state: Path) -> Check:
    from lastword.runtime._journal import SqliteJournal  # noqa: PLC0415 - late
    from lastword.runtime._journal_file import FILE_NAME, unreadable  # noqa: PLC0415
    from lastword.runtime._migrations import SCHEMA_VERSION  # noqa: PLC0415

    try:
        if not (state / FILE_NAME).exists():
            return Check(name="journal", verdict="ok", found=f"none yet (this program writes version {SCHEMA_VERSION})")
    except OSError as error:
        return _bad("journal", unreadable(state / FILE_NAME, error.strerror or type(error).__name__))
    try:
        journal = SqliteJournal.open(state, readonly=True)
        try:
            sessions = len(journal.sessions())
        finally:
            journal.close()
    except LastwordError as error:
        return _bad("journal", error)
    host = host_seen(state)
    dumb = host.state in ("silent", "stopped")
    return Check(
        name="journal",
        verdict="note" if dumb else "ok",
        found=f"version {SCHEMA_VERSION}, {sessions} sessions, {host}",
        remedy=f"Let it go on (kill -CONT {host.pid or 'PID'}) or end it: nobody else gets the folder" if dumb else "",
    )


def _watch() -> Check:
    from lastword.transports.watch import FileWatcher  # noqa: PLC0415 - late

    here = Path(__file__)
    watcher = FileWatcher()
    try:
        watcher.watch(here, here.parent, lambda: None)  # the source is opened for the first watch
        source = watcher.stats.source
    finally:
        watcher.close()
    verdict: Literal["ok", "note"] = "note" if source == "poll" else "ok"
    return Check(name="wake-ups", verdict=verdict, found=f"{source}, and a slow sweep under it")


def _bad(name: str, error: LastwordError) -> Check:
    return Check(name=name, verdict="bad", found=f"{error.reason} ({error.kind})", remedy=error.remedy)
