"""Providers: what a runtime can start: adapters, where their CLIs are, and whether they are fit to be driven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lastword.actors.core.adapter import AdapterKey, AnyAdapter, LaunchRequest
from lastword.actors.core.delivery import TransportName
from lastword.actors.core.errors import ProviderError
from lastword.actors.core.service import ApiAdapter
from lastword.runtime import _preflight as preflight
from lastword.runtime._session_config import SessionConfig


class Providers:
    """Of one runtime. Safe from any thread.

    Attributes:
        adapters: by provider and transport.
        versions: what each CLI says of its own.
    """

    def __init__(
        self,
        adapters: Mapping[AdapterKey, AnyAdapter],
        executables: Mapping[str, preflight.Executable],
        env: Mapping[str, str],
        *,
        allow_uncertified: bool,
    ) -> None:
        self.adapters = dict(adapters)
        self.versions = preflight.Versions()
        self._executables = dict(executables)
        self._env = env
        self._allow_uncertified = allow_uncertified

    def adapter(self, provider: str, transport: TransportName | None) -> AnyAdapter:
        """As :func:`lastword.runtime._preflight.find_adapter`."""
        return preflight.find_adapter(self.adapters, provider, transport)

    def fit(self, adapter: AnyAdapter, cwd: str, config: SessionConfig) -> tuple[preflight.Executable, str]:
        """Its CLI and the version of that, or its SDK's; seen fit to be driven so. Blocks where that was never asked.

        Raises:
            UsageError: ``usage``: an API that cannot be asked so.
            ProviderError: ``provider_unavailable``, ``unsupported_cli_version``.
        """
        if adapter.transport == "api":
            return (), preflight.check_service(cast("ApiAdapter", adapter), self.request("", cwd, (), config))
        executable = preflight.find_executable(adapter, self._executables.get(adapter.name), self._env)
        version = ""
        # one without versions stands for any program, which says itself what it is
        if adapter.certified_versions or "emulated" in adapter.capabilities:
            version = self.versions.of(adapter, executable, self._env)
            preflight.check_version(adapter, version, allow_uncertified=self._allow_uncertified)
        return executable, version

    def named(self, adapter: AnyAdapter) -> preflight.Executable:
        """Its CLI, unseen. Where it is missing, its name: the end of what it began can be settled all the same, and a
        start says what is missing.
        """
        if adapter.transport == "api":
            return ()
        try:
            return preflight.find_executable(adapter, self._executables.get(adapter.name), self._env)
        except ProviderError:
            return (adapter.executables or (adapter.name,))[:1]

    def request(
        self, native_session: str, cwd: str, executable: preflight.Executable, config: SessionConfig
    ) -> LaunchRequest:
        """What an adapter is asked to launch."""
        return LaunchRequest(
            native_session=native_session,
            cwd=cwd,
            executable=executable,
            env=self._env,
            model=config.model,
            permission_mode=config.permission_mode,
            extra_args=config.extra_args,
        )
