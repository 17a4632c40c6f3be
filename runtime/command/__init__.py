"""The ``lastword`` command: one module per noun, each loaded only when it is asked for.

It is a host like any other: it branches on no provider's name and reads no pane. Exit codes: 0 completed, 1 failed,
2 the call could not be made (a typed error, on one line of stderr), 3 lost, 4 a dialog waits and nobody can be asked,
130 cancelled.
"""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import Any

import click

from lastword.actors.core.errors import LastwordError
from lastword.runtime.command._show import EXIT_CANCELLED, EXIT_USAGE, one_line

COMMANDS = {
    "certify": "lastword.runtime.command.certify",
    "doctor": "lastword.runtime.command.doctor",
    "events": "lastword.runtime.command.events",
    "explain": "lastword.runtime.command.explain",
    "metrics": "lastword.runtime.command.metrics",
    "read": "lastword.runtime.command.read",
    "run": "lastword.runtime.command.run",
    "send": "lastword.runtime.command.send",
    "sessions": "lastword.runtime.command.sessions",
    "top": "lastword.runtime.command.top",
    "trace": "lastword.runtime.command.trace",
}


class _Lazy(click.Group):
    """Imports a command's module when it is wanted; turns typed errors into their one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LastwordError as error:
            click.echo(f"lastword: {one_line(str(error))}", err=True)
            ctx.exit(EXIT_USAGE)
        except click.ClickException as error:
            # it quotes what was typed, and a shell may have put a file's name there
            raise click.UsageError(one_line(error.format_message()), getattr(error, "ctx", None) or ctx) from error
        except KeyboardInterrupt:
            ctx.exit(EXIT_CANCELLED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # nobody reads any more: no fault
            named = f"{error.filename}: " if error.filename else ""
            click.echo(one_line(f"lastword: {named}{error.strerror or type(error).__name__} (os_error)."), err=True)
            ctx.exit(EXIT_USAGE)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from lastword import __version__  # noqa: PLC0415

        click.echo(f"lastword {__version__}")
        ctx.exit()


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Drive coding-agent CLIs and get exactly one last word for every turn."""


def main() -> None:
    """Entry point of the ``lastword`` script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    cli(prog_name="lastword")
