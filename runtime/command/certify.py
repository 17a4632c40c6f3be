"""``lastword certify``: run the conformance kit against an adapter's CLI, real if it is here, and print the table."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, get_args

import click

from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import LastwordError, UsageError
from lastword.runtime.command._show import as_json, one_line, out

if TYPE_CHECKING:
    from lastword.actors.core.adapter import AnyAdapter
    from lastword.runtime.testing.conformance import Result, Subject


@click.command("certify")
@click.argument("adapter")
@click.option("--transport", type=click.Choice(get_args(TransportName)), help="This one; default: all that it has.")
@click.option("--emulated", is_flag=True, help="On the program that imitates its CLI, even if the real one is here.")
@click.option("--cli", "argv", metavar="COMMAND", help="This CLI, as a command line, instead of the one that is found.")
@click.option("--only", multiple=True, metavar="NAME", help="This certification; again for several.")
@click.option("--json", "json_form", is_flag=True, help="One JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    adapter: str,
    transport: str | None,
    emulated: bool,
    argv: str | None,
    only: tuple[str, ...],
    json_form: bool,
) -> None:
    """Certify ADAPTER, a provider's name or a third party's MODULE:SUBJECT, on a scripted model, sealed off.

    Exit code 0: everything that is due was shown; 1: something was not; 2: it could not be tried.
    """
    from lastword.runtime.testing.conformance import CERTIFICATIONS, certify, table  # noqa: PLC0415 - late

    for name in only:
        if name not in CERTIFICATIONS:
            raise UsageError("usage", f"no certification is called {name!r}", remedy=", ".join(CERTIFICATIONS))
    reports = []
    for subject in _subjects(adapter, transport, emulated=emulated, argv=argv):

        def told(result: Result, subject: Subject = subject) -> None:
            why = f": {one_line(result.why)}" if result.why else ""
            click.echo(f"{subject.name} ({subject.realness}) {result.certification} {result.outcome}{why}", err=True)

        reports.append(certify(subject, only=only, told=told))
    certified = all(report.certified for report in reports)
    if json_form:
        out(as_json({"certified": certified, "reports": reports}))
    else:
        for line in table(reports):
            out(line)
    ctx.exit(0 if certified else 1)


def _subjects(adapter: str, transport: str | None, *, emulated: bool, argv: str | None) -> list[Subject]:
    from lastword.runtime.testing.conformance import load, subjects  # noqa: PLC0415

    if ":" in adapter:
        return [load(adapter)]
    return [_built_in(each, emulated=emulated, argv=argv) for each in subjects.subjects(adapter, transport)]


def _built_in(adapter: AnyAdapter, *, emulated: bool, argv: str | None) -> Subject:
    from lastword.runtime.command._rehearse import find_real_cli  # noqa: PLC0415
    from lastword.runtime.testing.conformance import subjects  # noqa: PLC0415

    if argv is not None:
        if adapter.transport == "api":
            raise UsageError("usage", f"{adapter.name} is an API: no CLI of it is run", remedy="Leave out --cli")
        return subjects.on_real(adapter, tuple(shlex.split(argv)))
    stand_in = subjects.on_emulator(adapter)
    if emulated and stand_in is None:
        raise UsageError("unsupported_capability", f"nothing imitates {adapter.name} over {adapter.transport}")
    if stand_in is not None and (emulated or adapter.transport == "api" or "emulated" in adapter.capabilities):
        return stand_in
    try:
        return subjects.on_real(adapter, (str(find_real_cli(adapter)),))
    except LastwordError:
        if stand_in is None:
            raise
        return stand_in
