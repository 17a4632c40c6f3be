"""What is certified: an adapter, the CLI that it drives, and how that CLI is asked for what a certification needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from lastword.actors.core.adapter import AnyAdapter
from lastword.actors.core.errors import UsageError
from lastword.actors.core.tools import Tool

Realness: TypeAlias = Literal["real", "emulated"]
Seal: TypeAlias = Callable[[Path, Sequence[Path], str, Path], Mapping[str, str]]
"""(home, folders that count as trusted, model server, temporary folder) -> environment, as :data:`SEALED_HOMES`."""
Toolbox: TypeAlias = Callable[[Path], Sequence[Tool]]
"""The folder in which they work -> tools of the host, for a model that brings none of its own."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts, as patterns of ``str.format``. The defaults are the directives that the scripted model server and the
    scripted CLIs understand; a CLI without them brings its own. "" where it cannot be asked for that.

    Attributes:
        say: answers ``{text}``. slow: the same after ``{seconds}``. tool: runs ``{command}``, then answers ``{text}``.
        slow_tool: runs a tool for ``{seconds}``, then answers ``{text}``.
        fail: the provider answers with an error that it does not overcome.
        ask: wants to make ``{file}``, asks first, then answers ``{text}``.
        background: answers ``{text}``, and later begins a turn by itself.
    """

    say: str = "[[say:{text}]] please"
    slow: str = "[[sleep:{seconds}]][[say:{text}]] please"
    tool: str = "[[tool:Bash:{command}]][[say:{text}]] please"
    slow_tool: str = "[[tool:Bash:sleep {seconds}]][[say:{text}]] please"
    fail: str = "[[error:400]] please"
    ask: str = "[[tool:Bash:touch {file}]][[say:{text}]] please"
    background: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter and a CLI to certify it on.

    Attributes:
        executable: argv prefix of the CLI; () for the adapter's own names on PATH, and for an API.
        realness: whether that CLI, or that service, is the provider's own or imitates it; shown wherever the result is.
        home: whose sealed home it gets, of :data:`lastword.runtime.testing.SEALED_HOMES`, or a function that makes one.
        options: of each session (``args``, ``permission_mode``, ``model``).
        asking: of one whose CLI asks before a tool; none: ``options``.
        env: more environment.
        tools: of the host: what ``words.tool`` and its kin ask an API's model for.
        allow: how the option reads that lets a tool run once, best first; else it is the first one.
        stamped_early_s: how much earlier than it writes a terminal record the CLI stamps it; the gate allows for that.
        wait_s: how long any one thing is waited for: more where a CLI must be given time before it is resumed.
    """

    adapter: AnyAdapter
    executable: tuple[str, ...] = ()
    realness: Realness = "emulated"
    home: str | Seal = "claude-code"
    options: Mapping[str, Any] = {}
    asking: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}
    tools: Toolbox | None = None
    words: Words = Words()
    allow: tuple[str, ...] = ("Yes", "Allow once", "Allow")
    stamped_early_s: float = 0.0
    wait_s: float = 60.0

    @property
    def name(self) -> str:
        """``provider/transport``."""
        return f"{self.adapter.name}/{self.adapter.transport}"


def load(name: str) -> Subject:
    """The subject, or what a function there makes, of ``MODULE:ATTRIBUTE``; modules of the working directory are found.

    Raises:
        UsageError: it cannot be imported, or is none.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module, _, attribute = name.partition(":")
    try:
        value = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "MODULE:SUBJECT, where MODULE is installed or in this directory"
        raise UsageError("usage", f"{name} cannot be imported: {error}", remedy=remedy) from error
    subject = value() if callable(value) and not isinstance(value, Subject) else value
    if not isinstance(subject, Subject):
        raise UsageError("usage", f"{name} is no lastword conformance Subject")
    return subject
