"""What is checked before a session may open: provider, CLI, version, folder. Each failure is typed, with a remedy."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from lastword.actors.core.adapter import Adapter, Adapters, AnyAdapter, LaunchRequest
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import ProviderError, UsageError
from lastword.actors.core.service import ApiAdapter

VERSION_TIMEOUT_S = 20.0
"""How long ``CLI --version`` may take."""

Executable = tuple[str, ...]


def find_adapter(adapters: Adapters, provider: str, transport: TransportName | None = None) -> AnyAdapter:
    """The adapter of that provider over that transport; None: over its pane, in process where it has none, or over the
    only one that there is.

    Raises:
        UsageError: ``unknown_provider``; ``unsupported_capability``: not over that transport.
    """
    over = [adapter for (name, _), adapter in adapters.items() if name == provider]
    if not over:
        known = ", ".join(sorted({name for name, _ in adapters}))
        raise UsageError(
            "unknown_provider",
            f"no provider is called {provider!r}",
            remedy=f"Known here: {known}",
            provider=provider,
        )
    wanted = ("tmux", "memory") if transport is None else (transport,)
    for name in wanted:
        for adapter in over:
            if adapter.transport == name:
                return adapter
    if transport is None and len(over) == 1:
        return over[0]
    there = " or ".join(f"transport={adapter.transport!r}" for adapter in over)
    known_transport = transport is None or transport in get_args(TransportName)
    raise UsageError(
        "unsupported_capability",
        f"{provider!r} is not driven over {transport or 'tmux'}"
        if known_transport
        else f"{transport!r} is no transport",
        remedy=f"Use {there}",
        provider=provider,
    )


def check_cwd(cwd: str | os.PathLike[str]) -> str:
    """The folder as an absolute path.

    Raises:
        UsageError: ``cwd_unusable``.
    """
    try:
        path = Path(cwd).expanduser().absolute()
    except (TypeError, RuntimeError) as error:
        raise UsageError("cwd_unusable", f"not a folder's name: {cwd!r}", remedy="Name a folder with cwd=") from error
    shown = str(path).encode("utf-8", "replace").decode()
    if shown != str(path):
        remedy = "Rename it, or name another with cwd="
        raise UsageError("cwd_unusable", f"the working directory {shown} has a name that is no UTF-8", remedy=remedy)
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        remedy = "Create it, or name another with cwd="
        raise UsageError("cwd_unusable", f"the working directory {path} {what}", remedy=remedy)
    return str(path.resolve())


def check_words(**given: object) -> None:
    """What goes to the command line of a CLI: strings of whole characters.

    Raises:
        UsageError: ``usage``.
    """
    for name, words in given.items():
        for word in words if isinstance(words, tuple) else (words,):
            if not isinstance(word, str):
                raise UsageError("usage", f"{name} is made of str, not of {type(word).__name__}")
            try:
                word.encode()
            except UnicodeEncodeError:
                reason = f"{name} is no Unicode: it holds half of a surrogate pair, or bytes that are no UTF-8"
                raise UsageError("usage", reason, remedy="Replace them") from None


def find_executable(adapter: Adapter, override: Executable | None, env: Mapping[str, str]) -> Executable:
    """The CLI as an argv prefix, absolute.

    Raises:
        ProviderError: ``provider_unavailable``.
    """
    if override:
        found = shutil.which(override[0], path=env.get("PATH"))
        if found is None:
            raise ProviderError(
                "provider_unavailable",
                f"{override[0]} is no executable file",
                remedy="Correct the executables= entry",
                provider=adapter.name,
            )
        return (str(Path(found).absolute()), *override[1:])
    for name in adapter.executables:
        found = shutil.which(name, path=env.get("PATH"))
        if found is not None:
            return (str(Path(found).absolute()),)
    if not adapter.executables:
        raise ProviderError(
            "provider_unavailable",
            f"{adapter.name!r} stands for any agent: which one is not said",
            remedy=f'Name its command: executables={{"{adapter.name}": ("agent", "its-option")}}',
            provider=adapter.name,
        )
    names = " or ".join(adapter.executables)
    raise ProviderError(
        "provider_unavailable",
        f"the CLI of {adapter.name} ({names}) is not on PATH",
        remedy="Install it, or name it with executables=",
        provider=adapter.name,
    )


def check_service(adapter: ApiAdapter, request: LaunchRequest) -> str:
    """Whether that API can be asked so; the version of its SDK.

    Raises:
        UsageError: ``usage``: its arguments are none, or no model is named.
        ProviderError: ``provider_unavailable``: the extra that brings its SDK is missing, or its key is.
    """
    from lastword.transports.api import unready  # noqa: PLC0415 - late: a host of CLIs has none

    error = unready(adapter.service, request.env)
    if error is not None:
        raise error
    fault = adapter.unfit(request)
    if fault:
        raise UsageError("usage", fault, provider=adapter.name)
    return f"{adapter.service.sdk} {importlib.metadata.version(adapter.service.sdk)}"


_Files = tuple[tuple[int, int], ...]


def _files(executable: Executable) -> _Files:
    """Inode and change time of every part of the argv prefix that is a file: interpreter, script; options are none."""
    found: list[tuple[int, int]] = []
    for part in executable:
        try:
            stat = os.stat(part)  # noqa: PTH116 - a part may be no path at all
        except (OSError, ValueError):
            continue
        found.append((stat.st_ino, stat.st_mtime_ns))
    return tuple(found)


class Versions:
    """What each CLI says of its version; asked once per file and change. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[Executable, _Files], str] = {}
        self._lock = threading.Lock()

    def of(self, adapter: Adapter, executable: Executable, env: Mapping[str, str]) -> str:
        """Run ``CLI --version``; blocking, at most :data:`VERSION_TIMEOUT_S`.

        Raises:
            ProviderError: ``provider_unavailable``: it does not start, or tells no version.
        """
        key = (executable, _files(executable))
        with self._lock:
            if key in self._known:
                return self._known[key]
        try:
            done = subprocess.run(
                [*executable, "--version"],
                env=dict(env),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=VERSION_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProviderError(
                "provider_unavailable",
                f"{executable[0]} --version failed: {error}",
                remedy="Run it by hand",
                provider=adapter.name,
            ) from error
        version = adapter.parse_version(done.stdout + done.stderr)
        if not version:
            said = (done.stderr or done.stdout).strip()[-200:]
            raise ProviderError(
                "provider_unavailable",
                f"{executable[0]} --version tells no version (status {done.returncode}): {said}",
                remedy="Run it by hand",
                provider=adapter.name,
            )
        with self._lock:
            self._known[key] = version
        return version


def check_version(adapter: Adapter, version: str, *, allow_uncertified: bool) -> None:
    """Refuse a CLI on which this adapter was never seen to work, unless the host takes that on.

    Raises:
        ProviderError: ``unsupported_cli_version``.
    """
    if allow_uncertified or version in adapter.certified_versions:
        return
    certified = ", ".join(adapter.certified_versions) or "none"
    if "emulated" in adapter.capabilities:
        certified += "; it is emulated: written from documents, never seen on the real CLI"
    raise ProviderError(
        "unsupported_cli_version",
        f"{adapter.name} {version} was never certified (certified: {certified})",
        remedy="Install a certified version, or open the runtime with allow_uncertified=True",
        provider=adapter.name,
    )
