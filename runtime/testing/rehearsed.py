"""A runtime that is ready to rehearse: the scripted CLI in real panes, a sealed home, a state folder that goes away.

What a host's own tests and the examples start from: neither names a provider. No model, no key, no network, no npm.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lastword.runtime.testing.hermetic import Rehearsal
from lastword.runtime.testing.script import Script

if TYPE_CHECKING:
    from lastword.runtime._async_runtime import AsyncRuntime
    from lastword.runtime._runtime import Runtime

DIALECT = "claude-code"
"""Whose record and screen the scripted CLI imitates."""
SCRIPTED_CLI = Path(__file__).with_name("scripted_cli.py")


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """What the rehearsal gives to a host: a runtime, the name of a provider in it, and a folder to work in."""

    runtime: Runtime
    provider: str
    cwd: Path
    state: Path


class RehearsedAsync(msgspec.Struct, frozen=True, kw_only=True):
    """The same for asyncio."""

    runtime: AsyncRuntime
    provider: str
    cwd: Path
    state: Path


@contextmanager
def rehearsed_runtime(
    *, script: Script | None = None, cli_options: Sequence[str] = (), parent: Path | None = None
) -> Iterator[Rehearsed]:
    """A runtime whose CLI is :data:`SCRIPTED_CLI`. On leaving, panes, processes and folders go.

    Args:
        script: named rows of steps for ``[[script:NAME]]``; without one the prompts' own directives and the echo.
        cli_options: further options of the scripted CLI (``--fault``, …).
        parent: where the temporary folder is made.

    Raises:
        TransportError: ``tmux_missing``, ``tmux_unsupported``: when the first session is opened.
    """
    from lastword.runtime._runtime import Runtime  # noqa: PLC0415 - the kit is used without a runtime too

    with Rehearsal(parent=parent) as place:
        argv = [sys.executable, str(SCRIPTED_CLI), *cli_options]
        if script is not None:
            file = place.root / "script.json"
            file.write_bytes(script.to_json())
            argv += ["--script", str(file)]
        state = place.root / "state"
        with Runtime.open(state, env=place.env, executables={DIALECT: argv}) as runtime:
            yield Rehearsed(runtime=runtime, provider=DIALECT, cwd=place.cwd, state=state)


@asynccontextmanager
async def rehearsed_async_runtime(
    *, script: Script | None = None, cli_options: Sequence[str] = (), parent: Path | None = None
) -> AsyncIterator[RehearsedAsync]:
    """:func:`rehearsed_runtime` for asyncio hosts; opening and ending it never block the loop."""
    from lastword.runtime._async_runtime import AsyncRuntime  # noqa: PLC0415 - as above

    rehearsal = rehearsed_runtime(script=script, cli_options=cli_options, parent=parent)
    rehearsed = await asyncio.to_thread(rehearsal.__enter__)
    try:
        yield RehearsedAsync(
            runtime=AsyncRuntime(rehearsed.runtime),
            provider=rehearsed.provider,
            cwd=rehearsed.cwd,
            state=rehearsed.state,
        )
    finally:
        await asyncio.shield(asyncio.to_thread(rehearsal.__exit__, None, None, None))
